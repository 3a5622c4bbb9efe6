"""Records count exactly: bytes, messages, exchanges, gradient evaluations, and what solvers reached."""

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.testing import usual_solver
from tests.federations import FEDERATION, W, last, least_squares

D = 4 * 8  # bytes of one vector
# That the compiled engine counts as the reference does is a part of the battery and of test_engines.py.
ENGINES = [fl.reference, pytest.param(fl.simulate, marks=pytest.mark.exhaustive)]


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
@pytest.mark.parametrize("engine", ENGINES)
def test_bytes_of_a_round(algorithm, down, up, exchanges, engine):
    rule = cohorts.everyone() if algorithm.needs_everyone else cohorts.uniform(3)
    m = FEDERATION.clients if algorithm.needs_everyone else 3
    counters = last(engine, algorithm, FEDERATION, usual_solver(algorithm), W, 2, cohort=rule).counters
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
    """Sizes 3, 9, 1, 6, 5: an epoch costs 24 example gradients; FedDANE adds two full passes."""
    federation = least_squares()

    def spent(algorithm, solver):
        return last(fl.simulate, algorithm, federation, solver, W, 1).counters.gradients

    assert spent(fl.FedAvg(), fl.SGD(0.1, batch_size=4, epochs=3)) == 3 * 24
    assert spent(fl.FedAvg(), fl.GD(0.1, 5)) == 5 * 24
    assert spent(fl.FedDANE(), fl.GD(0.1, 5)) == 7 * 24
    assert spent(fl.Scaffold(option="I"), fl.GD(0.1, 5)) == 6 * 24
    # drop_last: 9 -> 8, 6 -> 4, 5 -> 4; clients smaller than a batch keep theirs
    assert spent(fl.FedAvg(), fl.SGD(0.1, batch_size=4, drop_last=True)) == 3 + 8 + 1 + 4 + 4


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
