"""What clients' gradients say at a point: how much clients differ, and how noisy their minibatches are.

A minibatch of b of a client's n examples, drawn without replacement, has in coordinate j the variance

    (n - b) / (b (n - 1)) * s_j^2,      s_j^2 = mean over examples of (derivative for one example - mean)^2.

So one pass over gradients of single examples is enough, and no minibatch has to be drawn. Where such a pass would take
too long, or a minibatch's gradient is no mean over its rows, minibatches are drawn.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.client import Federation
from fedloom.data.empirical_risk import Examples
from fedloom.loss import Coupled
from fedloom.problem import Key, Vector, ravel
from fedloom.solvers.batches import shuffled
from fedloom.theory.constant import Measured

AT_ONCE = 2**22  # numbers in the gradients of clients side by side
MOST_CLIENTS = 256  # side by side
SINGLE = 2**31  # examples times parameters up to which gradients of single examples are computed
DRAWN = 2**33  # examples times parameters in drawn minibatches
BATCHES = 32  # drawn from each client


class Differences(NamedTuple):
    """How much the clients' gradients differ at a point."""

    distance: np.ndarray  # |grad F_k - grad f| of each client
    squares: np.ndarray  # of each coordinate, sum_k p_k (grad_j F_k - grad_j f)^2
    largest: float  # the largest |grad_j F_k|
    norm: float  # |grad f|


class Noise(NamedTuple):
    """How noisy minibatches are at a point."""

    sigma_l: Measured
    squares: np.ndarray  # of each coordinate, sum_k p_k times its variance
    G: Measured
    note: str | None = None


def blocks(clients: np.ndarray, numbers: int) -> tuple[list[np.ndarray], int]:
    """Clients in groups that are computed side by side if each takes so many numbers; the last is filled up."""
    width = max(min(AT_ONCE // numbers, MOST_CLIENTS, len(clients)), 1)
    padded = np.concatenate([clients, np.repeat(clients[-1:], -len(clients) % width)])
    return list(padded.reshape(-1, width)), width


def sizes_of(federation: Federation) -> np.ndarray:
    """The number of examples of each client."""
    known = federation.known_sizes
    if known is not None:
        return np.asarray(known)
    ask = jax.jit(lambda f: jax.lax.map(lambda k: jnp.asarray(f.objective(k).size), jnp.arange(f.clients)))
    return np.asarray(ask(federation))


@jax.jit
def _differences(federation: Federation, ks: jax.Array, p: jax.Array, w: Vector, mean: Vector) -> Any:
    g = jax.vmap(lambda k: federation.objective(k).grad(w))(ks)
    square = (g - mean[None]) ** 2
    return jnp.sum(square, axis=1), p.astype(w.dtype) @ square, jnp.max(jnp.abs(g))


def differences(federation: Federation, p: np.ndarray, w: Vector) -> Differences:
    """One pass over all clients, after one for their mean."""
    mean = federation.grad(w)
    distance, squares, largest = [], np.zeros(w.size), 0.0
    groups, width = blocks(np.arange(len(p)), w.size)
    share = np.concatenate([p, np.zeros(-len(p) % width)])  # what fills up the last group does not count
    for i, ks in enumerate(groups):
        d, s, m = _differences(federation, jnp.asarray(ks), jnp.asarray(share[i * width :][:width]), w, mean)
        distance.append(np.asarray(d, float))
        squares += np.asarray(s, float)
        largest = max(largest, float(m))
    norm = float(np.linalg.norm(np.asarray(mean, float)))
    return Differences(np.sqrt(np.concatenate(distance)[: len(p)]), squares, largest, norm)


def noise(
    federation: Federation, p: np.ndarray, w: Vector, batch_size: int | None, at: Differences, seed: int, effort: float
) -> Noise:
    """Of minibatches of this size; None takes all examples of a client."""
    sizes = sizes_of(federation)
    b = np.minimum(sizes.max() if batch_size is None else batch_size, sizes)
    random = _is_random(federation, w, seed)
    if np.all(b == sizes) and not random:  # a minibatch is all that a client has
        return Noise(Measured(0.0), np.zeros(w.size), Measured(at.largest))
    rows_apart = isinstance(federation, Examples) and not isinstance(federation.loss_of, Coupled)
    if rows_apart and not federation.on_host and not random and float(sizes.sum()) * w.size <= SINGLE * effort:
        return _by_examples(federation, p, w, sizes, b)
    return _by_minibatches(federation, p, w, sizes, b, at, seed, effort)


@jax.jit
def _of_a_few(federation: Federation, w: Vector, key: Key) -> Vector:
    objective = federation.objective(jnp.asarray(0))
    places = jnp.minimum(jnp.arange(4, dtype=jnp.int32), objective.size - 1)
    return ravel(objective.batch_grad(objective.unravel(w), places, places >= 0, key))


def _is_random(federation: Federation, w: Vector, seed: int) -> bool:
    """Whether a minibatch's gradient depends on a key, as with dropout and augmentation."""
    one, other = (_of_a_few(federation, w, jax.random.key(s)) for s in (seed, seed + 1))
    return not np.array_equal(one, other)


@jax.jit
def _variances(federation: Federation, ks: jax.Array, p: jax.Array, factor: jax.Array, n: jax.Array, w: Vector) -> Any:
    """Each client's variance, the weighted sum of each coordinate's, and bounds of the entries of minibatches."""

    def of(k: jax.Array, factor: jax.Array) -> tuple[Vector, Vector]:
        objective: Any = federation.objective(k)
        g = objective.grad(w)
        return g, factor.astype(w.dtype) * objective.spread(w, g)

    g, variance = jax.vmap(of)(ks, factor)
    reached, bound = _entries(g, variance, n.astype(w.dtype)[:, None])
    return jnp.sum(variance, axis=1), p.astype(w.dtype) @ variance, jnp.max(reached), jnp.max(bound)


def _entries(g: Vector, variance: Vector, n: Any) -> tuple[Vector, Vector]:
    """What the entries of some minibatch's gradient reach, and what those of none exceed.

    The mean of a square is g^2 + variance, and some minibatch is not below the mean. A mean of b of n numbers differs
    from the mean of all by at most s sqrt((n - b) / b), which is sqrt((n - 1) variance).
    """
    return jnp.sqrt(g**2 + variance), jnp.abs(g) + jnp.sqrt((n - 1) * variance)


def _by_examples(federation: Federation, p: np.ndarray, w: Vector, sizes: np.ndarray, b: np.ndarray) -> Noise:
    factor = (sizes - b) / (b * np.maximum(sizes - 1, 1))
    total, squares, reached, bound = [], np.zeros(w.size), 0.0, 0.0
    groups, width = blocks(np.arange(len(p)), w.size)
    share = np.concatenate([p, np.zeros(-len(p) % width)])
    for i, ks in enumerate(groups):
        own = jnp.asarray(share[i * width :][:width])
        v, s, low, high = _variances(federation, jnp.asarray(ks), own, factor[ks], sizes[ks], w)
        total.append(np.asarray(v, float))
        squares += np.asarray(s, float)
        reached, bound = max(reached, float(low)), max(bound, float(high))
    sigma = math.sqrt(float(np.concatenate(total).max()))
    return Noise(Measured(sigma), squares, Measured(reached, max(bound - reached, 0.0)))


@jax.jit
def _drawn(federation: Federation, k: jax.Array, w: Vector, places: jax.Array, batches: jax.Array, key: Key) -> Any:
    """Minibatches of client k: each coordinate's mean squared deviation, squared norms, and the largest entry."""
    objective = federation.objective(k)
    g, params = objective.grad(w), objective.unravel(w)
    mask = places < objective.size

    def add(total: Vector, m: jax.Array) -> tuple[Vector, tuple[jax.Array, jax.Array]]:
        positions = shuffled(key, m, jnp.where(mask, places, 0), objective.size, objective.capacity)
        batch = ravel(objective.batch_grad(params, positions, mask, jax.random.fold_in(key, m)))
        square = (batch - g) ** 2
        return total + square, (jnp.sum(square), jnp.max(jnp.abs(batch)))

    total, (norms, largest) = jax.lax.scan(add, jnp.zeros_like(w), batches)
    return total / batches.size, norms, jnp.max(largest)


def _by_minibatches(
    federation: Federation,
    p: np.ndarray,
    w: Vector,
    sizes: np.ndarray,
    b: np.ndarray,
    at: Differences,
    seed: int,
    effort: float,
) -> Noise:
    most = max(int(DRAWN * effort / (BATCHES * float(b.mean()) * w.size)), 2)
    clients = spaced(at.distance, most)
    # The same randomness for all, so that it does not matter who has which number.
    key, batches = jax.random.key(seed), jnp.arange(BATCHES)
    squares, norms, largest = np.zeros(w.size), [], 0.0
    places = jnp.arange(int(b.max()), dtype=jnp.int32)
    for k in clients:
        s, own, m = _drawn(federation, jnp.asarray(k), w, places, batches, key)
        squares += p[k] / p[clients].sum() * np.asarray(s, float)
        norms.append(np.asarray(own, float))
        largest = max(largest, float(m))
    noisiest = max(norms, key=np.mean)
    sigma = math.sqrt(noisiest.mean())
    off = float(noisiest.std(ddof=1)) / math.sqrt(BATCHES)  # of sigma^2
    note = (
        f"sigma_l, sigma_l_j and G: from {BATCHES} minibatches of each of {of_all(clients, p)}; G is the largest seen."
    )
    return Noise(Measured(sigma, off / (2 * sigma) if sigma > 0 else 0.0), squares, Measured(largest, math.inf), note)


def spaced(distance: np.ndarray, most: int) -> np.ndarray:
    """At most so many clients, at equal distances in the order of how much they differ from all, ends included.

    So they are an even sample, and the same clients whatever their numbers are.
    """
    n = len(distance)
    if n <= most:
        return np.arange(n)
    return np.argsort(distance, kind="stable")[np.round(np.linspace(0, n - 1, most)).astype(int)]


def of_all(clients: np.ndarray, p: np.ndarray) -> str:
    """How many of the clients these are, in words."""
    return f"all {len(p)} clients" if len(clients) == len(p) else f"{len(clients)} of {len(p)} clients"
