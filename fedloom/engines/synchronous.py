"""The compiled engine: whole rounds in one program, the clients of a cohort vectorised.

Cohorts are drawn on the host, a chunk of rounds ahead, and packed into lanes. The program runs lanes of clients side by
side, with their memories from a table, adds up the replies, and updates the server.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule
from fedloom.engines.bookkeeping import of_own_devices, remember, with_rounds
from fedloom.engines.calls import arrays_of, calls
from fedloom.engines.checks import check_chunk, checked
from fedloom.engines.choose_plan import planned
from fedloom.engines.costs import message_sizes
from fedloom.engines.memory_store import Memories, first_store, on_one_device
from fedloom.engines.packing import Packer
from fedloom.engines.plan import Plan
from fedloom.engines.processes import together
from fedloom.engines.records import Record, Sizes
from fedloom.engines.run import Run
from fedloom.engines.sync_clock import NoClock, SyncClock, timed
from fedloom.engines.sync_program import on_devices, run_rounds, with_keys
from fedloom.systems import System


def simulate(
    algorithm: Algorithm,
    federation: Federation,
    solver: Solver,
    w: Any,
    rounds: int,
    *,
    cohort: CohortRule | None = None,
    seed: int = 0,
    chunk: int = 1,
    on_nonfinite: str = "raise",
    resume: Record | None = None,
    plan: Plan | None = None,
    system: System | None = None,
) -> Iterator[Record]:
    """Run until `rounds` rounds are done, from the model w.

    Args:
        algorithm: the federated method, for example FedDyn(alpha=0.1).
        federation: the clients and their population weights.
        solver: how a client minimises its local problem.
        w: the initial model, a flat vector.
        rounds: rounds in all, including those before `resume`.
        cohort: who takes part; everyone if not given.
        seed: with the round, the exchange and the client it determines every random number.
        chunk: rounds in one compiled call. There is one record at the end of each chunk.
        on_nonfinite: "raise" if a client returns NaN or infinity, or "drop" that client from its round.
        resume: a record of an earlier run with the same arguments, to continue from.
        plan: how clients are laid out on the machine, Plan(lanes, devices); chosen for you if not given. Plans give the
            same result up to rounding.
        system: devices, links, availability and faults: rounds then take simulated time, and clients may drop out.

    Yields:
        Records. The checks are made when `simulate` is called, where a long run also measures its plan if it has none;
        the work is done as records are taken.
    """
    run = checked(algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, resume, system, plan=plan)
    return run_records(run, chunk)


def run_records(run: Run, chunk: int = 1) -> Iterator[Record]:
    """The records of a checked run."""
    check_chunk(chunk)
    sizes = message_sizes(run)
    clock = timed(run, sizes)
    run = planned(run)
    assert run.plan is not None
    return _records(run, sizes, clock, chunk, Packer(run, run.plan))


def _records(run: Run, sizes: Sizes, clock: SyncClock | NoClock, chunk: int, packer: Packer) -> Iterator[Record]:
    devices = packer.plan.devices
    federation = on_devices(jax.tree.map(jnp.asarray, run.federation), devices)
    store = first_store(run, devices)
    rounds = int(min(chunk, store.rounds_at_once(run.cohort_room)))  # of one call
    record = run.start
    ahead = calls(run, clock, packer, chunk, rounds)
    call = next(ahead, None)
    while call is not None:
        t, draws, packings, now, lost = call
        store.round = None
        everybody = np.concatenate([draw.ids for cohorts in draws for draw in cohorts])
        rows = store.lend(everybody, rounds * len(run.algorithm.exchanges) * run.cohort_room)
        cohorts = with_keys(arrays_of(run, draws, store.slots, rounds), run.key, t, run.solver)
        state = on_devices((record.server, rows, cohorts), devices)
        del rows  # they are donated
        with together():
            server, rows, outcomes = run_rounds(
                run.algorithm, run.solver, federation, *state, packings, t, len(draws), devices
            )
        failed: Exception | None = None
        try:
            call = next(ahead, None)  # the host draws and packs the next cohorts while the devices work
        except Exception as error:  # first the record that is due
            call, failed = None, error
        server = jax.tree.map(on_one_device, server)
        with together():
            outcomes = of_own_devices(jax.device_get(outcomes), packings)
        store.take_back(rows)
        record = with_rounds(run, record, t, draws, outcomes, sizes)
        remember(store, draws, outcomes)
        t += len(draws)
        record = record._replace(
            round=t,
            server=server,
            clients=Memories(store, t),
            cohort=tuple(draw.ids for draw in draws[-1]),
            counters=record.counters.after_lost(lost, sizes),
            clock=now,
        )
        store.round = t
        if run.has_record(t, chunk):
            yield record
            record = record.fresh()
        if failed is not None:
            raise failed
