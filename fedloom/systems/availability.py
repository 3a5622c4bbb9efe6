"""When clients are online."""

import bisect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fedloom.hyperparameters import Domain, check_fields, frozen, interval, nonnegative, positive, static
from fedloom.systems.traces import check_trace, is_trace, read_trace, settled

Rng = np.random.Generator
NEVER = (np.inf, np.inf)
Windows = Callable[[int, float], tuple[float, float]]  # (client, moment): its first time online that ends after this


class Availability(ABC):
    """Base of all models of availability."""

    @abstractmethod
    def over(self, clients: int, generator: Callable[[int], Rng]) -> Windows:
        """Bind to a population; `generator(k)` is client k's own randomness, -1 that of all."""


@frozen
class always(Availability):
    """Everyone, at any time."""

    def over(self, clients: int, generator: Callable[[int], Rng]) -> Windows:
        return lambda k, t: (0.0, np.inf)


@frozen
class diurnal(Availability):
    """Once a day, each client at its own hour: a phone that is charged at night."""

    day: float = static(positive, "seconds of a day", default=86400.0)
    share: float = static(interval(0, 1, "(]"), "part of the day that a client is online", default=0.4)
    spread: float = static(interval(0, 1, "[]"), "hours at which clients come, as a part of the day", default=0.5)

    def over(self, clients: int, generator: Callable[[int], Rng]) -> Windows:
        hours = (generator(-1).random(clients) * self.spread * self.day).tolist() if self.share < 1 else []

        def window(k: int, t: float) -> tuple[float, float]:
            if self.share == 1:
                return 0.0, np.inf
            n = np.floor((t - hours[k]) / self.day)  # days since the client first came
            start = hours[k] + n * self.day
            if t >= start + self.share * self.day:
                start = hours[k] + (n + 1) * self.day
            return float(start), float(start + self.share * self.day)

        return window


@frozen
class markov(Availability):
    """Clients come and go: times online and offline are exponential, each client on its own."""

    online: float = static(positive, "mean seconds of a time online", default=600.0)
    offline: float = static(nonnegative, "mean seconds of a time offline", default=600.0)

    def over(self, clients: int, generator: Callable[[int], Rng]) -> Windows:
        lives: dict[int, tuple[Rng, list[tuple[float, float]]]] = {}

        def window(k: int, t: float) -> tuple[float, float]:
            if self.offline == 0:
                return 0.0, np.inf
            if k not in lives:
                rng = generator(k)
                away = rng.random() >= self.online / (self.online + self.offline)
                start = float(away * rng.exponential(self.offline))
                lives[k] = rng, [(start, start + float(rng.exponential(self.online)))]
            rng, windows = lives[k]
            while windows[-1][1] <= t:
                start = windows[-1][1] + float(rng.exponential(self.offline))
                windows.append((start, start + float(rng.exponential(self.online))))
            return windows[bisect.bisect_right(windows, t, key=lambda w: w[1])]

        return window


_trace = Domain("a table {client: [(from, to), ...]} or the name of a CSV file with columns client,from,to", is_trace)


@frozen
class observed(Availability):
    """Recorded times online, in seconds from the start; clients that are not named are never online."""

    trace: Any = static(_trace, "a table {client: [(from, to), ...]}, or a CSV file", default=None)
    repeat: float = static(nonnegative, "seconds after which the trace begins again; 0: it does not", default=0.0)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "trace", settled(self.trace, ("from", "to")))

    def _joined(self, rows: Iterable[tuple[float, ...]]) -> list[tuple[float, float]]:
        """Times online that follow upon one another are one, also from the end of the trace to its beginning."""
        joined: list[tuple[float, float]] = []
        for start, end in rows:
            if joined and joined[-1][1] == start:
                start = joined.pop()[0]
            joined.append((start, end))
        if self.repeat and len(joined) > 1 and joined[0][0] == 0 and joined[-1][1] == self.repeat:
            joined[-1] = joined[-1][0], self.repeat + joined.pop(0)[1]
        return joined

    def over(self, clients: int, generator: Callable[[int], Rng]) -> Windows:
        trace = check_trace(read_trace(self.trace, ("from", "to")), clients, "availability")
        for k, rows in trace.items():
            ends = [x for row in rows for x in row]
            if not all(a < b for a, b in rows) or ends != sorted(ends) or not all(x >= 0 for x in ends):
                raise ValueError(
                    f"availability: the times online of client {k} must be one after another, each with from < to and "
                    f"not before 0, got {rows!r:.100}."
                )
            if self.repeat and ends and ends[-1] > self.repeat:
                raise ValueError(f"availability: client {k} is online after repeat = {self.repeat:g} seconds.")
        if not any(trace.values()):
            raise ValueError("availability: no client is ever online in this trace.")
        whole = {k: self._joined(rows) for k, rows in trace.items()}

        def window(k: int, t: float) -> tuple[float, float]:
            rows = whole.get(k)
            if not rows:
                return NEVER
            if not self.repeat:
                i = bisect.bisect_right(rows, t, key=lambda row: row[1])
                return rows[i] if i < len(rows) else NEVER
            if rows[0][1] - rows[0][0] >= self.repeat:
                return 0.0, np.inf
            turn = int(t // self.repeat) - 2  # a time online may reach into the next turn, and rounding does so too
            while True:
                past = turn * self.repeat
                for start, end in rows:
                    if end + past > t:
                        return start + past, end + past
                turn += 1

        return window


AVAILABILITIES: dict[str, type[Availability]] = {
    "always": always,
    "diurnal": diurnal,
    "markov": markov,
    "observed": observed,
}
