"""The LSTM with its own backward pass equals the native one, in values and gradients, and both equal NumPy's loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedloom.models import layers, lstm
from tests.comparing import assert_trees_close, close, values_and_gradients

RNG = np.random.default_rng(0)


def _lstm_params(features, units, dtype=float, biases=("b",), clients=()):
    shapes = {"wx": (features, 4 * units), "wh": (units, 4 * units)} | dict.fromkeys(biases, (4 * units,))
    return {name: jnp.asarray(RNG.normal(size=(*clients, *shape)), dtype) for name, shape in shapes.items()}


def numpy_lstm(p, x, mask):
    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    units = p["wh"].shape[0]
    out = np.zeros((*x.shape[:2], units))
    for n in range(len(x)):  # one sequence at a time
        h, c = np.zeros(units), np.zeros(units)
        for t in range(x.shape[1]):
            if mask is None or mask[n, t]:
                a = x[n, t] @ p["wx"] + h @ p["wh"] + p["b"] + p.get("b2", 0)
                i, f, g, o = a[:units], a[units : 2 * units], a[2 * units : 3 * units], a[3 * units :]
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            out[n, t] = h
    return out


MASK = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 1], [1, 1, 0, 0, 0, 0]], bool)  # leading, inner, trailing padding


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("biases", [("b",), ("b", "b2")], ids=["one-bias", "two-biases"])
def test_lstm(mask, biases):
    p, x = _lstm_params(4, 5, biases=biases), RNG.normal(size=(3, 6, 4))
    fast, native = (
        values_and_gradients(lambda p, x, f=f: f(p, x, mask), p, x) for f in (lstm.lstm_stored, lstm.lstm_by_scan)
    )
    assert_trees_close(fast, native)
    close(fast[0], numpy_lstm(jax.tree.map(np.asarray, p), x, mask))


@pytest.mark.parametrize("masked", [False, True])
def test_lstm_with_weights_for_each_client(masked):
    p, x = _lstm_params(3, 4, clients=(2,)), RNG.normal(size=(2, 3, 6, 3))
    mask = np.stack([MASK, MASK[::-1]]) if masked else None
    in_axes = (0, 0, 0 if masked else None)

    def both(f):
        return values_and_gradients(lambda p, x: jax.vmap(f, in_axes)(p, x, mask), p, x)

    fast = both(lstm.lstm_stored)
    assert_trees_close(fast, both(lstm.lstm_by_scan))
    for k in range(2):
        own = {name: np.asarray(value[k]) for name, value in p.items()}
        close(fast[0][k], numpy_lstm(own, x[k], mask[k] if masked else None))


def test_the_parameters_decide_the_precision():
    y, _ = values_and_gradients(lstm.lstm_stored, _lstm_params(3, 2, jnp.float32), RNG.normal(size=(2, 4, 3)))
    assert y.dtype == jnp.float32


def test_the_backend_chooses_the_version(monkeypatch):
    p, x = _lstm_params(3, 2), RNG.normal(size=(1, 4, 3))

    def has_its_own_backward_pass():
        return "custom_vjp" in str(jax.make_jaxpr(lambda p, x: lstm.lstm(p, x))(p, x))

    assert has_its_own_backward_pass()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not has_its_own_backward_pass()


def test_a_step_of_one_sequence():
    """The recurrent weights have no say in the first step."""
    p, x = _lstm_params(2, 3), RNG.normal(size=(2, 1, 2))
    fast, native = (values_and_gradients(f, p, x) for f in (lstm.lstm_stored, lstm.lstm_by_scan))
    assert_trees_close(fast, native)
    assert not np.any(fast[1][0]["wh"])


def test_initial_values_of_an_lstm():
    units = 30
    forget = np.r_[np.zeros(units), np.ones(units), np.zeros(2 * units)]
    keras = lstm.keras_weights(jax.random.key(0), 20, units)
    close(keras["b"], forget)
    close(keras["wh"] @ keras["wh"].T, np.eye(units))
    np.testing.assert_allclose(np.std(keras["wx"]), np.sqrt(2 / (20 + 4 * units)), rtol=0.05)
    he = lstm.keras_weights(jax.random.key(0), 20, units, init=layers.he_normal)
    np.testing.assert_allclose(np.std(he["wx"]), np.sqrt(2 / 20), rtol=0.05)
    tensorflow = lstm.tensorflow_weights(jax.random.key(0), 20, units)
    close(tensorflow["b"], forget)
    for name in ("wx", "wh"):  # one matrix of 20 + 30 rows
        np.testing.assert_allclose(np.std(tensorflow[name]), np.sqrt(2 / (20 + 5 * units)), rtol=0.05)
    torch = lstm.pytorch_weights(jax.random.key(0), 20, units)
    assert set(torch) == {"wx", "wh", "b", "b2"}
    for value in torch.values():
        assert 0.9 * units**-0.5 < np.max(np.abs(value)) <= units**-0.5
