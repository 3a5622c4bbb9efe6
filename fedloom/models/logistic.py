"""Multinomial logistic regression: one dense layer, whose outputs are logits."""

from typing import Any

import jax

from fedloom.models.layers import Initializer, Params, dense, glorot_uniform, shaped, weights
from fedloom.models.model import Model, shared
from fedloom.problem import Key


@shared
def logistic(features: int, classes: int, *, init: Initializer = glorot_uniform) -> Model:
    """features -> classes logits: MCLR of FedProx, FedDANE and FedDyn, and Stack Overflow's tags (10,000 -> 500).

    init: Glorot uniform, as the FedProx family's code does; `layers.zeros` as FedDyn does.
    """

    def apply(p: Params, x: Any, key: Key | None) -> jax.Array:
        return dense(p, shaped(x, features))

    return Model(f"logistic-{features}-{classes}", lambda key: weights(key, features, classes, init=init), apply)
