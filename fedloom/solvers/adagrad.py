"""Adagrad on the client, with an accumulator that may come from elsewhere."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedloom.client import Objective
from fedloom.hyperparameters import frozen, hyper, nonnegative, positive
from fedloom.problem import Key, Problem, Scalar, Solution, ravel
from fedloom.schedules import Schedule, at, scheduled_positive
from fedloom.solvers.batches import Minibatch


class State(NamedTuple):
    problem: Problem
    v: Any
    a: Any
    lr: Scalar
    spent: Scalar
    first: Any  # the steps of the rounds before, where they matter


@frozen
class Adagrad(Minibatch):
    """g is the local problem's minibatch gradient;  a <- a + g^2;  v <- v - lr_t g / (sqrt(a) + epsilon).

    `a` starts at the problem's accumulator if it has one, else at `initial`, and is returned in the solution.
    """

    lr: float | Schedule = hyper(scheduled_positive, "step size, or a schedule by round", default=0.1)
    epsilon: float = hyper(positive, "added to the root", default=1e-7)
    initial: float = hyper(nonnegative, "first value of the accumulator", default=0.0)

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"work", "accumulator"})

    def begin(self, problem: Problem, objective: Objective, t: Scalar) -> State:
        if problem.accumulator is None:
            problem = problem._replace(accumulator=jnp.full_like(problem.start, self.initial))
        tree = problem.map(objective.unravel)
        lr = jnp.asarray(at(self.lr, t), problem.start.dtype)
        return State(tree.terms(), tree.start, tree.accumulator, lr, jnp.zeros((), jnp.int32), self.first(t))

    def step(self, state: State, s: Scalar, objective: Objective, key: Key) -> State:
        problem, v, a, lr, spent, first = state
        g, examples = self.batch_grad(v, s, objective, key, first)
        g = problem.gradient(g, v)
        a = jax.tree.map(lambda x, y: x + y**2, a, g)
        v = jax.tree.map(lambda x, y, z: x - lr * y / (jnp.sqrt(z) + self.epsilon), v, g, a)
        return State(problem, v, a, lr, spent + examples, first)

    def end(self, state: State) -> Solution:
        return Solution(ravel(state.v), state.spent, accumulator=ravel(state.a))
