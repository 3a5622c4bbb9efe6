"""An LSTM layer as one call in C++."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from fedloom.native import build

Arrays = tuple[jax.Array, ...]
UNITS = 64  # their number must be a multiple of this


def fits(wx: Any, wh: Any, b: Any, x: Any, mask: Any) -> bool:
    """Whether the kernels can compute this layer."""
    if any(jnp.result_type(a) != jnp.float32 for a in (wx, wh, b, x)) or x.ndim != 3 or 0 in x.shape:
        return False
    units, shapes = wh.shape[0], (wx.shape, wh.shape, b.shape, x.shape[:2] if mask is None else jnp.shape(mask))
    # Shapes that do not go together are left to the layer in JAX, which says so, or repeats what is to be repeated.
    alike = shapes == ((x.shape[2], 4 * units), (units, 4 * units), (4 * units,), x.shape[:2])
    return bool(alike and not units % UNITS and build.kernels("lstm"))


def lstm(wx: jax.Array, wh: jax.Array, b: jax.Array, x: jax.Array, keep: jax.Array | None) -> jax.Array:
    """h at every step, [batch, time, units]; where `keep`, [batch, time], is True the state stays as it is.

    Only where it `fits`. Like the layer in JAX, it has no forward-mode derivative.
    """
    name = build.kernels("lstm")
    assert name is not None, "fits() says so"
    none = jnp.zeros((0, 0), jnp.uint8)
    return _call(name, x, wx, wh, b, none if keep is None else keep.astype(jnp.uint8))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _call(name: str, x: jax.Array, wx: jax.Array, wh: jax.Array, b: jax.Array, keep: jax.Array) -> jax.Array:
    return _forward(name, x, wx, wh, b, keep)[0]


def _floats(*shapes: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]


def _forward(
    name: str, x: jax.Array, wx: jax.Array, wh: jax.Array, b: jax.Array, keep: jax.Array
) -> tuple[Any, Arrays]:
    batch, time, units = *x.shape[:2], wh.shape[0]
    results = _floats((batch, time, 4 * units), (batch, time, units), (batch, time, units))
    gates, h, c = jax.ffi.ffi_call(f"{name}-forward", results, vmap_method="expand_dims")(x, wx, wh, b, keep)
    return h, (x, wx, wh, keep, gates, h, c)


def _backward(name: str, saved: Arrays, dy: jax.Array) -> tuple[jax.Array | None, ...]:
    x, wx, wh, *_ = saved
    results = _floats(x.shape, wx.shape, wh.shape, wx.shape[1:])
    dx, dwx, dwh, db = jax.ffi.ffi_call(f"{name}-backward", results, vmap_method="expand_dims")(*saved, dy)
    return dx, dwx, dwh, db, None


_call.defvjp(_forward, _backward)
