"""How a client minimises a Problem."""

from fedloom.client import Solver as Solver
from fedloom.solvers.adagrad import Adagrad as Adagrad
from fedloom.solvers.batches import Minibatch as Minibatch
from fedloom.solvers.exact import Exact as Exact
from fedloom.solvers.gd import GD as GD
from fedloom.solvers.optax_solver import Optax as Optax
from fedloom.solvers.sgd import SGD as SGD
from fedloom.solvers.tolerance import ToTolerance as ToTolerance
from fedloom.solvers.torch_loop import TorchLoop as TorchLoop

SOLVERS: dict[str, type[Solver]] = {
    "sgd": SGD,
    "gd": GD,
    "exact": Exact,
    "optax": Optax,
    "adagrad": Adagrad,
    "to-tolerance": ToTolerance,
}
