"""The registry: one line registers a method; flags, documentation and tests read it."""

from typing import Any

from fedloom.algorithm import Algorithm
from fedloom.algorithms.adaalter import AdaAlter as AdaAlter
from fedloom.algorithms.fedasync import FedAsync as FedAsync
from fedloom.algorithms.fedavg import FedAvg as FedAvg
from fedloom.algorithms.fedbuff import FedBuff as FedBuff
from fedloom.algorithms.feddane import FedDANE as FedDANE
from fedloom.algorithms.feddr import FedDR as FedDR
from fedloom.algorithms.feddyn import FedDyn as FedDyn
from fedloom.algorithms.feddyn import FedDynOneGD as FedDynOneGD
from fedloom.algorithms.fedopt import FedAdagrad as FedAdagrad
from fedloom.algorithms.fedopt import FedAdam as FedAdam
from fedloom.algorithms.fedopt import FedAvgM as FedAvgM
from fedloom.algorithms.fedopt import FedOpt as FedOpt
from fedloom.algorithms.fedopt import FedYogi as FedYogi
from fedloom.algorithms.fedpd import FedPD as FedPD
from fedloom.algorithms.fedprox import FedProx as FedProx
from fedloom.algorithms.fedsgd import FedSGD as FedSGD
from fedloom.algorithms.fedsplit import FedSplit as FedSplit
from fedloom.algorithms.lookahead import Lookahead as Lookahead
from fedloom.algorithms.scaffold import Scaffold as Scaffold
from fedloom.hyperparameters import make_from

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedsgd": FedSGD,
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "feddane": FedDANE,
    "feddyn": FedDyn,
    "feddyn-onegd": FedDynOneGD,
    "fedsplit": FedSplit,
    "fedpd": FedPD,
    "feddr": FedDR,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedopt": FedOpt,
    "lookahead": Lookahead,
    "adaalter": AdaAlter,
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
}


def make(name: str, **hyperparameters: Any) -> Algorithm:
    """The registered algorithm `name` with the given hyperparameters, for example make("feddyn", alpha=0.1)."""
    return make_from(ALGORITHMS, "algorithm", name, hyperparameters)
