"""The loss of a module over the rows of a batch, with its gradient."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from fedloom.problem import Key, Vector
from fedloom.pytorch.calls import bits, call, derivative_in_first, floats_as, like, tensors
from fedloom.pytorch.losses import Loss, check_loss
from fedloom.pytorch.module import Host, inputs

Tree = Any


class Total:
    """The sum of weight times loss over the rows whose weight is not 0, which are all that PyTorch sees, in one call.

    A loss that couples rows gives one number for them all, whatever their weights.
    """

    def __init__(self, host: Host, loss: Loss, coupled: bool = False):
        self.host, self.loss, self.coupled = host, loss, coupled
        self._of = derivative_in_first(
            self._value, self._with_gradient, lambda gradient, cotangent: cotangent * gradient
        )

    def __call__(self, w: Vector, x: Tree, y: Tree, weights: jax.Array, key: Key | None) -> jax.Array:
        x, y = floats_as(self.host.dtype, (x, y))
        check_loss(self.loss, self.host.output_shape(x), self.host.dtype, y, self.coupled)
        return self._of(w, x, y, weights, bits(key))

    def _value(self, w: Vector, *given: Any) -> jax.Array:
        return call(self.value, jax.ShapeDtypeStruct((), w.dtype), w, *given)

    def _with_gradient(self, w: Vector, *given: Any) -> tuple[jax.Array, Vector]:
        return call(self.value_and_gradient, (jax.ShapeDtypeStruct((), w.dtype), like(w)), w, *given)

    def value(self, out: np.ndarray, w: np.ndarray, x: Tree, y: Tree, weights: np.ndarray, bits: Any) -> None:
        out[...] = 0
        if np.count_nonzero(weights):
            with self.host.at(w, bits), torch.no_grad():
                out[...] = self._sum(x, y, weights).numpy()

    def value_and_gradient(
        self, out: tuple[np.ndarray, np.ndarray], w: np.ndarray, x: Tree, y: Tree, weights: np.ndarray, bits: Any
    ) -> None:
        value, gradient = out
        if not np.count_nonzero(weights):
            value[...], gradient[...] = 0, 0
            return
        with self.host.at(w, bits), torch.enable_grad():
            found = self._sum(x, y, weights)
            value[...] = found.detach().numpy()
            self.host.gradient(gradient, found)

    def _sum(self, x: Tree, y: Tree, weights: np.ndarray) -> torch.Tensor:
        keep = None if np.count_nonzero(weights) == len(weights) else weights != 0
        found = self.loss(self.host.module(*inputs(tensors(x, keep))), tensors(y, keep))
        return found if self.coupled else found @ torch.from_numpy(weights if keep is None else weights[keep])


class InJax:
    """The same with a loss in JAX, which PyTorch does not know: the outputs are computed by one call, twice."""

    def __init__(self, host: Host, criterion: Callable[..., jax.Array], coupled: bool = False):
        self.host, self.criterion, self.coupled = host, criterion, coupled

    def __call__(self, w: Vector, x: Tree, y: Tree, weights: jax.Array, key: Key | None) -> jax.Array:
        outputs = self.host.apply(w, x, key)
        if self.coupled:
            return self.criterion(outputs, y, weights != 0)
        losses = self.criterion(outputs, y)
        return jnp.sum(jnp.where(weights != 0, losses * weights.astype(losses.dtype), 0))
