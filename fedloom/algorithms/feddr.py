"""FedDR: randomized Douglas-Rachford splitting, for  minimise  sum_k p_k F_k(w) + g(w).

Tran-Dinh et al., NeurIPS 2021, arXiv:2103.03452.

    client k:  y_k <- y_k + alpha (w - x_k)
               x_k <- prox_{eta F_k}(y_k)                            (inexactly, warm-started at its own x_k)
               send the change of  2 x_k - y_k
    server:    x_hat <- x_hat + sum_{k in cohort} p_k change_k       (so x_hat = sum_k p_k (2 x_k - y_k) always)
               w <- prox_{eta g}(x_hat)

Departures: the paper first lets every user compute prox_{eta F_k}(w0). We start at x_k = y_k = x_hat = w0, which keeps
the law of x_hat and performs that prox at the client's first visit; with everyone it is the paper's sequence, one round
later. The paper's own start (x_hat = w0 after the proxes) leaves a constant offset in x_hat, and a wrong limit. Its n
equal weights 1/n are p_k here. Its theory has alpha < 2; alpha = 2 is Peaceman-Rachford splitting, that is FedSplit.
AsyncFedDR is this file under an asynchronous engine.
"""

from typing import NamedTuple

from fedloom.algorithm import Client, Cohort, Round
from fedloom.hyperparameters import Domain, frozen, hyper, interval, positive
from fedloom.problem import Problem, Vector
from fedloom.regularizers import REGULARIZERS, Regularizer, none


class Server(NamedTuple):
    w: Vector
    x_hat: Vector


class Memory(NamedTuple):
    x: Vector
    y: Vector


_regularizer = Domain("a regularizer such as l1(0.01)", lambda v: isinstance(v, Regularizer), REGULARIZERS)


@frozen
class FedDR(Round):
    eta: float = hyper(positive, "step size of the proximal operators", default=1.0)
    alpha: float = hyper(interval(0, 2, "(]"), "relaxation", default=1.0)
    g: Regularizer = hyper(_regularizer, "regularizer, handled by the server", default=none())

    tolerates_staleness = True

    def init(self, w: Vector) -> Server:
        return Server(w=w, x_hat=w)

    def init_client(self, w: Vector) -> Memory:
        return Memory(x=w, y=w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, k: Memory, client: Client) -> tuple[Vector, Memory]:
        y = k.y + self.alpha * (w - k.x)
        x = client.solve(Problem(start=k.x, anchor=y, mu=1 / self.eta)).w
        return (2 * x - y) - (2 * k.x - k.y), Memory(x, y)

    def receive(self, s: Server, change: Vector, cohort: Cohort) -> Server:
        x_hat = s.x_hat + cohort.total
        return Server(w=self.g.prox(x_hat, self.eta), x_hat=x_hat)

    def invariant(self, s: Server, k: Memory) -> tuple[Vector, Vector]:
        return s.x_hat, 2 * k.x - k.y

    def own_model(self, k: Memory) -> Vector:
        return k.x

    def exact_memory(self, w: Vector, grad: Vector) -> Memory:
        return Memory(x=w, y=w + self.eta * grad)
