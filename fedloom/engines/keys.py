"""Randomness is a function of (seed, round, exchange, client), never of position, process or order."""

import jax

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
