"""Choosing a plan: by a rule for short runs, by measuring for long ones.

What is measured is a step: plain averaging with the run's solver takes a few steps of its first cohort under each
candidate, and the time of a round follows from the steps that the packing needs. The best plan is remembered for the
machine, the data, the model and the solver, whatever the algorithm; so equal runs have equal plans.
"""

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.cohorts import Draw
from fedloom.engines.costs import LocalSteps, in_steps
from fedloom.engines.lanes import cohort_arrays
from fedloom.engines.packing import Packer, Packing
from fedloom.engines.plan import Plan, check_plan
from fedloom.engines.run import Run
from fedloom.engines.sync_program import on_devices, run_rounds
from fedloom.engines.trees import shapes
from fedloom.hyperparameters import frozen
from fedloom.places import cache_directory
from fedloom.problem import Problem, Vector
from fedloom.systems import Delays

LARGE_STEP = 5e6  # floating-point operations of a step from which one client keeps a core busy alone
SMALL_ROUND = 3e7  # operations of a round up to which sharing it among devices costs more than it gains
LONG_RUN = 2e13  # operations of a run from which measuring pays: a minute or more
MOST_LANES = 256  # lanes side by side: more gain nothing
MOST_JOBS = 64  # of an asynchronous run side by side
ENOUGH = 0.05  # seconds that a timing should take
ROUNDS_TIMED = 10  # rounds in a call, so that the overhead of a call matters little
WORSE = 1.5  # times slower than the best so far: then more lanes are not tried


@frozen
class Averaging(Round):
    """The plainest method: what is timed is the solver."""

    def init(self, w: Vector) -> Server:
        return Server(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.solve(Problem(start=w)).w, ()

    def receive(self, s: Server, mean: Vector, cohort: Cohort) -> Server:
        return Server(mean)


Say = Callable[[str], None]


def planned(run: Run, say: Say = lambda words: None) -> Run:
    """The run with its plan: the one given, that of the record it resumes, or one that is chosen now."""
    origin = run.start.origin
    assert origin is not None
    plan = run.plan or origin.plan or (_choose(run, say) if run.buffer is None else _asynchronous(run))
    check_plan(plan)  # also one that a record or a directory brings from another machine
    return run._replace(plan=plan, start=run.start._replace(origin=origin._replace(plan=plan)))


def _choose(run: Run, say: Say) -> Plan:
    """For synchronous rounds. It does not depend on where the run is resumed."""
    if run.federation.on_host:
        return Plan(1)
    if not in_steps(run.solver):
        return Plan(min(run.cohort_room, MOST_LANES))
    steps = float(np.mean(LocalSteps(run).of_all())) * run.cohort_room  # of a round, about
    operations = step_operations(run)
    if operations * steps * run.rounds < LONG_RUN:
        return rule(run, operations, steps)
    return remembered(run) or measure(run, say)


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
    devices = 1 if operations * steps < SMALL_ROUND else min(jax.local_device_count(), run.cohort_room)
    return Plan(1, devices) if operations >= LARGE_STEP else as_wide_as_the_cohort(run, devices)


def as_wide_as_the_cohort(run: Run, devices: int = 1) -> Plan:
    """As many lanes as there are clients in a cohort.

    But where clients take different numbers of steps, no more than the sum of all steps over the most of one client:
    others would only wait for that one.
    """
    lanes = min(-(-run.cohort_room // devices), MOST_LANES)
    local = LocalSteps(run)
    if local.uniform:
        return Plan(lanes, devices)
    steps = local.of_all()
    return Plan(int(min(max(np.mean(steps) * run.cohort_room / max(np.max(steps), 1) / devices, 1), lanes)), devices)


_operations: dict[str, float] = {}  # by signature


def step_operations(run: Run) -> float:
    """Floating-point operations of one step of one client, as the compiler counts them; loops count once."""

    def step(solver: Any, federation: Any, w: Any) -> Any:
        objective, zero = federation.objective(0), jnp.zeros((), jnp.int32)
        return solver.step(solver.begin(Problem(w), objective, zero), zero, objective, jax.random.key(0))

    of = _signature(run)
    if of not in _operations:
        try:
            costs = jax.jit(step).lower(run.solver, run.federation, run.w).cost_analysis() or {}
        except Exception:  # a solver may need terms that plain averaging does not have: then nothing is measured
            costs = {}
        _operations[of] = float(costs.get("flops", 0.0))
    return _operations[of]


def measure(run: Run, say: Say = lambda words: None) -> Plan:
    """Time all candidates, and remember the best."""
    draws = [run.cohorts(t)[0] for t in range(min(3, run.rounds))]
    federation = jax.tree.map(jnp.asarray, run.federation)
    best: tuple[float, Plan] | None = None
    for devices in sorted({1, min(jax.local_device_count(), run.cohort_room)}, reverse=True):
        within = np.inf
        for lanes in _widths(-(-run.cohort_room // devices)):
            plan = Plan(lanes, devices)
            seconds = _seconds(run, plan, on_devices(federation, devices), draws)
            say(f"{plan}: {seconds:.3g} s a round")
            best = min((seconds, plan), best or (np.inf, plan), key=lambda pair: pair[0])
            if seconds > WORSE * within:
                break
            within = min(within, seconds)
    assert best is not None
    _remember(run, best[1])
    return best[1]


def _widths(most: int) -> list[int]:
    """Half as many lanes as clients, a quarter, and so on: those that share clients out evenly."""
    return sorted({min(-(-most // (1 << i)), MOST_LANES) for i in range(most.bit_length() + 1)})


def _seconds(run: Run, plan: Plan, federation: Any, draws: list[Draw]) -> float:
    """What a round takes: by itself if that is quick, else by the time of its steps."""
    packer = Packer(run._replace(algorithm=Averaging()), plan)
    server = on_devices(Averaging().init(run.w), plan.devices)
    room = run.room(max(len(d.ids) for d in draws))
    packed = [packer(draw, room) for draw in draws]

    def seconds_of(packings: list[Packing], rounds: int) -> float:
        """Seconds of so many rounds in one call, with these packings in turn; the best of two or more."""
        of = [i % len(packings) for i in range(ROUNDS_TIMED)]
        cohorts = cohort_arrays(run.p, [draws[i] for i in of], lambda ids: ids, ROUNDS_TIMED, room)
        stacked = Packing(*(np.stack(x) for x in zip(*(packings[i] for i in of), strict=True)))
        arguments = (Averaging(), run.solver, federation, server, (), (cohorts,), (stacked,), run.key, 0, rounds)
        times: list[float] = []
        while len(times) < 2 or sum(times) < 4 * ENOUGH:
            start = time.perf_counter()
            jax.block_until_ready(run_rounds(*arguments, plan.devices))
            times.append(time.perf_counter() - start)
        return min(times)

    def few(steps: int) -> list[Packing]:
        """Only the first clients of each lane, for so many steps."""
        return [s._replace(events=np.minimum(s.events, 1), steps=np.full_like(s.steps, steps)) for s in packed]

    seconds_of(few(0), 1)  # compiles
    nothing, one = seconds_of(few(0), 1), seconds_of(few(1), 1)
    longest = float(np.mean([s.steps.sum(axis=1).max() for s in packed]))
    if max(one - nothing, 0) * longest < ENOUGH:
        return seconds_of(packed, ROUNDS_TIMED) / ROUNDS_TIMED
    steps = 1
    while (taken := seconds_of(few(steps), 1)) < ENOUGH + nothing and steps < longest:
        steps *= 4
    return max(taken - nothing, 0) / steps * longest


# Plans are remembered in files; one that cannot be read or written does no harm.


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
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def remembered(run: Run) -> Plan | None:
    """The plan that was measured for such a run before."""
    try:
        plan = json.loads((cache_directory() / "plans" / _signature(run)).read_text())
        return Plan(plan["lanes"], plan["devices"]) if plan["devices"] <= jax.local_device_count() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(run: Run, plan: Plan) -> None:
    try:
        path = cache_directory() / "plans" / _signature(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"lanes": plan.lanes, "devices": plan.devices}))
        draft.replace(path)
    except OSError:
        pass
