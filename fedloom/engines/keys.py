"""Randomness is a function of (seed, round, exchange, client), never of position, process or order."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedloom.problem import Key, Scalar

NO_ROUND = 2**32 - 1  # in the place of a round's number


def exchange_key(key: Key, t: Scalar, e: int) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, t), e)


def client_key(key: Key, k: Scalar) -> Key:
    """The randomness of client k in the exchange with this key."""
    return jax.random.fold_in(jax.random.fold_in(key, 0), k)


def coin_key(key: Key) -> Key:
    """The randomness that the whole cohort of the exchange shares."""
    return jax.random.fold_in(key, 1)


def server_key(key: Key) -> Key:
    return jax.random.fold_in(key, 2)


def lasting_key(key: Key, e: int, k: Scalar) -> Key:
    """Randomness of client k that is the same in every round."""
    return client_key(exchange_key(key, NO_ROUND, e), k)


def solve_key(client: Key) -> Key:
    """The randomness of a client's first solve."""
    return jax.random.fold_in(client, 0)


class Keys(NamedTuple):
    """Of one exchange in several rounds."""

    key: Key  # [rounds]: the exchange's
    keys: Key  # [rounds, room]: the clients'
    solve_keys: Key  # [rounds, room]: of each client's first solve
    solves: Key | None  # [rounds, room]: of all solves of a client, if they are lasting


@partial(jax.jit, static_argnames="lasting")
def keys_of_rounds(key: Key, t: Scalar, e: Scalar, ids: jax.Array, lasting: bool) -> Keys:
    """All keys of the rounds from t, whose clients are ids [rounds, room]: those of the functions above.

    JAX's generator takes long to compile: so it is compiled once, in a loop over what is folded in one after another.
    """

    def folded(rounds: jax.Array) -> tuple[Key, Key, Key]:
        zero = jnp.zeros(ids.shape, jnp.uint32)
        parts = jnp.stack(
            [zero + rounds.astype(jnp.uint32), zero + jnp.asarray(e, jnp.uint32), zero, ids.astype(jnp.uint32), zero]
        )

        def fold(keys: Key, part: jax.Array) -> tuple[Key, Key]:
            keys = jax.vmap(jax.vmap(jax.random.fold_in))(keys, part)
            return keys, keys

        _, after = jax.lax.scan(fold, jnp.broadcast_to(key, ids.shape), parts)
        return after[1][:, 0], after[3], after[4]

    exchange, clients, first = folded(t + jnp.arange(ids.shape[0])[:, None])
    if not lasting:
        return Keys(exchange, clients, first, None)
    _, solves, first = folded(jnp.full((ids.shape[0], 1), NO_ROUND, jnp.uint32))
    return Keys(exchange, clients, first, solves)
