"""Evaluation: metrics of one model on a test set, of one model on every client, and of every client's own model."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedloom.data.empirical_risk import in_chunks, rows_at, rows_at_once
from fedloom.data.split import Split
from fedloom.metrics.scores import Metric
from fedloom.problem import Key, Vector

Tree = Any  # a model's parameters, a pytree of arrays
Rows = Any  # a pytree of arrays with examples along the first axis; a store has all rows, a batch some
Pairs = Mapping[str, tuple[jax.Array, jax.Array]]  # {metric: (numerator of each row, denominator of each row)}
HostPairs = Mapping[str, tuple[np.ndarray, np.ndarray]]
Score = Callable[[Tree, Rows], Pairs]
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


@functools.partial(jax.jit, static_argnames=("score", "unravel"))
def _all_rows(store: Rows, order: jax.Array | None, w: Vector, score: Score, unravel: Unravel) -> Pairs:
    params = unravel(w)
    n = jax.tree.leaves(store if order is None else order)[0].shape[0]
    width = min(n, rows_at_once(w))

    def chunk(start: jax.Array) -> Pairs:
        return score(params, rows_at(store, order, jnp.minimum(start + jnp.arange(width), n - 1)))

    scores = jax.lax.map(chunk, jnp.arange(0, n, width))
    return jax.tree.map(lambda x: x.reshape(-1)[:n], scores)


def examplewise(store: Rows, w: Vector, score: Score, unravel: Unravel, order: jax.Array | None = None) -> HostPairs:
    """Numerator and denominator of each metric for each row of a store, or for the rows in `order`, in that order."""
    pairs = _all_rows(store, order, w, score, unravel)
    return {name: (np.asarray(a), np.asarray(b)) for name, (a, b) in pairs.items()}


@functools.partial(jax.jit, static_argnames=("score", "unravel"))
def _all_models(store: Rows, order: jax.Array | None, models: jax.Array, score: Score, unravel: Unravel) -> Pairs:
    return jax.vmap(lambda w: _all_rows(store, order, w, score, unravel))(models)


def examplewise_all(
    store: Rows, models: jax.Array, score: Score, unravel: Unravel, order: jax.Array | None = None
) -> list[HostPairs]:
    """`examplewise` for each of several models [models, d]."""
    scores = jax.device_get(_all_models(store, order, models, score, unravel))
    return [jax.tree.map(lambda x, i=i: x[i], scores) for i in range(len(models))]


def total(scores: HostPairs) -> dict[str, float]:
    """Each metric over all rows."""
    return {
        name: _ratio(float(np.sum(a, dtype=float)), float(np.sum(b, dtype=float))) for name, (a, b) in scores.items()
    }


BLOCKS = 100


@functools.lru_cache(maxsize=8)
def _blocks_of(n: int) -> np.ndarray:
    """The block of each of n examples: the same for all runs, so that blocks can be compared between them."""
    return np.argsort(np.random.default_rng(0).permutation(n)) % min(BLOCKS, n)


def blocks(numerators: np.ndarray, denominators: np.ndarray, owners: np.ndarray | None = None) -> list[float]:
    """A metric on each of at most BLOCKS random blocks of its examples, as pseudo-values whose mean is the metric.

    Examples of one owner, owners[i], stay in one block: those of one writer are no independent sample.

    With R = sum(num) / sum(den) over all examples and B blocks, block b has R + B (num_b - R den_b) / sum(den). The
    variance of the blocks over B is that of R, as another sample of test examples would have it (up to terms of higher
    order). Six significant digits are kept.
    """
    place = _blocks_of(len(numerators)) if owners is None else _blocks_of(int(owners.max()) + 1)[owners]
    a, b = (np.bincount(place, weights=np.asarray(x, float)) for x in (numerators, denominators))
    whole = _ratio(a.sum(), b.sum())
    values = whole + len(a) * (a - whole * b) / (b.sum() or 1.0)
    return [float(f"{value:.6g}") for value in values]


def by_client(scores: HostPairs, split: Split) -> dict[str, np.ndarray]:
    """Each metric for each client of a split of these rows."""
    owner = split.owner()

    def sums(x: np.ndarray) -> np.ndarray:
        return np.bincount(owner, weights=np.asarray(x, float)[split.order], minlength=split.clients)

    return {name: _ratios(sums(a), sums(b)) for name, (a, b) in scores.items()}


@functools.partial(jax.jit, static_argnames=("score", "unravel", "width"))
def _own(
    store: Rows,
    order: jax.Array,
    offsets: jax.Array,
    sizes: jax.Array,
    models: jax.Array,
    score: Score,
    unravel: Unravel,
    width: int,
) -> Pairs:
    """Sums of numerators and denominators over the rows of each client."""

    def of_client(k: jax.Array) -> Pairs:
        params = unravel(models[k])

        def of_chunk(positions: jax.Array, mask: jax.Array) -> Pairs:
            scores = score(params, rows_at(store, order, offsets[k] + jnp.where(mask, positions, 0)))
            return jax.tree.map(lambda x: jnp.sum(jnp.where(mask, x, 0), dtype=jnp.result_type(float)), scores)

        shapes = jax.eval_shape(of_chunk, jnp.arange(width), jnp.ones(width, bool))
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return in_chunks(of_chunk, zero, sizes[k], width)

    return jax.lax.map(of_client, jnp.arange(sizes.shape[0]))


def own_models(store: Rows, split: Split, models: ArrayLike, score: Score, unravel: Unravel) -> dict[str, np.ndarray]:
    """Each metric for each client, with its own model models[k], on its own rows."""
    if np.shape(models)[0] != split.clients:
        raise ValueError(f"models has {np.shape(models)[0]} rows, but there are {split.clients} clients.")
    if len(split.order) == 0:
        raise ValueError("No client has an example to evaluate its model on.")
    arrays = [jnp.asarray(a, jnp.int32) for a in (split.order, split.offsets[:-1], split.sizes)]
    own = jnp.asarray(models)
    width = min(int(split.sizes.max()), rows_at_once(own[0]))
    sums = _own(jax.tree.map(jnp.asarray, store), *arrays, own, score, unravel, width)
    return {name: _ratios(np.asarray(a, float), np.asarray(b, float)) for name, (a, b) in sums.items()}


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")


def _ratios(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b > 0, a / np.where(b > 0, b, 1), np.nan)


@functools.cache  # the same function for the same task, so that programs are shared
def scorer(
    metrics: tuple[Metric, ...],
    apply: Callable[[Tree, Any, Key | None], jax.Array],
    prepare: Callable[[Rows, Key | None], tuple[Any, jax.Array]],
) -> Score:
    """The Score of a model: prepared rows through `apply`, without a key, then every metric."""

    def score(params: Tree, rows: Rows) -> Pairs:
        x, y = prepare(rows, None)
        outputs = apply(params, x, None)
        scores = {m.name: m.of(outputs, y) for m in metrics}
        for name, pair in scores.items():
            if any(jnp.shape(a) != (len(outputs),) for a in pair):
                raise ValueError(
                    f"Metric {name!r} must give a numerator and a denominator for each of {len(outputs)} examples, but "
                    f"returned shapes {[jnp.shape(a) for a in pair]}; sequences need token_accuracy."
                )
        return scores

    return score
