"""Lookahead across clients: an adaptive client optimizer with slow weights on the server.

Zhang et al., "Lookahead Optimizer: k steps forward, 1 step back", NeurIPS 2019, arXiv:1907.08610, in the federated form
of FedOpt's appendix B.3, arXiv:2003.00295.

    client k:  v <- fast steps on F_k from w, with any optimizer, its slots fresh; send v - w
    server:    w <- w + lr * mean of (v - w)

The client optimizer is the solver, for example Optax(optax.adam(1e-3), epochs=1).

Departures: none; the appendix leaves the client optimizer open and the server's step to SGD.
"""

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import frozen, hyper, interval
from fedloom.problem import Problem, Vector


@frozen
class Lookahead(Round):
    lr: float = hyper(interval(0, 1, "(]"), "how far the slow weights go towards the fast ones", default=0.5)

    exact = False
    tolerates_staleness = True

    def init(self, w: Vector) -> Server:
        return Server(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.solve(Problem(start=w)).w - w, ()

    def receive(self, s: Server, dw: Vector, cohort: Cohort) -> Server:
        return Server(s.w + self.lr * dw)
