"""FedProx.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127.

    client k:  v ~ argmin F_k(v) + mu/2 |v - w|^2, from w
               send v - w
    server:    w <- w + lr * mean of (v - w)

mu may be an array with one mu_k for each client. Stragglers that return after a part of their work are the cohort rule
`stragglers`; the paper's gamma-inexact solutions are the solver `ToTolerance`.

term = "linear" is what FedDyn's authors compared with: until January 2022 their program lost the square of the term,

    client k:  v ~ argmin F_k(v) - mu <w, v>, from w

which does not hold v back, but drives it on in the direction of w; with a weight decay of mu it cancels that at v = w.

Departures: the paper has lr = 1.
"""

from typing import Any

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import choice, frozen, hyper, nonnegative, positive, static
from fedloom.problem import Problem, Vector


@frozen
class FedProx(Round):
    mu: Any = hyper(nonnegative, "weight of the proximal term", default=0.01, per_client=True)
    lr: float = hyper(positive, "server step size", default=1.0)
    term: str = static(
        choice("proximal", "linear"),
        "the whole term, or its linear part alone, as in FedDyn's program until 2022",
        default="proximal",
    )

    exact = False
    tolerates_staleness = True

    def init(self, w: Vector) -> Server:
        return Server(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        if self.term == "linear":
            problem = Problem(start=w, linear=-self.mu * w)
        else:
            problem = Problem(start=w, anchor=w, mu=self.mu)
        return client.solve(problem).w - w, ()

    def receive(self, s: Server, dw: Vector, cohort: Cohort) -> Server:
        return Server(s.w + self.lr * dw)
