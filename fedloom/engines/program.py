"""The compiled program: rounds and exchanges. What the host does around it is in simulate.py."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedloom.algorithm import Algorithm, Cohort, Exchange
from fedloom.client import Federation, Solver
from fedloom.engines.halves import Given, Job
from fedloom.engines.lanes import Trip, blank, run_lanes, summed_type
from fedloom.engines.run import Run, all_finite, client_key, exchange_key, nbytes, server_key, shapes
from fedloom.engines.schedule import Schedule

AXIS = "devices"


class Outcome(NamedTuple):
    """What the host wants to know about one exchange."""

    server_finite: Any
    somebody: Any  # was any reply counted?
    clients: Any  # a Seen: as the client's own device saw it


@partial(jax.jit, donate_argnames="rows", static_argnames="devices")
def run_rounds(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Any,
    rows: Any,
    trips: tuple[Trip, ...],
    schedules: tuple[Schedule, ...],
    key: Any,
    t: Any,
    n: Any,
    devices: int = 1,
) -> tuple[Any, Any, tuple[Outcome, ...]]:
    """n rounds from round t. n is not compiled in, so that chunks of any length run the same program.

    With several devices each runs its own lanes; all have all data and memories, and add up replies after each
    exchange. What an outcome says of clients then has the devices as its first axis.
    """
    if devices == 1:
        return _rounds(algorithm, solver, federation, server, rows, trips, schedules, key, t, n, axis=None)

    def on_each(*args: Any) -> Any:
        server, rows, outcomes = partial(_rounds, axis=AXIS)(*args)
        stacked = tuple(o._replace(clients=jax.tree.map(lambda x: x[None], o.clients)) for o in outcomes)
        return server, rows, stacked

    here, own = PartitionSpec(), PartitionSpec(None, AXIS)
    of_schedule = Schedule(here, *(own for _ in Schedule._fields[1:]))
    return jax.shard_map(
        on_each,
        mesh=mesh(devices),
        in_specs=(here, here, here, here, here, here, (of_schedule,) * len(trips), here, here, here),
        out_specs=(here, here, (Outcome(here, here, PartitionSpec(AXIS)),) * len(trips)),
        check_vma=False,  # it cannot know that all devices come to the same server state
    )(algorithm, solver, federation, server, rows, trips, schedules, key, t, n)


@cache
def mesh(devices: int) -> Mesh:
    """The first `devices` local devices in a row."""
    return Mesh(np.array(jax.local_devices()[:devices]), (AXIS,))


def on_devices(tree: Any, devices: int) -> Any:
    """All of it on each of the devices, without copying what is there already."""
    return tree if devices == 1 else jax.device_put(tree, NamedSharding(mesh(devices), PartitionSpec()))


def _rounds(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Any,
    rows: Any,
    trips: tuple[Trip, ...],
    schedules: tuple[Schedule, ...],
    key: Any,
    t: Any,
    n: Any,
    axis: str | None,
) -> tuple[Any, Any, tuple[Outcome, ...]]:
    """On one device: that is the only one, or one of several along `axis`."""

    # All keys at once: JAX's generator is a loop, which for a few numbers costs as much as for thousands.
    rounds = t + jnp.arange(trips[0].ids.shape[0])
    keys = [jax.vmap(lambda t, e=e: exchange_key(key, t, e))(rounds) for e in range(len(trips))]
    trips = tuple(_with_keys(trip, k) for trip, k in zip(trips, keys, strict=True))

    def one_round(i: Any, carry: Any) -> Any:
        server, rows, outcomes = carry
        going = jnp.array(True)
        for e in range(len(trips)):
            trip = jax.tree.map(lambda x: x[i], trips[e])
            schedule = Schedule(schedules[e].owner[i], *(x[i, 0] for x in schedules[e][1:]))
            job = Job(algorithm, solver, federation, None, e, keys[e][i], t + i)
            server, rows, outcome = _exchange(job, server, rows, trip, schedule, going, axis)
            going = outcome.somebody
            written = jax.tree.map(lambda a, x: a.at[i].set(x), outcomes[e], outcome)
            outcomes = (*outcomes[:e], written, *outcomes[e + 1 :])
        return server, rows, outcomes

    def blank_outcome(trip: Trip) -> Outcome:
        chunk, room = trip.ids.shape
        outcome = Outcome(jnp.array(True), jnp.array(True), blank(room))
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (chunk, *x.shape)), outcome)

    outcomes = tuple(blank_outcome(trip) for trip in trips)
    return jax.lax.fori_loop(0, n, one_round, (server, rows, outcomes))


def _with_keys(trip: Trip, key: Any) -> Trip:
    keys = jax.vmap(jax.vmap(client_key, in_axes=(None, 0)))(key, trip.ids)
    return trip._replace(keys=keys, solve_keys=jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, 0)))(keys))


def _exchange(
    job: Job, server: Any, rows: Any, trip: Trip, schedule: Schedule, going: Any, axis: str | None
) -> tuple[Any, Any, Outcome]:
    """One trip. Nothing changes unless somebody's reply is counted, now and in the exchanges before (`going`)."""
    exchange = job.algorithm.exchanges[job.e]
    sums, rows, seen = run_lanes(job._replace(message=exchange.send(server)), trip, schedule, rows, going)
    if axis:
        sums = jax.lax.psum(sums, axis)
        rows = _shared(rows, trip, schedule.owner == jax.lax.axis_index(axis), axis)
    somebody = going & (sums.weight > 0)
    weight = jnp.where(somebody, sums.weight, 1)
    mean = jax.tree.map(lambda x: x / weight.astype(x.dtype), sums.replies)
    received = exchange.receive(server, mean, Cohort(sums.share, server_key(job.key), sums.total))
    server = jax.tree.map(lambda new, old: jnp.where(somebody, new, old), received, server)
    return server, rows, Outcome(all_finite(server), somebody, seen)


def _shared(rows: Any, trip: Trip, mine: Any, axis: str) -> Any:
    """The table after every device has told the others the new memories of its own clients."""

    def share(r: Any) -> Any:
        x = r.at[trip.slots].get(mode="clip")
        number = x.astype(jnp.int32) if x.dtype == bool else x
        own = jnp.where(mine.reshape(-1, *(1,) * (x.ndim - 1)), number, 0)
        return r.at[trip.slots].set(jax.lax.psum(own, axis).astype(x.dtype), mode="drop")

    return jax.tree.map(share, rows)


def has_halves(run: Run, e: int) -> bool:
    """Can the clients of an exchange hand over their lanes at any step? See halves.py."""
    found = []

    def look(server: Any, memory: Any, federation: Federation) -> None:
        key = exchange_key(run.key, 0, e)
        job = Job(run.algorithm, run.solver, federation, run.algorithm.exchanges[e].send(server), e, key, jnp.array(0))
        found.append(job.has_halves(Given(jnp.array(0), client_key(key, 0), key, memory, jnp.ones(()))))

    memory = jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))
    jax.eval_shape(look, run.start.server, memory, run.federation)
    return found[0]


def message_sizes(run: Run) -> list[tuple[int, int]]:
    """Bytes down and up for one client in each exchange. Traces everything once, so that errors of shape show here."""
    server, sizes = run.start.server, []
    memory = jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))
    for e, exchange in enumerate(run.algorithm.exchanges):

        def one_client(
            server: Any, memory: Any, federation: Federation, e: int = e, exchange: Exchange = exchange
        ) -> Any:
            key = exchange_key(run.key, 0, e)
            t, work = jnp.zeros((), jnp.int32), jnp.ones(())
            message = exchange.send(server)
            given = Given(0, client_key(key, 0), key, memory, work)
            reply, memory, _ = Job(run.algorithm, run.solver, federation, message, e, key, t).whole(given)
            mean = jax.tree.map(lambda x: x.astype(summed_type(x.dtype)), reply)
            server = exchange.receive(server, mean, Cohort(jnp.ones((), run.w.dtype), server_key(key), mean))
            return message, reply, server, memory

        message, reply, *after = jax.eval_shape(one_client, server, memory, run.federation)
        for what, old, new in zip(("server's state", "client's memory"), (server, memory), after, strict=True):
            if shapes(old) != shapes(new):
                raise TypeError(
                    f"Exchange {exchange.name!r} of {run.algorithm!r} turns the {what} from {_types(old)} into "
                    f"{_types(new)}. Are w, the data and the hyperparameters of one float type?"
                )
        sizes.append((nbytes(message), nbytes(reply)))
    return sizes


def _types(tree: Any) -> str:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(tree))
