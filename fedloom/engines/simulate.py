"""The compiled engine: whole rounds in one program, the clients of a cohort vectorised.

Cohorts are drawn on the host, a chunk of rounds ahead. The program gathers the memories of the cohort from a table,
runs all clients side by side, takes the weighted mean, updates the server, and scatters the memories back.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm, Cohort
from fedloom.client import Federation, LocalClient, Meter, Solver
from fedloom.cohorts import CohortRule, Draw, everyone
from fedloom.engines.run import (
    Counters,
    Record,
    Run,
    all_finite,
    client_key,
    coin_key,
    exchange_key,
    nbytes,
    not_finite,
    prepare,
    server_key,
    server_not_finite,
)
from fedloom.engines.table import Table
from fedloom.hyperparameters import for_client


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
    if not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"chunk must be a whole number, 1 or more, got {chunk!r}.")
    rule = everyone() if cohort is None else cohort
    return _records(run, rule.lanes(federation.clients), chunk)


class Trip(NamedTuple):
    """The cohort of one exchange as arrays of fixed width. Lanes beyond the cohort have weight 0 and are not stored."""

    ids: Any
    slots: Any
    weight: Any  # in the mean
    population: Any  # p_k
    work: Any
    real: Any  # False beyond the cohort


class Outcome(NamedTuple):
    """What the host wants to know about each lane of one exchange."""

    server_finite: Any  # one value, the same for all lanes
    finite: Any
    gradients: Any
    residual: Any
    unsolved: Any


def _records(run: Run, lanes: int, chunk: int) -> Iterator[Record]:
    federation = jax.tree.map(jnp.asarray, run.federation)
    blank = run.algorithm.init_client(run.w)
    table = Table(blank, run.federation.clients, run.start.clients)
    sizes = _message_sizes(run, federation, blank)
    record = run.start._replace(clients=table)
    t = record.round
    while t < run.rounds:
        # Rounds of one chunk have cohorts of one width, so that a round is computed alike however rounds are chunked.
        draws = [run.cohorts(t)]
        width = _widths(draws[0], lanes)
        while len(draws) < min(chunk - t % chunk, run.rounds - t):
            following = run.cohorts(t + len(draws))
            if _widths(following, lanes) != width:
                break
            draws.append(following)
        trips = _stack(run.p, draws, width, table, chunk)
        server, table.rows, outcomes = _rounds(
            run.algorithm, run.solver, federation, record.server, table.rows, trips, run.key, t, len(draws)
        )
        record = _after(run, record, server, draws, jax.device_get(outcomes), sizes, t)
        t += len(draws)
        if t % chunk == 0 or t == run.rounds:
            yield record
            record = record._replace(residual=None, unsolved=0, dropped=())


def _widths(draws: list[Draw], lanes: int) -> list[int]:
    """Lanes for each exchange: the expected number, or a power of two if more clients came than expected."""
    return [lanes if len(d.ids) <= lanes else 1 << (len(d.ids) - 1).bit_length() for d in draws]


def _stack(p: np.ndarray, draws: list[list[Draw]], widths: list[int], table: Table, chunk: int) -> tuple[Trip, ...]:
    """Cohorts of several rounds as arrays [chunk, lanes], one Trip for each exchange."""

    def padded(draw: Draw, width: int) -> Trip:
        slots = table.slots(draw.ids)
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


@partial(jax.jit, donate_argnames="rows")
def _rounds(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Any,
    rows: Any,
    trips: tuple[Trip, ...],
    key: Any,
    t: Any,
    n: Any,
) -> tuple[Any, Any, tuple[Outcome, ...]]:
    """n rounds from round t. n is not compiled in, so that chunks of any length run the same program."""

    def one_round(i: Any, carry: Any) -> Any:
        server, rows, outcomes = carry
        for e, trip in enumerate(jax.tree.map(lambda x: x[i], trips)):
            server, rows, outcome = _exchange(
                algorithm, solver, federation, server, rows, trip, e, exchange_key(key, t + i, e), t + i
            )
            written = jax.tree.map(lambda a, x: a.at[i].set(x), outcomes[e], outcome)
            outcomes = (*outcomes[:e], written, *outcomes[e + 1 :])
        return server, rows, outcomes

    outcomes = tuple(_blank_outcome(trip) for trip in trips)
    return jax.lax.fori_loop(0, n, one_round, (server, rows, outcomes))


def _blank_outcome(trip: Trip) -> Outcome:
    shape = trip.ids.shape
    return Outcome(
        server_finite=jnp.ones(shape, bool),
        finite=jnp.ones(shape, bool),
        gradients=jnp.zeros(shape, jnp.int32),
        residual=jnp.full(shape, -jnp.inf),
        unsolved=jnp.zeros(shape, jnp.int32),
    )


def _exchange(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Any,
    rows: Any,
    trip: Trip,
    e: int,
    key: Any,
    t: Any,
) -> tuple[Any, Any, Outcome]:
    exchange = algorithm.exchanges[e]
    message = exchange.send(server)

    def one_client(k: Any, memory: Any, work: Any) -> tuple[Any, Any, Meter]:
        return _local(algorithm, solver, federation, message, k, memory, work, e, key, t)

    memories = jax.tree.map(lambda r: r.at[trip.slots].get(mode="clip"), rows)
    replies, memories, meters = jax.vmap(one_client)(trip.ids, memories, trip.work)
    finite = jax.vmap(all_finite)((replies, memories))
    counted = finite & trip.real
    weight = jnp.where(counted, trip.weight, 0)
    population = jnp.where(counted, trip.population, 0)

    def weighted_sum(a: Any) -> Any:
        def over_lanes(x: Any) -> Any:
            lanes = counted.reshape(-1, *(1,) * (x.ndim - 1))
            return jnp.tensordot(a.astype(x.dtype), jnp.where(lanes, x, 0), 1)

        return jax.tree.map(over_lanes, replies)

    somebody = jnp.sum(weight) > 0
    mean = weighted_sum(weight / jnp.where(somebody, jnp.sum(weight), 1))
    cohort = Cohort(jnp.sum(population), server_key(key), weighted_sum(population))
    received = exchange.receive(server, mean, cohort)
    server = jax.tree.map(lambda new, old: jnp.where(somebody, new, old), received, server)
    # Committed if and only if the reply is counted: other lanes point beyond the table, where writes are dropped.
    slots = jnp.where(counted, trip.slots, np.iinfo(np.int32).max)
    rows = jax.tree.map(lambda r, x: r.at[slots].set(x, mode="drop"), rows, memories)
    return server, rows, Outcome(all_finite(server), finite, meters.gradients, meters.residual, meters.unsolved)


def _local(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    message: Any,
    k: Any,
    memory: Any,
    work: Any,
    e: int,
    key: Any,
    t: Any,
) -> tuple[Any, Any, Meter]:
    client = LocalClient(federation.objective(k), solver, client_key(key, k), coin_key(key), t, work)
    exchange = for_client(algorithm, k).exchanges[e]
    try:
        reply, memory = exchange.local(message, memory, client)
    except Exception as error:
        error.add_note(f"Exchange {exchange.name!r} of {algorithm!r}; fedloom.reference runs it with concrete values.")
        raise
    return reply, memory, client.meter


def _message_sizes(run: Run, federation: Federation, blank: Any) -> list[tuple[int, int]]:
    """Bytes down and up for one client in each exchange, from shapes alone."""
    sizes = []
    for e, exchange in enumerate(run.algorithm.exchanges):
        message = jax.eval_shape(exchange.send, run.start.server)

        def reply(message: Any, memory: Any, e: int = e) -> Any:
            key = exchange_key(run.key, 0, e)
            return _local(run.algorithm, run.solver, federation, message, 0, memory, 1.0, e, key, 0)[0]

        sizes.append((nbytes(message), nbytes(jax.eval_shape(reply, message, blank))))
    return sizes


def _after(
    run: Run,
    record: Record,
    server: Any,
    draws: list[list[Draw]],
    outcomes: tuple[Outcome, ...],
    sizes: list[tuple[int, int]],
    t: int,
) -> Record:
    """The record after the rounds t, t + 1, ... whose cohorts were `draws`."""
    c, residual, unsolved = record.counters, record.residual, record.unsolved
    dropped = list(record.dropped)
    for i, cohorts in enumerate(draws):
        for e, draw in enumerate(cohorts):
            m = len(draw.ids)
            lanes = Outcome(*(x[i, :m] for x in outcomes[e]))
            name = run.algorithm.exchanges[e].name
            for k in draw.ids[~lanes.finite].tolist():
                if not run.drop:
                    raise not_finite(t + i, k, name)
                dropped.append((t + i, k, name))
            if not lanes.server_finite.all():
                raise server_not_finite(t + i, name)
            worst = float(np.max(lanes.residual))
            if worst > -np.inf:
                residual = worst if residual is None else max(residual, worst)
            unsolved += int(np.sum(lanes.unsolved))
            c = Counters(
                rounds=c.rounds,
                exchanges=c.exchanges + 1,
                messages=c.messages + 2 * m,
                bytes_down=c.bytes_down + m * sizes[e][0],
                bytes_up=c.bytes_up + m * sizes[e][1],
                gradients=c.gradients + int(np.sum(lanes.gradients, dtype=np.int64)),
            )
        c = c._replace(rounds=c.rounds + 1)
    return Record(
        round=t + len(draws),
        server=server,
        clients=record.clients,
        counters=c,
        cohort=tuple(d.ids for d in draws[-1]),
        residual=residual,
        unsolved=unsolved,
        dropped=tuple(dropped),
    )
