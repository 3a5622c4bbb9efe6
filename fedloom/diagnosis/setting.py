"""What an experiment does, as far as theorems ask."""

import dataclasses

import numpy as np

from fedloom import cohorts
from fedloom.algorithm import Algorithm
from fedloom.algorithms import FedDANE, FedProx
from fedloom.client import Solver, StepSolver
from fedloom.cohorts import CohortRule
from fedloom.diagnosis.kinks import kinks
from fedloom.experiments.definition import Checked, Experiment
from fedloom.regularizers import none
from fedloom.schedules import Schedule
from fedloom.solvers import GD, SGD, Exact, ToTolerance
from fedloom.theory import Setting

USUAL = {  # of methods' options: what theorems are about
    "weighting": "means",
    "term": "proximal",
    "correction": 1.0,
    "decay": 1.0,
    "pipelined": False,
    "bias_correction": "none",
    "option": "II",
    "first_contact": "zero",
    "divisor": None,
}
# Each has its own gamma: |gradient| by that at the start, and the distance to the solution by that of the start.
GAMMA: dict[type[Algorithm], str] = {FedProx: "relative-gradient", FedDANE: "relative-distance"}


def setting_of(e: Experiment, checked: Checked) -> Setting:
    """The setting of an experiment; what no theorem speaks of is in its departures."""
    federation = checked.loaded.federation
    clients = federation.clients
    sizes = federation.known_sizes
    size, replacement, odd = _cohort(e.cohort, clients)
    steps, inexactness, more = _solver(e.solver, sizes, e.algorithm)
    regularizer = getattr(e.algorithm, "g", none()) != none()
    late = e.engine == "events"
    departures = [*odd, *more, *_variant(e.algorithm), *kinks(checked.loaded)]
    if late:
        departures.append("Replies are late by as much as it happens; a delay has to be given for a bound.")
    if e.on_nonfinite == "drop" or (e.system is not None and not late):
        departures.append("Clients may be lost or left out.")
    return Setting(
        size,
        replacement,
        steps,
        inexactness,
        regularizer,
        replies=e.buffer if late else None,
        by_weight=isinstance(e.cohort, cohorts.by_weight),
        shuffled=_shuffled(e.solver, sizes, steps),
        departures=tuple(departures),
    )


def _shuffled(solver: Solver, sizes: np.ndarray | None, steps: int | None) -> bool:
    """Whether a client's minibatches of one round are parts of the same pass over its examples."""
    if not isinstance(solver, SGD) or solver.batch_size is None or sizes is None:
        return False
    return (steps or 1) > 1 and solver.batch_size < int(np.max(sizes))


def _variant(algorithm: Algorithm) -> list[str]:
    """Variants of a method that its theorems are not about."""
    own = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm) if f.name in USUAL}  # type: ignore[arg-type]
    found = [f"{type(algorithm).__name__} has {name} = {v!r}." for name, v in own.items() if v != USUAL[name]]
    first = getattr(algorithm, "initial_v", None)
    if first is not None and not np.isclose(first, algorithm.tau**2, rtol=1e-6, atol=0):  # type: ignore[attr-defined]
        found.append(f"{type(algorithm).__name__} starts with v = {first!r}, and not with tau^2.")
    return found


def _cohort(rule: CohortRule, clients: int) -> tuple[int | None, bool, list[str]]:
    """The size, whether clients may be drawn twice, and what is not covered."""
    if isinstance(rule, cohorts.everyone):
        return None, False, []
    if isinstance(rule, cohorts.with_replacement | cohorts.by_weight):  # the same where theorems ask for equal weights
        return rule.m, True, []
    if isinstance(rule, cohorts.uniform | cohorts.seeded_by_round):
        return min(rule.m, clients), False, []
    if isinstance(rule, cohorts.bernoulli):
        again = ["After an empty draw a cohort comes twice: rounds are not independent."]
        odd = again if isinstance(rule, cohorts.seeded_bernoulli) else []
        return max(1, round(rule.q * clients)), False, ["Cohorts have no fixed size.", *odd]
    inner = getattr(rule, "of", None)
    size, replacement, odd = (
        _cohort(inner, clients) if isinstance(inner, CohortRule) else (rule.room(clients), False, [])
    )
    return size, replacement, [*odd, f"The cohort rule {type(rule).__name__} is not uniform drawing."]


def _solver(
    solver: Solver, sizes: np.ndarray | None, algorithm: Algorithm
) -> tuple[int | None, float | None, list[str]]:
    """Local steps K, the inexactness of a minimisation, and what is not covered."""
    if isinstance(solver, Exact):
        return None, 0.0, []
    if isinstance(solver, ToTolerance):
        known = solver.criterion == GAMMA.get(type(algorithm)) and not isinstance(solver.tolerance, Schedule)
        return None, solver.tolerance if known else None, []  # type: ignore[return-value] # a number, if it is known
    if not isinstance(solver, StepSolver):
        return None, None, [f"The solver {type(solver).__name__} is not gradient descent."]
    if sizes is None:
        sizes = np.ones(1, int)  # clients that are no examples, such as quadratics: all alike
    steps = np.atleast_1d(np.asarray(solver.steps_for(sizes, int(sizes.max()), 1.0)))
    found = []
    if steps.min() < steps.max():
        found.append(f"Clients make from {steps.min()} to {steps.max()} local steps.")
    if not isinstance(solver, SGD | GD):
        found.append(f"The solver {type(solver).__name__} is not gradient descent.")
    if isinstance(getattr(solver, "lr", None), Schedule):
        found.append("The step size changes from round to round.")
    for name in ("momentum", "weight_decay", "clip"):
        if getattr(solver, name, None):
            found.append(f"Local steps have {name.replace('_', ' ')}.")
    if getattr(solver, "reduction", "mean") == "sum":
        found.append("Local steps add up the gradients of a minibatch.")
    if getattr(solver, "continued", False):
        found.append("Passes over the examples go on from round to round.")
    return int(steps.max()), 0.0, found
