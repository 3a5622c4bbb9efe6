"""The compiled program of an asynchronous run: stages of a timeline, with clients' jobs computed side by side.

A job is computed when its reply is first needed, together with all others that are in flight by then: its message and
its memory are settled when it starts, so it does not matter when that is. The same compiled program runs a batch of any
size, in groups of `lanes` jobs; so the size of batches does not change a bit of the result.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.engines.aggregate import ClientReport, Outcome, added, committed, empty_report, empty_sums, received
from fedloom.engines.keys import client_key, exchange_key, solve_key
from fedloom.engines.split_solve import Given, Job
from fedloom.engines.trees import Array, Tree, all_finite
from fedloom.problem import Key, Scalar


class JobArrays(NamedTuple):
    """Jobs in the order in which they are computed, as arrays with room for some more."""

    ids: Array  # [jobs] int: clients
    waves: Array  # [jobs] int
    t: Array  # [jobs] int: the time of step size schedules
    work: Array  # [jobs] float
    slots: Array  # [jobs] int: rows of the table of memories
    messages: Array  # [jobs] int: where the message is kept
    places: Array  # [jobs] int: where the result is kept


class StageArrays(NamedTuple):
    """Stages: from one server update to the next."""

    message: Array  # [stages] int: where to keep the message of this version; beyond the end: nobody starts with it
    begin: Array  # [stages] int: jobs to compute before the replies are counted, from here
    end: Array  # [stages] int: to here
    places: Array  # [stages, buffer] int: where the replies are that are counted
    slots: Array  # [stages, buffer] int: rows of the table of memories
    weight: Array  # [stages, buffer] float: in the mean
    population: Array  # [stages, buffer] float: p_k
    staleness: Array  # [stages, buffer] float


class InFlight(NamedTuple):
    """Messages that jobs have started with, and results that have not been counted yet."""

    messages: Tree  # [messages, ...]
    replies: Tree  # [places, ...]
    memories: Tree  # [places, ...]
    reports: ClientReport  # [places]


def nothing_in_flight(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Tree,
    memory: Tree,
    messages: int,
    places: int,
) -> InFlight:
    """Room for so many messages and results, of the right shapes."""
    key = jax.random.key(0)

    def result(server: Tree, memory: Tree, federation: Federation) -> tuple[Tree, Tree, Tree]:
        message = algorithm.exchanges[0].send(server)
        job = Job(algorithm, solver, federation, message, 0, key, jnp.array(0))
        reply, memory, _ = job.whole(Given(jnp.array(0), key, key, memory, jnp.ones(())))
        return message, reply, memory

    def room(shapes: Tree, n: int) -> Tree:
        return jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), shapes)

    message, reply, memory = jax.eval_shape(result, server, memory, federation)
    return InFlight(room(message, messages), room(reply, places), room(memory, places), empty_report(places))


@partial(jax.jit, donate_argnames="rows", static_argnames="lanes")
def run_stages(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Tree,
    rows: Tree,
    in_flight: InFlight,
    jobs: JobArrays,
    stages: StageArrays,
    key: Key,
    version: Scalar,
    n: Scalar,
    lanes: int,
) -> tuple[Tree, Tree, InFlight, Outcome]:
    """n stages, from the given version of the server on. n is not compiled in."""
    (exchange,) = algorithm.exchanges
    keys = jax.vmap(lambda wave: exchange_key(key, wave, 0))(jobs.waves)
    client_keys = jax.vmap(client_key)(keys, jobs.ids)
    solve_keys = jax.vmap(solve_key)(client_keys)
    capacity = jobs.ids.shape[0]

    def one_job(i: Scalar, messages: Tree, rows: Tree) -> tuple[Tree, Tree, ClientReport]:
        message = jax.tree.map(lambda m: m[jobs.messages[i]], messages)
        memory = jax.tree.map(lambda r: r[jobs.slots[i]], rows)
        job = Job(algorithm, solver, federation, message, 0, keys[i], jobs.t[i])
        reply, memory, meter = job.whole(Given(jobs.ids[i], client_keys[i], solve_keys[i], memory, jobs.work[i]))
        finite = all_finite((reply, memory))
        return reply, memory, ClientReport(finite, meter.gradients, meter.residual, meter.unsolved)

    def compute(begin: Scalar, end: Scalar, rows: Tree, in_flight: InFlight) -> InFlight:
        def group(g: Scalar, results: tuple[Tree, Tree, ClientReport]) -> tuple[Tree, Tree, ClientReport]:
            which = begin + g * lanes + jnp.arange(lanes)
            chosen = jnp.minimum(which, capacity - 1)
            if lanes > 1:
                new = jax.vmap(one_job, in_axes=(0, None, None))(chosen, in_flight.messages, rows)
            else:
                new = jax.tree.map(lambda x: x[None], one_job(chosen[0], in_flight.messages, rows))
            places = jnp.where(which < end, jobs.places[chosen], in_flight.reports.finite.shape[0])
            return jax.tree.map(lambda r, x: r.at[places].set(x.astype(r.dtype), mode="drop"), results, new)

        results = jax.lax.fori_loop(0, -(-(end - begin) // lanes), group, tuple(in_flight[1:]))
        return InFlight(in_flight.messages, *results)

    def stage(i: Scalar, carry: tuple[Tree, Tree, InFlight, Outcome]) -> tuple[Tree, Tree, InFlight, Outcome]:
        server, rows, in_flight, outcomes = carry
        message = exchange.send(server)
        kept = jax.tree.map(lambda m, x: m.at[stages.message[i]].set(x, mode="drop"), in_flight.messages, message)
        in_flight = compute(stages.begin[i], stages.end[i], rows, in_flight._replace(messages=kept))
        replies, memories, report = jax.tree.map(lambda x: x[stages.places[i]], tuple(in_flight[1:]))
        weight, staleness = stages.weight[i], stages.staleness[i]
        counts = report.finite & (weight > 0)
        replies = jax.vmap(exchange.aged)(replies, staleness)
        none = empty_sums(jax.tree.map(lambda x: x[0], replies), weight.dtype)
        sums = added(none, replies, counts, weight, stages.population[i])
        stale = jnp.sum(jnp.where(counts, weight, 0) * staleness) / jnp.where(sums.weight > 0, sums.weight, 1)
        server, counted = received(exchange, server, sums, exchange_key(key, version + i, 0), jnp.array(True), stale)
        rows = committed(rows, stages.slots[i], counts, memories)
        now = Outcome(all_finite(server), counted, report)
        return server, rows, in_flight, jax.tree.map(lambda a, x: a.at[i].set(x), outcomes, now)

    yes = jnp.ones(stages.places.shape[0], bool)
    blank = Outcome(yes, yes, empty_report(stages.places.shape))
    return jax.lax.fori_loop(0, n, stage, (server, rows, in_flight, blank))
