"""Convolution, relu and pooling as one layer: on CPUs in C++ where that fits (fedloom/native), else one by one."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedloom.models.layers import Padding, Params, _pads, conv, on_cpu, relu_pool
from fedloom.native import conv as native


def conv_relu(p: Params, x: ArrayLike, padding: Padding = "VALID") -> jax.Array:
    """relu(conv(p, x)), with stride 1."""
    fused = _fused(p, x, padding, pool=False)
    return jax.nn.relu(conv(p, jnp.asarray(x), 1, padding)) if fused is None else fused


def conv_relu_pool(p: Params, x: ArrayLike, padding: Padding = "VALID") -> jax.Array:
    """relu_pool(conv(p, x)), with stride 1: tied cells share the gradient on CPUs."""
    fused = _fused(p, x, padding, pool=True)
    return relu_pool(conv(p, jnp.asarray(x), 1, padding)) if fused is None else fused


def _fused(p: Params, x: ArrayLike, padding: Padding, pool: bool) -> jax.Array | None:
    if not on_cpu() or "b" not in p:
        return None
    x = jnp.asarray(x, p["w"].dtype)
    if not native.fits(p["w"], p["b"], x):
        return None
    rows, columns = (_pads(n, 3, 1, padding) for n in x.shape[1:3])
    return native.conv_relu(p["w"], p["b"], x, (rows, columns), pool)
