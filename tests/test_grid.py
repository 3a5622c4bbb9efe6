"""Points side by side: each is the run that `simulate` makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts, schedules
from fedloom.engines import grid
from fedloom.engines.checks import checked
from fedloom.engines.grid import points_at_once, simulate_grid
from tests.federations import FEDERATION, W, least_squares

# Points of one structure: algorithms and solvers that differ in numbers.
GRIDS = {
    "fedavg": ([fl.FedAvg(lr=lr) for lr in (1, 0.5, 0.25)], [fl.GD(lr, steps=2) for lr in (0.05, 0.1, 0.02)]),
    "fedadam": (
        [fl.FedAdam(lr=lr, tau=tau) for lr, tau in ((0.1, 1e-3), (0.03, 1e-2), (0.3, 0.1))],
        [fl.GD(schedules.exponential(0.1, decay)) for decay in (0.9, 1.0, 0.99)],
    ),
    "scaffold": ([fl.Scaffold(lr=lr) for lr in (1.0, 0.7)], [fl.SGD(lr, batch_size=2) for lr in (0.05, 0.02)]),
    "feddyn": ([fl.FedDyn(alpha=a) for a in (0.1, 1.0, 3.0)], [fl.GD(0.05, steps=3)] * 3),
    "feddane": ([fl.FedDANE(mu=mu) for mu in (0.1, 1.0)], [fl.GD(lr, steps=3) for lr in (0.05, 0.1)]),
    "feddyn, alpha": ([fl.FedDyn(a, "alpha") for a in (0.1, 1.0, 3.0)], [fl.GD(0.05, steps=3)] * 3),
    "feddane, own mu": ([fl.FedDANE(mu=a * np.arange(1.0, 8)) for a in (0.1, 0.5)], [fl.GD(0.05, steps=3)] * 2),
    "own mu": ([fl.FedProx(mu=a * np.arange(1.0, 8)) for a in (0.1, 0.5)], [fl.GD(0.05, steps=3)] * 2),
    "to tolerance": ([fl.FedProx(mu=1.0)] * 2, [fl.ToTolerance(tolerance, lr=0.1) for tolerance in (1e-2, 1e-5)]),
}


@pytest.mark.parametrize("name", GRIDS)
def test_each_point_is_its_own_simulation(name):
    algorithms, solvers = GRIDS[name]
    ragged = name == "scaffold"  # minibatches, and cohorts of several widths
    federation, cohort = (least_squares(), cohorts.bernoulli(0.5)) if ragged else (FEDERATION, cohorts.uniform(3))
    more = {"cohort": cohort, "seed": 5, "chunk": 4}
    records = list(simulate_grid(algorithms, federation, solvers, W, 10, **more))
    assert [r.round for r in records] == [4, 8, 10]
    for i, (algorithm, solver) in enumerate(zip(algorithms, solvers, strict=True)):
        alone = list(fl.simulate(algorithm, federation, solver, W, 10, **more))
        for together, single in zip(records, alone, strict=True):
            point = together.point(i)
            np.testing.assert_allclose(together.w[i], single.w, rtol=0, atol=1e-10)
            for a, b in zip(point.server, single.server, strict=True):
                np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
            assert point.counters == single.counters
            assert point.unsolved == single.unsolved
            if single.residual is None:
                assert point.residual is None
            else:
                assert point.residual == pytest.approx(single.residual, abs=1e-10)
            assert together.diverged[i] is None


def test_points_may_differ_in_the_gradients_they_cost():
    algorithms, solvers = GRIDS["to tolerance"]
    loose, tight = list(simulate_grid(algorithms, FEDERATION, solvers, W, 2))[-1].counters
    assert loose.gradients < tight.gradients
    assert loose._replace(gradients=0) == tight._replace(gradients=0)


@pytest.mark.parametrize("algorithm", [fl.FedAvg(), fl.Scaffold()], ids=lambda a: type(a).__name__)
def test_a_diverging_point_is_named_and_leaves_the_others_alone(algorithm):
    solvers = [fl.GD(lr, steps=2) for lr in (0.3, 1e30, 0.2)]
    more = {"cohort": cohorts.uniform(3), "seed": 1}
    with pytest.raises(fl.NonFiniteUpdate) as error:
        list(fl.simulate(algorithm, FEDERATION, solvers[1], W, 12, **more))
    records = list(simulate_grid([algorithm] * 3, FEDERATION, solvers, W, 12, chunk=3, **more))
    last = records[-1]
    assert last.diverged[0] is None
    assert last.diverged[2] is None
    found = last.diverged[1]
    assert found.words == str(error.value)
    assert f"round {found.round}," in found.words
    assert 1 < found.round < 12
    for record in records:  # flagged from the chunk on in which it happened, and for ever
        assert record.diverged[1] == (found if record.round >= found.round else None)
    for i in (0, 2):
        alone = list(fl.simulate(algorithm, FEDERATION, solvers[i], W, 12, **more))[-1]
        np.testing.assert_allclose(last.w[i], alone.w, rtol=0, atol=1e-10)
        assert last.counters[i] == alone.counters


def test_a_server_that_overflows_is_named_too():
    algorithms = [fl.FedAvgM(lr=1.0), fl.FedAvgM(lr=1e308)]
    last = list(simulate_grid(algorithms, FEDERATION, [fl.GD(0.1)] * 2, W, 3))[-1]
    assert last.diverged[0] is None
    with pytest.raises(fl.NonFiniteUpdate) as error:
        list(fl.simulate(algorithms[1], FEDERATION, fl.GD(0.1), W, 3))
    assert last.diverged[1].words == str(error.value)


def test_float32_models_stay_float32():
    federation, w = jax.tree.map(lambda x: x.astype(np.float32), (FEDERATION, W))
    record = next(simulate_grid([fl.FedAvg(0.5), fl.FedAvg(1)], federation, [fl.GD(0.1), fl.GD(0.2)], w, 1))
    assert record.w.dtype == jnp.float32
    for i, (lr, step) in enumerate(((0.5, 0.1), (1, 0.2))):
        np.testing.assert_allclose(record.w[i], W - lr * step * FEDERATION.grad(W), rtol=1e-5)


@pytest.mark.parametrize(
    ("algorithms", "solvers", "says"),
    [
        ([], [], "needs at least one algorithm"),
        ([fl.FedAvg()] * 2, [fl.GD()], "2 algorithms and 1 solvers"),
        ([fl.FedAvg(), fl.FedProx()], [fl.GD()] * 2, "differ in numbers only"),
        ([fl.FedAvg()] * 2, [fl.GD(steps=1), fl.GD(steps=2)], "differ in numbers only"),
        ([fl.FedProx(mu=1.0), fl.FedProx(mu=np.ones(7))], [fl.GD()] * 2, "differ in numbers only"),
        ([fl.Scaffold()], [fl.SGD(momentum=0.9)], "lr_sum"),
    ],
    ids=["none", "lengths", "algorithms", "static", "arrays", "solver"],
)
def test_bad_grids(algorithms, solvers, says):
    with pytest.raises(ValueError, match=says):
        simulate_grid(algorithms, FEDERATION, solvers, W, 1)


def run_of(algorithm, cohort=None):
    return checked(algorithm, FEDERATION, fl.GD(0.1), W, 1, cohort=cohort)


def test_points_at_once_follow_from_size_and_memory(monkeypatch):
    assert points_at_once(run_of(fl.FedAvg())) == grid.MOST_POINTS
    assert points_at_once(run_of(fl.FedAvg())._replace(w=jnp.zeros(grid.SMALL_MODEL + 1))) == 1
    # Without memories a point holds two server states and four models for each client at work.
    d, at_work = 4, cohorts.uniform(2)
    monkeypatch.setattr(grid, "BUDGET", 50 * (2 * d + 4 * 2 * d) * 8)
    assert points_at_once(run_of(fl.FedAvg(), at_work)) == 50
    # FedDyn's clients remember a vector each, all seven of them, and its server has one more: fewer points fit.
    assert points_at_once(run_of(fl.FedDyn(alpha=1.0), at_work)) == 50 * 10 // (4 + 7 + 4 + 8)
