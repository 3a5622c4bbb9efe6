"""Totals of a simulated clock: what a simulated system did with the time."""

from typing import NamedTuple


class Stalled(ValueError):
    """The simulated system leaves a run unable to continue; the message says why."""


FATES = ("dropped", "crashed", "lost", "interrupted", "late")


class Clock(NamedTuple):
    """Totals since the start of the run, in simulated seconds and in jobs."""

    seconds: float = 0.0
    jobs: int = 0  # started
    replies: int = 0  # counted
    idle: float = 0.0  # seconds in which seats (places for jobs in flight) were empty
    wasted: float = 0.0  # seconds of computation whose result was not counted
    dropped: int = 0  # jobs that ended before they replied
    crashed: int = 0
    lost: int = 0  # replies that never arrived
    interrupted: int = 0  # jobs of clients that went offline
    late: int = 0  # replies that missed the deadline of their round
    duplicates: int = 0  # second copies of replies, which are never counted
    staleness: tuple[int, ...] = ()  # counted replies by the server updates since their job began: 0, 1, 2, ...

    @property
    def failed(self) -> int:
        """Jobs that were not counted."""
        return sum(getattr(self, fate) for fate in FATES)
