"""Measured constants against closed forms, dense Hessians and enumerated minibatches, all in NumPy."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.data.split import Split
from fedloom.theory import constants, curvature, gradients, optimum
from tests.federations import least_squares

NUMBERS = ("L", "L_f", "mu", "rho", "sigma_l", "sigma_g", "sigma_g_mean", "B", "G", "D", "gap")
ARRAYS = ("L_k", "sigma_l_j", "sigma_g_j")


def values(found):
    return {name: getattr(found, name).value for name in NUMBERS}


# Quadratics


QUADRATICS = fl.quadratics(clients=7, dimension=4, seed=3)
W = np.array([2.0, -1.0, 0.5, 3.0])


def test_quadratics_have_closed_forms():
    p, a, b = (np.asarray(x) for x in (QUADRATICS.weights, QUADRATICS.hessians, QUADRATICS.centers))
    found = constants(QUADRATICS, W)
    eigenvalues = np.array([np.linalg.eigvals(h).real for h in a])
    mean_hessian = sum(p_k * h for p_k, h in zip(p, a, strict=True))
    g = np.array([h @ (W - c) for h, c in zip(a, b, strict=True)])
    mean = p @ g
    best = np.linalg.solve(mean_hessian, sum(p_k * h @ c for p_k, h, c in zip(p, a, b, strict=True)))

    def f(w):
        return sum(p_k / 2 * (w - c) @ h @ (w - c) for p_k, h, c in zip(p, a, b, strict=True))

    expected = {
        "L": eigenvalues.max(),
        "L_f": np.linalg.norm(mean_hessian, 2),
        "mu": eigenvalues.min(),
        "rho": 0,
        "sigma_l": 0,
        "sigma_g": max(np.linalg.norm(x - mean) for x in g),
        "sigma_g_mean": np.sqrt(sum(p_k * np.sum((x - mean) ** 2) for p_k, x in zip(p, g, strict=True))),
        "B": np.sqrt(sum(p_k * x @ x for p_k, x in zip(p, g, strict=True))) / np.linalg.norm(mean),
        "G": np.abs(g).max(),
        "D": np.linalg.norm(W - best),
        "gap": f(W) - f(best),
    }
    assert values(found) == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert all(getattr(found, name).error < 1e-12 for name in NUMBERS)
    np.testing.assert_allclose(found.L_k, eigenvalues.max(axis=1), rtol=1e-8)
    np.testing.assert_allclose(found.sigma_g_j, np.sqrt(p @ (g - mean) ** 2), rtol=1e-8)
    np.testing.assert_array_equal(found.sigma_l_j, np.zeros(4))
    np.testing.assert_array_equal(found.weights, p)
    assert (found.clients, found.dimension) == (7, 4)
    assert found.everywhere == {"L", "L_k", "L_f", "mu", "rho"}
    assert found.notes == ()


def test_quadratics_that_are_not_convex():
    shifted = np.asarray(QUADRATICS.hessians) - 0.5 * np.eye(4)
    found = constants(dataclasses.replace(QUADRATICS, hessians=shifted), W)
    eigenvalues = np.linalg.eigvalsh(shifted)
    assert found.rho.value == pytest.approx(-eigenvalues.min(), rel=1e-8)
    assert found.L.value == pytest.approx(np.abs(eigenvalues).max(), rel=1e-8)
    assert found.mu == (0, 0)
    assert np.isnan(found.D.value)
    assert np.isnan(found.gap.value)
    assert "no unique minimum" in found.notes[0]


def test_dissimilarity_is_infinite_at_the_optimum_of_heterogeneous_clients():
    same = dataclasses.replace(QUADRATICS, centers=np.zeros((7, 4)))
    assert constants(same, np.zeros(4)).B.value == 1
    one = jax.tree.map(lambda x: np.asarray(x)[:2], QUADRATICS)
    opposite = dataclasses.replace(
        one, hessians=np.stack([np.eye(4)] * 2), centers=np.stack([W, -W]), weights=np.array([0.5, 0.5])
    )
    assert constants(opposite, np.zeros(4)).B.value == np.inf


# Logistic regression


def classification(features, classes, sizes=(30, 50, 20), seed=0):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(owner), features)) * (1 + owner)[:, None]
    return x, rng.integers(0, classes, len(owner)), owner


def softmax_hessian(x, w, classes):
    """The mean of x x^T (x) (diag(p) - p p^T), for inputs with a last column of ones; W is [features + 1, classes]."""
    logits = x @ w
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    c = np.einsum("ij,jk->ijk", p, np.eye(classes)) - np.einsum("ij,ik->ijk", p, p)
    d = x.shape[1] * classes
    return np.einsum("ia,ib,ijk->ajbk", x, x, c).reshape(d, d) / len(x)


def with_ones(x):
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def in_rows(task, w):
    """The parameters as [features + 1, classes]: weights, then biases."""
    params = task.federation.unravel(jnp.asarray(w))
    matrices = {np.ndim(leaf): np.asarray(leaf) for leaf in jax.tree.leaves(params)}
    return np.concatenate([matrices[2].T, matrices[1][None]])


@pytest.mark.parametrize(("features", "classes"), [(6, 3), (60, 5)], ids=["dense", "lanczos"])
def test_logistic_regression_agrees_with_dense_hessians(features, classes):
    x, y, owner = classification(features, classes)
    task = fl.Task("t", fl.by_client(x, y, owner, test=0), fl.models.logistic(features, classes)).load()
    w = jnp.asarray(np.random.default_rng(1).normal(size=task.w.size) * 0.1)
    ones, rows = with_ones(x), in_rows(task, w)
    h = [softmax_hessian(ones[owner == k], rows, classes) for k in range(3)]
    each = [np.linalg.eigvalsh(one) for one in h]
    mean = np.linalg.eigvalsh(sum(p * one for p, one in zip(task.federation.weights, h, strict=True)))

    found = constants(task.federation, w)
    for k in range(3):
        assert found.L_k[k] == pytest.approx(each[k][-1], rel=1e-6)
    assert abs(found.L.value - max(e[-1] for e in each)) <= found.L.error <= 1e-5 * found.L.value
    assert abs(found.L_f.value - mean[-1]) <= found.L_f.error <= 1e-2 * found.L_f.value
    # Adding the same to all logits changes nothing, so that the Hessian has eigenvalues 0.
    assert found.mu.value == found.rho.value == 0
    assert found.mu.error <= 0.02 * found.L.value
    assert found.everywhere == frozenset()

    bound = constants(task, w)
    second_moments = [np.linalg.eigvalsh(ones[owner == k].T @ ones[owner == k] / sum(owner == k))[-1] for k in range(3)]
    np.testing.assert_allclose(bound.L_k, np.array(second_moments) / 2, rtol=2e-2 if features > 6 else 1e-8)
    assert np.all(bound.L_k >= np.array(second_moments) / 2 - 1e-12)
    assert bound.L.value - bound.L.error == pytest.approx(found.L.value, rel=1e-12)
    assert bound.everywhere == {"L", "L_k", "L_f", "mu", "rho"}
    assert bound.mu == bound.rho == (0, 0)


def test_a_network_has_no_constants_for_all_w():
    x, y, owner = classification(4, 3)
    task = fl.Task("t", fl.by_client(x, y, owner, test=0), fl.models.mlp(4, 5, 3)).load()
    found = constants(task)
    assert found.everywhere == frozenset()
    assert found.rho.value > 0
    f = float(task.federation.loss(task.w))
    assert found.gap == pytest.approx((f, f))  # between 0 and f(w0)
    assert np.isnan(found.D.value)
    w = task.w - 0.01 * task.federation.grad(task.w)
    assert constants(task, task.w, w).gap == pytest.approx((f, float(task.federation.loss(w))))


def test_sigmoid_and_squares_hold_everywhere_too():
    x, y, owner = classification(4, 2)
    data = fl.by_client(x, y, owner, test=0)
    ones = with_ones(x)
    moment = max(np.linalg.eigvalsh(ones[owner == k].T @ ones[owner == k] / sum(owner == k))[-1] for k in range(3))
    sigmoid = fl.Task(
        "t", data, fl.models.logistic(4, 1), fl.metrics.binary_cross_entropy, (fl.metrics.binary_accuracy,)
    )
    assert constants(sigmoid).L.value == pytest.approx(moment / 4, rel=1e-6)
    squares = fl.Task("t", data, fl.models.logistic(4, 1), fl.metrics.squared_error, ())
    found = constants(squares)
    assert found.L.value == pytest.approx(2 * moment, rel=1e-6)
    assert found.mu.value > 0
    assert "mu" in found.everywhere


# Minibatches


SIZES = (3, 9, 1, 6, 5)


def single_gradients(w):
    """Of every example of every client of `least_squares`."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(sum(SIZES), 4)), rng.normal(size=sum(SIZES))
    g = x * (x @ w - y)[:, None] + 0.1 * w
    return np.split(g, np.cumsum(SIZES)[:-1])


@pytest.mark.parametrize("b", [1, 2, 5])
def test_the_variance_of_minibatches_agrees_with_enumeration(b):
    federation, w = least_squares(SIZES), np.array([0.3, -1.0, 0.5, 2.0])
    variances, largest = [], 0.0
    for g in single_gradients(w):
        every = np.array([g[list(rows)].mean(axis=0) for rows in itertools.combinations(range(len(g)), min(b, len(g)))])
        variances.append(np.mean((every - g.mean(axis=0)) ** 2, axis=0))
        largest = max(largest, np.abs(every).max())
    found = constants(federation, w, solver=fl.SGD(batch_size=b))
    assert found.sigma_l.value == pytest.approx(np.sqrt(max(v.sum() for v in variances)), rel=1e-10)
    assert found.sigma_l.error == 0
    np.testing.assert_allclose(found.sigma_l_j, np.sqrt(federation.weights @ np.array(variances)), rtol=1e-10)
    assert found.G.value <= largest <= found.G.value + found.G.error


def test_without_minibatches_there_is_no_noise():
    federation, w = least_squares(SIZES), np.ones(4)
    for solver in (None, fl.GD(), fl.SGD(batch_size=None), fl.SGD(batch_size=9)):
        found = constants(federation, w, solver=solver)
        assert found.sigma_l == (0, 0)
        assert found.G.value == pytest.approx(max(np.abs(g.mean(axis=0)).max() for g in single_gradients(w)))
        assert found.G.error == 0


def test_a_tasks_own_batch_size_is_the_default():
    setting = fl.tasks.Setting(fl.FedAvg(), fl.SGD(batch_size=4), fl.cohorts.everyone(), 1)
    x, y, owner = classification(4, 3)
    data = fl.by_client(x, y, owner, test=0)
    task = fl.Task("t", data, fl.models.logistic(4, 3), settings={"usual": {"fedavg": setting}}).load()
    assert constants(task).sigma_l == constants(task, solver=fl.SGD(batch_size=4)).sigma_l
    assert constants(task).sigma_l.value > constants(task, solver=fl.SGD(batch_size=20)).sigma_l.value > 0


def test_drawn_minibatches_agree_within_their_error(monkeypatch):
    federation, w = least_squares((40, 60, 20)), np.array([0.3, -1.0, 0.5, 2.0])
    solver = fl.SGD(batch_size=4)
    exact = constants(federation, w, solver=solver)
    monkeypatch.setattr(gradients, "SINGLE", 0)
    monkeypatch.setattr(gradients, "BATCHES", 2000)
    drawn = constants(federation, w, solver=solver)
    assert 0 < drawn.sigma_l.error < 0.05 * drawn.sigma_l.value
    assert abs(drawn.sigma_l.value - exact.sigma_l.value) < 4 * drawn.sigma_l.error
    np.testing.assert_allclose(drawn.sigma_l_j, exact.sigma_l_j, rtol=0.1)
    assert exact.G.value <= drawn.G.value <= exact.G.value + exact.G.error
    assert "from 2000 minibatches of each of all 3 clients" in drawn.notes[0]


def test_dropout_is_noise():
    def loss(w, rows, key):
        keep = 1.0 if key is None else 2.0 * jax.random.bernoulli(key, 0.5, rows.shape)
        return jnp.sum(rows * keep * w[None], axis=1)

    x = np.random.default_rng(1).normal(size=(6, 3))
    federation = fl.examples(x, [6], loss)
    found = constants(federation, np.zeros(3))
    assert found.sigma_l.value == pytest.approx(np.linalg.norm(x) / 6, rel=0.3)  # coins of variance 1
    assert "minibatches" in found.notes[0]


def test_a_coupled_loss():
    """The largest of the rows' numbers: no mean over rows."""

    def largest(w, rows, mask, key):
        return jnp.max(jnp.where(mask, rows @ w, -jnp.inf)) + w @ w

    x, w = np.array([[1.0, 0.0], [0.0, 3.0], [0.5, 0.5], [2.0, 0.0]]), np.ones(2)
    found = constants(fl.examples(x, [4], fl.Coupled(largest)), w, solver=fl.SGD(batch_size=2))
    every = [max(pair, key=lambda row: row @ w) + 2 * w for pair in itertools.combinations(x, 2)]
    true = np.sqrt(np.mean([np.sum((g - (x[1] + 2 * w)) ** 2) for g in every]))
    assert abs(found.sigma_l.value - true) < 4 * found.sigma_l.error
    assert found.L.value == pytest.approx(2)
    assert found.G.value == max(np.abs(g).max() for g in every)


# The optimum


def test_distance_and_gap_of_a_convex_federation():
    federation, w = least_squares(SIZES), np.array([0.3, -1.0, 0.5, 2.0])
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(sum(SIZES), 4)), rng.normal(size=sum(SIZES))
    best = np.linalg.solve(x.T @ x / len(y) + 0.1 * np.eye(4), x.T @ y / len(y))

    def f(w):
        return np.mean((x @ w - y) ** 2) / 2 + 0.05 * w @ w

    found = constants(federation, w)
    assert abs(found.D.value - np.linalg.norm(w - best)) <= found.D.error + 1e-12 < 1e-7
    assert abs(found.gap.value - (f(w) - f(best))) <= found.gap.error + 1e-12 < 1e-12 + 1e-12


def test_too_much_work_is_not_begun(monkeypatch):
    monkeypatch.setattr(optimum, "WORK", 10)
    found = constants(least_squares(SIZES), np.ones(4))
    assert np.isnan(found.gap.value)
    assert "would take too long" in found.notes[-1]


# What must not matter, and several points


def renumbered(federation, new):
    """Client k becomes new[k]."""
    old = np.argsort(new)
    own = Split(np.arange(int(federation.sizes.sum())), federation.sizes)
    split = own.take(old)
    return fl.examples(federation.store, split, federation.loss_of, federation.unravel, federation.weights[old])


@pytest.mark.parametrize("way", ["exact", "sampled"])
def test_numbers_and_chunks_of_clients_do_not_matter(way, monkeypatch):
    federation, w = least_squares((30, 50, 20, 35, 10)), np.array([0.3, -1.0, 0.5, 2.0])
    federation = dataclasses.replace(federation, weights=np.array([0.1, 0.3, 0.2, 0.15, 0.25]))
    if way == "sampled":
        for module, name, value in ((gradients, "SINGLE", 0), (curvature, "DENSE", 0), (curvature, "WORK", 2000)):
            monkeypatch.setattr(module, name, value)
        monkeypatch.setattr(curvature, "OVERHEAD", 0)
        monkeypatch.setattr(gradients, "DRAWN", 2 * 32 * 4 * 4)
        monkeypatch.setattr(gradients, "AT_ONCE", 8)
    new = np.array([3, 0, 4, 1, 2])
    solver = fl.SGD(batch_size=4)
    one = constants(federation, w, solver=solver)
    measured = 5 if way == "exact" else 4
    assert np.sum(~np.isnan(one.L_k)) == measured
    for other, order in ((renumbered(federation, new), new), (dataclasses.replace(federation, width=7), np.arange(5))):
        found = constants(other, w, solver=solver)
        assert values(found) == pytest.approx(values(one), rel=1e-8, abs=1e-10)
        for name in ARRAYS:
            mine, theirs = getattr(one, name), getattr(found, name)
            np.testing.assert_allclose(theirs[order] if name == "L_k" else theirs, mine, rtol=1e-8)


def test_some_of_many_clients(monkeypatch):
    """A few clients, and few steps on f: the errors stay honest."""
    federation = fl.quadratics(clients=40, dimension=20, seed=1)
    plain = _Plain(federation, federation.weights)
    monkeypatch.setattr(curvature, "DENSE", 0)
    monkeypatch.setattr(curvature, "OVERHEAD", 0)
    monkeypatch.setattr(curvature, "WORK", 4 * 40 * 20)  # 4 products with the Hessian of f
    found = constants(plain, np.ones(20))
    looked = ~np.isnan(found.L_k)
    assert 2 <= looked.sum() < 40
    assert "of 40 clients" in found.notes[0]
    true = np.linalg.eigvalsh(federation.hessians)[:, -1]
    np.testing.assert_allclose(found.L_k[looked], true[looked], rtol=1e-8)  # 20 steps span everything
    of_f = np.linalg.eigvalsh(np.einsum("k,kij->ij", federation.weights, federation.hessians))
    assert np.abs(of_f - found.L_f.value).min() <= found.L_f.error
    assert found.L_f.value == pytest.approx(of_f[-1], abs=found.L_f.error)
    more = constants(plain, np.ones(20), effort=2)
    assert np.sum(~np.isnan(more.L_k)) > looked.sum()


@fl.frozen
class _Plain(fl.Federation):
    """Quadratics as clients of one's own, of which nothing is known."""

    inner: object
    weights: object

    def objective(self, k):
        return self.inner.objective(k)


def test_the_smallest_eigenvalue_by_lanczos(monkeypatch):
    shifted = dataclasses.replace(QUADRATICS, hessians=np.asarray(QUADRATICS.hessians) - 0.5 * np.eye(4))
    # One step finds all that there is to this one, and more steps must not add an eigenvalue 0.
    round_one = dataclasses.replace(QUADRATICS, hessians=np.stack([k * np.eye(4) for k in range(2, 9)]))
    monkeypatch.setattr(curvature, "DENSE", 0)
    for federation in (QUADRATICS, shifted, round_one):
        expected, found = constants(federation, W), constants(_Plain(federation, federation.weights), W)
        for name in ("L", "L_f", "mu", "rho"):
            assert getattr(found, name).value == pytest.approx(getattr(expected, name).value, rel=1e-8, abs=1e-10)


def test_lanczos_basis_stays_orthogonal():
    """Else the largest eigenvalue would be found again and again in place of others."""
    h = jnp.asarray(np.diag(np.geomspace(1, 1e8, 60)))
    start = jnp.ones(60) / np.sqrt(60)
    alpha, beta, basis = curvature.lanczos(lambda v: h @ v, start, 40)
    np.testing.assert_allclose(basis @ basis.T, np.eye(40), atol=1e-12)
    t = np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1)
    np.testing.assert_allclose(basis @ h @ basis.T, t, atol=1e-6)  # of 1e8


def test_the_worst_over_a_trajectory():
    x, y, owner = classification(4, 3)
    task = fl.Task("t", fl.by_client(x, y, owner, test=0), fl.models.mlp(4, 5, 3)).load()
    solver = fl.SGD(batch_size=4)
    points = [r.w for r in fl.simulate(fl.FedAvg(), task.federation, solver, task.w, rounds=3)]
    each, together = [constants(task, w, solver=solver) for w in points], constants(task, *points, solver=solver)
    for name in (*NUMBERS[:2], *NUMBERS[3:9]):
        assert getattr(together, name).value == max(getattr(one, name).value for one in each)
    assert together.mu.value == min(one.mu.value for one in each)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(together, name), np.max([getattr(one, name) for one in each], axis=0))
    assert together.gap.value == each[0].gap.value == float(task.federation.loss(task.w))  # of the start


def test_the_worst_knows_what_is_uncertain():
    weights = np.ones(1)
    sure = fl.theory.Constants(weights, 1, L=fl.theory.Measured(2.0, 0.1), mu=fl.theory.Measured(0.5, 0.0))
    unsure = fl.theory.Constants(weights, 1, L=fl.theory.Measured(1.9, 1.0), mu=fl.theory.Measured(0.6, 0.3))
    found = fl.theory.worst([sure, unsure])
    assert (found.L.value, found.L.error) == pytest.approx((2.0, 0.9))
    assert (found.mu.value, found.mu.error) == pytest.approx((0.5, 0.2))
    assert np.isnan(found.B.value)


# Wrong inputs


@pytest.mark.parametrize(
    ("arguments", "keywords", "sentence"),
    [
        ((7,), {}, "where must be the name of a task, a task or a federation, got a int"),
        (("no-such-task",), {}, "There is no task 'no-such-task'"),
        ((QUADRATICS,), {}, "A federation has no initial model: give a point"),
        ((QUADRATICS, np.ones((2, 4))), {}, "Point 0 must be a flat vector"),
        ((QUADRATICS, W, np.ones(3)), {}, r"Point 1 must be a flat vector of 4 parameters, got shape \(3,\)"),
        ((QUADRATICS, "w"), {}, "Point 0 must be a flat vector"),
        ((QUADRATICS, np.ones(3)), {}, "Point 0 has 3 parameters, which do not fit the federation"),
        ((QUADRATICS, W * np.nan), {}, "Point 0 has entries that are not finite"),
        ((QUADRATICS, W), {"effort": 0}, "effort must be a positive number"),
        ((QUADRATICS, W), {"seed": -1}, "seed must be an integer"),
        ((QUADRATICS, W), {"solver": 10}, "solver must be a solver such as"),
    ],
)
def test_wrong_inputs_are_explained(arguments, keywords, sentence):
    with pytest.raises(ValueError, match=sentence):
        constants(*arguments, **keywords)
