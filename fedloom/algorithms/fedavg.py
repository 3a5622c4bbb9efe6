"""FedAvg with two-sided learning rates.

McMahan et al., AISTATS 2017, arXiv:1602.05629 (lr = 1); Yang, Fang and Liu, "Achieving Linear Speedup with Partial
Worker Participation in Non-IID Federated Learning", ICLR 2021, arXiv:2101.11203.

    client k:  v <- local steps on F_k from w, with the solver's step size eta_l
               send v - w
    server:    w <- w + lr * mean of (v - w)

Departures: none. lr is the second paper's eta; its two ways of sampling are the cohort rules `with_replacement` and
`uniform`, and its uniform mean is a federation with uniform weights.
"""

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import frozen, hyper, positive
from fedloom.problem import Problem, Vector


@frozen
class FedAvg(Round):
    lr: float = hyper(positive, "server step size", default=1.0)

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
