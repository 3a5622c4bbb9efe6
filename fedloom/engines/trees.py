"""Trees of arrays: what server states, messages, replies and memories are, and what engines ask of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray  # its shape stands beside each field, e.g. [rounds, room]
Tree = Any  # a JAX pytree whose leaves are arrays


def nbytes(tree: Tree) -> int:
    """The bytes of a message: its numbers, and nothing else."""
    return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def shapes(tree: Tree) -> tuple[Any, list[tuple[tuple[int, ...], Any]]]:
    """Structure, shapes and types of a tree, to be compared."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jnp.shape(x), jnp.result_type(x)) for x in leaves]


def all_finite(tree: Tree) -> jax.Array:
    """Are all floats of the tree finite?"""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in floats])) if floats else jnp.array(True)


def mean_type(dtype: np.dtype) -> np.dtype:
    """The type of a mean of such numbers: their own, or JAX's float for integers."""
    return dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float)
