"""Functions that should be equal: their values and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-11)


def assert_trees_close(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        close(x, y)


def values_and_gradients(f, *args):
    """f(*args), and the gradients of a fixed random functional of it w.r.t. all arguments."""
    probe = jax.random.normal(jax.random.key(9), jax.eval_shape(f, *args).shape)
    gradients = jax.grad(lambda *a: jnp.vdot(probe, f(*a)), tuple(range(len(args))))
    return jax.jit(lambda *a: (f(*a), gradients(*a)))(*args)


def close_float32(ours, theirs, tolerance=1e-5):
    """Trees of float32 that agree up to rounding, relative to the largest number of each array."""

    def one(a, b):
        assert a.shape == b.shape
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1, abs(b).max()))

    jax.tree.map(one, ours, theirs)
