"""How many times as long one system takes as another, with an interval: from blocks that were run in turn."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.speed.alternate import Turn

RESAMPLES = 4000


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The geometric mean of paired ratios, and its interval of 95%."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{digits(self.estimate)} [{digits(self.low)}, {digits(self.high)}]"


def digits(x: float) -> str:
    """Three of them, and those before the point."""
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:#.3g}"


def paired(theirs: Sequence[float], ours: Sequence[float], seed: int = 0) -> Ratio:
    """The ratio theirs / ours of times that were measured in pairs.

    The interval is the bootstrap's of the mean of log-ratios, with the resampled means in units of their own standard
    errors: with the five to thirty pairs that there are, quantiles of the means alone would be too narrow.
    """
    logs = np.log(np.asarray(theirs, float)) - np.log(np.asarray(ours, float))
    n, mean = len(logs), float(logs.mean())
    error = float(logs.std(ddof=1)) / np.sqrt(n)
    drawn = logs[np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))]
    errors = drawn.std(axis=1, ddof=1) / np.sqrt(n)
    some = errors > 1e-12 * (1 + abs(mean))  # a resample of one value over and over says nothing
    if not some.any():  # all pairs are alike
        return Ratio(*(float(np.exp(mean)),) * 3)
    t = (drawn.mean(axis=1)[some] - mean) / errors[some]
    above, below = np.quantile(t, [0.975, 0.025]) * error
    return Ratio(*(float(np.exp(x)) for x in (mean, mean - above, mean - below)))


def per_round(turns: list[Turn], name: str) -> dict[int, tuple[float, float]]:
    """Wall seconds and CPU seconds of a round, by alternation."""
    mine = [t for t in turns if t.name == name and t.counts]
    return {t.alternation: (t.block.seconds / t.block.rounds, t.block.cpu / t.block.rounds) for t in mine}


def summary(turns: list[Turn], name: str, ours: str, seed: int = 0) -> dict[str, Any]:
    """What one system took for a round, and how many times as long as ours."""
    mine, other = per_round(turns, name), per_round(turns, ours)
    wall = [seconds for seconds, _ in mine.values()]
    found: dict[str, Any] = {
        "median": statistics.median(wall),
        "min": min(wall),
        "cpu": statistics.median(cpu for _, cpu in mine.values()),
    }
    if name != ours:
        both = sorted(mine.keys() & other.keys())
        ratio = paired([mine[i][0] for i in both], [other[i][0] for i in both], seed)
        found["ratio"] = dataclasses.asdict(ratio)
        found["ratio of minima"] = found["min"] / min(seconds for seconds, _ in other.values())
    return found


def best_of(systems: dict[str, Any]) -> str | None:
    """The fastest peer, by the estimate of its ratio."""
    ran = [name for name, found in systems.items() if "ratio" in found]
    return min(ran, key=lambda name: systems[name]["ratio"]["estimate"], default=None)
