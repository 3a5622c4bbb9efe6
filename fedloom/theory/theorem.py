"""A theorem as a value: what it is about, what it assumes, the step sizes it allows, and the bound it promises.

    theorem.check(constants, setting)           each assumption: holds, fails or unknown, and why
    theorem.allowed(constants, setting)         step sizes, by the names that experiments have for them: each with the
                                                others as recommended, or products such as "algorithm.lr * solver.lr"
    theorem.recommended(constants, setting, T)  those that the paper chooses for T rounds
    theorem.bound(t, constants, setting, steps) the right-hand side after t rounds
    theorem.left                                what is bounded, and how to compute it from runs

Nothing here runs an algorithm. Constants that are not known are NaN, and so is then what follows from them.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.theory.constant import Constants

HOLDS, FAILS, UNKNOWN = "holds", "fails", "unknown"

Steps = Mapping[str, Any]  # {"algorithm.alpha": 30.0, "solver.lr": 0.01}: options of an experiment


class Range(NamedTuple):
    """From low to high, both included up to rounding."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        x, tiny = np.asarray(value, float), 1e-12
        return bool(np.all(x >= self.low * (1 - tiny)) and np.all(x <= self.high * (1 + tiny)))


@dataclasses.dataclass(frozen=True)
class Setting:
    """What an experiment does, as far as theorems ask."""

    cohort: int | None = None  # clients in a round; None: everyone
    replacement: bool = False  # the same client may be drawn twice
    local_steps: int | None = None  # K gradient steps on a client; None: local problems are minimised
    inexactness: float | None = 0.0  # gamma of these minimisations; 0: exact, None: not known
    regularizer: bool = False  # the server has a regularizer g, or the loss has kinks
    staleness: int = 0  # tau: the largest delay of a reply, in server updates
    period: int = 0  # within so many further updates each client has its chance of being the next,
    probability: float | None = None  # which is at least this; None: that of uniform cohorts
    replies: int | None = None  # counted in one update, where clients reply in their own time; None: the cohort's
    by_weight: bool = False  # clients are drawn with probabilities p_k and averaged plainly
    shuffled: bool = False  # minibatches of a round are parts of shuffled passes, and so not independent
    departures: tuple[str, ...] = ()  # sentences: what is done besides, of which no theorem speaks

    def everyone(self, c: Constants) -> bool:
        """Whether all clients take part in every round."""
        return self.cohort is None or (self.cohort == c.clients and not self.replacement)

    def taking_part(self, c: Constants) -> int:
        """P, the clients in a round."""
        return c.clients if self.cohort is None else self.cohort

    def scarcity(self, c: Constants) -> float:
        """m / P, all clients by those in a round."""
        return c.clients / self.taking_part(c)

    def spread(self, c: Constants) -> float:
        """q in  E |mean over the cohort - mean over all|^2 = q mean |x_k - mean|^2, for uniform cohorts."""
        m, n = c.clients, self.taking_part(c)
        if self.everyone(c) or m == 1:
            return 0.0
        return 1 / n if self.replacement else (m - n) / (n * (m - 1))


class Check(NamedTuple):
    """Whether an assumption holds, fails or is unknown, and the reason."""

    status: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Assumption:
    sentence: str
    check: Callable[[Constants, Setting], Check]


@dataclasses.dataclass(frozen=True)
class Left:
    """The left-hand side: E f(w) - f* or E |gradient|^2, at which points, and how over rounds.

    over = "average": at the mean of the points, with weights that grow by a factor `ratio` from each to the next
           "mean", "min": the mean and the smallest over the rounds of the expectation at each
    The points are those of rounds 0 to t - 1, round 0 being the start, or with first = 1 those of rounds 1 to t.
    gamma: a point is w + h / alpha, the mean of the cohort's models in FedDyn, and not the model w itself.
    """

    text: str
    value: str  # "gap" or "gradient"
    over: str
    first: int = 0
    gamma: bool = False
    ratio: Callable[[Constants, Setting, Steps], float] | None = None

    def points(self, record: Any, steps: Steps) -> np.ndarray:
        """The point of a record of a run."""
        w = np.asarray(record.server.w)
        return w + np.asarray(record.server.h) / steps["algorithm.alpha"] if self.gamma else w

    def curve(
        self, runs: np.ndarray, value: Callable[[np.ndarray], np.ndarray], c: Constants, s: Setting, steps: Steps
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimates for t = 1, 2, ... and their standard errors.

        Args:
            runs: points [seeds, rounds + 1, d], the start first.
            value: f - f*, or the squared norm of the gradient (with a regularizer, of the gradient mapping), of points
                [..., d].
            c, s, steps: what the runs were made with.
        """
        used = runs[:, 1:] if self.first else runs[:, :-1]
        if self.over == "average":
            r = 1.0 if self.ratio is None else self.ratio(c, s, steps)
            shares = 1 / np.cumsum(r ** -np.arange(used.shape[1], dtype=float))  # of the last point in each mean
            means = [used[:, 0]]
            for t in range(1, used.shape[1]):
                means.append(means[-1] + shares[t] * (used[:, t] - means[-1]))
            used = np.stack(means, 1)
        each = value(used)
        n = len(each)
        mean, error = each.mean(0), each.std(0, ddof=1) / math.sqrt(n) if n > 1 else np.zeros(each.shape[1])
        if self.over == "mean":
            sums = np.cumsum(each, 1) / np.arange(1, each.shape[1] + 1)
            return sums.mean(0), sums.std(0, ddof=1) / math.sqrt(n) if n > 1 else error
        if self.over == "min":
            at = np.array([int(np.argmin(mean[: t + 1])) for t in range(len(mean))])
            return mean[at], error[at]
        return mean, error


@dataclasses.dataclass(frozen=True)
class Theorem:
    """One theorem of one paper about one algorithm."""

    name: str
    citation: str
    algorithm: type[Algorithm]
    about: str  # one sentence
    assumptions: tuple[Assumption, ...]
    left: Left
    allowed: Callable[[Constants, Setting], dict[str, Range]]
    recommended: Callable[[Constants, Setting, int], dict[str, Any]]
    bound: Callable[[int, Constants, Setting, Steps], float]
    reading: str  # "as printed", "recovered" from a damaged text, "derived" here, or "recalled"; and what differs
    silent: str = ""  # on what it says nothing

    def check(self, c: Constants, s: Setting) -> dict[str, Check]:
        """Each assumption's sentence, and whether it holds."""
        found = {a.sentence: a.check(c, s) for a in self.assumptions}
        if s.departures:
            found["Nothing else is done."] = Check(FAILS, " ".join(s.departures))
        return found

    def applies(self, c: Constants, s: Setting) -> str:
        """ "holds" if all assumptions do, "fails" if one fails, else "unknown"."""
        found = {check.status for check in self.check(c, s).values()}
        return FAILS if FAILS in found else UNKNOWN if UNKNOWN in found else HOLDS

    def permits(self, c: Constants, s: Setting, steps: Steps) -> bool:
        """Whether all step sizes are in the allowed ranges, products too, and give a bound together."""
        inside = all(_value(name, steps) in range_ for name, range_ in self.allowed(c, s).items())
        return inside and not math.isinf(self.bound(1, c, s, steps))

    def configured(self, steps: Steps) -> Algorithm:
        """The algorithm with these hyperparameters."""
        own = {name.split(".")[1]: value for name, value in steps.items() if name.startswith("algorithm.")}
        return self.algorithm(**own)


def _value(name: str, steps: Steps) -> Any:
    return math.prod(steps[factor] for factor in name.split(" * "))
