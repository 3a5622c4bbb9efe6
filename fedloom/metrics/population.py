"""Figures of a whole population at a point w: how far from optimal it is, and how much the clients disagree there.

With p_k the population weights, F_k the clients' objectives and f = sum_k p_k F_k:

    gradient norm           |grad f(w)|
    gradient mapping norm   |w - prox_{eta g}(w - eta grad f(w))| / eta       for f + g; the gradient norm if g = 0
    dissimilarity B         sqrt(sum_k p_k |grad F_k(w)|^2) / |grad f(w)|     1: all alike (Li et al., definition 3)
    gradient variance       sum_k p_k |grad F_k(w) - grad f(w)|^2
    drift                   sqrt(sum_k p_k |v_k - w|^2), v_k where client k's local training ends if it starts at w
    consensus error         sqrt(sum_k p_k |x_k - x|^2), x = sum_k p_k x_k    of the clients' own models x_k
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedloom.client import Federation, Solver
from fedloom.problem import Key, Problem, Vector
from fedloom.regularizers import Regularizer, none


def gradient_norm(federation: Federation, w: Vector) -> float:
    """The norm of the gradient of f at w."""
    return float(jnp.linalg.norm(federation.grad(w)))


def gradient_mapping_norm(federation: Federation, w: Vector, g: Regularizer | None = None, eta: float = 1.0) -> float:
    """The norm of the gradient mapping of f + g at w with step size eta: zero at a stationary point."""
    if not eta > 0:
        raise ValueError(f"eta must be a positive number, got {eta!r}.")
    step = (none() if g is None else g).prox(w - eta * federation.grad(w), eta)
    return float(jnp.linalg.norm(w - step)) / eta


@jax.jit
def _moments(federation: Federation, w: Vector) -> tuple[jax.Array, jax.Array]:
    """sum_k p_k |grad F_k|^2 and |sum_k p_k grad F_k|^2, one client after another."""
    p = jnp.asarray(federation.weights, w.dtype)

    def add(carry: tuple[jax.Array, Vector], k: jax.Array) -> tuple[tuple[jax.Array, Vector], None]:
        square, total = carry
        g = federation.objective(k).grad(w)
        return (square + p[k] * (g @ g), total + p[k] * g), None

    start = (jnp.zeros((), w.dtype), jnp.zeros_like(w))
    (square, total), _ = jax.lax.scan(add, start, jnp.arange(federation.clients))
    return square, total @ total


def dissimilarity(federation: Federation, w: Vector) -> float:
    """B(w); infinite where grad f(w) = 0 although the clients' gradients are not, 1 where all vanish."""
    square, of_mean = (float(x) for x in _moments(federation, w))
    if of_mean == 0:
        return 1.0 if square == 0 else float("inf")
    return float(np.sqrt(square / of_mean))


def gradient_variance(federation: Federation, w: Vector) -> float:
    """The variance of the clients' gradients at w: sum_k p_k |grad F_k(w) - grad f(w)|^2."""
    square, of_mean = (float(x) for x in _moments(federation, w))
    return max(square - of_mean, 0.0)


@jax.jit
def _drift(federation: Federation, solver: Solver, w: Vector, key: Key, t: jax.Array) -> jax.Array:
    p = jnp.asarray(federation.weights, w.dtype)

    def add(total: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
        one = jnp.ones((), w.dtype)
        v = solver.solve(Problem(start=w), federation.objective(k), jax.random.fold_in(key, k), t, one).w
        return total + p[k] * jnp.sum((v - w) ** 2), None

    return jnp.sqrt(jax.lax.scan(add, jnp.zeros((), w.dtype), jnp.arange(federation.clients))[0])


def drift(federation: Federation, solver: Solver, w: Vector, *, t: int = 0, seed: int = 0) -> float:
    """How far plain local training with `solver` in round t takes the clients away from w."""
    return float(_drift(federation, solver, w, jax.random.key(seed), jnp.asarray(t, jnp.int32)))


def consensus_error(models: ArrayLike, weights: ArrayLike) -> float:
    """How far the clients' models, the rows of `models`, are from their mean."""
    x, p = np.asarray(models, float), np.asarray(weights, float)
    if x.ndim != 2 or p.shape != x.shape[:1]:
        raise ValueError(f"models must be [clients, d] and weights [clients], got {x.shape} and {p.shape}.")
    p = p / p.sum()
    return float(np.sqrt(p @ np.sum((x - p @ x) ** 2, axis=1)))
