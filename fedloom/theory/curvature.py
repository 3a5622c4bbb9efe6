"""The extreme eigenvalues of the Hessians of all F_k and of f at a point.

Small models have their Hessians formed and all eigenvalues computed. Large ones have Lanczos' method: m products with
the Hessian, from a random start, give an orthonormal basis V and a tridiagonal T = V^T H V, whose extreme eigenvalues
theta approach those of H from inside. With x = V s, for an eigenvector s of T,

    |H x - theta x| = beta_m |s_m|,

so that H has an eigenvalue within this of theta. That it is the extreme one is not proved, but for a random start it is
so unless the extreme one is very close to the next.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.client import Federation, Objective
from fedloom.data.empirical_risk import Examples
from fedloom.data.quadratic import Quadratics
from fedloom.problem import Vector
from fedloom.solvers.exact import hessian
from fedloom.theory.constant import Measured
from fedloom.theory.gradients import blocks, sizes_of, spaced

DENSE = 256  # parameters up to which Hessians are formed
WORK = 2**35  # examples times parameters, over all products with Hessians
STEPS = 24  # of Lanczos' method
OVERHEAD = 100  # examples whose products with the Hessian would take as long as the rest of a step
WIDE = 64  # examples in a chunk
FEW = 10  # with fewer steps the start must be a good one


class Spectrum(NamedTuple):
    """Eigenvalues of the clients that were looked at, and of f; errors bound the distance to an eigenvalue."""

    clients: np.ndarray  # which ones
    largest: np.ndarray  # the largest absolute eigenvalue of each
    smallest: np.ndarray  # the smallest eigenvalue of each
    largest_error: np.ndarray
    smallest_error: np.ndarray
    of_f: Measured  # the largest absolute eigenvalue of the Hessian of f


def spectrum(
    federation: Federation, p: np.ndarray, w: Vector, distance: np.ndarray, seed: int, effort: float
) -> Spectrum:
    """Of all clients if that is not too much work; else of some, spread evenly by how much they differ from all."""
    n, d = float(sizes_of(federation).sum()), w.size
    if isinstance(federation, Quadratics):
        return _of_hessians([np.asarray(federation.hessians, float)], p, np.dtype(float))
    if d <= DENSE and n * d * d <= WORK * effort:
        return _dense(federation, p, w)
    steps = min(STEPS, d)
    clients = spaced(distance, max(int(WORK * effort / (steps * d * (n / len(p) + OVERHEAD))), 2))
    wide = _in_wide_chunks(federation)
    start = _random_direction(w, seed)
    found, vectors = [], []
    groups, _ = blocks(clients, 2 * steps * d)
    for ks in groups:
        alpha, beta, basis = _of_clients(wide, jnp.asarray(ks), w, start, steps)
        ends = [_ends(a, b, w.dtype, d) for a, b in zip(np.asarray(alpha, float), np.asarray(beta, float), strict=True)]
        found += [end[:4] for end in ends]
        vectors.append(_combined(jnp.asarray([end[4] for end in ends], w.dtype), basis))
    largest, largest_error, smallest, smallest_error = np.array(found)[: len(clients)].T
    steps_f = min(STEPS, d, max(int(WORK * effort / (n * d)), 2))
    if steps_f < FEW:
        start = _leading(jnp.concatenate(vectors)[: len(clients)], p[clients] * largest)
    alpha, beta, _ = _of_f(federation, w, start, steps_f)
    theta, off = _ends(np.asarray(alpha, float), np.asarray(beta, float), w.dtype, d)[:2]
    return Spectrum(clients, largest, smallest, largest_error, smallest_error, Measured(theta, off))


def _in_wide_chunks(federation: Federation) -> Federation:
    """Products with the Hessian of a large model take long whatever the number of examples: rather a few too many."""
    if not isinstance(federation, Examples):
        return federation
    return dataclasses.replace(federation, width=max(federation.width, min(federation.capacity, WIDE)))


def _rounding(largest: Any, dtype: Any, d: int) -> Any:
    return np.finfo(dtype).eps * np.sqrt(d) * largest


def _dense(federation: Federation, p: np.ndarray, w: Vector) -> Spectrum:
    groups, width = blocks(np.arange(len(p)), w.size**2)
    filled = (np.asarray(_hessians(federation, jnp.asarray(ks), w), float) for ks in groups)
    return _of_hessians((h[: len(p) - i * width] for i, h in enumerate(filled)), p, w.dtype)


def _of_hessians(groups: Iterable[np.ndarray], p: np.ndarray, dtype: Any) -> Spectrum:
    """Of the clients' Hessians, group after group."""
    eigenvalues: list[np.ndarray] = []
    pooled: Any = 0.0
    for h in groups:
        done = sum(map(len, eigenvalues))
        pooled = pooled + np.einsum("k,kij->ij", p[done : done + len(h)], h)
        eigenvalues.append(np.linalg.eigvalsh(h))
    each = np.concatenate(eigenvalues)
    largest, smallest, d = np.abs(each).max(axis=1), each[:, 0], each.shape[1]
    off, of_f = _rounding(largest, dtype, d), float(np.abs(np.linalg.eigvalsh(pooled)).max())
    return Spectrum(np.arange(len(p)), largest, smallest, off, off, Measured(of_f, float(_rounding(of_f, dtype, d))))


@jax.jit
def _hessians(federation: Federation, ks: jax.Array, w: Vector) -> jax.Array:
    return jax.lax.map(lambda k: hessian(federation.objective(k), w), ks)


def product(objective: Objective, w: Vector, v: Vector) -> Vector:
    """The Hessian of F_k at w times v. An objective that has examples goes through them itself."""
    if hasattr(objective, "curved"):
        return objective.curved(w, v)
    return jax.jvp(objective.grad, (w,), (v,))[1]


@functools.partial(jax.jit, static_argnames="steps")
def _of_clients(federation: Federation, ks: jax.Array, w: Vector, start: Vector, steps: int) -> Any:
    return jax.vmap(lambda k: lanczos(lambda v: product(federation.objective(k), w, v), start, steps))(ks)


@functools.partial(jax.jit, static_argnames="steps")
def _of_f(federation: Federation, w: Vector, start: Vector, steps: int) -> Any:
    return lanczos(lambda v: jax.jvp(federation.grad, (w,), (v,))[1], start, steps)


def lanczos(times: Callable[[Vector], Vector], start: Vector, steps: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The diagonal of T, what is below it and, as its last entry, beta_m; and the basis, one vector in each row."""

    def step(j: Any, state: Any) -> Any:
        basis, alpha, beta, v = state
        basis = basis.at[j].set(v)
        u = times(v)
        alpha = alpha.at[j].set(u @ v)
        u = u - alpha[j] * v - beta[j - 1] * basis[j - 1]  # in the first step beta[-1] is still 0
        u = u - (basis @ u) @ basis  # nothing but rounding, which would else bring copies of eigenvalues
        size = jnp.linalg.norm(u)
        return basis, alpha, beta.at[j].set(size), u / jnp.where(size > 0, size, 1)

    basis, zero = jnp.zeros((steps, start.size), start.dtype), jnp.zeros(steps, start.dtype)
    basis, alpha, beta, _ = jax.lax.fori_loop(0, steps, step, (basis, zero, zero, start))
    return alpha, beta, basis


def _ends(alpha: np.ndarray, beta: np.ndarray, dtype: Any, d: int) -> tuple[float, float, float, float, np.ndarray]:
    """The largest absolute eigenvalue and its error, the smallest and its error, and the coefficients of the first."""
    scale = max(float(np.abs(alpha).max()), float(beta.max()))
    ended = np.flatnonzero(beta <= _rounding(scale, dtype, d))  # the basis spans all that a start can lead to
    m = int(ended[0]) + 1 if len(ended) else len(alpha)
    theta, s = np.linalg.eigh(np.diag(alpha[:m]) + np.diag(beta[: m - 1], 1) + np.diag(beta[: m - 1], -1))
    off = beta[m - 1] * np.abs(s[-1]) + _rounding(np.abs(theta).max(), dtype, d)
    first = int(np.argmax(np.abs(theta)))
    coefficients = np.zeros(len(alpha))
    coefficients[:m] = s[:, first]
    return float(abs(theta[first])), float(off[first]), float(theta[0]), float(off[0]), coefficients


@jax.jit
def _combined(coefficients: jax.Array, basis: jax.Array) -> jax.Array:
    return jnp.einsum("km,kmd->kd", coefficients, basis)


def _random_direction(w: Vector, seed: int) -> Vector:
    v = jax.random.normal(jax.random.key(seed), w.shape, w.dtype)
    return v / jnp.linalg.norm(v)


def _leading(vectors: jax.Array, weights: np.ndarray) -> Vector:
    """The leading eigenvector of sum_k weight_k v_k v_k^T: near that of f, whose Hessian the clients' make up."""
    scaled = jnp.sqrt(jnp.asarray(weights, vectors.dtype))[:, None] * vectors
    _, s = np.linalg.eigh(np.asarray(scaled @ scaled.T, float))
    v = jnp.asarray(s[:, -1], vectors.dtype) @ scaled
    return v / jnp.linalg.norm(v)
