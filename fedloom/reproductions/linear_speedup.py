"""The effects of n and K, and table 2, of Yang et al., "Achieving Linear Speedup ...", ICLR 2021, arXiv:2101.11203.

The paper's figures are of MNIST over 100 workers with p of the 10 digits each. Here the same split of the UCI
digits is run, which needs no download: 1,400 or fewer examples, 10 to 14 for each worker.
"""

import itertools
import math

from fedloom.algorithms import FedAvg
from fedloom.cohorts import CohortRule, everyone, uniform
from fedloom.experiments import Experiment, experiment
from fedloom.reproductions.published import from_task, name_of, variants
from fedloom.reproductions.reproduction import COMPARABLE, Claim, Figures, Line, Reproduction, comparable
from fedloom.solvers import SGD
from fedloom.tasks import TASKS, Measure, Reported
from fedloom.tasks.linear_speedup import PAPER, WORKERS
from fedloom.tasks.linear_speedup import TASKS as SPEEDUP_TASKS

LOSS = Measure("train loss")
P = (1, 2, 5, 10)
N = (10, 50, 100)
K = (1, 5, 10)
NOTES = (
    "The paper uses MNIST and two hidden layers of 200; here the data are UCI's 8x8 digits, and the model has "
    "one hidden layer of 32. Batches have 10 examples, since a worker has only 10 to 14."
)


def _experiment(p: int, n: int, epochs: int) -> Experiment:
    cohort: CohortRule = everyone() if n == WORKERS else uniform(n)
    return experiment(
        "digits",
        FedAvg(),
        split={"name": "digits_p", "p": p, "clients": WORKERS},
        weights="uniform",
        solver=SGD(0.1, batch_size=10, epochs=epochs, clip=60.0),
        cohort=cohort,
        rounds=100,
    )


def slower(f: Figures, p: int) -> bool:
    return f[f"digits_{p}", "n=10"] > f[f"digits_{p}", "n=100"]


def gap(f: Figures, p: int) -> float:
    """What 10 workers in a round lose against all 100."""
    return f[f"digits_{p}", "n=10"] - f[f"digits_{p}", "n=100"]


def in_order(f: Figures, method: str) -> bool:
    """The fewer digits a worker has, the larger the training loss."""
    losses = [f[f"digits_{p}", method] for p in P]
    return all(a > b for a, b in itertools.pairwise(losses))


def _workers() -> Reproduction:
    lines = [Line(f"digits_{p}", f"n={n}", f"digits_{p}, n={n}", LOSS) for p in P for n in N]
    runs = {f"digits_{p}, n={n}": _experiment(p, n, 5) for p in P for n in N}
    claims = [
        Claim("10 workers in a round converge more slowly than all 100", lambda f, p=p: slower(f, p), f"digits_{p}")  # type: ignore[misc]
        for p in P
    ]
    claims.append(
        Claim("this is more prominent with 1 digit for each worker than with 10", lambda f: gap(f, 1) > gap(f, 10))
    )
    for method in ("n=10", "n=100"):
        claims += [
            Claim(f"{method}: the fewer digits a worker has, the slower", lambda f, m=method: in_order(f, m)),  # type: ignore[misc]
            Claim(
                f"{method}: 5 digits for each worker are comparable with 10 (within {COMPARABLE:.0%})",
                lambda f, m=method: comparable(f["digits_5", m], f["digits_10", m]),  # type: ignore[misc]
            ),
        ]
    return Reproduction(
        "speedup-n",
        "FedAvg with n of 100 workers in a round, each with p classes: the effects of n and of p; 5 local epochs.",
        PAPER,
        runs,
        tuple(lines),
        tuple(claims),
        NOTES,
        seeds=(0, 1, 2),
    )


def steps_help(f: Figures, setting: str) -> bool:
    return f[setting, "K=1"] > max(f[setting, "K=5"], f[setting, "K=10"])


def slight(f: Figures) -> bool:
    """With 5 digits, K from 1 to 10 changes less than n from 10 to 100 and than 1 digit instead of 5."""
    of_k = abs(f["digits_5, n=10", "K=1"] - f["digits_5, n=10", "K=10"])
    of_n = abs(f["digits_5, n=10", "K=5"] - f["digits_5, n=100", "K=5"])
    of_p = abs(f["digits_1, n=10", "K=5"] - f["digits_5, n=10", "K=5"])
    return of_k < min(of_n, of_p)


def _local_epochs() -> Reproduction:
    cells = [(f"digits_{p}, n={n}", p, n, k) for p in (1, 2, 5) for n in (10, 100) for k in K]
    settings = dict.fromkeys(cell[0] for cell in cells)
    claims = [
        Claim("local steps help: 5 and 10 epochs end below 1", lambda f, s=s: steps_help(f, s), s)  # type: ignore[misc]
        for s in settings
    ]
    claims.append(Claim("local steps have a slight effect compared with those of heterogeneity and workers", slight))
    return Reproduction(
        "speedup-K",
        "FedAvg with K = 1, 5 or 10 local epochs, 10 or 100 of 100 workers in a round, 1, 2 or 5 classes for each.",
        PAPER,
        {f"{s}, K={k}": _experiment(p, n, k) for s, p, n, k in cells},
        tuple(Line(s, f"K={k}", f"{s}, K={k}", LOSS) for s, _, _, k in cells),
        tuple(claims),
        NOTES,
        seeds=(0, 1, 2),
    )


def cheaper(f: Figures, setting: str) -> bool | None:
    """In models sent; None if neither reaches the target."""
    fedavg, scaffold = f[setting, "fedavg"], 2 * f[setting, "scaffold"]
    return None if math.isinf(min(fedavg, scaffold)) else fedavg < scaffold


def _cheaper(setting: str, reported: Reported | None) -> tuple[Claim, ...]:
    """SCAFFOLD sends two vectors in a round, so half as many rounds cost the same; where the table says so."""
    if reported is None or not reported.values["fedavg"] < 2 * reported.values["scaffold"]:
        return ()
    words = "FedAvg communicates less than SCAFFOLD, which sends twice as much in a round"
    return (Claim(words, lambda f: cheaper(f, setting), setting),)


def _table_2() -> tuple[Reproduction, ...]:
    return tuple(
        from_task(name_of("speedup", task.name, variant), task.name, variant, _cheaper)
        for task in SPEEDUP_TASKS
        if TASKS[task.name].reported
        for variant in variants(task.name)
    )


REPRODUCTIONS = (_workers(), _local_epochs(), *_table_2())
