"""FedDyn: dynamic regularization.

Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, arXiv:2111.04263.

    client k:  theta_k ~ argmin F_k(v) - <g_k, v> + alpha/2 |v - theta|^2, from theta
               g_k <- g_k - alpha (theta_k - theta)
               send theta_k
    server:    h <- h - alpha sum_{k in cohort} p_k (theta_k - theta)      (so h = sum_k p_k g_k always)
               theta <- mean of theta_k - h / alpha

FedDynOneGD (appendix C.1) replaces the argmin by one gradient step: theta_k = theta - (grad F_k(theta) - g_k) / alpha,
and so remembers g_k = the gradient it just took; it does not use the solver.

Departures: the paper has equal weights p_k = 1/m. The authors' code weighs examples by dividing alpha by the client's
relative size; here weights are in the sums, which has the same fixed point. The model to evaluate is theta (their
"cloud" model), not the mean of all clients' last models that their curves show.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedloom.algorithm import Client, Cohort, Round
from fedloom.hyperparameters import frozen, hyper, positive
from fedloom.problem import Problem, Vector


class Server(NamedTuple):
    w: Vector  # the paper's theta
    h: Vector


def server_update(s: Server, mean: Vector, cohort: Cohort, alpha: float) -> Server:
    h = s.h - alpha * (cohort.total - cohort.share * s.w)
    return Server(w=mean - h / alpha, h=h)


@frozen
class FedDyn(Round):
    alpha: float = hyper(positive, "weight of the dynamic regularizer", default=0.01)

    why_not_stale = "its server subtracts its own model from the replies, which must be the one they started from."

    def init(self, w: Vector) -> Server:
        return Server(w, h=jnp.zeros_like(w))

    def init_client(self, w: Vector) -> Vector:
        return jnp.zeros_like(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, theta: Vector, g: Vector, client: Client) -> tuple[Vector, Vector]:
        theta_k = client.solve(Problem(start=theta, linear=-g, anchor=theta, mu=self.alpha)).w
        return theta_k, g - self.alpha * (theta_k - theta)

    def receive(self, s: Server, mean: Vector, cohort: Cohort) -> Server:
        return server_update(s, mean, cohort, self.alpha)

    def invariant(self, s: Server, g: Vector) -> tuple[Vector, Vector]:
        return s.h, g

    def exact_memory(self, w: Vector, grad: Vector) -> Vector:
        return grad


@frozen
class FedDynOneGD(Round):
    about = "FedDyn's variant with one gradient a round instead of local minimisation."
    alpha: float = hyper(positive, "inverse step size", default=10.0)

    def init(self, w: Vector) -> Server:
        return Server(w, h=jnp.zeros_like(w))

    def init_client(self, w: Vector) -> Vector:
        return jnp.zeros_like(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, theta: Vector, g: Vector, client: Client) -> tuple[Vector, Vector]:
        theta_k = theta - (client.grad(theta) - g) / self.alpha
        return theta_k, g - self.alpha * (theta_k - theta)

    def receive(self, s: Server, mean: Vector, cohort: Cohort) -> Server:
        return server_update(s, mean, cohort, self.alpha)

    def invariant(self, s: Server, g: Vector) -> tuple[Vector, Vector]:
        return s.h, g

    def exact_memory(self, w: Vector, grad: Vector) -> Vector:
        return grad
