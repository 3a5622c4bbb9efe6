"""The effects of n, p and K, and table 2, of Yang et al., "Achieving Linear Speedup ...", ICLR 2021, arXiv:2101.11203.

MNIST over 100 workers with p of the 10 digits each, two hidden layers of 200 (figures 1 to 4); and table 2.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from functools import partial
from operator import itemgetter

import numpy as np

from fedloom.algorithms import FedAvg
from fedloom.cohorts import everyone, uniform
from fedloom.experiments import Experiment, experiment
from fedloom.reproductions.published import clipped, from_task, name_of, variants
from fedloom.reproductions.reproduction import COMPARABLE, Claim, Figures, Grid, Line, Reproduction, comparable, smaller
from fedloom.solvers import SGD
from fedloom.tasks import TASKS, Measure, Reported
from fedloom.tasks.linear_speedup import PAPER, TABLE_2, WORKERS, seconds_of_a_round

LOSS = Measure("train loss")
P = (1, 2, 5, 10)
N = (10, 100)
K = (1, 5, 10)


def _experiment(p: int, n: int, epochs: int) -> Experiment:
    cohort = everyone() if n == WORKERS else uniform(n)
    e = experiment(
        f"mnist-2nn-digits{p}",
        FedAvg(),
        "n=10",
        cohort=cohort,
        rounds=100,
        evaluate_every=5,
        **{"solver.epochs": epochs},
    )
    return dataclasses.replace(e, evaluate=("train loss", "test"))


def cell(p: int, n: int) -> str:
    """The setting of p digits for each worker and n workers in a round."""
    return f"digits_{p}, n={n}"


def gap(f: Figures, p: int) -> float:
    """What 10 workers in a round lose against all 100."""
    return f[cell(p, 10), "K=5"] - f[cell(p, 100), "K=5"]


def in_order(f: Figures, n: int) -> bool:
    """The fewer digits a worker has, the larger the training loss."""
    losses = [f[cell(p, n), "K=5"] for p in P]
    return all(a > b for a, b in itertools.pairwise(losses))


def several_epochs(f: Figures, setting: str) -> float:
    """The larger loss of those with 5 and 10 epochs."""
    return max(f[setting, "K=5"], f[setting, "K=10"])


def effect_of_epochs(f: Figures) -> float:
    """What K from 1 to 10 changes with 5 digits for each of 10 workers."""
    return abs(f[cell(5, 10), "K=1"] - f[cell(5, 10), "K=10"])


def effect_of_digits(f: Figures) -> float:
    """What 1 digit instead of 5 for each of 10 workers changes."""
    return abs(f[cell(1, 10), "K=5"] - f[cell(5, 10), "K=5"])


def slight(f: Figures) -> bool:
    """With 5 digits, K from 1 to 10 changes less than n from 10 to 100 and than 1 digit instead of 5."""
    return effect_of_epochs(f) < min(abs(gap(f, 5)), effect_of_digits(f))


ALIKE_DIGITS = {n: f"n={n}: 5 digits for each worker are comparable with 10 (within {COMPARABLE:.0%})" for n in N}
EPOCHS_HELP = "local steps help: 5 and 10 epochs end below 1"
SLIGHT = "local steps have a slight effect compared with those of heterogeneity and workers"


def _figures() -> Reproduction:
    """Figures 1 and 2 are about n and p, figures 3 and 4 about K; runs with 5 epochs belong to both."""
    cells = [(cell(p, n), p, n, k) for p in P for n in N for k in (K if p < 10 else (5,))]
    claims = [
        smaller(
            "10 workers in a round converge more slowly than all 100",
            itemgetter((cell(p, 100), "K=5")),
            itemgetter((cell(p, 10), "K=5")),
            cell(p, 10),
        )
        for p in P
    ]
    words = "this is more prominent with 1 digit for each worker than with 10"
    claims.append(smaller(words, partial(gap, p=10), partial(gap, p=1)))
    for n in N:
        claims += [
            Claim(f"n={n}: the fewer digits a worker has, the slower", lambda f, n=n: in_order(f, n)),  # type: ignore[misc]
            Claim(
                ALIKE_DIGITS[n],
                lambda f, n=n: comparable(f[cell(5, n), "K=5"], f[cell(10, n), "K=5"]),  # type: ignore[misc]
            ),
        ]
    claims += [
        smaller(EPOCHS_HELP, partial(several_epochs, setting=s), itemgetter((s, "K=1")), s)
        for s in dict.fromkeys(s for s, p, _, _ in cells if p < 10)
    ]
    claims.append(Claim(SLIGHT, slight))
    return Reproduction(
        "speedup-figures",
        "Figures 1 to 4 with two hidden layers: FedAvg, n of 100 workers in a round, p digits each, K local epochs.",
        PAPER,
        {f"{s}, K={k}": _experiment(p, n, k) for s, p, n, k in cells},
        tuple(Line(s, f"K={k}", f"{s}, K={k}", LOSS) for s, _, _, k in cells),
        tuple(claims),
        "The paper's figures also have logistic regression and a convolutional network, and the test accuracy; these "
        "are of the training loss. A split is drawn for each seed; batches have 64 examples.",
        ("mnist",),
    )


def _cheaper(setting: str, reported: Reported | None) -> tuple[Claim, ...]:
    """SCAFFOLD sends two vectors in a round, so half as many rounds cost the same; where the table says so."""
    if reported is None or reported.measure.counted != "rounds":
        return ()
    if not reported.values["fedavg"] < 2 * reported.values["scaffold"]:
        return ()
    words = "FedAvg communicates less than SCAFFOLD, which sends twice as much in a round"
    return (_less(words, "scaffold", setting),)


def _less(words: str, than: str, setting: str) -> Claim:
    """In rounds, of which those of SCAFFOLD count twice."""
    return smaller(words, itemgetter((setting, "fedavg")), lambda f: 2 * f[setting, than], setting)


ROUNDS = 2000  # T of corollary 2
SMOOTHNESS = 125.1  # L of logistic regression on standardised MNIST: half the largest eigenvalue of the inputs' moments
WORKERS_OF_CELLS = (1, 2, 5, 10, 20, 50, 100)
STEPS_OF_CELLS = (1, 2, 5, 10)
CELLS = tuple((n, k) for n in WORKERS_OF_CELLS for k in STEPS_OF_CELLS)


def slope(norms: Sequence[float], x: Sequence[int]) -> float:
    """By how much the logarithm of |grad f|^2 changes with that of x, by least squares."""
    return float(np.polyfit(np.log(x), 2 * np.log(norms), 1)[0]) if np.all(np.isfinite(norms)) else math.inf


def _of_corollary_2(p: int, n: int, k: int, eta: float) -> Experiment:
    e = experiment(
        f"mnist-lr-digits{p}",
        FedAvg(lr=eta),
        "n=10",
        solver=SGD(1 / (math.sqrt(ROUNDS) * k * SMOOTHNESS), batch_size=1, steps=k),
        cohort=everyone() if n == WORKERS else uniform(n),
        rounds=ROUNDS,
        evaluate_every=50,
    )
    return dataclasses.replace(e, evaluate=("gradient norm", "test"))


OF_N, ONE_WORKER = "against n, K=1", "one worker"


def _flatness(f: Figures, s: str) -> float:
    """How steeply the norm falls with the steps that belong to n workers, but one worker."""
    return -f[s, ONE_WORKER]


def _steepness(f: Figures, s: str) -> float:
    """How steeply it falls with n workers."""
    return -f[s, OF_N]


def _corollary_2() -> Reproduction:
    """eta_l = 1 / (sqrt(T) K L) and eta = sqrt(K n) promise min |grad f|^2 = O(1 / sqrt(n K T)): a slope of -1/2."""
    runs, lines, claims = dict[str, Experiment](), list[Line](), list[Claim]()
    for p in (10, 2):
        norm, s = Measure("gradient norm", best=True), f"digits_{p}"
        names = tuple(f"{s}, n={n}, K={k}" for n, k in CELLS)
        runs |= {name: _of_corollary_2(p, n, k, math.sqrt(k * n)) for name, (n, k) in zip(names, CELLS, strict=True)}
        of_all = partial(slope, x=[n * k for n, k in CELLS])
        slopes = f"{s}, slope of the squared norm"
        every = Grid("n", WORKERS_OF_CELLS, "K", STEPS_OF_CELLS)
        lines.append(Line(slopes, "against nK", names, norm, combined=of_all, grid=every))
        # The server's step grows with n: how much of the slope is there with one worker and these steps?
        of_n = tuple(f"{s}, n={n}, K=1" for n in WORKERS_OF_CELLS)
        alone = tuple(f"{s}, one worker, the step of n={n}" for n in WORKERS_OF_CELLS)
        runs |= {name: _of_corollary_2(p, 1, 1, math.sqrt(n)) for name, n in zip(alone, WORKERS_OF_CELLS, strict=True)}
        of_one = every._replace(ys=(1,))
        for words, which in ((OF_N, of_n), (ONE_WORKER, alone)):
            of_slope = partial(slope, x=WORKERS_OF_CELLS)
            lines.append(Line(slopes, words, which, norm, combined=of_slope, grid=of_one))
        for n, k in ((1, 1), (10, 1), (100, 1), (100, 10)):
            lines.append(Line(s, f"n={n}, K={k}", f"{s}, n={n}, K={k}", norm))
        words = "with the corollary's steps the smallest |grad f|^2 falls as 1 / sqrt(n K) or faster"
        claims.append(Claim(words, lambda f, s=slopes: f[s, "against nK"] <= -0.5, slopes))  # type: ignore[misc]
        words = (
            "more workers help beyond the larger steps: their slope is steeper than one worker's with the same steps"
        )
        claims.append(
            smaller(words, partial(_flatness, s=slopes), partial(_steepness, s=slopes), slopes)._replace(ours=True)
        )
    return Reproduction(
        "speedup-corollary2",
        "The linear speedup itself: the smallest |grad f|^2 in 2,000 rounds against n workers times K local steps.",
        PAPER,
        runs,
        tuple(lines),
        tuple(claims),
        "Logistic regression on MNIST, batches of one example, the corollary's step sizes with L = 125. The slope is "
        "that of log min |grad f|^2 against log nK over 28 cells, n from 1 to 100 and K from 1 to 10. The corollary "
        "is an upper bound, so a steeper slope agrees with it. Its server step grows with n. The runs of 'one worker' "
        "have the step sizes that belong to n workers, but a single worker: what larger steps do alone.",
        ("mnist",),
    )


ALL = "test accuracy"  # beside the table's measure: of all test images
STEPS = 45  # of every worker in a round: 5 epochs of its 540 or 542 images in batches of 64
CLIPPED = "scaffold, clipped"  # what stands beside SCAFFOLD: it, with its steps clipped as FedAvg's are
LESS_THAN_CLIPPED = "FedAvg communicates less than SCAFFOLD with clipped steps"


def _seconds(task: str, rounds: Reported, before: str = "") -> list[Line]:
    """What our rounds would have taken the authors, beside what theirs took; names of runs begin with `before`."""
    model, found = task.split("-")[1], []
    setting = f"{before or rounds.variant + ', '}seconds for these rounds"
    for method, published in zip(("scaffold", "fedavg"), TABLE_2[task][rounds.variant], strict=True):
        of_rounds = partial(_times, factor=seconds_of_a_round(model, method))
        found.append(Line(setting, method, before + method, rounds.measure, published.seconds, rounds.where, of_rounds))
    return found


def _times(rounds: Sequence[float], factor: float) -> float:
    return factor * rounds[0]


def _table_2(model: str, words: str, workers: tuple[int, ...], rounds: int) -> Reproduction:
    """Both splits, with 10 or 100 workers in a round; the last worker's images, as in the table, and all."""
    runs, lines, claims = dict[str, Experiment](), list[Line](), list[Claim]()
    for p in (10, 2):
        task = TASKS[f"mnist-{model}-digits{p}-authors"]
        for n in workers:
            own = [r for r in task.reported if r.variant == f"n={n}"]
            for method in ("scaffold", "fedavg"):
                e = experiment(task.name, method, f"n={n}", rounds=rounds, evaluate_every=1)
                runs[f"digits_{p}, n={n}, {method}"] = e
            before, fedavg = (runs[f"digits_{p}, n={n}, {method}"] for method in ("scaffold", "fedavg"))
            runs[f"digits_{p}, n={n}, {CLIPPED}"] = clipped(before, fedavg, STEPS)
            for r in own:
                assert r.measure.target is not None
                setting = (
                    f"digits_{p}, n={n}, {r.measure.counted} to {r.measure.target:.0%} on the last worker's images"
                )
                for method, value in (*r.values.items(), (CLIPPED, r.values["scaffold"])):
                    run, beside = f"digits_{p}, n={n}, {method}", method == CLIPPED
                    lines.append(Line(setting, method, run, r.measure, value, r.where, beside=beside))
                if r.measure.counted == "rounds":
                    claims += _cheaper(setting, r)
                    claims.append(_less(LESS_THAN_CLIPPED, CLIPPED, setting)._replace(ours=True))
                    lines += _seconds(f"mnist-{model}-digits{p}", r, f"digits_{p}, n={n}, ")
            setting = f"digits_{p}, n={n}, rounds to 95% on all test images"
            for method in ("scaffold", "fedavg", CLIPPED):
                measure = Measure(ALL, 0.95, "rounds")
                lines.append(Line(setting, method, f"digits_{p}, n={n}, {method}", measure))
    return Reproduction(
        f"speedup-table2-{model}" + (f"-n={workers[0]}" if len(workers) == 1 else ""),
        f"Table 2 on MNIST with {words}: rounds, MiB and seconds to 95%, SCAFFOLD and FedAvg, digits_10 and digits_2.",
        PAPER,
        runs,
        tuple(lines),
        tuple(claims),
        f"{rounds} rounds. The split and the cohorts are those of the authors' program, so seeds differ in the "
        "initial model and in minibatches only. In the last public version of the authors' code the accuracy is that "
        "on the test images of one worker, the last of the cohort (80 or 88 images); that on all images stands "
        "beside it. Seconds are our rounds times what a round took the authors, on their GPU and a link of 20 MB/s; "
        "what the table calls MB are MiB. Where the table itself says that FedAvg does not communicate less, this is "
        "not checked. "
        "The authors' program has no SCAFFOLD, but clips FedAvg's steps at norm 60: SCAFFOLD is run without and with "
        "that, then with control variates that are (w - v) / (K eta_l), as if nothing were clipped; w is the server's "
        "model and v the worker's.",
        ("mnist",),
        seeds=tuple(range(5)),
    )


def _on_cifar(name: str, variant: str) -> Reproduction:
    r = from_task(name_of("speedup", name, variant), name, variant, _cheaper)
    rounds = (of for of in TASKS[name].reported if of.variant == variant and of.measure.counted == "rounds")
    return dataclasses.replace(r, lines=(*r.lines, *(line for of in rounds for line in _seconds(name, of))))


REPRODUCTIONS = (
    _figures(),
    _corollary_2(),
    _table_2("lr", "logistic regression", (10, 100), 50),
    _table_2("2nn", "two hidden layers of 200", (10, 100), 50),
    _table_2("cnn", "a convolutional network", (10,), 30),
    _table_2("cnn", "a convolutional network", (100,), 30),
    *(
        _on_cifar(name, variant)
        for name in ("cifar10-resnet-digits10", "cifar10-resnet-digits2")
        for variant in variants(name)
    ),
)
