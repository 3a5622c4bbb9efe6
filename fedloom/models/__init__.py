"""Models: pairs of pure functions, and the papers' own by name."""

from collections.abc import Callable

from fedloom.models.adapters import from_equinox as from_equinox
from fedloom.models.adapters import from_linen as from_linen
from fedloom.models.adapters import from_nnx as from_nnx
from fedloom.models.autoencoder import emnist_autoencoder as emnist_autoencoder
from fedloom.models.cnn import cifar_ccnn as cifar_ccnn
from fedloom.models.cnn import emnist_cnn as emnist_cnn
from fedloom.models.cnn import feddyn_cnn as feddyn_cnn
from fedloom.models.cnn import mnist_cnn as mnist_cnn
from fedloom.models.feedforward import logistic as logistic
from fedloom.models.feedforward import mlp as mlp
from fedloom.models.layers import pytorch, zeros
from fedloom.models.model import Model as Model
from fedloom.models.resnet import cifar_resnet18 as cifar_resnet18
from fedloom.models.resnet import feddyn_resnet18 as feddyn_resnet18
from fedloom.models.resnet import fedopt_resnet18 as fedopt_resnet18
from fedloom.models.text import feddyn_shakespeare as feddyn_shakespeare
from fedloom.models.text import fedopt_shakespeare as fedopt_shakespeare
from fedloom.models.text import fedprox_sent140 as fedprox_sent140
from fedloom.models.text import fedprox_shakespeare as fedprox_shakespeare
from fedloom.models.text import stackoverflow_nwp as stackoverflow_nwp
from fedloom.models.torch_modules import from_torch as from_torch


def named(name: str) -> Model:
    """The model of this name: one of MODELS, or for example "mlp-784-200-10" or "logistic-784-10"."""
    kind, *sizes = name.split("-")
    if kind in ("mlp", "logistic") and all(size.isdecimal() for size in sizes):
        return mlp(*map(int, sizes)) if kind == "mlp" else logistic(*map(int, sizes))
    for make in MODELS.values():
        if make().name == name:
            return make()
    raise ValueError(f"FedLoom has no model {name!r}.")


MODELS: dict[str, Callable[[], Model]] = {
    "synthetic-logistic": lambda: logistic(60, 10),
    "mnist-logistic": lambda: logistic(784, 10),
    "speedup-logistic": lambda: logistic(784, 10, init=pytorch),
    "femnist-logistic": lambda: logistic(784, 26),
    "feddyn-logistic": lambda: logistic(30, 5, init=zeros),
    "stackoverflow-tags": lambda: logistic(10_000, 500),
    "2nn": lambda: mlp(784, 200, 200, 10, init=pytorch),
    "feddr-synthetic": lambda: mlp(60, 32, 10),
    "feddr-femnist": lambda: mlp(784, 128, 26),
    "asyncfeddr-mnist": lambda: mlp(784, 128, 10, init=pytorch),
    "asyncfeddr-femnist": lambda: mlp(784, 128, 62, init=pytorch),
    "feddyn-emnist": lambda: mlp(784, 100, 100, 10, init=pytorch),
    "emnist-cnn": emnist_cnn,
    "mnist-cnn": mnist_cnn,
    "cifar-ccnn": cifar_ccnn,
    "feddyn-cifar10": feddyn_cnn,
    "feddyn-cifar100": lambda: feddyn_cnn(100),
    "fedopt-resnet18-cifar10": lambda: fedopt_resnet18(10),
    "fedopt-resnet18-cifar100": fedopt_resnet18,
    "feddyn-resnet18": feddyn_resnet18,
    "cifar-resnet18": cifar_resnet18,
    "emnist-autoencoder": emnist_autoencoder,
    "fedprox-shakespeare": fedprox_shakespeare,
    "feddyn-shakespeare": feddyn_shakespeare,
    "fedopt-shakespeare": fedopt_shakespeare,
    "fedprox-sent140": fedprox_sent140,
    "stackoverflow-nwp": stackoverflow_nwp,
}
