"""Step sizes from theory: the theorem that comes nearest to an experiment, and the experiment with what it recommends.

Theorems assume more than experiments keep to. What fails is said, and the step sizes are used nevertheless: they are
those that somebody has proved something about, usually small.
"""

import dataclasses
import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.algorithms import (
    ALGORITHMS,
    FedAsync,
    FedDANE,
    FedDR,
    FedDyn,
    FedDynOneGD,
    FedPD,
    FedProx,
    FedSGD,
    FedSplit,
)
from fedloom.client import Solver
from fedloom.diagnosis.setting import setting_of
from fedloom.experiments.changes import changed
from fedloom.experiments.definition import Checked, Experiment, method_name
from fedloom.schedules import Schedule
from fedloom.solvers import GD, SGD, ToTolerance
from fedloom.theory import THEOREMS, Constants, Setting, Theorem, constants
from fedloom.theory.assumptions import CONVEX, EXACT, ONLY_BOUNDS, STRONGLY_CONVEX, SYNCHRONOUS
from fedloom.theory.theorem import FAILS, HOLDS, UNKNOWN

LR = "solver.lr"
WITHOUT_SOLVER = (FedSGD, FedDynOneGD)  # they take gradients themselves

# mu of the local problem F_k(v) + mu/2 |v - anchor|^2, and its name; with FedDyn's weighting "alpha", the largest.
PROXIMAL: dict[type[Algorithm], tuple[str, Callable[[Any, Constants], float]]] = {
    FedDyn: ("alpha", lambda a, c: a.alpha / (_least_weight(c) if a.weighting == "alpha" else 1)),
    FedDR: ("1/eta", lambda a, c: 1 / a.eta),
    FedSplit: ("1/eta", lambda a, c: 1 / a.eta),
    FedPD: ("1/eta", lambda a, c: 1 / a.eta),
    FedProx: ("mu", lambda a, c: float(np.max(a.mu)) if a.term == "proximal" else 0.0),
    FedDANE: ("mu", lambda a, c: float(np.max(a.mu))),
    FedAsync: ("rho", lambda a, c: a.rho),
}


class FromTheory(NamedTuple):
    """An experiment with the step sizes of a theorem."""

    experiment: Experiment
    theorem: Theorem
    values: dict[str, float]  # the fields that were set
    sentences: tuple[str, ...]  # what was chosen and why, what is assumed, and what fails


def from_theory(e: Experiment, *, keep: Collection[str] = (), measured: Constants | None = None) -> FromTheory:
    """The experiment with the step sizes that a theorem about its algorithm recommends.

    Of several theorems it is the one of which least fails; those for convex losses are left out where a loss is not
    convex. Where a theorem assumes exact solves, the solver is kept, with steps of 1/(L + mu), mu being the proximal
    weight of the local problem. A schedule of the step size is replaced by the constant.

    Args:
        e: the experiment.
        keep: fields to leave as they are, such as "algorithm.alpha".
        measured: the task's constants, if they are known; measured if None.
    """
    about = theorems_about(e.algorithm)
    if not about:
        raise ValueError(
            f"There is no theorem here about {method_name(e.algorithm)}; there are theorems about "
            f"{', '.join(with_theorems())}."
        )
    checked = e.check()
    c = constants(checked.loaded, solver=e.solver, seed=e.seed) if measured is None else measured
    s, said = _setting(e, checked)
    theorem, steps, why = _chosen(about, c, s, e)
    set_ = {field: value for field, value in steps.items() if not _kept(field, keep)}
    made = changed(e, set_)
    sentences = [f"{theorem.name} ({theorem.citation}). {why}", *said]
    sentences += [f"{_instead(e, field, value)}." for field, value in set_.items()]
    if LR not in steps and has_steps(made):
        lr, formula = stable_step(made, c)
        if not _kept(LR, keep):
            set_[LR], made = lr, changed(made, {LR: lr})
            sentences.append(
                f"{_instead(e, LR, lr)}: {formula}, so that local steps do not diverge; the theorem itself assumes "
                "that local problems are solved."
            )
    sentences += _explicit(e, theorem, c, s, {**steps, LR: 0.0} if has_steps(made) else steps, keep)
    sentences += _checks(theorem, c, s)
    sentences.append(f"It says nothing about {theorem.silent}.")
    return FromTheory(made, theorem, set_, tuple(sentences))


def theorems_about(algorithm: Any) -> list[Theorem]:
    """The theorems about an algorithm's kind."""
    return [theorem for theorem in THEOREMS.values() if theorem.algorithm is type(algorithm)]


def with_theorems() -> list[str]:
    """The names of the algorithms about which there are theorems."""
    kinds = {theorem.algorithm for theorem in THEOREMS.values()}
    return [name for name, kind in ALGORITHMS.items() if kind in kinds]


def has_steps(e: Experiment) -> bool:
    """Whether clients make gradient steps of a size that can be chosen."""
    return isinstance(e.solver, SGD | GD | ToTolerance) and not isinstance(e.algorithm, WITHOUT_SOLVER)


def stable_step(e: Experiment, c: Constants) -> tuple[float, str]:
    """1/(L + mu) of the local problem, with which gradient descent on it does not diverge, and its formula."""
    sums = examples_in_sum(e.solver, c)
    curvature, formula = c.L.value * sums, "L" if sums == 1 else f"{sums:.4g} L"
    if type(e.algorithm) in PROXIMAL:
        name, weight = PROXIMAL[type(e.algorithm)]
        if mu := weight(e.algorithm, c):
            curvature, formula = curvature + mu, f"({formula} + {name})"
    return 1 / curvature, f"1/{formula}"


def examples_in_sum(solver: Solver, c: Constants) -> float:
    """How many gradients a step adds up: 1 if it takes their mean, as it does but for reduction = "sum"."""
    return float(solver.batch_size or 1) if isinstance(solver, SGD) and solver.reduction == "sum" else 1.0


def _least_weight(c: Constants) -> float:
    """The smallest m p_k: FedDyn's alpha is divided by it."""
    return float(np.min(c.weights[c.weights > 0])) * c.clients


def _kept(field: str, keep: Collection[str]) -> bool:
    return any(name == field or name.startswith(f"{field}.") for name in keep)


def _instead(e: Experiment, field: str, value: float) -> str:
    part, name = field.split(".")
    old = getattr(getattr(e, part), name)
    if isinstance(old, Schedule):
        return f"{field} = {value:.4g} in every round, in place of the schedule {old!r:.80}"
    return f"{field} = {value:.4g}" + (" as before" if old == value else f" in place of {old!s:.40}")


def _setting(e: Experiment, checked: Checked) -> tuple[Setting, list[str]]:
    """With a constant step size; asynchronous replies are late by as many updates as clients are at work."""
    if isinstance(getattr(e.solver, "lr", None), Schedule):
        e = changed(e, {LR: 1.0})
    s = setting_of(e, checked)
    if e.engine != "events":
        return s, []
    at_work = checked.loaded.federation.clients if s.cohort is None else s.cohort
    tau = math.ceil(at_work / e.buffer)
    late = dataclasses.replace(s, staleness=tau)
    return late, [f"Delays are taken to be at most {tau} updates, as for {at_work} clients of equal speed."]


def _chosen(about: list[Theorem], c: Constants, s: Setting, e: Experiment) -> tuple[Theorem, dict[str, float], str]:
    """The theorem of which least fails, what it recommends, and why it was chosen."""
    bent = {a: found.reason for a in (CONVEX, STRONGLY_CONVEX) if (found := a.check(c, s)).status == FAILS}
    left = [theorem for theorem in about if not any(a in bent for a in theorem.assumptions)]
    out = f"Others are left out: {' '.join(bent.values())} " if len(left) < len(about) else ""
    reasons = []
    for theorem in sorted(left, key=lambda t: _failures(t, c, s)):
        steps = _recommended(theorem, c, s, e)
        if not isinstance(steps, str):
            return theorem, steps, f"{out}{_why(theorem, c, s)}"
        reasons.append(f"{theorem.name}: {steps}")
    raise ValueError(f"No step sizes follow from theory. {reasons[0]}")


def _failures(theorem: Theorem, c: Constants, s: Setting) -> tuple[bool, int, int, int, int]:
    """In this order: whether it is about rounds where replies are late; what fails, exact solves apart; whether those
    fail; what is not known; strongly convex before convex.
    """
    failing = _failing(theorem, c, s)
    inexact = EXACT.sentence in failing
    checks = theorem.check(c, s).items()
    unknown = sum(check.status == UNKNOWN and sentence not in ONLY_BOUNDS for sentence, check in checks)
    general = 0 if STRONGLY_CONVEX in theorem.assumptions else 1 if CONVEX in theorem.assumptions else 2
    rounds = s.staleness > 0 and SYNCHRONOUS in theorem.assumptions
    return rounds, len(failing) - inexact, int(inexact), unknown, general


def _why(theorem: Theorem, c: Constants, s: Setting) -> str:
    failing = _failing(theorem, c, s)
    if not failing:
        holds = theorem.applies(c, s) == HOLDS
        return "All that it assumes holds." if holds else "Nothing that it assumes is known to fail."
    if [*failing] == [EXACT.sentence]:
        return "Of what it assumes only exact local solves fail."
    return "No other about this method has fewer assumptions that fail."


def _failing(theorem: Theorem, c: Constants, s: Setting) -> dict[str, str]:
    """What fails, and why."""
    return {sentence: check.reason for sentence, check in theorem.check(c, s).items() if check.status == FAILS}


def _recommended(theorem: Theorem, c: Constants, s: Setting, e: Experiment) -> dict[str, float] | str:
    """The step sizes, or why there are none."""
    L = c.L.value
    if not (math.isfinite(L) and L > 0):
        return "L is not known." if math.isnan(L) else f"L is {L:.3g}."
    if any(r.low > r.high for r in theorem.allowed(c, s).values()):
        own = [check.reason for a in theorem.assumptions if (check := a.check(c, s)).status == FAILS]
        return " ".join(("no step size gives a decrease.", *own[-1:]))
    steps = dict(theorem.recommended(c, s, e.rounds))
    if LR in steps and not isinstance(e.solver, SGD | GD):
        return f"it is about gradient steps, which {type(e.solver).__name__} does not make; use --solver sgd or gd."
    if LR in steps:
        steps[LR] /= examples_in_sum(e.solver, c)
    for field, value in steps.items():
        if np.ndim(value) or not math.isfinite(value):
            return f"{field} is not one number." if np.ndim(value) else f"{field} needs constants that are not known."
    return {field: float(value) for field, value in steps.items()}


def _explicit(
    e: Experiment, theorem: Theorem, c: Constants, s: Setting, steps: Collection[str], keep: Collection[str]
) -> list[str]:
    """What is said about fields that were given, which win."""
    words, allowed = [], theorem.allowed(c, s)
    for field in steps:
        if _kept(field, keep):
            part, name = field.split(".")
            value = getattr(getattr(e, part), name)
            said = f"{field} = {value!s:.60} was given, and is kept"
            if field in allowed and not isinstance(value, Schedule) and value not in allowed[field]:
                said += f", although the theorem asks for {allowed[field].low:.4g} to {allowed[field].high:.4g}"
            words.append(f"{said}.")
    return words


def _checks(theorem: Theorem, c: Constants, s: Setting) -> list[str]:
    words = {FAILS: "Fails", UNKNOWN: "Not known"}
    found = theorem.check(c, s).items()
    return [
        f"{words[status]}: {sentence} {check.reason}"
        for status in words
        for sentence, check in found
        if check.status == status
    ]
