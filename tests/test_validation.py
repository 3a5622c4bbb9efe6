"""Validation examples: who holds out what, what is measured on them, and that training never sees them."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.data import Split, splits
from fedloom.experiments import experiment, run

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
OWNER = RNG.integers(0, 12, 300)


def task(data, **changes):
    return fl.Task("mine", data, fl.models.mlp(4, 8, 2), **changes)


# Who holds out what.


@pytest.mark.parametrize(("sizes", "share"), [([3] * 400, 0.2), ([1, 2, 5, 100] * 50, 0.1), ([2] * 300, 0.9)])
def test_the_share_is_right_overall_and_on_average_for_each_client(sizes, share):
    split = Split(np.arange(sum(sizes)), sizes)
    held = np.array([splits.train_validation(split, seed, share)[1].sizes for seed in range(300)])
    expected = np.minimum(share * split.sizes, split.sizes - 1)
    assert np.all(np.abs(held.sum(axis=1) - expected.sum()) <= 1 + 1e-6)  # of every seed
    assert np.all(np.abs(held - expected) < 1)  # rounded up or down
    assert np.all(held < split.sizes)  # never the last example
    deviation = np.sqrt(0.25 / 300)  # of the mean of 300 fair coins
    assert np.all(np.abs(held.mean(axis=0) - expected) < 5 * deviation)


def test_every_row_is_equally_likely_to_be_held_out():
    split = Split(np.arange(8)[::-1].copy(), [8])
    counts = np.zeros(8)
    for seed in range(2000):
        counts[splits.train_validation(split, seed, 0.25)[1].order] += 1
    assert np.all(np.abs(counts - 500) < 5 * np.sqrt(500 * 0.75))


def test_the_split_is_a_function_of_the_seed_and_keeps_the_order_of_the_rest():
    split = splits.by_key(OWNER)
    (kept, held), again, other = (splits.train_validation(split, seed, 0.3) for seed in (0, 0, 1))
    np.testing.assert_array_equal(held.order, again[1].order)
    assert not np.array_equal(held.order, other[1].order)
    for k in range(split.clients):
        np.testing.assert_array_equal(kept.rows(k), [r for r in split.rows(k) if r in set(kept.order)])
    assert (kept.names == split.names).all()
    whole, nothing = splits.train_validation(split, 0, 0)
    np.testing.assert_array_equal(whole.order, split.order)
    assert len(nothing.order) == 0


def test_train_validation_and_test_are_disjoint_and_together_all():
    numbers = np.arange(300.0)[:, None] + np.zeros(4)  # an example says which row it is
    data = fl.by_client(numbers, Y, OWNER, test=0.2, validation=0.25, seed=3)
    train = np.asarray(data.train[0])[:, 0]
    test = set(np.asarray(data.test[0])[:, 0].tolist())
    parts = [set(train[data.split.order]), set(train[data.validation_split.order]), test]
    assert sum(len(part) for part in parts) == 300
    assert set.union(*parts) == set(range(300))
    for k, name in enumerate(data.split.names):
        rows = np.concatenate([data.split.rows(k), data.validation_split.rows(k)])
        assert set(OWNER[train[rows].astype(int)]) == {int(name)}
    assert len(parts[1]) == pytest.approx(0.25 * (300 - len(test)), abs=1)
    without = fl.by_client(numbers, Y, OWNER, test=0.2, seed=3)
    np.testing.assert_array_equal(data.test[0], without.test[0])  # the test set does not depend on it
    assert data.describe().validation_examples == len(parts[1])
    assert f"{len(parts[1])} validation examples" in str(data.describe())
    assert "validation" not in str(without.describe())


def test_holding_out_again_begins_with_all_examples():
    data = fl.by_client(X, Y, OWNER, test=0)
    twice = data.with_validation(0.5, 0).with_validation(0.2, 1)
    assert len(twice.validation_split.order) == pytest.approx(60, abs=1)
    both = np.concatenate([twice.split.order, twice.validation_split.order])
    assert sorted(both) == list(range(300))
    back = data.with_validation(0.5, 0).with_validation(0, 1)
    assert back.validation_split is None
    for k in range(12):
        assert set(back.split.rows(k)) == set(data.split.rows(k))


# What is measured.


def test_metrics_of_validation_examples():
    loaded = task(fl.by_client(X, Y, OWNER, validation=0.2)).load()
    data = loaded.data
    rows = data.validation_split.order
    outputs = np.asarray(loaded.task.model.apply(loaded.task.model.unravel(loaded.w), jnp.asarray(data.train[0]), None))
    right = outputs.argmax(axis=1) == np.asarray(data.train[1])
    values = loaded.evaluate(loaded.w)
    of_parts = [f"{part} {name}" for part in ("validation", "test") for name in ("accuracy", "loss")]
    assert list(values) == ["train loss", *of_parts]
    assert values["validation accuracy"] == pytest.approx(right[rows].mean())
    assert loaded.scores(loaded.w, "validation")["accuracy"] == pytest.approx(right[rows].mean())
    assert loaded.scores(loaded.w, "train")["accuracy"] == pytest.approx(right[data.split.order].mean())
    by_client = loaded.by_client(loaded.w, "validation")["accuracy"].values
    own = loaded.by_own_model(np.tile(loaded.w, (12, 1)), "validation")["accuracy"].values
    np.testing.assert_allclose(by_client, own, rtol=1e-6)
    for k in range(12):
        assert by_client[k] == pytest.approx(right[data.validation_split.rows(k)].mean())
    assert values["train loss"] == pytest.approx(loaded.scores(loaded.w, "train")["loss"])


def test_a_task_without_validation_examples_says_so():
    loaded = task(fl.by_client(X, Y, OWNER)).load()
    with pytest.raises(ValueError, match="'mine' have no validation examples; use part='train'"):
        loaded.scores(loaded.w, "validation")
    with pytest.raises(ValueError, match=r"'mine' has no validation examples; hold some out with validation = 0\.1"):
        loaded.evaluate(loaded.w, ["validation loss"])


# An experiment.


def test_validation_never_influences_training(tmp_path):
    """Other labels of the validation rows change their metrics, and nothing else."""
    data = fl.by_client(X, Y, OWNER, validation=0.2)
    rows = data.validation_split.order
    flipped = np.array(data.train[1])
    flipped[rows] = 1 - flipped[rows]
    other = dataclasses.replace(data, train=(data.train[0], flipped))
    one, two = (
        run(experiment(task(d), "scaffold", rounds=4, solver=fl.SGD(0.1, batch_size=7), plan="1x1"))
        for d in (data, other)
    )
    np.testing.assert_array_equal(one.w, two.w)
    for a, b in zip(one.rows, two.rows, strict=True):
        assert a["validation accuracy"] == pytest.approx(1 - b["validation accuracy"])
        different = {name for name in a if a[name] != b[name]}
        assert different <= {"validation loss", "validation accuracy"}


def test_an_experiment_holds_examples_out_of_any_task():
    e = experiment("digits", "fedavg", rounds=1, validation=0.2)
    plain, loaded = experiment("digits", "fedavg", rounds=1).load(), e.load()
    n, held = len(plain.data.split.order), len(loaded.data.validation_split.order)
    assert held == pytest.approx(0.2 * n, abs=1)
    assert len(loaded.data.split.order) == n - held
    np.testing.assert_array_equal(loaded.data.test[1], plain.data.test[1])
    sizes = loaded.data.split.sizes
    np.testing.assert_allclose(loaded.federation.weights, sizes / sizes.sum(), rtol=1e-6)
    result = run(e)
    assert {"train loss", "validation loss", "validation accuracy", "test accuracy"} <= set(result.metrics)
    assert result.about["bounds"]["validation accuracy"] == [0.0, 1.0]
    assert set(result.metrics) <= set(result.rows[-1])
    assert "validation accuracy" not in result.rows[-1]["test blocks"]


def test_validation_comes_after_a_new_split():
    e = experiment("digits", "fedavg", split={"name": "iid", "clients": 7}, validation=0.3)
    data = e.load().data
    assert data.clients == data.validation_split.clients == 7
    whole = dataclasses.replace(e, validation=0.0).load().data.split
    for k in range(7):
        assert set(data.split.rows(k)) | set(data.validation_split.rows(k)) == set(whole.rows(k))


def test_a_task_keeps_its_own_validation_part():
    own = task(fl.by_client(X, Y, OWNER, test=0, validation=0.25))
    held = own.data.validation_split
    kept = experiment(own, "fedavg", rounds=1).load().data
    np.testing.assert_array_equal(kept.validation_split.order, held.order)
    other = experiment(own, "fedavg", rounds=1, validation=0.5).load().data
    assert len(other.validation_split.order) == 150
    anew = experiment(own, "fedavg", rounds=1, split={"name": "iid", "clients": 5}).load().data
    assert (anew.clients, len(anew.validation_split.order)) == (5, 75)
    assert len(np.union1d(anew.split.order, anew.validation_split.order)) == 300


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: experiment("quadratics", "fedavg", validation=0.2).load(),
            "'quadratics' have no examples to hold out",
        ),
        (lambda: experiment("digits", "fedavg", validation=1.0), r"validation must be a number in \[0, 1\)"),
        (lambda: experiment("digits", "fedavg", validation="some"), r"validation must be a number in \[0, 1\)"),
        (lambda: fl.by_client(X, Y, OWNER, validation=-0.1), r"validation must be a share in \[0, 1\)"),
        (lambda: fl.by_client(X, Y, np.arange(300), test=0, validation=0.5), "no client has two; give a larger share"),
        (
            lambda: fl.FederatedData((X, Y), Split(np.arange(6), [3, 3]), validation_split=Split([5, 6], [1, 1])),
            "Row 5 of the training data is in split and in validation_split",
        ),
        (
            lambda: fl.FederatedData((X, Y), Split(np.arange(6), [3, 3]), validation_split=Split([6], [1])),
            "validation_split has 1 clients, but there are 2",
        ),
        (
            lambda: fl.FederatedData((X, Y), Split(np.arange(6), [3, 3]), validation_split=Split([900], [1, 0])),
            "assigns row 900, but there are only 300 rows",
        ),
        (
            lambda: fl.FederatedData((X, Y), Split(np.arange(6), [3, 3]), validation_split=Split([], [0, 0])),
            "validation_split has no examples; leave it out",
        ),
    ],
)
def test_what_cannot_be_held_out_is_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# NaN and infinity in the data.


def with_value(value, place, shape=(20, 4), dtype=np.float32):
    a = np.zeros(shape, dtype)
    a[place] = value
    return a


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (with_value(np.nan, (17, 3)), np.zeros(20, int), "x: row 17 has nan in column 3; remove or fill it"),
        (with_value(-np.inf, (0, 1)), np.zeros(20, int), "x: row 0 has -inf in column 1"),
        (with_value(np.nan, (5, 2, 1), (20, 3, 3)), np.zeros(20, int), r"x: row 5 has nan at \(2, 1\)"),
        ((np.zeros((20, 2)), with_value(np.nan, (4, 0))), np.zeros(20, int), "x: row 4 has nan in column 0"),
        (np.zeros((20, 4)), with_value(np.inf, 19, 20), "y: row 19 has inf; remove or fill it"),
    ],
)
def test_by_client_names_the_row_that_is_not_finite(x, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        fl.by_client(x, y, np.arange(20) % 4)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_federated_data_name_the_part_and_the_row(kind):
    split, y, good = Split(np.arange(20), [10, 10]), np.zeros(20, int), np.zeros((20, 4), np.float32)
    bad = kind(with_value(np.nan, (17, 3)))
    with pytest.raises(ValueError, match="x: row 17 of the training data has nan in column 3; remove or fill it"):
        fl.FederatedData((bad, y), split)
    with pytest.raises(ValueError, match="x: row 17 of the test data has nan in column 3"):
        fl.FederatedData((good, y), split, (bad, y))
    with pytest.raises(ValueError, match="x: row 17 of the training data has nan"):
        task(lambda seed: fl.data.federated(fl.data.Dataset(bad, y), split)).load()
