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


# Constants as theorems take them.


def smoothness(c: Constants) -> float:
    return c.L.value


def own_smoothness(c: Constants) -> float:
    """L of f itself, or of the F_k where that is not known."""
    return c.L_f.value if math.isfinite(c.L_f.value) else c.L.value


def at_optimum(c: Constants) -> float:
    """sum_k p_k |grad F_k(w*)|^2, as sigma_g_mean^2: constants measured where w* is among the points."""
    return c.sigma_g_mean.value**2


def at_start(c: Constants) -> float:
    """At least sum_k p_k |grad F_k(w0)|^2, which is sigma_g_mean^2 + |grad f(w0)|^2 there, by |grad f|^2 <= 2 L gap."""
    return c.sigma_g_mean.value**2 + 2 * own_smoothness(c) * c.gap.value


# Assumptions that several theorems make.


def _known(name: str, sentence: str, what: str) -> Assumption:
    """Of a constant that has to be finite for all w."""

    def check(c: Constants, s: Setting) -> Check:
        value = getattr(c, name).value
        if math.isnan(value):
            return Check(UNKNOWN, f"{name} was not measured.")
        if math.isinf(value):
            return Check(FAILS, f"{what} are unbounded.")
        if name in c.everywhere:
            return Check(HOLDS, f"{name} = {value:.3g} for all w.")
        return Check(UNKNOWN, f"{name} = {value:.3g} at the points measured; it may be larger elsewhere.")

    return Assumption(sentence, check)


SMOOTH = _known("L", "Every F_k has an L-Lipschitz gradient.", "second derivatives")
BOUNDED_NOISE = _known("sigma_l", "Minibatch gradients are unbiased with variance at most sigma_l^2.", "variances")
SIMILAR = _known("sigma_g", "Gradients of clients differ from that of f by at most sigma_g.", "differences")
DISSIMILAR = _known("B", "sum_k p_k |grad F_k|^2 <= B^2 |grad f|^2 at every iterate.", "the ratios")
BOUNDED_GRADIENTS = _known("G", "Every entry of every minibatch gradient is at most G.", "gradients")


def _sign(name: str, sentence: str, good: Callable[[float], bool], bad: str) -> Assumption:
    def check(c: Constants, s: Setting) -> Check:
        value = getattr(c, name).value
        if math.isnan(value):
            return Check(UNKNOWN, f"{name} was not measured.")
        if not good(value):
            return Check(FAILS, f"{name} = {value:.3g}: {bad}")
        if name in c.everywhere:
            return Check(HOLDS, f"{name} = {value:.3g} for all w.")
        return Check(UNKNOWN, f"{name} = {value:.3g} at the points measured only.")

    return Assumption(sentence, check)


CONVEX = _sign("rho", "Every F_k is convex.", lambda v: v <= 0, "some F_k is not convex.")
STRONGLY_CONVEX = _sign("mu", "Every F_k is mu-strongly convex.", lambda v: v > 0, "some F_k is not strongly convex.")


def _fact(sentence: str, holds: Callable[[Constants, Setting], bool], yes: str, no: str) -> Assumption:
    return Assumption(sentence, lambda c, s: Check(HOLDS, yes) if holds(c, s) else Check(FAILS, no))


EQUAL_WEIGHTS = _fact(
    "All clients have the weight 1/m.",
    lambda c, s: bool(np.allclose(c.weights, 1 / c.clients, rtol=1e-9)),
    "They have.",
    "Weights differ; the theorem says nothing about weighted means.",
)
EVERYONE = _fact(
    "Everyone takes part in every round.",
    lambda c, s: s.everyone(c),
    "They do.",
    "Cohorts are a part of the clients, which the theorem does not cover.",
)
SYNCHRONOUS = _fact(
    "Replies are to the current model.",
    lambda c, s: s.staleness == 0,
    "They are.",
    "Replies are late, which the theorem does not cover.",
)
NO_REGULARIZER = _fact(
    "The objective is smooth: no kinks, no regularizer at the server.",
    lambda c, s: not s.regularizer,
    "There is none.",
    "There is one; the theorem says nothing about nonsmooth objectives.",
)
WITHOUT_REPLACEMENT = _fact(
    "Cohorts of a fixed size are drawn uniformly, without replacement.",
    lambda c, s: not s.replacement,
    "They are.",
    "Clients may be drawn twice.",
)
LOCAL_STEPS = _fact(
    "Clients make K gradient steps, the same number in every round.",
    lambda c, s: s.local_steps is not None,
    "They do.",
    "Local problems are minimised instead.",
)


def _exact(c: Constants, s: Setting) -> Check:
    if s.local_steps is not None:
        return Check(FAILS, f"Clients make {s.local_steps} gradient steps; inexact solves are not covered.")
    if s.inexactness is None:
        return Check(UNKNOWN, "How exactly they are solved is not known.")
    if s.inexactness > 0:
        return Check(FAILS, f"They are solved up to {s.inexactness:.3g}; inexact solves are not covered.")
    return Check(HOLDS, "They are solved exactly.")


EXACT = Assumption("Local problems are solved exactly.", _exact)


def _inexact(c: Constants, s: Setting) -> Check:
    if s.local_steps is not None or s.inexactness is None:
        return Check(UNKNOWN, "gamma of the local solves is not known.")
    return Check(HOLDS if s.inexactness < 1 else FAILS, f"gamma = {s.inexactness:.3g}.")


INEXACT = Assumption("Local problems are solved up to a known gamma < 1.", _inexact)


def rho_positive(rho: Callable[[Constants, Setting], float]) -> Assumption:
    """That a sufficient decrease is possible at all, with the best step size."""

    def check(c: Constants, s: Setting) -> Check:
        value = rho(c, s)
        if math.isnan(value):
            return Check(UNKNOWN, "It follows from constants that were not measured.")
        return Check(HOLDS if value > 0 else FAILS, f"rho is at most {value:.3g}.")

    return Assumption("Some mu gives a decrease, rho > 0.", check)
