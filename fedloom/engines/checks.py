"""Everything that can be checked before the expensive work, once, with a sentence for what is wrong."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import Changed, CohortRule, everyone, scheduled
from fedloom.engines.plan import Plan, check_plan
from fedloom.engines.records import Origin, Record
from fedloom.engines.run import Run
from fedloom.engines.trees import shapes
from fedloom.hyperparameters import misplaced_arrays, per_client_fields
from fedloom.problem import Vector
from fedloom.systems import Delays, System, Work


def checked(
    algorithm: Algorithm,
    federation: Federation,
    solver: Solver,
    w: Any,
    rounds: int,
    cohort: CohortRule | None = None,
    seed: int = 0,
    on_nonfinite: str = "raise",
    resume: Record | None = None,
    system: System | Delays | None = None,
    *,
    buffer: int | None = None,
    plan: Plan | None = None,
) -> Run:
    """The run that these arguments describe, or a sentence about what is wrong with them.

    Args:
        buffer: replies in an update of an asynchronous run; None: synchronous rounds.
        algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, resume, system, plan: as `simulate` and
            `events` have them.
    """
    cohort = everyone() if cohort is None else cohort
    _check_kinds(algorithm, federation, solver, cohort, rounds, seed, on_nonfinite)
    p = np.asarray(federation.weights, dtype=float)
    if not (np.all(p >= 0) and abs(p.sum() - 1) < 1e-3):
        raise ValueError(f"federation: weights must be non-negative and sum to 1, but their sum is {p.sum():g}.")
    draw = cohort.over(p)
    who, room = type(algorithm).__name__, cohort.room(len(p))
    if algorithm.needs_everyone and not isinstance(cohort, everyone):
        raise ValueError(
            f"{who} needs every client in every round, but the cohort is {cohort!r}; "
            "use cohort=everyone(), or a method that allows partial participation."
        )
    if algorithm.needs_everyone and on_nonfinite == "drop":
        raise ValueError(f"{who} needs every client in every round, so none can be dropped; use on_nonfinite='raise'.")
    if system is not None:
        _check_system(system, algorithm, len(p), room)
    solver.check(federation)
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
    if buffer is not None and solver.lasting:
        raise ValueError(
            f"solver: {solver!r:.100} goes on where the round before ended, but an asynchronous run has no rounds; "
            "leave continued out."
        )
    if buffer is not None:
        _check_asynchronous(algorithm, cohort, system, buffer, room)
    elif isinstance(system, Delays):
        raise ValueError(
            "system: Delays describe late replies, which synchronous rounds do not have; use fl.events, or engine = "
            "'events' in an experiment."
        )
    elif rounds:
        draw(np.random.default_rng([seed, rounds - 1, 0]), rounds - 1)  # a trace may be too short
    if plan is not None:
        check_plan(plan)
        if buffer is not None and plan.devices > 1:
            raise ValueError(
                f"plan: asynchronous runs use one device, not {plan.devices}; leave the number of devices out."
            )
    w = _checked_model(w, federation)
    server = jax.tree.map(lambda x: jnp.array(x, jnp.asarray(x).dtype), algorithm.init(w))
    run = Run(
        algorithm=algorithm,
        federation=federation,
        solver=solver,
        draw=draw,
        cohort_room=room,
        partial_work=partial,
        p=p,
        usual_weight=cohort.usual_weight(p),
        w=w,
        rounds=int(rounds),
        seed=int(seed),
        key=jax.random.key(int(seed)),
        drop=on_nonfinite == "drop",
        start=Record(0, server, {}, origin=Origin(who, int(seed), w, engine=(buffer, system))),
        system=system,
        buffer=buffer,
        plan=plan,
    )
    return run if resume is None else resumed(run, resume)


def resumed(run: Run, record: Record) -> Run:
    """The run from a record on: with the arguments of the record's own run, up to a later round."""
    origin = run.start.origin
    assert origin is not None
    old = record.origin or origin
    if old.algorithm != origin.algorithm or shapes(record.server) != shapes(run.start.server):
        raise ValueError(f"resume: the record is of {old.algorithm}, or of a model of another size or type.")
    if old.seed != origin.seed:
        raise ValueError(f"resume: the record's run has seed {old.seed}, this one {origin.seed}.")
    if old.engine != origin.engine:
        there, here = ("buffer = {}, system = {!r}".format(*o.engine) for o in (old, origin))
        raise ValueError(f"resume: the record's run was of another kind: {there}; this one has {here}.")
    if not bool(jnp.array_equal(old.w, origin.w)):
        raise ValueError("resume: w must be the initial model of the record's run, not the model where it stopped.")
    if record.round > run.rounds:
        raise ValueError(
            f"resume: the record already has {record.round} rounds, so rounds, which counts all of them, must be at "
            "least that."
        )
    return run._replace(start=record.fresh()._replace(origin=origin._replace(plan=old.plan)))


def check_chunk(chunk: Any) -> None:
    if not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"chunk must be a positive integer, got {chunk!r}.")


def _check_kinds(
    algorithm: Any, federation: Any, solver: Any, cohort: Any, rounds: Any, seed: Any, on_nonfinite: Any
) -> None:
    for name, value, kind, example in (
        ("algorithm", algorithm, Algorithm, 'an Algorithm, e.g. FedAvg() or make("fedavg")'),
        ("federation", federation, Federation, "a Federation, e.g. examples(...)"),
        ("solver", solver, Solver, "a Solver, e.g. SGD(lr=0.1)"),
        ("cohort", cohort, CohortRule, "a CohortRule, e.g. uniform(10)"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {example}, got {value!r}.")
    for name, number, limit in (("rounds", rounds, np.inf), ("seed", seed, 2**32)):
        if not isinstance(number, int | np.integer) or not 0 <= number < limit:
            bound = "" if limit == np.inf else f" smaller than {limit}"
            raise ValueError(f"{name} must be a non-negative integer{bound}, got {number!r}.")
    if on_nonfinite not in ("raise", "drop"):
        raise ValueError(f"on_nonfinite must be 'raise' or 'drop', got {on_nonfinite!r}.")


def _check_asynchronous(algorithm: Algorithm, cohort: CohortRule, system: Any, buffer: Any, room: int) -> None:
    """Raise a sentence if the run makes no sense when replies may be late."""
    who = type(algorithm).__name__
    if len(algorithm.exchanges) > 1:
        raise ValueError(
            f"{who} has {len(algorithm.exchanges)} exchanges in a round, which belong together, so it cannot run "
            "asynchronously; use the synchronous engine, or a method with one exchange such as FedDR or FedBuff."
        )
    if not algorithm.tolerates_staleness:
        raise ValueError(
            f"{who} cannot run asynchronously: {algorithm.why_not_stale} Use the synchronous engine, or a method that "
            "tolerates late replies, such as FedDR, FedBuff or SCAFFOLD."
        )
    rule = cohort
    while isinstance(rule, Changed):
        rule = rule.of
    if isinstance(rule, scheduled):
        raise ValueError(
            f"cohort: {cohort!r:.60} is a trace of synchronous rounds, which an asynchronous run does not have; use "
            "another cohort, or give the clients' times online as a system's availability."
        )
    if isinstance(system, Delays) and not isinstance(cohort, everyone):
        raise ValueError(
            f"cohort: Delays draw the clients themselves, so {cohort!r:.60} has no effect; use everyone()."
        )
    if not isinstance(buffer, int) or isinstance(buffer, bool) or not 1 <= buffer <= room:
        raise ValueError(f"buffer must be an integer from 1 to {room}, the number of clients at work, got {buffer!r}.")
    if isinstance(system, Delays) and buffer > 1:
        raise ValueError(f"buffer: with Delays every update has one reply, not {buffer}.")
    if isinstance(system, System) and (system.deadline is not None or system.enough is not None):
        raise ValueError(
            "system: deadline and enough end synchronous rounds, but an asynchronous server waits for nobody. "
            "Leave them out."
        )


def _check_system(system: Any, algorithm: Algorithm, clients: int, room: int) -> None:
    if isinstance(system, Delays):
        system.over(clients)
        return
    if not isinstance(system, System):
        raise TypeError(f"system must be a System, e.g. System(speeds=2.0), got {system!r}.")
    system.over(Work(0, 0, np.ones(clients)), 0)  # traces and lists must fit the population
    if algorithm.needs_everyone and not system.loses_nobody:
        raise ValueError(
            f"{type(algorithm).__name__} needs every client in every round, but this system may lose some: use "
            "availability always, no faults, no deadline and no `enough`."
        )
    if system.enough is not None and system.enough > room:
        raise ValueError(f"system: a cohort of {room} never sends enough = {system.enough} replies; draw more clients.")


_REMEDY = {
    "lr_sum": "Use GD, SGD without momentum and clip, or TorchLoop with plain torch.optim.SGD and without `train`; "
    "SCAFFOLD's option I and its divisor work with any solver.",
    "accumulator": "Use the solver Adagrad.",
    "work": "Use a solver that works in steps, such as SGD, or TorchLoop without `train`.",
}


@jax.jit  # as a function of its own, so that runs with data and models of the same shapes share its trace
def _gradient(federation: Federation, w: Vector) -> Vector:
    return federation.objective(0).grad(w)


def _checked_model(w: Any, federation: Federation) -> Vector:
    w = jnp.asarray(w)
    if w.ndim != 1 or not jnp.issubdtype(w.dtype, jnp.floating):
        raise ValueError(
            f"w must be a flat vector of floats, got shape {w.shape} of {w.dtype}; "
            "jax.flatten_util.ravel_pytree turns parameters into one."
        )
    if not np.isfinite(np.asarray(w)).all():
        raise ValueError("w must be finite: the initial model has NaN or infinite entries.")
    try:
        grad = _gradient.eval_shape(federation, w)
    except Exception as error:
        raise ValueError(f"The federation's loss does not accept w of length {w.size}: {error}") from error
    if grad.dtype != w.dtype:
        raise ValueError(
            f"w is of type {w.dtype}, but the federation's gradients are of type {grad.dtype}; "
            f"use one float type, for example w.astype({grad.dtype})."
        )
    federation.check(w)
    return w
