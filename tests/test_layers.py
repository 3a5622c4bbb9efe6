"""The fast layers equal the native ones, in values and gradients, and both equal NumPy's loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedloom.models import layers
from tests.comparing import assert_trees_close, close, values_and_gradients

RNG = np.random.default_rng(0)


def kernel(*shape, bias=True, clients=()):
    p = {"w": RNG.normal(size=(*clients, *shape))}
    return p | {"b": RNG.normal(size=(*clients, shape[-1]))} if bias else p


# Convolution.

CONVOLUTIONS = {  # image, kernel, stride, padding
    "valid": ((7, 6, 2), (3, 3, 2, 4), 1, "VALID"),
    "same": ((5, 6, 2), (3, 3, 2, 3), 1, "SAME"),
    "even-window-same": ((5, 6, 1), (2, 4, 1, 3), 1, "SAME"),
    "stem-keras": ((8, 8, 3), (7, 7, 3, 2), 2, "SAME"),  # pads 2 before and 3 after
    "stem-torch": ((8, 8, 3), (7, 7, 3, 2), 2, 3),
    "strided-odd": ((7, 9, 2), (3, 3, 2, 3), 2, "VALID"),  # and cells left over
    "strided-leftover": ((8, 9, 1), (3, 2, 1, 2), 3, "VALID"),
    "pointwise": ((4, 5, 3), (1, 1, 3, 2), 2, "VALID"),
}


def numpy_conv(p, x, stride, pads):
    """The definition, cell by cell."""
    x = np.pad(x, [(0, 0), *pads, (0, 0)])
    kh, kw, _, out = p["w"].shape
    rows, columns = (x.shape[1] - kh) // stride + 1, (x.shape[2] - kw) // stride + 1
    y = np.zeros((len(x), rows, columns, out))
    for i in range(rows):
        for j in range(columns):
            patch = x[:, i * stride : i * stride + kh, j * stride : j * stride + kw]
            y[:, i, j] = np.tensordot(patch, p["w"], axes=3) + p["b"]
    return y


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case):
    image, shape, stride, padding = CONVOLUTIONS[case]
    p, x = kernel(*shape), RNG.normal(size=(2, *image))
    fast, native = (
        values_and_gradients(lambda p, x, f=f: f(p, x, stride, padding), p, x)
        for f in (layers.conv_by_slices, layers.conv_by_xla)
    )
    assert_trees_close(fast, native)


@pytest.mark.parametrize(
    ("case", "pads"),
    [
        ("valid", [(0, 0), (0, 0)]),
        ("same", [(1, 1), (1, 1)]),
        ("even-window-same", [(0, 1), (1, 2)]),
        ("stem-keras", [(2, 3), (2, 3)]),
        ("stem-torch", [(3, 3), (3, 3)]),
        ("strided-leftover", [(0, 0), (0, 0)]),
    ],
)
def test_convolution_is_its_definition(case, pads):
    """Both versions share the arithmetic of padding; this one does not."""
    image, shape, stride, padding = CONVOLUTIONS[case]
    p, x = kernel(*shape), RNG.normal(size=(2, *image))
    close(layers.conv_by_slices(p, x, stride, padding), numpy_conv(p, x, stride, pads))


def test_convolution_with_a_kernel_for_each_client():
    p, x = kernel(3, 3, 2, 3, clients=(4,)), RNG.normal(size=(4, 2, 6, 5, 2))
    fast, native = (values_and_gradients(jax.vmap(f), p, x) for f in (layers.conv_by_slices, layers.conv_by_xla))
    assert_trees_close(fast, native)
    one_by_one = jnp.stack([layers.conv_by_slices(jax.tree.map(lambda a, k=k: a[k], p), x[k]) for k in range(4)])
    close(fast[0], one_by_one)
    # The same images for all clients, and the loop that an engine uses instead of vmap.
    shared = jax.vmap(layers.conv_by_slices, (0, None))(p, x[0])
    close(shared, jax.lax.map(lambda q: layers.conv_by_slices(q, x[0]), p))
    close(shared[0], fast[0][0])


TILED = {  # image, padding: whole tiles, cells left over, one tile
    "whole": ((10, 6), "VALID"),
    "left-over": ((7, 9), "VALID"),
    "same": ((8, 11), "SAME"),
    "padded": ((6, 7), 2),
    "small": ((3, 4), "VALID"),
}


@pytest.mark.parametrize("case", TILED)
def test_convolution_by_tiles(case):
    image, padding = TILED[case]
    p, x = kernel(3, 3, 2, 3), RNG.normal(size=(2, *image, 2))
    tiles, native = (
        values_and_gradients(f, p, x)
        for f in (lambda p, x: layers.conv_by_tiles(p, x, padding), lambda p, x: layers.conv_by_xla(p, x, 1, padding))
    )
    assert_trees_close(tiles, native)


def test_convolution_by_tiles_with_a_kernel_for_each_client():
    p, x = kernel(3, 3, 2, 3, clients=(4,)), RNG.normal(size=(4, 2, 7, 6, 2))
    tiles, native = (values_and_gradients(jax.vmap(f), p, x) for f in (layers.conv_by_tiles, layers.conv_by_xla))
    assert_trees_close(tiles, native)


def test_tiles_lose_little_precision():
    """In float32, as its docstring says: a few units of the last place of the outputs' typical size."""
    p, x = kernel(3, 3, 16, 8), RNG.normal(size=(2, 18, 18, 16))
    exact = layers.conv_by_xla(p, x)
    p32, x32 = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (p, x))
    error = layers.conv_by_tiles(p32, x32).astype(float) - exact
    assert np.std(error) < 2e-6 * np.std(exact)


def test_many_channels_go_by_tiles(monkeypatch):
    used = []
    monkeypatch.setattr(layers, "conv3x3", lambda x, w: used.append(x.shape) or layers.conv_by_xla({"w": w}, x))
    for shape, side, stride in [
        ((3, 3, 16, 1), 6, 1),
        ((3, 3, 8, 1), 6, 1),
        ((3, 3, 16, 1), 7, 2),
        ((5, 5, 16, 1), 6, 1),
    ]:
        p, x = kernel(*shape), RNG.normal(size=(1, side, side, shape[2]))
        close(layers.conv(p, x, stride), layers.conv_by_xla(p, x, stride))
    assert used == [(1, 6, 6, 16)]


def test_the_parameters_decide_the_precision():
    p32 = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), kernel(3, 3, 1, 2))
    x = RNG.normal(size=(2, 5, 5, 1))
    for f in (layers.conv_by_slices, layers.conv_by_xla):
        y, (dp, dx) = values_and_gradients(f, p32, x)
        assert (y.dtype, dp["w"].dtype, dx.dtype) == (jnp.float32, jnp.float32, jnp.float64)
    assert layers.conv_by_slices(p32, (10 * x).astype(np.uint8)).dtype == jnp.float32
    assert layers.max_pool_by_slices(y, 2, 2, 1).dtype == jnp.float32


def test_the_backend_chooses_the_version(monkeypatch):
    p, x = kernel(3, 3, 1, 2), RNG.normal(size=(1, 6, 6, 1))

    def uses(primitive):
        return primitive in str(jax.make_jaxpr(lambda p, x: layers.max_pool(layers.conv(p, x)))(p, x))

    assert not uses("conv_general_dilated")
    assert not uses("reduce_window")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert uses("conv_general_dilated")
    assert uses("reduce_window")


def test_windows_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"window of \(3, 3\) does not fit into images of \(2, 6\)"):
        layers.conv_by_slices(kernel(3, 3, 1, 1), np.zeros((1, 2, 6, 1)))
    with pytest.raises(ValueError, match="padding must be 'VALID', 'SAME' or an integer, got 'same'"):
        layers.conv_by_xla(kernel(3, 3, 1, 1), np.zeros((1, 4, 4, 1)), 1, "same")
    with pytest.raises(ValueError, match="3 channels cannot be divided into 2 equal groups"):
        layers.group_norm(layers.norm_weights(3), jnp.zeros((1, 2, 2, 3)))


# Pooling.


@pytest.mark.parametrize(
    ("window", "stride", "padding"), [(2, 2, "VALID"), (3, 2, "SAME"), (3, 2, 1), (3, 1, "SAME"), (2, 3, "VALID")]
)
def test_pooling(window, stride, padding):
    """Away from ties, which random numbers do not have. All are negative, so padding with zeros would show."""
    x = -RNG.uniform(1, 2, size=(2, 7, 6, 3))
    fast, native = (
        values_and_gradients(lambda x, f=f: f(x, window, stride, padding), x)
        for f in (layers.max_pool_by_slices, layers.max_pool_native)
    )
    assert_trees_close(fast, native)


def test_pooling_of_ties_shares_the_gradient():
    gradient = jax.grad(lambda x: jnp.sum(layers.max_pool_by_slices(x)))(jnp.ones((1, 4, 4, 1)))
    close(gradient, np.full((1, 4, 4, 1), 0.25))


@pytest.mark.parametrize("clients", [(), (3,)])
def test_relu_and_pooling_at_once(clients):
    x = RNG.normal(size=(*clients, 2, 7, 6, 3))  # a row is left over; a sixteenth of the windows has no positive cell
    own = layers.relu_pool
    plain = lambda x: layers.max_pool_native(jax.nn.relu(x))  # noqa: E731
    if clients:
        own, plain = jax.vmap(own), jax.vmap(plain)
    assert_trees_close(values_and_gradients(own, x), values_and_gradients(plain, x))


def test_relu_and_pooling_of_ties_share_the_gradient():
    x = jnp.array([[1.0, 1, -1, -1], [0, 1, -1, 0]])[None, :, :, None]
    gradient = jax.grad(lambda x: jnp.sum(layers.relu_pool(x)))(x)
    close(gradient[0, :, :, 0], [[1 / 3, 1 / 3, 0, 0], [0, 1 / 3, 0, 0]])


def test_pooling_is_its_definition():
    x = RNG.normal(size=(2, 7, 6, 3))
    close(layers.max_pool_by_slices(x), x[:, :6].reshape(2, 3, 2, 3, 2, 3).max(axis=(2, 4)))


# Norm, dropout, embedding, dense.


def test_group_norm_is_its_definition():
    x = RNG.normal(2, 3, size=(2, 3, 4, 6))
    p = {"scale": RNG.normal(size=6), "b": RNG.normal(size=6)}
    for groups, eps in ((2, 1e-5), (3, 0.1)):
        expected = np.empty_like(x)
        for g in np.split(np.arange(6), groups):
            block = x[..., g]
            mean, variance = block.mean(axis=(1, 2, 3)), block.var(axis=(1, 2, 3))
            scaled = (block - mean[:, None, None, None]) / np.sqrt(variance + eps)[:, None, None, None]
            expected[..., g] = scaled * p["scale"][g] + p["b"][g]
        close(layers.group_norm(p, x, groups, eps), expected)


def test_dropout():
    x = jnp.full((200, 500), 3.0)
    assert layers.dropout(None, 0.25, x) is x
    y = layers.dropout(jax.random.key(0), 0.25, x)
    close(np.unique(y), [0, 4])
    spread = np.sqrt(0.25 * 0.75 * x.size)
    assert abs(np.sum(y == 0) - 0.25 * x.size) < 5 * spread
    close(jax.grad(lambda x: jnp.sum(layers.dropout(jax.random.key(0), 0.25, x)))(x), y / 3)
    assert np.any(y != layers.dropout(jax.random.key(1), 0.25, x))


def test_embedding_notices_a_wrong_vocabulary():
    table = RNG.normal(size=(5, 3))
    tokens = np.array([[4, 0, 4]], np.uint8)
    close(layers.embedding(table, tokens), table[tokens])
    gradient = jax.grad(lambda t: jnp.sum(layers.embedding(t, tokens)))(jnp.asarray(table))
    close(gradient, np.outer([1, 0, 0, 0, 2], np.ones(3)))
    assert np.all(np.isnan(layers.embedding(table, np.array([5]))))


def test_dense_along_the_last_axis():
    p, x = {"w": RNG.normal(size=(2, 3)), "b": RNG.normal(size=2)}, RNG.normal(size=(4, 5, 3))
    close(layers.dense(p, x), x @ p["w"].T + p["b"])
    close(layers.dense({"w": p["w"]}, x), x @ p["w"].T)


@pytest.mark.parametrize("shape", [(60, 50), (5, 5, 8, 60)])
def test_initial_values_have_the_spread_that_their_names_say(shape):
    fan_in, out = int(np.prod(shape[:-1])), shape[-1]
    fan_out = out * int(np.prod(shape[:-2]))
    spread = {
        layers.glorot_uniform: np.sqrt(2 / (fan_in + fan_out)),
        layers.he_normal: np.sqrt(2 / fan_in),
        layers.pytorch: np.sqrt(1 / (3 * fan_in)),
        layers.zeros: 0,
    }
    for init, std in spread.items():
        p = layers.weights(jax.random.key(0), *shape, init=init)
        assert p["w"].shape == (shape if len(shape) == 4 else shape[::-1])
        assert p["w"].dtype == p["b"].dtype == jnp.float64  # JAX's default float, here with x64
        np.testing.assert_allclose(np.std(p["w"]), std, rtol=0.05)
        if init is layers.pytorch:
            assert 0.5 * fan_in**-0.5 < np.max(np.abs(p["b"])) <= fan_in**-0.5
        else:
            assert not np.any(p["b"])
    assert "b" not in layers.weights(jax.random.key(0), *shape, bias=False)
