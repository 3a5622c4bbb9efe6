"""Any optax optimizer on the client."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from fedloom.client import Objective
from fedloom.hyperparameters import frozen, optax_optimizer, static
from fedloom.optimizers import optimizer as named
from fedloom.problem import Key, Problem, Scalar, Solution
from fedloom.solvers.batches import Minibatch

_adam = named("adam", learning_rate=1e-3)


@frozen
class Optax(Minibatch):
    """Minibatch steps of an optax optimizer, whose slots start afresh in every solve."""

    optimizer: optax.GradientTransformation = static(optax_optimizer, "the optimizer", default=_adam)

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"work"})

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        tree = problem.map(objective.unravel)

        def step(state: Any, positions: Any, mask: Any, key: Key) -> Any:
            v, slots, spent = state
            g = tree.gradient(objective.batch_grad(v, positions, mask, key), v)
            updates, slots = self.optimizer.update(g, slots, v)
            return optax.apply_updates(v, updates), slots, spent + jnp.sum(mask, dtype=jnp.int32)

        slots = self.optimizer.init(tree.start)
        state = (tree.start, slots, jnp.zeros((), jnp.int32))
        v, _, spent = self.fold(step, jax.tree.map(jnp.asarray, state), objective, key, work)
        return Solution(ravel_pytree(v)[0], spent)
