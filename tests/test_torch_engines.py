"""The same network in PyTorch and in our own layers has the same iterates, with every method, in every engine."""

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.engines.plan import Plan
from fedloom.systems import System
from tests.cases import CASES
from tests.federations import last
from tests.torch_twins import START, as_torch, reordered, task

HOW = ("calls", "compiled")
SGD = fl.SGD(0.1, batch_size=2, epochs=2)
RULES = (cohorts.uniform(3), cohorts.stragglers(of=cohorts.uniform(4), share=0.67), cohorts.by_weight(3))


def start(how):
    return START if how == "jax" else as_torch(START)


def assert_same(a, b):
    """Server and clients of a run in PyTorch, and of one in our layers."""
    for x, y in zip(jax.tree.leaves(a.server), reordered(b.server), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    assert sorted(a.clients) == sorted(b.clients)
    for k in b.clients:
        for x, y in zip(jax.tree.leaves(a.clients[k]), reordered(b.clients[k]), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    assert a.counters == b.counters


def solver_of(case):
    return case.solver if isinstance(case.solver, fl.Adagrad | fl.Optax) else SGD


def rule_of(case, i):
    return cohorts.everyone() if case.algorithm.needs_everyone else RULES[i % len(RULES)]


def cases(in_short):
    for i, (name, case) in enumerate(CASES.items()):
        yield pytest.param(i, case, id=name, marks=() if in_short(i) else pytest.mark.exhaustive)


def test_the_cases_are_all_algorithms_of_the_registry():
    assert {case.name for case in CASES.values()} == set(fl.ALGORITHMS)


def run(engine, how, case, rule, rounds=3, **more):
    federation = task(how).federation
    return last(engine, case.algorithm, federation, solver_of(case), start(how), rounds, cohort=rule, seed=1, **more)


@pytest.mark.parametrize(("i", "case"), list(cases(lambda i: True)))
def test_simulate(i, case):
    """Minibatches of ragged clients, partial cohorts, stragglers."""
    ours = run(fl.simulate, "jax", case, rule_of(case, i))
    assert np.abs(ours.w - START).max() > 1e-4
    assert_same(run(fl.simulate, "calls", case, rule_of(case, i)), ours)


@pytest.mark.parametrize(("i", "case"), list(cases(lambda i: i % 4 == 0))[::4])
def test_simulate_compiled_by_torchax(i, case):
    assert_same(run(fl.simulate, "compiled", case, rule_of(case, i)), run(fl.simulate, "jax", case, rule_of(case, i)))


@pytest.mark.parametrize(("i", "case"), list(cases(lambda i: i % 6 == 1)))
def test_reference(i, case):
    rule = rule_of(case, i)
    assert_same(run(fl.reference, "calls", case, rule, 2), run(fl.simulate, "jax", case, rule, 2))


@pytest.mark.parametrize(("i", "case"), list(cases(lambda i: i == 4))[4::8])
def test_reference_compiled_by_torchax(i, case):
    """A few, because without compilation torchax is slow."""
    assert_same(run(fl.reference, "compiled", case, rule_of(case, i)), run(fl.simulate, "jax", case, rule_of(case, i)))


STALE = [(i, c) for i, c in enumerate(CASES.values()) if c.algorithm.tolerates_staleness]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("i", "case"),
    [pytest.param(*c, id=c[1].name, marks=() if n % 4 == 0 else pytest.mark.exhaustive) for n, c in enumerate(STALE)],
)
def test_events(i, case, how):
    if how == "compiled" and i % 4:
        pytest.skip("some are enough: it is a model in JAX like others")
    options = {"buffer": 2, "system": System(speeds=3.0)}
    rule = cohorts.uniform(4)
    ours, theirs = (run(fl.events, h, case, rule, **options) for h in ("jax", how))
    assert_same(theirs, ours)
    assert ours.clock == theirs.clock
    assert sum(ours.clock.staleness[1:]) > 0


@pytest.mark.parametrize("plan", [Plan(3), Plan(2, 2)], ids=str)
def test_plans_of_several_lanes_and_devices(plan):
    """Which nobody needs, but which must not go wrong: calls from several threads, one after another."""
    case = CASES["scaffold-II"]
    ours = run(fl.simulate, "jax", case, RULES[1])
    assert_same(run(fl.simulate, "calls", case, RULES[1], plan=plan), ours)


SOLVERS = {
    "gd": fl.GD(0.2, 3),
    "sgd": fl.SGD(0.1, momentum=0.5, weight_decay=0.1, clip=0.3, batch_size=4, reduction="sum"),
    "optax": fl.Optax(batch_size=4),
    "adagrad": fl.Adagrad(0.1, batch_size=4),
    "to-tolerance": fl.ToTolerance(0.3, "relative-gradient", 0.3, max_steps=8),
}


@pytest.mark.parametrize("engine", [fl.simulate, pytest.param(fl.reference, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", SOLVERS)
def test_solvers(name, engine):
    def run(how):
        options = {"cohort": cohorts.uniform(3), "seed": 2}
        return last(engine, fl.FedProx(mu=0.3), task(how).federation, SOLVERS[name], start(how), 2, **options)

    ours, theirs = run("jax"), run("calls")
    assert_same(theirs, ours)
    assert (ours.residual is None) == (theirs.residual is None)


def test_every_other_solver_of_the_registry_is_refused_with_a_sentence():
    assert set(fl.solvers.SOLVERS) - set(SOLVERS) == {"exact"}
    with pytest.raises(ValueError, match=r"Exact needs second derivatives.* use GD or ToTolerance"):
        fl.simulate(fl.FedAvg(), task("calls").federation, fl.Exact(), as_torch(START), 1)


@pytest.mark.parametrize("how", HOW)
def test_population_evaluation_and_own_models(how):
    ours, theirs, w = task("jax"), task(how), as_torch(START)
    assert ours.federation.on_host is False
    assert theirs.federation.on_host == (how == "calls")
    np.testing.assert_allclose(theirs.federation.loss(w), ours.federation.loss(START), rtol=1e-12)
    np.testing.assert_allclose(theirs.federation.grad(w), as_torch(ours.federation.grad(START)), rtol=1e-12, atol=1e-14)
    assert theirs.evaluate(w, ["train", "test", "train:7"]) == pytest.approx(
        ours.evaluate(START, ["train", "test", "train:7"]), rel=1e-12
    )
    for part in ("train", "test"):
        a, b = theirs.by_client(w, part), ours.by_client(START, part)
        for name in b:
            np.testing.assert_allclose(a[name].values, b[name].values, rtol=1e-12)
    models = START + 0.1 * np.random.default_rng(0).normal(size=(ours.federation.clients, len(START)))
    a, b = theirs.by_own_model(as_torch(models)), ours.by_own_model(models)
    np.testing.assert_allclose(a["loss"].values, b["loss"].values, rtol=1e-12)


def test_float32():
    with jax.enable_x64(False):
        data = fl.by_client(np.float32(np.eye(4)[np.arange(12) % 4]), np.arange(12) % 3, np.arange(12) % 2, test=0)
        import torch

        net = torch.nn.Linear(4, 3)
        mine = fl.Task("t", data, fl.models.from_torch(net, np.zeros((2, 4)), compile=False)).load()
        ours = fl.Task("t", data, fl.models.logistic(4, 3)).load()
        b, w = (p.detach().numpy() for p in (net.bias, net.weight))
        first = np.concatenate([b, w.ravel()])
        one, two = (last(fl.simulate, fl.FedAvg(), t.federation, SGD, v, 3) for t, v in ((mine, mine.w), (ours, first)))
        assert one.w.dtype == two.w.dtype == np.float32
        np.testing.assert_allclose(one.w, np.concatenate([two.w[3:], two.w[:3]]), rtol=1e-5, atol=1e-6)
