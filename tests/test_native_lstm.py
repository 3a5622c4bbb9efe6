"""The LSTM in C++: equal to the layer in JAX in values and gradients, whatever stands beside it."""

import platform

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.engines.plan import Plan
from fedloom.metrics.evaluation import Scorer
from fedloom.models.lstm import keras_weights, lstm, lstm_by_scan, pytorch_weights
from fedloom.native import build
from tests.comparing import close_float32

pytestmark = pytest.mark.usefixtures("compiler")


def example(batch, time, features, units, masked=False, seed=0):
    """A layer's parameters, inputs and mask: some steps, also first ones, are masked, and one example wholly."""
    rng = np.random.default_rng(seed)
    p = {"wx": (features, 4 * units), "wh": (units, 4 * units), "b": 4 * units}
    p = {name: np.float32(rng.normal(size=shape) / np.sqrt(units)) for name, shape in p.items()}
    mask = rng.random((batch, time)) < 0.6
    mask[0] = False
    return p, np.float32(rng.normal(size=(batch, time, features))), mask if masked else None


def gradients(f):
    """The value of a function of the layer, and its gradients with respect to parameters and inputs."""
    return lambda p, x, mask: jax.value_and_grad(lambda p, x: jnp.sum(jnp.sin(3 * f(p, x, mask))), (0, 1))(p, x)


def uses_kernels(f, *arguments):
    return build.used_in(f, *arguments) == ["lstm"]


# Batches above and below what is computed together, features that do and do not fill a vector or a panel.
SHAPES = [(1, 1, 1, 64), (2, 2, 64, 64), (4, 9, 8, 128), (7, 5, 70, 64), (13, 3, 40, 192), (6, 4, 17, 64)]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape, masked):
    p, x, mask = example(*shape, masked)
    assert uses_kernels(lstm, p, x, mask)
    wide_p, wide_x = jax.tree.map(np.float64, (p, x))
    close_float32(lstm(p, x, mask), lstm_by_scan(wide_p, wide_x, mask))
    close_float32(gradients(lstm)(p, x, mask), gradients(lstm_by_scan)(wide_p, wide_x, mask))


@pytest.mark.exhaustive
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86 processor")
def test_narrower_vectors(monkeypatch):
    """What processors without AVX-512 run."""
    wide = build.kernels("lstm")
    monkeypatch.setattr(build, "PROCESSOR", "-march=x86-64-v3")
    build._registered.cache_clear()
    assert build.kernels("lstm") not in (None, wide)
    for masked in (False, True):
        for shape in SHAPES:
            test_values_and_gradients(shape, masked)
    build._registered.cache_clear()


def test_large_inputs_saturate():
    """Gates at 0 and 1, candidates at -1 and 1, without NaN in values or gradients."""
    p, x, _ = example(3, 4, 16, 64)
    p, x = jax.tree.map(lambda a: a * np.float32(50), (p, x))
    wide = jax.tree.map(np.float64, (p, x))
    close_float32(lstm(p, x), lstm_by_scan(*wide))
    close_float32(gradients(lstm)(p, x, None), gradients(lstm_by_scan)(*wide, None), 1e-3)


def test_two_biases_are_added():
    p = jax.tree.map(np.float32, pytorch_weights(jax.random.key(0), 8, 64))
    _, x, _ = example(2, 3, 8, 64)
    assert uses_kernels(lstm, p, x, None)
    close_float32(gradients(lstm)(p, x, None), gradients(lstm_by_scan)(p, x, None))


def test_divergence_is_seen():
    """A NaN reaches all later steps of its example, and no other example."""
    p, x, _ = example(3, 5, 8, 64)
    x[1, 2, 0] = np.nan
    missing = np.isnan(lstm(p, x)).all(-1)
    assert missing.tolist() == [[False] * 5, [False, False, True, True, True], [False] * 5]


@pytest.mark.parametrize("masked", [False, True])
def test_side_by_side(masked):
    """Clients with weights of their own, with the same ones, or with the same examples; and examples within clients."""
    made = [example(4, 5, 24, 64, masked, seed=k) for k in range(3)]
    ps, xs, masks = jax.tree.map(lambda *a: np.stack(a), *made)
    one = gradients(lstm)

    def one_by_one(p, x, mask):
        each = [one(*given) for given in zip(p, x, mask, strict=True)]
        return jax.tree.map(lambda *a: np.stack(a), *each)

    (p, x, mask), apart = made[0], [a for a, _, _ in made]
    each = [m for _, _, m in made]
    axis = 0 if masked else None
    close_float32(jax.vmap(one, (0, 0, axis))(ps, xs, masks), one_by_one(apart, xs, each))
    close_float32(jax.vmap(one, (None, 0, None))(p, xs, mask), one_by_one([p] * 3, xs, [mask] * 3))
    close_float32(jax.vmap(one, (0, None, axis))(ps, x, masks), one_by_one(apart, [x] * 3, each))
    single = jax.vmap(lambda p, x, mask: one(p, x[None], None if mask is None else mask[None]), (None, 0, axis))
    twice = jax.vmap(single, (0, 0, axis))(ps, xs, masks)
    assert twice[0].shape == (3, 4)
    close_float32(twice[0].sum(1), jax.vmap(one, (0, 0, axis))(ps, xs, masks)[0])


def test_what_does_not_fit_is_left_to_jax():
    p, x, _ = example(2, 3, 8, 64)
    wide, narrow = (jax.tree.map(dtype, p) for dtype in (np.float64, np.float16))
    other, other_x, _ = example(2, 3, 8, 100)
    for q, inputs in [(wide, x), (narrow, x), (other, other_x), (p, x[:0])]:
        assert not uses_kernels(lstm, q, inputs, None)


def test_shapes_that_do_not_go_together_are_left_to_jax():
    """Which refuses them, or repeats what is to be repeated: in C++ they would be read beyond their ends."""
    p, x, mask = example(3, 4, 16, 64, masked=True)
    for q in ({**p, "wx": p["wx"][:8]}, {**p, "wh": p["wh"][:, :64]}, {**p, "b": p["b"][:64]}):
        with pytest.raises((TypeError, ValueError)):
            lstm(q, x, mask)
    with pytest.raises((TypeError, ValueError)):
        lstm(p, x[..., :8], mask)
    assert not uses_kernels(lstm, p, x, mask[:1])
    with jax.numpy_rank_promotion("allow"):
        close_float32(lstm(p, x, mask[1:2]), lstm(p, x, np.repeat(mask[1:2], 3, 0)))


def test_what_is_traced_without_kernels_is_not_kept_for_others():
    p, x, _ = example(2, 3, 8, 64)
    layer = jax.jit(lambda p, x: lstm(p, x))
    with build.left_out():
        assert "ffi_call" not in str(jax.make_jaxpr(lambda p, x: layer(p, x))(p, x))
    assert uses_kernels(layer, p, x)
    with build.left_out():
        assert "ffi_call" not in str(jax.make_jaxpr(lambda p, x: layer(p, x))(p, x))


def test_test_sets_go_through_layers_that_use_all_cores():
    p, x, _ = example(2, 3, 8, 64)
    score = Scorer((fl.metrics.accuracy,), lambda p, x, key: lstm(p, x)[:, -1], lambda rows, key: rows)
    assert uses_kernels(score.apply, p, x, None)
    assert not build.used_in(score, p, (x, np.zeros(2, int)))


def trained(plan):
    """Two rounds of a small network in float32, whose padding is masked."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 9, (24, 7)) * (np.arange(7) < rng.integers(1, 8, (24, 1)))
    p = {"embedding": np.float32(rng.normal(size=(9, 8))), "lstm": keras_weights(jax.random.key(1), 8, 64)}
    w, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(np.float32, p))

    def loss(p, rows, key):
        h = lstm(p["lstm"], p["embedding"][rows], rows != 0)
        return fl.metrics.cross_entropy(h[:, -1, :9], rows[:, 0])

    federation = fl.examples(tokens, np.array([9, 4, 6, 5]), loss, unravel)
    return list(fl.simulate(fl.FedAvg(), federation, fl.SGD(0.3, batch_size=3), w, 2, plan=plan))[-1].w


def test_every_plan(monkeypatch):
    """Loops, lanes and devices give what the layers in JAX give, and the same bits every time."""
    found = [trained(Plan(*plan)) for plan in [(1, 1), (3, 1), (2, 2)]]
    np.testing.assert_array_equal(found[2], trained(Plan(2, 2)))
    monkeypatch.setenv("FEDLOOM_NATIVE", "0")
    expected = trained(Plan(1, 1))
    for w in found:
        np.testing.assert_allclose(w, expected, rtol=0, atol=1e-5)
        assert np.any(w != expected)  # another rounding: the kernels were used
