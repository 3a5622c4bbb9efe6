"""Engines agree, repeat themselves, and keep the memories of clients."""

import dataclasses
import os

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.hyperparameters import frozen
from fedloom.problem import Problem
from fedloom.testing import relative_difference, usual_solver
from tests.cases import CASES, VARIANTS
from tests.federations import FEDERATION, W, bits, last, least_squares

RULES = {
    "everyone": cohorts.everyone(),
    "uniform": cohorts.uniform(3),
    "with_replacement": cohorts.with_replacement(3),
    "by_weight": cohorts.by_weight(3),
    "bernoulli": cohorts.bernoulli(0.4),
    "cyclic": cohorts.cyclic(3),
    "scheduled": cohorts.scheduled([[4, 4, 1], [6, 2], [0, 1, 3]]),
    "stragglers": cohorts.stragglers(of=cohorts.uniform(3), share=0.67),
    "dropped": cohorts.stragglers(of=cohorts.uniform(3), share=0.67, drop=True),
    "seeded_by_round": cohorts.seeded_by_round(3),
    "plain": cohorts.plain(of=cohorts.stragglers(of=cohorts.bernoulli(0.6), share=0.5, drop=True)),
}


@pytest.mark.parametrize("inner", [cohorts.everyone(), cohorts.bernoulli(0.6), cohorts.with_replacement(5)], ids=str)
def test_a_round_of_fedavg_with_plain_means_by_hand(inner):
    """Three gradient steps on A_k (w - c_k) for each member; the mean counts draws, while p_k differ by far."""
    p = np.asarray(FEDERATION.weights)
    assert p.max() > 1.5 * p.min()
    ids, times, _ = cohorts.plain(inner).over(p)(np.random.default_rng([5, 0, 0]), 0)
    models = np.tile(np.asarray(W), (len(ids), 1))
    for _ in range(3):
        models -= 0.2 * np.einsum("kij,kj->ki", FEDERATION.hessians[ids], models - np.asarray(FEDERATION.centers)[ids])
    by_hand = np.repeat(models, np.round(times).astype(int), axis=0).mean(0)
    weighted = np.average(models, axis=0, weights=times * p[ids])
    for engine in (fl.simulate, fl.reference):
        record = last(engine, fl.FedAvg(), FEDERATION, fl.GD(0.2, 3), W, 1, cohort=cohorts.plain(inner), seed=5)
        np.testing.assert_allclose(record.w, by_hand, atol=1e-12)
        assert np.abs(np.asarray(record.w) - weighted).max() > 1e-3


AS_USERS = os.environ["XLA_FLAGS"] == ""  # compiled as users compile: see conftest.py


def pairs():
    """Each algorithm with three rules and each rule with eight algorithms; compiled as users compile, three others.

    What is left of all the pairs is exhaustive, so that `make test` and `make test-all` compare every pair once.
    """
    for i, (name, case) in enumerate(CASES.items()):
        for j, rule in enumerate(RULES):
            third, alone = (i - j) % 3, case.algorithm.needs_everyone
            if rule == "everyone" if alone else third == 2 or third == AS_USERS:
                marks = pytest.mark.exhaustive if third == 2 and not alone else ()
                yield pytest.param(case, rule, id=f"{name}, {rule}", marks=marks)


@pytest.mark.parametrize(("case", "rule"), list(pairs()))
def test_simulate_equals_reference(case, rule):
    """Server state, every client's memory, and the counters."""
    solver = case.solver or usual_solver(case.algorithm)
    if rule == "stragglers" and "work" not in solver.offers:
        solver = fl.GD(0.2, 3)
    args = (case.algorithm, FEDERATION, solver, W, 2)
    fast, slow = (last(engine, *args, cohort=RULES[rule], seed=5) for engine in (fl.simulate, fl.reference))
    assert relative_difference(fast.server, slow.server) < 1e-12
    assert fast.counters == slow.counters
    assert [c.tolist() for c in fast.cohort] == [c.tolist() for c in slow.cohort]
    if jax.tree.leaves(slow.clients):  # the reference keeps memories of stateful methods only where there are any
        assert sorted(fast.clients) == sorted(slow.clients)
        for k in slow.clients:
            assert relative_difference(fast.clients[k], slow.clients[k]) < 1e-12, k


@pytest.mark.parametrize("case", VARIANTS.values(), ids=VARIANTS.keys())
def test_simulate_equals_reference_on_variants(case):
    """The options of the algorithms, over enough rounds that clients come back."""
    args = (case.algorithm, FEDERATION, case.solver or usual_solver(case.algorithm), W, 4)
    fast, slow = (last(engine, *args, cohort=cohorts.uniform(3), seed=5) for engine in (fl.simulate, fl.reference))
    assert relative_difference(fast.server, slow.server) < 1e-12
    assert sorted(fast.clients) == sorted(slow.clients)


MINIBATCH = {
    "fedavg": (fl.FedAvg(), fl.SGD(0.1, batch_size=4, epochs=2)),
    "fedavg, all options": (
        fl.FedAvg(0.5),
        fl.SGD(
            fl.schedules.exponential(0.1, 0.9),
            batch_size=4,
            steps=5,
            drop_last=True,
            momentum=0.5,
            weight_decay=0.1,
            clip=1.0,
        ),
    ),
    "scaffold": (fl.Scaffold(), fl.SGD(0.1, batch_size=4, epochs=2)),
    "feddane": (fl.FedDANE(mu=0.5, fresh=True), fl.SGD(0.1, batch_size=4)),
    "fedpd": (fl.FedPD(eta=2.0, skip=0.5), fl.SGD(0.1, batch_size=4)),
    "feddr": (fl.FedDR(eta=2.0), fl.ToTolerance(0.3, "distance", 0.3, max_steps=8)),
    "adaalter": (fl.AdaAlter(), fl.Adagrad(0.1, batch_size=4)),
}


# The others are compared with the reference in test_lanes.py too, under plans that are given.
IN_SHORT = {"fedavg, all options", "fedpd", "feddr"}


@pytest.mark.parametrize(
    ("algorithm", "solver"),
    [
        pytest.param(*case, id=name, marks=() if name in IN_SHORT else pytest.mark.exhaustive)
        for name, case in MINIBATCH.items()
    ],
)
def test_engines_agree_on_minibatches_of_ragged_clients(algorithm, solver):
    federation = least_squares()
    rule = cohorts.everyone() if algorithm.needs_everyone else cohorts.uniform(3)
    args = (algorithm, federation, solver, W, 2)
    fast, slow = (last(engine, *args, cohort=rule, seed=1) for engine in (fl.simulate, fl.reference))
    assert relative_difference(fast.server, slow.server) < 1e-12
    assert fast.counters == slow.counters
    assert fast.unsolved == slow.unsolved
    if slow.residual is not None:
        assert abs(fast.residual - slow.residual) < 1e-12


@pytest.mark.parametrize(
    ("algorithm", "rule"),
    [
        (fl.Scaffold(), cohorts.bernoulli(0.4)),
        (fl.FedAdam(), cohorts.uniform(3)),
    ],
    ids=["scaffold", "fedadam"],
)
def test_same_seed_same_bits_however_rounds_are_chunked(algorithm, rule):
    args = (algorithm, least_squares(), fl.SGD(0.1, batch_size=4), W, 12)

    def run(chunk, seed=3):
        record = last(fl.simulate, *args, cohort=rule, seed=seed, chunk=chunk)
        return bits(record.server), {k: bits(v) for k, v in record.clients.items()}, record.counters

    once = run(1)
    assert run(1) == once
    for chunk in (5, 12):
        assert run(chunk) == once
    assert run(1, seed=4) != once


def test_float32_gives_the_same_bits_too():
    with jax.enable_x64(False):
        args = (fl.Scaffold(), least_squares(), fl.SGD(0.1, batch_size=4), np.asarray(W, np.float32), 8)
        runs = [last(fl.simulate, *args, cohort=cohorts.uniform(3), chunk=c) for c in (1, 8)]
    assert runs[0].w.dtype == np.float32
    assert bits(runs[0].server) == bits(runs[1].server)


def test_chunked_records():
    args = (fl.FedAvg(), FEDERATION, fl.GD(0.1, 2), W, 10)
    fine = list(fl.simulate(*args, cohort=cohorts.uniform(3)))
    coarse = list(fl.simulate(*args, cohort=cohorts.uniform(3), chunk=4))
    assert [r.round for r in coarse] == [4, 8, 10]
    for record in coarse:
        twin = fine[record.round - 1]
        assert bits(record.server) == bits(twin.server)
        assert record.counters == twin.counters
        assert record.cohort[0].tolist() == twin.cohort[0].tolist()


def test_more_clients_than_lanes():
    """A Bernoulli cohort beyond the usual size is computed too, and the same in every chunking."""
    federation = fl.quadratics(clients=40, dimension=4, seed=3)

    @frozen
    class Surges(cohorts.CohortRule):
        def over(self, p):
            def draw(rng, t):
                ids = np.arange(3 + 9 * (t % 3 == 1))
                return cohorts.Draw(ids, p[ids], np.ones(len(ids)))

            return draw

        def room(self, clients):
            return 4

    args = (fl.Scaffold(), federation, fl.GD(0.1, 2), W, 6)
    runs = [last(fl.simulate, *args, cohort=Surges(), chunk=c) for c in (1, 4, 6)]
    slow = last(fl.reference, *args, cohort=Surges())
    assert bits(runs[0].server) == bits(runs[1].server) == bits(runs[2].server)
    assert relative_difference(runs[0].server, slow.server) < 1e-12
    assert runs[1].counters == slow.counters


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
def test_a_resumed_run_is_bit_identical(engine):
    args = (fl.FedDR(2.0), least_squares(), fl.SGD(0.1, batch_size=4), W)
    whole = last(engine, *args, 4, cohort=cohorts.uniform(3))
    half = last(engine, *args, 2, cohort=cohorts.uniform(3))
    resumed = last(engine, *args, 4, cohort=cohorts.uniform(3), resume=half)
    assert bits(resumed.server) == bits(whole.server)
    assert {k: bits(v) for k, v in resumed.clients.items()} == {k: bits(v) for k, v in whole.clients.items()}
    assert resumed.counters == whole.counters
    again = last(engine, *args, 4, cohort=cohorts.uniform(3), resume=half)  # resuming did not use up the record
    assert bits(again.server) == bits(whole.server)


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
def test_a_kept_record_can_be_resumed_later(engine):
    """Going back to an earlier record, the best one say, must not mix it with later memories."""
    args = (fl.Scaffold(), FEDERATION, fl.GD(0.1, 3), W)
    records = [r.keep() for r in engine(*args, 5, cohort=cohorts.uniform(2))]
    for early in records[:-1]:
        again = last(engine, *args, 5, cohort=cohorts.uniform(2), resume=early)
        assert bits(again.server) == bits(records[-1].server)


def test_a_record_that_was_not_kept_says_so():
    args = (fl.Scaffold(), FEDERATION, fl.GD(0.1, 3), W)
    records = list(fl.simulate(*args, 4, cohort=cohorts.uniform(2)))
    assert len(records[-1].clients) > 0
    with pytest.raises(RuntimeError, match=r"memories of round 2 are gone.*record\.keep\(\)"):
        records[1].clients[0]
    with pytest.raises(RuntimeError, match="memories of round 2 are gone"):
        list(fl.simulate(*args, 4, cohort=cohorts.uniform(2), resume=records[1]))


def test_a_run_can_change_engines():
    args = (fl.Scaffold(), least_squares(), fl.SGD(0.1, batch_size=4), W)
    whole = last(fl.simulate, *args, 4, cohort=cohorts.uniform(3))
    half = last(fl.reference, *args, 2, cohort=cohorts.uniform(3))
    other = last(fl.simulate, *args, 4, cohort=cohorts.uniform(3), resume=half)
    assert relative_difference(other.server, whole.server) < 1e-12


def test_randomness_belongs_to_the_client_not_to_its_place():
    """Client 3's minibatches in round 0 are the same whoever else takes part."""
    args = (fl.FedAvg(), least_squares(), fl.SGD(0.1, batch_size=4), W, 1)

    @frozen
    class OnlyThree(fl.FedAvg):
        """Client 3's update alone survives: the others have reply 0."""

        def local(self, w, memory, client):
            dw, memory = super().local(w, memory, client)
            return dw * (client.objective.size == 6), memory

    alone = last(fl.simulate, *args, cohort=cohorts.scheduled([[3]])).w - W
    federation = least_squares()
    crowd = last(fl.simulate, OnlyThree(), *args[1:], cohort=cohorts.scheduled([[0, 1, 3, 4]])).w - W
    share = federation.weights[3] / federation.weights[[0, 1, 3, 4]].sum()
    np.testing.assert_allclose(crowd, share * alone, rtol=1e-12)


def test_clients_have_their_own_randomness():
    """Two clients with the same nine examples take them in different orders; x_k is what each reached."""
    twins = least_squares((9, 9))
    same = dataclasses.replace(twins, offsets=np.zeros(2, np.int32))
    for engine in (fl.simulate, fl.reference):
        record = next(engine(fl.FedDR(2.0), same, fl.SGD(0.1, batch_size=2, steps=2), W, 1))
        assert np.abs(record.clients[0].x - record.clients[1].x).max() > 1e-3


def test_solves_have_their_own_randomness():
    """Two solves of one client in one exchange use different batches."""

    @frozen
    class Twice(fl.FedAvg):
        def local(self, w, memory, client):
            a = client.solve(Problem(start=w)).w
            b = client.solve(Problem(start=w)).w
            return a - b, memory

    record = last(fl.simulate, Twice(), least_squares(), fl.SGD(0.1, batch_size=4, steps=1), W, 1)
    assert np.abs(record.w - W).max() > 1e-3


def test_memories_are_made_when_a_client_is_first_met():
    rule = cohorts.scheduled([[2, 5], [5, 6]])
    met = [sorted(r.clients) for r in fl.simulate(fl.Scaffold(), FEDERATION, fl.GD(), W, 2, cohort=rule)]
    assert met == [[2, 5], [2, 5, 6]]


def test_a_large_table_grows_with_the_clients_met(monkeypatch):
    """Memory follows participation, and growing changes nothing."""
    from fedloom.engines import memory_store

    federation = fl.quadratics(clients=50, dimension=4, seed=1)
    args = (fl.FedDR(2.0), federation, fl.Exact(), W, 8)
    whole = last(fl.simulate, *args, cohort=cohorts.uniform(3))
    monkeypatch.setattr(memory_store, "SMALL_TABLE", 5 * 2 * 4 * 8)  # room for five clients
    grown = last(fl.simulate, *args, cohort=cohorts.uniform(3))
    assert len(grown.clients) <= grown.clients.store.capacity < 50
    assert bits(grown.server) == bits(whole.server)
    assert {k: bits(v) for k, v in grown.clients.items()} == {k: bits(v) for k, v in whole.clients.items()}


def test_a_million_clients(monkeypatch):
    """Stateful, partial: the memory of a run follows the clients met, not the population."""
    from fedloom.engines import memory_store

    monkeypatch.setattr(memory_store, "SMALL_TABLE", 2**14)
    n = 1_000_000
    x = np.random.default_rng(0).normal(size=(n, 1))

    def loss(w, rows, key):
        return (w[0] - rows[:, 0]) ** 2 / 2

    federation = fl.examples(x, np.ones(n, int), loss)
    run = fl.simulate(fl.Scaffold(), federation, fl.GD(0.1), np.zeros(1), 20, cohort=cohorts.uniform(100), chunk=10)
    record = list(run)[-1]
    assert 1900 < len(record.clients) <= 2000
    assert record.clients.store.capacity < 5000
    assert record.counters.messages == 20 * 200
