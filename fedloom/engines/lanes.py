"""Lanes at work: the clients of one exchange on one device, as a `Schedule` says. Traced into the compiled program.

Replies are added up as they come and memories are written back at once, so that the space that is needed grows with
the lanes and not with the cohort.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.client import Meter
from fedloom.cohorts import Draw
from fedloom.engines.halves import Given, Job
from fedloom.engines.run import all_finite
from fedloom.engines.schedule import Schedule

NOWHERE = np.iinfo(np.int32).max  # a row beyond every table: writes to it are dropped


class Trip(NamedTuple):
    """The cohort of one exchange as arrays with room for `room` clients."""

    ids: Any
    keys: Any  # of the clients; these and the next are made by the program, for all rounds of a call at once
    solve_keys: Any  # of each client's first solve
    slots: Any  # rows of the table of memories
    weight: Any  # in the mean
    population: Any  # p_k
    work: Any


def filled(
    p: np.ndarray, draws: Sequence[Draw], slots_of: Callable[[np.ndarray], np.ndarray], rounds: int, room: int
) -> Trip:
    """The cohorts of several rounds as arrays [rounds, room], made on the host."""
    shape = (rounds, room)
    ids, slots = np.zeros(shape, np.int32), np.full(shape, NOWHERE, np.int32)
    weight, population, work = np.zeros(shape), np.zeros(shape), np.ones(shape)
    for i, draw in enumerate(draws):
        m = len(draw.ids)
        ids[i, :m], slots[i, :m] = draw.ids, slots_of(draw.ids)
        weight[i, :m], population[i, :m], work[i, :m] = draw.weight, p[draw.ids], draw.work
    return Trip(ids, None, None, slots, weight, population, work)


class Sums(NamedTuple):
    """What the server needs of the replies that count."""

    replies: Any  # sum of weight * reply
    total: Any  # sum of p_k * reply
    weight: Any
    share: Any  # sum of p_k


class Seen(NamedTuple):
    """What the host wants to know of each client."""

    finite: Any
    gradients: Any
    residual: Any
    unsolved: Any


def blank(room: int) -> Seen:
    zero = jnp.zeros(room, jnp.int32)
    return Seen(jnp.ones(room, bool), zero, jnp.full(room, -jnp.inf), zero)


def run_lanes(job: Job, trip: Trip, schedule: Schedule, rows: Any, going: Any) -> tuple[Sums, Any, Seen]:
    """All clients of this device. Memories are written only if `going`."""
    room = trip.ids.shape[0]
    lanes, at_once = schedule.first.shape[-1], schedule.ends.shape[-1]

    def given(rows: Any, clients: Any) -> Given:
        who = jnp.minimum(clients, room - 1)  # nobody: somebody's numbers, which are not used
        memories = jax.tree.map(lambda r: r.at[trip.slots[who]].get(mode="clip"), rows)
        return Given(trip.ids[who], trip.keys[who], trip.solve_keys[who], memories, trip.work[who])

    one = jax.eval_shape(lambda rows: jax.tree.map(lambda x: x[0], given(rows, schedule.first)), rows)
    halves = job.has_halves(one)

    def event(e: Any, carry: Any) -> Any:
        underway, rows, sums, seen = carry
        if halves:
            underway = _stepped(job, underway, schedule.steps[e])
        ends, lane = schedule.ends[e], schedule.lane[e]
        if halves:
            ending = underway if at_once == lanes else jax.tree.map(lambda u: u[lane], underway)
            replies, memories, meters = _across(job.end)(given(rows, ends), ending)
        else:
            replies, memories, meters = _across(job.whole)(given(rows, ends))
        sums, rows, seen = counted(replies, memories, meters, ends, sums, rows, seen)

        def begin_next(underway: Any) -> Any:
            new = _across(job.begin)(given(rows, schedule.begins[e]))
            return new if at_once == lanes else jax.tree.map(lambda u, x: u.at[lane].set(x), underway, new)

        if halves:
            underway = jax.lax.cond(jnp.any(schedule.begins[e] < room), begin_next, lambda u: u, underway)
        return underway, rows, sums, seen

    def counted(replies: Any, memories: Any, meters: Meter, ends: Any, sums: Sums, rows: Any, seen: Seen) -> Any:
        """Committed if and only if the reply counts: if it is finite and has a weight."""
        who = jnp.minimum(ends, room - 1)
        finite = jax.vmap(all_finite)((replies, memories))
        counts = finite & (ends < room) & (trip.weight[who] > 0)
        weight, p = (jnp.where(counts, x[who], 0) for x in (trip.weight, trip.population))

        def add(total: Any, a: Any) -> Any:
            def over_lanes(sum: Any, x: Any) -> Any:
                there = counts.reshape(-1, *(1,) * (x.ndim - 1))
                return sum + jnp.tensordot(a.astype(sum.dtype), jnp.where(there, x, 0).astype(sum.dtype), 1)

            return jax.tree.map(over_lanes, total, replies)

        sums = Sums(
            add(sums.replies, weight), add(sums.total, p), sums.weight + jnp.sum(weight), sums.share + jnp.sum(p)
        )
        slots = jnp.where(counts & going, trip.slots[who], NOWHERE)
        rows = jax.tree.map(lambda r, x: r.at[slots].set(x, mode="drop"), rows, memories)
        new = Seen(finite, meters.gradients, meters.residual, meters.unsolved)
        seen = jax.tree.map(lambda a, x: a.at[ends].set(x.astype(a.dtype), mode="drop"), seen, new)
        return sums, rows, seen

    reply, *_ = jax.eval_shape(job.whole, one)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, summed_type(x.dtype)), reply)
    nothing = jnp.zeros((), trip.weight.dtype)
    underway = _across(job.begin)(given(rows, schedule.first)) if halves else ()
    carry = underway, rows, Sums(zero, zero, nothing, nothing), blank(room)
    _, rows, sums, seen = jax.lax.fori_loop(0, schedule.events, event, carry)
    return sums, rows, seen


def summed_type(dtype: Any) -> Any:
    """Of a mean of replies: theirs, or for whole numbers JAX's float."""
    return dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float)


def _stepped(job: Job, underway: Any, steps: Any) -> Any:
    """All lanes after so many steps. A single lane is not a vector of one: that would make copies in the loop."""
    lanes = jax.tree.leaves(underway)[0].shape[0]
    if lanes > 1:
        return jax.lax.fori_loop(0, steps, lambda _, u: jax.vmap(job.step)(u), underway)
    one = jax.tree.map(lambda x: x[0], underway)
    one = jax.lax.fori_loop(0, steps, lambda _, u: job.step(u), one)
    return jax.tree.map(lambda x: x[None], one)


def _across(f: Any) -> Any:
    """f for each lane; a single one is not vectorised, since that would cost a little."""

    def run(*args: Any) -> Any:
        if jax.tree.leaves(args)[0].shape[0] > 1:
            return jax.vmap(f)(*args)
        return jax.tree.map(lambda x: x[None], f(*jax.tree.map(lambda x: x[0], args)))

    return run
