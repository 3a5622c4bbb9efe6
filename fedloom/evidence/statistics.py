"""Do two methods differ? Paired differences over seeds, the finite test set, many comparisons, and several looks.

A difference D[s, b] has a seed s and a block b of the test set:

    D[s, b] = mu + seed_s + block_b + rest_sb

Seeds are a sample (of splits, initial models, cohorts, minibatches), and so are the examples of the test set. Both are
crossed, as readers and cases are in diagnostic studies. The variance of the mean difference is that of the seeds' means
plus that of the test set, of which one is known from few seeds and the other from many blocks. So each has its own
quantile of Student's t, and the half-width of an interval is

    sqrt(t_seeds^2 var(seeds' means) / S + t_blocks^2 var(test set))

(the combination of intervals that is known as MOVER; Satterthwaite's degrees of freedom are too optimistic for three
seeds: 8% instead of 5%). Without the second term, more seeds would "prove" a difference that only this test set has.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy  # which imports its parts when they are used: some take a second

INTERVAL = 0.05  # 95% intervals
# The probability of a wrong statement anywhere in a comparison. At most 5% is promised; the margin is for what
# Student's t does not know of: values that are few, discrete and skewed.
LEVEL = 0.03
POWER = 0.8  # with which a number of seeds is said to decide
MOST_SEEDS = 10_000  # beyond which nobody goes


class Spread(NamedTuple):
    """The variances of a paired difference."""

    seed: float  # of the mean over the test set, between seeds
    rest: float  # the part of it that blocks of one seed show, of which seeds that agree by luck must not be free
    test_set: float  # of the mean over seeds, between test sets; 0 if every seed has one of its own
    blocks: int  # 0: there are none

    def variance(self, seeds: int) -> float:
        """Of the mean over so many seeds."""
        return max(self.seed, self.rest) / seeds + self.test_set

    def room(self, seeds: int, level: float) -> float:
        """Half the width of the interval that misses the true difference with the probability `level`."""
        by_seed = _quantile(level, seeds - 1) ** 2 * self.seed
        if self.blocks:
            by_seed = max(by_seed, _quantile(level, (seeds - 1) * (self.blocks - 1)) ** 2 * self.rest)
        of_test_set = _quantile(level, self.blocks - 1) ** 2 * self.test_set if self.test_set else 0.0
        return math.sqrt(by_seed / seeds + of_test_set)


def _quantile(level: float, freedom: float) -> float:
    return -float(scipy.special.stdtrit(freedom, level / 2))


@dataclasses.dataclass(frozen=True)
class Difference:
    """The mean of a paired difference over seeds, and how sure it is."""

    mean: float
    seeds: int
    spread: Spread

    @property
    def p(self) -> float:
        """Two-sided: the level at which an interval just excludes 0."""
        if self.mean == 0:
            return 1.0
        if self.spread.variance(self.seeds) == 0:
            return 0.0

        def beyond(log_level: float) -> float:
            return self.spread.room(self.seeds, math.exp(log_level)) - abs(self.mean)

        least = math.log(1e-100)  # smaller ones overflow
        return math.exp(scipy.optimize.brentq(beyond, least, 0.0)) if beyond(least) > 0 else 0.0

    def interval(self, level: float = INTERVAL) -> tuple[float, float]:
        """It holds the true difference with the probability 1 - level."""
        room = self.spread.room(self.seeds, level)
        return self.mean - room, self.mean + room

    def power(self, seeds: int, level: float) -> float:
        """How probably so many seeds would show the difference, if it is as large as it now seems.

        The mean and the half-width are taken as normal; the latter is the more uncertain, the fewer the seeds.
        """
        room = self.spread.room(seeds, level)
        if room == 0:
            return float(self.mean != 0)
        of_seeds = _quantile(level, seeds - 1) ** 2 * self.spread.seed / seeds / room  # d room / d log(sd of seeds)
        uncertain = self.spread.variance(seeds) + of_seeds**2 / (2 * (seeds - 1))
        return float(scipy.special.ndtr((abs(self.mean) - room) / math.sqrt(uncertain)))

    def more_seeds(self, level: float) -> int | None:
        """How many more seeds would show the difference (power 0.8); None if no number does, the test set being small.

        The difference is taken to be as large as it now seems, so this is a guess, and an optimistic one.
        """
        if self.power(MOST_SEEDS, level) < POWER:
            return None
        low, high = max(self.seeds, 2) - 1, MOST_SEEDS
        while high - low > 1:  # power grows with the seeds
            middle = (low + high) // 2
            low, high = (low, middle) if self.power(middle, level) >= POWER else (middle, high)
        return max(high - self.seeds, 1)

    def more_examples(self, level: float) -> float | None:
        """How many times larger the test set must be before any number of seeds decides; None: it is not the reason."""
        if self.mean == 0 or self.spread.test_set == 0:
            return None
        needed = (abs(self.mean) / float(scipy.special.ndtri(POWER) - scipy.special.ndtri(level / 2))) ** 2
        return max(self.spread.test_set / needed, 1.0)


def paired(a: Sequence[float], b: Sequence[float]) -> Difference:
    """The difference a - b, where only the values of each seed are known."""
    d = np.asarray(a, float) - np.asarray(b, float)
    _check(d)
    return Difference(float(d.mean()), len(d), Spread(float(np.var(d, ddof=1)), 0.0, 0.0, 0))


def crossed(a: np.ndarray, b: np.ndarray) -> Difference:
    """The difference a - b of values [seeds, blocks], where all seeds share one test set."""
    d = np.asarray(a, float) - np.asarray(b, float)
    _check(d)
    seeds, blocks = d.shape
    if blocks < 2:
        return paired(*(np.asarray(x, float).mean(1) for x in (a, b)))
    mean, by_seed, by_block = d.mean(), d.mean(1), d.mean(0)
    ms_block = seeds * np.var(by_block, ddof=1)
    ms_rest = np.sum((d - by_seed[:, None] - by_block + mean) ** 2) / ((seeds - 1) * (blocks - 1))
    test_set = max(ms_block - ms_rest, 0.0) / (seeds * blocks)
    spread = Spread(float(np.var(by_seed, ddof=1)), float(ms_rest / blocks), float(test_set), blocks)
    return Difference(float(mean), seeds, spread)


def nested(a: np.ndarray, b: np.ndarray, share: float = 0.0) -> Difference:
    """The difference a - b of values [seeds, blocks], where every seed has a test set of its own.

    The variance between seeds then includes that of the test sets. But if these are drawn from one pool of examples, of
    which each is a `share`, then the luck of the pool remains, however many seeds there are.
    """
    d = np.asarray(a, float) - np.asarray(b, float)
    _check(d)
    blocks = d.shape[1]
    if blocks < 2:
        return paired(*(np.asarray(x, float).mean(1) for x in (a, b)))
    within = float(np.mean(np.var(d, axis=1, ddof=1))) / blocks
    return Difference(float(d.mean()), len(d), Spread(float(np.var(d.mean(1), ddof=1)), within, share * within, blocks))


def _check(d: np.ndarray) -> None:
    if len(d) < 2:
        raise ValueError(f"A difference needs at least two seeds, got {len(d)}.")


class Tested(NamedTuple):
    """A comparison among many: its p-value after Holm's correction, and the level at which it was tested."""

    p: float
    level: float


def holm(p: Mapping[tuple[str, str], float], level: float = LEVEL) -> dict[tuple[str, str], Tested]:
    """Holm's correction: with probability 1 - level, none of the differences that it finds is an illusion.

    The level of a comparison is that of its step, so a difference is found where its interval at that level excludes 0.
    """
    order = sorted(p, key=lambda pair: p[pair])
    found: dict[tuple[str, str], Tested] = {}
    largest, stopped = 0.0, None
    for i, pair in enumerate(order):
        left = len(order) - i
        largest = max(largest, min(1.0, left * p[pair]))
        step = level / left if stopped is None else stopped
        found[pair] = Tested(largest, step)
        if stopped is None and p[pair] > step:
            stopped = step
    return found


def looks(low: int, high: int) -> list[int]:
    """The numbers of seeds at which a study that may grow from `low` to `high` is judged: each about half as many more.

    Fewer looks leave more of the level for each.
    """
    if not 2 <= low < high:
        raise ValueError(f"seeds: LOW..HIGH needs at least 2 seeds to begin with, and more to end; got {low}..{high}.")
    found = [low]
    while found[-1] < high:
        found.append(min(high, math.ceil(1.4 * found[-1])))
    return found


def level_of_look(planned: Sequence[int], seeds: int) -> float:
    """The level of one of several planned looks. They add up to LEVEL, so looking often costs nothing in honesty.

    The level spent by the share t of the seeds is LEVEL t^3: little at first, where a few seeds can mislead.
    """
    place = list(planned).index(seeds)
    before = planned[place - 1] if place else 0
    return LEVEL * ((seeds / planned[-1]) ** 3 - (before / planned[-1]) ** 3)


def level_of_unplanned_look(look: int, after_plan: bool = False) -> float:
    """The level of the k-th look that nobody planned: LEVEL / k^2, so that any number of them adds up to at most 5%.

    After looks that were planned, which spent LEVEL in all, it is LEVEL / (k + 1)^2.
    """
    return LEVEL / (look + after_plan) ** 2
