"""One network three times: in PyTorch by calls, compiled by torchax, and in our own layers; with ragged clients."""

import functools

import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fedloom as fl

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedloom[torch]'")
nn = torch.nn

SIZES = (3, 9, 1, 6, 5, 2, 4)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(sum(SIZES), 4))
Y = RNG.integers(0, 3, sum(SIZES))
OWNER = np.repeat(np.arange(len(SIZES)), SIZES)
DATA = fl.by_client(X, Y, OWNER, test=0.2)
MLP = fl.models.mlp(4, 5, 3)


def module(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()


NET = module()


def needs_torchax():
    """Skip a test where no torchax is installed that can be used."""
    from fedloom.pytorch.compiled import CannotCompile, library

    try:
        library()
    except CannotCompile as why:
        pytest.skip(str(why))


@functools.cache
def model(how):
    if how == "compiled":
        needs_torchax()
    return fl.models.from_torch(NET, X[:2], compile=how == "compiled")


@functools.cache
def task(how, criterion=fl.metrics.cross_entropy, metrics=(fl.metrics.accuracy,)):
    of = MLP if how == "jax" else model(how)
    return fl.Task("twins", DATA, of, criterion=criterion, metrics=metrics).load()


# The flat vector of our MLP has the biases of a layer before its weights, PyTorch's after them.
NUMBERED = MLP.unravel(np.arange(float(MLP.parameters)))
ORDER = np.concatenate([np.ravel(layer[name]) for layer in NUMBERED for name in ("w", "b")]).astype(int)


def as_torch(w):
    """A vector of our MLP in the order of PyTorch."""
    return np.asarray(w)[..., ORDER]


def as_ours(w):
    return np.asarray(w)[..., np.argsort(ORDER)]


START = as_ours(torch.nn.utils.parameters_to_vector(NET.parameters()).detach().numpy())


def reordered(tree):
    """Vectors of our MLP, anywhere in a tree, in the order of PyTorch, as one list of arrays."""
    import jax

    d = len(ORDER)
    return [as_torch(x) if np.shape(x)[-1:] == (d,) else np.asarray(x) for x in jax.tree.leaves(tree)]


assert ravel_pytree(NUMBERED)[0].shape == START.shape
