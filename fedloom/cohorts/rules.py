"""Who takes part in a round.

A cohort rule is a value; `over(p)` binds it to a population and returns `draw(rng, t)`. Draws happen on the host with
a generator that the engine seeds by (seed, round, exchange), and cost no more than the cohort they return.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedloom.hyperparameters import count, frozen, interval, static

Rng = np.random.Generator


class Draw(NamedTuple):
    """A cohort: distinct clients in increasing order, their weights in the mean, the part of the work each does."""

    ids: np.ndarray
    weight: np.ndarray
    work: np.ndarray


class CohortRule(ABC):
    """Base of all cohort rules."""

    @property
    def partial_work(self) -> bool:
        """May some clients have time for a part of their work only?"""
        return False

    @abstractmethod
    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        """Bind to a population with weights p; the result draws the cohort of round t."""

    def usual_weight(self, p: np.ndarray) -> np.ndarray:
        """The weight in the mean of each client that is drawn once."""
        return p

    def last(self, ids: np.ndarray, clients: int, rng: Rng, t: int) -> int:
        """Who of the cohort of round t is its last member: a random one, unless the rule draws in an order."""
        return int(rng.choice(ids))

    @abstractmethod
    def room(self, clients: int) -> int:
        """How many distinct clients to make room for; a larger draw is allowed but compiles again."""


def drawn(ids: np.ndarray, weight: np.ndarray) -> Draw:
    """A cohort in which everybody does all of the work."""
    return Draw(ids, weight, np.ones(len(ids)))


@frozen
class everyone(CohortRule):
    """All clients, every round."""

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        draw = drawn(np.arange(len(p)), p)
        return lambda rng, t: draw

    def room(self, clients: int) -> int:
        return clients


@frozen
class OfSize(CohortRule):
    """Base of the rules whose cohorts have m clients, each of which counts by p_k."""

    m: int = static(count, "clients in a round", default=10)

    @abstractmethod
    def members(self, clients: int, rng: Rng, t: int) -> np.ndarray:
        """The cohort of round t, in any order."""

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        if self.m > len(p):
            raise ValueError(
                f"{type(self).__name__}: m = {self.m} is larger than the population of {len(p)} clients; "
                f"choose m <= {len(p)}."
            )

        def draw(rng: Rng, t: int) -> Draw:
            ids = np.sort(self.members(len(p), rng, t))
            return drawn(ids, p[ids])

        return draw

    def room(self, clients: int) -> int:
        return self.m


@frozen
class uniform(OfSize):
    """m clients uniformly without replacement; the mean weighs them by p_k."""

    def members(self, clients: int, rng: Rng, t: int) -> np.ndarray:
        return rng.choice(clients, self.m, replace=False, shuffle=False)


@frozen
class with_replacement(CohortRule):
    """m draws uniformly with replacement: a client that comes up twice works once and counts twice in the mean."""

    m: int = static(count, "draws in a round", default=10)

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        def draw(rng: Rng, t: int) -> Draw:
            ids, times = np.unique(rng.integers(len(p), size=self.m), return_counts=True)
            return drawn(ids, times * p[ids])

        return draw

    def room(self, clients: int) -> int:
        return min(self.m, clients)


@frozen
class by_weight(CohortRule):
    """m draws with replacement, client k with probability p_k; the mean is then plain."""

    m: int = static(count, "draws in a round", default=10)

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        cumulative = np.cumsum(p)  # once; each draw is then a binary search

        def draw(rng: Rng, t: int) -> Draw:
            found = np.searchsorted(cumulative, rng.random(self.m) * cumulative[-1], side="right")
            ids, times = np.unique(found, return_counts=True)
            return drawn(ids, times.astype(float))

        return draw

    def usual_weight(self, p: np.ndarray) -> np.ndarray:
        return np.ones(len(p))

    def room(self, clients: int) -> int:
        return min(self.m, clients)


@frozen
class bernoulli(CohortRule):
    """Every client independently with probability q, given that at least one takes part."""

    q: float = static(interval(0, 1, "(]"), "probability that a client takes part", default=0.1)

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        n, q = len(p), self.q

        def size(rng: Rng) -> int:
            # The first of n trials that succeeds, given that one does; those after it are free.
            if q == 1.0:
                return n
            none = np.exp(n * np.log1p(-q))
            first = int(np.ceil(np.log1p(-rng.random() * (1 - none)) / np.log1p(-q)))
            return 1 + int(rng.binomial(n - min(max(first, 1), n), q))

        def draw(rng: Rng, t: int) -> Draw:
            ids = np.sort(rng.choice(n, size(rng), replace=False, shuffle=False))
            return drawn(ids, p[ids])

        return draw

    def room(self, clients: int) -> int:
        mean = self.q * clients
        return min(clients, int(np.ceil(mean + 3 * np.sqrt(mean * (1 - self.q)))) + 1)


@frozen
class cyclic(OfSize):
    """Clients in turn, m at a time."""

    def members(self, clients: int, rng: Rng, t: int) -> np.ndarray:
        return (t * self.m + np.arange(self.m)) % clients


@dataclasses.dataclass(frozen=True)
class scheduled(CohortRule):
    """A recorded participation trace: round t has the clients trace[t]; one listed twice counts twice in the mean."""

    trace: Sequence[Sequence[int]]

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        if len(self.trace) == 0:
            raise ValueError("scheduled: trace must have at least one round.")
        draws = []
        for t, members in enumerate(self.trace):
            if np.ndim(members) != 1:
                raise ValueError(f"scheduled: trace[{t}] must be a list of clients, got {members!r}.")
            if len(members) == 0:
                raise ValueError(f"scheduled: trace[{t}] is empty; every round needs a client.")
            ids, times = np.unique(np.asarray(members), return_counts=True)
            if not np.issubdtype(ids.dtype, np.integer):
                raise ValueError(f"scheduled: trace[{t}] must list clients by number, as integers, got {members!r}.")
            if ids[0] < 0 or ids[-1] >= len(p):
                bad = ids[0] if ids[0] < 0 else ids[-1]
                raise ValueError(f"scheduled: trace[{t}] names client {bad}, but clients are 0 to {len(p) - 1}.")
            draws.append(drawn(ids, times * p[ids]))

        def draw(rng: Rng, t: int) -> Draw:
            if t >= len(draws):
                raise ValueError(
                    f"scheduled: the trace has {len(draws)} rounds, but the run asks for round {t + 1}; "
                    "run fewer rounds or give a longer trace."
                )
            return draws[t]

        return draw

    def room(self, clients: int) -> int:
        return max(len(set(members)) for members in self.trace)
