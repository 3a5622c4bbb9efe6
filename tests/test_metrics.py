"""Metrics against plain NumPy: of a batch, a test set, by client, with each client's own model; population figures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import metrics, regularizers
from fedloom.metrics import evaluation, scored
from tests.federations import FEDERATION

RNG = np.random.default_rng(0)


def ratio(metric, outputs, y):
    a, b = metric.of(jnp.asarray(outputs), jnp.asarray(y))
    assert a.shape == b.shape == (len(y),)
    return float(a.sum() / b.sum())


# One batch.


def test_accuracy():
    outputs = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    assert ratio(metrics.accuracy, outputs, np.array([1, 0, 0])) == pytest.approx(2 / 3)


def test_binary_accuracy_of_a_logit():
    assert ratio(metrics.binary_accuracy, np.array([[2.0], [-1.0], [-0.5]]), np.array([1, 0, 1])) == pytest.approx(
        2 / 3
    )


def test_token_accuracy_masks_by_target_only():
    """Three sentences of four tokens; 0 and 9 are ignored as targets, but predicting them elsewhere is wrong."""
    y = np.array([[1, 2, 9, 0], [3, 3, 3, 3], [0, 0, 0, 0]])
    predicted = np.array([[1, 0, 9, 0], [3, 9, 3, 1], [0, 0, 0, 0]])
    outputs = np.eye(10)[predicted]
    assert ratio(metrics.token_accuracy(0, 9), outputs, y) == pytest.approx(3 / 6)
    assert ratio(metrics.token_accuracy(0), outputs, y) == pytest.approx(4 / 7)
    assert ratio(metrics.token_accuracy(), outputs, y) == pytest.approx(9 / 12)


def test_recall_is_micro_averaged():
    """5 true tags, of which 2 + 0 + 1 are among the 5 highest of 7 scores; an example without tags counts nothing."""
    scores = np.array([[7, 6, 5, 4, 3, 2, 1.0]] * 4)
    y = np.array([[1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 0, 0], [0] * 7])
    assert ratio(metrics.recall_at(5), scores, y) == pytest.approx(3 / 5)


def test_recall_at_5_against_sorting():
    scores, y = RNG.normal(size=(50, 30)), RNG.random((50, 30)) < 0.1
    hits = sum(y[i, np.argsort(-scores[i])[:5]].sum() for i in range(50))
    assert ratio(metrics.recall_at(5), scores, y.astype(float)) == pytest.approx(hits / y.sum())


def test_mse_is_the_mean_over_pixels_and_examples():
    a, b = RNG.normal(size=(6, 4)), RNG.normal(size=(6, 4))
    assert ratio(metrics.mse, a, b) == pytest.approx(np.mean((a - b) ** 2))
    assert not metrics.mse.larger_is_better


def test_losses_against_numpy():
    z, y = RNG.normal(size=(5, 7)), RNG.integers(0, 7, 5)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    np.testing.assert_allclose(
        metrics.cross_entropy(jnp.asarray(z), jnp.asarray(y)), -log_p[np.arange(5), y], rtol=1e-12
    )
    t = (RNG.random((5, 7)) < 0.5) * 1.0
    p = 1 / (1 + np.exp(-z))
    want = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean(1)
    np.testing.assert_allclose(metrics.binary_cross_entropy(jnp.asarray(z), jnp.asarray(t)), want, rtol=1e-10)
    one = metrics.binary_cross_entropy(jnp.asarray(z[:, :1]), jnp.asarray(t[:, 0].astype(int)))
    np.testing.assert_allclose(one, -np.log(np.where(t[:, 0] > 0, p[:, 0], 1 - p[:, 0])), rtol=1e-10)


def test_sequence_loss_is_the_mean_over_positions():
    z, y = RNG.normal(size=(3, 4, 6)), RNG.integers(0, 6, (3, 4))
    log_p = z - np.log(np.exp(z).sum(2, keepdims=True))
    want = [-np.mean([log_p[i, t, y[i, t]] for t in range(4)]) for i in range(3)]
    np.testing.assert_allclose(metrics.cross_entropy(jnp.asarray(z), jnp.asarray(y)), want, rtol=1e-12)


# Over stores and clients: 700 rows make three chunks, the last one partial.

N, D = 700, 3
SIZES = np.array([1, 0, 299, 400])
ORDER = RNG.permutation(N)
X, Y = RNG.normal(size=(N, D)), RNG.integers(0, 2, N)
SPLIT = fl.Split(ORDER, SIZES)
W = jnp.asarray(RNG.normal(size=2 * D))


def apply(w, x, key):
    return x @ w.reshape(D, 2)


def unravel(w):
    return w


def prepare(rows, key):
    return rows


SCORE = evaluation.Scorer((metrics.loss(metrics.cross_entropy), metrics.accuracy), apply, prepare)


def right(w):
    return np.argmax(X @ np.asarray(w).reshape(D, 2), axis=1) == Y


def test_a_metric_over_a_store():
    scores = evaluation.examplewise((X, Y), W, SCORE, unravel)
    assert evaluation.total(scores)["accuracy"] == pytest.approx(right(W).mean(), abs=1e-12)
    np.testing.assert_array_equal(scores["accuracy"][0], right(W))


def test_a_metric_by_client():
    scores = evaluation.examplewise((X, Y), W, SCORE, unravel)
    values = evaluation.by_client(scores, SPLIT)["accuracy"]
    for k in (0, 2, 3):
        assert values[k] == pytest.approx(right(W)[SPLIT.rows(k)].mean(), abs=1e-12)
    assert np.isnan(values[1])  # it has no example


def test_own_models():
    models = RNG.normal(size=(4, 2 * D))
    values = evaluation.own_models((X, Y), SPLIT, models, SCORE, unravel)["accuracy"]
    for k in (0, 2, 3):
        assert values[k] == pytest.approx(right(models[k])[SPLIT.rows(k)].mean(), abs=1e-12)
    assert np.isnan(values[1])
    with pytest.raises(ValueError, match="models has 3 rows, but there are 4 clients"):
        evaluation.own_models((X, Y), SPLIT, models[:3], SCORE, unravel)


def test_a_metric_of_the_wrong_shape_is_refused():
    """Accuracy of a sequence has a number for each token, and must not be cut to the number of examples."""
    score = evaluation.Scorer((metrics.accuracy,), lambda w, x, key: jnp.zeros((len(x), 4, 2)), prepare)
    with pytest.raises(ValueError, match=r"for each of 256 examples.* sequences need token_accuracy"):
        evaluation.examplewise((X, np.zeros((N, 4), int)), W, score, unravel)


def test_a_metric_whose_denominator_is_zero_everywhere_is_nan():
    assert np.isnan(scored.Ratio(np.zeros(3), np.zeros(3)).value())


def test_large_models_are_evaluated_in_smaller_chunks():
    """The chunk changes nothing but memory: 70 rows of a model with more than a million numbers."""
    d = 2**19 + 1
    x, y = RNG.normal(size=(70, 4)), RNG.integers(0, 2, 70)
    seen = []

    def large(w, x, key):
        seen.append(len(x))
        return x @ w.reshape(d, 2)[:4]

    w = np.zeros((d, 2))
    w[:4] = RNG.normal(size=(4, 2))
    score = evaluation.Scorer((metrics.accuracy,), large, prepare)
    scores = evaluation.examplewise((x, y), jnp.asarray(w.ravel()), score, unravel)
    np.testing.assert_array_equal(scores["accuracy"][0], np.argmax(x @ w[:4], axis=1) == y)
    assert max(seen) == 32


def test_the_distribution_over_clients():
    values = np.append(np.arange(20.0), np.nan)
    assert metrics.ByClient(values, larger_is_better=True).worst_decile == 0.5
    assert metrics.ByClient(values, larger_is_better=False).worst_decile == 18.5
    assert metrics.ByClient(values, True).mean == 9.5
    assert metrics.ByClient(values, True).quantiles((0.0, 1.0)).tolist() == [0, 19]
    assert metrics.ByClient(np.array([0.3, 0.2]), True).worst_decile == 0.2  # at least one client
    nobody = metrics.ByClient(np.array([np.nan]), True)
    assert np.isnan([nobody.worst_decile, nobody.mean, nobody.quantiles(0.5), *nobody.quantiles()]).all()


# Figures of a population: quadratics have closed forms.

H, C, P = (np.asarray(a) for a in (FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights))
POINT = jnp.asarray(RNG.normal(size=C.shape[1]))
G = np.einsum("kij,kj->ki", H, np.asarray(POINT) - C)
MEAN = P @ G


def test_gradient_norm():
    assert metrics.gradient_norm(FEDERATION, POINT) == pytest.approx(np.linalg.norm(MEAN), rel=1e-12)


def test_gradient_mapping_norm():
    w = np.asarray(POINT)
    assert metrics.gradient_mapping_norm(FEDERATION, POINT) == pytest.approx(np.linalg.norm(MEAN), rel=1e-12)
    step = w - 0.3 * MEAN
    soft = np.sign(step) * np.maximum(np.abs(step) - 0.3 * 0.2, 0)
    want = np.linalg.norm(w - soft) / 0.3
    assert metrics.gradient_mapping_norm(FEDERATION, POINT, regularizers.l1(0.2), 0.3) == pytest.approx(want, rel=1e-12)
    with pytest.raises(ValueError, match="eta must be a positive number"):
        metrics.gradient_mapping_norm(FEDERATION, POINT, eta=0.0)


def test_gradient_mapping_vanishes_where_the_composite_optimum_is():
    """min over 0 <= w <= 1 of a sum of quadratics, by projected gradient descent with NumPy."""
    h, b = np.einsum("k,kij->ij", P, H), np.einsum("k,kij,kj->i", P, H, C)
    w = np.zeros(len(b))
    for _ in range(20000):
        w = np.clip(w - 0.05 * (h @ w - b), 0, 1)
    assert np.any(w == 1)
    assert np.linalg.norm(h @ w - b) > 0.01  # the plain gradient does not vanish
    assert metrics.gradient_mapping_norm(FEDERATION, jnp.asarray(w), regularizers.box(0.0, 1.0), 0.1) < 1e-9


def test_dissimilarity_and_variance():
    square = P @ np.sum(G**2, axis=1)
    assert metrics.dissimilarity(FEDERATION, POINT) == pytest.approx(np.sqrt(square) / np.linalg.norm(MEAN), rel=1e-12)
    want = P @ np.sum((G - MEAN) ** 2, axis=1)
    assert metrics.gradient_variance(FEDERATION, POINT) == pytest.approx(want, rel=1e-10)


def test_clients_alike_have_dissimilarity_1():
    alike = fl.data.Quadratics(jnp.stack([H[0]] * 3), jnp.stack([C[0]] * 3), np.full(3, 1 / 3))
    assert metrics.dissimilarity(alike, POINT) == pytest.approx(1, rel=1e-12)
    assert metrics.dissimilarity(alike, jnp.asarray(C[0])) == 1
    apart = fl.data.Quadratics(jnp.stack([jnp.eye(2)] * 2), jnp.array([[1.0, 0], [-1, 0]]), np.full(2, 0.5))
    assert metrics.dissimilarity(apart, jnp.zeros(2)) == np.inf


def test_drift_of_one_gradient_step():
    """One step of length lr takes client k from w to w - lr g_k."""
    want = 0.1 * np.sqrt(P @ np.sum(G**2, axis=1))
    assert metrics.drift(FEDERATION, fl.GD(0.1), POINT) == pytest.approx(want, rel=1e-12)


def test_drift_uses_each_clients_own_key_and_the_round():
    """Steps on one random example: with one key for all, twins would go the same way."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    twins = fl.examples(
        (np.tile(x, (2, 1)), np.tile(y, 2)), [40, 40], lambda w, rows, key: (rows[0] @ w - rows[1]) ** 2
    )
    w, solver = jnp.ones(2), fl.SGD(fl.schedules.exponential(0.05, 0.5), batch_size=1, steps=1)
    alone = fl.examples((x, y), [40], lambda w, rows, key: (rows[0] @ w - rows[1]) ** 2)
    assert metrics.drift(twins, solver, w) != pytest.approx(metrics.drift(alone, solver, w), rel=1e-6)
    assert metrics.drift(alone, solver, w, t=1) == pytest.approx(metrics.drift(alone, solver, w) / 2, rel=1e-9)


def test_consensus_error():
    models = RNG.normal(size=(5, 4))
    p = np.array([1, 2, 3, 4, 0.0])
    mean = p @ models / 10
    want = np.sqrt(sum(p[k] / 10 * np.sum((models[k] - mean) ** 2) for k in range(5)))
    assert metrics.consensus_error(models, p) == pytest.approx(want, rel=1e-12)
    assert metrics.consensus_error(np.ones((5, 4)), p) == 0
    with pytest.raises(ValueError, match="models must be"):
        metrics.consensus_error(models, p[:4])


def test_metrics_do_not_compile_again_for_the_same_task():
    traced = []

    def counting(w, x, key):
        traced.append(1)
        return apply(w, x, key)

    for _ in range(3):
        score = evaluation.Scorer((metrics.accuracy,), counting, prepare)
        jax.block_until_ready(evaluation.examplewise((X, Y), W, score, unravel))
    assert len(traced) == 1
