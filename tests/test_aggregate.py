"""The seam between clients' work and the server: sums of shards add up, and the server's update needs nothing else."""

import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.engines.aggregate import Sums, added, are_finite, committed, empty_sums, received
from fedloom.engines.checks import checked
from fedloom.engines.keys import client_key, exchange_key, solve_key
from fedloom.engines.split_solve import Given, Job
from tests.federations import FEDERATION, W, last

GD = fl.GD(0.1, steps=3)
ALGORITHMS = [fl.FedAvg(0.7), fl.Scaffold(), fl.FedDyn(alpha=0.3), fl.FedDR(0.5), fl.FedDANE(mu=0.3), fl.FedAdam(0.1)]


def shard(run, t, e, server, memories, ids, weights):
    """What some clients of an exchange come to, as another machine would compute it: their sums and new memories."""
    key = exchange_key(run.key, t, e)
    exchange = run.algorithm.exchanges[e]
    replies, new = [], []
    for k in ids.tolist():
        job = Job(run.algorithm, run.solver, run.federation, exchange.send(server), e, key, t)
        own = client_key(key, k)
        reply, memory, _ = job.whole(Given(k, own, solve_key(own), memories[k], 1.0))
        replies.append(reply)
        new.append(memory)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *replies)
    kept = jax.tree.map(lambda *x: jnp.stack(x), *new)
    counts = are_finite(stacked, kept) & (jnp.asarray(weights) > 0)
    none = empty_sums(replies[0], jnp.result_type(float))
    sums = added(none, stacked, counts, jnp.asarray(weights), jnp.asarray(run.p[ids]))
    return sums, dict(zip(ids.tolist(), new, strict=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_a_run_by_shards_is_the_run(algorithm):
    """Two shards of each cohort, three rounds: sum_k over shards, then `received`, is what the compiled engine does."""
    rule = cohorts.by_weight(5)  # plain means, though clients have unequal p_k
    run = checked(algorithm, FEDERATION, GD, W, 3, rule, 2)
    server, memories = run.start.server, dict.fromkeys(range(7), algorithm.init_client(W))
    for t in range(3):
        active = True
        for e, draw in enumerate(run.cohorts(t)):
            halves = [slice(None, 2), slice(2, None)]
            parts = [
                shard(run, t, e, server, memories, draw.ids[h], draw.weight[h]) for h in halves if len(draw.ids[h])
            ]
            sums = jax.tree.map(lambda *x: sum(x), *(sums for sums, _ in parts))
            key = exchange_key(run.key, t, e)
            server, active = received(algorithm.exchanges[e], server, sums, key, active)
            for _, new in parts:
                memories |= new
    end = last(fl.simulate, algorithm, FEDERATION, GD, W, 3, cohort=rule, seed=2)
    met = {k: memories[k] for k in end.clients}
    for mine, theirs in zip(
        jax.tree.leaves((server, met)), jax.tree.leaves((end.server, dict(end.clients))), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


IN_ANOTHER_PROCESS = """
import pickle, sys
import jax
jax.config.update("jax_enable_x64", True)
from fedloom.engines.aggregate import Sums, received
algorithm, server, sums, data = pickle.load(sys.stdin.buffer)
server, counted = received(algorithm.exchanges[0], server, Sums(*sums), jax.random.wrap_key_data(data))
sys.stdout.buffer.write(pickle.dumps((jax.device_get(server), bool(counted))))
"""


def test_the_servers_update_runs_in_another_process():
    algorithm = fl.Scaffold(lr=0.5)
    run = checked(algorithm, FEDERATION, GD, W, 1)
    memories = dict.fromkeys(range(7), algorithm.init_client(W))
    draw = run.cohorts(0)[0]
    sums, _ = shard(run, 0, 0, run.start.server, memories, draw.ids, draw.weight)
    key = jax.random.key_data(exchange_key(run.key, 0, 0))
    sent = pickle.dumps(jax.device_get((algorithm, run.start.server, tuple(sums), key)))
    done = subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS], input=sent, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    server, counted = pickle.loads(done.stdout)
    assert counted
    end = last(fl.simulate, algorithm, FEDERATION, GD, W, 1)
    np.testing.assert_allclose(server.w, end.server.w, rtol=0, atol=1e-12)
    np.testing.assert_allclose(server.c, end.server.c, rtol=0, atol=1e-12)


def test_who_does_not_count_is_nowhere():
    """A reply that is NaN, and one that does not count, leave sums and memories as they are."""
    replies = jnp.array([[1.0, 2.0], [jnp.nan, 5.0], [7.0, 7.0]])
    counts = jnp.array([True, False, False])
    sums = added(
        empty_sums(replies[0], replies.dtype), replies, counts, jnp.array([0.25, 9.0, 9.0]), jnp.array([0.5, 0.2, 0.1])
    )
    expected = Sums(jnp.array([0.25, 0.5]), jnp.array([0.5, 1.0]), jnp.array(0.25), jnp.array(0.5))
    for mine, right in zip(sums, expected, strict=True):
        np.testing.assert_array_equal(mine, right)
    rows = committed(jnp.zeros((4, 2)), jnp.array([3, 1, 0]), counts, replies)
    np.testing.assert_array_equal(rows, [[0, 0], [0, 0], [0, 0], [1, 2]])


def test_integers_are_averaged_as_floats():
    replies = jnp.array([3, 4, 8])
    sums = added(empty_sums(replies[0], jnp.result_type(float)), replies, jnp.ones(3, bool), jnp.ones(3), jnp.ones(3))
    assert sums.replies.dtype == jnp.result_type(float)
    assert float(sums.replies) == 15


@pytest.mark.parametrize(("active", "weight"), [(False, 1.0), (True, 0.0)])
def test_a_server_that_hears_nothing_stays_as_it_is(active, weight):
    algorithm = fl.FedAvg()
    sums = Sums(jnp.ones(4), jnp.ones(4), jnp.array(weight), jnp.array(weight))
    server, counted = received(algorithm.exchanges[0], algorithm.init(W), sums, jax.random.key(0), active)
    assert not counted
    np.testing.assert_array_equal(server.w, W)
