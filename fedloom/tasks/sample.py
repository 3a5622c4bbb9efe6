"""The training loss of many models, and of a sample of the training examples: an unbiased estimate of f(w)."""

from typing import TYPE_CHECKING

import jax
import numpy as np

from fedloom.client import Federation
from fedloom.data.empirical_risk import EmpiricalRisk, Examples
from fedloom.loss import Coupled
from fedloom.problem import Scalar, Vector

if TYPE_CHECKING:
    from fedloom.tasks.task import Loaded


def sample_rows(loaded: "Loaded", n: int, seed: int = 0) -> np.ndarray:
    """n rows of the training store, example i of client k being expected n p_k / n_k times: their mean loss is f(w).

    That is systematic sampling from the examples in random order. With weights by examples no row is drawn twice.
    """
    f = loaded.federation
    if not isinstance(f, Examples):
        raise ValueError(f"evaluate: task {loaded.task.name!r} is a function of w: it has no examples to sample.")
    if isinstance(f.loss_of, Coupled):
        raise ValueError(f"evaluate: the loss of task {loaded.task.name!r} couples rows: a sample says nothing of it.")
    sizes = np.asarray(f.sizes)
    if not 1 <= n <= sizes.sum():
        raise ValueError(
            f"evaluate: train:{n} must name a number from 1 to {sizes.sum()}, the number of training examples."
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(sizes.sum())
    ends = np.cumsum(np.repeat(np.asarray(f.weights, float) / sizes, sizes)[order])
    points = (rng.random() + np.arange(n)) * ends[-1] / n
    positions = np.sort(order[np.minimum(np.searchsorted(ends, points, side="right"), len(order) - 1)])
    return positions if f.order is None else np.asarray(f.order)[positions]


@jax.jit
def sample_loss(federation: Examples, rows: jax.Array, w: Vector) -> Scalar:
    """The mean loss over some rows of the training store."""
    n = rows.shape[0]
    return EmpiricalRisk(federation.store, rows, 0, n, n, n, federation.loss_of, federation.unravel).loss(w)


@jax.jit
def sample_losses(federation: Examples, rows: jax.Array, models: jax.Array) -> jax.Array:
    """`sample_loss` of several models."""
    return jax.vmap(lambda w: sample_loss(federation, rows, w))(models)


@jax.jit
def losses(federation: Federation, models: jax.Array) -> jax.Array:
    """The training loss of several models."""
    return jax.vmap(federation.loss)(models)
