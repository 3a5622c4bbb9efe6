"""Clients with examples: F_k is the mean loss over the examples of client k.

All examples are rows of one flat store, and a client is a range of row numbers: no copies, no padding, no object for
each client. `loss` and `grad` go through examples in a loop of bounded memory; ask `grad` for gradients, JAX cannot
differentiate `loss` through that loop. A loss that couples rows is given all rows of its client at once.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.client import Federation, normalised
from fedloom.data.passes import BUSY, chunk_width, in_chunks, rows_at_once, sum_of_pass
from fedloom.data.split import Split
from fedloom.hyperparameters import frozen
from fedloom.loss import Coupled, Loss, Summed
from fedloom.problem import Key, Scalar, Vector, ravel


def rows_at(store: Any, order: jax.Array | None, positions: jax.Array) -> Any:
    """The rows of the store at `positions` of the order."""
    rows = positions if order is None else jnp.asarray(order)[positions]
    return jax.tree.map(lambda x: jnp.asarray(x)[rows], store)


def _summed(of: Any, params: Any, positions: jax.Array, weights: jax.Array, key: Key | None) -> Scalar:
    """The sum of weight * loss over the rows at `positions`; a weight of 0 or False leaves a row out."""
    rows = rows_at(of.store, of.order, positions)
    if isinstance(of.loss_of, Summed):
        return of.loss_of.of(params, rows, weights.astype(jax.tree.leaves(params)[0].dtype), key)
    losses = of.loss_of(params, rows, key)
    if jnp.shape(losses) != positions.shape:
        raise ValueError(
            f"loss must return one number for each row, shape {positions.shape}, but returns shape "
            f"{jnp.shape(losses)}; do not average over rows, and note that (n, 1) - (n,) is (n, n). "
            "A loss that needs its rows together is fl.Coupled(loss)."
        )
    return jnp.sum(jnp.where(weights != 0, losses * weights.astype(losses.dtype), 0))


def _together(loss: Coupled, params: Any, rows: Any, mask: jax.Array, key: Key | None) -> Scalar:
    value = loss.of(params, rows, mask, key)
    if jnp.shape(value) != ():
        raise ValueError(f"A coupled loss must return one number for all rows, but returns shape {jnp.shape(value)}.")
    return value


class EmpiricalRisk(NamedTuple):
    """F(w) = mean over n examples of loss(unravel(w), example): the rows order[offset : offset + n] of a store."""

    store: Any
    order: jax.Array | None  # None: the rows are in order as they are
    offset: Scalar
    size: Scalar
    capacity: int
    width: int  # examples in a chunk of a full pass
    loss_of: Loss
    unravel: Callable[[Vector], Any]

    def resting(self, rests: Scalar) -> "EmpiricalRisk":
        return self._replace(size=jnp.where(rests, 0, self.size))

    def _batch_loss(self, params: Any, positions: jax.Array, mask: jax.Array, key: Key | None) -> Scalar:
        """The loss summed over the examples at `positions` where `mask` is True; of coupled rows, their loss."""
        places = self.offset + jnp.where(mask, positions, 0)
        if isinstance(self.loss_of, Coupled):
            return _together(self.loss_of, params, rows_at(self.store, self.order, places), mask, key)
        return _summed(self, params, places, mask, key)

    def _all(self) -> tuple[jax.Array, jax.Array]:
        """The positions of all local examples, and where they count: what a coupled loss is given."""
        positions = jnp.arange(self.capacity)
        return positions, positions < self.size

    def rows(self) -> Any:
        """All local rows, filled up to `capacity` with copies: for a solver that takes its steps outside JAX."""
        positions, mask = self._all()
        return rows_at(self.store, self.order, self.offset + jnp.where(mask, positions, 0))

    def _pass(self, of_chunk: Callable[..., Any], zero: Any, params: Any, key: Key | None = None) -> Any:
        """The mean over the local examples of what `of_chunk(risk, params, positions, mask, key)` sums over a chunk."""
        if isinstance(self.loss_of, Coupled):  # it is given all rows together
            return of_chunk(self, params, *self._all(), key)

        def of_some(shared: Any, given: Any, positions: jax.Array, mask: jax.Array) -> Any:
            params, offset, key = given
            risk = self._replace(store=shared[0], order=shared[1], offset=offset)
            key = None if key is None else jax.random.fold_in(key, positions[0])
            return of_chunk(risk, params, positions, mask, key)

        given, shared = (params, self.offset, key), (self.store, self.order)
        total = sum_of_pass(of_some, zero, shared, given, self.size, min(self.width, rows_at_once(params)))
        return jax.tree.map(lambda x: x / jnp.maximum(self.size, 1), total)

    def loss(self, w: Vector) -> Scalar:
        return self._pass(EmpiricalRisk._batch_loss, jnp.zeros((), w.dtype), self.unravel(w))

    def grad(self, w: Vector) -> Vector:
        return ravel(self.full_grad(self.unravel(w), None))

    def full_grad(self, params: Any, key: Key | None) -> Any:
        gradient = jax.grad(EmpiricalRisk._batch_loss, argnums=1)
        return self._pass(gradient, jax.tree.map(jnp.zeros_like, params), params, key)

    def _loss_at(self, w: Vector, *rest: Any) -> Scalar:
        return self._batch_loss(self.unravel(w), *rest)

    def curvature(self, w: Vector) -> jax.Array:
        """The Hessian of F at w, for small models."""
        return self._pass(jax.hessian(EmpiricalRisk._loss_at, argnums=1), jnp.zeros((w.size, w.size), w.dtype), w)

    def curved(self, w: Vector, v: Vector) -> Vector:
        """The Hessian of F at w times v, without the Hessian."""

        def product(self: "EmpiricalRisk", point: tuple[Vector, Vector], *rest: Any) -> Vector:
            gradient = jax.grad(EmpiricalRisk._loss_at, argnums=1)
            return jax.jvp(lambda w: gradient(self, w, *rest), point[:1], point[1:])[1]

        return self._pass(product, jnp.zeros_like(w), (w, v))

    def spread(self, w: Vector, mean: Vector) -> Vector:
        """Of each coordinate: the mean over examples, if uncoupled, of (its derivative for one - mean)^2."""

        def squares(self: "EmpiricalRisk", point: tuple[Vector, Vector], positions: Any, mask: Any, key: Any) -> Vector:
            def deviation(position: jax.Array) -> Vector:
                one = position[None], jnp.ones(1, bool), key
                return jax.grad(EmpiricalRisk._loss_at, argnums=1)(self, point[0], *one) - point[1]

            return mask.astype(w.dtype) @ jax.vmap(deviation)(jnp.where(mask, positions, 0)) ** 2

        # Gradients of single examples are as large as the model: few of them at a time.
        few = self._replace(width=max(min(self.width, BUSY // w.size), 1))
        return few._pass(squares, jnp.zeros_like(w), (w, mean))

    def batch_grad(self, params: Any, positions: jax.Array, mask: jax.Array, key: Key) -> Any:
        total = jax.grad(self._batch_loss)(params, positions, mask, key)
        if isinstance(self.loss_of, Coupled):
            return total
        return jax.tree.map(lambda x: x / jnp.maximum(jnp.sum(mask), 1), total)


@frozen
class Examples(Federation):
    """Clients that own rows of one flat store. Make one with `examples`."""

    store: Any
    order: jax.Array | None
    offsets: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray
    capacity: int = dataclasses.field(metadata={"static": True})  # the largest client's number of examples
    width: int = dataclasses.field(metadata={"static": True})  # examples in a chunk of a full pass
    loss_of: Loss = dataclasses.field(metadata={"static": True})
    unravel: Callable[[Vector], Any] = dataclasses.field(metadata={"static": True})

    def objective(self, k: Scalar) -> EmpiricalRisk:
        """Client k's objective. A number beyond the last is nobody's, who has no examples."""
        return EmpiricalRisk(
            self.store,
            self.order,
            jnp.asarray(self.offsets).at[k].get(mode="fill", fill_value=0),
            jnp.asarray(self.sizes).at[k].get(mode="fill", fill_value=0),
            self.capacity,
            self.width,
            self.loss_of,
            self.unravel,
        )

    @property
    def known_sizes(self) -> np.ndarray:
        return np.asarray(self.sizes)

    @property
    def on_host(self) -> bool:
        return isinstance(self.loss_of, Coupled | Summed) and self.loss_of.outside is not None

    def check(self, w: Vector) -> None:
        check_rows_apart(self, w)

    def loss(self, w: Vector) -> Scalar:
        return Federation.loss(self, w) if isinstance(self.loss_of, Coupled) else _population_loss(self, w)

    def grad(self, w: Vector) -> Vector:
        return Federation.grad(self, w) if isinstance(self.loss_of, Coupled) else _population_grad(self, w)


PROBED = 4  # rows of the batch in which a loss is tried
_apart: set[Any] = set()  # the losses that were tried


def check_rows_apart(federation: Examples, w: Vector) -> None:
    """Raise a ValueError if the loss of a row depends on the other rows of its batch.

    Such a loss would be wrong without a sign of it: batches are filled up with other rows, and the loss of the
    population goes through rows of several clients at a time. The first row is tried among others and among copies of
    itself, near w and not at w, where symmetries may hide the others.
    """
    loss = federation.loss_of
    if isinstance(loss, Coupled):
        return
    shapes = str(jax.tree.map(lambda x: (x.shape, x.dtype), (federation.store, w)))
    each, tried = loss.each if isinstance(loss, Summed) else loss, (loss, federation.unravel, shapes)
    if tried in _apart:
        return
    n = len(jax.tree.leaves(federation.store)[0]) if federation.order is None else len(federation.order)
    places = np.linspace(0, n - 1, PROBED).astype(np.int32)
    near = w + 0.01 * np.random.default_rng(0).standard_normal(w.shape, np.float32).astype(w.dtype)

    @jax.jit
    def first(store: Any, order: jax.Array | None, positions: jax.Array, v: Vector) -> jax.Array:
        return each(federation.unravel(v), rows_at(store, order, positions), jax.random.key(0))[0]

    among = [float(first(federation.store, federation.order, p, near)) for p in (places, np.zeros_like(places))]
    if np.isfinite(among).all() and abs(among[0] - among[1]) > 1e-4 * max(map(abs, among)):
        raise ValueError(
            "loss: the number of a row depends on the other rows of its batch, which may be rows that only fill it up, "
            "or another client's. Give it as fl.Coupled(loss), which gets a mask and the rows of one client, or make "
            "it a function of the row alone."
        )
    _apart.add(tried)


# All examples in one pass, example i of client k weighing p_k / n_k: a million small clients cost no more than one
# large one.


def _row_weights(federation: Examples, dtype: np.dtype) -> tuple[int, Callable[[jax.Array, jax.Array], Any]]:
    sizes = jnp.asarray(federation.sizes)
    n = jax.tree.leaves(federation.store)[0].shape[0] if federation.order is None else federation.order.shape[0]
    each = jnp.repeat((jnp.asarray(federation.weights) / sizes).astype(dtype), sizes, total_repeat_length=n)
    return n, lambda positions, mask: jnp.where(mask, each[jnp.minimum(positions, n - 1)], 0)


@jax.jit
def _population_loss(federation: Examples, w: Vector) -> Scalar:
    params = federation.unravel(w)
    n, weights = _row_weights(federation, w.dtype)
    return in_chunks(
        lambda positions, mask: _summed(
            federation, params, jnp.minimum(positions, n - 1), weights(positions, mask), None
        ),
        jnp.zeros((), w.dtype),
        n,
        min(n, rows_at_once(w)),
    )


@jax.jit
def _population_grad(federation: Examples, w: Vector) -> Vector:
    params = federation.unravel(w)
    n, weights = _row_weights(federation, w.dtype)
    gradient = jax.grad(lambda params, positions, weights: _summed(federation, params, positions, weights, None))
    tree = in_chunks(
        lambda positions, mask: gradient(params, jnp.minimum(positions, n - 1), weights(positions, mask)),
        jax.tree.map(jnp.zeros_like, params),
        n,
        min(n, rows_at_once(w)),
    )
    return ravel(tree)


def _itself(w: Vector) -> Vector:
    return w


def examples(
    store: Any,
    sizes: Any,
    loss: Loss,
    unravel: Callable[[Vector], Any] = _itself,
    weights: Any = "examples",
) -> Examples:
    """A federation over a flat store.

    Args:
        store: a pytree of arrays with a common leading axis, for example (x, y).
        sizes: how many rows each client owns: the first sizes[0] rows are client 0's, the next sizes[1] client 1's, and
            so on. Or a `Split`, which says for itself who owns what.
        loss: loss(params, rows, key) gives one number for each row, which depends on that row only; key is None outside
            training steps. Or a `Coupled` loss, which gives one number for all rows of a batch.
        unravel: from the flat vector to the model's parameters, as jax.flatten_util.ravel_pytree returns it.
        weights: population weights p_k: "examples" (in proportion to sizes), "uniform", or one number for each client.
    """
    split = sizes if isinstance(sizes, Split) else None
    sizes = np.asarray(sizes if split is None else split.sizes)
    if sizes.ndim != 1 or not np.issubdtype(sizes.dtype, np.integer) or len(sizes) == 0:
        raise ValueError("sizes must be a one-dimensional array of integers, one for each client, or a Split.")
    if np.any(sizes < 1):
        empty = int(np.argmax(sizes < 1))
        raise ValueError(f"sizes: client {empty} has {sizes[empty]} examples; leave out clients that have none.")
    rows = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(store)}
    if split is None and rows != {int(sizes.sum())}:
        raise ValueError(
            f"sizes add up to {sizes.sum()} examples, but the arrays of the store have {sorted(rows)} rows."
        )
    if split is not None and (len(rows) != 1 or max(rows) <= split.order.max()):
        raise ValueError(
            f"The split assigns row {split.order.max()}, but the arrays of the store have {sorted(rows)} rows."
        )
    if isinstance(weights, str):
        named = {"examples": sizes, "uniform": np.ones(len(sizes))}
        if weights not in named:
            raise ValueError(f"weights must be 'examples', 'uniform' or an array, got {weights!r}.")
        weights = named[weights]
    in_order = split is None or np.array_equal(split.order, np.arange(max(rows)))
    return Examples(
        store=jax.tree.map(jnp.asarray, store),  # on the device once, not once a call
        order=None if split is None or in_order else jnp.asarray(split.order, jnp.int32),
        offsets=(np.cumsum(sizes) - sizes).astype(np.int32),
        sizes=sizes.astype(np.int32),
        weights=normalised(weights, len(sizes)),
        capacity=int(sizes.max()),
        width=chunk_width(sizes),
        loss_of=loss,
        unravel=unravel,
    )
