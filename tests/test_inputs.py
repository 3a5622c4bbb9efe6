"""What `prepare` does to a minibatch: closed forms outside training, invariants and frequencies in training."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedloom.data import inputs

N = 400
RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (32, 32, 3), np.uint8)
IMAGES = np.broadcast_to(IMAGE, (N, 32, 32, 3))  # one image many times, so that what happens to it can be counted
LABELS = np.arange(N, dtype=np.uint8)
ROWS = (jnp.asarray(IMAGES), jnp.asarray(LABELS))
FEDDYN = inputs.cifar_feddyn(*inputs.CIFAR10)


@functools.cache
def train(function):
    return jax.jit(function)


def channels(x, mean, std):
    return (x / 255 - np.array(mean)) / np.array(std)


def padded(image, margin=4):
    return np.pad(image, ((margin, margin), (margin, margin), (0, 0)))


def places(images, whole, size):
    """For each image the (row, column, mirrored) at which it is found in `whole`; -1 if it is not."""
    out = np.full((len(images), 3), -1)
    for i in range(whole.shape[0] - size + 1):
        for j in range(whole.shape[1] - size + 1):
            window = whole[i : i + size, j : j + size]
            for mirrored in (0, 1):
                candidate = window[:, ::-1] if mirrored else window
                hit = np.abs(images[:, ::7, ::5] - candidate[None, ::7, ::5]).max(axis=(1, 2, 3)) < 1e-9
                for k in np.flatnonzero(hit):
                    np.testing.assert_allclose(images[k], candidate, atol=1e-9)
                    out[k] = i, j, mirrored
    return out


def within(count, probability, n):
    """Whether a count is within 5 standard deviations of its mean."""
    return abs(count - n * probability) < 5 * np.sqrt(n * probability * (1 - probability))


# Functions of the pixels alone.

BATCH = RNG.integers(0, 256, (5, 28, 28), np.uint8)


@pytest.mark.parametrize("key", [None, jax.random.key(0)], ids=["test", "train"])
def test_pixels_in_the_unit_interval(key):
    x, y = inputs.unit((BATCH, np.arange(5, dtype=np.uint8)), key)
    np.testing.assert_allclose(x, BATCH / 255, rtol=1e-15)
    assert y.dtype == jnp.int32
    np.testing.assert_array_equal(y, np.arange(5))
    floats = (BATCH / 255).astype(np.float32)  # a source that has no bytes
    np.testing.assert_array_equal(inputs.unit((floats, np.arange(5)), key)[0], floats)


@pytest.mark.parametrize("key", [None, jax.random.key(0)], ids=["test", "train"])
def test_an_autoencoder_sees_ink_as_one_and_aims_at_its_input(key):
    x, y = inputs.autoencode((BATCH, np.arange(5)), key)
    assert x.shape == (5, 784)
    np.testing.assert_allclose(x.reshape(5, 28, 28), 1 - BATCH / 255, atol=1e-15)
    np.testing.assert_array_equal(x, y)
    blank = inputs.autoencode((np.full((1, 28, 28), 255, np.uint8), np.zeros(1)), key)[0]
    np.testing.assert_array_equal(blank, np.zeros((1, 784)))


def test_standardised_by_one_number_or_by_channels():
    labels = np.zeros(5, np.int64)
    x, y = inputs.standardised(0.1307, 0.3081)((BATCH, labels), None)
    np.testing.assert_allclose(x, (BATCH / 255 - 0.1307) / 0.3081, rtol=1e-12)
    assert y.dtype == jnp.int32
    mean, std = inputs.CIFAR100
    x, _ = inputs.standardised(mean, std)((IMAGES[:5], labels), jax.random.key(0))
    mixed, _ = inputs.standardised(mean, 1.0)((IMAGES[:5], labels), None)
    np.testing.assert_allclose(mixed, IMAGES[:5] / 255 - np.array(mean), rtol=1e-12, atol=1e-14)
    for c in range(3):
        np.testing.assert_allclose(x[..., c], (IMAGES[:5, ..., c] / 255 - mean[c]) / std[c], rtol=1e-12, atol=1e-14)


def test_tokens_and_plain():
    x, y = np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(2, dtype=np.int16)
    for got, want in zip(inputs.tokens((x, y), None), (x, y), strict=True):
        assert got.dtype == jnp.int32
        np.testing.assert_array_equal(got, want)
    floats, targets = np.ones((2, 3), np.float32), np.ones(2, np.float32)
    got_x, got_y = inputs.plain((floats, targets), None)
    assert got_x is floats
    assert got_y.dtype == np.float32


def test_equal_arguments_give_the_same_function():
    assert inputs.standardised([0.5, 0.5, 0.5], (1, 1, 1)) is inputs.standardised(np.full(3, 0.5), np.ones(3))
    assert inputs.standardised(0.5, 1) is not inputs.standardised(0.5, 2)
    assert inputs.cifar_feddyn((0.5,) * 3, (1.0,) * 3) is inputs.cifar_feddyn([0.5] * 3, [1.0] * 3)
    assert inputs.bag_of_words(10, 3) is inputs.bag_of_words(10, 3)


# CIFAR.


def slow_standardisation(image):
    """TensorFlow's per_image_standardization."""
    image = np.asarray(image, float)
    return (image - image.mean()) / max(image.std(), 1 / np.sqrt(image.size))


def test_cifar24_outside_training_is_the_standardised_centre():
    images = RNG.integers(0, 256, (3, 32, 32, 3), np.uint8)
    images[1] = 7  # no variance
    images[2] = 7
    images[2, 15, 15, 0] = 8  # less than the least standard deviation
    x, y = inputs.cifar24((images, np.arange(3)), None)
    for got, image in zip(x, images, strict=True):
        np.testing.assert_allclose(got, slow_standardisation(image[4:28, 4:28]), rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(y, np.arange(3))


def test_cifar24_in_training():
    """Every image is some standardised window, each of the 9 x 9 places and both directions equally often."""
    x, y = train(inputs.cifar24)(ROWS, jax.random.key(1))
    np.testing.assert_array_equal(y, LABELS)
    assert x.shape == (N, 24, 24, 3)
    np.testing.assert_allclose(x.mean(axis=(1, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(x.std(axis=(1, 2, 3)), 1, rtol=1e-12)
    found = np.full((N, 3), -1)
    x = np.asarray(x)
    for i in range(9):
        for j in range(9):
            want = slow_standardisation(IMAGE[i : i + 24, j : j + 24])
            for mirrored, candidate in enumerate((want, want[:, ::-1])):
                hits = np.flatnonzero(np.abs(x[:, 0] - candidate[None, 0]).max(axis=(1, 2)) < 1e-9)
                for k in hits:
                    np.testing.assert_allclose(x[k], candidate, atol=1e-9)
                    found[k] = i, j, mirrored
    assert (found >= 0).all()
    for axis in (0, 1):
        counts = np.bincount(found[:, axis], minlength=9)
        assert all(within(count, 1 / 9, N) for count in counts)
    assert within(found[:, 2].sum(), 1 / 2, N)
    assert abs(np.corrcoef(found.T)[np.triu_indices(3, 1)]).max() < 5 / np.sqrt(N)  # three separate draws


def test_cifar_feddyn_outside_training_is_standardised():
    x, _ = FEDDYN(ROWS, None)
    np.testing.assert_allclose(x, channels(IMAGES, *inputs.CIFAR10), rtol=1e-11, atol=1e-12)


def test_cifar_feddyn_in_training():
    """Half mirrored; half left in place, apart from shifts by nothing; margins are zero after standardising."""
    x = np.asarray(train(FEDDYN)(ROWS, jax.random.key(2))[0])
    found = places(x, padded(channels(IMAGE, *inputs.CIFAR10)), 32)
    assert (found >= 0).all()
    still = (found[:, :2] == 4).all(axis=1)
    assert within(still.sum(), 1 / 2 + 1 / 2 / 81, N)
    for axis in (0, 1):
        counts = np.bincount(found[~still, axis], minlength=9)
        assert (counts > 0).all()
        assert within(counts[0], 9 / 80, (~still).sum())
    assert within(found[:, 2].sum(), 1 / 2, N)


def test_cifar_speedup():
    """Always shifted, with margins that are black before standardising; standardised only outside training."""
    x, _ = inputs.cifar_speedup(ROWS, None)
    np.testing.assert_allclose(x, channels(IMAGES, *inputs.IMAGENET), rtol=1e-11, atol=1e-12)
    x = np.asarray(train(inputs.cifar_speedup)(ROWS, jax.random.key(3))[0])
    found = places(x, channels(padded(IMAGE), *inputs.IMAGENET), 32)
    assert (found >= 0).all()
    for axis in (0, 1):
        assert all(within(count, 1 / 9, N) for count in np.bincount(found[:, axis], minlength=9))
    assert within(found[:, 2].sum(), 1 / 2, N)


@pytest.mark.parametrize(
    "function", [inputs.cifar24, FEDDYN, inputs.cifar_speedup], ids=["fedopt", "feddyn", "speedup"]
)
def test_the_key_determines_what_happens(function):
    rows = (ROWS[0][:6], ROWS[1][:6])
    keys = jax.random.split(jax.random.key(4), 2)
    clients = (jnp.stack([rows[0]] * 2), jnp.stack([rows[1]] * 2))
    together, _ = train(jax.vmap(function))(clients, keys)
    alone = [train(function)(rows, key)[0] for key in keys]
    np.testing.assert_allclose(together, jnp.stack(alone), rtol=1e-12, atol=1e-12)
    assert np.abs(together[0] - together[1]).max() > 0.1
    assert np.ptp(np.asarray(alone[0]), axis=0).max() > 0.1  # nor are the images of a minibatch treated alike


# Bags of words.

WORDS, TAGS = 7, 3


@settings(max_examples=30, deadline=None)
@given(
    arrays(np.int16, (4, 5), elements=st.integers(-1, WORDS - 1)),
    arrays(np.int32, 4, elements=st.integers(0, 6)),
    arrays(np.int16, (4, 2), elements=st.integers(-1, TAGS - 1)),
)
def test_a_bag_sums_to_the_share_of_words_that_count(ids, others, tags):
    counted = (ids >= 0).sum(axis=1)
    counts = counted + others
    x, y = train(inputs.bag_of_words(WORDS, TAGS))(((ids, counts.astype(np.int32)), tags), None)
    np.testing.assert_allclose(x.sum(axis=1), counted / np.maximum(counts, 1), rtol=1e-12)
    for b in range(4):
        for word in range(WORDS):
            np.testing.assert_allclose(x[b, word] * max(counts[b], 1), (ids[b] == word).sum(), rtol=1e-12)
        assert set(np.flatnonzero(y[b])) == set(tags[b][tags[b] >= 0])
    assert set(np.unique(y)) <= {0.0, 1.0}


def test_bags_of_several_clients_at_once():
    ids = RNG.integers(-1, WORDS, (3, 4, 5)).astype(np.int16)
    counts = np.full((3, 4), 6, np.int32)
    tags = RNG.integers(-1, TAGS, (3, 4, 2)).astype(np.int16)
    function = inputs.bag_of_words(WORDS, TAGS)
    x, y = jax.vmap(lambda *rows: function(((rows[0], rows[1]), rows[2]), None))(ids, counts, tags)
    for k in range(3):
        alone_x, alone_y = function(((ids[k], counts[k]), tags[k]), None)
        np.testing.assert_array_equal(x[k], alone_x)
        np.testing.assert_array_equal(y[k], alone_y)
