"""Solving the local problem to a tolerance, and saying what was reached."""

from typing import Any

import jax
import jax.numpy as jnp

from fedloom.client import Objective, Solver, portion, resting
from fedloom.hyperparameters import choice, count, finite, frozen, hyper, static
from fedloom.problem import Key, Problem, Scalar, Solution
from fedloom.schedules import Schedule, at, scheduled_positive


@frozen
class ToTolerance(Solver):
    """Full gradient steps on the local objective h until it is solved well enough.

    The residual that is compared with `tolerance` and reported, by criterion; v* is the minimiser of h:

        gradient            |grad h(v)|
        relative-gradient   |grad h(v)| / |grad h(start)|           FedProx's gamma-inexactness
        distance            a bound of |v - v*|                     FedDR's accuracy eps_{i,k}, as a schedule
        relative-distance   a bound of |v - v*| / |v* - start|      FedDANE's gamma-inexactness (Definition 1)

    v* is unknown, so distances are bounded from what is known: h is m-strongly convex with m = mu + strong_convexity,
    hence |v - v*| <= r = |grad h(v)| / m and |v* - start| >= |v - start| - r. This is true for convex F_k; where F_k is
    only weakly convex, say so by a negative strong_convexity. Nothing is certified where m is not positive.
    A solve that is not done after `max_steps` ends there and is counted as unsolved.
    """

    tolerance: float | Schedule = hyper(scheduled_positive, "stop at this residual; may be a schedule", default=1e-6)
    criterion: str = static(
        choice("gradient", "relative-gradient", "distance", "relative-distance"),
        "what the residual is",
        default="gradient",
    )
    lr: float | Schedule = hyper(scheduled_positive, "step size, or a schedule by round", default=0.1)
    max_steps: int = static(count, "gradient steps after which it gives up", default=1000)
    strong_convexity: float = hyper(finite, "of F_k itself, for the distance criteria", default=0.0)

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"work"})  # not lr_sum: there may be no step at all

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        start = problem.start
        lr = jnp.asarray(at(self.lr, t), start.dtype)
        tolerance = at(self.tolerance, t)
        limit = portion(work, self.max_steps)

        def gradient(v: Any, objective: Objective = objective) -> Any:
            return problem.gradient(objective.grad(v), v)

        first = gradient(start)
        convexity = self.strong_convexity + (0.0 if problem.anchor is None else problem.mu)

        def residual(v: Any, g: Any) -> Scalar:
            size = jnp.linalg.norm(g)
            if self.criterion == "gradient":
                return size
            if self.criterion == "relative-gradient":
                return _ratio(size, jnp.linalg.norm(first))
            m = jnp.asarray(convexity, size.dtype)
            bound = jnp.where(m > 0, size / jnp.where(m > 0, m, 1), jnp.inf)
            if self.criterion == "distance":
                return bound
            return _ratio(bound, jnp.linalg.norm(v - start) - bound)

        def go_on(state: Any) -> Any:
            v, g, steps = state
            return (residual(v, g) > tolerance) & (steps < limit)

        def step(state: Any) -> Any:
            solved = ~go_on(state)  # as others, side by side, go on
            v, g, steps = state
            v = v - lr * g
            return v, gradient(v, resting(objective, solved)), steps + 1

        state = (start, first, jnp.zeros((), jnp.int32))
        v, g, steps = jax.lax.while_loop(go_on, step, state)
        reached = residual(v, g)
        return Solution(
            v,
            gradients=(steps + 1) * objective.size,
            lr_sum=lr * steps,
            residual=reached,
            unsolved=~(reached <= tolerance),
        )


def _ratio(a: Scalar, b: Scalar) -> Scalar:
    """a / b; 0 if a is 0, else infinity if b is not positive: nothing is certified then."""
    safe = jnp.where(b > 0, b, 1)
    return jnp.where(a == 0, 0.0, jnp.where(b > 0, a / safe, jnp.inf))
