"""Models whose outputs are affine in their parameters, such as logistic regression: constants that hold everywhere.

The Hessian of the mean of loss(outputs) is then the mean of J^T C J, and the Jacobian J of the outputs does not depend
on w. C is the loss's curvature: for softmax cross-entropy diag(p) - p p^T, whose eigenvalues are at most 1/2, for
sigmoid cross-entropy p (1 - p), at most 1/4. So L is at most 1/2 or 1/4 times the largest eigenvalue of the mean of
J^T J, which is itself a Hessian: that of the mean of |outputs|^2 / 2.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.data.empirical_risk import Examples, rows_at
from fedloom.data.inputs import Prepare
from fedloom.metrics.scores import binary_cross_entropy, cross_entropy, squared_error
from fedloom.models.model import Model
from fedloom.problem import Key, Vector
from fedloom.tasks.task import Loaded

# The largest curvature of a loss as a function of the outputs.
STEEPEST = {cross_entropy: 1 / 2, binary_cross_entropy: 1 / 4}
CONVEX = {*STEEPEST, squared_error}
TRIED = 8  # rows


def has_affine_outputs(loaded: Loaded) -> bool:
    """Whether equal steps of the parameters change the outputs equally, tried on a few rows."""
    model, federation = loaded.task.model, loaded.federation
    if model is None or not isinstance(federation, Examples) or federation.on_host:
        return False
    n = len(jax.tree.leaves(federation.store)[0])
    rows = rows_at(federation.store, None, jnp.asarray(np.linspace(0, n - 1, TRIED).astype(np.int32)))
    x = loaded.task.prepare(rows, None)[0]
    w, v = (jax.random.normal(jax.random.key(s), loaded.w.shape, loaded.w.dtype) for s in range(2))
    first, second, third = (model.apply(federation.unravel(w + i * v), x, None) for i in range(3))
    bent = jnp.max(jnp.abs(third - 2 * second + first))
    return bool(bent <= 1e-4 * jnp.max(jnp.abs(third - first)))


@functools.cache  # the same function for the same task, so that compiled programs are shared
def _squares(model: Model, prepare: Prepare, of_all_classes: bool) -> Any:
    def loss(params: Any, rows: Any, key: Key | None) -> jax.Array:
        outputs = model.apply(params, prepare(rows, None)[0], None)
        if of_all_classes:  # cross-entropy has one number for all outputs, and means over positions
            squares = jnp.sum(outputs**2, axis=-1)
            return jnp.mean(squares.reshape(len(squares), -1), axis=1) / 2
        return jnp.mean((outputs**2).reshape(len(outputs), -1), axis=1) / 2

    return loss


def steepest(loaded: Loaded) -> tuple[float, Examples] | None:
    """A factor and a federation: the factor times its Hessians, anywhere, exceeds those of the task, everywhere."""
    task, federation = loaded.task, loaded.federation
    if task.criterion not in STEEPEST or not isinstance(federation, Examples):
        return None
    assert task.model is not None
    loss = _squares(task.model, task.prepare, task.criterion is cross_entropy)
    return STEEPEST[task.criterion], dataclasses.replace(federation, loss_of=loss)


def origin(w: Vector) -> Vector:
    """A point for quadratic functions, which are equally curved everywhere."""
    return jnp.zeros_like(w)
