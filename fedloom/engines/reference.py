"""The reference engine: one client at a time, nothing compiled. The oracle for the others, and the debugger.

Print, set breakpoints, look at values anywhere inside a method or a solver: this is ordinary Python.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from fedloom.algorithm import Algorithm, Cohort, Exchange
from fedloom.client import Federation, LocalClient, Solver
from fedloom.cohorts import CohortRule
from fedloom.engines.plan import Packing, Plan
from fedloom.engines.prepare import prepare
from fedloom.engines.program import message_sizes
from fedloom.engines.run import (
    ClientError,
    Record,
    Run,
    all_finite,
    client_key,
    coin_key,
    exchange_key,
    nbytes,
    not_finite,
    server_key,
    server_not_finite,
)
from fedloom.hyperparameters import for_client
from fedloom.problem import Vector
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
    run = prepare(algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, resume, system)
    if system is not None:
        run = run.with_clock(message_sizes(run), Packing(run, Plan(1)).steps_of_all())
    return _records(run)


def _records(run: Run) -> Iterator[Record]:
    record = run.start
    for t in range(record.round, run.rounds):
        with jax.disable_jit():
            record = _round(run, t, record)
        yield record


def _round(run: Run, t: int, record: Record) -> Record:
    server, clients, totals = record.server, dict(record.clients), record.counters
    before = run.lost
    draws = run.cohorts(t)
    lost = run.lost - before
    worst, unsolved, dropped, going = -jnp.inf, 0, [], True
    for e, exchange in enumerate(run.algorithm.exchanges):
        key = exchange_key(run.key, t, e)
        message = exchange.send(server)
        replies, states = {}, {}
        down = up = gradients = 0
        for k, work in zip(draws[e].ids.tolist(), draws[e].work.tolist(), strict=True):
            client = LocalClient(run.federation.objective(k), run.solver, client_key(key, k), coin_key(key), t, work)
            own = for_client(run.algorithm, k).exchanges[e]
            memory = clients[k] if k in clients else run.algorithm.init_client(run.w)
            reply, state = _local(own, message, memory, client, k, t)
            down, up = down + nbytes(message), up + nbytes(reply)
            gradients += int(client.meter.gradients)
            worst, unsolved = max(worst, client.meter.residual), unsolved + int(client.meter.unsolved)
            if all_finite((reply, state)):
                replies[k], states[k] = reply, state
            elif run.drop:
                dropped.append((t, k, exchange.name))
            else:
                raise not_finite(t, k, exchange.name)
        weight = {k: a for k, a in zip(draws[e].ids.tolist(), draws[e].weight.tolist(), strict=True) if k in replies}
        going = going and sum(weight.values()) > 0  # if nobody counts, the rest of the round changes nothing either
        if going:
            server = _receive(run, exchange, server, replies, weight, server_key(key))
            if not all_finite(server):
                raise server_not_finite(t, exchange.name)
            clients.update({k: states[k] for k in states if weight[k] > 0})  # committed if and only if the reply counts
        totals = totals.after_exchanges(1, len(draws[e].ids), down, up, gradients)
    if lost.any():
        totals = totals.after_lost(lost, message_sizes(run))
    return Record(
        round=t + 1,
        server=server,
        clients=clients,
        counters=totals.after_rounds(1),
        cohort=tuple(d.ids for d in draws),
        residual=None if worst == -jnp.inf else float(worst),
        unsolved=unsolved,
        dropped=tuple(dropped),
        origin=record.origin,
        clock=run.clock,
    )


def _local(exchange: Exchange, message: Any, memory: Any, client: LocalClient, k: int, t: int) -> tuple[Any, Any]:
    try:
        return exchange.local(message, memory, client)
    except Exception as error:
        raise ClientError(
            f"Client {k}, round {t} (from 0), exchange {exchange.name!r}: {type(error).__name__}: {error}"
        ) from error


def _receive(
    run: Run, exchange: Exchange, server: Any, replies: dict[int, Any], weight: dict[int, float], key: Any
) -> Any:
    """Hand the weighted mean, the population sum and the share of those who count to the server."""
    replies = {k: reply for k, reply in replies.items() if weight[k] > 0}
    population = {k: float(run.p[k]) for k in replies}
    mean = _weighted_sum(replies, weight, 1 / sum(weight.values()))
    total = _weighted_sum(replies, population, 1.0)
    return exchange.receive(server, mean, Cohort(sum(population.values()), key, total))


def _weighted_sum(replies: dict[int, Any], weight: dict[int, float], scale: float) -> Any:
    parts = [jax.tree.map(lambda x, a=weight[k]: a * x, reply) for k, reply in replies.items()]

    def add(*leaves: Vector) -> Vector:
        return sum(leaves[1:], start=leaves[0]) * scale

    return jax.tree.map(add, *parts)
