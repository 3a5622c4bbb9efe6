"""Federations that several tests run on, and how they look at a run."""

import jax
import jax.numpy as jnp
import numpy as np

import fedloom as fl

FEDERATION = fl.quadratics(clients=7, dimension=4, seed=3)
W = jnp.array([2.0, -1.0, 0.5, 3.0])


def least_squares(sizes=(3, 9, 1, 6, 5), seed=0):
    """Ragged clients with quadratic losses, so that minibatches and exact solves both make sense."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    x, y = rng.normal(size=(n, 4)), rng.normal(size=n)

    def loss(w, rows, key):
        x, y = rows
        return (x @ w - y) ** 2 / 2 + 0.05 * jnp.sum(w**2)

    return fl.examples((x, y), sizes, loss)


def last(engine, *args, **more):
    return list(engine(*args, **more))[-1]


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]
