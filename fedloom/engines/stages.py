"""The compiled part of an asynchronous run: stages of a timeline, with clients' jobs computed side by side.

A job is computed when its reply is first needed, together with all others that are in flight by then: its message and
its memory are settled when it starts, so it does not matter when that is. The same compiled program runs a batch of any
size, in groups of `lanes` jobs; so the size of batches does not change a bit of the result.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedloom.algorithm import Algorithm, Cohort
from fedloom.client import Federation, Solver
from fedloom.engines.halves import Given, Job
from fedloom.engines.lanes import NOWHERE, summed_type
from fedloom.engines.run import all_finite, client_key, exchange_key, server_key


class Jobs(NamedTuple):
    """Jobs in the order in which they are computed, as arrays with room for some more."""

    ids: Any
    waves: Any
    t: Any
    work: Any
    rows: Any  # of the table of memories
    messages: Any  # where the message is kept
    places: Any  # where the result is kept


class Steps(NamedTuple):
    """Stages as arrays: [stages], and [stages, buffer] for the replies that are counted."""

    message: Any  # where to keep the message of this version; beyond the end: nobody starts with it
    begin: Any  # jobs to compute before the replies are counted
    end: Any
    places: Any
    rows: Any
    weight: Any
    population: Any
    staleness: Any


class InFlight(NamedTuple):
    """Messages that jobs have started with, and results that have not been counted yet."""

    messages: Any  # [messages, ...]
    replies: Any  # [places, ...]
    memories: Any
    finite: Any
    gradients: Any
    residual: Any
    unsolved: Any


class Applied(NamedTuple):
    """What the host wants to know of a stage: [stages] and [stages, buffer]."""

    server_finite: Any
    finite: Any
    gradients: Any
    residual: Any
    unsolved: Any


def nothing_in_flight(algorithm: Algorithm, solver: Solver, federation: Federation, server: Any, memory: Any,
                      messages: int, places: int) -> InFlight:  # fmt: skip
    """Room for results, of the right shapes."""
    key = jax.random.key(0)

    def result(server: Any, memory: Any, federation: Federation) -> Any:
        message = algorithm.exchanges[0].send(server)
        job = Job(algorithm, solver, federation, message, 0, key, jnp.array(0))
        reply, memory, _ = job.whole(Given(jnp.array(0), key, key, memory, jnp.ones(())))
        return message, reply, memory

    def room(shapes: Any, n: int) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), shapes)

    message, reply, memory = jax.eval_shape(result, server, memory, federation)
    zero = jnp.zeros(places, jnp.int32)
    return InFlight(
        room(message, messages),
        room(reply, places),
        room(memory, places),
        jnp.ones(places, bool),
        zero,
        jnp.full(places, -jnp.inf),
        zero,
    )


@partial(jax.jit, donate_argnames="rows", static_argnames="lanes")
def run_stages(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Any,
    rows: Any,
    flying: InFlight,
    jobs: Jobs,
    steps: Steps,
    key: Any,
    version: Any,
    n: Any,
    lanes: int,
) -> tuple[Any, Any, InFlight, Applied]:
    """n stages, from the given version of the server on. n is not compiled in."""
    (exchange,) = algorithm.exchanges
    keys = jax.vmap(lambda wave: exchange_key(key, wave, 0))(jobs.waves)
    client_keys = jax.vmap(client_key)(keys, jobs.ids)
    solve_keys = jax.vmap(lambda key: jax.random.fold_in(key, 0))(client_keys)
    capacity = jobs.ids.shape[0]

    def one_job(i: Any, messages: Any, rows: Any) -> Any:
        message = jax.tree.map(lambda m: m[jobs.messages[i]], messages)
        memory = jax.tree.map(lambda r: r[jobs.rows[i]], rows)
        job = Job(algorithm, solver, federation, message, 0, keys[i], jobs.t[i])
        reply, memory, meter = job.whole(Given(jobs.ids[i], client_keys[i], solve_keys[i], memory, jobs.work[i]))
        return reply, memory, all_finite((reply, memory)), meter.gradients, meter.residual, meter.unsolved

    def compute(begin: Any, end: Any, rows: Any, flying: InFlight) -> InFlight:
        def group(g: Any, results: Any) -> Any:
            which = begin + g * lanes + jnp.arange(lanes)
            chosen = jnp.minimum(which, capacity - 1)
            if lanes > 1:
                new = jax.vmap(one_job, in_axes=(0, None, None))(chosen, flying.messages, rows)
            else:
                new = jax.tree.map(lambda x: x[None], one_job(chosen[0], flying.messages, rows))
            places = jnp.where(which < end, jobs.places[chosen], flying.finite.shape[0])
            return jax.tree.map(lambda r, x: r.at[places].set(x.astype(r.dtype), mode="drop"), results, new)

        results = jax.lax.fori_loop(0, -(-(end - begin) // lanes), group, tuple(flying[1:]))
        return InFlight(flying.messages, *results)

    def stage(i: Any, carry: Any) -> Any:
        server, rows, flying, applied = carry
        message = exchange.send(server)
        kept = jax.tree.map(lambda m, x: m.at[steps.message[i]].set(x, mode="drop"), flying.messages, message)
        flying = compute(steps.begin[i], steps.end[i], rows, flying._replace(messages=kept))
        places = steps.places[i]
        of_place = jax.tree.map(lambda x: x[places], flying._replace(messages=()))
        finite = of_place.finite
        weight, p = (jnp.where(finite, x[i], 0) for x in (steps.weight, steps.population))
        replies = jax.vmap(exchange.aged)(of_place.replies, steps.staleness[i])
        somebody = jnp.sum(weight) > 0
        whole = jnp.where(somebody, jnp.sum(weight), 1)

        def total(a: Any) -> Any:
            def over_replies(x: Any) -> Any:
                kind = summed_type(x.dtype)
                there = finite.reshape(-1, *(1,) * (x.ndim - 1))
                return jnp.tensordot(a.astype(kind), jnp.where(there, x, 0).astype(kind), 1)

            return jax.tree.map(over_replies, replies)

        mean = jax.tree.map(lambda x: x / whole.astype(x.dtype), total(weight))
        stale = jnp.sum(weight * steps.staleness[i]) / whole
        cohort = Cohort(jnp.sum(p), server_key(exchange_key(key, version + i, 0)), total(p), stale)
        received = exchange.receive(server, mean, cohort)
        server = jax.tree.map(lambda new, old: jnp.where(somebody, new, old), received, server)
        counted = jnp.where(finite & (weight > 0), steps.rows[i], NOWHERE)
        rows = jax.tree.map(lambda r, x: r.at[counted].set(x, mode="drop"), rows, of_place.memories)
        now = Applied(all_finite(server), finite, of_place.gradients, of_place.residual, of_place.unsolved)
        return server, rows, flying, jax.tree.map(lambda a, x: a.at[i].set(x), applied, now)

    shape = steps.places.shape
    blank = Applied(
        jnp.ones(shape[0], bool),
        jnp.ones(shape, bool),
        jnp.zeros(shape, jnp.int32),
        jnp.full(shape, -jnp.inf),
        jnp.zeros(shape, jnp.int32),
    )
    return jax.lax.fori_loop(0, n, stage, (server, rows, flying, blank))
