"""Losses and metrics: what is measured on an example, given a model's outputs.

A loss gives one number for each example. A metric is a ratio of sums: it gives a numerator and a denominator for each
example, so that it can be summed over a test set, over a client, or over clients, and means the same everywhere.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

Criterion = Callable[[jax.Array, jax.Array], jax.Array]


def _mean_of_rest(x: jax.Array) -> jax.Array:
    return jnp.mean(x.reshape(x.shape[0], -1), axis=1)


def cross_entropy(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """Softmax cross-entropy with integer labels; for sequences the mean over positions, padding included.

    FedOpt's sequence models are trained so: their padded targets count in the loss, though not in the accuracy.
    """
    if outputs.shape[:-1] != y.shape:
        raise ValueError(f"Labels of shape {y.shape} do not match outputs of shape {outputs.shape}.")
    # A comparison instead of a look-up, whose gradient would be a scatter: slow for the small arrays of a client.
    right = y.astype(jnp.int32)[..., None] == jnp.arange(outputs.shape[-1]).reshape(*(1,) * y.ndim, -1)
    own = jnp.where(jnp.any(right, axis=-1), jnp.sum(jnp.where(right, outputs, 0), axis=-1), jnp.nan)  # no such class
    return _mean_of_rest(jax.nn.logsumexp(outputs, axis=-1) - own)


def binary_cross_entropy(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """Sigmoid cross-entropy with targets 0 or 1; for several outputs, as in tag prediction, their mean."""
    return _mean_of_rest(optax.sigmoid_binary_cross_entropy(outputs, y.reshape(outputs.shape).astype(outputs.dtype)))


def squared_error(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """The squared difference; for several outputs their mean."""
    return _mean_of_rest((outputs - y.reshape(outputs.shape)) ** 2)


@dataclasses.dataclass(frozen=True)
class Metric:
    """`of(outputs, y)` gives a numerator and a denominator for each example; the metric is the ratio of their sums."""

    name: str
    of: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    larger_is_better: bool = True
    bounds: tuple[float, float] = (-math.inf, math.inf)  # the smallest and the largest value that it can have


SHARE = (0.0, 1.0)
NONNEGATIVE = (0.0, math.inf)


def _one_each(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, jnp.ones_like(x)


def _correct(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _one_each((jnp.argmax(outputs, axis=-1) == y).astype(outputs.dtype))


def _sign_correct(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _one_each(((outputs.reshape(y.shape) > 0) == (y > 0)).astype(outputs.dtype))


accuracy = Metric("accuracy", _correct, bounds=SHARE)
binary_accuracy = Metric("accuracy", _sign_correct, bounds=SHARE)  # of one output, the logit of class 1


@functools.cache
def token_accuracy(*ignored: int) -> Metric:
    """Share of right tokens among the positions whose target is none of `ignored`.

    The mask looks at the target only: predicting an ignored token elsewhere is an error like any other. FedOpt ignores
    padding (0) for Shakespeare, and padding, out-of-vocabulary and end of sentence for Stack Overflow.
    """

    def of(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        counted = jnp.ones(y.shape, bool)
        for token in ignored:
            counted &= y != token
        right = counted & (jnp.argmax(outputs, axis=-1) == y)
        return jnp.sum(right, axis=1).astype(outputs.dtype), jnp.sum(counted, axis=1).astype(outputs.dtype)

    return Metric("accuracy", of, bounds=SHARE)


@functools.cache
def recall_at(k: int) -> Metric:
    """True tags among the k highest scores, over all true tags: micro-averaged, as Keras' Recall(top_k=k)."""

    def of(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        top = jax.lax.top_k(outputs, k)[1]
        hits = jnp.take_along_axis(y, top, axis=1)
        return jnp.sum(hits, axis=1).astype(outputs.dtype), jnp.sum(y, axis=1).astype(outputs.dtype)

    return Metric(f"recall@{k}", of, bounds=SHARE)


def _squared(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _one_each(squared_error(outputs, y))


mse = Metric("mse", _squared, larger_is_better=False, bounds=NONNEGATIVE)


@functools.cache
def loss(criterion: Criterion) -> Metric:
    """The mean of a loss. Only the losses of this module are known to be non-negative."""
    known = criterion in (cross_entropy, binary_cross_entropy, squared_error)

    def of(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _one_each(criterion(outputs, y))

    return Metric("loss", of, larger_is_better=False, bounds=NONNEGATIVE if known else (-math.inf, math.inf))
