"""What goes wrong with a job."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from fedloom.hyperparameters import check_fields, frozen, interval, nonnegative, static

Rng = np.random.Generator
_share = interval(0, 1, "[]")


class Fault(NamedTuple):
    """What happens to one job."""

    fate: str = ""  # "dropped", "crashed", "lost", or nothing
    when: float = 1.0  # the part of the computation that is done by then
    pause: float = 0.0  # seconds until the client can work again
    duplicate: bool = False  # the reply is sent twice


class Faults(ABC):
    """Base of all models of faults."""

    @property
    @abstractmethod
    def never(self) -> bool:
        """Does every job lead to a reply?"""

    @abstractmethod
    def of_job(self, rng: Rng) -> Fault:
        """What goes wrong in one job."""


@frozen
class random(Faults):
    """Every job, whatever happened to others, meets these faults with these probabilities; by default none."""

    drop: float = static(_share, "the client gives up before it replies", default=0.0)
    crash: float = static(_share, "the client crashes; its work is lost, its memory is not", default=0.0)
    restart: float = static(nonnegative, "seconds until a crashed client can work again", default=10.0)
    lost: float = static(_share, "the reply is lost on its way", default=0.0)
    duplicate: float = static(_share, "the reply arrives twice", default=0.0)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.drop + self.crash + self.lost > 1:
            raise ValueError(
                "random: drop, crash and lost are probabilities of one job, so their sum must not exceed 1."
            )
        if self.drop + self.crash + self.lost == 1:
            raise ValueError("random: drop, crash and lost add up to 1, so no reply would ever arrive.")

    @property
    def never(self) -> bool:
        return self.drop + self.crash + self.lost == 0

    def of_job(self, rng: Rng) -> Fault:
        which, when, twice = rng.random(3).tolist()
        if which < self.drop:
            return Fault("dropped", when)
        if which < self.drop + self.crash:
            return Fault("crashed", when, self.restart)
        if which < self.drop + self.crash + self.lost:
            return Fault("lost")
        return Fault(duplicate=twice < self.duplicate)


FAULTS: dict[str, type[Faults]] = {"random": random}
