"""Minibatch SGD."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from fedloom.client import Objective
from fedloom.hyperparameters import frozen, hyper, nonnegative, optional, positive, probability
from fedloom.problem import Key, Problem, Scalar, Solution
from fedloom.schedules import Schedule, at, scheduled_positive
from fedloom.solvers.batches import Minibatch


@frozen
class SGD(Minibatch):
    """Stochastic gradient descent on the local problem.

        g <- minibatch gradient of F_k + linear + mu (v - anchor),  clipped to norm `clip`
        g <- g + weight_decay * v
        m <- momentum * m + g                                       (m starts at 0 in every solve)
        v <- v - lr_t * m

    Clipping comes before weight decay, as in PyTorch training loops. The step size is constant within a round.
    """

    lr: float | Schedule = hyper(scheduled_positive, "step size, or a schedule by round", default=0.1)
    momentum: float | None = hyper(optional(probability), "heavy-ball momentum", default=None)
    weight_decay: float | None = hyper(optional(nonnegative), "weight of |v|^2 / 2", default=None)
    clip: float | None = hyper(optional(positive), "largest norm of a step's gradient", default=None)

    @property
    def offers(self) -> frozenset[str]:
        # With momentum or clipping v - start is no longer lr_sum times a mean of gradients.
        plain = self.momentum is None and self.clip is None
        return frozenset({"work", "lr_sum"} if plain else {"work"})

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        lr = jnp.asarray(at(self.lr, t), problem.start.dtype)
        tree = problem.map(objective.unravel)  # once a solve, never once a step

        def step(state: Any, positions: Any, mask: Any, key: Key) -> Any:
            v, m, lr_sum, spent = state
            g = tree.gradient(objective.batch_grad(v, positions, mask, key), v)
            if self.clip is not None:
                shrink = jnp.minimum(1, self.clip / jnp.maximum(optax.tree.norm(g), self.clip))
                g = jax.tree.map(lambda x: x * shrink, g)
            if self.weight_decay is not None:
                g = jax.tree.map(lambda x, y: x + self.weight_decay * y, g, v)
            if self.momentum is not None:
                m = g = jax.tree.map(lambda x, y: self.momentum * x + y, m, g)
            v = jax.tree.map(lambda x, y: x - lr * y, v, g)
            return v, m, lr_sum + lr, spent + jnp.sum(mask, dtype=jnp.int32)

        m = None if self.momentum is None else jax.tree.map(jnp.zeros_like, tree.start)
        state = (tree.start, m, jnp.zeros_like(lr), jnp.zeros((), jnp.int32))
        v, _, lr_sum, spent = self.fold(step, state, objective, key, work)
        plain = "lr_sum" in self.offers
        return Solution(ravel_pytree(v)[0], spent, lr_sum=lr_sum if plain else jnp.nan)
