"""Layers as functions on plain arrays and dicts, with the makers of their parameters.

Images are [batch, height, width, channels], kernels [height, width, in, out]. The parameters decide the precision: an
input is cast to their type. On a CPU, XLA's own convolution and pooling are slow to differentiate, and a convolution
with one kernel per client (vmap) is hopelessly slow; there a convolution is shifted slices and one matrix product, or
Winograd's method where that is faster, and pooling is the maximum of strided slices. On accelerators the native
operations are faster. `conv`, `max_pool` and `relu_pool` choose.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from fedloom.models.winograd import conv3x3
from fedloom.problem import Key

Params = dict[str, Any]
Padding = str | int  # "VALID", "SAME" (as Keras pads: the odd cell goes last), or the cells to add on every side


def on_cpu() -> bool:
    """Whether programs are compiled for a CPU, which decides between the two versions of a layer."""
    return jax.default_backend() == "cpu"


# Initial values. A key and a shape give an array of the default float type: float32, or float64 if JAX's x64 is on.

Initializer = Callable[[Key, tuple[int, ...]], jax.Array]

glorot_uniform: Initializer = jax.nn.initializers.glorot_uniform()
he_normal: Initializer = jax.nn.initializers.he_normal()


def zeros(key: Key, shape: tuple[int, ...]) -> jax.Array:
    return jnp.zeros(shape)


def uniform(key: Key, shape: tuple[int, ...], bound: float) -> jax.Array:
    """Uniform on (-bound, bound)."""
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def pytorch(key: Key, shape: tuple[int, ...]) -> jax.Array:
    """PyTorch's default for the weights of dense layers and convolutions: uniform within 1 / sqrt(fan in)."""
    return uniform(key, shape, math.prod(shape[:-1]) ** -0.5)


def weights(key: Key, *shape: int, init: Initializer = glorot_uniform, bias: bool = True) -> Params:
    """Parameters of a dense layer (shape: in, out) or a convolution (height, width, in, out).

    A dense layer keeps its weights as [out, in], as PyTorch does: on CPUs its gradients are then formed a quarter
    faster, and several times as fast for many small clients side by side.

    Biases start at zero, or as PyTorch's if the weights do.
    """
    return _weights(key, shape, init, bias)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))  # a start has one program to find for a layer, not ten
def _weights(key: Key, shape: tuple[int, ...], init: Initializer, bias: bool) -> Params:
    key, bias_key = jax.random.split(key)
    w = init(key, shape)
    p = {"w": w.T if len(shape) == 2 else w}
    if bias:
        n = shape[-1:]
        p["b"] = uniform(bias_key, n, math.prod(shape[:-1]) ** -0.5) if init is pytorch else jnp.zeros(n)
    return p


def _plus_bias(p: Params, x: jax.Array) -> jax.Array:
    return x + jnp.broadcast_to(p["b"], x.shape) if "b" in p else x


# Layers.


def dense(p: Params, x: ArrayLike) -> jax.Array:
    """x w^T + b along the last axis."""
    return _plus_bias(p, jnp.asarray(x, p["w"].dtype) @ p["w"].T)


def embedding(table: jax.Array, tokens: ArrayLike) -> jax.Array:
    """Rows of the table. A token that is not in the table gives nan, so that a wrong vocabulary is noticed."""
    tokens = jnp.asarray(tokens, jnp.int32)
    return jnp.take(table, jnp.where(tokens < 0, len(table), tokens), axis=0, mode="fill")


def dropout(key: Key | None, rate: float, x: jax.Array) -> jax.Array:
    """Zero each number with probability `rate` and divide the others by 1 - rate; the identity if key is None."""
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def group_norm(p: Params, x: jax.Array, groups: int = 2, eps: float = 1e-5) -> jax.Array:
    """Normalise each example within groups of consecutive channels, over space and group; then scale and shift.

    eps: PyTorch's default; TensorFlow's is 1e-3.
    """
    batch, channels = x.shape[0], x.shape[-1]
    if channels % groups:
        raise ValueError(f"group_norm: {channels} channels cannot be divided into {groups} equal groups.")
    g = x.reshape(batch, -1, groups, channels // groups)
    mean = jnp.mean(g, axis=(1, 3), keepdims=True)
    centred = g - mean
    variance = jnp.mean(centred * centred, axis=(1, 3), keepdims=True)
    y = (centred * lax.rsqrt(variance + eps)).reshape(x.shape)
    return y * jnp.broadcast_to(p["scale"], y.shape) + jnp.broadcast_to(p["b"], y.shape)


def norm_weights(channels: int) -> Params:
    """Parameters of `group_norm`: scale 1, shift 0."""
    return {"scale": jnp.ones(channels), "b": jnp.zeros(channels)}


def _pads(size: int, window: int, stride: int, padding: Padding) -> tuple[int, int]:
    """Cells to add before and after an axis."""
    if padding == "VALID":
        return 0, 0
    if padding == "SAME":
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        return total // 2, total - total // 2
    if isinstance(padding, int):
        return padding, padding
    raise ValueError(f"padding must be 'VALID', 'SAME' or an integer, got {padding!r}.")


def _windows(x: jax.Array, window: tuple[int, int], stride: int, padding: Padding, fill: float) -> list[jax.Array]:
    """For each cell of the window, row by row, what it sees at every position: strided slices of the padded images."""
    pads = [_pads(n, k, stride, padding) for n, k in zip(x.shape[1:3], window, strict=True)]
    if any(before or after for before, after in pads):
        x = jnp.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)
    steps = [(n - k) // stride for n, k in zip(x.shape[1:3], window, strict=True)]
    if min(steps) < 0:
        raise ValueError(f"A window of {window} does not fit into images of {x.shape[1:3]} cells.")
    return [
        x[:, i : i + steps[0] * stride + 1 : stride, j : j + steps[1] * stride + 1 : stride]
        for i in range(window[0])
        for j in range(window[1])
    ]


def conv_by_slices(p: Params, x: jax.Array, stride: int = 1, padding: Padding = "VALID") -> jax.Array:
    """Convolution as shifted slices side by side and one matrix product: fast on CPUs."""
    w = p["w"]
    *window, channels, out = w.shape
    views = _windows(jnp.asarray(x, w.dtype), (window[0], window[1]), stride, padding, 0)
    patches = views[0] if len(views) == 1 else jnp.concatenate(views, axis=-1)
    y = patches.reshape(-1, len(views) * channels) @ w.reshape(-1, out)
    return _plus_bias(p, y.reshape(*patches.shape[:-1], out))


def conv_by_tiles(p: Params, x: jax.Array, padding: Padding = "VALID") -> jax.Array:
    """Convolution with a 3x3 kernel by Winograd's method: fast on CPUs if there are many channels."""
    x = jnp.asarray(x, p["w"].dtype)
    pads = [_pads(n, 3, 1, padding) for n in x.shape[1:3]]
    return _plus_bias(p, conv3x3(jnp.pad(x, [(0, 0), *pads, (0, 0)]), p["w"]))


def conv_by_xla(p: Params, x: jax.Array, stride: int = 1, padding: Padding = "VALID") -> jax.Array:
    """Convolution as XLA's own operation: fast on accelerators."""
    w = p["w"]
    x = jnp.asarray(x, w.dtype)
    pads = [_pads(n, k, stride, padding) for n, k in zip(x.shape[1:3], w.shape[:2], strict=True)]
    y = lax.conv_general_dilated(x, w, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return _plus_bias(p, y)


def conv(p: Params, x: jax.Array, stride: int = 1, padding: Padding = "VALID") -> jax.Array:
    """Convolution with the kernel p["w"] and, if there is one, the bias p["b"]."""
    if not on_cpu():
        return conv_by_xla(p, x, stride, padding)
    height, width, channels, _ = p["w"].shape
    if (height, width, stride) == (3, 3, 1) and channels >= 16 and min(x.shape[1:3]) >= 6:
        return conv_by_tiles(p, x, padding)
    return conv_by_slices(p, x, stride, padding)


def max_pool_by_slices(x: jax.Array, window: int = 2, stride: int = 2, padding: Padding = "VALID") -> jax.Array:
    """Max-pooling as `maximum` of strided slices: fast on CPUs.

    Where cells tie, `maximum` halves the gradient between its two sides, so tied cells share it.
    """
    return _tree_max(_windows(x, (window, window), stride, padding, -jnp.inf))


def _tree_max(views: list[jax.Array]) -> jax.Array:
    if len(views) == 1:
        return views[0]
    half = len(views) // 2
    return jnp.maximum(_tree_max(views[:half]), _tree_max(views[half:]))


def max_pool_native(x: jax.Array, window: int = 2, stride: int = 2, padding: Padding = "VALID") -> jax.Array:
    """Max-pooling as XLA's own operation: fast on accelerators. Of tied cells the first gets the gradient."""
    pads = [_pads(n, window, stride, padding) for n in x.shape[1:3]]
    shape, strides = (1, window, window, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, shape, strides, [(0, 0), *pads, (0, 0)])


def max_pool(x: jax.Array, window: int = 2, stride: int = 2, padding: Padding = "VALID") -> jax.Array:
    """The maximum in each window; padding never wins. Which of tied cells gets the gradient depends on the version."""
    return (max_pool_by_slices if on_cpu() else max_pool_native)(x, window, stride, padding)


@jax.custom_vjp
def _relu_pool(x: jax.Array) -> jax.Array:
    return _relu_pool_forward(x)[0]


def _cells(x: jax.Array) -> list[jax.Array]:
    """The four cells of every 2x2 window."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    return [x[:, :, i, :, j] for i in range(2) for j in range(2)]


def _relu_pool_forward(x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    y = jnp.maximum(_tree_max(_cells(x)), 0)
    return y, (x, y)


def _relu_pool_backward(saved: tuple[jax.Array, jax.Array], dy: jax.Array) -> tuple[jax.Array]:
    x, y = saved
    tied = sum((cell == y).astype(y.dtype) for cell in _cells(x))
    share = jnp.where(y > 0, dy / tied, 0)[:, :, None, :, None]
    windows = x.reshape(*y.shape[:2], 2, y.shape[2], 2, y.shape[3])
    return (jnp.where(windows == y[:, :, None, :, None], share, 0).reshape(x.shape),)


_relu_pool.defvjp(_relu_pool_forward, _relu_pool_backward)


def relu_pool(x: jax.Array) -> jax.Array:
    """max_pool(relu(x)) with windows of 2x2. On CPUs it has its own backward pass; tied cells share the gradient."""
    if not on_cpu():
        return max_pool(jax.nn.relu(x))
    return _relu_pool(x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2])


def shaped(x: ArrayLike, *shape: int) -> jax.Array:
    """x as [batch, *shape]: images may be given flat, or without the axis of a single channel."""
    x = jnp.asarray(x)
    if x.ndim < 2 or math.prod(x.shape[1:]) != math.prod(shape):
        raise ValueError(f"The model takes a batch with {shape} numbers per example, got an array of shape {x.shape}.")
    return x.reshape(x.shape[0], *shape)
