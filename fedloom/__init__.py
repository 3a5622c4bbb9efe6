"""FedLoom: federated optimization, correct, fast and simple."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from fedloom import cohorts as cohorts
from fedloom import experiments as experiments
from fedloom import metrics as metrics
from fedloom import models as models
from fedloom import regularizers as regularizers
from fedloom import schedules as schedules
from fedloom import sinks as sinks
from fedloom import systems as systems
from fedloom import tables as tables
from fedloom import tasks as tasks
from fedloom import theory as theory
from fedloom.algorithm import Algorithm as Algorithm
from fedloom.algorithm import Client as Client
from fedloom.algorithm import Cohort as Cohort
from fedloom.algorithm import Exchange as Exchange
from fedloom.algorithm import Round as Round
from fedloom.algorithm import Server as Server
from fedloom.algorithms import ALGORITHMS as ALGORITHMS
from fedloom.algorithms import AdaAlter as AdaAlter
from fedloom.algorithms import FedAdagrad as FedAdagrad
from fedloom.algorithms import FedAdam as FedAdam
from fedloom.algorithms import FedAsync as FedAsync
from fedloom.algorithms import FedAvg as FedAvg
from fedloom.algorithms import FedAvgM as FedAvgM
from fedloom.algorithms import FedBuff as FedBuff
from fedloom.algorithms import FedDANE as FedDANE
from fedloom.algorithms import FedDR as FedDR
from fedloom.algorithms import FedDyn as FedDyn
from fedloom.algorithms import FedDynOneGD as FedDynOneGD
from fedloom.algorithms import FedOpt as FedOpt
from fedloom.algorithms import FedPD as FedPD
from fedloom.algorithms import FedProx as FedProx
from fedloom.algorithms import FedSGD as FedSGD
from fedloom.algorithms import FedSplit as FedSplit
from fedloom.algorithms import FedYogi as FedYogi
from fedloom.algorithms import Lookahead as Lookahead
from fedloom.algorithms import Scaffold as Scaffold
from fedloom.algorithms import make as make
from fedloom.client import Federation as Federation
from fedloom.client import Objective as Objective
from fedloom.client import Solver as Solver
from fedloom.cluster import on_ray as on_ray
from fedloom.data import FederatedData as FederatedData
from fedloom.data import Split as Split
from fedloom.data import by_client as by_client
from fedloom.data import examples as examples
from fedloom.data import quadratics as quadratics
from fedloom.data import splits as splits
from fedloom.engines import ClientError as ClientError
from fedloom.engines import Clock as Clock
from fedloom.engines import Counters as Counters
from fedloom.engines import NonFiniteUpdate as NonFiniteUpdate
from fedloom.engines import Record as Record
from fedloom.engines import events as events
from fedloom.engines import reference as reference
from fedloom.engines import simulate as simulate
from fedloom.experiments import Experiment as Experiment
from fedloom.experiments import compare as compare
from fedloom.experiments import experiment as experiment
from fedloom.experiments import load_model as load_model
from fedloom.experiments import run as run
from fedloom.experiments import sweep as sweep
from fedloom.experiments import tune as tune
from fedloom.federation import on_flower as on_flower
from fedloom.hyperparameters import frozen as frozen
from fedloom.hyperparameters import hyper as hyper
from fedloom.hyperparameters import optimizer as optimizer
from fedloom.hyperparameters import static as static
from fedloom.loss import Coupled as Coupled
from fedloom.problem import Problem as Problem
from fedloom.problem import Solution as Solution
from fedloom.solvers import GD as GD
from fedloom.solvers import SGD as SGD
from fedloom.solvers import Adagrad as Adagrad
from fedloom.solvers import Exact as Exact
from fedloom.solvers import Optax as Optax
from fedloom.solvers import TorchLoop as TorchLoop
from fedloom.solvers import ToTolerance as ToTolerance
from fedloom.systems import Delays as Delays
from fedloom.systems import System as System
from fedloom.tables import from_frame as from_frame
from fedloom.tasks import Task as Task
from fedloom.tasks import load as load
from fedloom.version import __version__ as __version__

if TYPE_CHECKING:
    from fedloom import diagnosis as diagnosis
    from fedloom import report as report
    from fedloom import reproductions as reproductions


def __getattr__(name: str) -> ModuleType:
    """`fedloom.report` and a few others are imported when they are asked for: few programs need them."""
    if name in ("diagnosis", "report", "reproductions"):
        return importlib.import_module(f"fedloom.{name}")
    raise AttributeError(f"module 'fedloom' has no attribute {name!r}")
