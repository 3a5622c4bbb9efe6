"""The bottleneck autoencoder of FedOpt (arXiv:2003.00295) for EMNIST."""

import itertools

import jax
from jax.typing import ArrayLike

from fedloom.models.layers import Params, dense, shaped, weights
from fedloom.models.model import Model, shared
from fedloom.problem import Key

SIZES = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)


@shared
def emnist_autoencoder() -> Model:
    """784-1000-500-250-30-250-500-1000-784; outputs are pixels in (0, 1). Glorot uniform, biases zero.

    Departures: the paper says sigmoid after every layer; here, as in the authors' code, the bottleneck is linear.
    """

    def make(key: Key) -> list[Params]:
        keys = jax.random.split(key, len(SIZES) - 1)
        return [weights(k, *shape) for k, shape in zip(keys, itertools.pairwise(SIZES), strict=True)]

    def apply(p: list[Params], x: ArrayLike, key: Key | None) -> jax.Array:
        h = shaped(x, SIZES[0])
        for layer in p:
            h = dense(layer, h)
            if h.shape[-1] != min(SIZES):
                h = jax.nn.sigmoid(h)
        return h

    return Model("emnist-autoencoder", make, apply)
