"""The compiled program: rounds, exchanges and clients. What the host does around it is in simulate.py."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm, Cohort, Exchange
from fedloom.client import Federation, LocalClient, Meter, Solver
from fedloom.engines.run import Run, all_finite, client_key, coin_key, exchange_key, nbytes, server_key, shapes
from fedloom.hyperparameters import for_client


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
    somebody: Any  # one value: was any reply counted?
    finite: Any
    gradients: Any
    residual: Any
    unsolved: Any


@partial(jax.jit, donate_argnames="rows")
def run_rounds(
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
        going = jnp.array(True)
        for e, trip in enumerate(jax.tree.map(lambda x: x[i], trips)):
            server, rows, outcome = _exchange(
                algorithm, solver, federation, server, rows, trip, e, exchange_key(key, t + i, e), t + i, going
            )
            going = outcome.somebody
            written = jax.tree.map(lambda a, x: a.at[i].set(x), outcomes[e], outcome)
            outcomes = (*outcomes[:e], written, *outcomes[e + 1 :])
        return server, rows, outcomes

    outcomes = tuple(_blank_outcome(trip) for trip in trips)
    return jax.lax.fori_loop(0, n, one_round, (server, rows, outcomes))


def _blank_outcome(trip: Trip) -> Outcome:
    shape = trip.ids.shape
    return Outcome(
        server_finite=jnp.ones(shape, bool),
        somebody=jnp.ones(shape, bool),
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
    going: Any,
) -> tuple[Any, Any, Outcome]:
    """One trip. Nothing changes unless somebody's reply is counted, now and in the exchanges before (`going`)."""
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

    somebody = going & (jnp.sum(weight) > 0)
    mean = weighted_sum(weight / jnp.where(somebody, jnp.sum(weight), 1))
    cohort = Cohort(jnp.sum(population), server_key(key), weighted_sum(population))
    received = exchange.receive(server, mean, cohort)
    server = jax.tree.map(lambda new, old: jnp.where(somebody, new, old), received, server)
    # Committed if and only if the reply is counted: other lanes point beyond the table, where writes are dropped.
    slots = jnp.where(counted & somebody, trip.slots, np.iinfo(np.int32).max)
    rows = jax.tree.map(lambda r, x: r.at[slots].set(x, mode="drop"), rows, memories)
    return (
        server,
        rows,
        Outcome(all_finite(server), somebody, finite, meters.gradients, meters.residual, meters.unsolved),
    )


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
            reply, memory, _ = _local(run.algorithm, run.solver, federation, message, 0, memory, work, e, key, t)
            server = exchange.receive(server, reply, Cohort(jnp.ones((), run.w.dtype), server_key(key), reply))
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
