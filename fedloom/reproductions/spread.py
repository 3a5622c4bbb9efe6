"""What several seeds say of a figure, of a ratio of two, and of a claim."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

LEVEL = 0.95  # of intervals
FEW = 3  # seeds from which there is an interval, and a verdict
NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True)
class Spread:
    """The values of a figure, one for each seed; those that are not finite failed.

    The mean is the geometric one where all values are positive, its interval Student's for logarithms: counts and
    losses spread in proportion to their size. It says what seeds give on average, not what another one would give.
    """

    values: tuple[float, ...]
    failed: str = "not reached"  # what a seed without a number is called

    @property
    def finite(self) -> np.ndarray:
        """The values of the seeds that have a number."""
        return np.array([v for v in self.values if math.isfinite(v)])

    @property
    def mean(self) -> float:
        """Of the seeds that have a number."""
        x = self.finite
        return float(np.exp(np.mean(np.log(x)))) if np.all(x > 0) else float(np.mean(x))

    @property
    def interval(self) -> tuple[float, float] | None:
        """For the mean, if all of at least three seeds have a number; not if some are 0 and the others positive."""
        return self._around(1 / len(self.values)) if self.values else None

    @property
    def of_another(self) -> tuple[float, float] | None:
        """For the number of one more seed, if all of at least three have one."""
        return self._around(1 + 1 / len(self.values)) if self.values else None

    def _around(self, variance: float) -> tuple[float, float] | None:
        """The mean, and what is so many times as uncertain as a seed's number on both sides of it."""
        x = self.finite
        if len(x) < FEW or len(x) < len(self.values):
            return None
        positive = bool(np.all(x > 0))
        if not positive and np.all(x >= 0) and np.any(x > 0):
            return None  # 0 has no logarithm, and an interval without one would have negative numbers in it
        y = np.log(x) if positive else x
        half = _quantile(len(y) - 1) * float(np.std(y, ddof=1)) * math.sqrt(variance)
        ends = float(np.mean(y)) - half, float(np.mean(y)) + half
        return (math.exp(ends[0]), math.exp(ends[1])) if positive else ends

    @property
    def words(self) -> str:
        """The mean with its interval, or the smallest and the largest value, and how many seeds failed."""
        x = self.finite
        if not len(x):
            return self.failed if len(self.values) == 1 else f"{self.failed} ({len(self.values)} seeds)"
        interval = self.interval
        low, high = interval or (float(x.min()), float(x.max()))
        digits = _digits(low, high)
        found = f"{self.mean:.{max(4, digits)}g}"
        if interval is not None:
            found += f" [{low:.{digits}g}, {high:.{digits}g}]"
        elif len(x) > 1:
            found += f" ({low:.{digits}g} to {high:.{digits}g})"
        lost = len(self.values) - len(x)
        return found + (f", {self.failed} in {lost} of {len(self.values)}" if lost else "")


def _digits(low: float, high: float) -> int:
    """How many to show of the two ends: two of their distance, and all before the point; from three to six."""
    first, last = (math.floor(math.log10(v)) if v > 0 else 0 for v in (max(abs(low), abs(high)), high - low))
    same = math.isclose(low, high, rel_tol=1e-9)  # but for rounding
    return min(max(3, first + 1, 0 if same else first - last + 2), 6)


def ratio(ours: Mapping[int, float], base: Mapping[int, float]) -> str:
    """One figure over another, by seed."""
    shared = [seed for seed in ours if seed in base]
    pairs = tuple(over(ours[seed], base[seed]) for seed in shared)
    if not pairs or not any(math.isfinite(p) for p in pairs):
        return ""
    return Spread(pairs, "none").words


def over(a: float, b: float) -> float:
    """Their ratio; infinite if there is none."""
    return a / b if math.isfinite(a) and math.isfinite(b) and b else math.inf


def _quantile(freedom: int) -> float:
    """Student's, two-sided."""
    from scipy.special import stdtrit  # imported late: it takes a tenth of a second

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a claim came out as in each seed: true, false, or None where the figures do not decide it."""

    answers: tuple[bool | None, ...]
    ratio: Spread = Spread(())  # of the two numbers that it compares, below 1 where it holds

    @property
    def held(self) -> int:
        """In how many seeds it holds."""
        return sum(answer is True for answer in self.answers)

    @property
    def decided(self) -> int:
        """In how many seeds it holds or not."""
        return sum(answer is not None for answer in self.answers)

    @property
    def kind(self) -> str:
        """holds, does not hold, cannot be said, undecided or not run.

        It holds, or does not, if so many seeds agree that throws of a fair coin would be as unequal at most once in 20
        times; or if all of at least three agree, which fewer than six can by chance more often than that, unless it
        compares two numbers whose ratio has 1 in its interval. Numbers that are the same in all seeds are no spread.
        """
        if not self.answers:
            return NOT_RUN
        if not self.decided:
            return "undecided"
        if self.decided < FEW:
            return "cannot be said"
        most, interval = max(self.held, self.decided - self.held), self.ratio.interval
        spread = interval is not None and interval[0] < interval[1] and interval[0] <= 1 <= interval[1]
        if (most < len(self.answers) or spread) and 2 * _at_least(most, self.decided) > 1 - LEVEL:
            return "cannot be said"
        return "holds" if 2 * self.held > self.decided else "does not hold"

    @property
    def words(self) -> str:
        """The verdict, and in how many seeds the claim holds."""
        kind, n = self.kind, len(self.answers)
        if kind in (NOT_RUN, "undecided"):
            return kind
        if n == 1:
            return f"one seed: {'holds' if self.held else 'does not hold'}"
        open_ = "" if self.decided == n else f", undecided in {n - self.decided}"
        shown = {"holds": "holds", "does not hold": "does not hold: true", "cannot be said": "cannot be said: true"}
        return f"{shown[kind]} in {self.held} of {self.decided} seeds{open_}"


def _at_least(k: int, n: int) -> float:
    """The probability of k or more heads in n throws."""
    return sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n
