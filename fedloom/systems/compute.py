"""How long a client computes: seconds of a job on a device of speed 1."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from fedloom.hyperparameters import Domain, check_fields, frozen, nonnegative, positive, static
from fedloom.systems.traces import check_trace, is_trace, read_trace, settled

Rng = np.random.Generator
Seconds = Callable[[Rng, int, int, float], float]  # (randomness, client, the number of its job, local steps)


class Compute(ABC):
    """Base of all models of computing time."""

    @abstractmethod
    def over(self, clients: int) -> Seconds:
        """Bind to a population."""


@frozen
class constant(Compute):
    """Every job takes the same time."""

    seconds: float = static(nonnegative, "of every job", default=1.0)

    def over(self, clients: int) -> Seconds:
        return lambda rng, k, job, steps: self.seconds


@frozen
class proportional(Compute):
    """Time grows with the local work: so many seconds for each step of the solver."""

    seconds: float = static(nonnegative, "of one local step", default=0.01)

    def over(self, clients: int) -> Seconds:
        return lambda rng, k, job, steps: self.seconds * steps


def _is_compute(value: Any) -> bool:
    return isinstance(value, Compute)


COMPUTE: dict[str, type[Compute]] = {"constant": constant, "proportional": proportional}
_compute = Domain("a model of computing time such as constant(1.0)", _is_compute, COMPUTE)


@frozen
class lognormal(Compute):
    """Another model's time, times a random factor whose logarithm is normal, with median 1."""

    of: Compute = static(_compute, "the model that gives the median", default=constant())
    sigma: float = static(nonnegative, "standard deviation of the logarithm", default=0.5)

    def over(self, clients: int) -> Seconds:
        inner = self.of.over(clients)
        return lambda rng, k, job, steps: inner(rng, k, job, steps) * float(np.exp(self.sigma * rng.standard_normal()))


@frozen
class exponential(Compute):
    """Another model's time, times a random factor that is exponential, with mean 1."""

    of: Compute = static(_compute, "the model that gives the mean", default=constant())

    def over(self, clients: int) -> Seconds:
        inner = self.of.over(clients)
        return lambda rng, k, job, steps: inner(rng, k, job, steps) * float(rng.standard_exponential())


_recorded = Domain("a table {client: [seconds, ...]} or the name of a CSV file with columns client,seconds", is_trace)


@frozen
class recorded(Compute):
    """Measured times: the jobs of client k take the recorded seconds in turn, and begin again when they are used up."""

    trace: Any = static(_recorded, "a table {client: [seconds, ...]}, or a CSV file", default=None)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "trace", settled(self.trace, ("seconds",)))

    def over(self, clients: int) -> Seconds:
        times = check_trace(read_trace(self.trace, ("seconds",)), clients, "compute")
        missing = next((k for k in range(clients) if not times.get(k)), None)
        if missing is not None:
            raise ValueError(f"compute: the trace has no times for client {missing}; all {clients} clients need some.")
        for k, of_client in times.items():
            for (seconds,) in of_client:
                if not seconds >= 0 or seconds == np.inf:
                    raise ValueError(
                        f"compute: the trace has {seconds} seconds for client {k}; times must be finite "
                        "and non-negative."
                    )
        return lambda rng, k, job, steps: times[k][job % len(times[k])][0]


COMPUTE |= {"lognormal": lognormal, "exponential": exponential, "recorded": recorded}


def check_speeds(value: Any) -> bool:
    """One number, 1 or more, or positive numbers."""
    if isinstance(value, list | tuple | np.ndarray):
        return len(value) > 0 and all(positive.holds(v) for v in value)
    return positive.holds(value) and value >= 1


speeds_domain = Domain(
    "how many times the fastest client is faster than the slowest (1 or more), or a positive speed for each client",
    check_speeds,
)


def speeds_of(speeds: Any, clients: int, rng: Rng) -> np.ndarray:
    """One speed for each client. From one number: evenly spaced from 1 to it, in random order."""
    if isinstance(speeds, list | tuple | np.ndarray):
        if len(speeds) != clients:
            raise ValueError(f"speeds has {len(speeds)} entries for {clients} clients; give one number or {clients}.")
        return np.asarray(speeds, float)
    return rng.permutation(np.linspace(1.0, float(speeds), clients))
