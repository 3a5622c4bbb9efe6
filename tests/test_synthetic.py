"""Synthetic data against their description: sizes, labels, means, covariances."""

import numpy as np
import pytest

from fedloom.data import feddyn_synthetic, synthetic
from fedloom.tasks import TASKS

MANY = synthetic(0.5, 2.0, clients=400, features=6, classes=3, seed=1)


def client_rows(data, k):
    x, y = (np.asarray(a) for a in data.train)
    rows = data.split.rows(k)
    return x[rows], y[rows]


def test_the_published_shape():
    data = synthetic(1, 1)
    assert data.clients == 30
    assert data.train[0].shape[1] == 60
    assert data.classes == 10
    total = data.split.sizes + data.test_split.sizes
    np.testing.assert_array_equal(data.split.sizes, (0.9 * total).astype(int))
    assert total.min() >= 50


def test_sizes_are_lognormal_plus_50():
    """log(n - 50) is N(4, 2^2), up to rounding down: its median is 4, its quartiles 4 -+ 0.6745 * 2."""
    many = synthetic(0, 0, clients=4000, features=2, classes=2, seed=0)
    total = many.split.sizes + many.test_split.sizes
    logs = np.log(total - 50 + 0.5)
    np.testing.assert_allclose(np.quantile(logs, [0.25, 0.5, 0.75]), 4 + 2 * np.array([-0.6745, 0, 0.6745]), atol=0.12)


# Of the authors' test files: all examples, the largest user's, and the first three users'.
FILES = {
    "iid": ((None, None), 805, 360, [6, 9, 9]),
    "0-0": ((0, 0), 897, 169, [58, 5, 6]),
    "0.5-0.5": ((0.5, 0.5), 912, 465, [5, 7, 40]),
    "1-1": ((1, 1), 1084, 662, [8, 18, 9]),
}


@pytest.mark.parametrize("kind", FILES)
def test_the_authors_sizes(kind):
    """Every user has as many test examples as in the authors' file, if int(0.9 n) of its n are for training."""
    levels, total, largest, first = FILES[kind]
    for name in (f"synthetic-{kind}-authors", f"feddr-synthetic-{kind}-authors"):
        data = TASKS[name].data(3)
        tests = data.test_split.sizes
        assert (tests.sum(), tests.max(), tests[:3].tolist(), len(tests)) == (total, largest, first, 30)
        n = data.split.sizes + tests
        np.testing.assert_array_equal(tests, n - (0.9 * n).astype(int))
        assert n.min() >= 45  # the authors' formula gives at least 50; ours is within 5
        np.testing.assert_array_equal(data.train[0], synthetic(*levels, sizes="authors", seed=3).train[0])
    assert TASKS[f"synthetic-{kind}-authors"].settings == TASKS[f"synthetic-{kind}"].settings
    other, usual = synthetic(*levels, sizes="authors", seed=4), TASKS[f"synthetic-{kind}"].data(3)
    assert other.split.sizes.tolist() == data.split.sizes.tolist()
    assert not np.array_equal(other.train[0], data.train[0])
    assert usual.split.sizes.tolist() != data.split.sizes.tolist()


def test_inputs_have_covariance_j_to_the_minus_1_2():
    x = np.concatenate([rows - rows.mean(0) for rows in (client_rows(MANY, k)[0] for k in range(MANY.clients))])
    covariance = np.cov(x.T)
    np.testing.assert_allclose(np.diag(covariance), np.arange(1.0, 7) ** -1.2, rtol=0.05)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 0.02


def test_beta_is_the_standard_deviation_of_the_clients_centers():
    """v_k = B_k + N(0, 1) with B_k ~ N(0, beta): variance beta^2 + 1 for a coordinate, covariance beta^2 for two."""
    centers = np.array([client_rows(MANY, k)[0].mean(0) for k in range(MANY.clients)])
    covariance = np.cov(centers.T)
    off_diagonal = covariance[~np.eye(6, dtype=bool)]
    np.testing.assert_allclose(off_diagonal.mean(), 4.0, rtol=0.25)
    np.testing.assert_allclose(np.diag(covariance).mean() - off_diagonal.mean(), 1.0, atol=0.25)


def separable(x, y, classes):
    """Is y the argmax of an affine function of x? A perceptron stops on separable data, and only there."""
    z = np.hstack([x, np.ones((len(x), 1))])
    w = np.zeros((z.shape[1], classes))
    for _ in range(3000):
        wrong = np.flatnonzero(np.argmax(z @ w, axis=1) != y)
        if len(wrong) == 0:
            return True
        for i in wrong:
            guess = np.argmax(z[i] @ w)
            if guess != y[i]:
                w[:, y[i]] += z[i]
                w[:, guess] -= z[i]
    return False


def test_labels_are_the_argmax_of_each_clients_own_rule():
    """Labels drawn from a softmax, a common slip, would not be separable."""
    checked = 0
    for k in np.flatnonzero(MANY.split.sizes < 60)[:20]:
        x, y = client_rows(MANY, k)
        assert separable(x, y, 3)
        checked += len(set(y)) > 1
    assert checked > 5  # one class alone is always separable


def test_clients_have_different_rules_unless_alpha_is_none():
    shared = synthetic(None, 0, clients=5, features=4, classes=3, sizes=np.full(5, 80), seed=2)
    own = synthetic(0, 0, clients=5, features=4, classes=3, sizes=np.full(5, 80), seed=2)
    assert separable(np.asarray(shared.train[0]), np.asarray(shared.train[1]), 3)
    assert not separable(np.asarray(own.train[0]), np.asarray(own.train[1]), 3)


def test_iid_inputs_have_mean_zero():
    data = synthetic(None, None, clients=50, features=3, classes=2, sizes=np.full(50, 1000), seed=0)
    centers = [client_rows(data, k)[0].mean(0) for k in range(50)]
    assert np.abs(centers).max() < 0.2


def test_alpha_changes_no_label():
    """u_k shifts the weights of all classes alike, so that it cancels in the argmax; the docstring says so."""
    a, b = (synthetic(alpha, 1, clients=50, features=5, classes=4, seed=5) for alpha in (0, 9))
    np.testing.assert_array_equal(a.train[0], b.train[0])
    np.testing.assert_array_equal(a.train[1], b.train[1])


def test_the_seed_determines_everything():
    a, b, c = (synthetic(1, 1, seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(a.train[0], b.train[0])
    np.testing.assert_array_equal(a.test[1], b.test[1])
    assert a.split.sizes.tolist() != c.split.sizes.tolist()


def test_feddyn_homogeneous():
    data = feddyn_synthetic()
    assert data.split.sizes.tolist() == [200] * 20
    assert data.train[0].shape == (4000, 30)
    assert data.classes == 5
    assert data.test is data.train
    assert np.abs([client_rows(data, k)[0].mean(0) for k in range(20)]).max() < 0.35
    assert separable(np.asarray(data.train[0])[:600], np.asarray(data.train[1])[:600], 5)


def test_feddyn_types_change_one_thing_each():
    rules, inputs, quantities = (feddyn_synthetic(**{t: 1.0}, seed=1) for t in ("rules", "inputs", "quantities"))
    spread = [
        np.std([client_rows(d, k)[0].mean(0) for k in range(20)], axis=0).mean() for d in (rules, inputs, quantities)
    ]
    assert spread[1] > 5 * max(spread[0], spread[2])
    assert not separable(np.asarray(rules.train[0])[:400], np.asarray(rules.train[1])[:400], 5)
    assert rules.split.sizes.tolist() == inputs.split.sizes.tolist() == [200] * 20
    many = feddyn_synthetic(quantities=0.7, clients=3000, features=2, classes=2).split.sizes
    np.testing.assert_allclose(np.std(np.log(many)), 0.7, rtol=0.05)
    np.testing.assert_allclose(np.median(many), 200, rtol=0.05)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: synthetic(-1, 0), "alpha must be None or a non-negative number"),
        (lambda: synthetic(0, float("nan")), "beta must be"),
        (lambda: synthetic(0, 0, sizes=np.full(30, 1)), "sizes must have an integer of at least 2"),
        (lambda: synthetic(0, 0, sizes=np.full(30, 5.5)), "sizes must have an integer of at least 2"),
        (lambda: synthetic(0, 0, clients=0), "clients must be a positive integer"),
        (lambda: synthetic(0, 0, seed=-1), "seed must be a non-negative integer"),
        (lambda: feddyn_synthetic(mean_size=-5), "mean_size must be a positive integer"),
        (lambda: synthetic(0, 0, sizes=np.full(3, 10)), "for each of 30 clients"),
        (lambda: synthetic(0, 0, sizes="authors", clients=20), "for each of 20 clients, or be 'authors'"),
        (lambda: synthetic(0, 0, sizes="autors"), "for each of 30 clients, or be 'authors'"),
        (lambda: synthetic(0, 1, sizes="authors"), r"files for .*\(0.5, 0.5\), \(1, 1\), not for \(0, 1\)"),
        (lambda: feddyn_synthetic(quantities=-0.1), "quantities must be"),
    ],
)
def test_bad_input_raises_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
