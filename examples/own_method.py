"""A method of one's own: FedAvg whose server takes Nesterov's accelerated step.

    fedloom check examples/own_method.py:Mine
    fedloom compare digits --algorithms fedavg,examples/own_method.py:Mine --rounds 20

In each round, with the mean of the clients' updates v_k - w:

    m <- momentum * m + mean
    w <- w + lr * (momentum * m + mean)
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

import fedloom as fl
from fedloom.hyperparameters import positive, probability
from fedloom.problem import Vector


class State(NamedTuple):
    w: Vector
    m: Vector


@fl.frozen
class Mine(fl.Round):
    lr: float = fl.hyper(positive, "server step size", default=0.5)
    momentum: float = fl.hyper(probability, "of the server", default=0.5)

    exact = False  # as FedAvg's, its limit misses the optimum by O(client step size), and the battery checks that law

    def init(self, w: Vector) -> State:
        return State(w, jnp.zeros_like(w))

    def send(self, s: State) -> Vector:
        return s.w

    def local(self, w: Vector, memory: Any, client: fl.Client) -> tuple[Vector, Any]:
        return client.solve(fl.Problem(start=w)).w - w, memory

    def receive(self, s: State, mean: Vector, cohort: fl.Cohort) -> State:
        m = self.momentum * s.m + mean
        return State(s.w + self.lr * (self.momentum * m + mean), m)
