"""Evaluation: metrics of one model on a test set, of one model on every client, and of every client's own model."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedloom.data.empirical_risk import rows_at
from fedloom.data.passes import in_chunks, rows_at_once
from fedloom.data.split import Split
from fedloom.loss import Coupled
from fedloom.metrics.scored import OfAll, Ratio, Scored, given_to, ratios
from fedloom.metrics.scores import Criterion, Metric
from fedloom.native.build import left_out
from fedloom.problem import Key, Vector

Tree = Any  # a model's parameters, a pytree of arrays
Rows = Any  # a pytree of arrays with examples along the first axis; a store has all rows, a batch some
Pairs = Mapping[str, tuple[Any, Any]]  # {metric: (numerator of each row, denominator of each row)}
Scores = Mapping[str, Scored]
Unravel = Callable[[Vector], Tree]


class ByClient(NamedTuple):
    """One metric for each client; clients without an example, or whose denominator is 0, are nan."""

    values: np.ndarray
    larger_is_better: bool

    @property
    def known(self) -> np.ndarray:
        """The values of the clients that have examples to measure."""
        return self.values[~np.isnan(self.values)]

    @property
    def mean(self) -> float:
        """The plain mean over clients."""
        return float(self.known.mean()) if len(self.known) else float("nan")

    @property
    def worst_decile(self) -> float:
        """The mean over the worst tenth of the clients, at least one of them."""
        ordered = np.sort(self.known)
        if not len(ordered):
            return float("nan")
        tenth = max(len(ordered) // 10, 1)
        return float((ordered[:tenth] if self.larger_is_better else ordered[-tenth:]).mean())

    def quantiles(self, q: float | Sequence[float] = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)) -> np.ndarray:
        """The distribution over clients."""
        return np.quantile(self.known, q) if len(self.known) else np.full(np.shape(q), np.nan)


class OfRows(NamedTuple):
    """What a pass over rows computes."""

    pairs: Pairs  # of the metrics that are ratios of sums
    everything: tuple[Any, Any] | None  # outputs and labels, if a metric needs all of them


@dataclasses.dataclass(frozen=True)  # equal for the same task, so that programs are shared
class Scorer:
    """What is computed of rows: they are prepared and go through `apply`, without a key, then through every metric."""

    metrics: tuple[Metric, ...]
    apply: Callable[[Tree, Any, Key | None], jax.Array]
    prepare: Callable[[Rows, Key | None], tuple[Any, jax.Array]]
    criterion: Criterion | Coupled | None = None  # the loss, which says what outputs mean

    def __call__(self, params: Tree, rows: Rows) -> OfRows:
        x, y = self.prepare(rows, None)
        with left_out():  # a kernel has one thread, and the layers in JAX have all that training leaves free
            outputs = self.apply(params, x, None)
        pairs = {m.name: m.of(outputs, y) for m in self.metrics if m.of is not None}
        for name, pair in pairs.items():
            if any(jnp.shape(a) != (len(outputs),) for a in pair):
                raise ValueError(
                    f"Metric {name!r} must give a numerator and a denominator for each of {len(outputs)} examples, but "
                    f"returned shapes {[jnp.shape(a) for a in pair]}; sequences need token_accuracy."
                )
        return OfRows(pairs, (outputs, y) if self.of_all else None)

    @property
    def of_all(self) -> list[Metric]:
        """The metrics that are functions of all examples."""
        return [m for m in self.metrics if m.function is not None]

    def scored(self, found: OfRows) -> Scores:
        """What was computed of each example, by metric."""
        scores: dict[str, Scored] = {name: Ratio(*map(np.asarray, pair)) for name, pair in found.pairs.items()}
        if found.everything is not None:
            outputs, y = map(np.asarray, found.everything)
            scores |= {m.name: OfAll(m, y, given_to(m, outputs, y, self.criterion)) for m in self.of_all}
        return scores


@functools.partial(jax.jit, static_argnames=("score", "unravel"))
def _all_rows(store: Rows, order: jax.Array | None, w: Vector, score: Scorer, unravel: Unravel) -> OfRows:
    params = unravel(w)
    n = jax.tree.leaves(store if order is None else order)[0].shape[0]
    width = min(n, rows_at_once(w))

    def chunk(start: jax.Array) -> OfRows:
        return score(params, rows_at(store, order, jnp.minimum(start + jnp.arange(width), n - 1)))

    found = jax.lax.map(chunk, jnp.arange(0, n, width))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n], found)


def examplewise(store: Rows, w: Vector, score: Scorer, unravel: Unravel, order: jax.Array | None = None) -> Scores:
    """What the metrics need of each row of a store, or of the rows in `order`, in that order: in one pass for all."""
    return score.scored(_all_rows(store, order, w, score, unravel))


@functools.partial(jax.jit, static_argnames=("score", "unravel"))
def _all_models(store: Rows, order: jax.Array | None, models: jax.Array, score: Scorer, unravel: Unravel) -> OfRows:
    return jax.vmap(lambda w: _all_rows(store, order, w, score, unravel))(models)


def examplewise_all(
    store: Rows, models: jax.Array, score: Scorer, unravel: Unravel, order: jax.Array | None = None
) -> list[Scores]:
    """`examplewise` for each of several models [models, d]."""
    found = jax.device_get(_all_models(store, order, models, score, unravel))
    return [score.scored(jax.tree.map(lambda x, i=i: x[i], found)) for i in range(len(models))]


def total(scores: Scores) -> dict[str, float]:
    """Each metric over all rows."""
    return {name: scored.value() for name, scored in scores.items()}


def by_client(scores: Scores, split: Split) -> dict[str, np.ndarray]:
    """Each metric for each client of a split of these rows."""
    return {name: scored.by_client(split) for name, scored in scores.items()}


@functools.partial(jax.jit, static_argnames=("score", "unravel", "width"))
def _own(
    store: Rows,
    order: jax.Array,
    offsets: jax.Array,
    sizes: jax.Array,
    models: jax.Array,
    score: Scorer,
    unravel: Unravel,
    width: int,
) -> Pairs:
    """Sums of numerators and denominators over the rows of each client."""

    def of_client(k: jax.Array) -> Pairs:
        params = unravel(models[k])

        def of_chunk(positions: jax.Array, mask: jax.Array) -> Pairs:
            found = score(params, rows_at(store, order, offsets[k] + jnp.where(mask, positions, 0)))
            return jax.tree.map(lambda x: jnp.sum(jnp.where(mask, x, 0), dtype=jnp.result_type(float)), found.pairs)

        shapes = jax.eval_shape(of_chunk, jnp.arange(width), jnp.ones(width, bool))
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return in_chunks(of_chunk, zero, sizes[k], width)

    return jax.lax.map(of_client, jnp.arange(sizes.shape[0]))


@functools.partial(jax.jit, static_argnames=("score", "unravel", "width"))
def _own_outputs(
    store: Rows,
    order: jax.Array,
    offsets: jax.Array,
    sizes: jax.Array,
    models: jax.Array,
    score: Scorer,
    unravel: Unravel,
    width: int,
) -> Any:
    """Outputs and labels of all rows in `order`, those of each client with its own model."""
    n = order.shape[0]

    def of_chunk(params: Tree, k: jax.Array, positions: jax.Array) -> Any:
        rows = rows_at(store, order, jnp.minimum(offsets[k] + positions, n - 1))
        return score(params, rows).everything

    def of_client(k: jax.Array, found: Any) -> Any:
        params = unravel(models[k])

        def add(i: jax.Array, found: Any) -> Any:
            positions = i * width + jnp.arange(width)
            places = jnp.where(positions < sizes[k], offsets[k] + positions, n)  # beyond the client's rows: nowhere
            new = of_chunk(params, k, positions)
            return jax.tree.map(lambda all_rows, x: all_rows.at[places].set(x, mode="drop"), found, new)

        return jax.lax.fori_loop(0, -(-sizes[k] // width), add, found)

    shapes = jax.eval_shape(lambda: of_chunk(unravel(models[0]), jnp.array(0), jnp.arange(width)))
    room = jax.tree.map(lambda s: jnp.zeros((n, *s.shape[1:]), s.dtype), shapes)
    return jax.lax.fori_loop(0, sizes.shape[0], of_client, room)


def own_models(store: Rows, split: Split, models: ArrayLike, score: Scorer, unravel: Unravel) -> dict[str, np.ndarray]:
    """Each metric for each client, with its own model models[k], on its own rows."""
    if np.shape(models)[0] != split.clients:
        raise ValueError(f"models has {np.shape(models)[0]} rows, but there are {split.clients} clients.")
    if len(split.order) == 0:
        raise ValueError("No client has an example to evaluate its model on.")
    arrays = [jnp.asarray(a, jnp.int32) for a in (split.order, split.offsets[:-1], split.sizes)]
    own = jnp.asarray(models)
    width = min(int(split.sizes.max()), rows_at_once(own[0]))
    given = jax.tree.map(jnp.asarray, store), *arrays, own
    sums = _own(*given, score, unravel, width)
    values = {name: ratios(np.asarray(a, float), np.asarray(b, float)) for name, (a, b) in sums.items()}
    if score.of_all:
        scores = score.scored(OfRows({}, _own_outputs(*given, score, unravel, width)))
        values |= by_client(scores, Split(np.arange(len(split.order)), split.sizes))
    return values
