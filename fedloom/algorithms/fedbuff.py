"""FedBuff: buffered asynchronous aggregation.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, arXiv:2106.06639.

    client k:  v <- local steps on F_k from w
               send v - w
    server:    when K replies have come:   w <- w + lr * mean of s(tau_k) (v_k - w_k),   s(tau) = (1 + tau)^-a

Here w_k is the model that client k started with, tau_k updates ago; K is the engine's `buffer`.

Departures: the mean weighs clients by p_k, which for uniform weights is the paper's 1/K. The paper's server step size
lr belongs to K: it uses the momentum of FedAvgM too, which is not here.
"""

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import frozen, hyper, nonnegative, positive
from fedloom.problem import Problem, Scalar, Vector


@frozen
class FedBuff(Round):
    lr: float = hyper(positive, "server step size", default=1.0)
    a: float = hyper(nonnegative, "how fast weights fall with staleness", default=0.5)

    exact = False
    tolerates_staleness = True

    def init(self, w: Vector) -> Server:
        return Server(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.solve(Problem(start=w)).w - w, ()

    def aged(self, dw: Vector, staleness: Scalar) -> Vector:
        return (1.0 + staleness) ** -self.a * dw

    def receive(self, s: Server, dw: Vector, cohort: Cohort) -> Server:
        return Server(s.w + self.lr * dw)
