"""The papers' convolutional networks and ResNets against their descriptions, in NumPy."""

import jax
import numpy as np
import pytest

from fedloom import models
from fedloom.models import layers
from tests.networks import IMAGE32, batch_of, random_params, shapes


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


def conv_outputs(model, x):
    """The heights of all matrix products that are convolutions: cells a side, layer by layer."""
    sides = []

    def spy(p, x, stride=1, padding="VALID"):
        y = layers.conv_by_xla(p, x, stride, padding)
        sides.append((p["w"].shape[0], y.shape[1], y.shape[-1]))
        return y

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedloom.models.resnet.conv", spy)
        jax.eval_shape(lambda p, x: model.apply(p, x, None), shapes(model), batch_of(x))
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
