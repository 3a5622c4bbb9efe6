"""The asynchronous engine: a discrete-event simulation on a simulated clock.

Clients work at their own speed; the server updates its model whenever `buffer` replies have arrived, and does not wait
for anybody else. A client gets the model of the moment at which it starts, so its reply may meet a newer one.

    on the host:       who starts when, whose reply arrives when (timeline.py)
    on the device:     what they compute, and the server's updates (async_program.py)
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule, Draw
from fedloom.engines.aggregate import NOWHERE, Outcome
from fedloom.engines.async_program import JobArrays, StageArrays, nothing_in_flight, run_stages
from fedloom.engines.bookkeeping import remember, with_reports
from fedloom.engines.checks import check_chunk, checked
from fedloom.engines.choose_plan import planned
from fedloom.engines.clock import Clock, Stalled
from fedloom.engines.costs import LocalSteps, message_sizes
from fedloom.engines.memory_store import ON_DEVICE, Memories, MemoryStore, device_memory, first_store
from fedloom.engines.plan import Plan
from fedloom.engines.records import Record
from fedloom.engines.run import Run
from fedloom.engines.timeline import Flight, SampledTimeline, Stage, Timeline
from fedloom.engines.trees import nbytes
from fedloom.systems import Delays, System, Work


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
    run = checked(
        algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, resume, system, buffer=buffer, plan=plan
    )
    return run_records(run, chunk)


def run_records(run: Run, chunk: int = 1) -> Iterator[Record]:
    """The records of a checked run."""
    check_chunk(chunk)
    return Asynchronous(planned(run)).records(chunk)


class Asynchronous:
    """An asynchronous run: its timeline, and which job is computed when."""

    def __init__(self, run: Run, together: bool = True):
        assert run.plan is not None
        assert run.buffer is not None
        assert run.system is not None
        self.run, self.buffer, self.lanes, self.together = run, run.buffer, run.plan.lanes, together
        ((self.down, self.up),) = message_sizes(run)
        self.seats = run.cohort_room  # jobs in flight
        self.timeline: Timeline | SampledTimeline
        if isinstance(run.system, Delays):
            self.timeline = SampledTimeline(run.system.over(run.federation.clients), run.p, run.seed)
            self.seats = run.system.tau + 1
        else:
            courses = run.system.over(Work(self.down, self.up, np.maximum(LocalSteps(run).of_all(), 1)), run.seed)
            self.timeline = Timeline(
                courses, lambda wave: run.cohorts(wave)[0], run.usual_weight, self.seats, self.buffer
            )
        self.stages = iter(self.timeline)
        self.pending: dict[int, Flight] = {}  # jobs that have started and will reply, but are not computed yet
        self.uses: dict[int, int] = {}  # version -> how many of these have its message
        self.free_messages = list(range(self.seats + 1))[::-1]
        self.message_of: dict[int, int] = {}  # version -> where its message is kept
        self._check_room(nbytes(jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))))

    def records(self, chunk: int) -> Iterator[Record]:
        run, record = self.run, self.run.start
        federation = jax.tree.map(jnp.asarray, run.federation)
        store = first_store(run)
        at_once = int(min(chunk, store.rounds_at_once(self.buffer + 1)))
        memory = jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))
        room = self.seats + 1, self.seats + self.buffer
        in_flight = nothing_in_flight(run.algorithm, run.solver, federation, record.server, memory, *room)
        if record.in_flight is not None:
            in_flight = jax.tree.unflatten(jax.tree.structure(in_flight), jax.tree.leaves(record.in_flight))
        for _ in range(record.round):  # the same events again, without computing
            self._jobs_due(next(self.stages))
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
            jobs, arrays = self._arrays(stages, t, at_once)
            store.round = None
            rows = store.lend(np.concatenate([jobs.ids, arrays.slots.ravel()]), len(jobs.ids) + arrays.slots.size)
            jobs = jobs._replace(slots=store.slots(jobs.ids))
            arrays = arrays._replace(slots=store.slots(arrays.slots))
            server, rows, in_flight, outcome = run_stages(
                run.algorithm,
                run.solver,
                federation,
                record.server,
                rows,
                in_flight,
                jobs,
                arrays,
                run.key,
                t,
                len(stages),
                self.lanes,
            )
            store.take_back(rows)
            record = self._after(record, store, stages, jax.device_get(outcome), clock)
            record = record._replace(server=server, in_flight=in_flight)
            store.round = record.round
            if run.has_record(record.round, chunk) or failed is not None:
                yield record
                record = record.fresh()
            if failed is not None:
                raise failed

    def _check_room(self, memory: int) -> None:
        """What is in flight must fit into the memory."""
        needed = self.seats * (self.down + self.up + memory)
        if needed > ON_DEVICE * device_memory(1):
            raise ValueError(
                f"cohort: {self.seats} clients at work at once need {needed / 1e9:.3g} GB for messages and results; "
                "use a smaller cohort, e.g. uniform(100)."
            )

    def _jobs_due(self, stage: Stage) -> tuple[int, list[tuple[Flight, int]]]:
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

    def _arrays(self, stages: list[Stage], t: int, at_once: int) -> tuple[JobArrays, StageArrays]:
        """The stages from version t on as arrays with room for `at_once`; slots are filled in later."""
        room, shape = at_once * self.buffer + 2 * self.seats, (at_once, self.buffer)
        jobs = JobArrays(*(np.zeros(room, np.int32) for _ in JobArrays._fields))._replace(work=np.ones(room))
        integer, real = np.int32, np.float64
        arrays = StageArrays(
            *(np.zeros(at_once, integer) for _ in range(3)),
            *(np.zeros(shape, d) for d in (integer, integer, real, real, real)),
        )
        filled = 0
        for i, stage in enumerate(stages):
            arrays.message[i], batch = self._jobs_due(stage)
            arrays.begin[i], arrays.end[i] = filled, filled + len(batch)
            for f, message in batch:
                for array, value in zip(jobs, (f.client, f.wave, f.t, f.work, 0, message, f.place), strict=True):
                    array[filled] = value
                filled += 1
            ids, weight, _ = _draw(stage.counted)
            arrays.places[i] = [f.place for f in stage.counted]
            arrays.weight[i] = weight
            arrays.population[i] = self.run.p[ids]
            arrays.staleness[i] = [t + i - f.version for f in stage.counted]
            arrays.slots[i] = ids
        return jobs, arrays

    def _after(self, record: Record, store: MemoryStore, stages: list[Stage], outcome: Outcome, clock: Clock) -> Record:
        """The record after these stages, but for the server's state."""
        t = record.round
        draws = [[_draw(stage.counted)] for stage in stages]
        record = with_reports(self.run, record, t, draws, (outcome,))
        remember(store, draws, (outcome,))
        t += len(stages)
        sent = clock.replies + clock.lost + clock.duplicates
        return record._replace(
            round=t,
            clients=Memories(store, t),
            counters=record.counters._replace(
                rounds=t,
                exchanges=t,
                messages=clock.jobs + sent,
                bytes_down=clock.jobs * self.down,
                bytes_up=sent * self.up,
            ),
            cohort=(np.sort(draws[-1][0].ids),),
            clock=clock,
        )


def _draw(flights: list[Flight]) -> Draw:
    """Those whose replies are counted, as a cohort."""
    ids = np.array([f.client for f in flights], int)
    return Draw(ids, np.array([f.weight for f in flights]), np.array([f.work for f in flights]))
