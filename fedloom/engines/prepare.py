"""Everything that can be checked before the expensive work, with a sentence for what is wrong."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule, everyone, scheduled, stragglers
from fedloom.engines.run import Origin, Record, Run, shapes
from fedloom.hyperparameters import misplaced_arrays, per_client_fields
from fedloom.problem import Vector
from fedloom.systems import Delays, System, Work


def prepare(
    algorithm: Algorithm,
    federation: Federation,
    solver: Solver,
    w: Any,
    rounds: int,
    cohort: CohortRule | None,
    seed: int,
    on_nonfinite: str,
    resume: Record | None,
    system: System | Delays | None = None,
    buffer: int | None = None,
) -> Run:
    """Check everything that can be checked before the expensive work. A buffer is that of an asynchronous run."""
    cohort = everyone() if cohort is None else cohort
    for name, value, kind, example in (
        ("algorithm", algorithm, Algorithm, 'FedAvg() or make("fedavg")'),
        ("federation", federation, Federation, "examples(...)"),
        ("solver", solver, Solver, "SGD(lr=0.1)"),
        ("cohort", cohort, CohortRule, "uniform(10)"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a value such as {example}, got {value!r}.")
    for name, number, limit in (("rounds", rounds, np.inf), ("seed", seed, 2**32)):
        if not isinstance(number, int | np.integer) or not 0 <= number < limit:
            bound = "" if limit == np.inf else f" and smaller than {limit}"
            raise ValueError(f"{name} must be a whole number that is not negative{bound}, got {number!r}.")
    if on_nonfinite not in ("raise", "drop"):
        raise ValueError(f"on_nonfinite must be 'raise' or 'drop', got {on_nonfinite!r}.")
    p = np.asarray(federation.weights, dtype=float)
    if not (np.all(p >= 0) and abs(p.sum() - 1) < 1e-3):
        raise ValueError(
            f"federation: weights must not be negative and must add up to 1, but their sum is {p.sum():g}."
        )
    who = type(algorithm).__name__
    if algorithm.needs_everyone and not isinstance(cohort, everyone):
        raise ValueError(
            f"{who} needs every client in every round, but the cohort is {cohort!r}; "
            "use cohort=everyone(), or a method that allows partial participation."
        )
    if algorithm.needs_everyone and on_nonfinite == "drop":
        raise ValueError(f"{who} needs every client in every round, so none can be dropped; use on_nonfinite='raise'.")
    if system is not None:
        _check_system(system, algorithm, len(p), cohort.room(len(p)))
    partial = cohort.partial_work or (isinstance(system, System) and system.partial_work)
    needed = algorithm.needs | ({"work"} if partial else set())
    if missing := needed - solver.offers:
        raise ValueError(
            f"{who} with cohort {cohort!r} needs a solver that offers {', '.join(sorted(missing))}, which "
            f"{solver!r} does not. " + " ".join(_REMEDY[m] for m in sorted(missing))
        )
    for name, values in per_client_fields(algorithm).items():
        if len(values) != len(p):
            raise ValueError(
                f"{who}: {name} has {len(values)} entries for {len(p)} clients; give one number or {len(p)}."
            )
    for value in (algorithm, solver):
        for name, shape in misplaced_arrays(value).items():
            raise ValueError(f"{type(value).__name__}: {name} must be one number, got an array of shape {shape}.")
    draw = cohort.over(p)
    if buffer is not None:
        _check_no_rounds(cohort, system)
    elif rounds:
        draw(np.random.default_rng([seed, rounds - 1, 0]), rounds - 1)  # a trace may be too short
    w = _checked_model(w, federation)
    origin = Origin(who, int(seed), w, engine=(buffer, system))
    server = jax.tree.map(lambda x: jnp.array(x, jnp.asarray(x).dtype), algorithm.init(w))
    start = Record(0, server, {}, origin=origin) if resume is None else _checked_resume(resume, server, origin, rounds)
    key, drop = jax.random.key(int(seed)), on_nonfinite == "drop"
    lanes = cohort.room(len(p))
    return Run(
        algorithm,
        federation,
        solver,
        draw,
        lanes,
        partial,
        p,
        w,
        int(rounds),
        int(seed),
        key,
        drop,
        start,
        system,
        usual_weight=cohort.usual_weight(p),
    )


def _check_no_rounds(cohort: CohortRule, system: Any) -> None:
    """An asynchronous run has no rounds that a trace could tell the cohorts of; Delays draw users themselves."""
    rule = cohort
    while isinstance(rule, stragglers):
        rule = rule.of
    if isinstance(rule, scheduled) or (isinstance(system, Delays) and not isinstance(cohort, everyone)):
        raise ValueError(
            f"cohort: {cohort!r:.60} says who takes part in rounds, which this run does not have; use everyone(), or "
            "give the clients' times online as a system's availability."
        )


def _check_system(system: Any, algorithm: Algorithm, clients: int, lanes: int) -> None:
    if isinstance(system, Delays):
        system.over(clients)
        return
    if not isinstance(system, System):
        raise TypeError(f"system must be a value such as System(speeds=2.0), got {system!r}.")
    system.over(Work(0, 0, np.ones(clients)), 0)  # traces and lists must fit the population
    if algorithm.needs_everyone and not system.loses_nobody:
        raise ValueError(
            f"{type(algorithm).__name__} needs every client in every round, but this system may lose some: it must "
            "have availability always, no faults, no deadline and no `enough`."
        )
    if system.enough is not None and system.enough > lanes:
        raise ValueError(
            f"system: enough = {system.enough} replies never come from a cohort of {lanes}; draw more clients."
        )


def _checked_resume(resume: Record, server: Any, origin: Origin, rounds: int) -> Record:
    """A record can be resumed with the arguments of its own run, up to a later round."""
    old = resume.origin or origin
    if old.algorithm != origin.algorithm or shapes(resume.server) != shapes(server):
        raise ValueError(f"resume: the record is of {old.algorithm}, or of a model of another size or type.")
    if old.seed != origin.seed:
        raise ValueError(f"resume: the record's run has seed {old.seed}, this one {origin.seed}.")
    if resume.origin is not None and old.engine != origin.engine:
        there, here = ("buffer = {}, system = {!r}".format(*o.engine) for o in (old, origin))
        raise ValueError(f"resume: the record's run was of another kind: {there}; this one has {here}.")
    if not bool(jnp.array_equal(old.w, origin.w)):
        raise ValueError("resume: w must be the initial model of the record's run, not the model where it stopped.")
    if resume.round > rounds:
        raise ValueError(
            f"resume: the record has {resume.round} rounds already, so rounds, which counts all, must be at least that."
        )
    origin = origin._replace(plan=old.plan)
    return resume._replace(origin=origin, residual=None, unsolved=0, dropped=())  # these are of single records


_REMEDY = {
    "lr_sum": "Use GD, or SGD without momentum and clip; SCAFFOLD's option I works with any solver.",
    "accumulator": "Use the solver Adagrad.",
    "work": "Use a solver that works in steps, such as SGD.",
}


def _checked_model(w: Any, federation: Federation) -> Vector:
    w = jnp.asarray(w)
    if w.ndim != 1 or not jnp.issubdtype(w.dtype, jnp.floating):
        raise ValueError(
            f"w must be a flat vector of floats, got shape {w.shape} of {w.dtype}; "
            "jax.flatten_util.ravel_pytree turns parameters into one."
        )
    if not bool(jnp.all(jnp.isfinite(w))):
        raise ValueError("w must be finite: the initial model has NaN or infinite entries.")
    try:
        grad = jax.eval_shape(lambda f, v: f.objective(0).grad(v), federation, w)
    except Exception as error:
        raise ValueError(f"The federation's loss does not accept w of length {w.size}: {error}") from error
    if grad.dtype != w.dtype:
        raise ValueError(
            f"w is of type {w.dtype}, but the federation's gradients are of type {grad.dtype}; "
            f"use one float type, for example w.astype({grad.dtype})."
        )
    return w
