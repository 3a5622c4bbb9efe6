"""Convolutional networks of the papers. Outputs are logits."""

import jax
from jax.typing import ArrayLike

from fedloom.models.blocks import conv_relu, conv_relu_pool
from fedloom.models.layers import Params, dense, dropout, pytorch, shaped, weights
from fedloom.models.model import Model, shared
from fedloom.problem import Key


@shared
def emnist_cnn(classes: int = 62) -> Model:
    """FedOpt's EMNIST network (arXiv:2003.00295): two 3x3 convolutions, pooling, dropout, 128 units, dropout, logits.

    Keras's initial values: Glorot uniform, biases zero. Both convolutions and the dense layer have ReLU, as in the
    authors' code; the paper's table leaves these cells blank.
    """

    def make(key: Key) -> Params:
        k = jax.random.split(key, 4)
        return {
            "conv1": weights(k[0], 3, 3, 1, 32),
            "conv2": weights(k[1], 3, 3, 32, 64),
            "dense1": weights(k[2], 12 * 12 * 64, 128),
            "dense2": weights(k[3], 128, classes),
        }

    def apply(p: Params, x: ArrayLike, key: Key | None) -> jax.Array:
        first, second = (None, None) if key is None else jax.random.split(key)
        h = conv_relu(p["conv1"], shaped(x, 28, 28, 1))
        h = conv_relu_pool(p["conv2"], h)
        h = dropout(first, 0.25, h).reshape(h.shape[0], -1)
        h = dropout(second, 0.5, jax.nn.relu(dense(p["dense1"], h)))
        return dense(p["dense2"], h)

    return Model(f"emnist-cnn-{classes}", make, apply)


def _two_convolutions(
    name: str, side: int, channels: int, kernels: tuple[int, int], units: tuple[int, ...], classes: int
) -> Model:
    """Twice: 5x5 convolution without padding, ReLU, 2x2 pooling; then dense layers with ReLU, and logits."""
    left = ((side - 4) // 2 - 4) // 2
    sizes = (left * left * kernels[1], *units, classes)

    def make(key: Key) -> Params:
        k = jax.random.split(key, len(sizes) + 1)
        return {
            "conv1": weights(k[0], 5, 5, channels, kernels[0], init=pytorch),
            "conv2": weights(k[1], 5, 5, *kernels, init=pytorch),
            "dense": [weights(k[i + 2], *sizes[i : i + 2], init=pytorch) for i in range(len(sizes) - 1)],
        }

    def apply(p: Params, x: ArrayLike, key: Key | None) -> jax.Array:
        h = conv_relu_pool(p["conv1"], shaped(x, side, side, channels))
        h = conv_relu_pool(p["conv2"], h)
        h = h.reshape(h.shape[0], -1)
        for layer in p["dense"][:-1]:
            h = jax.nn.relu(dense(layer, h))
        return dense(p["dense"][-1], h)

    return Model(name, make, apply)


@shared
def mnist_cnn() -> Model:
    """The linear-speedup paper's MNIST network (arXiv:2101.11203): 32 and 64 kernels, 512 units. PyTorch's init."""
    return _two_convolutions("mnist-cnn", 28, 1, (32, 64), (512,), 10)


@shared
def cifar_ccnn() -> Model:
    """The network "ccnn" in the linear-speedup authors' run scripts: 32 and 64 kernels, 512 and 128 units.

    PyTorch's initial values.
    """
    return _two_convolutions("cifar-ccnn", 32, 3, (32, 64), (512, 128), 10)


@shared
def feddyn_cnn(classes: int = 10) -> Model:
    """FedDyn's CIFAR network (arXiv:2111.04263): 64 and 64 kernels, 384 and 192 units. PyTorch's initial values.

    Departures: the paper says 394 units; the authors' code, and this, has 384.
    """
    return _two_convolutions(f"feddyn-cnn-{classes}", 32, 3, (64, 64), (384, 192), classes)
