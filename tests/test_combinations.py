"""Synchronous rounds in combination, against NumPy and numbers worked out by hand.

Two exchanges and replies that do not count, keys and coins, hyperparameters of each client, weights and plans: each has
its tests alone; here they meet.
"""

import dataclasses
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.engines.grid import simulate_grid
from tests import transcriptions as numpy_version
from tests.federations import bits, last, least_squares
from tests.small import FEDERATION, TWIN, VECTOR, W

ENGINES = [fl.simulate, fl.reference]
engines = pytest.mark.parametrize("engine", ENGINES, ids=["simulate", "reference"])


def drawn(rule, seed, t, e):
    """The clients of exchange e in round t."""
    return rule.over(TWIN.p)(np.random.default_rng([seed, t, e]), t).ids.tolist()


class Server(NamedTuple):
    w: Any
    g: Any


class Memory(NamedTuple):
    g: Any
    trained: Any


@fl.frozen
class TwoTrips(fl.Algorithm):
    """SAGA's estimate of the gradient, and a step along it by other clients.

    exchange 1   client k:  send grad F_k(w) - g_k;  g_k <- grad F_k(w)      server: g <- g + sum_k p_k reply_k
    exchange 2   client k:  send grad F_k(w) - g_k + g, and count it          server: w <- w - lr * mean

    In round 2 nobody's first reply is a number, in round 4 nobody's second one.
    """

    lr: float = 0.5

    def init(self, w):
        return Server(w, jnp.zeros_like(w))

    def init_client(self, w):
        return Memory(jnp.zeros_like(w), jnp.zeros(()))

    @property
    def exchanges(self):
        return (
            fl.Exchange("estimate", lambda s: s.w, self.estimate, lambda s, _, c: Server(s.w, s.g + c.total)),
            fl.Exchange("step", lambda s: s, self.step, lambda s, mean, _: Server(s.w - self.lr * mean, s.g)),
        )

    def estimate(self, w, k, client):
        g = client.grad(w)
        return jnp.where(client.t == 2, jnp.nan, g - k.g), Memory(g, k.trained)

    def step(self, s, k, client):
        return jnp.where(client.t == 4, jnp.nan, client.grad(s.w) - k.g + s.g), Memory(k.g, k.trained + 1)


def two_trips(rule, seed, rounds, lr=0.5):
    """TwoTrips in NumPy: (w, g, g_k, trained_k, who has a memory) after each round."""
    w, g, own, trained, met = W, 0 * W, np.zeros((5, 3)), np.zeros(5), set()
    for t in range(rounds):
        if t != 2:
            first, second = drawn(rule, seed, t, 0), drawn(rule, seed, t, 1)
            gradients = {k: numpy_version.grad(TWIN, k, w) for k in range(5)}
            own = own.copy()
            for k in first:
                g = g + TWIN.p[k] * (gradients[k] - own[k])
                own[k] = gradients[k]
            met = met | set(first)
            if t != 4:
                w = w - lr * numpy_version.cohort_mean(TWIN, second, {k: gradients[k] - own[k] + g for k in second})
                trained = trained + np.isin(range(5), second)
                met = met | set(second)
        yield w, g, own, trained, met


@pytest.mark.parametrize("how", ["chunks of one", "chunks of four", "two devices", "reference"])
def test_after_an_exchange_in_which_nobody_counts_the_round_changes_nothing(how):
    """If no reply of exchange e counts, neither it nor any later exchange of its round changes server or memories.

    In round 2 the server has an estimate g and clients have memories g_k of earlier rounds, with which the second
    exchange could well go on: it must not. In round 4 the first exchange stays, since only the second one fails.
    """
    rule, seed, rounds = cohorts.uniform(2), 18, 6
    args = TwoTrips(), FEDERATION, fl.GD(), W, rounds
    more: dict[str, Any] = {"cohort": rule, "seed": seed, "on_nonfinite": "drop"}
    if how == "chunks of four":
        more |= {"chunk": 4}
    elif how == "two devices":
        plan = next(fl.simulate(*args, **more)).origin.plan
        more |= {"chunk": 4, "plan": dataclasses.replace(plan, devices=2)}
    expected = list(two_trips(rule, seed, rounds))
    assert set(drawn(rule, seed, 2, 1)) - expected[1][4]  # in round 2 somebody would be met for the first time
    seen = 0
    for record in (fl.reference if how == "reference" else fl.simulate)(*args, **more):
        w, g, own, trained, met = expected[record.round - 1]
        np.testing.assert_allclose(record.server.w, w, rtol=0, atol=1e-13)
        np.testing.assert_allclose(record.server.g, g, rtol=0, atol=1e-13)
        assert set(record.clients) == met
        for k in met:
            np.testing.assert_allclose(record.clients[k].g, own[k], rtol=0, atol=1e-13)
            assert record.clients[k].trained == trained[k]
        failed = [
            (t + 1, k, name) for t, e, name in ((2, 0, "estimate"), (4, 1, "step")) for k in drawn(rule, seed, t, e)
        ]
        assert list(record.dropped) == [f for f in failed if seen < f[0] <= record.round]
        c = record.counters
        assert (c.exchanges, c.messages, c.bytes_up) == (2 * record.round, 8 * record.round, 4 * VECTOR * record.round)
        seen = record.round
    assert seen == rounds


class Drawn(NamedTuple):
    """The keys that a client was given, as numbers."""

    key: Any
    coin: Any


class Keys(NamedTuple):
    w: Any
    server: Any


@fl.frozen
class Gambler(fl.Round):
    """Clients remember their last keys, and so does the server."""

    tolerates_staleness = True

    def init(self, w):
        return Keys(w, jax.random.key_data(jax.random.key(0)))

    def init_client(self, w):
        return Drawn(*(jax.random.key_data(jax.random.key(0)) for _ in range(2)))

    def send(self, s):
        return s.w

    def local(self, w, _, client):
        return 0 * w, Drawn(jax.random.key_data(client.key), jax.random.key_data(client.coin))

    def receive(self, s, mean, cohort):
        return Keys(s.w, jax.random.key_data(cohort.key))


@fl.frozen
class TwiceGambler(Gambler):
    """Two exchanges; the memory is of the second one."""

    @property
    def exchanges(self):
        (one,) = super().exchanges
        return one, one._replace(name="again")


def as_numbers(key):
    return tuple(np.asarray(key).ravel().tolist())


@pytest.mark.parametrize("engine", [*ENGINES, fl.events], ids=["simulate", "reference", "events"])
def test_coins_and_keys_are_independent(engine):
    """Coins, keys of clients, of their solves and of the server: each its own stream.

    A coin is one for all clients of an exchange. Apart from that, no key comes twice: not that of a client and the
    coin, not those of two rounds, of two exchanges, or of a client's solves. (Two equal keys give equal numbers.)
    """
    keys, coins, servers = [], [], []
    for algorithm in (Gambler(), TwiceGambler()) if engine is not fl.events else (Gambler(),):
        more = {"buffer": 5} if engine is fl.events else {}
        for record in engine(algorithm, FEDERATION, fl.GD(), W, 4, seed=3, **more):
            memories = [record.clients[k] for k in range(5)]
            keys += [as_numbers(m.key) for m in memories]
            (coin,) = {as_numbers(m.coin) for m in memories}  # one for all
            coins.append(coin)
            servers.append(as_numbers(record.server.server))
    solves = [
        as_numbers(jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(jnp.array(key, jnp.uint32)), s)))
        for key in keys
        for s in range(3)
    ]
    everything = keys + coins + servers + solves
    assert len(set(everything)) == len(everything)
    if engine is not fl.reference:  # of a chunk, every round has its own
        together = last(engine, algorithm, FEDERATION, fl.GD(), W, 4, seed=3, chunk=4, **more)
        assert as_numbers(together.server.server) == servers[-1]


PER_CLIENT = [
    (algorithm, field.name)
    for algorithm in fl.ALGORITHMS.values()
    for field in dataclasses.fields(algorithm)
    if field.metadata.get("per_client")
]


@pytest.mark.parametrize("engine", [*ENGINES, fl.events], ids=["simulate", "reference", "events"])
@pytest.mark.parametrize(("algorithm", "field"), PER_CLIENT, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_values_for_each_client_come_in_any_array(algorithm, field, engine):
    """NumPy's and JAX's arrays give the same bits; a list is refused. Unequal sizes are packed one by one."""
    if engine is fl.events and not algorithm.tolerates_staleness:
        pytest.skip("it cannot run asynchronously")
    values = [0.1, 0.7, 0.3, 1.1, 0.5]
    ragged, batches = least_squares(sizes=(3, 2, 1, 4, 2)), fl.SGD(0.1, batch_size=1)
    where = (FEDERATION, fl.GD(0.1, 2), W) if engine is fl.reference else (ragged, batches, np.ones(4))
    of_jax, of_numpy = (last(engine, algorithm(**{field: a(values)}), *where, 2) for a in (jnp.array, np.array))
    assert bits(of_jax.server) == bits(of_numpy.server)
    with pytest.raises(ValueError, match=f"{algorithm.__name__}: {field} must be"):
        algorithm(**{field: values})


def test_there_are_values_for_each_client():
    assert {(fl.FedProx, "mu"), (fl.FedDANE, "mu")} <= set(PER_CLIENT)


@engines
def test_each_client_has_its_own_mu(engine):
    """FedProx with mu_k: v_k = w - 0.2 grad F_k(w) after one step, whatever mu_k; after two, mu_k pulls back to w."""
    mu = np.array([0.1, 1.0, 0.3, 2.0, 0.0])
    rule, w = cohorts.uniform(3), W
    for t in range(3):
        ids = drawn(rule, 5, t, 0)
        models = {k: numpy_version.gd(TWIN, k, w, 0.2, 2, lambda v, k=k, w=w: mu[k] * (v - w)) for k in ids}
        w = numpy_version.cohort_mean(TWIN, ids, models)
    record = last(engine, fl.FedProx(mu), FEDERATION, fl.GD(0.2, 2), W, 3, cohort=rule, seed=5)
    np.testing.assert_allclose(record.w, w, rtol=0, atol=1e-13)


@fl.frozen
class Poisoned(fl.FedDyn):
    """Client 4 returns NaN from round 1 on."""

    def local(self, theta, g, client):
        reply, memory = super().local(theta, g, client)
        bad = (client.t >= 1) & jnp.all(client.objective.center == FEDERATION.centers[4])
        return jnp.where(bad, jnp.nan, reply), memory


@engines
def test_the_share_of_a_cohort_is_that_of_the_replies_that_count(engine):
    """FedDyn's h <- h - alpha (sum_{k in S} p_k theta_k - share theta), where S and the share leave out client 4."""
    rule = cohorts.scheduled([[1, 4], [0, 3, 4], [2, 4], [1, 2, 3]])
    expected = numpy_version.feddyn(TWIN, W, [[1, 4], [0, 3], [2], [1, 2, 3]], alpha=0.7)
    records = engine(Poisoned(0.7), FEDERATION, fl.Exact(), W, 4, cohort=rule, on_nonfinite="drop")
    for record, w in zip(records, expected, strict=True):
        np.testing.assert_allclose(record.w, w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", [fl.simulate, fl.events], ids=["simulate", "events"])
def test_a_record_tells_what_solvers_reached_since_the_one_before(engine, monkeypatch):
    """A chunk's residual is the largest of its rounds, its unsolved problems are their sum; the next chunk begins anew.

    Memories are on disk, so that a chunk of two rounds is two calls of the program.
    """
    args = fl.FedDR(0.5), FEDERATION, fl.ToTolerance(1e-9, lr=0.3, max_steps=2), W, 4
    more = {"buffer": 5} if engine is fl.events else {}
    rounds = [(record.residual, record.unsolved) for record in engine(*args, **more)]
    assert rounds[1][0] > rounds[2][0] > rounds[3][0]  # the largest of a chunk is in the first call, or in the second
    assert {unsolved for _, unsolved in rounds} == {5}
    memories = sys.modules[type(next(engine(*args, **more)).clients).__module__]
    monkeypatch.setattr(memories, "ON_DEVICE", 0)
    monkeypatch.setattr(memories, "LENT", 1)
    for record in engine(*args, chunk=2, **more):
        both = rounds[record.round - 2 : record.round]
        assert record.residual == pytest.approx(max(residual for residual, _ in both), rel=1e-12)
        assert record.unsolved == 10


@fl.frozen
class Absent(fl.FedDR):
    """Client 3 returns NaN, always."""

    def local(self, message, memory, client):
        reply, memory = super().local(message, memory, client)
        poisoned = jnp.all(client.objective.center == FEDERATION.centers[3])
        return jax.tree.map(lambda x: jnp.where(poisoned, jnp.nan, x), reply), memory


@pytest.mark.parametrize("engine", [fl.simulate, fl.events])
def test_a_record_names_everybody_who_was_dropped_since_the_one_before(engine, monkeypatch):
    """In all calls of a chunk, which has two of them as memories are on disk, and not again in the next chunk."""
    args = Absent(0.5), FEDERATION, fl.GD(0.3, steps=2), W, 4
    more = {"on_nonfinite": "drop"} | ({"buffer": 5} if engine is fl.events else {})
    memories = sys.modules[type(next(engine(*args, **more)).clients).__module__]
    monkeypatch.setattr(memories, "ON_DEVICE", 0)
    monkeypatch.setattr(memories, "LENT", 1)
    for record in engine(*args, chunk=2, **more):
        assert record.dropped == tuple((t, 3, "train") for t in (record.round - 1, record.round))
        assert 3 not in record.clients


def test_the_totals_of_a_point_end_where_it_diverges():
    """With steps of 1e30 a model exceeds 1e308 in round 6; the five rounds of two clients before it are counted."""
    solvers = [fl.GD(0.1, steps=2), fl.GD(1e30, steps=2)]
    found = list(simulate_grid([fl.FedAvg()] * 2, FEDERATION, solvers, W, 8, cohort=cohorts.uniform(2), chunk=4))[-1]
    sound, broken = found.counters
    assert found.diverged[0] is None
    n = found.diverged[1].round - 1
    assert n == 5  # in the middle of the second chunk
    assert broken == fl.Counters(n, n, 4 * n, 2 * n * VECTOR, 2 * n * VECTOR, 4 * n)
    assert sound == fl.Counters(8, 8, 32, 16 * VECTOR, 16 * VECTOR, 32)


def test_the_points_of_a_grid_tell_what_solvers_reached_since_the_record_before():
    solvers = [fl.ToTolerance(1e-9, lr=lr, max_steps=2) for lr in (0.3, 0.2)]
    for record in simulate_grid([fl.FedDR(0.5)] * 2, FEDERATION, solvers, W, 4, chunk=2):
        assert [point.unsolved for point in record.points] == [10, 10]


def test_a_kept_record_knows_the_clients_that_were_met_by_then():
    """With one client in turn, client k is met in round k, from 0; a kept record does not learn of later ones."""
    args = fl.FedDR(0.5), FEDERATION, fl.Exact(), W, 3
    kept = [record.keep() for record in fl.simulate(*args, cohort=cohorts.cyclic(1))]
    assert [list(record.clients) for record in kept] == [[0], [0, 1], [0, 1, 2]]
