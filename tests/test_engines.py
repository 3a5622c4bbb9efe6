"""Engines agree, repeat themselves, count exactly, and refuse to go on with a poisoned model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.hyperparameters import frozen
from fedloom.problem import Problem
from fedloom.testing import imbalance, relative_difference, usual_solver
from tests.cases import CASES

FEDERATION = fl.quadratics(clients=7, dimension=4, seed=3)
W = jnp.array([2.0, -1.0, 0.5, 3.0])
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
}


def least_squares(sizes=(3, 25, 1, 12, 7), seed=0):
    """Ragged clients with quadratic losses, so that minibatches and exact solves both make sense."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    x, y = rng.normal(size=(n, 4)), rng.normal(size=n)

    def loss(w, rows, key):
        x, y = rows
        return (x @ w - y) ** 2 / 2 + 0.05 * jnp.sum(w**2)

    return fl.examples((x, y), sizes, loss)


def last(engine, *args, **more):
    return list(engine(*args, **more))[-1]


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_simulate_equals_reference(case):
    """All algorithms, all cohort rules: server state, every client's memory, and the counters."""
    for name, rule in RULES.items():
        if case.algorithm.needs_everyone and name != "everyone":
            continue
        solver = case.solver or usual_solver(case.algorithm)
        if name == "stragglers" and "work" not in solver.offers:
            solver = fl.GD(0.2, 3)
        args = (case.algorithm, FEDERATION, solver, W, 2)
        fast, slow = (last(engine, *args, cohort=rule, seed=5) for engine in (fl.simulate, fl.reference))
        assert relative_difference(fast.server, slow.server) < 1e-12, name
        assert fast.counters == slow.counters
        assert [c.tolist() for c in fast.cohort] == [c.tolist() for c in slow.cohort]
        if jax.tree.leaves(slow.clients):  # the reference keeps memories of stateful methods only where there are any
            assert sorted(fast.clients) == sorted(slow.clients)
            for k in slow.clients:
                assert relative_difference(fast.clients[k], slow.clients[k]) < 1e-12, (name, k)


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


@pytest.mark.parametrize(("algorithm", "solver"), MINIBATCH.values(), ids=MINIBATCH.keys())
def test_engines_agree_on_minibatches_of_ragged_clients(algorithm, solver):
    federation = least_squares()
    rule = cohorts.everyone() if algorithm.needs_everyone else cohorts.uniform(3)
    args = (algorithm, federation, solver, W, 3)
    fast, slow = (last(engine, *args, cohort=rule, seed=1) for engine in (fl.simulate, fl.reference))
    assert relative_difference(fast.server, slow.server) < 1e-12
    assert fast.counters == slow.counters
    assert fast.unsolved == slow.unsolved
    if slow.residual is not None:
        assert abs(fast.residual - slow.residual) < 1e-12


@pytest.mark.parametrize("rule", [cohorts.uniform(3), cohorts.bernoulli(0.4)], ids=["uniform", "bernoulli"])
@pytest.mark.parametrize("algorithm", [fl.Scaffold(), fl.FedAdam()], ids=["scaffold", "fedadam"])
def test_same_seed_same_bits_however_rounds_are_chunked(algorithm, rule):
    args = (algorithm, least_squares(), fl.SGD(0.1, batch_size=4), W, 12)

    def run(chunk, seed=3):
        record = last(fl.simulate, *args, cohort=rule, seed=seed, chunk=chunk)
        return bits(record.server), {k: bits(v) for k, v in record.clients.items()}, record.counters

    once = run(1)
    assert run(1) == once
    for chunk in (3, 5, 12):
        assert run(chunk) == once
    assert run(1, seed=4) != once


def test_float32_gives_the_same_bits_too():
    with jax.enable_x64(False):
        args = (fl.Scaffold(), least_squares(), fl.SGD(0.1, batch_size=4), np.asarray(W, np.float32), 8)
        runs = [last(fl.simulate, *args, cohort=cohorts.uniform(3), chunk=c) for c in (1, 4, 8)]
    assert runs[0].w.dtype == np.float32
    assert bits(runs[0].server) == bits(runs[1].server) == bits(runs[2].server)


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

        def lanes(self, clients):
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
    whole = last(engine, *args, 6, cohort=cohorts.uniform(3))
    half = last(engine, *args, 3, cohort=cohorts.uniform(3))
    resumed = last(engine, *args, 6, cohort=cohorts.uniform(3), resume=half)
    assert bits(resumed.server) == bits(whole.server)
    assert {k: bits(v) for k, v in resumed.clients.items()} == {k: bits(v) for k, v in whole.clients.items()}
    assert resumed.counters == whole.counters
    again = last(engine, *args, 6, cohort=cohorts.uniform(3), resume=half)  # resuming did not use up the record
    assert bits(again.server) == bits(whole.server)


def test_a_run_can_change_engines():
    args = (fl.Scaffold(), least_squares(), fl.SGD(0.1, batch_size=4), W)
    whole = last(fl.simulate, *args, 6, cohort=cohorts.uniform(3))
    half = last(fl.reference, *args, 3, cohort=cohorts.uniform(3))
    other = last(fl.simulate, *args, 6, cohort=cohorts.uniform(3), resume=half)
    assert relative_difference(other.server, whole.server) < 1e-12


def test_the_order_within_a_cohort_does_not_matter():
    """Memories belong to clients, not to positions: every other round is reversed."""
    trace = [[1, 4, 6], [2, 4, 5], [1, 2, 6], [0, 4, 6]]
    mixed = [members[::-1] if t % 2 else members for t, members in enumerate(trace)]
    args = (fl.Scaffold(), FEDERATION, fl.GD(0.1, 3), W, 4)
    a, b = (last(fl.simulate, *args, cohort=cohorts.scheduled(tr)) for tr in (trace, mixed))
    assert bits(a.server) == bits(b.server)


def test_randomness_belongs_to_the_client_not_to_its_place():
    """Client 3's minibatches in round 0 are the same whoever else takes part."""
    args = (fl.FedAvg(), least_squares(), fl.SGD(0.1, batch_size=4), W, 1)

    @frozen
    class OnlyThree(fl.FedAvg):
        """Client 3's update alone survives: the others have reply 0."""

        def local(self, w, memory, client):
            dw, memory = super().local(w, memory, client)
            return dw * (client.objective.size == 12), memory

    alone = last(fl.simulate, *args, cohort=cohorts.scheduled([[3]])).w - W
    federation = least_squares()
    crowd = last(fl.simulate, OnlyThree(), *args[1:], cohort=cohorts.scheduled([[0, 1, 3, 4]])).w - W
    share = federation.weights[3] / federation.weights[[0, 1, 3, 4]].sum()
    np.testing.assert_allclose(crowd, share * alone, rtol=1e-12)


def test_exchanges_and_solves_have_their_own_randomness():
    """Two exchanges of a round draw different cohorts; two solves of one client use different batches."""

    @frozen
    class Twice(fl.FedAvg):
        def local(self, w, memory, client):
            a = client.solve(Problem(start=w)).w
            b = client.solve(Problem(start=w)).w
            return a - b, memory

    record = last(fl.simulate, Twice(), least_squares(), fl.SGD(0.1, batch_size=4, steps=1), W, 1)
    assert np.abs(record.w - W).max() > 1e-3


# Counters


D = 4 * 8  # bytes of one vector


@pytest.mark.parametrize(
    ("algorithm", "down", "up", "exchanges"),
    [
        (fl.FedSGD(), 1, 1, 1),
        (fl.FedAvg(), 1, 1, 1),
        (fl.FedAvgM(), 1, 1, 1),
        (fl.FedProx(), 1, 1, 1),
        (fl.Scaffold(), 2, 2, 1),
        (fl.FedDANE(), 3, 2, 2),
        (fl.FedDANE(pipelined=True), 2, 2, 1),
        (fl.FedDyn(), 1, 1, 1),
        (fl.FedDynOneGD(), 1, 1, 1),
        (fl.FedSplit(), 1, 1, 1),
        (fl.FedSplit(averaging="active"), 1, 1, 1),
        (fl.FedPD(), 1, 1, 1),
        (fl.FedPD(skip=0.5), 1, 1, 1),
        (fl.FedDR(), 1, 1, 1),
        (fl.FedAdam(), 1, 1, 1),
        (fl.FedOpt(), 1, 1, 1),
        (fl.Lookahead(), 1, 1, 1),
        (fl.AdaAlter(), 2, 2, 1),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, fl.Algorithm) else str(v),
)
def test_bytes_of_a_round(algorithm, down, up, exchanges):
    rule = cohorts.everyone() if algorithm.needs_everyone else cohorts.uniform(3)
    m = FEDERATION.clients if algorithm.needs_everyone else 3
    solver = usual_solver(algorithm)
    for engine in (fl.simulate, fl.reference):
        counters = last(engine, algorithm, FEDERATION, solver, W, 2, cohort=rule).counters
        assert counters.bytes_down == 2 * m * down * D
        assert counters.bytes_up == 2 * m * up * D
        assert counters.messages == 2 * m * 2 * exchanges
        assert counters.exchanges == 2 * exchanges
        assert counters.rounds == 2


def test_bytes_follow_the_dtype():
    with jax.enable_x64(False):
        run = fl.simulate(fl.FedAvg(), FEDERATION, fl.GD(), np.asarray(W, np.float32), 1, cohort=cohorts.uniform(3))
        assert list(run)[-1].counters.bytes_down == 3 * 4 * 4


def test_a_client_drawn_twice_works_once():
    rule = cohorts.scheduled([[2, 2, 5]])
    record = last(fl.simulate, fl.FedSGD(1.0), FEDERATION, fl.GD(), W, 1, cohort=rule)
    g2, g5 = (FEDERATION.objective(k).grad(W) for k in (2, 5))
    p2, p5 = FEDERATION.weights[[2, 5]]
    np.testing.assert_allclose(record.w, W - (2 * p2 * g2 + p5 * g5) / (2 * p2 + p5), rtol=1e-12)
    assert record.counters.gradients == 2
    assert record.counters.messages == 4


def test_by_weight_takes_the_plain_mean():
    rule = cohorts.by_weight(3)
    record = last(fl.simulate, fl.FedSGD(1.0), FEDERATION, fl.GD(), W, 1, cohort=rule, seed=8)
    draw = rule.over(np.asarray(FEDERATION.weights))(np.random.default_rng([8, 0, 0]), 0)
    gradients = np.array([FEDERATION.objective(k).grad(W) for k in draw.ids.tolist()])
    np.testing.assert_allclose(record.w, W - draw.weight @ gradients / 3, rtol=1e-12)


def test_gradient_counts_are_exact():
    """Sizes 3, 25, 1, 12, 7: an epoch costs 48 example gradients; FedDANE adds two full passes."""
    federation = least_squares()

    def spent(algorithm, solver):
        return last(fl.simulate, algorithm, federation, solver, W, 1).counters.gradients

    assert spent(fl.FedAvg(), fl.SGD(0.1, batch_size=4, epochs=3)) == 3 * 48
    assert spent(fl.FedAvg(), fl.GD(0.1, 5)) == 5 * 48
    assert spent(fl.FedDANE(), fl.SGD(0.1, batch_size=4)) == 3 * 48
    assert spent(fl.Scaffold(option="I"), fl.SGD(0.1, batch_size=4)) == 2 * 48
    # drop_last: 25 -> 24, 7 -> 4; clients smaller than a batch keep theirs
    assert spent(fl.FedAvg(), fl.SGD(0.1, batch_size=4, drop_last=True)) == 3 + 24 + 1 + 12 + 4


def test_residual_and_unsolved_are_reported():
    args = (fl.FedDR(2.0), FEDERATION)
    for engine in (fl.simulate, fl.reference):
        good = last(engine, *args, fl.ToTolerance(1e-3, lr=0.5), W, 2)
        assert good.unsolved == 0
        assert 0 < good.residual <= 1e-3
        bad = last(engine, *args, fl.ToTolerance(1e-3, lr=0.5, max_steps=1), W, 1)
        assert bad.unsolved == FEDERATION.clients
        assert bad.residual > 1e-3
        assert last(engine, *args, fl.GD(), W, 1).residual is None


# Memories


def test_memories_are_made_when_a_client_is_first_met():
    rule = cohorts.scheduled([[2, 5], [5, 6]])
    met = [sorted(r.clients) for r in fl.simulate(fl.Scaffold(), FEDERATION, fl.GD(), W, 2, cohort=rule)]
    assert met == [[2, 5], [2, 5, 6]]


def test_a_large_table_grows_with_the_clients_met(monkeypatch):
    """Memory follows participation, and growing changes nothing."""
    from fedloom.engines import table

    federation = fl.quadratics(clients=50, dimension=4, seed=1)
    args = (fl.FedDR(2.0), federation, fl.Exact(), W, 8)
    whole = last(fl.simulate, *args, cohort=cohorts.uniform(3))
    monkeypatch.setattr(table, "_AT_ONCE", 5 * 2 * D)  # room for five clients
    grown = last(fl.simulate, *args, cohort=cohorts.uniform(3))
    assert grown.clients.capacity < 50
    assert len(grown.clients) <= grown.clients.capacity
    assert bits(grown.server) == bits(whole.server)
    assert {k: bits(v) for k, v in grown.clients.items()} == {k: bits(v) for k, v in whole.clients.items()}


def test_a_million_clients():
    """Stateful, partial: time and memory of a round follow the cohort, not the population."""
    n = 1_000_000
    x = np.random.default_rng(0).normal(size=(n, 1))

    def loss(w, rows, key):
        return (w[0] - rows[:, 0]) ** 2 / 2

    federation = fl.examples(x, np.ones(n, int), loss)
    records = list(
        fl.simulate(fl.Scaffold(), federation, fl.GD(0.1), np.zeros(1), 20, cohort=cohorts.uniform(100), chunk=20)
    )
    assert len(records[-1].clients) <= 2000
    assert records[-1].counters.messages == 20 * 200


# Failure


@frozen
class Poison(fl.FedDR):
    """Client 4 returns NaN from round 1 on."""

    def local(self, w, k, client):
        reply, memory = super().local(w, k, client)
        bad = (client.t >= 1) & jnp.all(client.objective.center == FEDERATION.centers[4])
        return jnp.where(bad, jnp.nan, reply), memory


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
@pytest.mark.parametrize("chunk", [1, 3])
def test_a_nan_is_named(engine, chunk):
    more = {"chunk": chunk} if engine is fl.simulate else {}
    run = engine(Poison(2.0), FEDERATION, fl.Exact(), W, 3, **more)
    with pytest.raises(fl.NonFiniteUpdate, match=r"Client 4 .* round 1 .*'train'.*drop"):
        list(run)


def test_a_dropped_client_leaves_no_trace():
    """Its reply is not counted, its memory not committed: the invariant holds, as if it had not been in the cohort."""
    trace = [[1, 4], [1, 4, 5], [2, 4], [4, 6]]
    without = [[1, 4], [1, 5], [2], [6]]
    kept = [r for r in fl.simulate(fl.FedDR(2.0), FEDERATION, fl.Exact(), W, 4, cohort=cohorts.scheduled(without))]
    for engine in (fl.simulate, fl.reference):
        run = engine(Poison(2.0), FEDERATION, fl.Exact(), W, 4, cohort=cohorts.scheduled(trace), on_nonfinite="drop")
        for record, twin in zip(run, kept, strict=True):
            assert relative_difference(record.server, twin.server) < 1e-12
            assert imbalance(record, fl.FedDR(2.0), FEDERATION, W) < 1e-12
            assert record.dropped == (() if record.round == 1 else ((record.round - 1, 4, "train"),))


def test_a_round_in_which_nobody_counts_changes_nothing():
    for engine in (fl.simulate, fl.reference):
        rule = cohorts.scheduled([[4], [4]])
        first, second = engine(Poison(2.0), FEDERATION, fl.Exact(), W, 2, cohort=rule, on_nonfinite="drop")
        assert bits(first.server) == bits(second.server)
        assert np.isfinite(second.w).all()


def test_divergence_is_an_error_not_a_model():
    with pytest.raises(fl.NonFiniteUpdate, match="Lower the step sizes"):
        list(fl.simulate(fl.FedAvg(), FEDERATION, fl.GD(100.0, 50), W, 20))


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference])
def test_a_server_that_overflows_is_named(engine):
    """All replies are finite, the server's own arithmetic is not."""
    run = engine(fl.FedAvg(lr=1e308), FEDERATION, fl.GD(1.0, 1), 1e3 * W, 1)
    with pytest.raises(fl.NonFiniteUpdate, match=r"server's state .* round 0 .*'train'"):
        list(run)


def test_an_error_while_compiling_names_the_exchange():
    @frozen
    class Broken(fl.FedAvg):
        def local(self, w, memory, client):
            raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError) as caught:
        list(fl.simulate(Broken(), FEDERATION, fl.GD(), W, 1))
    assert "Exchange 'train' of" in caught.value.__notes__[0]


def test_an_error_inside_a_client_is_named():
    @frozen
    class Broken(fl.FedAvg):
        def local(self, w, memory, client):
            if client.t == 1:
                raise ZeroDivisionError("oops")
            return super().local(w, memory, client)

    run = fl.reference(Broken(), FEDERATION, fl.GD(), W, 3, cohort=cohorts.scheduled([[0], [3, 5], [1]]))
    with pytest.raises(fl.ClientError, match=r"Client 3, round 1 .*'train': ZeroDivisionError: oops") as caught:
        list(run)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_reference_engine_is_ordinary_python():
    """Values are concrete inside `local` and inside the solver: print and breakpoints work."""
    seen = []

    @frozen
    class Curious(fl.FedAvg):
        def local(self, w, memory, client):
            dw, memory = super().local(w, memory, client)
            seen.append(float(dw[0]))
            return dw, memory

    list(fl.reference(Curious(), least_squares(), fl.SGD(0.1, batch_size=4), W, 1))
    assert len(seen) == 5
