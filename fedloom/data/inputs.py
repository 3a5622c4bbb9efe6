"""From a stored minibatch to what the model takes: functions (rows, key) -> (x, y).

`rows` is a minibatch of the store, a pair (x, y) with examples along the first axis. `key` is a key in training and
None outside; without one nothing is random. Pixels come out in JAX's default float type, labels and tokens as int32.
Equal arguments give the same function, so that compiled programs are shared.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.data.text import WordVectors
from fedloom.problem import Key

Rows = tuple[Any, jax.Array]  # (x, y), where x is an array or a tuple of arrays
Prepare = Callable[[Rows, Key | None], Rows]
Numbers = float | Sequence[float]  # one number, or one for each channel

CIFAR10 = ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))  # FedDyn's mean and standard deviation of the colours
CIFAR100 = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MNIST = (0.1307, 0.3081)


def plain(rows: Rows, key: Key | None) -> Rows:
    """Rows as they are."""
    x, y = rows
    return x, _labels(y)


def tokens(rows: Rows, key: Key | None) -> Rows:
    """Tokens, stored in a byte or two, as int32; targets as well."""
    x, y = rows
    return x.astype(jnp.int32), _labels(y)


def unit(rows: Rows, key: Key | None) -> Rows:
    """Pixels in [0, 1]."""
    x, y = rows
    return _unit(x), _labels(y)


def autoencode(rows: Rows, key: Key | None) -> Rows:
    """TFF's EMNIST with ink 1 and background 0, as flat vectors that are their own target."""
    x = 1 - _unit(rows[0]).reshape(len(rows[0]), -1)
    return x, x


def standardised(mean: Numbers, std: Numbers) -> Prepare:
    """Pixels in [0, 1], minus the mean, over the standard deviation; each one number, or one for each channel."""
    return _standardised(_hashable(mean), _hashable(std))


@functools.cache
def _standardised(mean: float | tuple[float, ...], std: float | tuple[float, ...]) -> Prepare:
    def prepare(rows: Rows, key: Key | None) -> Rows:
        x, y = rows
        return _normal(_unit(x), mean, std), _labels(y)

    return prepare


def cifar24(rows: Rows, key: Key | None) -> Rows:
    """FedOpt's CIFAR: 24x24 of the 32x32 pixels, minus the image's mean, over its standard deviation.

    In training the 24x24 pixels are anywhere and mirrored half of the time; otherwise they are the centre. The
    standard deviation is over all 1,728 numbers of an image and taken to be at least 1 / sqrt(1728).

    Departures: each image has its own place. In the code of the paper's time all images of a minibatch had the same.
    """
    x, y = rows
    if key is None:
        x = x[:, 4:28, 4:28]
    else:
        place, mirror = jax.random.split(key)
        x = _crop(x, jax.random.randint(place, (len(x), 2), 0, 9), 24)
        x = _mirror(x, mirror)
    x = _float(x)
    x = x - jnp.mean(x, axis=(1, 2, 3), keepdims=True)
    std = jnp.sqrt(jnp.mean(x * x, axis=(1, 2, 3), keepdims=True))
    return x / jnp.maximum(std, 1728**-0.5), _labels(y)


def cifar_feddyn(mean: Numbers, std: Numbers) -> Prepare:
    """FedDyn's CIFAR: standardised; in training also mirrored half of the time, and half of the time shifted.

    A shift is a random 32x32 crop of the standardised image with a margin of 4 zeros.
    """
    return _cifar_feddyn(_hashable(mean), _hashable(std))


@functools.cache
def _cifar_feddyn(mean: float | tuple[float, ...], std: float | tuple[float, ...]) -> Prepare:
    def prepare(rows: Rows, key: Key | None) -> Rows:
        x, y = rows
        x = _normal(_unit(x), mean, std)
        if key is not None:
            mirror, shift, place = jax.random.split(key, 3)
            x = _mirror(x, mirror)
            shifted = jax.random.bernoulli(shift, 0.5, (len(x), 1))
            x = _shift(x, jnp.where(shifted, jax.random.randint(place, (len(x), 2), 0, 9), 4))
        return x, _labels(y)

    return prepare


def cifar_speedup(rows: Rows, key: Key | None) -> Rows:
    """The CIFAR of Yang et al. (linear speedup): mirrored half of the time, shifted, standardised as ImageNet.

    A shift is a random 32x32 crop of the image with a margin of 4 black pixels.

    Departures: outside training images are left in place; the authors' code mirrors and shifts test images as well.
    """
    x, y = rows
    if key is not None:
        mirror, place = jax.random.split(key)
        x = _shift(_mirror(x, mirror), jax.random.randint(place, (len(x), 2), 0, 9))
    return _normal(_unit(x), *IMAGENET), _labels(y)


@functools.cache
def bag_of_words(words: int, tags: int) -> Prepare:
    """Stack Overflow's posts as vectors over words, and their tags as vectors of 0 and 1.

    x is the mean of the one-hot vectors of all words of a post, without the coordinate of words that do not count; so
    it sums to the share of those that do.

    Departures: FedOpt's text says that vectors sum to 1; its code is as here.
    """

    def prepare(rows: Rows, key: Key | None) -> Rows:
        (ids, counts), y = rows
        share = 1 / jnp.maximum(_float(counts), 1)
        example = jnp.arange(len(ids))[:, None]
        zeros = jnp.zeros((len(ids), words), share.dtype)
        x = zeros.at[example, jnp.where(ids < 0, words, ids)].add(share[:, None], mode="drop")
        targets = jnp.zeros((len(y), tags), share.dtype)
        return x, targets.at[example, jnp.where(y < 0, tags, y)].set(1, mode="drop")

    return prepare


@functools.cache
def embedded(vectors: WordVectors) -> Prepare:
    """Words as their vectors, which are not trained: from numbers [n, words] to [n, words, dimensions]."""

    def prepare(rows: Rows, key: Key | None) -> Rows:
        x, y = rows
        return _float(jnp.asarray(vectors.table)[x]), _labels(y)

    return prepare


def _hashable(values: Numbers) -> float | tuple[float, ...]:
    numbers = np.asarray(values, float).tolist()
    return tuple(numbers) if isinstance(numbers, list) else numbers


def _float(x: jax.Array) -> jax.Array:
    return x.astype(jnp.result_type(float))


def _labels(y: jax.Array) -> jax.Array:
    return y.astype(jnp.int32) if jnp.issubdtype(y.dtype, jnp.integer) else y


def _unit(x: jax.Array) -> jax.Array:
    """Bytes over 255; other numbers are in [0, 1] already."""
    return _float(x) / 255 if x.dtype == jnp.uint8 else _float(x)


def _normal(x: jax.Array, mean: Numbers, std: Numbers) -> jax.Array:
    """(x - mean) / std, with channels along the last axis."""
    m, s = (jnp.asarray(v, x.dtype).reshape((1,) * (x.ndim - np.ndim(v)) + np.shape(v)) for v in (mean, std))
    return (x - m) / s


def _mirror(x: jax.Array, key: Key) -> jax.Array:
    """Each image left for right with probability 1/2."""
    mirrored = jax.random.bernoulli(key, 0.5, (len(x), 1, 1, 1))
    return jnp.where(mirrored, x[:, :, ::-1], x)


def _crop(x: jax.Array, corners: jax.Array, size: int) -> jax.Array:
    """size x size pixels of each image, from its own corner."""

    def one(image: jax.Array, corner: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), (size, size, image.shape[-1]))

    return jax.vmap(one)(x, corners)


def _shift(x: jax.Array, corners: jax.Array) -> jax.Array:
    """As large a crop of the image with a margin of 4 zeros; the corner (4, 4) is the image itself."""
    return _crop(jnp.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0))), corners, x.shape[1])
