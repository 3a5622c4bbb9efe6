"""Clients with examples: F_k is the mean loss over the examples of client k.

`loss` and `grad` go through a client's examples in a loop of bounded memory; ask `grad` for gradients, JAX cannot
differentiate `loss` through that loop.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedloom.client import Federation, normalised
from fedloom.hyperparameters import frozen
from fedloom.problem import Key, Scalar, Vector

Loss = Callable[[Any, Any, Key | None], jax.Array]

_CHUNK = 256  # examples at a time in a full pass: bounds memory whatever the size of a client


class EmpiricalRisk(NamedTuple):
    """F(w) = mean over n examples, rows offset .. offset + n - 1 of a store, of loss(unravel(w), example)."""

    store: Any
    offset: Scalar
    size: Scalar
    capacity: int
    loss_of: Loss
    unravel: Callable[[Vector], Any]

    def _batch_loss(self, params: Any, positions: Any, mask: Any, key: Key | None) -> Scalar:
        """The loss summed over the examples at `positions` where `mask` is True."""
        rows = jax.tree.map(lambda x: x[self.offset + jnp.where(mask, positions, 0)], self.store)
        losses = self.loss_of(params, rows, key)
        if jnp.shape(losses) != mask.shape:
            raise ValueError(
                f"loss must return one number for each row, shape {mask.shape}, but returns shape {jnp.shape(losses)}; "
                "do not average over rows, and mind that (n, 1) - (n,) is (n, n)."
            )
        return jnp.sum(jnp.where(mask, losses, 0))

    def _pass(self, of_chunk: Callable[[Any, Any], Any], zero: Any) -> Any:
        """Sum `of_chunk(positions, mask)` over all local examples and divide by their number."""
        width = min(self.capacity, _CHUNK)

        def add(i: Any, total: Any) -> Any:
            positions = i * width + jnp.arange(width)
            chunk = of_chunk(positions, positions < self.size)
            return jax.tree.map(lambda x, y: x + y.astype(x.dtype), total, chunk)

        total = jax.lax.fori_loop(0, -(-self.size // width), add, zero)
        return jax.tree.map(lambda x: x / self.size, total)

    def loss(self, w: Vector) -> Scalar:
        params = self.unravel(w)
        return self._pass(
            lambda positions, mask: self._batch_loss(params, positions, mask, None),
            jnp.zeros((), w.dtype),
        )

    def grad(self, w: Vector) -> Vector:
        params = self.unravel(w)
        gradient = jax.grad(self._batch_loss)
        tree = self._pass(
            lambda positions, mask: gradient(params, positions, mask, None),
            jax.tree.map(jnp.zeros_like, params),
        )
        return ravel_pytree(tree)[0]

    def batch_grad(self, params: Any, positions: Any, mask: Any, key: Key) -> Any:
        total = jax.grad(self._batch_loss)(params, positions, mask, key)
        return jax.tree.map(lambda x: x / jnp.maximum(jnp.sum(mask), 1), total)


@frozen
class Examples(Federation):
    """Clients that own consecutive rows of one flat store. Make one with `examples`."""

    store: Any
    offsets: Any
    sizes: Any
    weights: Any
    capacity: int = dataclasses.field(metadata={"static": True})  # the largest client's number of examples
    loss_of: Loss = dataclasses.field(metadata={"static": True})
    unravel: Callable[[Vector], Any] = dataclasses.field(metadata={"static": True})

    def objective(self, k: Any) -> EmpiricalRisk:
        return EmpiricalRisk(
            jax.tree.map(jnp.asarray, self.store),
            jnp.asarray(self.offsets)[k],
            jnp.asarray(self.sizes)[k],
            self.capacity,
            self.loss_of,
            self.unravel,
        )


def _itself(w: Vector) -> Vector:
    return w


def examples(
    store: Any,
    sizes: Any,
    loss: Loss,
    unravel: Callable[[Vector], Any] = _itself,
    weights: Any = "examples",
) -> Examples:
    """A federation over a flat store: the first sizes[0] rows belong to client 0, the next sizes[1] to client 1, ...

    Args:
        store: a pytree of arrays with a common leading axis, for example (x, y).
        sizes: how many rows each client owns.
        loss: loss(params, rows, key) gives one number for each row; key is None outside training steps.
        unravel: from the flat vector to the model's parameters, as jax.flatten_util.ravel_pytree returns it.
        weights: population weights p_k: "examples" (in proportion to sizes), "uniform", or one number for each client.
    """
    sizes = np.asarray(sizes)
    if sizes.ndim != 1 or not np.issubdtype(sizes.dtype, np.integer) or len(sizes) == 0:
        raise ValueError("sizes must be a one-dimensional array of whole numbers, one for each client.")
    if np.any(sizes < 1):
        empty = int(np.argmax(sizes < 1))
        raise ValueError(f"sizes: client {empty} has {sizes[empty]} examples; leave out clients that have none.")
    rows = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(store)}
    if rows != {int(sizes.sum())}:
        raise ValueError(
            f"sizes add up to {sizes.sum()} examples, but the arrays of the store have {sorted(rows)} rows."
        )
    if isinstance(weights, str):
        named = {"examples": sizes, "uniform": np.ones(len(sizes))}
        if weights not in named:
            raise ValueError(f"weights must be 'examples', 'uniform' or an array, got {weights!r}.")
        weights = named[weights]
    return Examples(
        store=jax.tree.map(jnp.asarray, store),  # on the device once, not once a call
        offsets=(np.cumsum(sizes) - sizes).astype(np.int32),
        sizes=sizes.astype(np.int32),
        weights=normalised(weights, len(sizes)),
        capacity=int(sizes.max()),
        loss_of=loss,
        unravel=unravel,
    )
