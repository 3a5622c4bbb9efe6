"""The compiled engine: whole rounds in one program, the clients of a cohort vectorised.

Cohorts are drawn on the host, a chunk of rounds ahead. The program gathers the memories of the cohort from a table,
runs all clients side by side, takes the weighted mean, updates the server, and scatters the memories back.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule, Draw
from fedloom.engines.program import Outcome, Trip, message_sizes, run_rounds
from fedloom.engines.run import Record, Run, not_finite, prepare, server_not_finite
from fedloom.engines.table import Memories, Table


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

    Yields:
        Records. The checks are made when `simulate` is called, the work is done as records are taken.
    """
    run = prepare(algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, resume)
    check_chunk(chunk)
    return _records(run, message_sizes(run), chunk)


def check_chunk(chunk: Any) -> None:
    if not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"chunk must be a whole number, 1 or more, got {chunk!r}.")


def _records(run: Run, sizes: list[tuple[int, int]], chunk: int) -> Iterator[Record]:
    federation = jax.tree.map(jnp.asarray, run.federation)
    table = _table(run)
    record = run.start
    for t, draws, widths in calls(run, chunk):
        table.round = None
        trips = stack(run.p, draws, widths, table.slots, chunk)
        server, table.rows, outcomes = run_rounds(
            run.algorithm, run.solver, federation, record.server, table.rows, trips, run.key, t, len(draws)
        )
        record = _after(run, record, server, table, draws, jax.device_get(outcomes), sizes, t)
        table.round = record.round
        if is_seen(run, record.round, chunk):
            yield record
            record = record._replace(residual=None, unsolved=0, dropped=())


def calls(run: Run, chunk: int) -> Iterator[tuple[int, list[list[Draw]], list[int]]]:
    """What each call of the program runs: its first round, the cohorts of its rounds, and the lanes of each exchange.

    Rounds of one call have cohorts of one width, so that a round is computed alike however rounds are chunked.
    """
    t = run.start.round
    while t < run.rounds:
        draws = [run.cohorts(t)]
        widths = _widths(draws[0], run.lanes)
        while len(draws) < min(chunk - t % chunk, run.rounds - t):
            following = run.cohorts(t + len(draws))
            if _widths(following, run.lanes) != widths:
                break
            draws.append(following)
        yield t, draws, widths
        t += len(draws)


def is_seen(run: Run, t: int, chunk: int) -> bool:
    """Is there a record after t rounds?"""
    return t % chunk == 0 or t == run.rounds


def _table(run: Run) -> Table:
    """The memories that the run starts with; a record's own are left as they are."""
    if isinstance(run.start.clients, Memories):
        return run.start.clients.own_table()
    table = Table(run.algorithm.init_client(run.w), run.federation.clients)
    table.write(run.start.clients)
    return table


def _widths(draws: list[Draw], lanes: int) -> list[int]:
    """Lanes for each exchange: the expected number, or a power of two if more clients came than expected."""
    return [lanes if len(d.ids) <= lanes else 1 << (len(d.ids) - 1).bit_length() for d in draws]


def stack(
    p: np.ndarray, draws: list[list[Draw]], widths: list[int], slots_of: Callable[[np.ndarray], np.ndarray], chunk: int
) -> tuple[Trip, ...]:
    """Cohorts of several rounds as arrays [chunk, lanes], one Trip for each exchange."""

    def padded(draw: Draw, width: int) -> Trip:
        slots = slots_of(draw.ids)
        extra = width - len(draw.ids)
        zeros = np.zeros(extra)
        return Trip(
            ids=np.append(draw.ids, np.full(extra, draw.ids[0])).astype(np.int32),
            slots=np.append(slots, np.full(extra, np.iinfo(np.int32).max)).astype(np.int32),
            weight=np.append(draw.weight, zeros),
            population=np.append(p[draw.ids], zeros),
            work=np.append(draw.work, zeros + 1),
            real=np.append(np.ones(len(draw.ids), bool), np.zeros(extra, bool)),
        )

    rounds = [tuple(padded(d, n) for d, n in zip(r, widths, strict=True)) for r in draws]
    rounds += rounds[-1:] * (chunk - len(rounds))  # never run: it keeps the shapes, hence the program
    return jax.tree.map(lambda *x: np.stack(x), *rounds)


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
    for i, cohorts in enumerate(draws):
        lanes = of_round(outcomes, cohorts, i)
        record = count(run, record, t + i, cohorts, lanes, sizes)
        for draw, seen in zip(cohorts, lanes, strict=True):
            table.known[draw.ids[seen.finite & seen.somebody]] = True
    t += len(draws)
    return record._replace(round=t, server=server, clients=Memories(table, t), cohort=tuple(d.ids for d in draws[-1]))


def of_round(outcomes: tuple[Outcome, ...], cohorts: list[Draw], i: int) -> list[Outcome]:
    """Of the outcomes [chunk, lanes] those of the call's round i, for the clients that were there."""
    return [Outcome(*(x[i, : len(d.ids)] for x in o)) for o, d in zip(outcomes, cohorts, strict=True)]


def count(
    run: Run, record: Record, t: int, cohorts: list[Draw], outcomes: list[Outcome], sizes: list[tuple[int, int]]
) -> Record:
    """The record with the books of round t added. Raises if anything is not finite that must be."""
    c, residual, unsolved = record.counters, record.residual, record.unsolved
    dropped = record.dropped
    for e, (draw, lanes) in enumerate(zip(cohorts, outcomes, strict=True)):
        m, name = len(draw.ids), run.algorithm.exchanges[e].name
        for k in draw.ids[~lanes.finite].tolist():
            if not run.drop:
                raise not_finite(t, k, name)
            dropped += ((t, k, name),)
        if not lanes.server_finite.all():
            raise server_not_finite(t, name)
        worst = float(np.max(lanes.residual))
        if worst > -np.inf:
            residual = worst if residual is None else max(residual, worst)
        unsolved += int(np.sum(lanes.unsolved))
        gradients = int(np.sum(lanes.gradients, dtype=np.int64))
        c = c.after_exchange(m, m * sizes[e][0], m * sizes[e][1], gradients)
    return record._replace(counters=c.after_round(), residual=residual, unsolved=unsolved, dropped=dropped)
