"""The papers' models: their sizes, shapes and initial values, and that they can be trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedloom import models
from fedloom.models import MODELS, layers
from tests.networks import IMAGE28, IMAGE32, batch_of, random_params, shapes

# Name, trainable parameters as published, the shape of one input, of one output. Text inputs are integers.
PUBLISHED = [
    ("synthetic-logistic", 610, (60,), (10,)),
    ("mnist-logistic", 7_850, IMAGE28, (10,)),
    ("speedup-logistic", 7_850, IMAGE28, (10,)),
    ("femnist-logistic", 20_410, IMAGE28, (26,)),
    ("fedprox-shakespeare", 817_872, "text", (80,)),
    ("fedprox-sent140", 243_861, (25, 300), (1,)),
    ("feddr-synthetic", 2_282, (60,), (10,)),
    ("feddr-femnist", 103_834, IMAGE28, (26,)),
    ("asyncfeddr-mnist", 101_770, IMAGE28, (10,)),
    ("asyncfeddr-femnist", 108_478, IMAGE28, (62,)),
    ("feddyn-logistic", 155, (30,), (5,)),
    ("2nn", 199_210, IMAGE28, (10,)),
    ("feddyn-emnist", 89_610, IMAGE28, (10,)),
    ("feddyn-cifar10", 797_962, IMAGE32, (10,)),
    ("feddyn-cifar100", 815_332, IMAGE32, (100,)),
    ("feddyn-shakespeare", 133_520, "text", (80,)),
    ("feddyn-resnet18", 11_181_642, IMAGE32, (10,)),
    ("mnist-cnn", 582_026, IMAGE28, (10,)),
    ("cifar-resnet18", 11_173_962, IMAGE32, (10,)),
    ("cifar-ccnn", 940_362, IMAGE32, (10,)),
    ("emnist-cnn", 1_206_590, IMAGE28, (62,)),
    ("emnist-autoencoder", 2_837_314, IMAGE28, (784,)),
    ("fedopt-shakespeare", 820_522, "text", (80, 90)),
    ("stackoverflow-nwp", 4_050_748, "text", (80, 10_004)),
    ("stackoverflow-tags", 5_000_500, (10_000,), (500,)),
    ("fedopt-resnet18-cifar100", 11_227_812, (24, 24, 3), (100,)),
    ("fedopt-resnet18-cifar10", 11_181_642, (24, 24, 3), (10,)),
]


def test_every_model_has_a_row():
    assert sorted(MODELS) == sorted(row[0] for row in PUBLISHED)


@pytest.mark.parametrize(("name", "parameters", "x", "y"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_parameters_andshapes(name, parameters, x, y):
    model = MODELS[name]()
    assert model is MODELS[name]()  # so that compiled programs are shared
    assert model.parameters == parameters
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(float)}
    inputs = [batch_of(x)] if x == "text" else [batch_of(x), batch_of((int(np.prod(x)),))]  # flat images are fine too
    if name == "fedprox-sent140":
        inputs = [batch_of(x)]
    for batch in inputs:
        for key in (None, jax.random.key(1)):
            out = jax.eval_shape(model.apply, params, batch, key)
            assert (out.shape, out.dtype) == ((3, *y), jnp.dtype(float))


def test_parameters_are_float32_unless_x64_is_on():
    with jax.enable_x64(False):
        for name in ("2nn", "emnist-cnn", "cifar-resnet18", "fedopt-shakespeare", "feddyn-shakespeare"):
            params = jax.eval_shape(MODELS[name]().init, jax.random.key(0))
            assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_equal_arguments_make_the_same_model():
    assert models.emnist_cnn() is models.emnist_cnn(62) is models.emnist_cnn(classes=62)
    assert models.mlp(4, 2) is models.mlp(4, 2, init=layers.glorot_uniform)
    assert models.mlp(4, 2) is not models.mlp(4, 2, init=layers.zeros)
    assert models.mlp(4, 2).unravel is models.mlp(4, 2).unravel


def test_flat_and_unravel_are_inverse():
    model = models.mlp(4, 3, 2)
    params = model.init(jax.random.key(5))
    w = model.flat(seed=5)
    assert w.shape == (model.parameters,) == (4 * 3 + 3 + 3 * 2 + 2,)
    assert jax.tree.structure(params) == jax.tree.structure(model.unravel(w))
    np.testing.assert_array_equal(ravel_pytree(params)[0], ravel_pytree(model.unravel(w))[0])
    assert np.any(w != model.flat(seed=6))


def test_wrong_inputs_are_refused():
    for name, given in (("mnist-cnn", (2, 27, 28)), ("2nn", (784,)), ("fedopt-resnet18-cifar10", (2, 32, 32, 3))):
        model = MODELS[name]()
        with pytest.raises(ValueError, match="The model takes a batch with"):
            jax.eval_shape(lambda p, m=model, s=given: m.apply(p, jnp.zeros(s), None), shapes(model))
    with pytest.raises(ValueError, match="mlp takes the sizes"):
        models.mlp(784)


# What the dense models compute.


def test_an_mlp_is_its_formula():
    model = models.mlp(3, 4, 2)
    rng = np.random.default_rng(0)
    first, second = ({"w": rng.normal(size=s), "b": rng.normal(size=s[0])} for s in ((4, 3), (2, 4)))
    x = rng.normal(size=(5, 3))
    expected = np.maximum(x @ first["w"].T + first["b"], 0) @ second["w"].T + second["b"]
    np.testing.assert_allclose(model.apply([first, second], x, None), expected, rtol=1e-12)


def test_the_autoencoder_is_linear_at_its_bottleneck_only():
    model = models.emnist_autoencoder()
    params = random_params(model)
    h = x = np.random.default_rng(0).uniform(size=(2, 784))
    for number, p in enumerate(params, start=1):
        h = h @ p["w"].T + p["b"]
        h = h if number == 4 else 1 / (1 + np.exp(-h))
    np.testing.assert_allclose(model.apply(params, x, None), h, rtol=1e-10)


def test_initial_values_that_papers_state():
    assert not np.any(MODELS["feddyn-logistic"]().flat())
    assert np.any(MODELS["synthetic-logistic"]().flat())
    last = jax.jit(lambda key: models.fedopt_resnet18(10).init(key)["dense"])(jax.random.key(0))
    np.testing.assert_allclose(np.std(last["w"]), 0.01, rtol=0.05)
    assert not np.any(last["b"])


# Text.


def test_a_masked_lstm_ignores_padding():
    """Tokens after which only padding follows see nothing of it, and padding repeats the last logits."""
    model = models.fedopt_shakespeare()
    params = random_params(model)
    tokens = np.array([[88, 5, 7, 9, 0, 0], [88, 0, 5, 7, 9, 0]], np.uint8)
    y = jax.jit(model.apply)(params, tokens, None)
    np.testing.assert_allclose(y[0, 4:], np.stack([y[0, 3]] * 2), rtol=1e-12)
    np.testing.assert_allclose(y[1, 1], y[1, 0], rtol=1e-12)
    np.testing.assert_allclose(y[1, 2:5], y[0, 1:4], rtol=1e-12)  # padding in between changes nothing
    assert np.all(np.abs(y[0, 3] - y[0, 2]).max() > 1e-6)
    # The embedding of padding is never used.
    params["embedding"][0] += 1
    np.testing.assert_array_equal(y, jax.jit(model.apply)(params, tokens, None))


def test_the_last_step_sees_the_first_token():
    model = models.feddyn_shakespeare()
    params = random_params(model)
    y = jax.jit(model.apply)(params, np.array([[1, 2, 3, 4], [0, 2, 3, 4], [1, 2, 3, 5]]), None)
    assert y.shape == (3, 80)
    assert np.abs(y[0] - y[1]).max() > 1e-8  # token 0 is a character here, not padding
    assert np.abs(y[0] - y[2]).max() > 1e-4


# Training.


@pytest.mark.parametrize(
    ("name", "lr"), [("synthetic-logistic", 0.1), ("2nn", 0.1), ("mnist-cnn", 0.05), ("feddyn-shakespeare", 1.0)]
)
def test_gradient_descent_reduces_the_loss(name, lr):
    model = MODELS[name]()
    rng = np.random.default_rng(0)
    x = {
        "synthetic-logistic": rng.normal(size=(8, 60)),
        "feddyn-shakespeare": rng.integers(0, 80, size=(8, 10)),
    }.get(name, rng.normal(size=(8, 784)))
    y = rng.integers(0, 10, size=8)

    def loss(w):
        logits = model.apply(model.unravel(w), x, None)
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(8), y])

    step = jax.jit(jax.value_and_grad(loss))
    w, losses = model.flat(), []
    for _ in range(6):
        value, gradient = step(w)
        assert np.all(np.isfinite(gradient))
        losses.append(float(value))
        w = w - lr * gradient
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.95 * losses[0]


def test_clients_can_be_vectorised():
    """With their own parameters each, under vmap, as one after the other."""
    model = models.feddyn_shakespeare()
    stack = jnp.stack([model.flat(seed) for seed in range(2)])
    tokens = np.random.default_rng(0).integers(0, 80, size=(2, 3, 5))

    def gradient(w, tokens):
        return jax.grad(lambda w: jnp.sum(model.apply(model.unravel(w), tokens, None)[:, 0] ** 2))(w)

    together = jax.jit(jax.vmap(gradient))(stack, tokens)
    for k, w in enumerate(stack):
        np.testing.assert_allclose(together[k], jax.jit(gradient)(w, tokens[k]), rtol=1e-9, atol=1e-12)
