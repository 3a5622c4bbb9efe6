"""FedAsync: asynchronous averaging, in which late replies count less.

Xie, Koyejo and Gupta, "Asynchronous Federated Optimization", arXiv:1903.03934.

    client k:  v ~ argmin F_k(v) + rho/2 |v - w|^2, from w
               send v
    server:    a_t = alpha s(staleness)
               w <- (1 - a_t) w + a_t v

    s(tau) = 1                                   constant
             (tau + 1)^-a                        polynomial
             1 if tau <= b, else 1 / (a (tau - b) + 1)   hinge

Departures: none with a buffer of one reply, which is what the paper has; with more, v is their mean and the staleness
their mean staleness. In a synchronous engine the staleness is 0.
"""

import jax.numpy as jnp

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import choice, frozen, hyper, interval, nonnegative, positive, static
from fedloom.problem import Problem, Scalar, Vector


@frozen
class FedAsync(Round):
    alpha: float = hyper(interval(0, 1, "(]"), "share of a fresh reply", default=0.6)
    rho: float = hyper(nonnegative, "weight of the proximal term", default=0.005)
    discount: str = static(choice("constant", "polynomial", "hinge"), "what late replies count", default="polynomial")
    a: float = hyper(positive, "how fast it falls with staleness", default=0.5)
    b: float = hyper(nonnegative, "staleness from which the hinge falls", default=4.0)

    exact = False
    tolerates_staleness = True

    def init(self, w: Vector) -> Server:
        return Server(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.solve(Problem(start=w, anchor=w, mu=self.rho)).w, ()

    def receive(self, s: Server, v: Vector, cohort: Cohort) -> Server:
        a_t = jnp.asarray(self.alpha * self.s(cohort.staleness), v.dtype)
        return Server((1 - a_t) * s.w + a_t * v)

    def s(self, tau: Scalar) -> Scalar:
        """What a reply counts that is tau updates late, as a part of a fresh one."""
        if self.discount == "constant":
            return 1.0
        if self.discount == "polynomial":
            return (tau + 1.0) ** -self.a
        return 1 / (self.a * jnp.maximum(tau - self.b, 0) + 1)
