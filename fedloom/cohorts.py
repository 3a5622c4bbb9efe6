"""Who takes part in a round.

A cohort rule is a value; `over(p)` binds it to a population and returns `draw(rng, t)`. Draws happen on the host with
a generator that the engine seeds by (seed, round, exchange), and cost no more than the cohort they return.
"""

import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedloom.hyperparameters import Domain, count, flag, frozen, interval, static

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


def _draw(ids: np.ndarray, weight: np.ndarray) -> Draw:
    return Draw(ids, weight, np.ones(len(ids)))


@frozen
class everyone(CohortRule):
    """All clients, every round."""

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        draw = _draw(np.arange(len(p)), p)
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
            return _draw(ids, p[ids])

        return draw

    def room(self, clients: int) -> int:
        return self.m


@frozen
class uniform(OfSize):
    """m clients uniformly without replacement; the mean weighs them by p_k."""

    def members(self, clients: int, rng: Rng, t: int) -> np.ndarray:
        return rng.choice(clients, self.m, replace=False, shuffle=False)


@frozen
class seeded_by_round(OfSize):
    """`uniform` as several papers' programs draw: the same cohorts for every seed and every method.

    Those of FedProx, FedDANE, FedDR and linear speedup take NumPy's old generator, with the round, counted from 0, as
    its seed. A draw costs as much as the population.
    """

    def members(self, clients: int, rng: Rng, t: int) -> np.ndarray:
        return np.random.RandomState(t).choice(clients, self.m, replace=False)

    def last(self, ids: np.ndarray, clients: int, rng: Rng, t: int) -> int:
        drawn = self.members(clients, rng, t)
        return int(drawn[np.isin(drawn, ids)][-1])


@frozen
class with_replacement(CohortRule):
    """m draws uniformly with replacement: a client that comes up twice works once and counts twice in the mean."""

    m: int = static(count, "draws in a round", default=10)

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        def draw(rng: Rng, t: int) -> Draw:
            ids, times = np.unique(rng.integers(len(p), size=self.m), return_counts=True)
            return _draw(ids, times * p[ids])

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
            return _draw(ids, times.astype(float))

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
            return _draw(ids, p[ids])

        return draw

    def room(self, clients: int) -> int:
        mean = self.q * clients
        return min(clients, int(np.ceil(mean + 3 * np.sqrt(mean * (1 - self.q)))) + 1)


@frozen
class seeded_bernoulli(bernoulli):
    """`bernoulli` as FedDyn's program draws: the same cohorts for every seed and every method.

    It takes NumPy's old generator, with the round, counted from 0, as its seed; and if nobody comes, with the next
    number, which is the next round's seed. So the cohort that follows on empty draws takes part several times in a row:
    with 100 devices and q = 0.01 every third round repeats the one before it. A draw costs as much as the population.
    """

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        def draw(rng: Rng, t: int) -> Draw:
            tries = (
                np.flatnonzero(np.random.RandomState(seed).uniform(size=len(p)) <= self.q)
                for seed in itertools.count(t)
            )
            ids = next(ids for ids in tries if len(ids))
            return _draw(ids, p[ids])

        return draw


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
            draws.append(_draw(ids, times * p[ids]))

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


COHORTS: dict[str, type[CohortRule]] = {
    "everyone": everyone,
    "uniform": uniform,
    "seeded-by-round": seeded_by_round,
    "with-replacement": with_replacement,
    "by-weight": by_weight,
    "bernoulli": bernoulli,
    "seeded-bernoulli": seeded_bernoulli,
    "cyclic": cyclic,
    "scheduled": scheduled,
}
_rule = Domain("a cohort rule such as uniform(10)", lambda v: isinstance(v, CohortRule), COHORTS)


@frozen
class Changed(CohortRule):
    """Base of the rules that change another rule's cohorts."""

    of: CohortRule = static(_rule, "the rule that draws the cohort", default=uniform(10))

    @property
    def partial_work(self) -> bool:
        return self.of.partial_work

    def usual_weight(self, p: np.ndarray) -> np.ndarray:
        return self.of.usual_weight(p)

    def last(self, ids: np.ndarray, clients: int, rng: Rng, t: int) -> int:
        return self.of.last(ids, clients, rng, t)

    def room(self, clients: int) -> int:
        return self.of.room(clients)


@frozen
class stragglers(Changed):
    """Another rule's cohorts, in which the given share of the clients has time for a part of the work only.

    A straggler does the fraction U(0, 1] of its work: with E epochs, ceil(U * E) is uniform on 1..E, as in FedProx.
    With `drop` the stragglers are left out instead, as FedAvg does in that paper; at least one client stays.
    """

    share: float = static(interval(0, 1, "[]"), "share of the cohort that is slow", default=0.5)
    drop: bool = static(flag, "leave stragglers out instead of using their partial work", default=False)

    @property
    def partial_work(self) -> bool:
        return not self.drop or self.of.partial_work

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        inner = self.of.over(p)

        def draw(rng: Rng, t: int) -> Draw:
            cohort = inner(rng, t)
            m = len(cohort.ids)
            slow = rng.permutation(m)[: m - round(m * (1 - self.share))]  # FedProx rounds the number of fast ones
            if self.drop:
                keep = np.setdiff1d(np.arange(m), slow[: m - 1])
                return Draw(cohort.ids[keep], cohort.weight[keep], cohort.work[keep])
            work = cohort.work.copy()
            work[slow] *= 1 - rng.random(len(slow))
            return cohort._replace(work=work)

        return draw


@frozen
class plain(Changed):
    """Another rule's cohorts with a plain mean: every client counts once, or as often as it was drawn.

    The objective keeps its weights p_k. FedDANE's boxes have the plain mean, also where everyone takes part.
    """

    def over(self, p: np.ndarray) -> Callable[[Rng, int], Draw]:
        inner, once = self.of.over(p), self.of.usual_weight(p)

        def draw(rng: Rng, t: int) -> Draw:
            cohort = inner(rng, t)
            usual = once[cohort.ids]
            return cohort._replace(weight=np.divide(cohort.weight, usual, out=np.ones(len(usual)), where=usual > 0))

        return draw

    def usual_weight(self, p: np.ndarray) -> np.ndarray:
        return np.ones(len(p))


COHORTS |= {"stragglers": stragglers, "plain": plain}  # here, since their own field is a rule by name
