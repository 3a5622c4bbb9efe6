"""Choosing a plan: by a rule for short runs, by measuring for long ones.

What is measured are rounds of plain averaging with the run's solver and its first cohorts. A plan that is clearly the
best is remembered for the machine, the data, the model and the solver, whatever the algorithm.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.cohorts import Draw
from fedloom.engines import processes
from fedloom.engines.costs import LocalSteps, in_steps
from fedloom.engines.packing import cohorts_vary, duration, first_draws, pack
from fedloom.engines.plan import Plan, check_plan
from fedloom.engines.run import Run
from fedloom.engines.time_plans import Choice, Stopwatch, fastest
from fedloom.engines.trees import shapes
from fedloom.native.build import here, left_out
from fedloom.places import cache_directory
from fedloom.problem import Problem
from fedloom.systems import Delays

LARGE_STEP = 5e6  # floating-point operations of a step from which one client keeps a core busy alone
SMALL_ROUND = 1e7  # operations of a round up to which sharing it among devices costs more than it gains
LONG_RUN = 2e13  # operations of a run from which measuring pays: a minute or more
MOST_LANES = 256  # lanes side by side: more gain nothing
UNKNOWN_STEPS = 10  # of a solver that does not say how many it takes
MOST_JOBS = 64  # of an asynchronous run side by side
WIDTHS = 16  # numbers of lanes that are thought about
WORSE = 1.4  # times slower than the best so far: then more lanes are not tried

T = TypeVar("T")
Say = Callable[[str], None]


def planned(run: Run, say: Say = lambda words: None) -> Run:
    """The run with its plan: the one given, that of the record it resumes, or one that is chosen now."""
    origin = run.start.origin
    assert origin is not None
    before = origin.plan if origin.plan is not None and origin.plan.shards is None else None
    given = (0, 0) if run.plan is None else (run.plan.lanes, run.plan.devices)
    arrays = (run.algorithm, run.federation, run.solver, run.w, run.start.server)
    processes.check_alike(arrays, run.seed, run.rounds, run.start.round, *given)
    plan = run.plan or before or (_choose(run, say) if run.buffer is None else _asynchronous(run))
    check_plan(plan)  # also one that a record or a directory brings from another machine
    return _with(run, plan)


def sharded(run: Run, shards: int | None, usual: Callable[[int], int]) -> Run:
    """The run with its plan for a cluster: the one given, that of the record it resumes, or one that is chosen now.

    usual: how many shards there are if nobody says, for cohorts of a size.
    """
    origin = run.start.origin
    assert origin is not None
    before = origin.plan if origin.plan is not None and origin.plan.shards is not None else None
    given = run.plan.shards if run.plan is not None else None
    if shards is not None and (not isinstance(shards, int) or isinstance(shards, bool) or shards < 1):
        raise ValueError(f"shards must be a positive integer, got {shards!r}.")
    if before is not None and {shards, given} - {None, before.shards}:
        raise ValueError(f"shards: the run that is resumed has {before.shards}; its bits depend on them.")
    number = shards or given or (before.shards if before is not None else None) or usual(run.cohort_room)
    number = min(number, run.federation.clients)
    lanes = run.plan.lanes if run.plan is not None else before.lanes if before is not None else None
    return _with(run, Plan(lanes or _lanes_of_parts(run, number), shards=number))


def _with(run: Run, plan: Plan) -> Run:
    origin = run.start.origin
    assert origin is not None
    return run._replace(plan=plan, start=run.start._replace(origin=origin._replace(plan=plan)))


def _lanes_of_parts(run: Run, shards: int) -> int:
    """Lanes for the clients of one shard in a cohort, by the rule for short runs."""
    if run.federation.on_host or step_operations(run) >= LARGE_STEP:
        return 1

    def first_shard(rng: np.random.Generator, t: int) -> Draw:
        draw = run.draw(rng, t)
        mine = draw.ids % shards == 0
        return Draw(*(x[mine] for x in draw))

    sizes = [int(np.sum(draw.ids % shards == 0)) for draw in first_draws(run)]
    return as_wide_as_the_cohort(run._replace(draw=first_shard, cohort_room=max(sizes, default=1) or 1)).lanes


def _choose(run: Run, say: Say) -> Plan:
    """For synchronous rounds. It does not depend on where the run is resumed."""
    if run.federation.on_host:
        return Plan(1)
    operations, steps = step_operations(run), steps_of_round(run)
    if processes.several():  # each would measure other times, and count other operations if its compiler is another
        plan = rule(run, operations, steps)
        return Plan(*processes.of_first(plan.lanes, plan.devices))
    if not in_steps(run.solver) or operations * steps * run.rounds < LONG_RUN:
        return rule(run, operations, steps)
    return remembered(run) or measure(run, say)


def steps_of_round(run: Run) -> float:
    """Steps of all clients of a round, about; where nobody knows beforehand, a few for each."""
    each = float(np.mean(LocalSteps(run).of_all())) if in_steps(run.solver) else UNKNOWN_STEPS
    return each * run.cohort_room


def _asynchronous(run: Run) -> Plan:
    """As many jobs side by side as are likely to be waiting, unless one keeps a core busy alone."""
    assert run.buffer is not None
    if run.federation.on_host:
        return Plan(1)
    if in_steps(run.solver) and step_operations(run) >= LARGE_STEP:
        return Plan(1)
    seats = run.system.tau + 1 if isinstance(run.system, Delays) else run.cohort_room
    return Plan(int(min(max(np.ceil(np.sqrt(seats)), run.buffer), seats, MOST_JOBS)))


def rule(run: Run, operations: float, steps: float) -> Plan:
    """One client at a time on each device for a large model, all side by side for a small one."""
    devices = 1
    if operations * steps >= SMALL_ROUND or processes.several():  # who starts several wants the work to be shared
        devices = max(min(processes.device_count(), run.cohort_room), jax.process_count())
    return Plan(1, devices) if operations >= LARGE_STEP else as_wide_as_the_cohort(run, devices)


def as_wide_as_the_cohort(run: Run, devices: int = 1) -> Plan:
    """As many lanes as there are clients in a cohort.

    But fewer where cohorts differ in size, to fill them all; and where clients take different numbers of steps, as many
    as make the first cohorts end soonest, so that few clients have to run alone.
    """
    lanes = min(-(-run.cohort_room // devices), MOST_LANES)
    if not in_steps(run.solver):  # whole solves, in which a lane that waits goes through no examples
        return Plan(lanes, devices)
    local = LocalSteps(run)
    if local.uniform:
        return Plan(-(-lanes // 4) if cohorts_vary(run) else lanes, devices)
    cohorts = [local(draw.ids, draw.work) for draw in first_draws(run)]

    def end(lanes: int) -> float:
        packings = [pack(steps, lanes, devices, run.cohort_room, False, lanes > 1) for steps in cohorts if len(steps)]
        return sum(duration(packing) for packing in packings)

    widths = np.unique(np.linspace(1, lanes, min(lanes, WIDTHS)).astype(int)).tolist()
    return Plan(min(widths, key=lambda lanes: (end(lanes), lanes)), devices)


_operations: dict[str, float] = {}  # by signature


def step_operations(run: Run) -> float:
    """Floating-point operations of one step of one client, as the compiler counts them; loops count once.

    Where a solver does not say what a step is: of a gradient.
    """

    def step(solver: Any, federation: Any, w: Any) -> Any:
        objective, zero = federation.objective(0), jnp.zeros((), jnp.int32)
        if not in_steps(solver):
            return objective.grad(w)
        return solver.step(solver.begin(Problem(w), objective, zero), zero, objective, jax.random.key(0))

    of = _signature(run)
    if of not in _operations:
        _operations[of] = _kept("operations", of, float) or _count(step, run)
        _keep("operations", of, _operations[of])
    return _operations[of]


def _count(step: Callable[..., Any], run: Run) -> float:
    """What the compiler counts; 0 where it cannot."""
    try:
        with left_out():  # the compiler cannot count the operations of kernels
            costs = jax.jit(step).lower(run.solver, run.federation, run.w).cost_analysis() or {}
    except Exception:  # a solver may need terms that plain averaging does not have: then nothing is measured
        costs = {}
    return float(costs.get("flops", 0.0))


def measure(run: Run, say: Say = lambda words: None) -> Plan:
    """Time all candidates, and remember the best if it is clear which one that is."""
    choice = measured(run)
    for plan, seconds in sorted(choice.seconds.items(), key=lambda pair: pair[1]):
        say(f"{plan}: {seconds / choice.seconds[choice.plan]:.2f} times as long as the plan that is taken")
    if choice.clear:
        _remember(run, choice.plan)
    return choice.plan


def measured(run: Run) -> Choice:
    """The best of all candidates by the clock."""
    operations, steps = step_operations(run), steps_of_round(run)
    usual = rule(run, operations, steps)
    watch = Stopwatch(run, operations * steps)
    looks: dict[Plan, float] = {usual: watch.prepare(usual)}
    for group in plans_to_try(run, operations):
        within = np.inf  # the shortest on so many devices
        for plan in group:
            if plan not in looks:
                looks[plan] = watch.prepare(plan)
            if looks[plan] > WORSE * within:
                break  # more lanes would be slower still
            within = min(within, looks[plan])
    candidates = [p for p in looks if looks[p] <= WORSE * min(looks.values()) or p == usual]
    return fastest(candidates, usual, watch.seconds)


def plans_to_try(run: Run, operations: float) -> list[list[Plan]]:
    """For one device and for all, plans with more and more lanes. operations: of a step."""
    most = min(jax.local_device_count(), run.cohort_room)
    groups = []
    for devices in sorted({1, most}, reverse=True):
        widths = _widths(-(-run.cohort_room // devices))
        if operations >= LARGE_STEP:  # few lanes at most, and idle devices only for a client that needs them all
            widths = widths[: 3 if devices == most else 1]
        groups.append([Plan(lanes, devices) for lanes in widths])
    return groups


def _widths(most: int) -> list[int]:
    """Half as many lanes as clients, a quarter, and so on: those that share clients out evenly."""
    return sorted({min(-(-most // (1 << i)), MOST_LANES) for i in range(most.bit_length() + 1)})


# Plans and counts are remembered in files; one that cannot be read or written does no harm.


def _signature(run: Run) -> str:
    """The machine, the data, the model and the solver."""
    device = jax.local_devices()[0]
    parts = (
        platform.machine(),
        platform.processor(),
        os.cpu_count(),
        device.device_kind,
        jax.local_device_count(),
        jax.__version__,
        # Numbers such as step sizes do not matter, and the addresses of functions change from process to process.
        re.sub(" at 0x[0-9a-f]+", "", str(shapes((run.federation, run.solver, run.w)))),
        run.cohort_room,
        here(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def remembered(run: Run) -> Plan | None:
    """The plan that was measured for such a run before."""
    plan = _kept("plans", _signature(run), lambda kept: Plan(kept["lanes"], kept["devices"]))
    return plan if plan is not None and plan.devices <= jax.local_device_count() else None


def _remember(run: Run, plan: Plan) -> None:
    _keep("plans", _signature(run), {"lanes": plan.lanes, "devices": plan.devices})


def _kept(kind: str, of: str, made: Callable[[Any], T]) -> T | None:
    try:
        return made(json.loads((cache_directory() / kind / of).read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(kind: str, of: str, value: Any) -> None:
    try:
        path = cache_directory() / kind / of
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(value))
        draft.replace(path)
    except OSError:
        pass
