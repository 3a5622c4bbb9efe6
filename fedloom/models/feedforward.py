"""Logistic regression, and multilayer perceptrons with ReLU. Outputs are logits."""

import itertools

import jax
from jax.typing import ArrayLike

from fedloom.models.layers import Initializer, Params, dense, glorot_uniform, shaped, weights
from fedloom.models.model import Model, shared
from fedloom.problem import Key


@shared
def logistic(features: int, classes: int, *, init: Initializer = glorot_uniform) -> Model:
    """features -> classes logits: MCLR of FedProx, FedDANE and FedDyn, and Stack Overflow's tags (10,000 -> 500).

    init: Glorot uniform, as the FedProx family's code does; `layers.zeros` as FedDyn does.
    """

    def apply(p: Params, x: ArrayLike, key: Key | None) -> jax.Array:
        return dense(p, shaped(x, features))

    return Model(f"logistic-{features}-{classes}", lambda key: weights(key, features, classes, init=init), apply)


@shared
def mlp(*sizes: int, init: Initializer = glorot_uniform) -> Model:
    """mlp(784, 200, 200, 10): inputs, hidden ReLU layers, logits. This one is the papers' 2NN.

    init: Glorot uniform (biases zero), as TensorFlow does for FedDR; `layers.pytorch` as in FedDyn's, asyncFedDR's and
    the linear-speedup paper's PyTorch code.
    """
    if len(sizes) < 2 or any(n < 1 for n in sizes):
        raise ValueError(f"mlp takes the sizes of the inputs, of each hidden layer and of the outputs, got {sizes}.")

    def make(key: Key) -> list[Params]:
        keys = jax.random.split(key, len(sizes) - 1)
        return [weights(k, *shape, init=init) for k, shape in zip(keys, itertools.pairwise(sizes), strict=True)]

    def apply(p: list[Params], x: ArrayLike, key: Key | None) -> jax.Array:
        h = shaped(x, sizes[0])
        for layer in p[:-1]:
            h = jax.nn.relu(dense(layer, h))
        return dense(p[-1], h)

    return Model("mlp-" + "-".join(map(str, sizes)), make, apply)
