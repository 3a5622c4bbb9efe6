"""FedSGD: distributed gradient descent, the method that all others try to outrun.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
arXiv:1602.05629.

    client k:  send g_k = grad F_k(w)
    server:    w <- w - lr * mean of g_k

Departures: none. The gradient is over all local data; the solver is not used.
"""

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import frozen, hyper, positive
from fedloom.problem import Vector


@frozen
class FedSGD(Round):
    lr: float = hyper(positive, "server step size", default=0.1)

    tolerates_staleness = True

    def init(self, w: Vector) -> Server:
        return Server(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.grad(w), ()

    def receive(self, s: Server, g: Vector, cohort: Cohort) -> Server:
        return Server(s.w - self.lr * g)
