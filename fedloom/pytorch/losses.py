"""Losses of PyTorch, as criteria of a task; and FedLoom's own criteria, as PyTorch computes them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F

from fedloom.pytorch.calls import brief, call, derivative_in_first, floats_as, like, tensor, tensors

Tree = Any
Loss = Callable[[torch.Tensor, Any], torch.Tensor]  # of outputs and labels: one number for each row, or one for all


def _mean_of_rest(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], -1).mean(dim=1)


NO_LABEL = -(2**62)  # PyTorch would leave out rows with the label -100; this one does not occur


def cross_entropy(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As `fedloom.metrics.cross_entropy`: nan where there is no such class."""
    if outputs.shape[:-1] != y.shape:
        raise ValueError(f"Labels of shape {tuple(y.shape)} do not match outputs of shape {tuple(outputs.shape)}.")
    logits, labels = (outputs, y) if y.ndim == 1 else (outputs.reshape(-1, outputs.shape[-1]), y.reshape(-1))
    try:
        found = F.cross_entropy(logits, labels, reduction="none", ignore_index=NO_LABEL)
    except IndexError:  # asking before would cost as much as a small batch does
        known = (labels >= 0) & (labels < logits.shape[-1])
        found = F.cross_entropy(logits, torch.where(known, labels, 0), reduction="none")
        found = torch.where(known, found, torch.nan)
    return found if y.ndim == 1 else _mean_of_rest(found.reshape(y.shape))


def binary_cross_entropy(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As `fedloom.metrics.binary_cross_entropy`."""
    y = y.reshape(outputs.shape).to(outputs.dtype)
    return _mean_of_rest(F.binary_cross_entropy_with_logits(outputs, y, reduction="none"))


def squared_error(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As `fedloom.metrics.squared_error`."""
    return _mean_of_rest((outputs - y.reshape(outputs.shape)) ** 2)


def check_loss(f: Loss, outputs: tuple[int, ...], dtype: Any, y: Tree, coupled: bool) -> None:
    """Raise a ValueError unless f gives one number for each row, or for all rows if it couples them.

    It is tried on zeros of the shapes that outputs and labels have in a program.
    """
    zeros = tensors(jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), y))
    named = getattr(f, "__name__", type(f).__name__)
    try:
        found = f(torch.zeros(outputs, dtype=tensor(np.zeros(0, dtype)).dtype), zeros)
    except Exception as error:
        labels = ", ".join(f"{a.dtype!s}{list(a.shape)}" for a in jax.tree.leaves(y))
        raise ValueError(
            f"{named} does not take outputs of shape {list(outputs)} and labels {labels}: {brief(error)}."
        ) from error
    if not isinstance(found, torch.Tensor):
        raise ValueError(f"{named} must return a tensor, but returns {type(found).__name__}.")
    shape = tuple(found.shape)
    if coupled and shape != ():
        raise ValueError(f"{named} is given as Coupled, so it must return one number for all rows, not shape {shape}.")
    if not coupled and shape != outputs[:1]:
        raise ValueError(
            f"{named} must return one number for each of {outputs[0]} rows, but returns shape {shape}; use "
            "reduction='none', take the mean over all axes but the first, and note that (n, 1) - (n,) is (n, n). A "
            "loss that couples rows is fl.Coupled(fl.metrics.from_torch(loss))."
        )


class TorchLoss:
    """A loss of PyTorch that a task can have as its criterion, of a PyTorch model or of one in JAX.

    It is called with outputs and labels, and gives one number for each row; in `fl.Coupled` also with a mask, and gives
    one number for the rows where that is True, which are all that it sees.
    """

    packages = ("torch",)  # whose versions can change the bits of a result

    def __init__(self, f: Loss):
        if not callable(f):
            raise ValueError(f"A loss must be a function of outputs and labels, got {f!r:.80}.")
        if isinstance(f, torch.nn.Module) and any(p.requires_grad for p in f.parameters()):
            raise ValueError(f"{type(f).__name__} has parameters of its own, which nobody would train.")
        self.f = f
        self._of = derivative_in_first(self._value, lambda *args: (self._value(*args), args), self._back)

    def __call__(self, outputs: jax.Array, y: Tree, mask: jax.Array | None = None) -> jax.Array:
        outputs = jnp.asarray(outputs)
        y = floats_as(outputs.dtype, y)
        check_loss(self.f, outputs.shape, outputs.dtype, y, mask is not None)
        return self._of(outputs, y, mask)

    def _value(self, outputs: jax.Array, y: Tree, mask: jax.Array | None) -> jax.Array:
        shape = outputs.shape[:1] if mask is None else ()
        return call(self.losses, jax.ShapeDtypeStruct(shape, outputs.dtype), outputs, y, mask)

    def _back(self, saved: Any, cotangent: jax.Array) -> jax.Array:
        return call(self.pulled_back, like(saved[0]), cotangent, *saved)

    def losses(self, out: np.ndarray, outputs: np.ndarray, y: Tree, mask: np.ndarray | None) -> None:
        with torch.no_grad():
            out[...] = self.f(tensors(outputs, mask), tensors(y, mask)).numpy()

    def pulled_back(self, out: np.ndarray, cotangent: np.ndarray, *given: Any) -> None:
        outputs, y, mask = given
        with torch.enable_grad():
            of = tensors(outputs, mask).requires_grad_()
            value = torch.sum(self.f(of, tensors(y, mask)) * tensor(cotangent))
            (found,) = torch.autograd.grad(value, of)
        out[...] = 0
        out[... if mask is None else mask] = found.numpy()
