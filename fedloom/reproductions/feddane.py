"""FedDANE, figures 1 to 3 on the synthetic sets: Li et al., 2020, arXiv:2001.01920.

The figures are curves of the training loss; the paper prints no numbers. FedDANE's mu was chosen from a grid by the
training loss and is not published: the whole grid is run here, and the claims are checked on the best mu of each seed.

Means are taken in two ways: by examples, of devices drawn uniformly, as in the authors' released program; and plainly,
of devices drawn by their numbers of examples, as in the paper's boxes. The loss is that of all examples in both cases.
"""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

from fedloom.algorithms import FedDANE, FedProx
from fedloom.cohorts import CohortRule, by_weight, everyone, plain, uniform
from fedloom.experiments import Experiment, experiment
from fedloom.reproductions.published import from_task
from fedloom.reproductions.reproduction import COMPARABLE, Claim, Figures, Line, Reproduction, smaller
from fedloom.tasks import Measure, Reported
from fedloom.tasks.fedprox import LEVELS, TUNED_OVER, synthetic_words

PAPER = "FedDANE, arXiv:2001.01920"
LOSS = Measure("train loss")
MUS = TUNED_OVER["feddane.mu"]
DEVICES = (1, 5, 10, 30)  # of 30
SEEDS = tuple(range(5))
WORSE = {
    "fedavg": "FedDANE, with its best mu, ends above FedAvg",
    "fedprox": "FedDANE, with its best mu, ends above FedProx",
}
SHARED: dict[str, Any] = {"rounds": 200, "evaluate_every": 5}
AVERAGED = (
    "'means by examples': devices are drawn uniformly and count by their examples, as in the authors' program; 'plain "
    "means': they are drawn by their examples and count alike, as in the paper's algorithms."
)
SIZES = (
    "Devices have the sizes of the authors' files; the largest of the 30 has 19% to 61% of all examples. The data are "
    "drawn anew for each seed."
)

# Two ways to draw m of the 30 devices and to average, in words. Each follows the loss of all examples, except for plain
# means of everyone: these follow the loss in which devices count alike.
WAYS: dict[str, Callable[[int], CohortRule]] = {
    "means by examples": lambda m: everyone() if m == 30 else uniform(m),
    "plain means": lambda m: plain(everyone()) if m == 30 else by_weight(m),
}


def _setting(kind: str, way: str) -> str:
    return f"{synthetic_words(kind)}, {way}"


def best(figures: Figures, setting: str) -> float:
    """FedDANE's training loss with the mu that makes it smallest."""
    return min(figures[setting, f"feddane, mu={mu:g}"] for mu in MUS)


def comparable_with(figures: Figures, setting: str) -> bool:
    return best(figures, setting) <= (1 + COMPARABLE) * min(figures[setting, "fedavg"], figures[setting, "fedprox"])


def _against_baselines(kind: str, **changes: Any) -> dict[str, Experiment]:
    """FedAvg, FedProx, and FedDANE with every mu of the grid, by method."""
    task = f"synthetic-{kind}-authors"
    runs = {method: experiment(task, method, **changes) for method in ("fedavg", "fedprox")}
    grid: dict[str, dict[str, Any]] = {f"feddane, mu={mu:g}": {"algorithm.mu": mu} for mu in MUS}
    return runs | {name: experiment(task, "feddane", **change, **changes) for name, change in grid.items()}


def worse(setting: str, than: str) -> Claim:
    return smaller(WORSE[than], itemgetter((setting, than)), partial(best, setting=setting), setting)


def _lines_of(runs: dict[tuple[str, str], Experiment]) -> tuple[Line, ...]:
    return tuple(Line(setting, method, f"{setting}, {method}", LOSS) for setting, method in runs)


def _named(runs: dict[tuple[str, str], Experiment]) -> dict[str, Experiment]:
    return {f"{setting}, {method}": e for (setting, method), e in runs.items()}


def _figure_1() -> Reproduction:
    runs: dict[tuple[str, str], Experiment] = {}
    claims = []
    for way, cohort in WAYS.items():
        for kind in LEVELS:
            setting = _setting(kind, way)
            found = _against_baselines(kind, cohort=cohort(10), **SHARED)
            runs |= {(setting, method): e for method, e in found.items()}
            if kind == "iid":
                words = (
                    f"FedDANE, with its best mu, ends at most {COMPARABLE:.0%} above the better of FedAvg and FedProx"
                )
                claims.append(Claim(words, partial(comparable_with, setting=setting), setting))
            else:
                claims += [worse(setting, than) for than in WORSE]
    return Reproduction(
        "feddane-figure1",
        "FedDANE against FedAvg and FedProx on the four synthetic sets: 10 of 30 devices, 20 local epochs, 200 rounds.",
        PAPER,
        _named(runs),
        _lines_of(runs),
        tuple(claims),
        f"{AVERAGED} {SIZES} In the authors' released program FedDANE's correction is wrong for logistic models: it "
        "adds the mean gradient but does not subtract the device's own. Here it is as in the paper's algorithm.",
        seeds=SEEDS,
    )


def _figure_2() -> Reproduction:
    runs, lines, claims = dict[str, Experiment](), list[Line](), list[Claim]()
    for way, cohort in WAYS.items():
        for kind in ("iid", "0-0", "0.5-0.5"):
            setting = _setting(kind, way)
            for m in DEVICES:
                names = tuple(f"{setting}, {m} of 30, mu={mu:g}" for mu in MUS)
                for name, mu in zip(names, MUS, strict=True):
                    runs[name] = experiment(f"synthetic-{kind}-authors", FedDANE(mu), cohort=cohort(m), **SHARED)
                lines.append(Line(setting, f"{m} of 30", names, LOSS))
            one, _, ten, everybody = (itemgetter((setting, f"{m} of 30")) for m in DEVICES)
            if kind != "iid":
                claims.append(smaller("low participation hurts: 1 device ends above 30", everybody, one, setting))
            if kind == "0.5-0.5":
                claims.append(smaller("even all devices do not help: 30 end above 10", ten, everybody, setting))
    return Reproduction(
        "feddane-figure2",
        "FedDANE with 1, 5, 10 or 30 of 30 devices in a round, on three synthetic sets: 20 local epochs, 200 rounds.",
        PAPER,
        runs,
        tuple(lines),
        tuple(claims),
        f"Each figure is that of the best mu of {', '.join(f'{mu:g}' for mu in MUS)} for its seed. Plain means of all "
        "30 devices follow the loss in which devices count alike, those of fewer, drawn by their examples, the loss "
        f"that is measured; so the two are not compared under the same aim there. {AVERAGED} {SIZES}",
        seeds=SEEDS,
    )


def _figure_3() -> Reproduction:
    runs: dict[tuple[str, str], Experiment] = {}
    ways: dict[str, dict[str, Any]] = {way: {"cohort": cohort(30)} for way, cohort in WAYS.items()}
    ways["plain means, plain loss"] = {"cohort": everyone(), "weights": "uniform"}
    for way, changes in ways.items():
        for kind in LEVELS:
            found = _against_baselines(kind, **{"solver.epochs": 1}, **changes, **SHARED)
            runs |= {(_setting(kind, way), method): e for method, e in found.items()}
    return Reproduction(
        "feddane-figure3",
        "A setting that favours FedDANE, on the four synthetic sets: all 30 devices, one local epoch, 200 rounds.",
        PAPER,
        _named(runs),
        _lines_of(runs),
        # Not of the plain loss, which is ours.
        tuple(worse(_setting(kind, way), than) for way in WAYS for kind in LEVELS for than in WORSE),
        f"{AVERAGED} With all devices nothing is drawn. {SIZES} 'plain loss': the loss in which every device counts "
        "alike, which is what plain means follow once the correction takes each device's own gradient away. The "
        "paper's figure has FEMNIST, Sent140 and Shakespeare too, with 50%, 26% and 70% of the devices.",
        seeds=SEEDS,
    )


# The variants that the paper only proposes, in which the correction has less and less weight, or comes a round late.
VARIANTS: dict[str, Callable[[float], FedDANE | FedProx]] = {
    "fedprox": FedProx,
    "feddane": FedDANE,
    "feddane, decay=0.98": lambda mu: FedDANE(mu, decay=0.98),
    "feddane, decay=0.9": lambda mu: FedDANE(mu, decay=0.9),
    "feddane, pipelined": lambda mu: FedDANE(mu, pipelined=True),
}


def _variants() -> Reproduction:
    runs, lines, claims = dict[str, Experiment](), list[Line](), list[Claim]()
    for kind in LEVELS:
        setting = synthetic_words(kind)
        for variant, of in VARIANTS.items():
            names = tuple(f"{setting}, {variant}, mu={mu:g}" for mu in MUS)
            for name, mu in zip(names, MUS, strict=True):
                runs[name] = experiment(f"synthetic-{kind}-authors", of(mu), cohort=uniform(10), **SHARED)
            lines.append(Line(setting, variant, names, LOSS))
            for than in ("feddane", "fedprox"):
                if variant not in ("feddane", "fedprox"):
                    mine, other = itemgetter((setting, variant)), itemgetter((setting, than))
                    words = f"{variant} ends below {than}"
                    claims.append(smaller(words, mine, other, setting)._replace(ours=True))
    return Reproduction(
        "feddane-variants",
        "The decayed and the pipelined FedDANE, which the paper only proposes: 10 of 30 devices, E = 20.",
        PAPER,
        runs,
        tuple(lines),
        tuple(claims),
        f"Each figure is that of the best mu for its seed, FedProx's too. {SIZES} Means are by examples.",
        seeds=SEEDS,
    )


def _real(name: str, task: str) -> Reproduction:
    def claims(setting: str, reported: Reported | None) -> tuple[Claim, ...]:
        feddane = itemgetter((setting, "feddane"))
        return tuple(
            smaller(f"FedDANE ends above {name}", itemgetter((setting, than)), feddane, setting)
            for than, name in (("fedavg", "FedAvg"), ("fedprox", "FedProx"))
        )

    notes = "FedDANE uses FedProx's mu; the value that the paper chose from its grid is not published."
    return from_task(name, task, "0% stragglers", claims, usual=LOSS, notes=notes)


REPRODUCTIONS = (
    _figure_1(),
    _figure_2(),
    _figure_3(),
    _variants(),
    _real("feddane-femnist", "femnist-fedprox"),
    _real("feddane-shakespeare", "shakespeare-fedprox"),
    _real("feddane-sent140", "sent140"),
)
