"""Going through a client's examples in minibatches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.client import Objective, StepSolver, portion
from fedloom.hyperparameters import check_fields, count, flag, frozen, optional, static
from fedloom.problem import Key, Scalar


@frozen
class Minibatch(StepSolver):
    """A solver that takes steps on minibatches: how many, and of which size."""

    batch_size: int | None = static(optional(count), "examples in a batch; None takes all", default=10, kw_only=True)
    epochs: int = static(count, "passes over the local examples", default=1, kw_only=True)
    steps: int | None = static(
        optional(count), "exactly this many batches, instead of epochs", default=None, kw_only=True
    )
    drop_last: bool = static(flag, "leave out the last batch of a pass if it is not full", default=False, kw_only=True)
    continued: bool = static(
        flag,
        "with steps: go on in the pass over the examples where the round before ended",
        default=False,
        kw_only=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.steps is not None and self.epochs != 1:
            raise ValueError(f"{type(self).__name__}: give epochs or steps, not both.")
        if self.continued and self.steps is None:
            raise ValueError(f"{type(self).__name__}: continued needs steps; every epoch is a whole pass.")

    @property
    def lasting(self) -> bool:
        return self.continued

    def first(self, t: Scalar) -> Scalar | None:
        """The steps before round t, of a client that has taken part in all rounds; None if every round begins anew."""
        return t * self.steps if self.continued else None

    def _batches(self, size: Any, capacity: int) -> tuple[int, Any]:
        """The size of a batch, and how many there are in an epoch.

        A client with fewer examples than a batch has one partial batch, whatever `drop_last` says.
        """
        n = np if isinstance(size, np.ndarray) else jnp
        if self.batch_size is None:
            return capacity, n.ones_like(size)
        batch = min(self.batch_size, capacity)
        return batch, n.maximum(size // batch if self.drop_last else -(-size // batch), 1)

    def steps_for(self, size: Any, capacity: int, work: Any) -> Any:
        """Part of the work is rounded up to whole epochs, or to whole steps if those are what is counted."""
        if self.steps is not None:
            return portion(work, self.steps)
        return portion(work, self.epochs) * self._batches(size, capacity)[1]

    def batch(self, s: Scalar, objective: Objective, key: Key, first: Scalar | None) -> tuple[Any, Any, Key]:
        """Step s: the positions of its examples, where these count, and the step's own key.

        Every epoch has a fresh random order, which is computed for the batch alone.
        """
        s = s if first is None else first + s
        batch, per_epoch = self._batches(objective.size, objective.capacity)
        place = s % per_epoch * batch + jnp.arange(batch, dtype=jnp.int32)
        mask = place < objective.size
        if batch < objective.capacity:  # else a batch is all a client has, in any order
            place = shuffled(key, s // per_epoch, jnp.where(mask, place, 0), objective.size, objective.capacity)
        return place, mask, jax.random.fold_in(key, s)

    def batch_grad(
        self, params: Any, s: Scalar, objective: Objective, key: Key, first: Scalar | None
    ) -> tuple[Any, Scalar]:
        """Step s: the gradient, as a tree, of the mean loss over its examples, and how many they are."""
        positions, mask, key = self.batch(s, objective, key, first)
        whole = positions.size == objective.capacity  # all that the largest client has
        if whole and hasattr(objective, "full_grad") and objective.capacity > objective.width:  # type: ignore[attr-defined]
            # Clients differ: a pass, so that the small ones are not filled up.
            return objective.full_grad(params, key), jnp.asarray(objective.size, jnp.int32)
        return objective.batch_grad(params, positions, mask, key), jnp.sum(mask, dtype=jnp.int32)


def shuffled(key: Key, epoch: Scalar, place: Any, n: Scalar, capacity: int) -> Any:
    """What stands at `place` in the epoch's random order of 0 .. n-1, for n <= capacity, without making the order.

    A swap-or-not shuffle (Hoang, Morris and Rogaway, CRYPTO 2012): in each round x is paired with c - x modulo n for a
    random c, and a coin that the pair shares decides whether the two swap. So every round is a permutation. Numbers are
    mixed from the key's bits: JAX's own generator would cost more than the step that the batch is for.
    """
    n, at_once = jnp.asarray(n, jnp.uint32), capacity.bit_length() + 4
    bits = jax.random.key_data(key).reshape(-1)
    first = _mixed(bits[0] + jnp.asarray(epoch, jnp.uint32) * jnp.uint32(0x9E3779B9))
    second = _mixed(bits[-1] ^ first)
    r = jnp.arange(2 * at_once, dtype=jnp.uint32).reshape(2, at_once)
    centers, coins = _mixed(first + r) % n, _mixed(second + r)

    def half(i: Any, x: Any) -> Any:
        for center, coin in zip(centers[i], coins[i], strict=True):
            partner = jnp.where(x > center, center + n - x, center - x)
            swap = _mixed(jnp.maximum(x, partner) ^ coin) >> 31
            x = jnp.where(swap == 1, partner, x)
        return x

    # In a loop, since the compiler would else do all this again for every number of an example that it fetches.
    return jax.lax.fori_loop(0, 2, half, jnp.asarray(place, jnp.uint32)).astype(jnp.int32)


def _mixed(x: Any) -> Any:
    """A bijection of the 32-bit numbers in which every bit of the result depends on every bit of x."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)
