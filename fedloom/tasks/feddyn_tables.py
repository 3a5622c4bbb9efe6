"""What FedDyn prints (Acar et al., ICLR 2021, arXiv:2111.04263): its settings in the appendix, and its tables.

A row counts the models that a device sends until a target is reached: one in each round, but two for SCAFFOLD, which
sends its control variate too. The published "1000+" is inf here: not reached in the rounds of the experiment.
"""

import functools
from math import inf

from fedloom.algorithms import FedAvg, FedDyn, FedProx, Scaffold
from fedloom.cohorts import bernoulli, everyone
from fedloom.schedules import exponential
from fedloom.solvers import SGD
from fedloom.tasks.reported import Measure, Reported
from fedloom.tasks.task import Setting

METHODS = ("feddyn", "scaffold", "fedavg", "fedprox")


def settings(
    share: float,
    rounds: int,
    *,
    alpha: float,
    mu: float,
    k: int,
    epochs: int,
    feddyn_epochs: int | None = None,
    lr: float = 0.1,
    decay: float = 1.0,
    batch_size: int,
    weight_decay: float,
) -> dict[str, Setting]:
    """One row of the appendix: alpha is FedDyn's, mu FedProx's, k SCAFFOLD's number of local steps."""
    step = lr if decay == 1 else exponential(lr, decay)
    cohort = everyone() if share == 1 else bernoulli(share)
    sgd = functools.partial(SGD, step, batch_size=batch_size, weight_decay=weight_decay)
    return {
        "feddyn": Setting(FedDyn(alpha), sgd(epochs=feddyn_epochs or epochs, clip=10.0), cohort, rounds),
        "scaffold": Setting(Scaffold(), sgd(steps=k), cohort, rounds),
        "fedavg": Setting(FedAvg(), sgd(epochs=epochs, clip=10.0), cohort, rounds),
        "fedprox": Setting(FedProx(mu), sgd(epochs=epochs, clip=10.0), cohort, rounds),
    }


def _accuracy(table: str, participation: str, target: float, *models: float) -> Reported:
    measure = Measure("test accuracy", target, "models")
    return Reported(table, participation, measure, dict(zip(METHODS, models, strict=True)))


def _loss(target: float, *models: float) -> Reported:
    return Reported("table 6", "10%", Measure("train loss", target, "models"), dict(zip(METHODS, models, strict=True)))


# By the name of the task.
TABLES: dict[str, tuple[Reported, ...]] = {
    "feddyn-synthetic-homogeneous": (_loss(0.0603, 32, 70, 136, 49),),
    "feddyn-synthetic-type1": (_loss(1.5717, 17, 88, 20, 18),),
    "feddyn-synthetic-type2": (_loss(0.1205, 150, 164, 274, 275),),
    "feddyn-synthetic-type3": (_loss(0.0854, 34, 260, 79, 106),),
    "mnist-2nn-iid": (_accuracy("table 2", "10%", 0.982, 100, 142, 588, 362),),
    "cifar10-cnn-iid": (
        _accuracy("table 1", "10%", 0.845, 637, 1852, inf, inf),
        _accuracy("table 1", "10%", 0.823, 240, 512, 994, 825),
        _accuracy("table 2", "100%", 0.85, 198, 1860, inf, inf),
    ),
    "cifar10-cnn-dir0.3": (_accuracy("table 1", "10%", 0.807, 232, 594, 863, 930),),
    "cifar10-cnn-iid-1000": (_accuracy("table 1", "10%", 0.8, 840, inf, inf, inf),),
}
