"""3x3 convolution, bias and relu, with or without 2x2 max-pooling, as one call in C++."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.native import build

Pads = tuple[tuple[int, int], tuple[int, int]]  # cells before and after: rows, columns
Saved = tuple[jax.Array, jax.Array, jax.Array]  # images, kernel, and which cells were the maximum
CHANNELS = 16  # their number must be a multiple of this
LARGEST = 128 * 128  # product of the channels in and out: beyond it kernels leave the cache, and nothing was measured
SMALLEST = 6  # images with fewer rows or columns are left to other layers


def fits(w: Any, b: Any, x: Any) -> bool:
    """Whether the kernels can compute this convolution with stride 1."""
    float32 = all(jnp.result_type(a) == jnp.float32 for a in (w, b, x))
    window, (channels, out) = w.shape[:2], w.shape[2:]
    kernel = window == (3, 3) and not channels % CHANNELS and not out % CHANNELS and channels * out <= LARGEST
    # Shapes that do not go together are left to the layers in JAX, which say so.
    images = x.ndim == 4 and x.shape[3:] + b.shape == w.shape[2:] and x.shape[0] > 0 and min(x.shape[1:3]) >= SMALLEST
    return bool(float32 and kernel and images and build.kernels("conv"))


def conv_relu(w: jax.Array, b: jax.Array, x: jax.Array, pads: Pads, pool: bool) -> jax.Array:
    """relu(x * w + b), x padded with zeros; with `pool`, the maximum of its 2x2 windows, whose tied cells share the
    gradient. Only where it `fits`. Like the layers in JAX, it has no forward-mode derivative."""
    name = build.kernels("conv")
    assert name is not None, "fits() says so"
    return _call(name, pads, pool, x, w, b)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _call(name: str, pads: Pads, pool: bool, x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return _forward(name, pads, pool, x, w, b)[0]


def _options(pads: Pads, pool: bool) -> dict[str, np.int32]:
    return {"top": np.int32(pads[0][0]), "left": np.int32(pads[1][0]), "pool": np.int32(pool)}


def _forward(name: str, pads: Pads, pool: bool, x: jax.Array, w: jax.Array, b: jax.Array) -> tuple[jax.Array, Saved]:
    sides = [n + sum(pad) - 2 for n, pad in zip(x.shape[1:3], pads, strict=True)]
    shape = (x.shape[0], *(n // 2 if pool else n for n in sides), w.shape[3])
    results = (jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct(shape, jnp.uint8))
    call = jax.ffi.ffi_call(f"{name}-forward", results, vmap_method="expand_dims")
    y, cells = call(x, w, b, **_options(pads, pool))
    return y, (x, w, cells)


def _backward(name: str, pads: Pads, pool: bool, saved: Saved, dy: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, w, cells = saved
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (x.shape, w.shape, w.shape[3:])]
    call = jax.ffi.ffi_call(f"{name}-backward", results, vmap_method="expand_dims")
    dx, dw, db = call(x, w, cells, dy, **_options(pads, pool))
    return dx, dw, db


_call.defvjp(_forward, _backward)
