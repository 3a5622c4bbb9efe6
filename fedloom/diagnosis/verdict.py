"""What theorems say about an experiment: which apply, why others do not, and the step sizes they allow."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.experiments.definition import Experiment
from fedloom.schedules import Schedule, at
from fedloom.theory import THEOREMS, Check, Constants, Range, Setting, Theorem
from fedloom.theory.assumptions import ONLY_BOUNDS
from fedloom.theory.asyncfeddr import ASYNCFEDDR

HOLDS, FAILS, UNKNOWN = "holds", "fails", "unknown"
# Step sizes are compared up to rounding, which is coarser for what a model in float32 was run with.
CLOSE = 1e-6
FREE = Range(-math.inf, math.inf)  # of a step size that is limited in a product only


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A theorem, and each of its assumptions: holds, fails or unknown, and why."""

    name: str  # in fl.theory.THEOREMS
    theorem: Theorem
    checks: Mapping[str, Check]

    @property
    def status(self) -> str:
        """ "holds", "fails" or "unknown"; as `Theorem.applies` says."""
        found = {check.status for check in self.checks.values()}
        return FAILS if FAILS in found else UNKNOWN if UNKNOWN in found else HOLDS

    def because(self, status: str) -> list[str]:
        """The assumptions with this status, and why."""
        return [f'"{sentence}" {check.reason}' for sentence, check in self.checks.items() if check.status == status]

    @property
    def words(self) -> str:
        """What the theorem says, as a predicate."""
        if self.status == HOLDS:
            return "applies"
        if self.status == FAILS:
            return "says nothing"
        return "may apply: nothing contradicts it at the points measured"


@dataclasses.dataclass(frozen=True)
class StepSize:
    """A step size, or a product of them: what a theorem allows and recommends, and what the experiment has."""

    name: str
    allowed: Range
    recommended: float | None  # None: not chosen, or a product
    own: float | None  # None: the experiment has none

    @property
    def inside(self) -> bool | None:
        """Whether the experiment's own is allowed; None if it has none, or the range is not known."""
        if self.own is None or math.isnan(self.allowed.low) or math.isnan(self.allowed.high):
            return None
        return self.allowed.low * (1 - CLOSE) <= self.own <= self.allowed.high * (1 + CLOSE)

    @property
    def factor(self) -> float:
        """By how much the experiment's own is beyond the nearer end; 1 if it is inside, NaN if that is not known."""
        if self.inside is None or self.own is None:
            return math.nan
        if self.inside:
            return 1.0
        if self.allowed.low > self.allowed.high:
            return math.inf
        end, over = (self.allowed.high, True) if self.own > self.allowed.high else (self.allowed.low, False)
        small, large = (end, self.own) if over else (self.own, end)
        return large / small if small > 0 else math.inf

    @property
    def words(self) -> str:
        """Whether the experiment's own is allowed, in words."""
        if self.own is None or self.allowed == FREE:
            return ""
        if self.inside is None:
            return "cannot be told"
        if self.inside:
            return "allowed"
        if self.allowed.low > self.allowed.high:
            return "no value is allowed"
        many = "" if math.isinf(self.factor) else f"{number(self.factor)} times "
        return many + ("too large" if self.own > self.allowed.high else "too small")


def number(x: float, digits: int = 3) -> str:
    """A few digits; large ones with commas."""
    if not math.isfinite(x):
        return "unknown" if math.isnan(x) else "infinity"
    return f"{x:,.0f}" if 10**digits <= abs(x) < 1e7 else f"{x:.{digits}g}"


def about(algorithm: Algorithm, engine: str = "simulate") -> dict[str, Theorem]:
    """The theorems about an algorithm; that of asyncFedDR speaks of late replies only."""
    late = engine == "events"
    return {
        name: theorem
        for name, theorem in THEOREMS.items()
        if theorem.algorithm is type(algorithm) and (late or name not in ASYNCFEDDR)
    }


def verdicts(e: Experiment, c: Constants, s: Setting) -> list[Verdict]:
    """All theorems about an experiment's algorithm, the best first.

    Those that apply come first, then those of which fewer assumptions fail or are unknown; among equals the one that
    uses more, and then the one whose bound, with its own step sizes, is the smallest after all rounds.
    """
    found = [Verdict(name, theorem, theorem.check(c, s)) for name, theorem in about(e.algorithm, e.engine).items()]

    def order(v: Verdict) -> tuple[bool, int, int, int, float]:
        try:
            bound = v.theorem.bound(e.rounds, c, s, v.theorem.recommended(c, s, e.rounds))
        except ZeroDivisionError:  # mu = 0, say, where the theorem wants more
            bound = math.inf
        failing = len(v.because(FAILS))
        unknown = sum(check.status == UNKNOWN and sentence not in ONLY_BOUNDS for sentence, check in v.checks.items())
        other = (
            e.engine == "events" and v.name not in ASYNCFEDDR
        )  # what is about rounds comes after what is about events
        uses = -sum(sentence not in ONLY_BOUNDS for sentence in v.checks)
        return other, failing, unknown, uses, bound if math.isfinite(bound) else math.inf

    return sorted(found, key=order)


def own_steps(e: Experiment, names: Any) -> dict[str, Any]:
    """The experiment's own step sizes, by name; of a schedule, that of the first round."""
    found = {}
    for name in names:
        part, field = name.split(".")
        value = getattr(getattr(e, part), field, None)
        if value is not None:
            found[name] = float(at(value, 0)) if isinstance(value, Schedule) else value
    return found


def factors(names: Any) -> list[str]:
    """The single step sizes of names and products."""
    return list(dict.fromkeys(factor for name in names for factor in name.split(" * ")))


def step_sizes(theorem: Theorem, e: Experiment, c: Constants, s: Setting) -> list[StepSize]:
    """What the theorem allows and recommends for the experiment's rounds, beside what the experiment has."""
    allowed, recommended = theorem.allowed(c, s), theorem.recommended(c, s, e.rounds)
    own = own_steps(e, factors([*allowed, *recommended]))
    found = []
    for name in dict.fromkeys([*allowed, *recommended]):
        range_ = allowed.get(name, FREE)
        parts = name.split(" * ")
        mine = math.prod(_number(own[p]) for p in parts) if all(p in own for p in parts) else None
        good = math.prod(_number(recommended[p]) for p in parts) if all(p in recommended for p in parts) else None
        if range_.low > range_.high:  # what gives the least bad bound is no recommendation
            good = None
        found.append(StepSize(name, range_, good, mine))
    return found


def _number(value: Any) -> float:
    """A step size; of one for each client, the largest."""
    return float(np.max(value))
