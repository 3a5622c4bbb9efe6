"""Adagrad on the client, with an accumulator that may come from elsewhere."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedloom.client import Objective
from fedloom.hyperparameters import frozen, hyper, nonnegative, positive
from fedloom.problem import Key, Problem, Scalar, Solution
from fedloom.schedules import Schedule, at, scheduled_positive
from fedloom.solvers.batches import Minibatch


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

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        if problem.accumulator is None:
            start = jnp.full_like(problem.start, self.initial)
            problem = problem._replace(accumulator=start)
        lr = jnp.asarray(at(self.lr, t), problem.start.dtype)
        tree = problem.map(objective.unravel)

        def step(state: Any, positions: Any, mask: Any, key: Key) -> Any:
            v, a, spent = state
            g = tree.gradient(objective.batch_grad(v, positions, mask, key), v)
            a = jax.tree.map(lambda x, y: x + y**2, a, g)
            v = jax.tree.map(lambda x, y, z: x - lr * y / (jnp.sqrt(z) + self.epsilon), v, g, a)
            return v, a, spent + jnp.sum(mask, dtype=jnp.int32)

        state = (tree.start, tree.accumulator, jnp.zeros((), jnp.int32))
        v, a, spent = self.fold(step, state, objective, key, work)
        return Solution(ravel_pytree(v)[0], spent, accumulator=ravel_pytree(a)[0])
