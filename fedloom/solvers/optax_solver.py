"""Any optax optimizer on the client."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedloom.client import Objective
from fedloom.hyperparameters import frozen, optax_optimizer, static
from fedloom.hyperparameters import optimizer as named
from fedloom.problem import Key, Problem, Scalar, Solution, ravel
from fedloom.solvers.batches import Minibatch

_adam = named("adam", learning_rate=1e-3)


class State(NamedTuple):
    problem: Problem
    v: Any
    slots: Any
    spent: Scalar
    first: Any  # the steps of the rounds before, where they matter


@frozen
class Optax(Minibatch):
    """Minibatch steps of an optax optimizer, whose slots start afresh in every solve."""

    optimizer: optax.GradientTransformation = static(optax_optimizer, "the optimizer", default=_adam)

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"work"})

    def begin(self, problem: Problem, objective: Objective, t: Scalar) -> State:
        tree = problem.map(objective.unravel)
        slots = jax.tree.map(jnp.asarray, self.optimizer.init(tree.start))
        return State(tree.terms(), tree.start, slots, jnp.zeros((), jnp.int32), self.first(t))

    def step(self, state: State, s: Scalar, objective: Objective, key: Key) -> State:
        problem, v, slots, spent, first = state
        g, examples = self.batch_grad(v, s, objective, key, first)
        g = problem.gradient(g, v)
        updates, slots = self.optimizer.update(g, slots, v)
        return State(problem, optax.apply_updates(v, updates), slots, spent + examples, first)

    def end(self, state: State) -> Solution:
        return Solution(ravel(state.v), state.spent)
