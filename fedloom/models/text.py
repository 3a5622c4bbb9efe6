"""The papers' LSTM networks for text. Inputs are integers [batch, time] unless said otherwise; outputs are logits.

Token 0 is padding where a model says "masked": there the LSTMs carry their state over, as with Keras's mask_zero.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedloom.models.layers import Params, dense, embedding, glorot_uniform, he_normal, pytorch, uniform, weights
from fedloom.models.lstm import keras_weights, lstm, pytorch_weights, tensorflow_weights
from fedloom.models.model import Model, shared
from fedloom.problem import Key


def _last_step(p: Params, tokens: ArrayLike, key: Key | None) -> jax.Array:
    """The next character's logits, [batch, classes], from the last step of two LSTMs."""
    h = embedding(p["embedding"], tokens)
    for layer in ("lstm1", "lstm2"):
        h = lstm(p[layer], h)
    return dense(p["dense"], h[:, -1])


@shared
def fedprox_shakespeare() -> Model:
    """FedProx's (arXiv:1812.06127): 80 characters embedded in 8, 2 LSTMs of 256, the last step's logits [batch, 80].

    TensorFlow 1's initial values: Glorot uniform, biases zero but 1 for the forget gates.
    """

    def make(key: Key) -> Params:
        k = jax.random.split(key, 4)
        return {
            "embedding": glorot_uniform(k[0], (80, 8)),
            "lstm1": tensorflow_weights(k[1], 8, 256),
            "lstm2": tensorflow_weights(k[2], 256, 256),
            "dense": weights(k[3], 256, 80),
        }

    return Model("fedprox-shakespeare", make, _last_step)


@shared
def feddyn_shakespeare() -> Model:
    """FedDyn's (arXiv:2111.04263): 80 characters embedded in 8, 2 LSTMs of 100, the last step's logits [batch, 80].

    PyTorch's initial values and its two bias vectors in each LSTM.
    """

    def make(key: Key) -> Params:
        k = jax.random.split(key, 4)
        return {
            "embedding": jax.random.normal(k[0], (80, 8)),
            "lstm1": pytorch_weights(k[1], 8, 100),
            "lstm2": pytorch_weights(k[2], 100, 100),
            "dense": weights(k[3], 100, 80, init=pytorch),
        }

    return Model("feddyn-shakespeare", make, _last_step)


@shared
def fedprox_sent140() -> Model:
    """FedProx's sentiment network (arXiv:1812.06127): 2 LSTMs of 100, 30 linear units, one logit: [batch, 1].

    Inputs are words already embedded, [batch, 25, 300]: the GloVe vectors are frozen, so they are data. TensorFlow 1's
    initial values.
    """

    def make(key: Key) -> Params:
        k = jax.random.split(key, 4)
        return {
            "lstm1": tensorflow_weights(k[0], 300, 100),
            "lstm2": tensorflow_weights(k[1], 100, 100),
            "dense1": weights(k[2], 100, 30),
            "dense2": weights(k[3], 30, 1),
        }

    def apply(p: Params, x: ArrayLike, key: Key | None) -> jax.Array:
        h = lstm(p["lstm2"], lstm(p["lstm1"], x))[:, -1]
        return dense(p["dense2"], dense(p["dense1"], h))

    return Model("fedprox-sent140", make, apply)


def _keras_embedding(key: Key, tokens: int, size: int) -> jax.Array:
    return uniform(key, (tokens, size), 0.05)


@shared
def fedopt_shakespeare() -> Model:
    """FedOpt's (arXiv:2003.00295): 90 tokens embedded in 8, masked, 2 LSTMs of 256; logits [batch, time, 90].

    Keras's initial values, with He normal for the LSTMs' inputs as the authors have it.
    """

    def make(key: Key) -> Params:
        k = jax.random.split(key, 4)
        return {
            "embedding": _keras_embedding(k[0], 90, 8),
            "lstm1": keras_weights(k[1], 8, 256, init=he_normal),
            "lstm2": keras_weights(k[2], 256, 256, init=he_normal),
            "dense": weights(k[3], 256, 90),
        }

    def apply(p: Params, tokens: ArrayLike, key: Key | None) -> jax.Array:
        mask = jnp.not_equal(tokens, 0)
        h = lstm(p["lstm1"], embedding(p["embedding"], tokens), mask)
        return dense(p["dense"], lstm(p["lstm2"], h, mask))

    return Model("fedopt-shakespeare", make, apply)


@shared
def stackoverflow_nwp() -> Model:
    """FedOpt's next-word network (arXiv:2003.00295): logits at every step, [batch, time, 10004].

    10,004 tokens embedded in 96, masked; LSTM of 670; 96 linear units; the output layer is not tied to the embedding.
    Keras's initial values.
    """

    def make(key: Key) -> Params:
        k = jax.random.split(key, 4)
        return {
            "embedding": _keras_embedding(k[0], 10_004, 96),
            "lstm": keras_weights(k[1], 96, 670),
            "dense1": weights(k[2], 670, 96),
            "dense2": weights(k[3], 96, 10_004),
        }

    def apply(p: Params, tokens: ArrayLike, key: Key | None) -> jax.Array:
        h = lstm(p["lstm"], embedding(p["embedding"], tokens), jnp.not_equal(tokens, 0))
        return dense(p["dense2"], dense(p["dense1"], h))

    return Model("stackoverflow-nwp", make, apply)
