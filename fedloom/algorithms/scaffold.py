"""SCAFFOLD: control variates against client drift.

Karimireddy et al., ICML 2020, arXiv:1910.06378.

    client k:  v <- steps on F_k(v) + <c - c_k, v> from w
               option I:   c_k+ = grad F_k(w)
               option II:  c_k+ = c_k - c + (w - v) / (sum of the step sizes)
               send (v - w, c_k+ - c_k);  c_k <- c_k+
    server:    w <- w + lr * mean of (v - w)
               c <- c + sum_{k in cohort} p_k (c_k+ - c_k)              (so c = sum_k p_k c_k always)

Departures: the server's factor for c is the cohort's population weight; with equal weights that is the paper's |S|/N.
FedOpt (arXiv:2003.00295, Algorithm 6) lets c_k = c at a client's first visit, so that this visit is plain FedAvg.
Printed like that, c = sum_k p_k c_k breaks for ever and the limit is wrong; first_contact = "c" counts the whole c_k+
at the first visit, which keeps both. "c-as-printed" is the printed rule, for comparison only.
With a divisor D in place of the sum of step sizes S, option II becomes

    c_k+ = c_k - c + (w - v) / D = (1 - S/D) (c_k - c) + S/D (mean of the gradients on the way)

which forgets slowly where S < D; c = sum_k p_k c_k stays. FedDyn's program has D = K times the first round's step size
also when steps have become smaller, and it clips the steps, in which v - w is no sum of gradients and S means nothing.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedloom.algorithm import Client, Cohort, Round
from fedloom.hyperparameters import check_fields, choice, frozen, hyper, optional, positive, static
from fedloom.problem import Problem, Scalar, Vector


class Server(NamedTuple):
    w: Vector
    c: Vector


class Memory(NamedTuple):
    c: Vector
    met: Scalar  # has this client taken part before?


@frozen
class Scaffold(Round):
    lr: float = hyper(positive, "server step size", default=1.0)
    option: str = static(choice("I", "II"), "how a client renews its control variate", default="II")
    first_contact: str = static(
        choice("zero", "c", "c-as-printed"), "a client's control variate at its first visit", default="zero"
    )
    divisor: float | None = hyper(
        optional(positive),
        "of w - v in option II, for any solver, as in FedDyn's program; None: the sum of the step sizes",
        default=None,
    )

    tolerates_staleness = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.option == "I" and self.divisor is not None:
            raise ValueError("Scaffold: divisor is of option II; option I evaluates a gradient instead.")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"lr_sum"} if self.option == "II" and self.divisor is None else ())

    def init(self, w: Vector) -> Server:
        return Server(w, c=jnp.zeros_like(w))

    def init_client(self, w: Vector) -> Memory:
        return Memory(c=jnp.zeros_like(w), met=jnp.array(False))

    def send(self, s: Server) -> Server:
        return s

    def local(self, s: Server, k: Memory, client: Client) -> tuple[Server, Memory]:
        w, c = s
        c_k = k.c if self.first_contact == "zero" else jnp.where(k.met, k.c, c)
        solution = client.solve(Problem(start=w, linear=c - c_k))
        v = solution.w
        if self.option == "I":
            c_new = client.grad(w)
        else:
            c_new = c_k - c + (w - v) / (solution.lr_sum if self.divisor is None else self.divisor)
        c_old = c_k if self.first_contact == "c-as-printed" else k.c
        return Server(v - w, c_new - c_old), Memory(c_new, met=jnp.array(True))

    def receive(self, s: Server, mean: Server, cohort: Cohort) -> Server:
        return Server(w=s.w + self.lr * mean.w, c=s.c + cohort.total.c)

    def invariant(self, s: Server, k: Memory) -> tuple[Vector, Vector]:
        return s.c, k.c

    def exact_memory(self, w: Vector, grad: Vector) -> Memory:
        return Memory(c=grad, met=jnp.array(True))
