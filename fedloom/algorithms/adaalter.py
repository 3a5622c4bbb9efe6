"""AdaAlter: Adagrad on the clients, its accumulator averaged by the server.

Xie et al., "Local AdaAlter", 2019, arXiv:1911.09030, as FedOpt's appendix B.3 describes it, arXiv:2003.00295.

    client k:  (v, a_k) <- Adagrad steps on F_k from model w and accumulator a
               send (v - w, a_k - a)
    server:    w <- w + lr * mean of (v - w);  a <- a + mean of (a_k - a)

It needs a solver that keeps an accumulator: Adagrad.

Departures: the cited paper freezes the accumulator during local steps and adds epsilon^2 for each of them; the appendix
says local Adagrad, and so do we.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedloom.algorithm import Client, Cohort, Round
from fedloom.hyperparameters import frozen, hyper, nonnegative, positive
from fedloom.problem import Problem, Vector


class Server(NamedTuple):
    w: Vector
    a: Vector


@frozen
class AdaAlter(Round):
    lr: float = hyper(positive, "server step size", default=1.0)
    initial_a: float = hyper(nonnegative, "first value of the accumulator", default=1.0)

    exact = False
    why_not_stale = "its clients share one sequence of accumulators, which late replies would put out of order."

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"accumulator"})

    def init(self, w: Vector) -> Server:
        return Server(w, a=jnp.full_like(w, self.initial_a))

    def send(self, s: Server) -> Server:
        return s

    def local(self, s: Server, _: tuple[()], client: Client) -> tuple[Server, tuple[()]]:
        solution = client.solve(Problem(start=s.w, accumulator=s.a))
        return Server(solution.w - s.w, solution.accumulator - s.a), ()

    def receive(self, s: Server, mean: Server, cohort: Cohort) -> Server:
        return Server(w=s.w + self.lr * mean.w, a=s.a + mean.a)
