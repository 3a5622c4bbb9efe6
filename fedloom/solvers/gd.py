"""Full-batch gradient descent."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedloom.client import Objective, StepSolver, portion
from fedloom.hyperparameters import count, frozen, hyper, static
from fedloom.problem import Key, Problem, Scalar, Solution
from fedloom.schedules import Schedule, at, scheduled_positive


class State(NamedTuple):
    problem: Problem
    v: Any
    lr: Scalar
    steps: Scalar
    spent: Scalar


@frozen
class GD(StepSolver):
    """`steps` times  v <- v - lr_t (grad F_k(v) + linear + mu (v - anchor))."""

    lr: float | Schedule = hyper(scheduled_positive, "step size, or a schedule by round", default=0.1)
    steps: int = static(count, "gradient steps", default=1)

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"work", "lr_sum"})

    def steps_for(self, size: Any, capacity: int, work: Any) -> Any:
        return portion(work, self.steps)

    def begin(self, problem: Problem, objective: Objective, t: Scalar) -> State:
        lr, zero = jnp.asarray(at(self.lr, t), problem.start.dtype), jnp.zeros((), jnp.int32)
        return State(problem.terms(), problem.start, lr, zero, zero)

    def step(self, state: State, s: Scalar, objective: Objective, key: Key) -> State:
        problem, v, lr, steps, spent = state
        v = v - lr * problem.gradient(objective.grad(v), v)
        return State(problem, v, lr, steps + 1, spent + jnp.asarray(objective.size, jnp.int32))

    def end(self, state: State) -> Solution:
        return Solution(state.v, state.spent, lr_sum=state.lr * state.steps)
