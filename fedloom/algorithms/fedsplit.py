"""FedSplit: Peaceman-Rachford splitting.

Pathak and Wainwright, NeurIPS 2020, arXiv:2005.05238; partial participation as in FedDyn's appendix, arXiv:2111.04263.

    client k:  v ~ prox_{eta F_k}(2 x - z_k)
               z_k <- z_k + 2 (v - x)
    server:    averaging = "all":     x <- sum_k p_k z_k over all clients: it adds the cohort's changes of z_k
               averaging = "active":  x <- mean of the cohort's z_k

Departures: the paper starts the inexact prox at its centre 2 x - z_k, which biases the limit; we start at x.
"""

from typing import NamedTuple

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import choice, frozen, hyper, positive, static
from fedloom.problem import Problem, Vector


class Memory(NamedTuple):
    z: Vector
    x: Vector  # its own model: not needed for the next round


@frozen
class FedSplit(Round):
    eta: float = hyper(positive, "step size of the proximal operators, the paper's s", default=1.0)
    averaging: str = static(choice("all", "active"), "whose z_k the server averages", default="all")

    why_not_stale = "it is FedDR with alpha = 2, and late replies need a smaller alpha: use FedDR."

    def init(self, w: Vector) -> Server:
        return Server(w)

    def init_client(self, w: Vector) -> Memory:
        return Memory(z=w, x=w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, x: Vector, k: Memory, client: Client) -> tuple[Vector, Memory]:
        v = client.solve(Problem(start=x, anchor=2 * x - k.z, mu=1 / self.eta)).w
        change = 2 * (v - x)
        z = k.z + change
        return change if self.averaging == "all" else z, Memory(z, v)

    def receive(self, s: Server, reply: Vector, cohort: Cohort) -> Server:
        return Server(s.w + cohort.total if self.averaging == "all" else reply)

    def invariant(self, s: Server, k: Memory) -> tuple[Vector, Vector] | None:
        return (s.w, k.z) if self.averaging == "all" else None

    def own_model(self, k: Memory) -> Vector:
        return k.x

    def exact_memory(self, w: Vector, grad: Vector) -> Memory:
        return Memory(z=w - self.eta * grad, x=w)
