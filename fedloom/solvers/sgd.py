"""Stochastic gradient descent on minibatches."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedloom.client import Objective
from fedloom.hyperparameters import choice, frozen, hyper, nonnegative, optional, positive, probability, static
from fedloom.problem import Key, Problem, Scalar, Solution, ravel
from fedloom.schedules import Schedule, at, scheduled_positive
from fedloom.solvers.batches import Minibatch


class State(NamedTuple):
    problem: Problem
    v: Any
    m: Any
    lr: Scalar
    steps: Scalar
    spent: Scalar
    first: Any  # the steps of the rounds before, where they matter


@frozen
class SGD(Minibatch):
    """Stochastic gradient descent on the local problem.

        g <- minibatch gradient of F_k + linear + mu (v - anchor),  clipped to norm `clip`
        g <- g + weight_decay * v
        m <- momentum * m + g                                       (m starts at 0 in every solve)
        v <- v - lr_t * m

    Clipping comes before weight decay, as in PyTorch training loops. The step size is constant within a round. The
    minibatch gradient is that of the mean loss, or with reduction "sum" that of the sum: a smaller last batch then
    makes a smaller step, and step sizes are smaller by a factor of batch_size (FedOpt's tag regression was tuned so).
    """

    lr: float | Schedule = hyper(scheduled_positive, "step size, or a schedule by round", default=0.1)
    momentum: float | None = hyper(optional(probability), "heavy-ball momentum", default=None)
    weight_decay: float | None = hyper(optional(nonnegative), "weight of |v|^2 / 2", default=None)
    clip: float | None = hyper(optional(positive), "largest norm of a step's gradient", default=None)
    reduction: str = static(choice("mean", "sum"), "of the losses in a batch", default="mean")

    @property
    def offers(self) -> frozenset[str]:
        # With momentum, clipping or sums v - start is no longer lr_sum times a mean of gradients.
        plain = self.momentum is None and self.clip is None and self.reduction == "mean"
        return frozenset({"work", "lr_sum"} if plain else {"work"})

    def begin(self, problem: Problem, objective: Objective, t: Scalar) -> State:
        tree = problem.map(objective.unravel)  # once a solve, never once a step
        m = None if self.momentum is None else jax.tree.map(jnp.zeros_like, tree.start)
        zero = jnp.zeros((), jnp.int32)
        lr = jnp.asarray(at(self.lr, t), problem.start.dtype)
        return State(tree.terms(), tree.start, m, lr, zero, zero, self.first(t))

    def step(self, state: State, s: Scalar, objective: Objective, key: Key) -> State:
        problem, v, m, lr, steps, spent, first = state
        g, examples = self.batch_grad(v, s, objective, key, first)
        if self.reduction == "sum":
            g = jax.tree.map(lambda x: x * examples.astype(x.dtype), g)
        g = problem.gradient(g, v)
        if self.clip is not None:
            shrink = jnp.minimum(1, self.clip / jnp.maximum(optax.tree.norm(g), self.clip))
            g = jax.tree.map(lambda x: x * shrink, g)
        if self.weight_decay is not None:
            g = jax.tree.map(lambda x, y: x + self.weight_decay * y, g, v)
        if self.momentum is not None:
            m = g = jax.tree.map(lambda x, y: self.momentum * x + y, m, g)
        v = jax.tree.map(lambda x, y: x - lr * y, v, g)
        return State(problem, v, m, lr, steps + 1, spent + examples, first)

    def end(self, state: State) -> Solution:
        lr_sum = state.lr * state.steps if "lr_sum" in self.offers else jnp.nan
        return Solution(ravel(state.v), state.spent, lr_sum=lr_sum)
