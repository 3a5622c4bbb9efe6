"""Going through a client's examples in minibatches."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedloom.client import Objective, Solver, portion
from fedloom.hyperparameters import check_fields, count, flag, frozen, optional, static
from fedloom.problem import Key, Scalar


@frozen
class Minibatch(Solver):
    """A solver that takes steps on minibatches: how many, and of which size."""

    batch_size: int | None = static(optional(count), "examples in a batch; None takes all", default=10, kw_only=True)
    epochs: int = static(count, "passes over the local examples", default=1, kw_only=True)
    steps: int | None = static(
        optional(count), "exactly so many batches, instead of epochs", default=None, kw_only=True
    )
    drop_last: bool = static(flag, "leave out the last batch of a pass if it is not full", default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.steps is not None and self.epochs != 1:
            raise ValueError(f"{type(self).__name__}: give epochs or steps, not both.")

    def fold(
        self, step: Callable[[Any, Any, Any, Key], Any], state: Any, objective: Objective, key: Key, work: Scalar
    ) -> Any:
        """Apply `step(state, positions, mask, key)` batch after batch, in a fresh random order each epoch.

        A client with fewer examples than a batch has one partial batch, whatever `drop_last` says. The part `work` of
        the usual work is rounded up to whole epochs, or to whole steps if those are what is counted.
        """
        capacity, n = objective.capacity, objective.size
        size = capacity if self.batch_size is None else min(self.batch_size, capacity)
        per_epoch = jnp.maximum(n // size if self.drop_last else -(-n // size), 1)
        epochs = portion(work, self.epochs) * per_epoch
        total = epochs if self.steps is None else portion(work, self.steps)

        def epoch(e: Scalar, state: Any) -> Any:
            shuffle_key, batch_key = jax.random.split(jax.random.fold_in(key, e))
            order = jnp.pad(shuffled(shuffle_key, n, capacity), (0, size))

            def batch(s: Scalar, state: Any) -> Any:
                positions = jax.lax.dynamic_slice(order, (s * size,), (size,))
                mask = s * size + jnp.arange(size) < n
                return step(state, positions, mask, jax.random.fold_in(batch_key, s))

            left = total - e * per_epoch
            return jax.lax.fori_loop(0, jnp.minimum(per_epoch, left), batch, state)

        return jax.lax.fori_loop(0, -(-total // per_epoch), epoch, state)


def shuffled(key: Key, n: Scalar, capacity: int) -> jax.Array:
    """A random order of 0..n-1 in the first n places of an array of length `capacity`."""
    if capacity == 1:
        return jnp.zeros(1, jnp.int32)
    rank = jax.random.bits(key, (capacity,), jnp.uint32) >> 1
    return jnp.argsort(jnp.where(jnp.arange(capacity) < n, rank, jnp.uint32(2**32 - 1)))
