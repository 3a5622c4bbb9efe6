"""PyTorch's weights in our layers give PyTorch's outputs: the table of docs/pytorch.md."""

import pathlib

import numpy as np
import pytest

import fedloom as fl
from fedloom.models import layers
from fedloom.models.lstm import lstm

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedloom[torch]'")
nn = torch.nn
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(3, 8, 8, 2))  # as we have them
PAGE = (pathlib.Path(__file__).parent.parent / "docs/pytorch.md").read_text()


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def numbers(module):
    return {name: p.detach() for name, p in module.double().named_parameters()}


def stated(expression, **names):
    """What the page says, computed."""
    assert f"`{expression}`" in PAGE
    return eval(expression, names)


def test_dense():
    module, x = nn.Linear(4, 3).double(), RNG.normal(size=(5, 4))
    p = numbers(module)
    ours = layers.dense({"w": p["weight"].numpy(), "b": p["bias"].numpy()}, x)
    np.testing.assert_allclose(ours, module(torch.from_numpy(x)).detach(), rtol=1e-12)


def kernel(weight):
    return stated("weight.permute(2, 3, 1, 0)", weight=weight).numpy()


def theirs(x):
    return torch.from_numpy(x).permute(0, 3, 1, 2)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(stride):
    module = nn.Conv2d(2, 5, 3, stride, padding=1).double()
    p = numbers(module)
    ours = layers.conv({"w": kernel(p["weight"]), "b": p["bias"].numpy()}, IMAGES, stride, 1)
    np.testing.assert_allclose(ours, module(theirs(IMAGES)).permute(0, 2, 3, 1).detach(), rtol=1e-10, atol=1e-12)


def test_group_norm():
    module = nn.GroupNorm(2, 4).double()
    with torch.no_grad():
        module.weight.copy_(torch.arange(1, 5))
        module.bias.copy_(torch.arange(4))
    p, x = numbers(module), RNG.normal(size=(3, 5, 5, 4))
    ours = layers.group_norm({"scale": p["weight"].numpy(), "b": p["bias"].numpy()}, x, 2)
    np.testing.assert_allclose(ours, module(theirs(x)).permute(0, 2, 3, 1).detach(), rtol=1e-10, atol=1e-12)


def test_embedding():
    module, tokens = nn.Embedding(7, 3).double(), np.array([[1, 6], [0, 2]])
    ours = layers.embedding(numbers(module)["weight"].numpy(), tokens)
    np.testing.assert_allclose(ours, module(torch.from_numpy(tokens)).detach())


def test_lstm():
    module, x = nn.LSTM(4, 5, batch_first=True).double(), RNG.normal(size=(3, 6, 4))
    p = numbers(module)
    copied = {
        "wx": stated("weight_ih_l0.T", **p).numpy(),
        "wh": stated("weight_hh_l0.T", **p).numpy(),
        "b": stated("bias_ih_l0", **p).numpy(),
        "b2": stated("bias_hh_l0", **p).numpy(),
    }
    np.testing.assert_allclose(lstm(copied, x), module(torch.from_numpy(x))[0].detach(), rtol=1e-10, atol=1e-12)


def test_a_network_with_a_dense_layer_after_flattened_images():
    """FedDyn's CNN, of which all three kinds of layers are."""
    module = nn.Sequential(
        *(nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)),
    ).double()
    p = numbers(module)
    shape = {"out": 384, "c": 64, "h": 5, "w": 5}
    reordered = "weight.reshape(out, c, h, w).permute(0, 2, 3, 1).reshape(out, -1)"
    first = stated(reordered, weight=p["7.weight"], **shape)
    dense = [{"w": first.numpy(), "b": p["7.bias"].numpy()}]
    dense += [{"w": p[f"{i}.weight"].numpy(), "b": p[f"{i}.bias"].numpy()} for i in (9, 11)]
    convolutions = {
        f"conv{n}": {"w": kernel(p[f"{i}.weight"]), "b": p[f"{i}.bias"].numpy()} for n, i in ((1, 0), (2, 3))
    }
    x = RNG.normal(size=(2, 32, 32, 3))
    model = fl.models.feddyn_cnn()
    assert model.parameters == sum(t.numel() for t in module.parameters())
    ours = model.apply({**convolutions, "dense": dense}, x, None)
    np.testing.assert_allclose(ours, module(theirs(x)).detach(), rtol=1e-9, atol=1e-12)
