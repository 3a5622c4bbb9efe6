"""FedOpt: FedAvg whose server treats the mean update as a (negative) gradient.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295; FedAvgM: Hsu, Qi and Brown, 2019,
arXiv:1909.06335.

    client k:     send v - w after local steps on F_k from w
    server:       delta <- mean of (v - w)
                  m <- beta1 m + (1 - beta1) delta
      FedAdagrad  v <- v + m^2
      FedAdam     v <- beta2 v + (1 - beta2) m^2
      FedYogi     v <- v - (1 - beta2) m^2 sign(v - m^2)
                  w <- w + lr m / (sqrt(v) + tau)
      FedAvgM     m <- beta m + lr delta;  w <- w + m

m starts at 0 and v at tau^2; there is no bias correction. `FedOpt` takes any optax optimizer instead.

Departures: none by default. The authors' runs differ from their pseudo-code, and the differences are options:
second_moment = "raw" builds v from delta instead of m (they call the printed line a typo); initial_v = 0 starts v at 0;
bias_correction = "keras" multiplies the step by sqrt(1 - beta2^t) / (1 - beta1^t) with t = 1 in the first round, and
"flower" does so with t = 2, as that library has it. optax's own adam, yogi and adagrad are yet other variants.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fedloom.algorithm import Client, Cohort, Round
from fedloom.hyperparameters import (
    choice,
    frozen,
    hyper,
    nonnegative,
    optax_optimizer,
    optional,
    positive,
    probability,
    static,
)
from fedloom.hyperparameters import optimizer as named
from fedloom.problem import Problem, Scalar, Vector


class ServerOptimizer(Round):
    """What all methods of this file share: clients that do as in FedAvg."""

    exact = False
    tolerates_staleness = True

    def send(self, s: Any) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.solve(Problem(start=w)).w - w, ()


class Moments(NamedTuple):
    w: Vector
    m: Vector
    v: Vector
    t: Scalar  # server updates so far


@frozen
class Adaptive(ServerOptimizer):
    """The server step of FedAdagrad, FedAdam and FedYogi."""

    lr: float = hyper(positive, "server step size", default=0.01)
    beta1: float = hyper(probability, "momentum", default=0.9)
    tau: float = hyper(positive, "adaptivity: added to the root", default=1e-3)
    initial_v: float | None = hyper(optional(nonnegative), "first value of v; None is tau^2", default=None)
    second_moment: str = static(
        choice("smoothed", "raw"), "what is squared into v: m, or delta itself", default="smoothed"
    )

    def init(self, w: Vector) -> Moments:
        v = self.tau**2 if self.initial_v is None else self.initial_v
        return Moments(w, jnp.zeros_like(w), jnp.full_like(w, v), jnp.zeros((), jnp.int32))

    def receive(self, s: Moments, delta: Vector, cohort: Cohort) -> Moments:
        m = self.beta1 * s.m + (1 - self.beta1) * delta
        v = self.next_v(s.v, (m if self.second_moment == "smoothed" else delta) ** 2)
        w = s.w + self.lr * jnp.asarray(self.multiplier(s.t), m.dtype) * m / (jnp.sqrt(v) + self.tau)
        return Moments(w, m, v, s.t + 1)

    @abstractmethod
    def next_v(self, v: Vector, squares: Vector) -> Vector: ...

    @abstractmethod
    def multiplier(self, t: Scalar) -> Scalar:
        """Of the step size, after t server updates."""


@frozen
class FedAdagrad(Adaptive):
    about = "FedOpt with Adagrad at the server: steps shrink with the sum of squared updates."
    lr: float = hyper(positive, "server step size", default=0.1)
    beta1: float = hyper(probability, "momentum", default=0.0)

    def next_v(self, v: Vector, squares: Vector) -> Vector:
        return v + squares

    def multiplier(self, t: Scalar) -> Scalar:
        return 1.0


BIAS_CORRECTION = choice("none", "keras", "flower")


def bias_correction(rule: "FedAdam | FedYogi", t: Scalar) -> Scalar:
    if rule.bias_correction == "none":
        return 1.0
    t = t + (1.0 if rule.bias_correction == "keras" else 2.0)
    return jnp.sqrt(1 - rule.beta2**t) / (1 - rule.beta1**t)


@frozen
class FedAdam(Adaptive):
    about = "FedOpt with Adam at the server: steps by the running mean of squared updates."
    beta2: float = hyper(probability, "memory of the second moment", default=0.99)
    bias_correction: str = static(BIAS_CORRECTION, "multiplier of the step size", default="none")

    def next_v(self, v: Vector, squares: Vector) -> Vector:
        return self.beta2 * v + (1 - self.beta2) * squares

    def multiplier(self, t: Scalar) -> Scalar:
        return bias_correction(self, t)


@frozen
class FedYogi(Adaptive):
    about = "FedOpt with Yogi at the server: as Adam, but the second moment changes additively."
    beta2: float = hyper(probability, "memory of the second moment", default=0.99)
    bias_correction: str = static(BIAS_CORRECTION, "multiplier of the step size", default="none")

    def next_v(self, v: Vector, squares: Vector) -> Vector:
        return v - (1 - self.beta2) * squares * jnp.sign(v - squares)

    def multiplier(self, t: Scalar) -> Scalar:
        return bias_correction(self, t)


class Momentum(NamedTuple):
    w: Vector
    m: Vector


@frozen
class FedAvgM(ServerOptimizer):
    about = "FedAvg with momentum at the server."
    lr: float = hyper(positive, "server step size", default=1.0)
    beta: float = hyper(probability, "momentum", default=0.9)

    def init(self, w: Vector) -> Momentum:
        return Momentum(w, jnp.zeros_like(w))

    def receive(self, s: Momentum, delta: Vector, cohort: Cohort) -> Momentum:
        m = self.beta * s.m + self.lr * delta
        return Momentum(s.w + m, m)


class Slots(NamedTuple):
    w: Vector
    slots: Any


_sgd = named("sgd", learning_rate=1.0)


@frozen
class FedOpt(ServerOptimizer):
    about = "FedAvg whose server gives the mean update to any optax optimizer, as a negative gradient."
    optimizer: optax.GradientTransformation = static(optax_optimizer, "the server's optimizer", default=_sgd)

    def init(self, w: Vector) -> Slots:
        return Slots(w, self.optimizer.init(w))

    def receive(self, s: Slots, delta: Vector, cohort: Cohort) -> Slots:
        updates, slots = self.optimizer.update(-delta, s.slots, s.w)
        return Slots(s.w + updates, slots)
