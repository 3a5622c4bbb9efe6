"""Metrics that are functions of all examples: against scikit-learn, overall, by client, on blocks, in experiments."""

import dataclasses
import functools
import math
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn import metrics as sk

import fedloom as fl
from fedloom import evidence, metrics
from fedloom.experiments import compare, experiment, read, resume, run, sweep
from fedloom.metrics import Metric, evaluation
from fedloom.metrics.scored import OfAll, Ratio, given_to
from fedloom.tasks.evaluated import Evaluation, check_numbers, owners_of_tests

RNG = np.random.default_rng(0)


def of(metric, y, outputs, criterion=None):
    """The metric of outputs and labels."""
    y, outputs = np.asarray(y), np.asarray(outputs)
    return OfAll(metric, y, given_to(metric, outputs, y, criterion)).value()


# The area under the ROC curve.


def test_auc_by_the_definition_and_by_scikit_learn():
    for n in (5, 40, 300):
        y = np.r_[0, 1, RNG.integers(0, 2, n)]
        scores = RNG.integers(0, 6, n + 2) / 2.0 + 0.5 * y  # with ties within and between the classes
        pairs = [1.0 * (a > b) + 0.5 * (a == b) for a in scores[y == 1] for b in scores[y == 0]]
        assert of(metrics.auc, y, scores) == pytest.approx(np.mean(pairs), abs=1e-14)
        assert of(metrics.auc, y, scores) == pytest.approx(sk.roc_auc_score(y, scores), abs=1e-14)
        assert of(metrics.auc, y, scores[:, None]) == of(metrics.auc, y, scores)
        assert of(metrics.auc, y, np.stack([scores, 2 * scores], 1)) == of(metrics.auc, y, scores)
        assert of(metrics.auc, 1 - y, scores) == pytest.approx(1 - of(metrics.auc, y, scores), abs=1e-14)


def test_auc_where_it_is_not_defined():
    assert math.isnan(of(metrics.auc, [1, 1], [0.1, 0.2]))
    assert math.isnan(of(metrics.auc, [0, 0], [0.1, 0.2]))
    assert math.isnan(of(metrics.auc, [0, 1], [np.nan, 0.2]))
    for y, outputs in (([0, 1, 2], np.eye(3)), ([0, 2], np.ones(2)), ([[0], [1]], np.ones((2, 1)))):
        with pytest.raises(ValueError, match="auc needs two classes, 0 and 1, and one logit or two scores"):
            of(metrics.auc, y, outputs)


def test_auc_tells_certain_examples_apart():
    """As probabilities, these are all 1."""
    assert of(metrics.auc, [0, 1, 0, 1], [50.0, 60.0, 70.0, 80.0]) == 0.75


# What a function is given.


def given(f, y, outputs, criterion=None, **more):
    """What f would be called with."""
    y = np.asarray(y)
    return given_to(Metric.of_all(f, **more), np.asarray(outputs), y, criterion)


def by_score(y_true, y_score): ...
def by_prob(y_true, y_prob): ...
def by_proba(y_true, y_proba): ...
def by_pred(y_true, y_pred): ...
def my_log_loss(y_true, y_pred): ...
def by_anything(y, outputs, more=0): ...


TWO, TEN, LOGIT = RNG.normal(size=(6, 2)), RNG.normal(size=(6, 10)), RNG.normal(size=6)
BINARY, TENFOLD = np.array([0, 1, 1, 0, 1, 0]), np.array([3, 9, 0, 1, 2, 5])
PROBABILITY = 1 / (1 + np.exp(-LOGIT))
SOFTMAX = np.exp(TEN) / np.exp(TEN).sum(1, keepdims=True)


@pytest.mark.parametrize("f", [by_score, by_prob, by_proba, my_log_loss])
def test_probabilities(f):
    second = np.exp(TWO[:, 1]) / np.exp(TWO).sum(1)
    np.testing.assert_allclose(given(f, BINARY, TWO), second, rtol=1e-12)
    np.testing.assert_allclose(given(f, BINARY, LOGIT), PROBABILITY, rtol=1e-12)
    np.testing.assert_allclose(given(f, BINARY, LOGIT[:, None]), PROBABILITY, rtol=1e-12)
    np.testing.assert_allclose(given(f, TENFOLD, TEN), SOFTMAX, rtol=1e-12)
    tags = (TEN > 0.5).astype(float)
    np.testing.assert_allclose(given(f, tags, TEN), 1 / (1 + np.exp(-TEN)), rtol=1e-12)


def test_labels_of_class_scores_and_outputs_of_others():
    np.testing.assert_array_equal(given(by_pred, BINARY, TWO), TWO[:, 1] > TWO[:, 0])
    np.testing.assert_array_equal(given(by_pred, BINARY, LOGIT[:, None]), LOGIT > 0)
    np.testing.assert_array_equal(given(by_pred, TENFOLD, TEN), TEN.argmax(1))
    assert given(by_pred, BINARY, LOGIT).dtype == int
    ages = np.array([30, 41, 22, 67, 35, 50])
    for y in (ages, ages / 7.0, 1.0 * BINARY - 0.5):
        np.testing.assert_array_equal(given(by_pred, y, LOGIT[:, None]), LOGIT)
    np.testing.assert_array_equal(given(by_pred, ages / 7.0, TEN), TEN)  # ten numbers of no class


def test_the_loss_says_what_outputs_mean():
    """0 and 1 are numbers to a regression, and labels to a classification that has them as floats."""
    np.testing.assert_array_equal(given(by_pred, BINARY, LOGIT, metrics.squared_error), LOGIT)
    np.testing.assert_array_equal(given(by_pred, 1.0 * BINARY, LOGIT, metrics.binary_cross_entropy), LOGIT > 0)
    np.testing.assert_array_equal(given(by_pred, BINARY, TWO, metrics.cross_entropy), TWO.argmax(1))


def test_outputs():
    np.testing.assert_array_equal(given(by_anything, TENFOLD, TEN), TEN)
    np.testing.assert_array_equal(given(by_anything, BINARY, LOGIT[:, None]), LOGIT)  # y - outputs is no matrix
    np.testing.assert_array_equal(given(by_anything, BINARY[:, None], LOGIT[:, None]), LOGIT[:, None])
    assert given(by_anything, BINARY, TWO.astype(np.float32)).dtype == float


def test_what_is_given_can_be_chosen():
    np.testing.assert_array_equal(given(by_pred, BINARY, TWO, of="outputs"), TWO)
    np.testing.assert_allclose(given(by_pred, TENFOLD, TEN, of="probabilities"), SOFTMAX, rtol=1e-12)
    np.testing.assert_array_equal(given(by_anything, BINARY, LOGIT, metrics.squared_error, of="labels"), LOGIT > 0)
    with pytest.raises(ValueError, match=r"needs probabilities, but outputs of shape \(6, 10\) are no class scores"):
        given(by_score, np.zeros((6, 3)), TEN)


def test_names_and_directions():
    assert Metric.of_all(sk.roc_auc_score).name == "roc auc score"
    assert Metric.of_all(functools.partial(sk.f1_score, average="macro")).name == "f1 score"
    assert Metric.of_all(sk.f1_score, "F").name == "F"
    assert Metric.of_all(lambda y, outputs: 0.0, "zero").given == "outputs"
    for f in (sk.brier_score_loss, sk.mean_absolute_error, sk.mean_poisson_deviance, sk.log_loss):
        assert not Metric.of_all(f, "x").larger_is_better
    assert Metric.of_all(sk.brier_score_loss, larger_is_better=True).larger_is_better
    assert Metric.of_all(sk.d2_log_loss_score).larger_is_better
    assert Metric.of_all(sk.f1_score, bounds=(0.0, 1.0)).bounds == (0, 1)
    assert Metric.of_all(sk.f1_score).bounds == (-math.inf, math.inf)
    assert Metric.of_all(sk.f1_score) == Metric.of_all(sk.f1_score)


@pytest.mark.parametrize(
    ("f", "more", "sentence"),
    [
        (3, {}, r"Metric.of_all needs a function of labels and outputs, f\(y, given\); got 3"),
        (lambda y, outputs: 0.0, {}, r"has no name; give it one: Metric.of_all\(f, 'my score'\)"),
        (sk.f1_score, {"of": "logits"}, "of must be one of outputs, probabilities, labels, got 'logits'"),
        (sk.f1_score, {"of": "labels or outputs"}, "of must be one of outputs, probabilities, labels"),
    ],
)
def test_what_is_no_metric_is_refused(f, more, sentence):
    with pytest.raises(ValueError, match=sentence):
        Metric.of_all(f, **more)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (np.ones(3), r"returned an array of shape \(3,\), but a metric must return one number"),
        (np.ones(1), r"returned an array of shape \(1,\)"),
        (jnp.ones((2, 2)), r"returned an array of shape \(2, 2\)"),
        ([np.ones(3), np.ones(2)], "returned a list of 2"),
        ((0.5, 0.2), "returned a tuple of 2"),
        ({"auc": 0.5}, "returned a dict of 1"),
        ("0.5", "returned '0.5'"),
        (None, "returned None"),
        (1j, "returned 1j"),
    ],
)
def test_what_is_no_number_is_refused(found, sentence):
    with pytest.raises(ValueError, match="Metric 'strange': its function " + sentence):
        of(Metric.of_all(lambda y, outputs: found, "strange"), BINARY, LOGIT)


@pytest.mark.parametrize("found", [1, 1.0, np.float32(1), np.array(1.0), jnp.ones(()), True])
def test_numbers_of_all_kinds(found):
    value = of(Metric.of_all(lambda y, outputs: found, "one"), BINARY, LOGIT)
    assert value == 1.0
    assert type(value) is float


def test_a_function_that_fails():
    with pytest.raises(ValueError, match=r"its function raised ValueError: multi_class must be in .*functools.partial"):
        of(Metric.of_all(sk.roc_auc_score), TENFOLD, TEN)
    assert math.isnan(of(Metric.of_all(sk.roc_auc_score), BINARY, [np.nan] * 6))  # a model that has diverged


# Over a task's examples, in one pass.

N, K = 730, 8  # both parts take two passes of 256 rows
OWNER = RNG.permutation(np.repeat(np.arange(K), [1, 10, 19, 100, 100, 100, 100, 300]))
LABELS = (RNG.random(N) < 0.4).astype(int)
LABELS[OWNER == 0], LABELS[OWNER == 1] = 1, 0  # these clients have one class only
X = RNG.normal(size=(N, 3)) + 0.7 * LABELS[:, None]
MACRO = Metric.of_all(functools.partial(sk.f1_score, average="macro"), "macro f1")
METRICS = (
    *(metrics.accuracy, metrics.auc, MACRO),
    *map(Metric.of_all, (sk.roc_auc_score, sk.average_precision_score, sk.brier_score_loss, sk.log_loss)),
)


def logit_model():
    return fl.models.Model("logit", lambda key: {"a": jnp.ones(3)}, lambda params, x, key: (x @ params["a"])[:, None])


def task(name="two outputs", chosen=METRICS, **more):
    data = fl.by_client(X, LABELS, OWNER, test=0.5)
    return fl.Task(name, data, fl.models.mlp(3, 2), metrics=chosen, **more)


def logit_task():
    binary = (metrics.binary_accuracy, *METRICS[1:])
    return dataclasses.replace(task("a logit", binary), model=logit_model(), criterion=metrics.binary_cross_entropy)


def expected(y, p):
    """Everything from the probabilities of class 1."""
    return {
        "accuracy": np.mean((p > 0.5) == y),
        "auc": sk.roc_auc_score(y, p),
        "macro f1": sk.f1_score(y, p > 0.5, average="macro"),
        "roc auc score": sk.roc_auc_score(y, p),
        "average precision score": sk.average_precision_score(y, p),
        "brier score loss": sk.brier_score_loss(y, p),
        "log loss": sk.log_loss(y, p),
    }


def probabilities(loaded, w, x):
    outputs = np.asarray(loaded.task.model.apply(loaded.task.model.unravel(w), jnp.asarray(x), None))
    logit = outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]
    return 1 / (1 + np.exp(-logit))


@pytest.mark.parametrize("make", [task, logit_task])
@pytest.mark.parametrize("part", ["train", "test"])
def test_scikit_learns_metrics_work_as_they_are(make, part, monkeypatch):
    loaded = make().load()
    w = jnp.asarray(np.random.default_rng(3).normal(size=loaded.w.shape))
    passes = []
    real = evaluation._all_rows
    monkeypatch.setattr(evaluation, "_all_rows", lambda *args: passes.append(1) or real(*args))
    found = loaded.scores(w, part)
    assert len(passes) == 1  # for all metrics
    data = loaded.data
    x, y = data.test if part == "test" else (np.asarray(a)[data.split.order] for a in data.train)
    assert {name: found[name] for name in found if name != "loss"} == pytest.approx(
        expected(np.asarray(y), probabilities(loaded, w, x)), rel=1e-9
    )
    assert found["loss"] == pytest.approx(found["log loss"], rel=1e-9)


@pytest.mark.parametrize("part", ["train", "test"])
def test_by_client_it_is_nan_where_it_is_not_defined_and_nobody_is_warned(part):
    loaded = task().load()
    w = jnp.asarray(np.random.default_rng(3).normal(size=loaded.w.shape))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = loaded.by_client(w, part)
    assert said == []
    store, split = (
        (loaded.data.test, loaded.data.test_split) if part == "test" else (*(loaded.data.train, loaded.data.split),)
    )
    for k in range(K):
        x, y = (np.asarray(a)[split.rows(k)] for a in store)
        if len(set(y)) == 2:
            values = {name: found[name].values[k] for name in found if name != "loss"}
            assert values == pytest.approx(expected(y, probabilities(loaded, w, x)), rel=1e-9)
        else:
            assert k < 3
            assert np.isnan([found[name].values[k] for name in ("auc", "roc auc score")]).all()
            assert (len(y) == 0) == np.isnan(found["accuracy"].values[k])
    assert np.isnan(found["auc"].values[:2]).all()
    assert not found["brier score loss"].larger_is_better
    assert len(found["auc"].known) < K


def test_by_client_of_a_split_in_any_order():
    split = fl.Split(RNG.permutation(60), np.array([20, 0, 40]))
    y, scores = RNG.integers(0, 2, 60), RNG.normal(size=60)
    first, second, third = OfAll(metrics.auc, y, scores).by_client(split)
    assert first == pytest.approx(sk.roc_auc_score(y[split.rows(0)], scores[split.rows(0)]))
    assert math.isnan(second)
    assert third == pytest.approx(sk.roc_auc_score(y[split.rows(2)], scores[split.rows(2)]))


def test_by_own_model():
    loaded = task().load()
    models = np.random.default_rng(4).normal(size=(K, loaded.w.size))
    for part, store, split in (
        ("train", loaded.data.train, loaded.data.split),
        ("test", loaded.data.test, loaded.data.test_split),
    ):
        found = loaded.by_own_model(models, part)
        assert loaded.by_own_model(models, part, ["auc"]).keys() == {"auc"}
        for k in range(K):
            x, y = (np.asarray(a)[split.rows(k)] for a in store)
            if len(set(y)) == 2:
                p = probabilities(loaded, jnp.asarray(models[k]), x)
                assert {name: found[name].values[k] for name in found if name != "loss"} == pytest.approx(
                    expected(y, p)
                )
            else:
                assert np.isnan(found["auc"].values[k])


def test_own_models_of_clients_that_all_have_one_class():
    y = OWNER % 2
    data = fl.by_client(X, y, OWNER, test=0.5)
    loaded = fl.Task("one class each", data, fl.models.mlp(3, 2), metrics=(metrics.auc,)).load()
    found = loaded.evaluate_own(fl.FedDR(), {})
    assert math.isnan(found["own test auc"])
    assert math.isfinite(found["own test loss"])


def test_regression():
    y = X @ np.array([1.0, 2.0, -1.0])
    model = fl.models.Model("linear", lambda key: jnp.array([1.0, 1.0, 0.0]), lambda a, x, key: (x @ a)[:, None])
    chosen = (metrics.mse, *map(Metric.of_all, (sk.mean_absolute_error, sk.r2_score, sk.max_error)))
    loaded = fl.Task(
        "ages", fl.by_client(X, y, OWNER, test=0.5), model, criterion=metrics.squared_error, metrics=chosen
    ).load()
    x, y = (np.asarray(a) for a in loaded.data.test)
    found, error = loaded.scores(loaded.w), y - x @ np.array([1.0, 1.0, 0.0])
    assert found["mse"] == pytest.approx(np.mean(error**2))
    assert found["mean absolute error"] == pytest.approx(np.mean(np.abs(error)))
    assert found["max error"] == pytest.approx(np.max(np.abs(error)))
    assert found["r2 score"] == pytest.approx(1 - np.mean(error**2) / np.var(y))


# On blocks, by the jackknife.

AS_OF_ALL = Metric.of_all(lambda y, y_pred: np.mean(y == y_pred), "accuracy", of="labels")


@pytest.mark.parametrize("n", [7, 100, 300, 1234])
@pytest.mark.parametrize("owned", [False, True])
def test_the_jackknife_of_a_mean_is_its_own_blocks(n, owned):
    """Whatever the sizes of the blocks are."""
    rng = np.random.default_rng(n)
    y, outputs = rng.integers(0, 3, n), rng.normal(size=(n, 3))
    owners = np.unique(rng.integers(0, 40, n), return_inverse=True)[1] if owned else None
    right = (outputs.argmax(1) == y).astype(float)
    found = OfAll(AS_OF_ALL, y, outputs.argmax(1)).blocks(owners)
    assert found == pytest.approx(Ratio(right, np.ones(n)).blocks(owners), abs=2e-5)
    assert len(found) == (min(n, 100) if owners is None else owners.max() + 1)


def scores_of(rng, n, shift=1.0):
    """Scores N(0, 1) of class 0 and N(shift, 1) of class 1, whose area is Phi(shift / sqrt 2)."""
    y = (rng.random(n) < 0.4).astype(int)
    return y, rng.normal(size=n) + shift * y


def test_the_jackknife_by_hand():
    """Blocks of one size: B R - (B - 1) R_b, recentred."""
    y, scores = scores_of(np.random.default_rng(1), 200)
    place = np.argsort(np.random.default_rng(0).permutation(200)) % 100
    whole = sk.roc_auc_score(y, scores)
    values = [100 * whole - 99 * sk.roc_auc_score(y[place != b], scores[place != b]) for b in range(100)]
    found = OfAll(metrics.auc, y, scores).blocks()
    assert found == pytest.approx(np.array(values) + whole - np.mean(values), rel=1e-5, abs=1e-6)
    assert np.mean(found) == pytest.approx(whole, abs=1e-6)


def interval_holds(blocks, truth):
    room = scipy.stats.t.isf(0.025, len(blocks) - 1) * np.std(blocks, ddof=1) / np.sqrt(len(blocks))
    return abs(np.mean(blocks) - truth) < room


def test_intervals_from_blocks_hold_the_area_of_the_population_as_often_as_they_say():
    rng, truth = np.random.default_rng(2), scipy.stats.norm.cdf(1 / np.sqrt(2))
    held, variances, areas = [], [], []
    for _ in range(300):
        scored = OfAll(metrics.auc, *scores_of(rng, 200))
        blocks = scored.blocks()
        held.append(interval_holds(blocks, truth))
        variances.append(np.var(blocks, ddof=1) / len(blocks))
        areas.append(scored.value())
    assert 0.92 <= np.mean(held) <= 0.98  # 95%, whose standard error is 1.3%
    assert np.mean(variances) == pytest.approx(np.var(areas), rel=0.25)


def test_examples_of_one_owner_stay_together():
    """Each of 60 writers has an effect of its own on all scores: blocks of examples would not know."""
    rng, apart, together = np.random.default_rng(3), [], []
    truth = scipy.stats.norm.cdf(1 / np.sqrt(2))
    owners = np.repeat(np.arange(60), 8)
    for _ in range(150):
        y = np.repeat((rng.random(60) < 0.5).astype(int), 8)
        scores = np.repeat(rng.normal(size=60), 8) + y
        scored = OfAll(metrics.auc, y, scores + 1e-9 * rng.normal(size=480))
        apart.append(interval_holds(scored.blocks(), truth))
        together.append(interval_holds(scored.blocks(owners), truth))
    assert np.mean(apart) < 0.75
    assert 0.88 <= np.mean(together) <= 0.99


def test_where_a_block_cannot_be_left_out_there_are_none():
    y = np.zeros(50, int)
    y[7] = 1  # without it there is one class
    scored = OfAll(metrics.auc, y, RNG.normal(size=50))
    assert math.isfinite(scored.value())
    assert scored.blocks() == []
    assert OfAll(metrics.auc, np.ones(5, int), np.ones(5)).blocks() == []
    assert OfAll(AS_OF_ALL, np.ones(1, int), np.ones(1, int)).blocks() == []  # nothing to leave out


# In experiments.


FEW = (metrics.accuracy, metrics.auc, Metric.of_all(sk.brier_score_loss))  # scikit-learn takes milliseconds each time


def trial(chosen=FEW, method="fedavg", **changes):
    return experiment(task(chosen=chosen), method, **({"rounds": 2, "solver.lr": 0.5} | changes))


def test_a_run_has_them_with_blocks_and_reports_show_them():
    e = trial(evaluate="train auc,train accuracy,test")
    result = run(e)
    loaded = e.load()
    for row, w in ((result.rows[0], loaded.w), (result.rows[-1], result.w)):
        found = loaded.scores(w, "test")
        assert {f"test {name}": row[f"test {name}"] for name in found} == {
            f"test {name}": value for name, value in found.items()
        }
        assert row["train auc"] == loaded.scores(w, "train")["auc"]  # of all training examples together
        assert row["test blocks"].keys() == {f"test {name}" for name in found}
        for name, blocks in row["test blocks"].items():
            assert np.mean(blocks) == pytest.approx(row[name], abs=1e-5)
    assert result.larger_is_better("test auc")
    assert not result.larger_is_better("test brier score loss")
    assert result.about["bounds"]["test auc"] == [0.0, 1.0]
    study = compare(task(chosen=FEW[:2]), ["fedavg", "fedprox"], seeds=[0, 1], rounds=2, target=("test auc", 0.99))
    assert "test auc" in fl.report.text(study)
    found = evidence.verdict(study, "two outputs")
    assert found.metric == "test auc"
    assert not found.why_not
    assert found.against


def test_of_clients_own_models_and_of_the_mean_of_the_last_ones():
    e = trial(FEW[:2], "feddr", own_models=True, evaluate="test,last models test auc", rounds=1)
    result = run(e)
    loaded = e.load()
    (record,) = fl.simulate(e.algorithm, loaded.federation, e.solver, loaded.w, 1, cohort=e.cohort, seed=e.seed)
    models = loaded.own_models(e.algorithm, record.clients)
    of_clients, sizes = loaded.by_own_model(models)["auc"].values, loaded.data.test_split.sizes
    known = ~np.isnan(of_clients)
    row = result.rows[-1]
    assert 0 < known.sum() < K
    assert row["own test auc"] == pytest.approx(np.average(of_clients[known], weights=sizes[known]), rel=1e-10)
    mean = jnp.asarray(np.asarray(loaded.federation.weights) @ models)
    assert row["last models test auc"] == pytest.approx(loaded.scores(mean)["auc"], rel=1e-10)
    assert np.mean(row["test blocks"]["last models test auc"]) == pytest.approx(row["last models test auc"], abs=1e-5)


def test_natural_clients_own_their_blocks_if_they_are_many():
    owner = np.arange(N) % 40
    own = fl.Task("many", fl.by_client(X, LABELS, owner, test=0.5), fl.models.mlp(3, 2), metrics=(metrics.auc,)).load()
    evaluation = Evaluation(own, ["test auc"])
    found = evaluation.of(own.w)["test blocks"]["test auc"]
    scored = own.examplewise(own.w, "test", ["auc"])["auc"]
    assert found == scored.blocks(owners_of_tests(own))
    assert len(found) == 40


def test_a_metric_that_is_never_defined_is_nan_in_logs_and_reports(tmp_path):
    """Runs are stopped, resumed, read and reported all the same."""
    data = fl.by_client(X, np.zeros(N, int), OWNER, test=0.5)
    own = fl.Task("one class", data, fl.models.mlp(3, 2), metrics=(metrics.auc,))
    e = experiment(own, "fedavg", rounds=2, evaluate_every=1)

    def stop(row):
        if row["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(e, tmp_path / "a", watch=[stop], checkpoint_seconds=0)
    result = resume(tmp_path / "a", experiment=e)
    assert [math.isnan(row["test auc"]) for row in result.rows] == [True] * 3
    assert read(tmp_path / "a", experiment=e).finished
    study = compare(own, ["fedavg", "fedprox"], seeds=[0, 1], rounds=1, target=("test auc", 0.9))
    assert evidence.verdict(study, "one class").best is None
    fl.report.write(study, tmp_path / "report")
    assert "test auc" in (tmp_path / "report/report.html").read_text()


def test_points_side_by_side_are_those_of_single_runs():
    study = sweep(trial(evaluate="train auc,test,gradient norm"), {"solver.lr": [0.1, 0.5]})
    for result in study.results:
        alone = run(result.experiment)
        for row, other in zip(result.rows, alone.rows, strict=True):
            blocks, others = row.pop("test blocks"), other.pop("test blocks")
            assert row == pytest.approx(other, rel=1e-6)
            for name in others:
                assert blocks[name] == pytest.approx(others[name], rel=1e-4, abs=1e-4)


def test_where_blocks_are_missing_there_is_no_verdict():
    """Of the test examples two have class 1, in one block."""
    data = fl.by_client(X, LABELS, OWNER, test=0.5)
    y = np.zeros(len(data.test[1]), int)
    y[3] = 1
    own = fl.Task(
        "rare", dataclasses.replace(data, test=(data.test[0], y)), fl.models.mlp(3, 2), metrics=(metrics.auc,)
    )
    study = compare(own, ["fedavg", "fedprox"], seeds=[0, 1], rounds=1, target=("test auc", 1.0))
    row = study.results[0].rows[-1]
    assert math.isfinite(row["test auc"])
    assert row["test blocks"].keys() == {"test loss"}
    found = evidence.verdict(study, "rare")
    assert found.why_not.startswith("the logs do not say how test auc is spread over examples")
    assert not found.against


@pytest.mark.parametrize(
    ("f", "sentence"),
    [
        (sk.confusion_matrix, r"'confusion matrix': its function returned an array of shape \(2, 2\)"),
        (sk.roc_curve, "'roc curve': its function returned a tuple of 3"),
        (sk.classification_report, "'classification report': its function returned ' "),
        (functools.partial(sk.f1_score, average="wrong"), "'f1 score': its function raised .*average"),
    ],
)
def test_a_metric_that_is_no_number_is_refused_before_anything_is_made(tmp_path, f, sentence):
    e = trial((Metric.of_all(f),))
    with pytest.raises(ValueError, match=f"evaluate: Metric {sentence}.*the initial model and the test examples"):
        run(e, tmp_path / "a")
    with pytest.raises(ValueError, match=f"evaluate: Metric {sentence}"):
        compare(e.task, ["fedavg"], rounds=1, seeds=[0], directory=tmp_path / "a")
    assert not (tmp_path / "a").exists()
    run(dataclasses.replace(e, evaluate=("train",)))  # what is not asked for is not computed


def test_the_check_is_made_once_for_all_runs_on_the_same_data():
    calls = []
    counting = task(chosen=(Metric.of_all(lambda y, _: calls.append(1) or 0.0, "calls"),))
    check_numbers.cache_clear()
    for method in ("fedavg", "scaffold", "fedprox"):
        experiment(counting, method, rounds=1).check()
    assert len(calls) == 1
    experiment(counting, "fedavg", rounds=1, evaluate="validation", validation=0.2).check()
    assert len(calls) == 2  # another part of other data


def test_a_run_that_diverges_says_so_although_the_metric_fails():
    """scikit-learn refuses NaN; the run must end as diverged, not with an error."""
    result = run(trial((Metric.of_all(sk.brier_score_loss),), rounds=3, **{"solver.lr": 1e300}))
    assert result.diverged is not None
