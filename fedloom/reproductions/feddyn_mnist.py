"""FedDyn, figures 1 and 2 in kind on MNIST: Acar et al., 2021, arXiv:2111.04263."""

import dataclasses
from functools import partial
from operator import itemgetter
from typing import Any

from fedloom.algorithms import FedDyn, FedSplit
from fedloom.experiments import Experiment, experiment
from fedloom.reproductions.reproduction import Claim, Figures, Line, Reproduction, smaller
from fedloom.tasks import Measure
from fedloom.tasks.feddyn import PAPER

ALPHAS = (1.0, 0.5, 0.1, 0.05, 0.01, 0.001)  # of figure 1
OF_LAST = Measure("last models test accuracy", scale=100)
IN_KIND = (
    "The paper's figure is of CIFAR-10 and has 1000 rounds; this is its counterpart on MNIST, iid, 10%, 300 rounds."
)


def _at_10_percent(**changes: Any) -> Experiment:
    """FedDyn as in table 2, without the target."""
    return experiment("mnist-2nn-iid", "feddyn", "10%", rounds=300, evaluate_every=5, **changes)


def best_inside(figures: Figures, setting: str) -> bool:
    largest, *inside, smallest = (figures[setting, f"alpha={alpha:g}"] for alpha in ALPHAS)
    return max(inside) > max(largest, smallest)


def _figure_1() -> Reproduction:
    setting = "MNIST iid, 10%"
    names = [f"alpha={alpha:g}" for alpha in ALPHAS]
    best = dataclasses.replace(OF_LAST, best=True)
    return Reproduction(
        "feddyn-figure1-mnist",
        "Figure 1 in kind on MNIST: how much FedDyn's best accuracy depends on alpha.",
        PAPER,
        {name: _at_10_percent(**{"algorithm.alpha": alpha}) for name, alpha in zip(names, ALPHAS, strict=True)},
        tuple(Line(setting, name, name, best) for name in names),
        (
            Claim(
                "the best alpha is inside the range: neither 1 nor 0.001",
                partial(best_inside, setting=setting),
                setting,
            ),
        ),
        IN_KIND,
        ("mnist",),
    )


def highest(figures: Figures, setting: str, methods: tuple[str, ...]) -> float:
    return max(figures[setting, m] for m in methods)


ACT = "FedSplit Act ends above FedSplit All"


def _figure_2() -> Reproduction:
    feddyn = _at_10_percent()
    assert isinstance(feddyn.algorithm, FedDyn)
    runs = {"feddyn": feddyn}
    for name, averaging in (("fedsplit, all", "all"), ("fedsplit, act", "active")):
        fedsplit = FedSplit(1 / feddyn.algorithm.alpha, averaging)
        runs[name] = dataclasses.replace(feddyn, algorithm=fedsplit)
    measures = {"mean of last models": OF_LAST, "server's model": Measure("test accuracy", scale=100)}
    claims = []
    for s in measures:
        feddyn_, all_, act = (itemgetter((s, method)) for method in runs)
        both = partial(highest, setting=s, methods=("fedsplit, all", "fedsplit, act"))
        claims.append(smaller("FedDyn ends above both kinds of FedSplit", both, feddyn_, s))
        claims.append(smaller(ACT, all_, act, s))
    return Reproduction(
        "feddyn-figure2-mnist",
        "Figure 2b in kind on MNIST: FedDyn against FedSplit, whose server averages all devices or the active ones.",
        PAPER,
        runs,
        tuple(Line(s, name, name, measure) for s, measure in measures.items() for name in runs),
        tuple(claims),
        f"{IN_KIND} FedSplit's step is not published; here it is 1 / alpha, which gives it FedDyn's proximal term.",
        ("mnist",),
    )


REPRODUCTIONS = (_figure_1(), _figure_2())
