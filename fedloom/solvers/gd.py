"""Full-batch gradient descent."""

from typing import Any

import jax
import jax.numpy as jnp

from fedloom.client import Objective, Solver, portion
from fedloom.hyperparameters import count, frozen, hyper, static
from fedloom.problem import Key, Problem, Scalar, Solution
from fedloom.schedules import Schedule, at, scheduled_positive


@frozen
class GD(Solver):
    """`steps` times  v <- v - lr_t (grad F_k(v) + linear + mu (v - anchor))."""

    lr: float | Schedule = hyper(scheduled_positive, "step size, or a schedule by round", default=0.1)
    steps: int = static(count, "gradient steps", default=1)

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"work", "lr_sum"})

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        lr = jnp.asarray(at(self.lr, t), problem.start.dtype)
        steps = portion(work, self.steps)

        def step(_: Any, v: Any) -> Any:
            return v - lr * problem.gradient(objective.grad(v), v)

        v = jax.lax.fori_loop(0, steps, step, problem.start)
        return Solution(v, steps * objective.size, lr_sum=lr * steps)
