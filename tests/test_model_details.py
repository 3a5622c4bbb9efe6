"""The papers' models in detail: activations, dropout, padding, and from which distribution every number is drawn.

The right-hand sides are written from the descriptions of the networks, in NumPy and by the theory of initial values.
"""

from itertools import pairwise

import jax
import numpy as np
import pytest

from fedloom import models
from fedloom.models import MODELS, layers
from tests.networks import random_params


def affine(p, x):
    return x @ p["w"].T + p["b"]


def convolution(p, x):
    """3x3, without padding."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))  # [batch, row, column, channel, 3, 3]
    return np.tensordot(windows, p["w"], axes=[(4, 5, 3), (0, 1, 2)]) + p["b"]


def recurrent(p, x, real=None):
    """An LSTM, one step after the other; steps that are not real are skipped and repeat the output before."""
    h = c = np.zeros((len(x), len(p["wh"])))
    out = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ p["wx"] + h @ p["wh"] + p["b"], 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        new = f * c + i * np.tanh(g)
        now = np.ones((len(x), 1), bool) if real is None else real[:, t, None]
        c, h = np.where(now, new, c), np.where(now, o * np.tanh(new), h)
        out.append(h)
    return np.stack(out, axis=1)


# FedOpt's network for EMNIST.


def test_the_emnist_cnn_is_its_description():
    model = models.emnist_cnn()
    p = random_params(model)
    x = np.random.default_rng(0).normal(size=(2, 28, 28))
    h = np.maximum(convolution(p["conv2"], np.maximum(convolution(p["conv1"], x[..., None]), 0)), 0)
    h = h.reshape(2, 12, 2, 12, 2, 64).max(axis=(2, 4)).reshape(2, -1)
    expected = affine(p["dense2"], np.maximum(affine(p["dense1"], h), 0))
    np.testing.assert_allclose(model.apply(p, x, None), expected, rtol=1e-9, atol=1e-12)


def test_the_emnist_cnn_drops_a_quarter_of_the_cells_and_half_of_the_units():
    """With all cells 1, and units that are 1 plus a cell each, every logit tells what was dropped.

    A cell becomes 0 or 4/3, so a unit is 1 or 7/3, and then 0 or the double of that.
    """
    model = models.emnist_cnn()
    p = jax.tree.map(lambda s: np.zeros(s.shape), jax.eval_shape(model.init, jax.random.key(0)))
    for layer in ("conv1", "conv2", "dense1"):
        p[layer]["b"] += 1
    p["dense1"]["w"][:, :128] = np.eye(128)
    p["dense2"]["w"][:] = np.eye(62, 128)
    x = np.zeros((1, 28, 28))
    np.testing.assert_allclose(model.apply(p, x, None), np.full((1, 62), 2.0))
    apply = jax.jit(model.apply)
    logits = np.stack([apply(p, x, key) for key in jax.random.split(jax.random.key(0), 40)])
    dropped, without_cell, whole = (np.isclose(logits, value) for value in (0, 2, 14 / 3))
    assert np.all(dropped | without_cell | whole)
    # Of the units that stay, a quarter lost their cell: with one key for both it would be none.
    for events, share in ((dropped, 0.5), (without_cell[~dropped], 0.25)):
        assert abs(np.mean(events) - share) < 5 * np.sqrt(share * (1 - share) / events.size)


# Text.


def test_the_sentiment_network_is_its_description():
    """Two LSTMs, the last step, and two dense layers with nothing in between."""
    model = models.fedprox_sent140()
    p = random_params(model)
    x = np.random.default_rng(0).normal(size=(2, 25, 300))
    h = recurrent(p["lstm2"], recurrent(p["lstm1"], x))[:, -1]
    hidden = affine(p["dense1"], h)
    assert hidden.min() < 0 < hidden.max()
    np.testing.assert_allclose(model.apply(p, x, None), affine(p["dense2"], hidden), rtol=1e-9)


def test_the_next_word_network_is_its_description():
    """Linear units, and padding, token 0, at the beginning, in between and at the end, that changes no state."""
    model = models.stackoverflow_nwp()
    p = random_params(model)
    tokens = np.array([[0, 10_001, 7, 10_003, 0], [10_001, 5, 0, 7, 10_002]])
    h = recurrent(p["lstm"], p["embedding"][tokens], tokens != 0)
    expected = affine(p["dense2"], affine(p["dense1"], h))
    y = model.apply(p, tokens, None)
    np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(y[1, 2], y[1, 1])
    assert np.abs(y[1, 3] - y[1, 2]).max() > 1e-3


def test_tokens_outside_the_table_give_nan():
    table = np.random.default_rng(0).normal(size=(5, 3))
    tokens = np.array([[-1, 0, 4], [5, -6, 3]])
    outside = np.array([[True, False, False], [True, True, False]])
    for embed in (layers.embedding, jax.jit(layers.embedding)):
        y = np.asarray(embed(table, tokens))
        np.testing.assert_array_equal(np.isnan(y), np.stack([outside] * 3, axis=-1))
        np.testing.assert_array_equal(y[~outside], table[tokens[~outside]])


# Initial values. A law is a name and a number: a bound, a standard deviation, a value, how many units.

ZERO = "constant", 0
TRUNCATED = 0.87962566  # the standard deviation of N(0, 1) within (-2, 2)


def glorot(fan_in, fan_out):
    return "uniform", np.sqrt(6 / (fan_in + fan_out))


def he(fan_in):
    return "truncated", np.sqrt(2 / fan_in)


def keras(name, fan_in, fan_out):
    return {f"{name}w": glorot(fan_in, fan_out), f"{name}b": ZERO}


def torch(name, fan_in, fan_out=None):
    return {f"{name}{kind}": ("uniform", fan_in**-0.5) for kind in "wb"}


def stack(layer, *sizes, name=""):
    """Dense layers 0, 1, ... of a list."""
    return {k: law for i, pair in enumerate(pairwise(sizes)) for k, law in layer(f"{name}{i}.", *pair).items()}


def torch_cnn(channels, kernels, *sizes):
    return torch("conv1.", 25 * channels) | torch("conv2.", 25 * kernels) | stack(torch, *sizes, name="dense.")


def tensorflow_lstm(name, features, units):
    both = glorot(features + units, 4 * units)  # one matrix for inputs and state
    return {f"{name}.wx": both, f"{name}.wh": both, f"{name}.b": ("forget", units)}


def keras_lstm(name, units, wx):
    return {f"{name}.wx": wx, f"{name}.wh": ("orthogonal", units), f"{name}.b": ("forget", units)}


def norm(name):
    return {f"{name}.scale": ("constant", 1), f"{name}.b": ZERO}


def resnet(kernel, stem):
    """kernel: the law from a kernel's number of cells, channels in and channels out."""
    p = {"stem.w": kernel(stem**2, 3, 64)} | norm("stem_norm")
    for i, (channels, out) in enumerate(pairwise((64, 64, 64, 128, 128, 256, 256, 512, 512))):
        b = f"blocks.{i}."
        p |= {b + "conv1.w": kernel(9, channels, out), b + "conv2.w": kernel(9, out, out)}
        p |= norm(b + "norm1") | norm(b + "norm2")
        if channels != out:
            p |= {b + "shortcut.w": kernel(1, channels, out)} | norm(b + "shortcut_norm")
    return p


def fedopt_resnet():
    p = resnet(lambda cells, channels, out: he(cells * channels), 7) | norm("norm")
    del p["blocks.0.norm1.scale"], p["blocks.0.norm1.b"]
    return p | {"dense.w": ("normal", 0.01), "dense.b": ZERO}


def torch_resnet(stem):
    """Kaiming normal with fan out."""
    p = resnet(lambda cells, channels, out: ("normal", np.sqrt(2 / (cells * out))), stem)
    return p | torch("dense.", 512, 10)


INITIAL = {
    "synthetic-logistic": keras("", 60, 10),
    "2nn": stack(torch, 784, 200, 200, 10),
    "feddr-femnist": stack(keras, 784, 128, 26),
    "asyncfeddr-mnist": stack(torch, 784, 128, 10),
    "asyncfeddr-femnist": stack(torch, 784, 128, 62),
    "feddyn-emnist": stack(torch, 784, 100, 100, 10),
    "emnist-cnn": keras("conv1.", 9, 9 * 32)
    | keras("conv2.", 9 * 32, 9 * 64)
    | keras("dense1.", 144 * 64, 128)
    | keras("dense2.", 128, 62),
    "mnist-cnn": torch_cnn(1, 32, 1024, 512, 10),
    "feddyn-cifar10": torch_cnn(3, 64, 1600, 384, 192, 10),
    "fedopt-resnet18-cifar10": fedopt_resnet(),
    "feddyn-resnet18": torch_resnet(7),
    "cifar-resnet18": torch_resnet(3),
    "fedprox-shakespeare": {"embedding": glorot(80, 8)}
    | tensorflow_lstm("lstm1", 8, 256)
    | tensorflow_lstm("lstm2", 256, 256)
    | keras("dense.", 256, 80),
    "feddyn-shakespeare": {"embedding": ("normal", 1)}
    | {f"lstm{i}.{kind}": ("uniform", 100**-0.5) for i in (1, 2) for kind in ("wx", "wh", "b", "b2")}
    | torch("dense.", 100, 80),
    "fedopt-shakespeare": {"embedding": ("uniform", 0.05)}
    | keras_lstm("lstm1", 256, he(8))
    | keras_lstm("lstm2", 256, he(256))
    | keras("dense.", 256, 90),
    "fedprox-sent140": tensorflow_lstm("lstm1", 300, 100)
    | tensorflow_lstm("lstm2", 100, 100)
    | keras("dense1.", 100, 30)
    | keras("dense2.", 30, 1),
}


def assert_drawn_from(law, number, x, where):
    """Mean and standard deviation within five standard errors; the extremes tell the distributions apart."""
    if law == "constant":
        assert np.all(x == number), where
    elif law == "forget":  # the second of four gates
        assert np.array_equal(x, np.repeat([0, 1, 0, 0], number)), where
    elif law == "orthogonal":
        np.testing.assert_allclose(x @ x.T, np.eye(number), atol=1e-10, err_msg=where)
    else:
        std = number / np.sqrt(3) if law == "uniform" else number
        edge = number if law == "uniform" else 2 * number / TRUNCATED if law == "truncated" else np.inf
        assert abs(x.mean()) < 5 * std / np.sqrt(x.size), where
        assert abs(x.std() / std - 1) < 5 * np.sqrt(0.5 / x.size), where
        # One of many normal numbers is beyond where the truncated ones end.
        assert edge >= np.abs(x).max() > (2.3 * std if law == "normal" and x.size > 500 else std), where


@pytest.mark.parametrize("name", INITIAL)
def test_initial_values_are_drawn_as_the_authors_do_and_independently(name):
    # This kind of key compiles fast, and there are many shapes.
    leaves = jax.tree_util.tree_leaves_with_path(MODELS[name]().init(jax.random.key(0, impl="rbg")))
    found = {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(x) for path, x in leaves}
    assert set(found) == set(INITIAL[name])
    drawn = []
    for path, (law, number) in INITIAL[name].items():
        assert_drawn_from(law, number, found[path], f"{name}: {path}")
        if law not in ("constant", "forget"):
            drawn.append(found[path].ravel()[:6])
    # Equal keys give the same numbers up to scale, whatever the shapes.
    assert len({tuple(np.round(x / x[0], 6)) for x in drawn}) == len(drawn)
