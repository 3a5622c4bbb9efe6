"""Every algorithm against its mathematics: the public battery, and NumPy transcriptions of the papers."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.cohorts import scheduled, uniform
from fedloom.testing import check_algorithm, usual_solver
from tests import transcriptions as numpy_version
from tests.cases import CASES, GD, LR, STEPS, VARIANTS

W = np.array([2.0, -1.0, 0.5, 3.0])
FEDERATION = fl.quadratics(clients=7, dimension=4, seed=3)
NUMPY = numpy_version.Federation(FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights)
TRACE = [[2, 0, 5], [1], [6, 3], [0, 1, 2, 3], [4, 5, 6]] * 4


def models(algorithm, solver, rounds, **more):
    return [np.asarray(r.w) for r in fl.simulate(algorithm, FEDERATION, solver, W, rounds, **more)]


def test_every_registered_algorithm_has_a_case():
    assert {case.name for case in CASES.values()} == set(fl.ALGORITHMS)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_battery(case):
    found = check_algorithm(case.algorithm, solver=case.solver, transcription=case.transcription)
    assert {"structure", "optimum", "renumbering", "compilation", "engines", "transcription"} <= set(found)


@pytest.mark.parametrize("case", VARIANTS.values(), ids=VARIANTS.keys())
def test_variant_equals_transcription(case):
    solver = case.solver or usual_solver(case.algorithm)
    got = models(case.algorithm, solver, 20, cohort=scheduled(TRACE))
    np.testing.assert_allclose(got, case.transcription(FEDERATION, W, TRACE), rtol=0, atol=1e-10)


def test_feddane_with_a_fresh_second_cohort():
    records = list(fl.simulate(fl.FedDANE(mu=0.5, fresh=True), FEDERATION, fl.Exact(), W, 20, cohort=uniform(3)))
    first, second = ([r.cohort[e].tolist() for r in records] for e in (0, 1))
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 10
    want = numpy_version.feddane(NUMPY, W, first, mu=0.5, correction=1.0, decay=1.0, second_cohorts=second)
    np.testing.assert_allclose([r.w for r in records], want, rtol=0, atol=1e-10)


def test_feddane_with_the_same_cohort_uses_it_twice():
    for record in fl.simulate(fl.FedDANE(), FEDERATION, fl.Exact(), W, 5, cohort=uniform(3)):
        assert record.cohort[0].tolist() == record.cohort[1].tolist()


def test_fedpd_with_skipping():
    """The exact solver counts one gradient a solve, so the counters tell how many updates each round had."""
    records = list(fl.simulate(fl.FedPD(eta=2.0, skip=0.6), FEDERATION, fl.Exact(), W, 20, seed=4))
    spent = np.diff([0] + [r.counters.gradients for r in records])
    repeats = (spent // FEDERATION.clients).tolist()
    assert max(repeats) > 1
    want = numpy_version.fedpd(NUMPY, W, [None] * 20, eta=2.0, repeats=repeats)
    np.testing.assert_allclose([r.w for r in records], want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference], ids=["simulate", "reference"])
@pytest.mark.parametrize("start", ["x0", "own"])
def test_fedpd_starts_a_few_steps_where_it_is_told_to(start, engine):
    """Through the loop of skipped communications, too; a full gradient counts one, a solve three."""
    rounds = 6 if engine is fl.reference else 20
    algorithm = fl.FedPD(eta=2.0, skip=0.6, start=start)
    records = list(engine(algorithm, FEDERATION, GD, W, rounds, seed=4))
    spent = np.diff([0] + [r.counters.gradients for r in records])
    options = {"eta": 2.0, "repeats": (spent // (STEPS * FEDERATION.clients)).tolist(), "eta_l": LR, "steps": STEPS}
    assert max(options["repeats"]) > 1
    want, other = (
        numpy_version.fedpd_steps(NUMPY, W, [None] * rounds, start=s, **options)
        for s in (start, {"x0": "own", "own": "x0"}[start])
    )
    np.testing.assert_allclose([r.w for r in records], want, rtol=0, atol=1e-12)
    assert np.abs(want[-1] - other[-1]).max() > 0.01  # the two differ


def test_fedpd_may_start_anywhere_if_it_solves_exactly():
    a, b = (models(fl.FedPD(2.0, 0.6, start=start), fl.Exact(), 10, seed=4) for start in ("x0", "own"))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", [fl.simulate, fl.reference], ids=["simulate", "reference"])
def test_feddane_takes_a_mu_for_each_client(engine):
    """w_k solves A_k (w_k - b_k) + g - A_k (w - b_k) + mu_k (w_k - w) = 0, so w_k = w - (A_k + mu_k I)^-1 g."""
    mu, p = np.array([0.5, 2.0, 0.9, 1.3, 4.0, 0.7, 3.0]), np.asarray(FEDERATION.weights)
    w = W
    for record in engine(fl.FedDANE(mu=mu), FEDERATION, fl.Exact(), W, 8):
        g = sum(p[k] * NUMPY.A[k] @ (w - NUMPY.b[k]) for k in range(7))
        w = w - sum(p[k] * np.linalg.solve(NUMPY.A[k] + mu[k] * np.eye(4), g) for k in range(7))
        np.testing.assert_allclose(record.w, w, rtol=0, atol=1e-12)
    *_, record = fl.simulate(fl.FedDANE(mu=mu), FEDERATION, fl.Exact(), W, 2000, chunk=2000)
    np.testing.assert_allclose(record.w, FEDERATION.optimum(), rtol=0, atol=1e-10)


def test_feddane_with_one_mu_for_all_is_that_mu():
    one, each = (models(fl.FedDANE(mu=mu), GD, 6, cohort=uniform(3)) for mu in (0.7, np.full(7, 0.7)))
    np.testing.assert_array_equal(one, each)


def test_feddane_with_too_few_mu_is_refused():
    with pytest.raises(ValueError, match=r"FedDANE: mu has 3 entries for 7 clients; give one number or 7\."):
        fl.simulate(fl.FedDANE(mu=np.ones(3)), FEDERATION, GD, W, 1)


def test_fedpd_skips_as_often_as_asked():
    """R is geometric: P(R = r) = skip^(r-1) (1 - skip), with mean 1 / (1 - skip) = 4 and standard deviation 3.46."""
    n = 4000
    run = fl.simulate(fl.FedPD(eta=2.0, skip=0.75), FEDERATION, fl.Exact(), W, n, chunk=1000)
    mean = list(run)[-1].counters.gradients / FEDERATION.clients / n
    assert abs(mean - 4) < 4 * 3.46 / np.sqrt(n)


def test_feddr_is_the_papers_sequence_one_round_later():
    """Algorithm 1 as printed, but for its aggregate, which starts as the mean of x_hat_k: first every user solves."""
    eta, alpha, lam = 2.0, 1.3, 0.1

    def prox_g(v):
        return np.sign(v) * np.maximum(np.abs(v) - eta * lam, 0)

    n = FEDERATION.clients
    y = [W.copy() for _ in range(n)]
    x = [numpy_version.prox(NUMPY, k, y[k], eta) for k in range(n)]
    x_hat = [2 * x[k] - y[k] for k in range(n)]
    x_tilde = sum(NUMPY.p[k] * x_hat[k] for k in range(n))
    want = [prox_g(x_tilde)]
    for _ in range(19):
        for k in range(n):
            y[k] = y[k] + alpha * (want[-1] - x[k])
            x[k] = numpy_version.prox(NUMPY, k, y[k], eta)
            delta = 2 * x[k] - y[k] - x_hat[k]
            x_hat[k] = x_hat[k] + delta
            x_tilde = x_tilde + NUMPY.p[k] * delta
        want.append(prox_g(x_tilde))
    got = models(fl.FedDR(eta, alpha, fl.regularizers.l1(lam)), fl.Exact(), 20)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)


def test_feddr_avoids_the_initialisation_trap():
    """Identity 11: with x_tilde^0 = w0 and x_hat_k^0 = 2 prox(w0) - w0 the limit is off by a constant; ours is not."""
    eta, n = 2.0, FEDERATION.clients
    y = [W.copy() for _ in range(n)]
    x = [numpy_version.prox(NUMPY, k, y[k], eta) for k in range(n)]
    x_tilde = W.copy()
    for _ in range(500):
        w = x_tilde
        change = 0
        for k in range(n):
            old = 2 * x[k] - y[k]
            y[k] = y[k] + (w - x[k])
            x[k] = numpy_version.prox(NUMPY, k, y[k], eta)
            change = change + NUMPY.p[k] * (2 * x[k] - y[k] - old)
        x_tilde = x_tilde + change
    optimum = FEDERATION.optimum()
    assert np.linalg.norm(x_tilde - optimum) > 0.1  # the trap is real on this federation
    ours = list(fl.simulate(fl.FedDR(eta), FEDERATION, fl.Exact(), W, 500, chunk=500))[-1].w
    assert np.linalg.norm(ours - optimum) < 1e-10


REGULARIZED = {
    "l1": fl.regularizers.l1(0.1),
    "squared_l2": fl.regularizers.squared_l2(0.3),
    "l2": fl.regularizers.l2(0.2, groups=(1, 3)),
    "box": fl.regularizers.box(-0.2, 0.9),
    "simplex": fl.regularizers.simplex(1.0),
}


@pytest.mark.parametrize("g", REGULARIZED.values(), ids=REGULARIZED.keys())
def test_feddr_reaches_the_composite_optimum(g):
    """The optimum of sum p_k F_k + g satisfies w = prox_{s g}(w - s grad f(w)) for every s: its own certificate."""
    run = fl.simulate(fl.FedDR(2.0, 1.0, g), FEDERATION, fl.Exact(), W, 3000, cohort=uniform(3), chunk=3000)
    w = list(run)[-1].w
    for s in (0.3, 1.0):
        again = g.prox(w - s * FEDERATION.grad(w), s)
        np.testing.assert_allclose(again, w, rtol=0, atol=1e-9)


@pytest.mark.parametrize("start", ["own", "centre"])
def test_warm_start_of_an_inexact_prox(start):
    """Three gradient steps from the client's own x_k have the right limit; from the prox centre they would not."""
    eta, n = 2.0, FEDERATION.clients
    if start == "own":
        run = fl.simulate(fl.FedDR(eta), FEDERATION, fl.GD(0.3, 3), W, 2000, chunk=2000)
        assert np.linalg.norm(list(run)[-1].w - FEDERATION.optimum()) < 1e-9
        return
    x, y, w = [W] * n, [W] * n, W
    for _ in range(2000):
        for k in range(n):
            y[k] = y[k] + w - x[k]
            x[k] = numpy_version.gd(NUMPY, k, y[k], 0.3, 3, extra=lambda v, c=y[k]: (v - c) / eta)
        w = sum(NUMPY.p[k] * (2 * x[k] - y[k]) for k in range(n))
    assert np.linalg.norm(w - FEDERATION.optimum()) > 0.01


def test_scaffold_as_printed_has_a_wrong_limit():
    """Why first_contact = "c-as-printed" is not the default: c = sum p_k c_k breaks, and with it the limit."""
    error = {}
    for first in ("zero", "c", "c-as-printed"):
        algorithm = fl.Scaffold(first_contact=first)
        run = fl.simulate(algorithm, FEDERATION, GD, W, 4000, cohort=uniform(3), chunk=4000)
        error[first] = np.linalg.norm(list(run)[-1].w - FEDERATION.optimum())
    assert error["zero"] < 1e-9
    assert error["c"] < 1e-9
    assert error["c-as-printed"] > 0.05


def test_scaffold_first_contact_c_starts_as_fedavg():
    """While every client is new, c_k = c: the corrections vanish."""
    once = scheduled([[0, 1], [2, 3, 4], [5, 6]])
    a = models(fl.Scaffold(first_contact="c"), GD, 3, cohort=once)
    b = models(fl.FedAvg(), GD, 3, cohort=once)
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_optax_server_optimizers_are_not_the_papers():
    """A user who takes optax.adam for FedAdam gets another method; this is why ours are written out."""
    import optax

    ours = models(fl.FedAdam(lr=0.1, tau=1e-3), GD, 20)[-1]
    theirs = models(fl.FedOpt(optax.adam(0.1, b1=0.9, b2=0.99, eps=1e-3)), GD, 20)[-1]
    assert np.linalg.norm(ours - theirs) > 0.05


def test_fedprox_with_stragglers_uses_partial_work():
    """With all clients slow, a client makes ceil(U * steps) of its steps."""
    slow = fl.cohorts.stragglers(of=fl.cohorts.everyone(), share=1.0)
    rounds = 5
    full = list(fl.simulate(fl.FedProx(0.1), FEDERATION, fl.GD(0.1, 20), W, rounds))[-1]
    part = list(fl.simulate(fl.FedProx(0.1), FEDERATION, fl.GD(0.1, 20), W, rounds, cohort=slow))[-1]
    assert full.counters.gradients == 20 * FEDERATION.clients * rounds
    assert FEDERATION.clients * rounds <= part.counters.gradients < full.counters.gradients
    assert float(FEDERATION.loss(part.w)) < float(FEDERATION.loss(jnp.asarray(W)))


@pytest.mark.parametrize("algorithm", [fl.FedDR(eta=2.0, alpha=1.0), fl.FedPD(eta=2.0)], ids=["feddr", "fedpd"])
def test_a_clients_own_model_is_its_proximal_point(algorithm):
    """After the first round x_k minimises F_k(v) + |v - w|^2 / (2 eta), which for a quadratic is a linear system."""
    *_, record = fl.simulate(algorithm, FEDERATION, fl.Exact(), W, 1)
    for k, (h, c) in enumerate(zip(FEDERATION.hessians, FEDERATION.centers, strict=True)):
        want = np.linalg.solve(h + np.eye(len(W)) / 2.0, h @ c + np.asarray(W) / 2.0)
        np.testing.assert_allclose(algorithm.own_model(record.clients[k]), want, rtol=0, atol=1e-12)
