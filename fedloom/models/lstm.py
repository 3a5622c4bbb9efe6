"""LSTM layers. Gates are stored in the order of Keras and PyTorch: input, forget, candidate, output.

What depends on the inputs only is one matrix product before the loop over time. Differentiating the loop as JAX does
adds up the gradient of the recurrent weights step by step, which is slow on CPUs; there the layer has its own backward
pass: it stores the gates and forms that gradient with one matrix product at the end.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedloom.models.layers import Initializer, Params, glorot_uniform, on_cpu, uniform
from fedloom.problem import Key

State = tuple[jax.Array, jax.Array]  # h and c, [batch, units]


def _step(z: jax.Array, h: jax.Array, c: jax.Array, wh: jax.Array, keep: Any) -> tuple[Any, jax.Array, jax.Array]:
    """One step from the projected inputs z: gates, new h, new c; where `keep` is True the state stays as it is."""
    i, f, g, o = jnp.split(z + h @ wh, 4, axis=-1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    new_c = f * c + i * g
    new_h = o * jnp.tanh(new_c)
    if keep is not None:
        new_c, new_h = jnp.where(keep, c, new_c), jnp.where(keep, h, new_h)
    return (i, f, g, o), new_h, new_c


def _start(z: jax.Array) -> State:
    zero = jnp.zeros_like(z[0, :, : z.shape[-1] // 4])
    return zero, zero


def _plain(z: jax.Array, wh: jax.Array, keep: Any) -> jax.Array:
    """h after every step, [time, batch, units], from the projected inputs z: [time, batch, 4 units]."""

    def step(state: State, now: Any) -> tuple[State, jax.Array]:
        z, keep = now
        _, h, c = _step(z, *state, wh, keep)
        return (h, c), h

    return lax.scan(step, _start(z), (z, keep))[1]


def _forward(z: jax.Array, wh: jax.Array, keep: Any) -> tuple[jax.Array, Any]:
    def step(state: State, now: Any) -> tuple[State, Any]:
        z, keep = now
        gates, h, c = _step(z, *state, wh, keep)
        return (h, c), (gates, h, c)

    gates, h, c = lax.scan(step, _start(z), (z, keep))[1]
    return h, (gates, h, c, wh, keep)


def _backward(saved: Any, dh_out: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    gates, h, c, wh, keep = saved
    back = wh.T  # outside the loop: multiplying by a transposed view at every step is nearly twice as slow
    before = jnp.concatenate([jnp.zeros_like(c[:1]), c[:-1]])

    def step(state: State, now: Any) -> tuple[State, jax.Array]:
        (dh, dc), ((i, f, g, o), before, dh_out, keep) = state, now
        dh = dh + dh_out
        t = jnp.tanh(f * before + i * g)
        dc_new = dc + dh * o * (1 - t * t)
        dz = jnp.concatenate(
            [dc_new * g * i * (1 - i), dc_new * before * f * (1 - f), dc_new * i * (1 - g * g), dh * t * o * (1 - o)],
            axis=-1,
        )
        if keep is not None:
            dz = jnp.where(keep, 0, dz)
        dh_new, dc_new = dz @ back, dc_new * f
        if keep is not None:
            dh_new, dc_new = jnp.where(keep, dh, dh_new), jnp.where(keep, dc, dc_new)
        return (dh_new, dc_new), dz

    zero = jnp.zeros_like(c[0])
    dz = lax.scan(step, (zero, zero), (gates, before, dh_out, keep), reverse=True)[1]
    units = h.shape[-1]
    dwh = h[:-1].reshape(-1, units).T @ dz[1:].reshape(-1, 4 * units)
    return dz, dwh, None


_stored = jax.custom_vjp(_plain)
_stored.defvjp(_forward, _backward)


def _lstm(recurrence: Any, p: Params, x: Any, mask: Any) -> jax.Array:
    wx, wh = p["wx"], p["wh"]
    bias = p["b"] + p["b2"] if "b2" in p else p["b"]
    z = jnp.swapaxes(jnp.asarray(x, wx.dtype), 0, 1) @ wx
    keep = None if mask is None else jnp.logical_not(jnp.swapaxes(mask, 0, 1))[..., None]
    return jnp.swapaxes(recurrence(z + jnp.broadcast_to(bias, z.shape), wh, keep), 0, 1)


def lstm_stored(p: Params, x: Any, mask: Any = None) -> jax.Array:
    """`lstm` with its own backward pass: fast on CPUs. It has no forward-mode derivative."""
    return _lstm(_stored, p, x, mask)


def lstm_native(p: Params, x: Any, mask: Any = None) -> jax.Array:
    """`lstm` as a scan that JAX differentiates: right on accelerators."""
    return _lstm(_plain, p, x, mask)


def lstm(p: Params, x: Any, mask: Any = None) -> jax.Array:
    """The outputs h at every step, [batch, time, units], from inputs [batch, time, features] and a state of zeros.

    p has the weights "wx" of the inputs and "wh" of the state, and the bias "b"; a second one "b2", as in PyTorch, is
    added to it. Where mask, [batch, time], is False, the state and the output are those of the step before (as with
    Keras's mask_zero).
    """
    return (lstm_stored if on_cpu() else lstm_native)(p, x, mask)


# Initial values, as the three libraries choose them.


def keras_weights(key: Key, features: int, units: int, init: Initializer = glorot_uniform) -> Params:
    """Keras: `init` for the inputs, orthogonal for the state, biases zero but 1 for the forget gate."""
    for_x, for_h = jax.random.split(key)
    wh = jax.nn.initializers.orthogonal()(for_h, (units, 4 * units))
    return {"wx": init(for_x, (features, 4 * units)), "wh": wh, "b": _forget_bias(units)}


def tensorflow_weights(key: Key, features: int, units: int) -> Params:
    """TensorFlow 1's basic cell: Glorot uniform for inputs and state as one matrix, biases zero, 1 for the forget gate.

    Departures: the authors' cell adds the constant 1 to a forget bias that starts at 0; here the bias starts at 1. The
    functions and the steps of gradient descent are the same, as is a penalty on the distance from a starting point.
    """
    w = glorot_uniform(key, (features + units, 4 * units))
    return {"wx": w[:features], "wh": w[features:], "b": _forget_bias(units)}


def pytorch_weights(key: Key, features: int, units: int) -> Params:
    """PyTorch: two bias vectors, everything uniform within 1 / sqrt(units)."""
    shapes = {"wx": (features, 4 * units), "wh": (units, 4 * units), "b": (4 * units,), "b2": (4 * units,)}
    keys = jax.random.split(key, len(shapes))
    return {name: uniform(k, shape, units**-0.5) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}


def _forget_bias(units: int) -> jax.Array:
    return jnp.zeros(4 * units).at[units : 2 * units].set(1)
