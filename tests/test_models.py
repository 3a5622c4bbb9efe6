"""The papers' models: their sizes, shapes and initial values, and that they can be trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedloom import models
from fedloom.models import MODELS, layers

IMAGE28, IMAGE32 = (28, 28), (32, 32, 3)

# Name, trainable parameters as published, the shape of one input, of one output. Text inputs are whole numbers.
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


def of(shape, batch=3):
    """An abstract batch."""
    if shape == "text":
        return jax.ShapeDtypeStruct((batch, 80), jnp.uint8)
    return jax.ShapeDtypeStruct((batch, *shape), jnp.float32)


def test_every_model_has_a_row():
    assert sorted(MODELS) == sorted(row[0] for row in PUBLISHED)


@pytest.mark.parametrize(("name", "parameters", "x", "y"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_parameters_and_shapes(name, parameters, x, y):
    model = MODELS[name]()
    assert model is MODELS[name]()  # so that compiled programs are shared
    assert model.parameters == parameters
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(float)}
    inputs = [of(x)] if x == "text" else [of(x), of((int(np.prod(x)),))]  # flat images are fine too
    if name == "fedprox-sent140":
        inputs = [of(x)]
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
            jax.eval_shape(lambda p, m=model, s=given: m.apply(p, jnp.zeros(s), None), _shapes(model))
    with pytest.raises(ValueError, match="mlp takes the sizes"):
        models.mlp(784)


def _shapes(model):
    return jax.eval_shape(model.init, jax.random.key(0))


def random_params(model):
    """Numbers that no two layers share, with norms that do something."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda s: rng.normal(size=s.shape) / np.sqrt(max(s.size // s.shape[-1], 4)), _shapes(model))


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


# Convolutional networks.


def test_a_cnn_is_its_description():
    """Against NumPy, layer by layer: convolution and pooling written as loops over cells."""
    model = models.mnist_cnn()
    params = random_params(model)
    x = np.random.default_rng(0).normal(size=(1, 28, 28))
    h = x[..., None]
    for layer in ("conv1", "conv2"):
        side = h.shape[1] - 4
        y = np.stack(
            [
                np.stack([np.tensordot(h[0, i : i + 5, j : j + 5], params[layer]["w"], axes=3) for j in range(side)])
                for i in range(side)
            ]
        )
        y = np.maximum(y + params[layer]["b"], 0)
        h = y.reshape(side // 2, 2, side // 2, 2, -1).max(axis=(1, 3))[None]
    h = np.maximum(h.reshape(1, -1) @ params["dense"][0]["w"].T + params["dense"][0]["b"], 0)
    h = h @ params["dense"][1]["w"].T + params["dense"][1]["b"]
    np.testing.assert_allclose(model.apply(params, x, None), h, rtol=1e-9, atol=1e-12)


def test_dropout_is_off_outside_training_and_has_the_right_mean():
    """With one hot dense layers the logits are sums of dropped units: their mean over keys is the logit without."""
    model = models.emnist_cnn()
    params = random_params(model)
    params["conv1"]["b"], params["conv2"]["b"] = params["conv1"]["b"] + 1, params["conv2"]["b"] + 1
    params["dense1"] = {"w": jnp.ones((128, 9216)) / 9216, "b": jnp.ones(128)}  # never negative: ReLU does nothing
    params["dense2"] = {"w": jnp.ones((62, 128)) / 128, "b": jnp.zeros(62)}
    x = jnp.asarray(np.random.default_rng(0).uniform(size=(2, 28, 28)))
    apply = jax.jit(model.apply)
    off = apply(params, x, None)
    np.testing.assert_array_equal(off, apply(params, x, None))
    on = np.stack([apply(params, x, key)[:, 0] for key in jax.random.split(jax.random.key(1), 200)])
    # Units that are on with probability 1/2 and doubled: the standard deviation of their mean is 1 / sqrt(128).
    spread = np.asarray(off[:, 0]) / np.sqrt(128)
    np.testing.assert_allclose(on.std(axis=0), spread, rtol=0.25)
    assert np.all(np.abs(on.mean(axis=0) - off[:, 0]) < 5 * spread / np.sqrt(200))


def conv_outputs(model, x):
    """The heights of all matrix products that are convolutions: cells a side, layer by layer."""
    sides = []

    def spy(p, x, stride=1, padding="VALID"):
        y = layers.conv_native(p, x, stride, padding)
        sides.append((p["w"].shape[0], y.shape[1], y.shape[-1]))
        return y

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedloom.models.resnet.conv", spy)
        jax.eval_shape(lambda p, x: model.apply(p, x, None), _shapes(model), of(x))
    return sides


def test_the_sides_of_fedopts_resnet():
    """24 -> 12 in the stem, 6 after pooling, and 6 to the end; shortcuts come after a block's two convolutions."""
    expected = [(7, 12, 64)]
    for channels in (64, 128, 256, 512):
        shortcut = [(1, 6, channels)] if channels > 64 else []
        expected += [(3, 6, channels)] * 2 + shortcut + [(3, 6, channels)] * 2
    assert conv_outputs(models.fedopt_resnet18(), (24, 24, 3)) == expected


@pytest.mark.parametrize(
    ("make", "stem", "sides"),
    [(models.feddyn_resnet18, (7, 16, 64), (8, 4, 2, 1)), (models.cifar_resnet18, (3, 32, 64), (16, 8, 4, 2))],
)
def test_the_sides_of_torchvisions_resnets(make, stem, sides):
    expected = [stem]
    for side, channels in zip(sides, (64, 128, 256, 512), strict=True):
        shortcut = [(1, side, channels)] if channels > 64 else []
        expected += [(3, side, channels)] * 2 + shortcut + [(3, side, channels)] * 2
    assert conv_outputs(make(), IMAGE32) == expected


def numpy_norm(p, x, eps):
    """GroupNorm of two groups."""
    halves = np.split(x, 2, axis=-1)
    axes = (1, 2, 3)
    scaled = [(h - h.mean(axes, keepdims=True)) / np.sqrt(h.var(axes, keepdims=True) + eps) for h in halves]
    return np.concatenate(scaled, axis=-1) * p["scale"] + p["b"]


def xla_conv(p, x, stride, padding):
    numbers = ("NHWC", "HWIO", "NHWC")
    return np.asarray(jax.lax.conv_general_dilated(x, p["w"], (stride, stride), padding, dimension_numbers=numbers))


def numpy_pool(x, before, after):
    """3x3 windows of stride 2 of an image with an even side."""
    x = np.pad(x, [(0, 0), (before, after), (before, after), (0, 0)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    return windows.max(axis=(-2, -1))[:, ::2, ::2]


def relu(x):
    return np.maximum(x, 0)


def test_fedopts_resnet_is_its_description():
    model = models.fedopt_resnet18(10)
    p = random_params(model)
    x = np.random.default_rng(1).normal(size=(1, 24, 24, 3))
    h = relu(numpy_norm(p["stem_norm"], xla_conv(p["stem"], x, 2, "SAME"), 1e-3))
    h = numpy_pool(h, 0, 1)  # as Keras pads
    for number, q in enumerate(p["blocks"]):
        y = h if number == 0 else relu(numpy_norm(q["norm1"], h, 1e-3))
        y = xla_conv(q["conv1"], y, 1, "SAME")
        y = xla_conv(q["conv2"], relu(numpy_norm(q["norm2"], y, 1e-3)), 1, "SAME")
        if number in (2, 4, 6):
            h = numpy_norm(q["shortcut_norm"], xla_conv(q["shortcut"], h, 1, "VALID"), 1e-3)
        h = h + y
    h = relu(numpy_norm(p["norm"], h, 1e-3)).mean(axis=(1, 2))
    expected = h @ p["dense"]["w"].T + p["dense"]["b"]
    np.testing.assert_allclose(jax.jit(model.apply)(p, x, None), expected, rtol=1e-8)


def test_feddyns_resnet_is_its_description():
    """The other one of torchvision's kind differs in its stem, whose sides are tested above."""
    model = models.feddyn_resnet18()
    p = random_params(model)
    x = np.random.default_rng(1).normal(size=(1, 32, 32, 3))
    h = relu(numpy_norm(p["stem_norm"], xla_conv(p["stem"], x, 2, [(3, 3)] * 2), 1e-5))
    h = numpy_pool(h, 1, 1)  # as PyTorch pads
    for number, q in enumerate(p["blocks"]):
        halved = number in (2, 4, 6)
        y = xla_conv(q["conv1"], h, 2 if halved else 1, [(1, 1)] * 2)
        y = xla_conv(q["conv2"], relu(numpy_norm(q["norm1"], y, 1e-5)), 1, [(1, 1)] * 2)
        if halved:
            h = numpy_norm(q["shortcut_norm"], xla_conv(q["shortcut"], h, 2, "VALID"), 1e-5)
        h = relu(h + numpy_norm(q["norm2"], y, 1e-5))
    expected = h.mean(axis=(1, 2)) @ p["dense"]["w"].T + p["dense"]["b"]
    np.testing.assert_allclose(jax.jit(model.apply)(p, x, None), expected, rtol=1e-8)


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
