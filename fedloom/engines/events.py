"""The asynchronous engine: a discrete-event simulation on a virtual clock.

Clients work at their own speed; the server updates its model whenever `buffer` replies have arrived, and does not wait
for anybody else. A client gets the model of the moment at which it starts, so its reply may meet a newer one.

    on the host:       who starts when, whose reply arrives when (timeline.py)
    on the device:     what they compute, and the server's updates (stages.py)
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule
from fedloom.engines.clock import Clock, Stalled
from fedloom.engines.halves import in_steps
from fedloom.engines.lanes import NOWHERE
from fedloom.engines.measure import LARGE, step_operations
from fedloom.engines.plan import Packing, Plan, check_plan
from fedloom.engines.prepare import prepare
from fedloom.engines.program import message_sizes
from fedloom.engines.run import Counters, Record, Run, nbytes, not_finite, server_not_finite
from fedloom.engines.simulate import check_chunk, first_table
from fedloom.engines.stages import Applied, Jobs, Steps, nothing_in_flight, run_stages
from fedloom.engines.table import ON_DEVICE, Memories, Table, device_memory
from fedloom.engines.timeline import Flight, Sampled, Stage, Timeline
from fedloom.systems import Delays, System, Work

MOST = 64  # jobs side by side


def events(
    algorithm: Algorithm,
    federation: Federation,
    solver: Solver,
    w: Any,
    rounds: int,
    *,
    system: System | Delays | None = None,
    buffer: int = 1,
    cohort: CohortRule | None = None,
    seed: int = 0,
    chunk: int = 1,
    on_nonfinite: str = "raise",
    resume: Record | None = None,
    plan: Plan | None = None,
) -> Iterator[Record]:
    """Run until the server has made `rounds` updates, from the model w.

    Args:
        system: devices, links, availability and faults; by default every job takes one second and nothing fails. Or
            Delays(tau): instead of a clock, the joint model of user and delay of asyncFedDR's theory.
        buffer: replies that the server waits for before it updates; 1 is full asynchrony.
        cohort: as many clients as its cohorts have are at work at any time, and it names who is next.
        plan: Plan(lanes): jobs computed side by side; chosen for you if not given.
        algorithm, federation, solver, w, rounds, seed, chunk, on_nonfinite, resume: as `simulate` has them; a round is
            one update of the server.

    Yields:
        Records, whose `clock` has the simulated seconds, the staleness of replies, idle time and lost work.
    """
    system = System() if system is None else system
    run = prepare(algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, resume, system, buffer)
    check_asynchronous(run, buffer)
    check_chunk(chunk)
    assert run.start.origin is not None
    plan = plan or run.start.origin.plan or side_by_side(run, buffer)
    check_plan(plan)
    if plan.devices > 1:
        raise ValueError(
            f"plan: asynchronous runs use one device, not {plan.devices}; leave the number of devices out."
        )
    origin = run.start.origin._replace(plan=plan)
    return Asynchronous(run._replace(start=run.start._replace(origin=origin)), buffer, plan.lanes).records(chunk)


def check_asynchronous(run: Run, buffer: Any) -> None:
    """Raise a sentence if a run makes no sense when replies may be late."""
    algorithm, who = run.algorithm, type(run.algorithm).__name__
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
    if not isinstance(buffer, int) or isinstance(buffer, bool) or not 1 <= buffer <= run.lanes:
        raise ValueError(
            f"buffer must be a whole number from 1 to {run.lanes}, the number of clients at work, got {buffer!r}."
        )
    if isinstance(run.system, Delays) and buffer > 1:
        raise ValueError(f"buffer: with Delays every update has one reply, not {buffer}.")
    if isinstance(run.system, System) and (run.system.deadline is not None or run.system.enough is not None):
        raise ValueError(
            "system: deadline and enough end synchronous rounds; an asynchronous server waits for nobody. "
            "Leave them out."
        )


def side_by_side(run: Run, buffer: int) -> Plan:
    """As many jobs as are likely to be waiting, unless one keeps a core busy alone."""
    if in_steps(run.solver) and step_operations(run) >= LARGE:
        return Plan(1)
    seats = run.system.tau + 1 if isinstance(run.system, Delays) else run.lanes
    return Plan(int(min(max(np.ceil(np.sqrt(seats)), buffer), seats, MOST)))


class Asynchronous:
    """An asynchronous run: its timeline, and which job is computed when."""

    def __init__(self, run: Run, buffer: int, lanes: int, together: bool = True):
        self.run, self.buffer, self.lanes, self.together = run, buffer, lanes, together
        ((self.down, self.up),) = message_sizes(run)
        self.seats = run.lanes  # jobs in flight
        self.timeline: Timeline | Sampled
        if isinstance(run.system, Delays):
            self.timeline = Sampled(run.system.over(run.federation.clients), run.p, run.seed)
            self.seats = run.system.tau + 1
        else:
            work = Work(self.down, self.up, np.maximum(Packing(run, Plan(1)).steps_of_all(), 1))
            courses = (run.system or System()).over(work, run.seed)
            self.timeline = Timeline(courses, lambda wave: run.cohorts(wave)[0], run.usual_weight, run.lanes, buffer)
        self.stages = iter(self.timeline)
        self.pending: dict[int, Flight] = {}  # jobs that have started and will reply, but are not computed yet
        self.uses: dict[int, int] = {}  # version -> how many of these have its message
        self.free_messages = list(range(self.seats + 1))[::-1]
        self.message_of: dict[int, int] = {}  # version -> where its message is kept
        self._check_room(nbytes(jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))))

    def records(self, chunk: int) -> Iterator[Record]:
        run, record = self.run, self.run.start
        federation = jax.tree.map(jnp.asarray, run.federation)
        table = first_table(run)
        at_once = int(min(chunk, table.rounds_at_once(self.buffer + 1)))
        memory = jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))
        room = self.seats + 1, self.seats + self.buffer
        flying = nothing_in_flight(run.algorithm, run.solver, federation, record.server, memory, *room)
        if record.flying is not None:
            flying = jax.tree.unflatten(jax.tree.structure(flying), jax.tree.leaves(record.flying))
        for _ in range(record.round):  # the same events again, without computing
            self._schedule(next(self.stages))
        if record.round:
            run.check_clock(self.timeline.clock())
        failed: Stalled | None = None
        clock = Clock()
        while record.round < run.rounds:
            t, stages = record.round, []
            try:
                for _ in range(min(at_once, chunk - t % chunk, run.rounds - t)):
                    stages.append(next(self.stages))
                    clock = self.timeline.clock()
            except Stalled as error:  # first the record that is due
                failed = error
            if not stages and failed is not None:
                raise failed
            jobs, steps = self._arrays(stages, t, at_once)
            table.round = None
            rows = table.lend(np.concatenate([jobs.ids, steps.rows.ravel()]), len(jobs.ids) + steps.rows.size)
            jobs = jobs._replace(rows=table.slots(jobs.ids))
            steps = steps._replace(rows=table.slots(steps.rows))
            server, rows, flying, applied = run_stages(
                run.algorithm,
                run.solver,
                federation,
                record.server,
                rows,
                flying,
                jobs,
                steps,
                run.key,
                t,
                len(stages),
                self.lanes,
            )
            table.take_back(rows)
            record = self._after(record, server, table, stages, jax.device_get(applied), clock)._replace(flying=flying)
            table.round = record.round
            if record.round % chunk == 0 or record.round == run.rounds or failed is not None:
                yield record
                record = record._replace(residual=None, unsolved=0, dropped=())
            if failed is not None:
                raise failed

    def _check_room(self, memory: int) -> None:
        """What is in flight must fit into the memory."""
        needed = self.seats * (self.down + self.up + memory)
        if needed > ON_DEVICE * device_memory(1):
            raise ValueError(
                f"cohort: {self.seats} clients at work at once need {needed / 1e9:.3g} GB for messages and results; "
                "use a cohort of fewer clients, such as uniform(100)."
            )

    def _schedule(self, stage: Stage) -> tuple[int, list[tuple[Flight, int]]]:
        """Where to keep the message of this stage, and the jobs to compute before it ends, with their messages."""
        message = NOWHERE
        for f in stage.starts:
            if f.course.fate:
                continue  # nobody will see its result
            if f.version not in self.message_of:
                message = self.message_of[f.version] = self.free_messages.pop()
            self.uses[f.version] = self.uses.get(f.version, 0) + 1
            self.pending[f.number] = f
        due = [f for f in stage.counted if f.number in self.pending]
        if due and self.together:
            due = list(self.pending.values())
        batch = [(f, self.message_of[f.version]) for f in due]
        for f in due:
            del self.pending[f.number]
            self.uses[f.version] -= 1
            if not self.uses[f.version]:
                del self.uses[f.version]
                self.free_messages.append(self.message_of.pop(f.version))
        return message, batch

    def _arrays(self, stages: list[Stage], t: int, at_once: int) -> tuple[Jobs, Steps]:
        """The stages from version t on as arrays with room for `at_once`; rows of the table are filled in later."""
        room, shape = at_once * self.buffer + 2 * self.seats, (at_once, self.buffer)
        jobs = Jobs(*(np.zeros(room, np.int32) for _ in Jobs._fields))._replace(work=np.ones(room))
        whole, real = np.int32, np.float64
        steps = Steps(
            *(np.zeros(at_once, whole) for _ in range(3)),
            *(np.zeros(shape, d) for d in (whole, whole, real, real, real)),
        )
        filled = 0
        for i, stage in enumerate(stages):
            steps.message[i], batch = self._schedule(stage)
            steps.begin[i], steps.end[i] = filled, filled + len(batch)
            for f, message in batch:
                for array, value in zip(jobs, (f.client, f.wave, f.t, f.work, 0, message, f.place), strict=True):
                    array[filled] = value
                filled += 1
            ids = _clients(stage.counted)
            steps.places[i] = [f.place for f in stage.counted]
            steps.weight[i] = [f.weight for f in stage.counted]
            steps.population[i] = self.run.p[ids]
            steps.staleness[i] = [t + i - f.version for f in stage.counted]
            steps.rows[i] = ids
        return jobs, steps

    def _after(
        self, record: Record, server: Any, table: Table, stages: list[Stage], applied: Applied, clock: Clock
    ) -> Record:
        run, t, n = self.run, record.round, len(stages)
        dropped = list(record.dropped)
        for i, stage in enumerate(stages):
            ids = _clients(stage.counted)
            finite = applied.finite[i]
            for k in ids[~finite].tolist():
                if not run.drop:
                    raise not_finite(t + i, k, run.algorithm.exchanges[0].name)
                dropped.append((t + i, k, run.algorithm.exchanges[0].name))
            if not applied.server_finite[i]:
                raise server_not_finite(t + i, run.algorithm.exchanges[0].name)
            counts = finite & (np.array([f.weight for f in stage.counted]) > 0)
            table.known[ids[counts]] = True
        sent = clock.replies + clock.lost + clock.duplicates
        counters = Counters(
            rounds=t + n,
            exchanges=t + n,
            messages=clock.jobs + sent,
            bytes_down=clock.jobs * self.down,
            bytes_up=sent * self.up,
            gradients=record.counters.gradients + int(np.sum(applied.gradients[:n], dtype=np.int64)),
        )
        worst = float(np.max(applied.residual[:n]))
        if record.residual is not None:
            worst = max(worst, record.residual)
        return record._replace(
            round=t + n,
            server=server,
            clients=Memories(table, t + n),
            counters=counters,
            cohort=(np.sort(_clients(stages[-1].counted)),),
            residual=None if worst == -np.inf else worst,
            unsolved=record.unsolved + int(np.sum(applied.unsolved[:n])),
            dropped=tuple(dropped),
            clock=clock,
        )


def _clients(flights: list[Flight]) -> np.ndarray:
    return np.array([f.client for f in flights], int)
