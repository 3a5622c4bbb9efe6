"""The cluster engine: `simulate` with its clients in workers of a Ray cluster. The server is here, in the driver."""

import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from fedloom.cluster.connect import room_for
from fedloom.cluster.crew import Crew
from fedloom.cluster.shard_files import ShardedStore
from fedloom.cluster.staff import Kind
from fedloom.cluster.worker import Terms, versions_here
from fedloom.engines.aggregate import ClientReport, Outcome, message_of, updated
from fedloom.engines.bookkeeping import remember, with_rounds
from fedloom.engines.checks import check_chunk
from fedloom.engines.costs import message_sizes
from fedloom.engines.memory_store import Memories
from fedloom.engines.records import Record, Sizes
from fedloom.engines.run import Run
from fedloom.engines.sync_clock import NoClock, SyncClock, timed
from fedloom.engines.trees import Tree, nbytes

EVERY = 30.0  # seconds between words about the workers


class CrewStore(ShardedStore):
    """The memories of a run that workers have, as its records show them."""

    def __init__(self, crew: Crew):
        self.crew, self.blank, self.known, self.shards = crew, crew.blank, crew.known, crew.shards
        self.round = crew.run.start.round

    def of_shard(self, s: int, ids: np.ndarray) -> Tree:
        return self.crew.read(s, ids)

    def save(self, directory: pathlib.Path) -> None:
        self.crew.save(directory)


def run_records(
    run: Run,
    make: Callable[..., Run],
    given: Sequence[Any],
    chunk: int = 1,
    say: Callable[[str], None] = lambda words: None,
) -> Iterator[Record]:
    """The records of a checked run with its plan; every worker makes its own run, by make(*given).

    `say` is told now and then how the workers do, and when one is lost.
    """
    check_chunk(chunk)
    sizes = message_sizes(run)
    clock = timed(run, sizes)
    return _records(run, crew_of(run, make, given), sizes, clock, chunk, say)


def crew_of(run: Run, make: Callable[..., Run], given: Sequence[Any]) -> Crew:
    """Workers for a run, on the cluster that this process is connected to."""
    assert run.plan is not None
    assert run.plan.shards is not None
    workers, cpus, nodes = room_for(run.plan.shards, nbytes(run.federation))
    kind = Kind(cpus, bool(jax.dtypes.canonicalize_dtype(float) == np.float64))
    terms = Terms(versions_here(), run.plan.shards, -(-run.plan.shards // nodes))
    return Crew(run, make, given, terms, workers, kind)


def _records(
    run: Run, crew: Crew, sizes: Sizes, clock: SyncClock | NoClock, chunk: int, say: Callable[[str], None]
) -> Iterator[Record]:
    store, record = CrewStore(crew), run.start
    said, lost = time.monotonic(), 0
    try:
        for t in range(run.start.round, run.rounds):
            before = clock.lost.copy()
            draws = clock.cohorts(t)
            store.round = None
            server, outcomes, active = record.server, list[Outcome](), True
            for e, draw in enumerate(draws):
                message = jax.device_get(message_of(run.algorithm, server, e))
                sums, report = crew.exchange(t, e, draw, message, active)
                if sums is None:
                    counted, finite = np.array(False), np.array(True)
                else:
                    server, counted, finite = updated(run.algorithm, server, sums, run.key, t, active, e)
                active = bool(counted)
                clients = ClientReport(*(x[None] for x in report))
                outcomes.append(Outcome(np.asarray(finite)[None], np.asarray(counted)[None], clients))
            record = with_rounds(run, record, t, [draws], tuple(outcomes), sizes)
            remember(store, [draws], tuple(outcomes))
            record = record._replace(
                round=t + 1,
                server=server,
                clients=Memories(store, t + 1),
                cohort=tuple(draw.ids for draw in draws),
                counters=record.counters.after_lost(clock.lost - before, sizes),
                clock=clock.clock,
            )
            store.round = t + 1
            for words in crew.lost[lost:]:
                say(f"round {t + 1}: a worker was lost and others have taken over: {words}")
            lost = len(crew.lost)
            if time.monotonic() - said >= EVERY or t + 1 == run.rounds:
                say(str(crew))
                said = time.monotonic()
            if run.has_record(t + 1, chunk):
                yield record
                record = record.fresh()
    finally:
        crew.end()
