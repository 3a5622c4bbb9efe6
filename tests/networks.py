"""Batches without values, and random parameters, for tests of models."""

import jax
import jax.numpy as jnp
import numpy as np

IMAGE28, IMAGE32 = (28, 28), (32, 32, 3)


def batch_of(shape, batch=3):
    """An abstract batch."""
    if shape == "text":
        return jax.ShapeDtypeStruct((batch, 80), jnp.uint8)
    return jax.ShapeDtypeStruct((batch, *shape), jnp.float32)


def shapes(model):
    return jax.eval_shape(model.init, jax.random.key(0))


def random_params(model):
    """Numbers that no two layers share, with norms that do something."""
    rng = np.random.default_rng(3)
    return jax.tree.map(lambda s: rng.normal(size=s.shape) / np.sqrt(max(s.size // s.shape[-1], 4)), shapes(model))
