"""The reference engine: one client at a time, nothing compiled. The oracle for the others, and the debugger.

Print, set breakpoints, look at values anywhere inside a method or a solver: this is ordinary Python. Nothing here is
shared with the compiled engines except what a run is and what a record is.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from fedloom.algorithm import Algorithm, Cohort, Exchange
from fedloom.client import Federation, LocalClient, Solver
from fedloom.cohorts import CohortRule
from fedloom.engines.checks import checked
from fedloom.engines.costs import message_sizes
from fedloom.engines.keys import client_key, coin_key, exchange_key, lasting_key, server_key
from fedloom.engines.records import ClientError, Record, Sizes, client_not_finite, server_not_finite
from fedloom.engines.run import Run
from fedloom.engines.sync_clock import NoClock, SyncClock, timed
from fedloom.engines.trees import Tree, all_finite, nbytes
from fedloom.hyperparameters import for_client
from fedloom.problem import Key, Vector
from fedloom.systems import System


def reference(
    algorithm: Algorithm,
    federation: Federation,
    solver: Solver,
    w: Any,
    rounds: int,
    *,
    cohort: CohortRule | None = None,
    seed: int = 0,
    on_nonfinite: str = "raise",
    resume: Record | None = None,
    system: System | None = None,
) -> Iterator[Record]:
    """Run `rounds` rounds from the model w, and yield a record after each. The arguments are those of `simulate`."""
    run = checked(algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, resume, system)
    return run_records(run)


def run_records(run: Run) -> Iterator[Record]:
    """The records of a checked run."""
    # Only a simulated system needs the sizes beforehand; tracing for them would hide concrete values from a debugger.
    sizes = [] if run.system is None else message_sizes(run)
    return _records(run, timed(run, sizes), sizes)


def _records(run: Run, clock: SyncClock | NoClock, sizes: Sizes) -> Iterator[Record]:
    record = run.start
    for t in range(record.round, run.rounds):
        with jax.disable_jit():
            record = _round(run, clock, sizes, t, record)
        yield record


def _round(run: Run, clock: SyncClock | NoClock, sizes: Sizes, t: int, record: Record) -> Record:
    server, clients, counters = record.server, dict(record.clients), record.counters
    before = clock.lost.copy()
    draws = clock.cohorts(t)
    lost = clock.lost - before
    worst, unsolved, dropped, active = -jnp.inf, 0, [], True
    for e, exchange in enumerate(run.algorithm.exchanges):
        key = exchange_key(run.key, t, e)
        message = exchange.send(server)
        replies, memories = {}, {}
        down = up = 0
        for k, work in zip(draws[e].ids.tolist(), draws[e].work.tolist(), strict=True):
            solves = lasting_key(run.key, e, k) if run.solver.lasting else None
            client = LocalClient(
                run.federation.objective(k),
                run.solver,
                client_key(key, k),
                coin_key(key),
                t,
                work,
                solves,
                float(run.p[k]) * len(run.p),
            )
            own = for_client(run.algorithm, k).exchanges[e]
            memory = clients[k] if k in clients else run.algorithm.init_client(run.w)
            reply, memory = _local(own, message, memory, client, k, t)
            down, up = down + nbytes(message), up + nbytes(reply)
            counters = counters.after_gradients(int(client.meter.gradients))
            worst, unsolved = max(worst, client.meter.residual), unsolved + int(client.meter.unsolved)
            if all_finite((reply, memory)):
                replies[k], memories[k] = reply, memory
            elif run.drop:
                dropped.append((t + 1, k, exchange.name))
            else:
                raise client_not_finite(t, k, exchange.name)
        weight = {k: a for k, a in zip(draws[e].ids.tolist(), draws[e].weight.tolist(), strict=True) if k in replies}
        active = active and sum(weight.values()) > 0  # if nobody counts, the rest of the round changes nothing either
        if active:
            server = _receive(run, exchange, server, replies, weight, server_key(key))
            if not all_finite(server):
                raise server_not_finite(t, exchange.name)
            clients.update({k: memories[k] for k in memories if weight[k] > 0})  # committed iff the reply counts
        counters = counters.after_exchanges(1, len(draws[e].ids), down, up)
    if lost.any():
        counters = counters.after_lost(lost, sizes)
    return Record(
        round=t + 1,
        server=server,
        clients=clients,
        counters=counters.after_rounds(1),
        cohort=tuple(d.ids for d in draws),
        residual=None if worst == -jnp.inf else float(worst),
        unsolved=unsolved,
        dropped=tuple(dropped),
        origin=record.origin,
        clock=clock.clock,
    )


def _local(exchange: Exchange, message: Tree, memory: Tree, client: LocalClient, k: int, t: int) -> tuple[Tree, Tree]:
    try:
        return exchange.local(message, memory, client)
    except Exception as error:
        raise ClientError(
            f"Client {k}, round {t + 1}, exchange {exchange.name!r}: {type(error).__name__}: {error}"
        ) from error


def _receive(
    run: Run, exchange: Exchange, server: Tree, replies: dict[int, Tree], weight: dict[int, float], key: Key
) -> Tree:
    """Hand the weighted mean, the population sum and the share of those who count to the server."""
    replies = {k: reply for k, reply in replies.items() if weight[k] > 0}
    population = {k: float(run.p[k]) for k in replies}
    mean = _weighted_sum(replies, weight, 1 / sum(weight.values()))
    total = _weighted_sum(replies, population, 1.0)
    return exchange.receive(server, mean, Cohort(sum(population.values()), key, total))


def _weighted_sum(replies: dict[int, Tree], weight: dict[int, float], scale: float) -> Tree:
    parts = [jax.tree.map(lambda x, a=weight[k]: a * x, reply) for k, reply in replies.items()]

    def add(*leaves: Vector) -> Vector:
        return sum(leaves[1:], start=leaves[0]) * scale

    return jax.tree.map(add, *parts)
