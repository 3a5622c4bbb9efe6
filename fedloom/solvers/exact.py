"""The exact minimiser of a quadratic local problem."""

import jax
import jax.numpy as jnp

from fedloom.client import Federation, Objective, Solver
from fedloom.hyperparameters import frozen
from fedloom.problem import Key, Problem, Scalar, Solution


@frozen
class Exact(Solver):
    """One Newton step, v = start - H^{-1} gradient(start): exact where F_k is quadratic, and then residual is about 0.

    The residual is the norm of the local problem's gradient at v. It forms the d x d Hessian: for small d. A solve is
    counted as one full gradient, as an oracle.
    """

    def check(self, federation: Federation) -> None:
        if federation.on_host:
            raise ValueError(
                "Exact needs second derivatives, which a model outside JAX does not have; use GD or ToTolerance."
            )

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        def gradient(v: jax.Array) -> jax.Array:
            return problem.gradient(objective.grad(v), v)

        def terms(v: jax.Array) -> jax.Array:
            return problem.gradient(jnp.zeros_like(v), v)

        start = problem.start
        v = start - jnp.linalg.solve(hessian(objective, start) + jax.jacfwd(terms)(start), gradient(start))
        return Solution(v, objective.size, residual=jnp.linalg.norm(gradient(v)))


def hessian(objective: Objective, w: jax.Array) -> jax.Array:
    """Of F_k. An objective that has examples goes through them itself: a pass, whatever the sizes of the others are."""
    return objective.curvature(w) if hasattr(objective, "curvature") else jax.jacfwd(objective.grad)(w)
