"""The asynchronous engine against mathematics: closed forms, transcriptions, reductions to synchronous rounds, laws."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts, regularizers
from fedloom.engines.asynchronous import Asynchronous
from fedloom.engines.checks import checked
from fedloom.engines.plan import Plan
from fedloom.systems import Delays, System
from fedloom.systems.availability import diurnal, markov
from fedloom.systems.compute import exponential, lognormal, proportional
from fedloom.systems.faults import random
from fedloom.systems.network import links
from fedloom.testing import imbalance
from fedloom.theory import asyncfeddr_rho, asyncfeddr_steps
from tests import transcriptions as numpy_version
from tests.federations import FEDERATION, W, bits, last, least_squares

RAGGED = least_squares()
GD = fl.GD(0.1, steps=3)
SGD = fl.SGD(0.1, batch_size=2, epochs=2)
TOLERANT = [fl.FedAvg(lr=0.8), fl.Scaffold(), fl.FedDR(eta=0.7, alpha=0.9), fl.FedAsync(alpha=0.4), fl.FedBuff()]


@pytest.mark.parametrize(
    "cohort", [cohorts.uniform(3), pytest.param(cohorts.everyone(), marks=pytest.mark.exhaustive)], ids=repr
)
@pytest.mark.parametrize("algorithm", TOLERANT, ids=lambda v: type(v).__name__)
def test_equal_speeds_and_a_buffer_of_the_cohort_are_synchronous_rounds(algorithm, cohort):
    buffer = cohort.room(RAGGED.clients)
    args = algorithm, RAGGED, SGD, W, 6
    for a, b in zip(fl.simulate(*args, cohort=cohort), fl.events(*args, cohort=cohort, buffer=buffer), strict=True):
        np.testing.assert_allclose(a.w, b.w, rtol=1e-12, atol=1e-12)
        assert list(a.clients) == list(b.clients)
        for k in a.clients:
            jax.tree.map(
                lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12), a.clients[k], b.clients[k]
            )
        assert a.counters == b.counters
        assert b.clock.seconds == b.round
        assert b.clock.staleness == (b.round * buffer,)


def test_with_everyone_and_a_full_buffer_speeds_do_not_matter_but_for_the_clock():
    args = fl.FedDR(), RAGGED, SGD, W, 5
    slow = System(compute=lognormal(), speeds=4.0)
    a, b = last(fl.simulate, *args), last(fl.events, *args, buffer=5, system=slow)
    np.testing.assert_allclose(a.w, b.w, rtol=1e-12)
    assert b.clock.staleness == (25,)
    assert b.clock.idle > 0


def test_one_client_at_a_time_is_feddr_with_cohorts_of_one():
    args = fl.FedDR(eta=0.5, alpha=0.8), FEDERATION, fl.Exact(), W, 30
    cohort = cohorts.uniform(1)
    for a, b in zip(fl.simulate(*args, cohort=cohort), fl.events(*args, cohort=cohort), strict=True):
        np.testing.assert_allclose(a.w, b.w, rtol=1e-12)


def drawn(model, seed, updates):
    """(i_k, d) of every update. A user's own part is never delayed: its model is at least as new as its last update."""
    pairs, last = [], {}
    for k in range(updates):
        i, d = model.draw(np.random.default_rng([seed, zlib.crc32(b"delays"), k]), k)
        pairs.append((i, min(d, k - last.get(i, -1) - 1)))
        last[i] = k
    return pairs


def oracle():
    return numpy_version.Federation(FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights)


@pytest.mark.parametrize("tau", [0, 4])
def test_asyncfeddr_in_the_setting_of_its_theory_is_algorithm_2(tau):
    """Transcribed from the paper; with tau = 0 it is FedDR with one client for each update."""
    eta, alpha, updates, seed = 0.6, 0.7, 60, 5
    delays = np.arange(1.0, tau + 2)
    pairs = drawn(Delays(tau, delays=delays).over(7), seed, updates)
    assert {d for _, d in pairs} == set(range(tau + 1))
    fed, w0 = oracle(), np.asarray(W)
    x, y = np.tile(w0, (7, 1)), np.tile(w0, (7, 1))
    x_hat, models = w0.copy(), [w0]
    system = Delays(tau, delays=tuple(delays))
    records = fl.events(fl.FedDR(eta, alpha), FEDERATION, fl.Exact(), W, updates, system=system, seed=seed)
    for (i, d), record in zip(pairs, records, strict=True):
        before = 2 * x[i] - y[i]
        y[i] = y[i] + alpha * (models[-1 - d] - x[i])
        x[i] = numpy_version.prox(fed, i, y[i], eta)
        x_hat = x_hat + fed.p[i] * (2 * x[i] - y[i] - before)
        models.append(x_hat)
        np.testing.assert_allclose(record.w, x_hat, rtol=1e-12, atol=1e-12)
    counts = np.bincount([d for _, d in pairs], minlength=tau + 1)
    assert record.clock.staleness == tuple(counts)


def test_fedasync_and_fedbuff_weigh_late_replies_as_their_papers_do():
    tau, updates, seed, lr, steps = 5, 40, 2, 0.1, 3
    pairs, fed = drawn(Delays(tau).over(7), seed, updates), oracle()
    weights = {
        "polynomial": lambda t: (t + 1) ** -0.5,
        "hinge": lambda t: 1.0 if t <= 2 else 1 / (0.5 * (t - 2) + 1),
        "constant": lambda t: 1.0,
    }
    options = {"system": Delays(tau), "seed": seed}
    for name, s in weights.items():
        method, models = fl.FedAsync(alpha=0.3, rho=0.2, discount=name, a=0.5, b=2.0), [np.asarray(W)]
        for (i, d), record in zip(pairs, fl.events(method, FEDERATION, GD, W, updates, **options), strict=True):
            old = models[-1 - d]
            v = numpy_version.gd(fed, i, old, lr, steps, lambda v, old=old: 0.2 * (v - old))
            a = 0.3 * s(d)
            models.append((1 - a) * models[-1] + a * v)
            np.testing.assert_allclose(record.w, models[-1], rtol=1e-12, atol=1e-12)
    models = [np.asarray(W)]
    for (i, d), record in zip(
        pairs, fl.events(fl.FedBuff(0.5, 0.7), FEDERATION, GD, W, updates, **options), strict=True
    ):
        old = models[-1 - d]
        models.append(models[-1] + 0.5 * (1 + d) ** -0.7 * (numpy_version.gd(fed, i, old, lr, steps) - old))
        np.testing.assert_allclose(record.w, models[-1], rtol=1e-12, atol=1e-12)


def equal_weights(clients=12):
    f = fl.quadratics(clients, 4, seed=8, condition=2.0)
    return type(f)(f.hessians, f.centers, np.full(clients, 1 / clients))


def composite_optimum(f, lam):
    """argmin of the mean of F_k + lam |w|_1, by proximal gradient steps in NumPy, to machine precision."""
    a = np.einsum("k,kij->ij", f.weights, f.hessians)
    b = np.einsum("k,kij,kj->i", f.weights, f.hessians, f.centers)
    step, w = 1 / np.linalg.eigvalsh(a)[-1], np.zeros(len(b))
    for _ in range(20_000):
        v = w - step * (a @ w - b)
        w = np.sign(v) * np.maximum(np.abs(v) - step * lam, 0)
    return w


@pytest.mark.parametrize("lam", [0.6, pytest.param(0.0, marks=pytest.mark.exhaustive)])
def test_asyncfeddr_reaches_the_optimum_with_the_step_sizes_of_its_theorem(lam):
    f = equal_weights()
    smoothness = max(np.linalg.eigvalsh(h)[-1] for h in f.hessians)
    run = {"system": System(compute=exponential(), speeds=2.0), "cohort": cohorts.uniform(2), "chunk": 10_000}
    tau = 25  # of two at work; it is seen below that no reply is later
    alpha, eta = asyncfeddr_steps(smoothness, f.clients, tau)
    assert asyncfeddr_rho(alpha, eta, smoothness, f.clients, tau) > 0
    g = regularizers.l1(lam) if lam else regularizers.none()
    best = composite_optimum(f, lam)
    if lam:
        assert 0 < np.count_nonzero(best) < 4  # the regularizer matters
    end = last(fl.events, fl.FedDR(eta, alpha, g), f, fl.Exact(), W, 40_000, **run)
    assert 10 < len(end.clock.staleness) - 1 <= tau
    np.testing.assert_allclose(end.w, best, rtol=0, atol=1e-10)


def together_and_not(algorithm, federation, solver, w, rounds, system, lanes):
    run = checked(algorithm, federation, solver, w, rounds, seed=4, system=system, buffer=1)
    for width, together in ((lanes, True), (lanes, False), (1, False)):
        yield [r.keep() for r in Asynchronous(run._replace(plan=Plan(width)), together).records(1)]


def logistic(dtype=jnp.float64):
    rng = np.random.default_rng(0)
    sizes = (5, 12, 8, 20, 9, 16, 7, 11)
    x = rng.normal(size=(sum(sizes), 6))
    y = rng.integers(3, size=sum(sizes))

    def loss(w, rows, key):
        x, y = rows
        hidden = jnp.tanh(x @ w[:30].reshape(6, 5))
        logits = hidden @ w[30:45].reshape(5, 3) + w[None, 45:]
        return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[..., None], -1)[..., 0]

    data = jnp.asarray(x, dtype), jnp.asarray(y, jnp.int32)
    return fl.examples(data, sizes, loss), jnp.asarray(rng.normal(size=48), dtype)


@pytest.mark.parametrize(
    ("lanes", "dtype"),
    [
        (3, jnp.float32),
        (8, jnp.float64),
        pytest.param(3, jnp.float64, marks=pytest.mark.exhaustive),
        pytest.param(8, jnp.float32, marks=pytest.mark.exhaustive),
    ],
)
def test_jobs_computed_together_give_the_same_bits_as_one_at_a_time(lanes, dtype):
    f, w = logistic(dtype)
    system = System(compute=exponential(), speeds=2.0)
    batched, single, narrow = together_and_not(fl.Scaffold(), f, fl.SGD(0.1, batch_size=4), w, 40, system, lanes)
    for a, b in zip(batched, single, strict=True):
        assert bits(a.w) == bits(b.w)
        assert {k: bits(m) for k, m in a.clients.items()} == {k: bits(m) for k, m in b.clients.items()}
    # Another number of lanes is another program: it may round differently, as another plan of synchronous rounds may.
    np.testing.assert_allclose(batched[-1].w, narrow[-1].w, rtol=0, atol=1e-12 if dtype == jnp.float64 else 1e-4)


def test_batches_are_larger_than_one():
    run = checked(fl.FedAvg(), FEDERATION, GD, W, 10, system=System(compute=exponential()), buffer=1, plan=Plan(3))
    engine = Asynchronous(run)
    sizes = [len(engine._jobs_due(stage)[1]) for stage, _ in zip(engine.stages, range(200), strict=False)]
    assert sizes[0] == 7  # all start at once
    assert sum(sizes) >= 200
    assert np.count_nonzero(sizes) < 150  # so those that compute anything compute several


# The first two seeds have both kinds of availability and of cohort.
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(2, 6))])
@pytest.mark.parametrize("method", ["feddr", "scaffold"])
def test_laws_hold_after_every_update_whatever_goes_wrong(method, seed):
    rng = np.random.default_rng(seed)
    drop, crash, lost = rng.dirichlet(np.ones(4))[:3] * 0.6
    system = System(
        compute=lognormal(of=proportional(0.2), sigma=float(rng.uniform(0, 2))),
        speeds=float(rng.uniform(1, 5)),
        network=links(up=float(rng.uniform(50, 1e4)), down=1e3, latency=float(rng.uniform(0, 0.3)), sigma=1.0),
        availability=[markov(20.0, 5.0), diurnal(50.0, 0.6, 1.0)][seed % 2],
        faults=random(drop=drop, crash=crash, restart=float(rng.uniform(0, 5)), lost=lost, duplicate=0.3),
    )
    buffer = int(rng.integers(1, 4))
    cohort = [cohorts.everyone(), cohorts.uniform(4)][seed % 2]
    algorithm = fl.FedDR(0.5, 0.9) if method == "feddr" else fl.Scaffold()
    more = {"cohort": cohort, "seed": seed, "system": system, "buffer": buffer, "plan": Plan(2)}
    run = checked(algorithm, FEDERATION, GD, W, 80, **more)
    engine = Asynchronous(run)
    stages = []
    engine.stages = (stages.append(s) or s for s in engine.stages)  # look on
    record = None
    for record in engine.records(1):
        assert imbalance(record, algorithm, FEDERATION, W) < 1e-11
    clock = record.clock
    counted = [f for s in stages for f in s.counted]
    started = [f for s in stages for f in s.starts]
    assert len({f.number for f in counted}) == len(counted) == clock.replies == 80 * buffer  # never twice
    assert all(not f.course.fate for f in counted)
    assert clock.failed > 0
    assert clock.duplicates > 0
    # Nothing is lost but what a fault destroyed: whoever arrived by now was counted, or waits in the buffer.
    arrived = [f for f in started if f.course.arrives <= clock.seconds]
    assert 0 <= len(arrived) - len(counted) < buffer + run.cohort_room
    late = sorted(f.course.arrives for f in arrived)[len(counted) :]
    assert all(t >= max(f.course.arrives for f in counted) - 1e-12 for t in late)
    one_at_a_time(started)
    assert len({(f.wave, f.client) for f in started}) == len(started)  # so nobody's randomness comes twice


def one_at_a_time(flights):
    """A client starts anew only when its last job is over, and never before it may."""
    last = {}
    for f in flights:
        if f.client in last:
            assert f.course.starts >= last[f.client].course.free
        last[f.client] = f


def test_a_client_whose_reply_waits_does_not_start_anew():
    """Its memory is not committed yet, so a second job would begin from an old one and break the law."""
    system = System(speeds=(1.0, 50.0, 50.0, 1.0, 1.0, 1.0, 1.0))
    for record in fl.events(fl.FedDR(), FEDERATION, GD, W, 10, system=system, buffer=4):
        assert imbalance(record, fl.FedDR(), FEDERATION, W) < 1e-12
