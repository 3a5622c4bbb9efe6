"""The one place that aggregates: who counts, the weighted sums of replies, and the server's update from them.

Clients' work ends in `Sums`, which add up over lanes, devices and processes; `received` turns them into the next server
state. Both run inside the compiled program, and equally well outside of it or in another process.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm, Cohort, Exchange
from fedloom.engines.keys import exchange_key, server_key
from fedloom.engines.trees import Array, Tree, all_finite, mean_type
from fedloom.problem import Key, Scalar

NOWHERE = np.iinfo(np.int32).max  # a row beyond every table: writes to it are dropped


class Sums(NamedTuple):
    """What the server needs of the replies that count. Those of several groups of clients add up."""

    replies: Tree  # sum of weight * reply
    total: Tree  # sum of p_k * reply
    weight: Array  # []
    share: Array  # []: sum of p_k


class ClientReport(NamedTuple):
    """What the host wants to know of each client."""

    finite: Array  # [clients] bool
    gradients: Array  # [clients] int
    residual: Array  # [clients] float; -inf: not measured
    unsolved: Array  # [clients] int


class Outcome(NamedTuple):
    """What the host wants to know of one exchange."""

    server_finite: Array  # []
    counted: Array  # []: was any reply counted?
    clients: ClientReport  # [room]; several devices: each has its own, and is right about its own clients


def empty_sums(reply: Tree, dtype: jnp.dtype) -> Sums:
    """Of no replies; `reply` has the shapes and types of one."""
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, mean_type(x.dtype)), reply)
    return Sums(zero, zero, jnp.zeros((), dtype), jnp.zeros((), dtype))


def empty_report(clients: int | tuple[int, ...]) -> ClientReport:
    zero = jnp.zeros(clients, jnp.int32)
    return ClientReport(jnp.ones(clients, bool), zero, jnp.full(clients, -jnp.inf), zero)


def are_finite(replies: Tree, memories: Tree) -> jax.Array:
    """[clients]: only a reply that is finite, with a memory that is, can count."""
    return jax.vmap(all_finite)((replies, memories))


def added(sums: Sums, replies: Tree, counts: Array, weight: Array, population: Array) -> Sums:
    """The sums with the replies [clients, ...] that count. The others may be anything, NaN included."""
    weight, population = (jnp.where(counts, x, 0) for x in (weight, population))

    def add(total: Tree, a: Array) -> Tree:
        def over_clients(sum: Array, x: Array) -> Array:
            there = counts.reshape(-1, *(1,) * (x.ndim - 1))
            return sum + jnp.tensordot(a.astype(sum.dtype), jnp.where(there, x, 0).astype(sum.dtype), 1)

        return jax.tree.map(over_clients, total, replies)

    return Sums(
        add(sums.replies, weight),
        add(sums.total, population),
        sums.weight + jnp.sum(weight),
        sums.share + jnp.sum(population),
    )


def committed(rows: Tree, slots: Array, counts: Array, memories: Tree) -> Tree:
    """The table with the new memories [clients, ...] of those who count: committed if and only if the reply counts."""
    where = jnp.where(counts, slots, NOWHERE)
    return jax.tree.map(lambda r, x: r.at[where].set(x, mode="drop"), rows, memories)


def received(
    exchange: Exchange, server: Tree, sums: Sums, key: Key, active: Scalar = True, staleness: Scalar = 0
) -> tuple[Tree, Scalar]:
    """The server after an exchange, and whether any reply counted: if none did, the server stays as it is.

    Args:
        exchange: one of the algorithm's.
        server: its state, as it is now.
        sums: of the replies that count.
        key: the exchange's.
        active: False if nobody counted in an exchange before this one in the same round; then nothing changes here.
        staleness: the weighted mean of server updates since the replies' jobs began.
    """
    counted = active & (sums.weight > 0)
    weight = jnp.where(counted, sums.weight, 1)
    mean = jax.tree.map(lambda x: x / weight.astype(x.dtype), sums.replies)
    new = exchange.receive(server, mean, Cohort(sums.share, server_key(key), sums.total, staleness))
    return jax.tree.map(lambda new, old: jnp.where(counted, new, old), new, server), counted


# The server's part of an exchange as programs of their own, where clients are in other processes.


@partial(jax.jit, static_argnames="e")
def message_of(algorithm: Algorithm, server: Tree, e: int) -> Tree:
    """What the server sends in exchange e."""
    return algorithm.exchanges[e].send(server)


@partial(jax.jit, static_argnames="e")
def updated(
    algorithm: Algorithm,
    server: Tree,
    sums: Sums,
    key: Key,
    t: Scalar,
    active: Scalar,
    e: int,
    staleness: Scalar = 0,
) -> tuple[Tree, Scalar, Scalar]:
    """The server after exchange e of round t, whether anybody counted, and whether all is finite."""
    new, counted = received(algorithm.exchanges[e], server, sums, exchange_key(key, t, e), active, staleness)
    return new, counted, all_finite(new)
