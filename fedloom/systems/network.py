"""How long messages travel."""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from fedloom.hyperparameters import Domain, check_fields, frozen, nonnegative, positive, static
from fedloom.systems.traces import tuples

Rng = np.random.Generator


class Links(NamedTuple):
    """Every client's link: bytes per second, and the additional seconds of any message."""

    up: np.ndarray
    down: np.ndarray
    latency: float


class Network(ABC):
    """Base of all models of the network."""

    @abstractmethod
    def over(self, clients: int, rng: Rng) -> Links:
        """Bind to a population."""


def _bandwidth(value: Any) -> bool:
    rates = value if isinstance(value, list | tuple | np.ndarray) else (value,)
    return len(rates) > 0 and all(positive.holds(v) or v == np.inf for v in rates)


_rate = Domain("a positive number of bytes per second, or one for each client", _bandwidth)


@frozen
class links(Network):
    """Every client has a link of its own, whose bandwidth may differ from others'; by default messages take no time."""

    up: Any = static(_rate, "bytes per second from a client to the server", default=math.inf)
    down: Any = static(_rate, "bytes per second from the server to a client", default=math.inf)
    latency: float = static(nonnegative, "additional seconds for every message", default=0.0)
    sigma: float = static(nonnegative, "spread over clients: standard deviation of log bandwidth", default=0.0)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("up", "down"):
            object.__setattr__(self, name, tuples(getattr(self, name)))

    def over(self, clients: int, rng: Rng) -> Links:
        factor = np.exp(self.sigma * rng.standard_normal(clients))
        return Links(
            _of_each("up", self.up, clients) * factor, _of_each("down", self.down, clients) * factor, self.latency
        )


def _of_each(name: str, rate: Any, clients: int) -> np.ndarray:
    if np.ndim(rate) and len(rate) != clients:
        raise ValueError(f"links: {name} has {len(rate)} entries for {clients} clients; give one number or {clients}.")
    return np.broadcast_to(np.asarray(rate, float), clients)


NETWORKS: dict[str, type[Network]] = {"links": links}
