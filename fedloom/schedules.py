"""Numbers that change with the round t = 0, 1, 2, ...: step sizes and tolerances."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from fedloom.hyperparameters import Domain, count, frozen, hyper, positive, static
from fedloom.problem import Scalar


class Schedule(ABC):
    """A function of the round."""

    @abstractmethod
    def __call__(self, t: Scalar) -> Scalar: ...


def at(value: Any, t: Scalar) -> Scalar:
    """The value in round t of a number, which is the same in every round, or of a schedule."""
    return value(t) if isinstance(value, Schedule) else value


SCHEDULES: dict[str, type[Schedule]] = {}  # filled below, because a schedule may contain another
scheduled_positive = Domain(
    "a positive number or a schedule (wrap a plain function f(t): schedules.function(f))",
    lambda v: isinstance(v, Schedule) or positive.holds(v),
    SCHEDULES,
)
_function = Domain("a function of the round", callable)


@frozen
class constant(Schedule):
    """value."""

    value: float = hyper(positive, "the value", default=0.1)

    def __call__(self, t: Scalar) -> Scalar:
        return self.value


@frozen
class exponential(Schedule):
    """value * decay^t."""

    value: float = hyper(positive, "the value in the first round", default=0.1)
    decay: float = hyper(positive, "factor applied after each round", default=0.998)

    def __call__(self, t: Scalar) -> Scalar:
        return self.value * self.decay**t


@frozen
class staircase(Schedule):
    """value * decay^floor(t / every)."""

    value: float = hyper(positive, "the value in the first round", default=0.1)
    decay: float = hyper(positive, "factor applied at each step", default=0.1)
    every: int = static(count, "rounds between steps", default=500)

    def __call__(self, t: Scalar) -> Scalar:
        return self.value * self.decay ** (t // self.every)


@frozen
class inverse_sqrt(Schedule):
    """value / sqrt(t + 1)."""

    value: float = hyper(positive, "the value in the first round", default=0.1)

    def __call__(self, t: Scalar) -> Scalar:
        return self.value / jnp.sqrt(t + 1.0)


@frozen
class inverse(Schedule):
    """value / (t + 1): its squares are summable, which FedDR requires of its accuracies."""

    value: float = hyper(positive, "the value in the first round", default=0.1)

    def __call__(self, t: Scalar) -> Scalar:
        return self.value / (t + 1.0)


@frozen
class warm_up(Schedule):
    """Grows linearly to the value of `then`: (t + 1) / rounds of it while t < rounds."""

    then: Any = hyper(scheduled_positive, "the schedule or number that it grows to", default=0.1)
    rounds: int = static(count, "rounds until the full value", default=10)

    def __call__(self, t: Scalar) -> Scalar:
        return at(self.then, t) * jnp.minimum(1.0, (t + 1.0) / self.rounds)


@frozen
class function(Schedule):
    """Any function of the round, for example an optax schedule."""

    f: Callable[[Scalar], Scalar] = static(_function, "f(t)", default=None)

    def __call__(self, t: Scalar) -> Scalar:
        return self.f(t)


SCHEDULES |= {
    "constant": constant,
    "exponential": exponential,
    "staircase": staircase,
    "inverse-sqrt": inverse_sqrt,
    "inverse": inverse,
    "warm-up": warm_up,
    "function": function,
}
