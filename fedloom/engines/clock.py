"""The books of a virtual clock: what a simulated system did with the time."""

from typing import NamedTuple


class Stalled(ValueError):
    """A simulated system in which a run cannot go on; the message says why."""


FATES = ("dropped", "crashed", "lost", "interrupted", "late")


class Clock(NamedTuple):
    """Totals since the start of the run, in simulated seconds and in jobs."""

    seconds: float = 0.0
    jobs: int = 0  # started
    replies: int = 0  # counted
    idle: float = 0.0  # seconds in which seats, that is places for jobs in flight, stood empty
    wasted: float = 0.0  # seconds of computing whose result was not counted
    dropped: int = 0  # jobs that ended before they replied
    crashed: int = 0
    lost: int = 0  # replies that never arrived
    interrupted: int = 0  # jobs of clients that went offline
    late: int = 0  # replies after the deadline of their round
    duplicates: int = 0  # copies of replies, which are never counted
    staleness: tuple[int, ...] = ()  # counted replies by the server updates since their job began: 0, 1, 2, ...

    @property
    def failed(self) -> int:
        """Jobs that were not counted."""
        return sum(getattr(self, fate) for fate in FATES)
