"""The preparation of a table: statistics that are federated sums of training rows, features, labels, predictions."""

import dataclasses
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import fedloom as fl
from fedloom.tables import Category, Classes, Number, Preparation, Quantity, as_table, notes
from fedloom.tables.schema import unfitted
from fedloom.tables.sums import fitted

pd = pytest.importorskip("pandas", reason="needs pandas")

N = 240


def patients(seed=0):
    """A table with everything: missing numbers and texts, a constant, a rare category, a column far from zero."""
    rng = np.random.default_rng(seed)
    fold = rng.choice(["train", "TEST", "Valid"], N, p=[0.6, 0.25, 0.15])
    drug = rng.choice(["a", "b", "c"], N).astype(object)
    drug[rng.random(N) < 0.15] = None
    drug[np.flatnonzero(fold == "TEST")[:5]] = "rare"  # no training row has it
    return pd.DataFrame(
        {
            "year": rng.integers(1990, 2020, N) + 10_000_000,
            "lab": np.where(rng.random(N) < 0.3, np.nan, rng.normal(-3, 1e-3, N)),
            "flat": np.where(fold == "train", 0.1, rng.normal(size=N)),  # constant in the training rows
            "smoker": rng.random(N) < 0.3,
            "drug": drug,
            "dose": np.where(fold == "train", np.nan, rng.normal(size=N)),  # known for no training row
            "ill": rng.choice(["no", "yes"], N),
            "cost": rng.normal(5000, 900, N),
            "ward": rng.choice(["north", "south", "west"], N, p=[0.6, 0.3, 0.1]),
            "fold": fold,
        }
    )


FRAME = patients()
TRAIN, TEST, VALIDATION = ((FRAME.fold == name).to_numpy() for name in ("train", "TEST", "Valid"))
NAMES = dict(label="ill", client="ward", split_column="fold", leave_out="cost")


def by_hand(frame, train):
    """The features that pandas makes of the frame, with statistics of the training rows pooled."""
    found = {}
    for name in ("year", "lab", "smoker"):
        values = frame[name].astype(float)
        mean, deviation = values[train].mean(), values[train].std(ddof=0)
        found[name] = ((values - mean) / deviation).fillna(0)
    found["flat"] = found["dose"] = 0 * frame.year  # training rows say nothing about them
    for category in ("a", "b", "c", "rare"):
        found[f"drug={category}"] = (frame.drug == category) & (category != "rare")
    for name in ("lab", "drug", "dose"):
        found[f"{name} missing"] = frame[name].isna()
    order = ["year", "lab", "lab missing", "flat", "smoker", "drug=a", "drug=b", "drug=c", "drug=rare"]
    return pd.DataFrame(found)[[*order, "drug missing", "dose", "dose missing"]].astype(float)


def in_order_of_clients(mask):
    """Row numbers, client after client."""
    return np.concatenate([np.flatnonzero(mask & (FRAME.ward == ward)) for ward in sorted(set(FRAME.ward))])


def test_features_and_labels_against_pandas():
    data = fl.from_frame(FRAME, **NAMES).load().data
    wanted = by_hand(FRAME, TRAIN)
    assert data.preparation.names == list(wanted)
    assert data.train[0].dtype == data.test[0].dtype == np.float32
    stored = in_order_of_clients(~TEST)
    np.testing.assert_allclose(data.train[0], wanted.to_numpy()[stored], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(data.test[0], wanted.to_numpy()[in_order_of_clients(TEST)], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(data.train[1], (FRAME.ill == "yes").to_numpy()[stored])
    assert data.split.names.tolist() == ["north", "south", "west"]
    for k, ward in enumerate(data.split.names):
        np.testing.assert_array_equal(stored[data.split.rows(k)], np.flatnonzero(TRAIN & (FRAME.ward == ward)))
        np.testing.assert_array_equal(
            stored[data.validation_split.rows(k)], np.flatnonzero(VALIDATION & (FRAME.ward == ward))
        )
        np.testing.assert_array_equal(
            in_order_of_clients(TEST)[data.test_split.rows(k)], np.flatnonzero(TEST & (FRAME.ward == ward))
        )


def statistics(preparation):
    numbers = [c for c in preparation.columns if isinstance(c, Number)]
    return np.array([v for c in numbers for v in (c.mean, c.scale)])


def test_sums_of_clients_are_pooled_statistics():
    prepared = fl.from_frame(FRAME, **NAMES).load().data.preparation
    for column in prepared.columns:
        if column.name in ("year", "lab", "smoker"):
            values = FRAME[column.name][TRAIN].dropna().astype(float)
            assert abs(column.mean / values.mean() - 1) < 1e-12
            assert abs(column.scale * values.std(ddof=0) - 1) < 1e-9  # the year's deviation has lost seven digits
    assert [c.scale for c in prepared.columns if c.name in ("flat", "dose")] == [0, 0]
    drug = prepared.columns[4]
    assert drug == Category("drug", ("a", "b", "c", "rare"), True, (True, True, True, False))

    target = fl.from_frame(FRAME, **NAMES | dict(label="cost", leave_out="ill")).load().data.preparation.label
    cost = FRAME.cost[TRAIN]
    assert isinstance(target, Quantity)
    assert abs(target.mean / cost.mean() - 1) < 1e-12
    assert abs(target.deviation / cost.std(ddof=0) - 1) < 1e-12


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.sampled_from(["p", "q", "r", None])), min_size=2, max_size=40),
    st.data(),
)
def test_statistics_do_not_depend_on_who_owns_the_rows(rows, data):
    """The sums over any clients are those over one client that has all rows."""
    owner = np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows))))
    known = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))) | (owner == owner[0])
    values = np.array([v for v, _ in rows])
    table = as_table(
        {
            "v": np.where(known, values, np.nan),
            "c": np.array(["p", *[c for _, c in rows][1:]], object),
            "y": np.arange(len(rows)) % 2 == 0,
        }
    )
    start = unfitted(table, "y", set())
    apart = fitted(start, table, [np.flatnonzero(owner == k) for k in np.unique(owner)])
    together = fitted(start, table, [np.arange(len(rows))])
    np.testing.assert_allclose(statistics(apart)[0], values[known].mean(), rtol=1e-12, atol=1e-12)
    deviation = values[known].std()
    if deviation > 1e-9 * np.abs(values).max():
        np.testing.assert_allclose(
            statistics(apart)[1], 1 / deviation, rtol=1e-12 * np.abs(values).max() / deviation + 1e-12
        )
    assert apart.columns[1] == together.columns[1]
    x, wanted = apart.encoded(table), together.encoded(table)
    np.testing.assert_allclose(x[:, 1:], wanted[:, 1:])


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e150, 1e150), st.integers(2, 50), st.integers(1, 5))
def test_equal_values_are_constant_however_their_mean_is_rounded(value, n, clients):
    table = as_table({"v": np.full(n, value), "y": np.arange(n) % 2 == 0})
    made = fitted(unfitted(table, "y", set()), table, np.array_split(np.arange(n), min(clients, n)))
    assert np.all(made.encoded(table) == 0)


def test_what_nobody_trains_on_moves_nothing():
    """Test and validation rows with other values give the same preparation, bit for bit, and the same training rows."""
    before = fl.from_frame(FRAME, **NAMES).load().data
    changed = FRAME.copy()
    others = ~TRAIN
    changed.loc[others, "year"] = 3
    changed.loc[others, "lab"] = changed.lab[others] * 1e6
    changed.loc[others, "smoker"] = True
    changed.loc[others, "drug"] = np.random.default_rng(1).permutation(changed.drug[others])
    changed.loc[others, "ill"] = "yes"
    after = fl.from_frame(changed, **NAMES).load().data
    assert after.preparation == before.preparation
    np.testing.assert_array_equal(after.train[0][after.split.order], before.train[0][before.split.order])
    assert not np.array_equal(after.test[0], before.test[0])

    changed.loc[np.flatnonzero(TRAIN)[0], "year"] += 1  # whereas one training row moves it
    assert fl.from_frame(changed, **NAMES).load().data.preparation != before.preparation


@pytest.mark.parametrize("label", ["ill", "cost"])
def test_validation_examples_are_left_out_of_the_statistics(label):
    """`with_validation` makes them again; so does holding out of a task by an experiment."""
    frame = FRAME.drop(columns=["fold", "dose"]).assign(row=np.arange(N))
    leave_out = {"ill": "cost", "cost": "ill"}[label]
    task = fl.from_frame(frame, label=label, client="ward", leave_out=leave_out, test=0.25)
    held = task.data(3).with_validation(0.3, seed=7)
    experiment = fl.experiment(task, "fedavg", rounds=1, seed=3, validation=0.3)
    for data in (held, experiment.check().loaded.data):
        prepared = data.preparation
        j = prepared.names.index("row")
        column = prepared.columns[-1]
        rows = np.round(np.asarray(data.train[0][:, j], float) / column.scale + column.mean).astype(int)
        train, spared = rows[data.split.order], rows[data.validation_split.order]
        assert len(train) + len(spared) + len(data.test[1]) == N
        assert len(spared) > 30
        known = frame.lab[train].dropna()
        lab = next(c for c in prepared.columns if c.name == "lab")
        np.testing.assert_allclose([lab.mean, lab.scale], [known.mean(), 1 / known.std(ddof=0)], rtol=1e-9)
        assert column.mean == pytest.approx(np.mean(train), rel=1e-12)
        if label == "cost":
            own, (y, test_y) = frame.cost[train], (np.asarray(d[1]) for d in (data.train, data.test))
            np.testing.assert_allclose(y[data.split.order, 0], (own - own.mean()) / own.std(ddof=0), rtol=1e-6)
            np.testing.assert_allclose(test_y[:, 1], own.std(ddof=0), rtol=1e-6)
    again, whole = held.with_validation(0, seed=1), task.data(3)
    assert again.validation_split is None
    np.testing.assert_allclose(statistics(again.preparation), statistics(whole.preparation), rtol=1e-12)


def test_dividing_anew_makes_the_statistics_of_the_rows_that_are_left():
    """A split that leaves rows out leaves them out of the statistics, too."""
    task = fl.from_frame({"v": np.arange(100.0), "y": np.arange(100) % 4}, label="y", test=0)
    data = task.data(0)
    few = fl.Split(np.array([0, 1, 2, 3]), np.array([2, 2]))
    assert data.divided(few, None, None).preparation.columns[0].mean == 1.5
    divided = fl.experiment(task, "fedavg", rounds=1, split={"name": "latent_dirichlet", "clients": 7, "alpha": 1.0})
    loaded = divided.check().loaded
    assert loaded.data.split.sizes.tolist() == [14] * 7  # two rows are nobody's
    rows = np.round(
        np.asarray(data.train[0][:, 0], float) / data.preparation.columns[0].scale + data.preparation.columns[0].mean
    )
    used = rows[loaded.data.split.order]
    np.testing.assert_allclose(loaded.data.preparation.columns[0].mean, used.mean(), rtol=1e-12)

    number = fl.from_frame({"v": np.arange(100.0), "y": np.arange(100) / 7}, label="y", test=0)
    iid = fl.experiment(number, "fedavg", rounds=1, split={"name": "iid", "clients": 4})
    assert iid.check().loaded.data.split.sizes.tolist() == [25] * 4
    with pytest.raises(ValueError, match="have no labels to split by"):
        fl.experiment(number, "fedavg", rounds=1, split={"name": "shards", "clients": 4}).check()


# New rows.


def test_new_rows_give_the_features_of_the_test_set_in_any_order_of_columns():
    data = fl.from_frame(FRAME, **NAMES).load().data
    rows = FRAME.iloc[in_order_of_clients(TEST)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = data.preparation.features(rows[[*reversed(rows.columns)]].drop(columns=["ill", "ward"]))
    np.testing.assert_array_equal(x, data.test[0])
    np.testing.assert_array_equal(data.preparation.labels(rows), data.test[1])
    assert [str(w.message) for w in caught] == [
        "Column 'drug' has values that no training row has, in 5 rows: rare; they count as no category."
    ]


def test_unseen_categories_and_unexpected_gaps_are_zero_with_a_warning():
    prepared = fl.from_frame({"v": [1.0, 3.0], "c": ["a", "b"], "y": [0, 1]}, label="y", test=0).load().data.preparation
    with pytest.warns(UserWarning, match="Column 'c' has values that no training row has, in 2 rows: x, z;"):
        x = prepared.features({"c": ["a", "x", "z"], "v": [3, 1, 2]})
    np.testing.assert_array_equal(x, [[1, 1, 0], [-1, 0, 0], [0, 0, 0]])
    with pytest.warns(UserWarning, match="Column 'v' has no value in 1 row; the training mean"):
        np.testing.assert_array_equal(prepared.features({"c": ["b"], "v": [np.nan]}), [[0, 0, 1]])
    with pytest.warns(UserWarning, match="Column 'c' has no value in 1 row, which counts as no category"):
        np.testing.assert_array_equal(prepared.features({"c": np.array([None]), "v": [1]}), [[-1, 0, 0]])
    with pytest.warns(UserWarning, match="Column 'v' has no value in 2 rows"):  # a column of an empty type
        prepared.features(pd.DataFrame({"c": ["a", "b"], "v": [None, None]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prepared.features({"c": np.zeros(0, str), "v": np.zeros(0)}).shape == (0, 3)


def test_categories_that_are_numbers_elsewhere():
    """A column of texts that a file shows as integers, or as floats because one is missing, means the same."""
    table = {"code": ["1", "2", "10", "1"], "y": [0, 1, 0, 1]}
    prepared = fl.from_frame(table, label="y", test=0).load().data.preparation
    wanted = prepared.features({"code": ["10", "1"]})
    np.testing.assert_array_equal(prepared.features({"code": [10, 1]}), wanted)
    np.testing.assert_array_equal(prepared.features({"code": [10.0, 1.0]}), wanted)
    categories = pd.DataFrame({"code": pd.Categorical([1, 2, 10, 1]), "y": [0, 1, 0, 1]})
    assert fl.from_frame(categories, label="y", test=0).load().data.preparation == prepared


def test_bad_new_rows_are_refused():
    frame = {"age": [1.0, 3.0], "c": ["a", "b"], "y": [0, 1]}
    prepared = fl.from_frame(frame, label="y", test=0).load().data.preparation
    with pytest.raises(ValueError, match=r"no column 'age', which the model needs\. Did you mean 'Age'\?"):
        prepared.features({"Age": [1.0], "c": ["a"]})
    with pytest.raises(ValueError, match="Column 'age' must have numbers, but has 'old' in row 1"):
        prepared.features({"age": np.array([None, "old"]), "c": ["a", "b"]})
    with pytest.raises(ValueError, match="Column 'age' has inf in row 1"):
        prepared.features({"age": [1.0, np.inf], "c": ["a", "b"]})
    with pytest.raises(ValueError, match=r"Column 'age' has a number in row 1 .* too far from those of the training"):
        prepared.features({"age": [1.0, 1e60], "c": ["a", "b"]})
    with pytest.raises(ValueError, match="no column 'y', the label"):
        prepared.labels({"age": [1.0]})
    with pytest.raises(ValueError, match="The label 'y' has the value '2', which is none of 0, 1 in row 1"):
        prepared.labels({"y": [0, 2]})
    with pytest.raises(ValueError, match="The label 'y' has no value in row 0"):
        prepared.labels({"y": [np.nan, 1]})


# Labels and predictions.

LABELS = {
    "text": (["no", "yes", "maybe"], ("maybe", "no", "yes"), "U"),
    "boolean": ([True, False, True], (False, True), "b"),
    "integer": ([7, -3, 7], (-3, 7), "i"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_classes_come_back_in_their_own_values_with_probabilities(kind):
    values, classes, dtype = LABELS[kind]
    prepared = fl.from_frame({"v": [1.0, 2.0, 3.0], "y": values}, label="y", test=0).load().data.preparation
    assert prepared.label == Classes("y", classes)
    assert all(type(a) is type(b) for a, b in zip(prepared.label.values, classes, strict=True))
    y = prepared.labels({"y": values})
    assert y.tolist() == [classes.index(v) for v in values]
    outputs = 5 * np.eye(len(classes))[y] + np.array([0.3, *[0.0] * (len(classes) - 1)]) + 1000
    found = prepared.predictions(outputs)
    assert found["prediction"].tolist() == values
    assert found["prediction"].dtype.kind == dtype
    assert prepared.decoded(y).tolist() == values
    assert list(found) == ["prediction", *(f"probability of {c}" for c in classes)]
    shares = np.stack([found[f"probability of {c}"] for c in classes], axis=1)
    np.testing.assert_allclose(shares, softmax(outputs, axis=1), rtol=1e-12)
    with pytest.raises(ValueError, match=rf"must have shape \(rows, {len(classes)}\), got \(3, 1\)"):
        prepared.predictions(outputs[:, :1])


def test_numbers_come_back_in_their_own_units():
    y = np.array([1000.0, 3000.0, 8000.0])
    task = fl.from_frame({"v": [1.0, 2.0, 4.0], "y": y}, label="y", test=0, model="linear")
    loaded = task.load()
    prepared = loaded.data.preparation
    outputs = (y - y.mean()) / y.std()
    for shape in ((3,), (3, 1)):
        np.testing.assert_allclose(prepared.predictions(outputs.reshape(shape))["prediction"], y, rtol=1e-12)
    np.testing.assert_allclose(prepared.decoded(prepared.labels({"y": y})), y, rtol=1e-12)
    assert list(prepared.predictions(outputs)) == ["prediction"]

    outputs = np.asarray(task.model.apply(task.model.unravel(loaded.w), loaded.data.train[0], None), float)
    errors = prepared.predictions(outputs)["prediction"] - y
    assert loaded.scores(loaded.w, "train")["mse"] == pytest.approx(np.mean(errors**2), rel=1e-5)
    assert loaded.scores(loaded.w, "train")["loss"] == pytest.approx(np.mean(errors**2) / y.var(), rel=1e-5)
    assert not loaded.metrics["mse"].larger_is_better


def test_a_number_that_is_the_same_in_all_training_rows_can_still_be_measured():
    table = {"v": [1.0, 2.0, 3.0], "y": [5.5, 5.5, 8.5], "fold": ["train", "train", "test"]}
    loaded = fl.from_frame(table, label="y", split_column="fold").load()
    zero = np.zeros_like(loaded.w)
    assert loaded.data.preparation.label == Quantity("y", 5.5, 1.0)
    assert loaded.evaluate(zero)["test mse"] == pytest.approx(9.0)


def test_a_preparation_travels_as_json():
    for label in ("ill", "cost", "smoker", "year"):
        names = NAMES | dict(label=label, leave_out=["cost" if label != "cost" else "ill"])
        prepared = fl.from_frame(FRAME, **names).load().data.preparation
        again = Preparation.from_plain(json.loads(json.dumps(prepared.to_plain(), allow_nan=False)))
        assert again == prepared
        assert type(again.label) is type(prepared.label)
        rows = FRAME[FRAME.drug != "rare"]
        np.testing.assert_array_equal(again.features(rows), prepared.features(rows))
    for broken in (
        {},
        {"columns": [], "label": {}},
        {"columns": [3], "label": {"kind": "classes"}},
        {"columns": [], "label": {"kind": "x"}},
    ):
        with pytest.raises(ValueError, match="does not describe the preparation of a table"):
            Preparation.from_plain(broken)


# Notes.


def test_notes_say_what_was_done_and_what_is_odd():
    data = fl.from_frame(FRAME.assign(id=np.arange(N)), **NAMES).load().data
    assert notes(data) == (
        "columns lab, dose have missing values: they are filled with the training mean, and marked",
        "column flat has not two different values in the training rows, and is not used",
        "column drug: no training row has rare, which count as no category",
        "column dose has not two different values in the training rows, and is not used",
        "column id has a different integer in every row; if that is an identifier, leave it out (leave_out)",
    )
    plain = {"v": [1.0, 2.0, np.nan, 3.0], "y": ["a", "a", "b", "a"], "c": ["n", "n", "s", "s"]}
    assert notes(fl.from_frame(plain, label="y", client="c", test=0).load().data) == (
        "column v has missing values: they are filled with the training mean, and marked",
        "client 'n' has training rows of one class only (label a); metrics such as AUC are undefined for such a client",
    )
    each = {"v": [1.0, 2.0, 4.0, 4.0], "y": [5, 6, 5, 6], "c": [True, False, True, False]}
    (note,) = notes(fl.from_frame(each, label="y", client="c", test=0).load().data)
    assert note.startswith("client 'False' has training rows of one class only (label 6), and so has 1 other;")
    (note,) = notes(fl.from_frame({"v": [1.0, 2.0, 4.0], "y": [0.0, 1.0, 1.0]}, label="y", test=0).load().data)
    assert note.startswith("the label y has few different values, but is predicted as a number")
    many = {"v": np.arange(50) / 7, "y": np.arange(50) / 3}
    assert notes(fl.from_frame(many, label="y", test=0).load().data) == ()


def test_other_data_have_no_notes():
    assert notes(fl.load("synthetic-1-1").data) == ()


def test_equal_preparations_are_equal_and_others_are_not():
    one = fl.from_frame(FRAME, **NAMES).load().data.preparation
    assert one == fl.from_frame(FRAME, **NAMES).load(1).data.preparation  # the split is the file's, not the seed's
    assert one != dataclasses.replace(one, label=Quantity("ill"))
