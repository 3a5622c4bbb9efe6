"""The compiled engine: whole rounds in one program, the clients of a cohort vectorised.

Cohorts are drawn on the host, a chunk of rounds ahead, and packed into lanes. The program runs lanes of clients side by
side, with their memories from a table, adds up the replies, and updates the server.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule, Draw
from fedloom.engines.clock import Clock
from fedloom.engines.lanes import Seen, Trip, filled
from fedloom.engines.measure import choose
from fedloom.engines.plan import Packing, Plan, check_plan
from fedloom.engines.prepare import prepare
from fedloom.engines.program import Outcome, message_sizes, on_devices, run_rounds
from fedloom.engines.run import Record, Run, not_finite, server_not_finite
from fedloom.engines.schedule import Schedule
from fedloom.engines.table import Memories, Table, on_one_device, table_for
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
        rounds: rounds in all, those before `resume` included.
        cohort: who takes part; everyone if not given.
        seed: with the round, the exchange and the client it determines every random number.
        chunk: rounds in one compiled call. There is one record at the end of each chunk.
        on_nonfinite: "raise" if a client returns NaN or infinity, or "drop" that client from its round.
        resume: a record of an earlier run with the same arguments, to go on from.
        plan: how clients are laid out on the machine, Plan(lanes, devices); chosen for you if not given. Plans give the
            same result up to rounding.
        system: devices, links, availability and faults: rounds then take simulated time, and clients may drop out.

    Yields:
        Records. The checks are made when `simulate` is called, where a long run also measures its plan if it has none;
        the work is done as records are taken.
    """
    run = prepare(algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, resume, system)
    check_chunk(chunk)
    sizes = message_sizes(run)
    if system is not None:
        run = run.with_clock(sizes, Packing(run, Plan(1)).steps_of_all())
    assert run.start.origin is not None
    plan = plan or run.start.origin.plan or choose(run)
    check_plan(plan)
    start = run.start._replace(origin=run.start.origin._replace(plan=plan))
    return _records(run._replace(start=start), sizes, chunk, Packing(run, plan))


def check_chunk(chunk: Any) -> None:
    if not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"chunk must be a whole number, 1 or more, got {chunk!r}.")


def _records(run: Run, sizes: list[tuple[int, int]], chunk: int, packing: Packing) -> Iterator[Record]:
    plan = packing.plan
    federation = on_devices(jax.tree.map(jnp.asarray, run.federation), plan.devices)
    table = first_table(run, plan.devices)
    rounds = int(min(chunk, table.rounds_at_once(run.lanes)))  # of one call
    record = run.start
    ahead = calls(run, packing, chunk, rounds)
    call = next(ahead, None)
    while call is not None:
        t, draws, schedules, clock, lost = call
        table.round = None
        rows = table.lend(
            np.concatenate([d.ids for draw in draws for d in draw]), rounds * len(run.algorithm.exchanges) * run.lanes
        )
        trips = filled_trips(run, draws, table.slots, rounds)
        state = on_devices((record.server, rows), plan.devices)
        del rows  # they are donated
        server, rows, outcomes = run_rounds(
            run.algorithm, run.solver, federation, *state, trips, schedules, run.key, t, len(draws), plan.devices
        )
        failed: Exception | None = None
        try:
            call = next(ahead, None)  # the host draws and packs the next cohorts while the devices work
        except Exception as error:  # first the record that is due
            call, failed = None, error
        server = jax.tree.map(on_one_device, server)
        outcomes = own_devices(jax.device_get(outcomes), schedules)
        table.take_back(rows)
        record = _after(run, record, server, table, draws, outcomes, sizes, t)
        record = record._replace(clock=clock, counters=record.counters.after_lost(lost, sizes))
        table.round = record.round
        if is_seen(run, record.round, chunk):
            yield record
            record = record._replace(residual=None, unsolved=0, dropped=())
        if failed is not None:
            raise failed


class Call(NamedTuple):
    """What one call of the program runs."""

    t: int  # its first round
    draws: list[list[Draw]]  # the cohorts of its rounds, one for each exchange
    schedules: tuple[Schedule, ...]  # of each exchange, as arrays [rounds, ...]
    clock: Clock | None  # after its last round
    lost: np.ndarray  # messages that count for nothing, down and up, by exchange


def calls(run: Run, packing: Packing, chunk: int, rounds: int) -> Iterator[Call]:
    """The calls that make up a run: up to `rounds` of a chunk in each."""
    t = run.start.round
    while t < run.rounds:
        before = run.lost
        draws = [run.cohorts(t + i) for i in range(min(rounds, chunk - t % chunk, run.rounds - t))]
        clock, lost, schedules = run.clock, run.lost - before, []
        for e, of_exchange in enumerate(zip(*draws, strict=True)):
            room = run.room(max(len(draw.ids) for draw in of_exchange))
            packed = [packing(draw, room, e) for draw in of_exchange]
            packed += packed[-1:] * (rounds - len(packed))  # never run: it keeps the shapes, hence the program
            schedules.append(Schedule(*(np.stack(x) for x in zip(*packed, strict=True))))
        yield Call(t, draws, tuple(schedules), clock, lost)
        t += len(draws)


def is_seen(run: Run, t: int, chunk: int) -> bool:
    """Is there a record after t rounds?"""
    return t % chunk == 0 or t == run.rounds


def first_table(run: Run, devices: int = 1) -> Table:
    """The memories that the run starts with; a record's own are left as they are."""
    if isinstance(run.start.clients, Memories):
        return run.start.clients.table.copy()
    table = table_for(run.algorithm.init_client(run.w), run.federation.clients, devices)
    table.write(run.start.clients)
    return table


def filled_trips(
    run: Run, draws: list[list[Draw]], slots_of: Callable[[np.ndarray], np.ndarray], rounds: int
) -> tuple[Trip, ...]:
    """The cohorts of several rounds as arrays [rounds, room], for each exchange."""
    return tuple(
        filled(run.p, of_exchange, slots_of, rounds, run.room(max(len(d.ids) for d in of_exchange)))
        for of_exchange in zip(*draws, strict=True)
    )


def own_devices(outcomes: tuple[Outcome, ...], schedules: tuple[Schedule, ...]) -> tuple[Outcome, ...]:
    """What each client's own device saw of it."""

    def chosen(x: np.ndarray, owner: np.ndarray) -> np.ndarray:
        return x if x.ndim == owner.ndim else np.take_along_axis(x, owner[None], axis=0)[0]

    return tuple(
        o._replace(clients=Seen(*(chosen(x, s.owner) for x in o.clients)))
        for o, s in zip(outcomes, schedules, strict=True)
    )


def _after(
    run: Run,
    record: Record,
    server: Any,
    table: Table,
    draws: list[list[Draw]],
    outcomes: tuple[Outcome, ...],
    sizes: list[tuple[int, int]],
    t: int,
) -> Record:
    """The record after the rounds t, t + 1, ... whose cohorts were `draws`."""
    record = count(run, record, t, draws, outcomes, sizes)
    for e, outcome in enumerate(outcomes):
        for i, cohorts in enumerate(draws):
            if outcome.somebody[i]:
                ids = cohorts[e].ids
                table.known[ids[outcome.clients.finite[i, : len(ids)] & (cohorts[e].weight > 0)]] = True
    t += len(draws)
    return record._replace(round=t, server=server, clients=Memories(table, t), cohort=tuple(d.ids for d in draws[-1]))


def count(
    run: Run,
    record: Record,
    t: int,
    draws: list[list[Draw]],
    outcomes: tuple[Outcome, ...],
    sizes: list[tuple[int, int]],
) -> Record:
    """The record with the books of the rounds t, t + 1, ... added. Raises if anything is not finite that must be."""
    n = len(draws)
    if not all(o.server_finite[:n].all() and o.clients.finite[:n].all() for o in outcomes):
        record = record._replace(dropped=record.dropped + tuple(_dropped(run, t, draws, outcomes)))
    c, residual, unsolved = record.counters, record.residual, record.unsolved
    for e, outcome in enumerate(outcomes):
        m = sum(len(cohorts[e].ids) for cohorts in draws)
        seen = Seen(*(x[:n] for x in outcome.clients))  # beyond a cohort these are blank: they add nothing
        worst = float(np.max(seen.residual))
        if worst > -np.inf:
            residual = worst if residual is None else max(residual, worst)
        unsolved += int(np.sum(seen.unsolved))
        c = c.after_exchanges(n, m, m * sizes[e][0], m * sizes[e][1], int(np.sum(seen.gradients, dtype=np.int64)))
    return record._replace(counters=c.after_rounds(n), residual=residual, unsolved=unsolved)


def _dropped(
    run: Run, t: int, draws: list[list[Draw]], outcomes: tuple[Outcome, ...]
) -> Iterator[tuple[int, int, str]]:
    """Who was left out as not finite; raises if that is not wanted, or if the server itself is not finite."""
    for i, cohorts in enumerate(draws):
        for exchange, draw, outcome in zip(run.algorithm.exchanges, cohorts, outcomes, strict=True):
            for k in draw.ids[~outcome.clients.finite[i, : len(draw.ids)]].tolist():
                if not run.drop:
                    raise not_finite(t + i, k, exchange.name)
                yield t + i, k, exchange.name
            if not outcome.server_finite[i]:
                raise server_not_finite(t + i, exchange.name)
