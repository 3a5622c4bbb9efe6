"""LSTM layers. Gates are stored in the order of Keras and PyTorch: input, forget, candidate, output.

What depends on the inputs only is one matrix product before the loop over time. Differentiating the loop as JAX does
adds up the gradient of the recurrent weights step by step, which is slow on CPUs; there the layer has its own backward
pass: it stores the gates, computes for all steps at once what it can, and forms that gradient with one matrix product
at the end. Where it fits, the layer in C++ (fedloom/native) does the same.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from fedloom.models.layers import Initializer, Params, glorot_uniform, on_cpu, uniform
from fedloom.native import lstm as native
from fedloom.problem import Key

State = tuple[jax.Array, jax.Array]  # h and c, [batch, units]
Inputs = tuple[jax.Array, jax.Array | None]  # at one step: the projected inputs, and where to keep the state
Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array | None]  # gates, h, c, wh, keep
Recurrence = Callable[[jax.Array, jax.Array, jax.Array | None], jax.Array]  # (z, wh, keep) -> h at every step
Product = Callable[[jax.Array, jax.Array], jax.Array]


def _gates(z: jax.Array) -> jax.Array:
    """The sigmoid of z, for the candidate its tanh, in one pass: sigmoid(z) = tanh(z / 2) / 2 + 1 / 2."""
    scale = jnp.repeat(jnp.array([0.5, 0.5, 1, 0.5], z.dtype), z.shape[-1] // 4)
    scale = jnp.broadcast_to(scale, z.shape)
    return jnp.tanh(z * scale) * scale + (1 - scale)


def _step(
    z: jax.Array, h: jax.Array, c: jax.Array, wh: jax.Array, keep: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One step from the projected inputs z: gates, new h, new c; where `keep` is True the state stays as it is."""
    gates = _gates(z + h @ wh)
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    new_c = f * c + i * g
    new_h = o * jnp.tanh(new_c)
    if keep is not None:
        new_c, new_h = jnp.where(keep, c, new_c), jnp.where(keep, h, new_h)
    return gates, new_h, new_c


def _start(z: jax.Array) -> State:
    zero = jnp.zeros_like(z[0, :, : z.shape[-1] // 4])
    return zero, zero


def _plain(z: jax.Array, wh: jax.Array, keep: jax.Array | None) -> jax.Array:
    """h after every step, [time, batch, units], from the projected inputs z: [time, batch, 4 units]."""

    def step(state: State, now: Inputs) -> tuple[State, jax.Array]:
        z, keep = now
        _, h, c = _step(z, *state, wh, keep)
        return (h, c), h

    return lax.scan(step, _start(z), (z, keep))[1]


def _forward(z: jax.Array, wh: jax.Array, keep: jax.Array | None) -> tuple[jax.Array, Saved]:
    def step(state: State, now: Inputs) -> tuple[State, tuple[jax.Array, jax.Array, jax.Array]]:
        z, keep = now
        gates, h, c = _step(z, *state, wh, keep)
        return (h, c), (gates, h, c)

    gates, h, c = lax.scan(step, _start(z), (z, keep))[1]
    return h, (gates, h, c, wh, keep)


def _backward(saved: Saved, dh_out: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    gates, h, c, wh, keep = saved
    back = wh.T  # outside the loop: multiplying by a transposed view at every step is nearly twice as slow
    # What the loop multiplies by is computed for all steps at once:
    # dc grows by dh * to_c, dz = (dc, dc, dc, dh) * to_z, and dc passes on f of itself.
    before = jnp.concatenate([jnp.zeros_like(c[:1]), c[:-1]])
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    t = jnp.tanh(f * before + i * g)
    to_c = o * (1 - t * t)
    to_z = jnp.concatenate([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), t * o * (1 - o)], axis=-1)
    if keep is not None:
        to_c, to_z, f = jnp.where(keep, 0, to_c), jnp.where(keep, 0, to_z), jnp.where(keep, 1, f)

    def step(state: State, now: tuple[jax.Array, ...]) -> tuple[State, jax.Array]:
        (dh, dc), (to_c, to_z, f, dh_out, keep) = state, now
        dh = dh + dh_out
        dc = dc + dh * to_c
        dz = jnp.concatenate([dc, dc, dc, dh], axis=-1) * to_z
        passed = dz @ back
        return (passed if keep is None else passed + jnp.where(keep, dh, 0), dc * f), dz

    zero = jnp.zeros_like(c[0])
    xs = (*lax.optimization_barrier((to_c, to_z, f)), dh_out, keep)  # or XLA would compute them inside the loop
    dz = lax.scan(step, (zero, zero), xs, reverse=True)[1]
    units = h.shape[-1]
    return dz, _transposed_product(h[:-1].reshape(-1, units), dz[1:].reshape(-1, 4 * units)), None


_stored = jax.custom_vjp(_plain)
_stored.defvjp(_forward, _backward)


def _transposed_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a^T b. XLA would not copy a, but its product for that order is slower than the copy and the other product."""
    return lax.optimization_barrier(a.T) @ b


@jax.custom_vjp
def _product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


_product.defvjp(lambda x, w: (x @ w, (x, w)), lambda saved, dy: (dy @ saved[1].T, _transposed_product(saved[0], dy)))


def _bias(p: Params) -> jax.Array:
    return p["b"] + p["b2"] if "b2" in p else p["b"]


def _lstm(recurrence: Recurrence, product: Product, p: Params, x: ArrayLike, mask: ArrayLike | None) -> jax.Array:
    wx, wh, bias = p["wx"], p["wh"], _bias(p)
    x = jnp.swapaxes(jnp.asarray(x, wx.dtype), 0, 1)
    z = product(x.reshape(-1, x.shape[-1]), wx).reshape(*x.shape[:2], wx.shape[1])
    keep = None if mask is None else jnp.logical_not(jnp.swapaxes(mask, 0, 1))[..., None]
    return jnp.swapaxes(recurrence(z + jnp.broadcast_to(bias, z.shape), wh, keep), 0, 1)


def lstm_stored(p: Params, x: ArrayLike, mask: ArrayLike | None = None) -> jax.Array:
    """`lstm` with its own backward pass: fast on CPUs. It has no forward-mode derivative."""
    return _lstm(_stored, _product, p, x, mask)


def lstm_by_scan(p: Params, x: ArrayLike, mask: ArrayLike | None = None) -> jax.Array:
    """`lstm` as a scan that JAX differentiates: fast on accelerators."""
    return _lstm(_plain, jnp.matmul, p, x, mask)


def lstm(p: Params, x: ArrayLike, mask: ArrayLike | None = None) -> jax.Array:
    """The outputs h at every step, [batch, time, units], from inputs [batch, time, features] and a state of zeros.

    p has the weights "wx" of the inputs and "wh" of the state, and the bias "b"; a second one "b2", as in PyTorch, is
    added to it. Where mask, [batch, time], is False, the state and the output are those of the step before (as with
    Keras's mask_zero).
    """
    if not on_cpu():
        return lstm_by_scan(p, x, mask)
    bias, x = _bias(p), jnp.asarray(x, p["wx"].dtype)
    if native.fits(p["wx"], p["wh"], bias, x, mask):
        return native.lstm(p["wx"], p["wh"], bias, x, None if mask is None else jnp.logical_not(mask))
    return lstm_stored(p, x, mask)


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
