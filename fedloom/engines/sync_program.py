"""The compiled program of synchronous rounds. What the host does around it is in synchronous.py."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.engines.aggregate import Outcome, empty_report, received
from fedloom.engines.keys import keys_of_rounds
from fedloom.engines.lanes import CohortArrays, run_lanes
from fedloom.engines.packing import Packing
from fedloom.engines.processes import in_all_processes, several
from fedloom.engines.split_solve import Job
from fedloom.engines.trees import Array, Tree, all_finite
from fedloom.problem import Key, Scalar

AXIS = "devices"


@partial(jax.jit, donate_argnames="rows", static_argnames="devices")
def run_rounds(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Tree,
    rows: Tree,
    cohorts: tuple[CohortArrays, ...],
    packings: tuple[Packing, ...],
    t: Scalar,
    n: Scalar,
    devices: int = 1,
) -> tuple[Tree, Tree, tuple[Outcome, ...]]:
    """n rounds from round t, of cohorts `with_keys`. n is not compiled in: chunks of any length run the same program.

    With several devices each runs its own lanes; all have all data and memories, and add up replies after each
    exchange. What an outcome says of clients then has the devices as its first axis; if they are of several processes,
    all get all of it.
    """
    if devices == 1:
        return _rounds(algorithm, solver, federation, server, rows, cohorts, packings, t, n, axis=None)

    def on_each(*args: Any) -> Any:
        server, rows, outcomes = partial(_rounds, axis=AXIS)(*args)
        stacked = tuple(o._replace(clients=jax.tree.map(stack, o.clients)) for o in outcomes)
        return server, rows, stacked

    def stack(x: jax.Array) -> jax.Array:
        return jax.lax.all_gather(x, AXIS) if several() else x[None]

    here, own = PartitionSpec(), PartitionSpec(None, AXIS)
    of_packing: Any = Packing(here, *(own for _ in Packing._fields[1:]))  # type: ignore[arg-type]
    outcome: Any = Outcome(here, here, here if several() else PartitionSpec(AXIS))  # type: ignore[arg-type]
    return jax.shard_map(
        on_each,
        mesh=mesh(devices),
        in_specs=(here, here, here, here, here, here, (of_packing,) * len(cohorts), here, here),
        out_specs=(here, here, (outcome,) * len(cohorts)),
        check_vma=False,  # it cannot know that all devices come to the same server state
    )(algorithm, solver, federation, server, rows, cohorts, packings, t, n)


@cache
def mesh(devices: int) -> Mesh:
    """So many devices in a row: the first ones, of all processes."""
    return Mesh(np.array(in_all_processes(devices)), (AXIS,))


def on_devices(tree: Tree, devices: int) -> Tree:
    """A copy of the tree on every device; arrays that are there already are not copied."""
    if devices == 1:
        return tree
    everywhere = NamedSharding(mesh(devices), PartitionSpec())
    if not several():
        return jax.device_put(tree, everywhere)

    def shared(x: Any) -> Any:  # `device_put` would send the array to all processes, to see whether theirs are equal
        if isinstance(x, jax.Array) and x.sharding == everywhere:
            return x
        copies = [jax.device_put(x, device) for device in everywhere.addressable_devices]
        return jax.make_array_from_single_device_arrays(jnp.shape(x), everywhere, copies)

    return jax.tree.map(shared, tree)


def _rounds(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Tree,
    rows: Tree,
    cohorts: tuple[CohortArrays, ...],
    packings: tuple[Packing, ...],
    t: Scalar,
    n: Scalar,
    axis: str | None,
) -> tuple[Tree, Tree, tuple[Outcome, ...]]:
    """On one device: the only one, or one of several along `axis`."""

    def one_round(i: Scalar, carry: tuple[Tree, Tree, tuple[Outcome, ...]]) -> tuple[Tree, Tree, tuple[Outcome, ...]]:
        server, rows, outcomes = carry
        active: Scalar = jnp.array(True)
        for e in range(len(cohorts)):
            cohort = jax.tree.map(lambda x: x[i], cohorts[e])
            packing = Packing(packings[e].owner[i], *(x[i, 0] for x in packings[e][1:]))
            job = Job(algorithm, solver, federation, None, e, cohort.key, t + i)
            server, rows, outcome = _exchange(job, server, rows, cohort, packing, active, axis)
            active = outcome.counted
            written = jax.tree.map(lambda a, x: a.at[i].set(x), outcomes[e], outcome)
            outcomes = (*outcomes[:e], written, *outcomes[e + 1 :])
        return server, rows, outcomes

    def blank_outcome(cohort: CohortArrays) -> Outcome:
        chunk, room = cohort.ids.shape
        outcome = Outcome(jnp.array(True), jnp.array(True), empty_report(room))
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (chunk, *x.shape)), outcome)

    outcomes = tuple(blank_outcome(cohort) for cohort in cohorts)
    return jax.lax.fori_loop(0, n, one_round, (server, rows, outcomes))


def with_keys(cohorts: tuple[CohortArrays, ...], key: Key, t: int, solver: Solver) -> tuple[CohortArrays, ...]:
    """The cohorts of the rounds from t with all their keys.

    All at once: JAX's generator is a loop, which for a few numbers costs as much as for thousands. And in a program of
    their own, which all methods share: it would be a large part of the compilation of each.
    """
    return tuple(
        cohort._replace(**keys_of_rounds(key, t, e, cohort.ids, solver.lasting)._asdict())
        for e, cohort in enumerate(cohorts)
    )


def _exchange(
    job: Job, server: Tree, rows: Tree, cohort: CohortArrays, packing: Packing, active: Scalar, axis: str | None
) -> tuple[Tree, Tree, Outcome]:
    """One trip. Nothing changes unless a reply counts, in this exchange and in those before it in the round."""
    exchange = job.algorithm.exchanges[job.e]
    sums, rows, report = run_lanes(job._replace(message=exchange.send(server)), cohort, packing, rows, active)
    if axis:
        sums = jax.lax.psum(sums, axis)
        rows = _shared(rows, cohort, packing.owner == jax.lax.axis_index(axis), axis)
    server, counted = received(exchange, server, sums, job.key, active)
    return server, rows, Outcome(all_finite(server), counted, report)


def _shared(rows: Tree, cohort: CohortArrays, mine: Array, axis: str) -> Tree:
    """The table after every device has told the others the new memories of its own clients."""

    def share(r: jax.Array) -> jax.Array:
        x = r.at[cohort.slots].get(mode="clip")
        number = x.astype(jnp.int32) if x.dtype == bool else x
        own = jnp.where(mine.reshape(-1, *(1,) * (x.ndim - 1)), number, 0)
        return r.at[cohort.slots].set(jax.lax.psum(own, axis).astype(x.dtype), mode="drop")

    return jax.tree.map(share, rows)
