"""FedDANE: inexact DANE with sampled clients.

Li et al., "FedDANE: A Federated Newton-Type Method", Asilomar 2019, arXiv:2001.01920.

    exchange 1   client k:  send grad F_k(w)                            server: g <- mean
    exchange 2   client k:  v ~ argmin F_k(v) + gamma_t <g - grad F_k(w), v - w> + mu/2 |v - w|^2, from w
                            send v                                      server: w <- mean of v

    pipelined, one exchange: as 2, with the g of the round before; send (v, grad F_k(w)); g <- mean of the gradients.

gamma_t = correction * decay^t. With everyone it is inexact DANE; with correction = 0 it is FedProx.
mu may be an array with one mu_k for each client (theorem 7).

Departures: the paper's box lets one cohort do both exchanges (the default), its prose draws a second one (`fresh`;
cohort rules that go by the round alone, `cyclic` and `scheduled`, give the same one again).
The paper only names the decayed and the pipelined variant. Pipelined, a client subtracts its gradient at the current w,
and the first round, which has no g yet, makes no correction.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedloom.algorithm import Algorithm, Client, Cohort, Exchange
from fedloom.hyperparameters import flag, frozen, hyper, interval, nonnegative, static
from fedloom.problem import Problem, Vector


class Server(NamedTuple):
    w: Vector
    g: Vector


@frozen
class FedDANE(Algorithm):
    mu: Any = hyper(nonnegative, "weight of the proximal term", default=0.1, per_client=True)
    correction: float = hyper(nonnegative, "weight of the gradient correction in the first round", default=1.0)
    decay: float = hyper(interval(0, 1, "[]"), "factor of the correction from round to round", default=1.0)
    fresh: bool = static(flag, "draw a second cohort for the second exchange", default=False)
    pipelined: bool = static(flag, "one exchange a round, correcting with the last round's g", default=False)

    def init(self, w: Vector) -> Server:
        return Server(w, g=jnp.zeros_like(w))

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        if self.pipelined:
            return (Exchange("train", self.send, self.solve_and_gradient, self.set_both),)
        return (
            Exchange("gradient", self.send_model, self.gradient, self.set_gradient),
            Exchange("train", self.send, self.solve, self.set_model, same_cohort=not self.fresh),
        )

    def send_model(self, s: Server) -> Vector:
        return s.w

    def gradient(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.grad(w), ()

    def set_gradient(self, s: Server, g: Vector, cohort: Cohort) -> Server:
        return Server(s.w, g)

    def send(self, s: Server) -> Server:
        return s

    def solve(self, s: Server, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return self.solve_and_gradient(s, _, client)[0].w, ()

    def set_model(self, s: Server, w: Vector, cohort: Cohort) -> Server:
        return Server(w, s.g)

    def solve_and_gradient(self, s: Server, _: tuple[()], client: Client) -> tuple[Server, tuple[()]]:
        grad = client.grad(s.w)
        gamma = jnp.asarray(self.correction * self.decay**client.t, grad.dtype)
        if self.pipelined:
            gamma = jnp.where(client.t > 0, gamma, 0)
        problem = Problem(start=s.w, linear=gamma * (s.g - grad), anchor=s.w, mu=self.mu)
        return Server(client.solve(problem).w, grad), ()

    def set_both(self, s: Server, mean: Server, cohort: Cohort) -> Server:
        return mean
