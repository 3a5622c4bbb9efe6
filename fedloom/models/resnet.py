"""ResNet18 with GroupNorm of 2 groups: FedOpt's (pre-activation) and two of torchvision's kind. Outputs are logits.

Batch normalisation has no meaning across clients whose data differ, and its statistics are not parameters.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedloom.models.layers import (
    Initializer,
    Params,
    conv,
    dense,
    group_norm,
    he_normal,
    max_pool,
    norm_weights,
    pytorch,
    shaped,
    weights,
)
from fedloom.models.model import Model, shared
from fedloom.problem import Key

_NARROW = jax.nn.initializers.normal(0.01)
STAGES = (64, 64), (64, 128), (128, 256), (256, 512)  # channels in and out; two blocks each

# PyTorch's kaiming_normal with fan out; not truncated, as Keras's he_normal is.
kaiming_fan_out: Initializer = jax.nn.initializers.variance_scaling(2.0, "fan_out", "normal")


def _kernel(key: Key, *shape: int, init: Initializer) -> Params:
    return weights(key, *shape, init=init, bias=False)


def _make_block(key: Key, channels: int, out: int, norm1: int, init: Initializer) -> Params:
    """Two 3x3 convolutions with their norms (norm1 = 0: the first has none), and a shortcut if channels change."""
    k = jax.random.split(key, 3)
    p: Params = {
        "conv1": _kernel(k[0], 3, 3, channels, out, init=init),
        "conv2": _kernel(k[1], 3, 3, out, out, init=init),
        "norm2": norm_weights(out),
    }
    if norm1:
        p["norm1"] = norm_weights(norm1)
    if channels != out:
        p["shortcut"] = _kernel(k[2], 1, 1, channels, out, init=init)
        p["shortcut_norm"] = norm_weights(out)
    return p


def _mean_over_space(x: jax.Array) -> jax.Array:
    return jnp.mean(x, axis=(1, 2))


@shared
def fedopt_resnet18(classes: int = 100) -> Model:
    """FedOpt's ResNet18 for CIFAR crops of 24x24 (arXiv:2003.00295): pre-activation (v2), GroupNorm eps 1e-3.

    Stem: 7x7 convolution of stride 2, norm, ReLU, 3x3 pooling of stride 2, so 24 -> 12 -> 6 cells a side. Then stride 1
    everywhere, as in the authors' code. The very first block skips its first norm and ReLU, which the stem just did.
    He normal kernels without biases; the last layer is N(0, 0.01^2).
    """
    norm = functools.partial(group_norm, groups=2, eps=1e-3)

    def make(key: Key) -> Params:
        k = jax.random.split(key, 10)
        blocks = []
        for stage, (channels, out) in enumerate(STAGES):
            blocks.append(_make_block(k[2 * stage], channels, out, channels if stage else 0, he_normal))
            blocks.append(_make_block(k[2 * stage + 1], out, out, out, he_normal))
        return {
            "stem": _kernel(k[8], 7, 7, 3, 64, init=he_normal),
            "stem_norm": norm_weights(64),
            "blocks": blocks,
            "norm": norm_weights(512),
            "dense": weights(k[9], 512, classes, init=_NARROW),
        }

    def block(p: Params, x: jax.Array) -> jax.Array:
        h = jax.nn.relu(norm(p["norm1"], x)) if "norm1" in p else x
        h = conv(p["conv1"], h, 1, "SAME")
        h = conv(p["conv2"], jax.nn.relu(norm(p["norm2"], h)), 1, "SAME")
        shortcut = norm(p["shortcut_norm"], conv(p["shortcut"], x)) if "shortcut" in p else x
        return shortcut + h

    def apply(p: Params, x: ArrayLike, key: Key | None) -> jax.Array:
        h = jax.nn.relu(norm(p["stem_norm"], conv(p["stem"], shaped(x, 24, 24, 3), 2, "SAME")))
        h = max_pool(h, 3, 2, "SAME")
        for q in p["blocks"]:
            h = block(q, h)
        return dense(p["dense"], _mean_over_space(jax.nn.relu(norm(p["norm"], h))))

    return Model(f"fedopt-resnet18-{classes}", make, apply)


def _torchvision(name: str, stem: Callable[[Params, jax.Array], jax.Array], window: int) -> Model:
    """ResNet18 (v1) for 32x32 images: stem, 3x3 pooling of stride 2, stages that halve the image from the second on."""

    def make(key: Key) -> Params:
        k = jax.random.split(key, 10)
        blocks = []
        for stage, (channels, out) in enumerate(STAGES):
            blocks.append(_make_block(k[2 * stage], channels, out, out, kaiming_fan_out))
            blocks.append(_make_block(k[2 * stage + 1], out, out, out, kaiming_fan_out))
        return {
            "stem": _kernel(k[8], window, window, 3, 64, init=kaiming_fan_out),
            "stem_norm": norm_weights(64),
            "blocks": blocks,
            "dense": weights(k[9], 512, 10, init=pytorch),
        }

    def block(p: Params, x: jax.Array) -> jax.Array:
        stride = 2 if "shortcut" in p else 1
        h = jax.nn.relu(group_norm(p["norm1"], conv(p["conv1"], x, stride, 1)))
        h = group_norm(p["norm2"], conv(p["conv2"], h, 1, 1))
        shortcut = group_norm(p["shortcut_norm"], conv(p["shortcut"], x, stride)) if "shortcut" in p else x
        return jax.nn.relu(shortcut + h)

    def apply(p: Params, x: ArrayLike, key: Key | None) -> jax.Array:
        h = jax.nn.relu(group_norm(p["stem_norm"], stem(p["stem"], shaped(x, 32, 32, 3))))
        h = max_pool(h, 3, 2, 1)
        for q in p["blocks"]:
            h = block(q, h)
        return dense(p["dense"], _mean_over_space(h))

    return Model(name, make, apply)


@shared
def feddyn_resnet18() -> Model:
    """FedDyn's ResNet18 (arXiv:2111.04263): torchvision's, made for large images, with GroupNorm and 10 outputs.

    On 32x32 images: 7x7 stem of stride 2 and pooling leave 8 cells a side, the stages 8, 4, 2, 1.
    """
    return _torchvision("feddyn-resnet18", lambda p, x: conv(p, x, 2, 3), 7)


@shared
def cifar_resnet18() -> Model:
    """The linear-speedup paper's CIFAR ResNet18 (arXiv:2101.11203): 3x3 stem of stride 1, pooling kept; 16, 8, 4, 2.

    Departures: the authors' network has BatchNorm; here it is GroupNorm, with as many parameters. A client's batch
    statistics are neither parameters nor gradients, and averaging them is outside every method's analysis.
    """
    return _torchvision("cifar-resnet18", lambda p, x: conv(p, x, 1, 1), 3)
