"""FedPD: a primal-dual method with communication skipping.

Zhang et al., "FedPD: A Federated Learning Framework with Adaptivity to Non-IID Data", IEEE TSP 2021, arXiv:2005.11418.

    client k, R times:  x_k ~ argmin F_k(v) + <lambda_k, v> + 1/(2 eta) |v - x0|^2, from x0
                        lambda_k <- lambda_k + (x_k - x0) / eta
                        x0 <- x_k + eta lambda_k
               then:    send x0
    server:             x0 <- mean of x0

After every update a coin that all clients share decides: with probability `skip` (the paper's p) nobody communicates
and each continues from its own x0. So the number R of updates between two communications is geometric; here these R
updates are one round. The optimum is a fixed point for skip = 0 only: between communications a client drifts towards
its own minimiser, and the paper's bound has a term in the clients' dissimilarity for skip > 0.

start = "own" starts a solve at the client's own x_k, which the solve before it ended with, as in the FedPD of FedDR's
authors; the first solve starts at the initial model. With an exact solver both are the same.

Departures: none from the paper's text; its Matlab code sends x_k + eta * the old lambda_k.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.hyperparameters import choice, frozen, hyper, positive, probability, static
from fedloom.problem import Problem, Vector


class Memory(NamedTuple):
    dual: Vector  # the paper's lambda
    x: Vector  # its own model: what published curves evaluate, and where start = "own" goes on


@frozen
class FedPD(Round):
    eta: float = hyper(positive, "inverse weight of the proximal term", default=1.0)
    skip: float = hyper(probability, "probability that a communication is skipped", default=0.0)
    start: str = static(
        choice("x0", "own"), "where a solve starts: at x0, or at the client's own x_k of the solve before", default="x0"
    )

    needs_everyone = True
    why_not_stale = "its new model is the mean of what all clients send, at one moment."

    def init(self, w: Vector) -> Server:
        return Server(w)

    def init_client(self, w: Vector) -> Memory:
        return Memory(dual=jnp.zeros_like(w), x=w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, x0: Vector, k: Memory, client: Client) -> tuple[Vector, Memory]:
        def update(state: tuple[Vector, Vector, Vector]) -> tuple[Vector, Vector, Vector]:
            x0, dual, x = state
            start = x if self.start == "own" else x0
            x = client.solve(Problem(start=start, linear=dual, anchor=x0, mu=1 / self.eta)).w
            dual = dual + (x - x0) / self.eta
            return x + self.eta * dual, dual, x

        u = jax.random.uniform(client.coin, minval=1e-30)
        updates = 1 + jnp.floor(jnp.log(u) / jnp.log(self.skip)).astype(jnp.int32)
        x0, dual, x = client.repeat(updates, update, (x0, k.dual, k.x))
        return x0, Memory(dual, x)

    def receive(self, s: Server, mean: Vector, cohort: Cohort) -> Server:
        return Server(mean)

    def own_model(self, k: Memory) -> Vector:
        return k.x

    def exact_memory(self, w: Vector, grad: Vector) -> Memory:
        return Memory(dual=-grad, x=w)
