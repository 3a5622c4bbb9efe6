"""Lanes at work: the clients of one exchange on one device, as a `Packing` says. Traced into the compiled program.

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
from fedloom.engines.aggregate import (
    NOWHERE,
    ClientReport,
    Sums,
    added,
    are_finite,
    committed,
    empty_report,
    empty_sums,
)
from fedloom.engines.packing import Packing
from fedloom.engines.split_solve import Given, Job, Underway
from fedloom.engines.trees import Array, Tree
from fedloom.problem import Scalar


class CohortArrays(NamedTuple):
    """The cohort of one exchange as arrays with room for `room` clients; of several rounds, [rounds, room]."""

    ids: Array  # [room] int
    slots: Array  # [room] int: rows of the table of memories
    weight: Array  # [room] float: in the mean; 0 beyond the cohort
    population: Array  # [room] float: p_k
    work: Array  # [room] float: the fraction of the usual work
    key: Any = None  # of the exchange; this one and the others are made on the device, see `with_keys`
    keys: Any = None  # [room]: of the clients
    solve_keys: Any = None  # [room]: of each client's first solve
    solves: Any = None  # [room]: of all solves of a client, if their randomness is lasting


def cohort_arrays(
    p: np.ndarray, draws: Sequence[Draw], slots_of: Callable[[np.ndarray], np.ndarray], rounds: int, room: int
) -> CohortArrays:
    """The cohorts of several rounds, made on the host."""
    shape = (rounds, room)
    ids, slots = np.zeros(shape, np.int32), np.full(shape, NOWHERE, np.int32)
    weight, population, work = np.zeros(shape), np.zeros(shape), np.ones(shape)
    for i, draw in enumerate(draws):
        m = len(draw.ids)
        ids[i, :m], slots[i, :m] = draw.ids, slots_of(draw.ids)
        weight[i, :m], population[i, :m], work[i, :m] = draw.weight, p[draw.ids], draw.work
    return CohortArrays(ids, slots, weight, population, work)


def run_lanes(
    job: Job, cohort: CohortArrays, packing: Packing, rows: Tree, active: Scalar
) -> tuple[Sums, Tree, ClientReport]:
    """All clients of this device. Memories are written only if the round is still active."""
    room, nobody = cohort.ids.shape[0], job.federation.clients
    lanes, at_once = packing.first.shape[-1], packing.ends.shape[-1]

    def given(rows: Tree, clients: Array) -> Given:
        who, there = jnp.minimum(clients, room - 1), clients < room
        # An empty lane gets some client's numbers, which are not used, but nobody's examples and next to no work.
        ids, work = jnp.where(there, cohort.ids[who], nobody), jnp.where(there, cohort.work[who], 0)
        memories = jax.tree.map(lambda r: r.at[cohort.slots[who]].get(mode="clip"), rows)
        solves = None if cohort.solves is None else cohort.solves[who]
        return Given(ids, cohort.keys[who], cohort.solve_keys[who], memories, work, solves)

    one = jax.eval_shape(lambda rows: jax.tree.map(lambda x: x[0], given(rows, packing.first)), rows)
    split = job.can_split(one)

    def event(e: Scalar, carry: tuple[Any, Tree, Sums, ClientReport]) -> tuple[Any, Tree, Sums, ClientReport]:
        underway, rows, sums, report = carry
        if split:
            underway = _stepped(job, underway, packing.steps[e])
        ends, lane = packing.ends[e], packing.lane[e]
        if split:
            ending = underway if at_once == lanes else jax.tree.map(lambda u: u[lane], underway)
            replies, memories, meters = _across(job.end)(given(rows, ends), ending)
        else:
            replies, memories, meters = _across(job.whole)(given(rows, ends))
        sums, rows, report = counted(replies, memories, meters, ends, sums, rows, report)

        def begin_next(underway: Underway) -> Underway:
            new = _across(job.begin)(given(rows, packing.begins[e]))
            return new if at_once == lanes else jax.tree.map(lambda u, x: u.at[lane].set(x), underway, new)

        def nobody_next(underway: Underway) -> Underway:
            return underway._replace(k=underway.k.at[lane].set(nobody))

        if split:
            underway = jax.lax.cond(jnp.any(packing.begins[e] < room), begin_next, nobody_next, underway)
        return underway, rows, sums, report

    def by_itself(i: Scalar, carry: tuple[Tree, Sums, ClientReport]) -> tuple[Tree, Sums, ClientReport]:
        rows, sums, report = carry
        who = packing.alone[i][None]
        own = given(rows, who)
        underway = _stepped(job, _across(job.begin)(own), packing.alone_steps[i])
        replies, memories, meters = _across(job.end)(own, underway)
        sums, rows, report = counted(replies, memories, meters, who, sums, rows, report)
        return rows, sums, report

    def counted(
        replies: Tree, memories: Tree, meters: Meter, ends: Array, sums: Sums, rows: Tree, report: ClientReport
    ) -> tuple[Sums, Tree, ClientReport]:
        who = jnp.minimum(ends, room - 1)
        finite = are_finite(replies, memories)
        counts = finite & (ends < room) & (cohort.weight[who] > 0)
        sums = added(sums, replies, counts, cohort.weight[who], cohort.population[who])
        rows = committed(rows, cohort.slots[who], counts & active, memories)
        new = ClientReport(finite, meters.gradients, meters.residual, meters.unsolved)
        report = jax.tree.map(lambda a, x: a.at[ends].set(x.astype(a.dtype), mode="drop"), report, new)
        return sums, rows, report

    # Halves are quick to trace: they leave out the steps.
    reply, *_ = jax.eval_shape((lambda one: job.end(one, job.begin(one))) if split else job.whole, one)
    underway = _across(job.begin)(given(rows, packing.first)) if split else ()
    carry = underway, rows, empty_sums(reply, cohort.weight.dtype), empty_report(room)
    _, rows, sums, report = jax.lax.fori_loop(0, packing.events, event, carry)
    if split and packing.alone.shape[-1]:
        alone = jnp.sum(packing.alone < room)
        rows, sums, report = jax.lax.fori_loop(0, alone, by_itself, (rows, sums, report))
    return sums, rows, report


def _stepped(job: Job, underway: Underway, steps: Scalar) -> Underway:
    """All lanes after so many steps. A single lane is not a vector of one: that would make copies in the loop."""
    lanes = jax.tree.leaves(underway)[0].shape[0]
    if lanes > 1:
        return jax.lax.fori_loop(0, steps, lambda _, u: jax.vmap(job.step)(u), underway)
    one = jax.tree.map(lambda x: x[0], underway)
    one = jax.lax.fori_loop(0, steps, lambda _, u: job.step(u), one)
    return jax.tree.map(lambda x: x[None], one)


def _across(f: Callable[..., Any]) -> Callable[..., Any]:
    """f for each lane; a single one is not vectorised, since that would cost a little."""

    def run(*args: Any) -> Any:
        if jax.tree.leaves(args)[0].shape[0] > 1:
            return jax.vmap(f)(*args)
        return jax.tree.map(lambda x: x[None], f(*jax.tree.map(lambda x: x[0], args)))

    return run
