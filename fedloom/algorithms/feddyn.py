"""FedDyn: dynamic regularization.

Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, arXiv:2111.04263.

    client k:  theta_k ~ argmin F_k(v) - <g_k, v> + alpha/2 |v - theta|^2, from theta
               g_k <- g_k - alpha (theta_k - theta)
               send theta_k
    server:    h <- h - alpha sum_{k in cohort} p_k (theta_k - theta)      (so h = sum_k p_k g_k always)
               theta <- mean of theta_k - h / alpha

weighting = "alpha" is the authors' code for devices of unequal sizes, with w_k = m p_k, which is n_k / mean(n):

    client k:  as above, with alpha_k = alpha / w_k in place of alpha
    server:    as above, with 1/m in place of p_k in both sums: the mean of theta_k is plain

Their h_k is -g_k / alpha_k, the running sum of theta_k - theta, and their server adds (1/m) sum_k h_k to the mean: the
same, since sum_k p_k g_k = -(alpha/m) sum_k h_k. So h = sum_k p_k g_k as above, and the minimiser of sum_k p_k F_k is
the fixed point. A client sends theta_k / w_k and the number 1 / w_k, whose sums with p_k are the plain ones.

FedDynOneGD (appendix C.1) replaces the argmin by one gradient step: theta_k = theta - (grad F_k(theta) - g_k) / alpha,
and so remembers g_k = the gradient it just took; it does not use the solver.

Departures: the paper has equal weights p_k = 1/m. By default (weighting = "means") weights are in the server's sums,
which has the fixed point of the authors' code, but not its iterates. The model is theta (their "cloud" model); their
curves show the mean of all clients' last models, which experiments evaluate as "last models".
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedloom.algorithm import Client, Cohort, Round
from fedloom.hyperparameters import choice, frozen, hyper, positive, static
from fedloom.problem import Problem, Scalar, Vector


class Server(NamedTuple):
    w: Vector  # the paper's theta
    h: Vector


class Plain(NamedTuple):
    """A reply of which sums with weights p_k = w_k / m are plain sums over the clients, divided by m."""

    theta: Vector  # theta_k / w_k
    count: Scalar  # 1 / w_k


def server_update(s: Server, mean: Vector, cohort: Cohort, alpha: float) -> Server:
    h = s.h - alpha * (cohort.total - cohort.share * s.w)
    return Server(w=mean - h / alpha, h=h)


@frozen
class FedDyn(Round):
    alpha: float = hyper(positive, "weight of the dynamic regularizer", default=0.01)
    weighting: str = static(
        choice("means", "alpha"),
        "where clients' weights enter: the server's means, or alpha, divided by a client's relative weight",
        default="means",
    )

    why_not_stale = "its server subtracts its own model from the replies, which must be the one they started from."

    def init(self, w: Vector) -> Server:
        return Server(w, h=jnp.zeros_like(w))

    def init_client(self, w: Vector) -> Vector:
        return jnp.zeros_like(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, theta: Vector, g: Vector, client: Client) -> tuple[Any, Vector]:
        if self.weighting == "alpha":
            w_k = jnp.asarray(client.relative_weight, theta.dtype)
            w_k = jnp.where(w_k > 0, w_k, 1)  # a client without weight does not count, whatever it sends
            theta_k, g = self.solved(theta, g, client, self.alpha / w_k)
            return Plain(theta_k / w_k, 1 / w_k), g
        return self.solved(theta, g, client, self.alpha)

    def solved(self, theta: Vector, g: Vector, client: Client, alpha: Scalar) -> tuple[Vector, Vector]:
        theta_k = client.solve(Problem(start=theta, linear=-g, anchor=theta, mu=alpha)).w
        return theta_k, g - alpha * (theta_k - theta)

    def receive(self, s: Server, mean: Any, cohort: Cohort) -> Server:
        if self.weighting == "alpha":
            mean, cohort = mean.theta / mean.count, cohort._replace(total=cohort.total.theta, share=cohort.total.count)
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
