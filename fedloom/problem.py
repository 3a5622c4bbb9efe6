"""The one formula: every client step approximately minimises

    F_k(v) + <linear, v> + mu/2 |v - anchor|^2      over v, starting from `start`.

Methods differ in these four coefficients, in what the client remembers, and in what travels.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Vector = jax.Array  # a flat float vector of length d
Scalar = Any  # a float, or a zero-dimensional array
Key = jax.Array  # a JAX random key


def ravel(tree: Any) -> Vector:
    """The model's tree as one flat vector: jax.flatten_util.ravel_pytree, written so that it is fast on a CPU.

    XLA fuses a concatenation of up to 8 vectors with what follows (w_k - w, say) into one loop for each vector, all as
    long as the longest: loads beyond the end of the shorter ones are masked. Where the memory there is not in use, a
    masked load takes hundreds of cycles, so the time depends on where buffers happen to lie: 2 to 120 ms for 1.6
    million parameters. A concatenation along the rows of a matrix is not fused but copied, in under 1 ms.
    """
    return jnp.concatenate([jnp.reshape(leaf, (1, -1)) for leaf in jax.tree.leaves(tree)], axis=1)[0]


class Problem(NamedTuple):
    """The coefficients of one local problem. An absent term costs nothing: it is not compiled."""

    start: Any
    linear: Any = None
    anchor: Any = None
    mu: Scalar = 0.0
    accumulator: Any = None  # squared gradients summed so far, for a solver that keeps them

    def map(self, f: Any) -> "Problem":
        """Apply f to every vector: how a solver goes from flat vectors to the model's tree."""
        vectors = (self.start, self.linear, self.anchor, self.accumulator)
        start, linear, anchor, accumulator = (None if v is None else f(v) for v in vectors)
        return Problem(start, linear, anchor, self.mu, accumulator)

    def terms(self) -> "Problem":
        """The terms of the objective as arrays, without what belongs to the start: what steps need."""
        mu = None if self.anchor is None else jnp.asarray(self.mu, jax.tree.leaves(self.anchor)[0].dtype)
        return Problem(None, self.linear, self.anchor, mu)

    def value(self, loss: Scalar, v: Vector) -> Scalar:
        """The local objective at v, given loss = F_k(v)."""
        if self.linear is not None:
            loss = loss + jnp.vdot(self.linear, v)
        if self.anchor is not None:
            loss = loss + self.mu / 2 * jnp.sum((v - self.anchor) ** 2)
        return loss

    def gradient(self, grad: Any, v: Any) -> Any:
        """The local objective's gradient at v, given grad = (an estimate of) the gradient of F_k at v.

        Works on flat vectors and on trees alike.
        """
        if self.linear is not None:
            grad = jax.tree.map(lambda g, c: g + c, grad, self.linear)
        if self.anchor is not None:
            grad = jax.tree.map(lambda g, x, a: g + self.mu * (x - a), grad, v, self.anchor)
        return grad


class Solution(NamedTuple):
    """What a solver found, and what it spent."""

    w: Vector
    gradients: Scalar  # example gradients evaluated: a full local gradient costs n_k, a minibatch its size
    lr_sum: Scalar = jnp.nan  # sum of step sizes taken (SCAFFOLD's K * eta_l); nan if that has no meaning
    residual: Scalar = jnp.nan  # how well it is solved, in the units of the solver's tolerance; nan: not measured
    unsolved: Scalar = False  # True if the solver gave up before its tolerance
    accumulator: Any = None  # squared gradients summed, where the solver keeps them
