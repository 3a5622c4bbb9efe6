"""FedProx.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127.

    client k:  v ~ argmin F_k(v) + mu/2 |v - w|^2, from w
               send v - w
    server:    w <- w + lr * mean of (v - w)

mu may be an array with one mu_k for each client. Stragglers that return after a part of their work are the cohort rule
`stragglers`; the paper's gamma-inexact solutions are the solver `ToTolerance`.

Departures: the paper has lr = 1.
"""

from typing import Any

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import frozen, hyper, nonnegative, positive
from fedloom.problem import Problem, Vector


@frozen
class FedProx(Round):
    mu: Any = hyper(nonnegative, "weight of the proximal term", default=0.01, per_client=True)
    lr: float = hyper(positive, "server step size", default=1.0)

    exact = False
    tolerates_staleness = True

    def init(self, w: Vector) -> Server:
        return Server(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.solve(Problem(start=w, anchor=w, mu=self.mu)).w - w, ()

    def receive(self, s: Server, dw: Vector, cohort: Cohort) -> Server:
        return Server(s.w + self.lr * dw)
