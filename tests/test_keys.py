"""Keys: those of many rounds at once are those of one round after another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedloom.engines import keys


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("e", [0, 2])
def test_keys_of_rounds_are_the_keys_one_by_one(e, lasting):
    key, t, ids = jax.random.key(3), 5, np.array([[0, 7, 2**31 - 1], [4, 4, 1]], np.int32)
    made = keys.keys_of_rounds(key, t, e, ids, lasting)
    assert (made.solves is None) == (not lasting)

    def same(a, b):
        return bool(jnp.all(jax.random.key_data(a) == jax.random.key_data(b)))

    for i in range(2):
        of_exchange = keys.exchange_key(key, t + i, e)
        assert same(made.key[i], of_exchange)
        for j in range(3):
            k = int(ids[i, j])
            client = keys.client_key(of_exchange, k)
            assert same(made.keys[i, j], client)
            solves = keys.lasting_key(key, e, k) if lasting else client
            assert same(made.solve_keys[i, j], keys.solve_key(solves))
            if lasting:
                assert same(made.solves[i, j], solves)
