"""What FedDyn prints (Acar et al., ICLR 2021, arXiv:2111.04263): its settings in the appendix, and its tables.

A row counts the models that a device sends until a target is reached: one in each round, but two for SCAFFOLD, which
sends its control variate too. What reaches it is the mean of all devices' last models: its test accuracy or, in table
6, its training loss (the caption, copied from the others, says accuracy). The published "150+", "1000+", "2000+" and
"4000+" are inf here: not reached in the rounds of the experiment. Rows that stand in two tables are here once.
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
    unequal: bool = False,
) -> dict[str, Setting]:
    """One row of the appendix: alpha is FedDyn's, mu FedProx's, k SCAFFOLD's number of local steps.

    Where devices are unequal in size, FedDyn has the weighting of the authors' code.
    """
    feddyn = FedDyn(alpha, weighting="alpha") if unequal else FedDyn(alpha)
    step = lr if decay == 1 else exponential(lr, decay)
    cohort = everyone() if share == 1 else bernoulli(share)
    sgd = functools.partial(SGD, step, batch_size=batch_size, weight_decay=weight_decay)
    return {
        "feddyn": Setting(feddyn, sgd(epochs=feddyn_epochs or epochs, clip=10.0), cohort, rounds),
        "scaffold": Setting(Scaffold(), sgd(steps=k), cohort, rounds),
        "fedavg": Setting(FedAvg(), sgd(epochs=epochs, clip=10.0), cohort, rounds),
        "fedprox": Setting(FedProx(mu), sgd(epochs=epochs, clip=10.0), cohort, rounds),
    }


def _accuracy(table: str, participation: str, target: float, *models: float) -> Reported:
    measure = Measure("last models test accuracy", target, "models")
    return Reported(table, participation, measure, dict(zip(METHODS, models, strict=True)))


def _loss(target: float, *models: float) -> Reported:
    measure = Measure("last models train loss", target, "models")
    return Reported("table 6", "10%", measure, dict(zip(METHODS, models, strict=True)))


# By the name of the task.
TABLES: dict[str, tuple[Reported, ...]] = {
    "feddyn-synthetic-homogeneous": (_loss(0.0603, 32, 70, 136, 49),),
    "feddyn-synthetic-type1": (_loss(1.5717, 17, 88, 20, 18),),
    "feddyn-synthetic-type2": (_loss(0.1205, 150, 164, 274, 275),),
    "feddyn-synthetic-type3": (_loss(0.0854, 34, 260, 79, 106),),
    "mnist-2nn-iid": (
        _accuracy("table 2", "10%", 0.982, 100, 142, 588, 362),
        _accuracy("table 2", "10%", 0.972, 31, 52, 49, 43),
        _accuracy("table 2", "100%", 0.982, 38, 72, 194, 445),
        _accuracy("table 2", "100%", 0.972, 9, 18, 31, 28),
        _accuracy("table 5", "1%", 0.983, 529, 956, 644, 451),
        _accuracy("table 5", "1%", 0.973, 145, 290, 151, 143),
    ),
    "mnist-2nn-dir0.6": (
        _accuracy("table 2", "10%", 0.981, 129, 194, 581, 361),
        _accuracy("table 2", "10%", 0.971, 37, 60, 57, 57),
        _accuracy("table 2", "100%", 0.981, 39, 108, 157, 416),
        _accuracy("table 2", "100%", 0.971, 11, 24, 38, 34),
        _accuracy("table 5", "1%", 0.982, 486, 1502, 863, 754),
        _accuracy("table 5", "1%", 0.972, 180, 332, 199, 166),
    ),
    "mnist-2nn-dir0.3": (
        _accuracy("table 2", "10%", 0.982, 90, 208, 428, 858),
        _accuracy("table 2", "10%", 0.972, 37, 68, 76, 61),
        _accuracy("table 2", "100%", 0.981, 35, 76, 313, 458),
        _accuracy("table 2", "100%", 0.971, 10, 24, 49, 44),
        _accuracy("table 5", "1%", 0.982, 521, 954, 951, 974),
        _accuracy("table 5", "1%", 0.972, 157, 318, 169, 177),
    ),
    "emnist-l-iid": (
        _accuracy("table 2", "10%", 0.946, 104, 160, 330, 210),
        _accuracy("table 2", "10%", 0.936, 58, 84, 69, 65),
        _accuracy("table 2", "100%", 0.946, 65, 414, 307, inf),
        _accuracy("table 2", "100%", 0.936, 16, 36, 66, 62),
        _accuracy("table 5", "1%", 0.949, 483, 1136, 826, inf),
        _accuracy("table 5", "1%", 0.939, 210, 554, 216, 238),
    ),
    "emnist-l-dir0.6": (
        _accuracy("table 2", "10%", 0.949, 192, 296, 306, inf),
        _accuracy("table 2", "10%", 0.939, 55, 102, 95, 86),
        _accuracy("table 2", "100%", 0.949, 207, 552, 410, inf),
        _accuracy("table 2", "100%", 0.939, 20, 42, 73, 61),
        _accuracy("table 5", "1%", 0.948, 405, 1230, 504, inf),
        _accuracy("table 5", "1%", 0.938, 195, 576, 256, 294),
    ),
    "emnist-l-dir0.3": (
        _accuracy("table 2", "10%", 0.944, 107, 178, 804, inf),
        _accuracy("table 2", "10%", 0.934, 58, 100, 81, 86),
        _accuracy("table 2", "100%", 0.945, 65, 210, 492, inf),
        _accuracy("table 2", "100%", 0.935, 23, 46, 78, 69),
        _accuracy("table 5", "1%", 0.944, 442, 1860, 481, inf),
        _accuracy("table 5", "1%", 0.934, 241, 694, 286, 279),
    ),
    "cifar10-cnn-iid": (
        _accuracy("tables 1 and 4", "10%", 0.845, 637, 1852, inf, inf),
        _accuracy("tables 1 and 4", "10%", 0.823, 240, 512, 994, 825),
        _accuracy("table 2", "100%", 0.85, 198, 1860, inf, inf),
        _accuracy("table 2", "100%", 0.814, 67, 320, 754, 655),
        _accuracy("table 5", "1%", 0.826, 660, 1544, 892, inf),
        _accuracy("table 5", "1%", 0.816, 543, 1150, 603, 707),
    ),
    "cifar10-cnn-dir0.6": (
        _accuracy("table 2", "10%", 0.835, 403, 1618, inf, inf),
        _accuracy("table 2", "10%", 0.813, 189, 486, 977, 943),
        _accuracy("table 2", "100%", 0.84, 148, 1890, inf, inf),
        _accuracy("table 2", "100%", 0.803, 64, 392, 869, 724),
        _accuracy("table 5", "1%", 0.81, 561, 1510, 977, 841),
        _accuracy("table 5", "1%", 0.8, 436, 1100, 673, 623),
    ),
    "cifar10-cnn-dir0.3": (
        _accuracy("tables 1 and 4", "10%", 0.825, 444, 1880, inf, inf),
        _accuracy("tables 1 and 4", "10%", 0.807, 232, 594, 863, 930),
        _accuracy("table 2", "100%", 0.835, 223, 1762, inf, inf),
        _accuracy("table 2", "100%", 0.802, 70, 504, 705, inf),
        _accuracy("table 5", "1%", 0.79, 590, 1580, 955, 738),
        _accuracy("table 5", "1%", 0.78, 452, 1272, 653, 497),
    ),
    "cifar100-cnn-iid": (
        _accuracy("tables 1 and 4", "10%", 0.51, 522, 1854, inf, inf),
        _accuracy("tables 1 and 4", "10%", 0.409, 159, 286, 822, 873),
        _accuracy("table 2", "100%", 0.51, 259, 1744, inf, inf),
        _accuracy("table 2", "100%", 0.394, 55, 172, inf, 741),
        _accuracy("table 5", "1%", 0.398, 409, 1982, 428, 512),
        _accuracy("table 5", "1%", 0.388, 396, 1862, 392, 454),
    ),
    "cifar100-cnn-dir0.6": (
        _accuracy("table 2", "10%", 0.51, 521, 1910, inf, inf),
        _accuracy("table 2", "10%", 0.416, 170, 302, 931, 748),
        _accuracy("table 2", "100%", 0.51, 468, 1838, inf, inf),
        _accuracy("table 2", "100%", 0.406, 73, 206, 998, 592),
        _accuracy("table 5", "1%", 0.366, 355, 1996, 341, 352),
        _accuracy("table 5", "1%", 0.356, 342, 1876, 317, 342),
    ),
    "cifar100-cnn-dir0.3": (
        _accuracy("tables 1 and 4", "10%", 0.51, 561, 1884, inf, inf),
        _accuracy("tables 1 and 4", "10%", 0.423, 170, 330, 959, 882),
        _accuracy("table 2", "100%", 0.505, 405, 1940, inf, inf),
        _accuracy("table 2", "100%", 0.41, 80, 224, 911, inf),
        _accuracy("table 5", "1%", 0.361, 343, 1990, 317, 342),
        _accuracy("table 5", "1%", 0.351, 321, 1866, 294, 314),
    ),
    "cifar10-cnn-iid-1000": (
        _accuracy("table 1", "10%", 0.8, 840, inf, inf, inf),
        _accuracy("table 1", "10%", 0.623, 305, 928, 1277, 1274),
    ),
    "cifar10-cnn-dir0.3-1000": (
        _accuracy("table 1", "10%", 0.8, 831, inf, inf, inf),
        _accuracy("table 1", "10%", 0.706, 350, 2138, 1962, 1517),
    ),
    "cifar100-cnn-iid-500": (
        _accuracy("table 1", "10%", 0.501, 1445, 3982, inf, inf),
        _accuracy("table 1", "10%", 0.383, 477, 1408, 1997, 1974),
    ),
    "cifar100-cnn-dir0.3-500": (
        _accuracy("table 1", "10%", 0.47, 969, 4000, inf, inf),
        _accuracy("table 1", "10%", 0.399, 467, 2266, 1913, 1794),
    ),
    "cifar10-cnn-iid-unbalanced": (
        _accuracy("table 4", "10%", 0.84, 335, 1152, inf, inf),
        _accuracy("table 4", "10%", 0.823, 213, 548, 834, 834),
    ),
    "cifar10-cnn-dir0.3-unbalanced": (
        _accuracy("table 4", "10%", 0.825, 524, 1998, inf, inf),
        _accuracy("table 4", "10%", 0.801, 274, 652, 893, inf),
    ),
    "cifar100-cnn-iid-unbalanced": (
        _accuracy("table 4", "10%", 0.53, 386, 1656, inf, inf),
        _accuracy("table 4", "10%", 0.482, 209, 800, 968, 945),
    ),
    "cifar100-cnn-dir0.3-unbalanced": (
        _accuracy("table 4", "10%", 0.52, 503, 1928, inf, inf),
        _accuracy("table 4", "10%", 0.473, 234, 942, 871, inf),
    ),
    "shakespeare-leaf": (
        _accuracy("table 2", "10%", 0.476, 63, 102, 169, 133),
        _accuracy("table 2", "10%", 0.466, 56, 82, 80, 66),
        _accuracy("table 2", "100%", 0.473, 33, 70, 134, inf),
        _accuracy("table 2", "100%", 0.463, 28, 62, 53, 64),
        _accuracy("table 5", "1%", 0.438, 158, 388, 159, 153),
        _accuracy("table 5", "1%", 0.428, 143, 318, 146, 145),
    ),
    "shakespeare-leaf-iid": (
        _accuracy("table 2", "10%", 0.469, 63, 94, 138, 190),
        _accuracy("table 2", "10%", 0.459, 56, 76, 96, 75),
        _accuracy("table 2", "100%", 0.464, 33, 74, 96, 113),
        _accuracy("table 2", "100%", 0.454, 28, 64, 59, 56),
        _accuracy("table 5", "1%", 0.43, 170, 460, 188, 151),
        _accuracy("table 5", "1%", 0.42, 148, 342, 149, 142),
    ),
}
