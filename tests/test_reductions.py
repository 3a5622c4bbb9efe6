"""Reductions between methods, iterate by iterate, to 1e-10."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedloom as fl
from fedloom.cohorts import bernoulli, everyone, uniform
from fedloom.regularizers import none

FEDERATION = fl.quadratics(clients=7, dimension=4, seed=11)
W = jnp.array([2.0, -1.0, 0.5, 3.0])
GD = fl.GD(lr=0.1, steps=4)
EXACT = fl.Exact()


def models(algorithm, solver, cohort=None, rounds=12, federation=FEDERATION, seed=2):
    run = fl.simulate(algorithm, federation, solver, W, rounds, cohort=cohort, seed=seed)
    return np.array([r.w for r in run])


PARTIAL = [uniform(3), everyone(), bernoulli(0.4)]
LAW = [
    # what, left, right, cohorts
    ("fedprox(0) = fedavg", (fl.FedProx(mu=0.0), GD), (fl.FedAvg(), GD), PARTIAL),
    ("fedavg = fedopt(sgd(1))", (fl.FedAvg(), GD), (fl.FedOpt(optax.sgd(1.0)), GD), PARTIAL),
    ("fedavg(lr) = fedopt(sgd(lr))", (fl.FedAvg(0.3), GD), (fl.FedOpt(optax.sgd(0.3)), GD), PARTIAL),
    ("fedavgm = fedopt(momentum)", (fl.FedAvgM(0.3, 0.9), GD), (fl.FedOpt(optax.sgd(0.3, 0.9)), GD), PARTIAL),
    ("fedavgm(beta=0) = fedavg", (fl.FedAvgM(0.3, 0.0), GD), (fl.FedAvg(0.3), GD), PARTIAL),
    ("fedavg, one full step = fedsgd", (fl.FedAvg(), fl.GD(0.3, 1)), (fl.FedSGD(0.3), EXACT), PARTIAL),
    ("lookahead = fedavg", (fl.Lookahead(0.5), GD), (fl.FedAvg(0.5), GD), PARTIAL),
    ("feddane(correction=0) = fedprox", (fl.FedDANE(0.4, correction=0.0), GD), (fl.FedProx(0.4), GD), PARTIAL),
    ("feddr(2) = fedsplit", (fl.FedDR(2.0, 2.0, none()), EXACT), (fl.FedSplit(2.0), EXACT), [uniform(3), everyone()]),
    ("fedsplit all = active", (fl.FedSplit(2.0), EXACT), (fl.FedSplit(2.0, "active"), EXACT), [everyone()]),
    ("fedpd = feddr(1)", (fl.FedPD(2.0), EXACT), (fl.FedDR(2.0, 1.0), EXACT), [everyone()]),
    ("fedpd = feddyn(1/eta)", (fl.FedPD(2.0), EXACT), (fl.FedDyn(0.5), EXACT), [everyone()]),
    ("fedpd from its own x = fedpd", (fl.FedPD(2.0, start="own"), EXACT), (fl.FedPD(2.0), EXACT), [everyone()]),
    ("feddr(1) = feddyn(1/eta)", (fl.FedDR(2.0, 1.0), EXACT), (fl.FedDyn(0.5), EXACT), [everyone()]),
]


def laws():
    """Each law with the first of its cohorts; with the others it is exhaustive."""
    for what, left, right, cohorts in LAW:
        for i, cohort in enumerate(cohorts):
            marks = pytest.mark.exhaustive if i else ()
            yield pytest.param(left, right, cohort, id=f"{what}, {cohort!r}", marks=marks)


@pytest.mark.parametrize(("left", "right", "cohort"), list(laws()))
def test_reduction(left, right, cohort):
    a, b = models(*left, cohort), models(*right, cohort)
    assert np.abs(a[0] - np.asarray(W)).max() > 1e-3  # something moves
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


def test_fedavg_with_one_full_step_is_gradient_descent():
    w, want = np.asarray(W), []
    for _ in range(12):
        w = w - 0.3 * np.asarray(FEDERATION.grad(jnp.asarray(w)))
        want.append(w)
    np.testing.assert_allclose(models(fl.FedAvg(), fl.GD(0.3, 1)), want, rtol=0, atol=1e-10)


def test_fedadam_without_memory_is_a_normalised_step():
    """beta1 = beta2 = 0: w + lr * delta / (|delta| + tau), coordinate by coordinate."""
    algorithm = fl.FedAdam(lr=0.1, beta1=0.0, beta2=0.0, tau=0.5)
    delta = models(fl.FedAvg(), GD, rounds=1)[0] - W
    np.testing.assert_allclose(
        models(algorithm, GD, rounds=1)[0], W + 0.1 * delta / (np.abs(delta) + 0.5), rtol=0, atol=1e-12
    )


def test_feddyn_differs_from_feddr_with_partial_participation():
    """The equality holds with everyone only; a test that could not fail would miss this."""
    a, b = (models(m, EXACT, uniform(3)) for m in (fl.FedDyn(0.5), fl.FedDR(2.0, 1.0)))
    assert np.abs(a - b).max() > 0.01


def memories(algorithm, solver, cohort, rounds=6):
    """The record and model before and after each round, with all client memories copied out."""
    w = W
    for record in fl.simulate(algorithm, FEDERATION, solver, W, rounds, cohort=cohort):
        yield w, record, {k: jax.tree.map(np.asarray, record.clients[k]) for k in record.cohort[0].tolist()}
        w = record.w


def test_feddyn_onegd_remembers_the_last_gradient():
    for w, _, memory in memories(fl.FedDynOneGD(3.0), EXACT, uniform(3)):
        for k, g in memory.items():
            np.testing.assert_allclose(g, FEDERATION.objective(k).grad(w), rtol=0, atol=1e-10)


def test_feddyn_onegd_is_an_extrapolated_gradient_step():
    """With everyone: theta <- theta - (2 gbar_t - gbar_{t-1}) / alpha with gbar_{-1} = 0 (identity 4)."""
    alpha, w, old, want = 3.0, W, 0.0, []
    for _ in range(12):
        g = FEDERATION.grad(w)
        w, old = w - (2 * g - old) / alpha, g
        want.append(w)
    np.testing.assert_allclose(models(fl.FedDynOneGD(alpha), EXACT), np.array(want), rtol=0, atol=1e-10)


def test_scaffold_II_remembers_the_mean_of_local_gradients():
    """c_k+ is the mean gradient at the iterates of the corrected local steps, whatever c and c_k were (identity 5)."""
    lr, steps = 0.1, 4
    c, known = np.zeros(4), {}
    for w, record, memory in memories(fl.Scaffold(), fl.GD(lr, steps), uniform(3)):
        for k, m in memory.items():
            v, gradients = np.asarray(w), []
            for _ in range(steps):
                gradients.append(np.asarray(FEDERATION.objective(k).grad(jnp.asarray(v))))
                v = v - lr * (gradients[-1] + c - known.get(k, np.zeros(4)))
            np.testing.assert_allclose(m.c, np.mean(gradients, axis=0), rtol=0, atol=1e-10)
        c = np.asarray(record.server.c)
        known |= {k: m.c for k, m in memory.items()}


def test_feddane_with_identical_clients_is_a_proximal_step():
    """Then g = grad F_k(w), the correction vanishes, and w+ = prox_{F/mu}(w)."""
    one = fl.quadratics(clients=1, dimension=4, seed=4)
    a, b = np.asarray(one.hessians[0]), np.asarray(one.centers[0])
    w, want, mu = np.asarray(W), [], 0.7
    for _ in range(5):
        w = np.linalg.solve(a + mu * np.eye(4), a @ b + mu * w)
        want.append(w)
    np.testing.assert_allclose(models(fl.FedDANE(mu), EXACT, None, 5, one), want, rtol=0, atol=1e-10)


def test_feddane_with_everyone_is_dane():
    """On quadratics DANE has a closed form: w+ = w - sum_k p_k (A_k + mu I)^{-1} grad f(w)."""
    a, p, mu = np.asarray(FEDERATION.hessians), FEDERATION.weights, 0.7
    w, want = np.asarray(W), []
    for _ in range(12):
        g = np.asarray(FEDERATION.grad(jnp.asarray(w)))
        w = w - sum(p[k] * np.linalg.solve(a[k] + mu * np.eye(4), g) for k in range(len(p)))
        want.append(w)
    np.testing.assert_allclose(models(fl.FedDANE(mu), EXACT), want, rtol=0, atol=1e-10)


def test_feddr_with_one_client_is_the_relaxed_proximal_point_method():
    """One client, g = 0: w = 2x - y, so y+ = y + alpha (x - y) and x = prox(y)."""
    one = fl.quadratics(clients=1, dimension=4, seed=4)
    a, b = np.asarray(one.hessians[0]), np.asarray(one.centers[0])
    eta, alpha, x, y, want = 2.0, 1.5, np.asarray(W), np.asarray(W), []
    for _ in range(8):
        y = y + alpha * (x - y)
        x = np.linalg.solve(eta * a + np.eye(4), eta * a @ b + y)
        want.append(2 * x - y)
    np.testing.assert_allclose(models(fl.FedDR(eta, alpha), EXACT, None, 8, one), want, rtol=0, atol=1e-10)


def test_admm_oracle():
    """FedPD is consensus ADMM: an independent ADMM in scaled form gives the same consensus variable."""
    eta, n = 2.0, FEDERATION.clients
    a, b, p = (np.asarray(x) for x in (FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights))
    z, u, want = np.asarray(W), np.zeros((n, 4)), []
    for _ in range(12):
        x = np.array([np.linalg.solve(a[k] + np.eye(4) / eta, a[k] @ b[k] + (z - u[k]) / eta) for k in range(n)])
        u = u + x - z
        z = p @ (x + u)
        want.append(z)
    np.testing.assert_allclose(models(fl.FedPD(eta), EXACT), want, rtol=0, atol=1e-10)
