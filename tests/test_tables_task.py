"""Tables as tasks: what the label is, who owns which rows, which rows are held out, what is refused, and real data."""

import re
import runpy
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.data.sources.heart import COLUMNS, HOSPITALS
from fedloom.tables import Classes, Quantity, from_file, notes, read, table_model, write
from tests.test_project import ROOT
from tests.test_sources import real

pd = pytest.importorskip("pandas", reason="needs pandas")
pytest.importorskip("pyarrow", reason="needs pyarrow")

RNG = np.random.default_rng(0)


def frame(n=100, clients=5):
    """The column `row` says which row it is."""
    row = np.arange(n)
    return {"row": row, "v": RNG.normal(size=n), "y": row % 3, "client": row % clients}


def rows(data, part="train"):
    """The rows of a store, from their feature `row`."""
    prepared = data.preparation
    column = next(c for c in prepared.columns if c.name == "row")
    values = np.asarray(getattr(data, part)[0][:, prepared.names.index("row")], float)
    return np.round(values / column.scale + column.mean).astype(int)


# What the label is.

INTEGERS = np.arange(40)
LABELS = {
    "texts": (np.where(INTEGERS % 2, "b", "a"), 2),
    "booleans": (INTEGERS % 2 == 0, 2),
    "20 integers": (INTEGERS % 20 - 3, 20),
    "21 integers": (INTEGERS % 21, None),
    "floats": (INTEGERS % 2 * 1.0, None),
}


@pytest.mark.parametrize("kind", LABELS)
def test_classification_or_regression_by_the_labels_type(kind):
    y, classes = LABELS[kind]
    task = fl.from_frame({"v": INTEGERS / 7, "y": y}, label="y", model="linear")
    data = task.load().data
    assert data.classes == classes
    outputs = task.model.apply(task.model.unravel(task.load().w), data.train[0], None)
    assert outputs.shape[1] == (classes or 1)
    assert [m.name for m in task.metrics] == ["accuracy" if classes else "mse"]
    assert isinstance(data.preparation.label, Classes if classes else Quantity)
    assert {"y", "label"} & set(data.preparation.names) == set()


def test_categories_of_pandas_are_classes():
    table = pd.DataFrame({"v": INTEGERS / 7, "y": pd.Categorical(np.where(INTEGERS % 2, "b", "a"))})
    assert fl.from_frame(table, label="y").load().data.preparation.label.values == ("a", "b")


# Who owns which rows, and which are held out.


def test_the_seed_draws_the_test_rows_of_each_client():
    table = frame(100, 5)
    task = fl.from_frame(table, label="y", client="client", test=0.25)
    one, again, other = task.load(0).data, task.load(0).data, task.load(1).data
    assert one.split.names.tolist() == ["0", "1", "2", "3", "4"]
    np.testing.assert_array_equal(rows(one, "test"), rows(again, "test"))
    assert set(rows(one, "test")) != set(rows(other, "test"))
    assert sorted([*rows(one), *rows(one, "test")]) == list(range(100))
    assert one.train[0].shape[1] == other.train[0].shape[1]
    for data in (one, other):
        for k in range(5):
            own, tests = rows(data)[data.split.rows(k)], rows(data, "test")[data.test_split.rows(k)]
            assert len(own) == 15
            assert len(tests) == 5
            assert {*own, *tests} == set(range(k, 100, 5))
        np.testing.assert_array_equal(data.train[1], rows(data) % 3)
        np.testing.assert_array_equal(data.test[1], rows(data, "test") % 3)


def test_without_test_rows_and_without_clients():
    data = fl.from_frame(frame(10), label="y", test=0).load().data
    assert data.test is None
    assert data.split.names.tolist() == ["all"]
    assert data.split.sizes.tolist() == [10]


def test_clients_are_sorted_as_their_values_are():
    table = {"v": np.arange(8.0), "y": [0, 1] * 4, "c": [10, 2, 10, 2, 1, 1, 30, 30]}
    for column in (table["c"], np.array(table["c"], float)):
        data = fl.from_frame(table | {"c": column}, label="y", client="c", test=0).load().data
        assert data.split.names.tolist() == ["1", "2", "10", "30"]
    halves = fl.from_frame(table | {"c": np.array(table["c"]) / 4}, label="y", client="c", test=0).load().data
    odd = fl.from_frame(table | {"c": [np.inf, 1.0] * 4}, label="y", client="c", test=0).load().data
    assert odd.split.names.tolist() == ["1.0", "inf"]
    assert halves.split.names.tolist() == ["0.25", "0.5", "2.5", "7.5"]


def test_a_client_whose_rows_are_all_for_testing_does_not_train_but_is_tested():
    table = frame(12, 3)
    fold = np.array(["train"] * 12, object)
    fold[[1, 4, 7, 10]] = "testing"  # all of client 1
    fold[[0, 2]] = "test"
    fold[[3, 5]] = "Validation"
    data = fl.from_frame(table | {"fold": fold}, label="y", client="client", split_column="fold").load().data
    assert data.split.names.tolist() == ["0", "2"]
    assert [set(rows(data)[data.split.rows(k)]) for k in range(2)] == [{6, 9}, {8, 11}]
    assert [set(rows(data)[data.validation_split.rows(k)]) for k in range(2)] == [{3}, {5}]
    assert [set(rows(data, "test")[data.test_split.rows(k)]) for k in range(2)] == [{0}, {2}]
    assert set(rows(data, "test")) == {0, 1, 2, 4, 7, 10}
    loaded = fl.from_frame(table | {"fold": fold}, label="y", client="client", split_column="fold").load()
    scores = loaded.by_client(loaded.w)["loss"]
    assert len(scores.values) == 2
    everyone = loaded.scores(loaded.w)["loss"]
    each = np.asarray(loaded.examplewise(loaded.w, "test", ["loss"])["loss"][0])
    assert everyone == pytest.approx(each.mean())
    assert scores.values[1] == pytest.approx(each[list(rows(data, "test")).index(2)])


def test_rows_of_a_client_that_only_validates_are_not_used():
    table = frame(6, 2) | {"fold": ["train", "val", "train", "valid", "test", "val"]}
    data = fl.from_frame(table, label="y", client="client", split_column="fold").load().data
    assert data.split.names.tolist() == ["0"]
    assert sorted(rows(data)) == [0, 2]
    assert data.validation_split is None


# What is refused.

GOOD = {"age": [1.0, 2.0, 3.0, 4.0], "sex": ["f", "m", "f", "m"], "y": [0, 1, 0, 1], "site": ["a", "a", "b", "b"]}
MANY = [f"t{i}" for i in range(101)] * 2
BAD = {
    "There is no label": ({}, dict(label="Y"), r"label: there is no column 'Y'\. Did you mean 'y'\? Known: age, sex"),
    "no client": ({}, dict(client="sites"), r"client: there is no column 'sites'\. Did you mean 'site'\?"),
    "no split column": ({}, dict(split_column="fold"), "split_column: there is no column 'fold'"),
    "nothing to leave out": ({}, dict(leave_out=["age", "seks"]), r"leave_out: .*'seks'\. Did you mean 'sex'\?"),
    "label left out": ({}, dict(leave_out="y"), "label: there is no column 'y'"),
    "one column for two": ({}, dict(client="y"), "label, client must be different columns, got y, y"),
    "missing label": ({"y": [0, 1, None, 1]}, {}, r"The label 'y' has no value in row 2 \(the first is row 0\)"),
    "missing text label": ({"y": ["a", "b", "a", ""]}, {}, "The label 'y' has no value in row 3"),
    "missing client": ({"site": ["a", None, "b", "b"]}, {}, "The client 'site' has no value in row 1"),
    "infinite": ({"age": [1.0, np.inf, 3.0, 4.0]}, {}, "Column 'age' has inf in row 1"),
    "infinite label": ({"y": [1.5, 2.5, -np.inf, 4.0]}, {}, "Column 'y' has -inf in row 2"),
    "no feature": ({}, dict(leave_out=["age", "sex"]), "No column is left to be a feature"),
    "one class": ({"y": [1, 1, 1, 1]}, {}, "The label 'y' is 1 in every row"),
    "one number": ({"y": [1.5, 1.5, 1.5, 1.5]}, {}, r"The label 'y' is 1\.5 in every row"),
    "empty column": ({"age": [np.nan] * 4}, {}, "Column 'age' has no value in any row; leave it out"),
    "split values": (
        {"fold": ["train", "holdout", None, "test"]},
        dict(split_column="fold"),
        "some are .no value., holdout",
    ),
    "no test share": ({}, dict(test=1.0), r"test must be a share in \[0, 1\), got 1\.0"),
    "negative test share": ({}, dict(test=-0.1), "test must be a share"),
    "share in words": ({}, dict(test="all"), "test must be a share"),
    "unknown model": ({}, dict(model="cnn"), "model: there is no model 'cnn' of tables; give linear, mlp, mlp-128-64"),
    "bad sizes": ({}, dict(model="mlp-0"), "there is no model 'mlp-0'"),
    "number as model": ({}, dict(model=3), "there is no model 3"),
    "no model made": ({}, dict(model=lambda features, outputs: None), "the function must return a Model, got None"),
    "other inputs": ({}, dict(model=fl.models.mlp(5, 2)), "mlp-5-2 does not take the table's 3 features"),
    "other outputs": (
        {},
        dict(model=fl.models.mlp(3, 4)),
        r"gives outputs of shape \(2, 4\) for 2 rows.* needs \(2, 2\)",
    ),
    "too many outputs": ({"y": [0.5, 1.5, 2, 3]}, dict(model=fl.models.mlp(3, 2)), r"the label 'y' needs \(2, 1\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case):
    changes, options, sentence = BAD[case]
    fl.from_frame(GOOD, label="y", client="site")
    with pytest.raises(ValueError, match=sentence):
        fl.from_frame(GOOD | changes, **{"label": "y", "client": "site", **options})


def test_identifiers_and_free_text_are_refused():
    n = len(MANY)
    table = {"v": np.arange(n) / 7, "y": np.arange(n) % 2, "text": MANY}
    with pytest.raises(ValueError, match=r"Column 'text' has 101 different texts in 202 rows.*leave it out"):
        fl.from_frame(table, label="y")
    hundred = [f"t{i % 100}" for i in range(n)]
    assert len(fl.from_frame(table | {"text": hundred}, label="y").load().data.preparation.names) == 101
    few = {"v": np.arange(30) / 7, "y": np.arange(30) % 2, "text": [f"t{i}" for i in range(28)] + ["t0", None]}
    with pytest.raises(ValueError, match="Column 'text' has 28 different texts in 29 rows"):
        fl.from_frame(few, label="y")
    with pytest.raises(ValueError, match="The label 'text' has 30 different texts in 30 rows: too many"):
        fl.from_frame(few | {"text": [f"t{i}" for i in range(30)]}, label="text")
    small = {"v": np.arange(20) / 7, "y": np.arange(20) % 2, "text": [f"t{i}" for i in range(20)]}
    assert len(fl.from_frame(small, label="y").load().data.preparation.names) == 21  # a small table may differ


def test_tables_that_are_too_small_or_have_no_training_row():
    with pytest.raises(ValueError, match="A table must have at least 2 rows, but has 1"):
        fl.from_frame({"v": [1.0], "y": [0]}, label="y")
    with pytest.raises(ValueError, match="label: there is no column 'y'"):
        fl.from_frame({}, label="y")
    table = {"v": [1.0, 2.0], "y": [0, 1], "fold": ["test", "val"]}
    with pytest.raises(ValueError, match="split_column 'fold': no row of the table is for training"):
        fl.from_frame(table, label="y", split_column="fold")
    with pytest.raises(ValueError, match="The numbers of column 'v' are too large"):
        fl.from_frame({"v": [1e200, -1e200, 0.0], "y": [0, 1, 0]}, label="y", test=0).load()
    with pytest.raises(ValueError, match="The numbers of column 'v' are too large"):
        fl.from_frame({"v": [1.7e308, 1.7e308, 0.0], "y": [0, 1, 0]}, label="y", test=0).load()


# Models.


def test_models_by_name_and_of_ones_own():
    assert table_model("linear", 7, 3).parameters == 7 * 3 + 3
    assert table_model("mlp", 7, 3) is fl.models.mlp(7, 64, 3)
    assert table_model("mlp-128-64", 7, 3) is fl.models.mlp(7, 128, 64, 3)
    own = fl.models.Model("own", lambda key: jnp.zeros(3), lambda w, x, key: x @ w)  # outputs without an axis
    for model in (own, lambda features, outputs: own):
        task = fl.from_frame(GOOD | {"y": [0.5, 1.5, 2.0, 3.0]}, label="y", client="site", model=model, test=0)
        loaded = task.load()
        assert task.model is own
        assert loaded.scores(loaded.w, "train")["mse"] == pytest.approx(np.var([0.5, 1.5, 2.0, 3.0]), rel=1e-5)


# End to end.


def test_a_regression_finds_a_linear_rule_in_the_labels_own_units(tmp_path):
    """Clients with different inputs but one rule: cost = 1000 + 300 v - 200 [kind is b]."""
    v, kind = RNG.normal(3, 2, 300), RNG.choice(["a", "b"], 300)
    table = {"v": v, "kind": kind, "cost": 1000 + 300 * v - 200 * (kind == "b"), "site": np.sign(v).astype(int)}
    task = fl.from_frame(table, label="cost", client="site", model="linear", name="costs")
    loaded = task.load()
    *_, last = fl.simulate(fl.FedAvg(), loaded.federation, fl.SGD(0.1, batch_size=20), loaded.w, rounds=60)
    assert loaded.evaluate(last.w)["test mse"] < 1.0  # of labels whose variance is about 360,000
    new = {"kind": ["b", "a"], "v": [10.0, 0.0]}
    prepared = loaded.data.preparation
    outputs = task.model.apply(task.model.unravel(last.w), prepared.features(new), None)
    found = prepared.predictions(outputs)
    np.testing.assert_allclose(found["prediction"], [3800, 1000], atol=3)
    write(found, tmp_path / "predictions.csv")
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "predictions.csv").prediction, found["prediction"])


def test_methods_are_compared_on_a_table_for_several_seeds(tmp_path):
    table = pd.DataFrame(frame(120, 4))
    table["y"] = np.where(table.v > 0, "up", "down")
    table.to_csv(tmp_path / "moves.csv.gz", index=False)
    task = from_file(tmp_path / "moves.csv.gz", label="y", client="client", leave_out="row", model="linear")
    assert task.name == "moves"
    assert task.about == ("A table of 120 rows of 4 clients (client): 1 column, 1 feature, the label 'y' (2 classes).")
    study = fl.compare(task, ["fedavg", "scaffold"], rounds=10, seeds=[0, 1])
    assert "moves: test accuracy at equal cost" in fl.report.text(study)
    assert all(result.rows[-1]["test accuracy"] > 0.8 for result in study.results)
    assert study.results[0].about["names"] == ["0", "1", "2", "3"]
    assert study.results[0].about["test"]["digest"] != study.results[1].about["test"]["digest"]


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """One CSV file of the four hospitals, with the question marks of the originals."""
    folder = real("heart_disease") / "heart_disease"
    lines = [",".join([*COLUMNS, "hospital"])]
    for name in HOSPITALS:
        lines += [f"{line},{name}" for line in (folder / f"processed.{name}.data").read_text().split()]
    path = tmp_path_factory.mktemp("heart") / "hospitals.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_four_hospitals_from_a_csv_file_against_pandas(hospitals):
    raw = pd.read_csv(hospitals, na_values=["?"])
    table = read(hospitals)
    assert table.rows == len(raw) == 920
    for name in COLUMNS:
        np.testing.assert_array_equal(table.columns[name].values.astype(float), raw[name].to_numpy(float))
    task = from_file(hospitals, label="num", client="hospital")
    data = task.load(4).data
    assert data.split.names.tolist() == sorted(HOSPITALS)
    # Grades 0 to 4, as heart-disease.names has them: 303, 294, 123 and 200 patients.
    assert data.classes == 5
    assert (data.split.sizes + data.test_split.sizes).tolist() == [303, 294, 123, 200]
    assert data.split.sizes.tolist() == [int(0.8 * n) for n in (303, 294, 123, 200)]
    marked = [name for name in COLUMNS if raw[name].isna().any()]
    assert [n for n in data.preparation.names if n.endswith(" missing")] == [f"{name} missing" for name in marked]

    # Which rows are for training is found again by the features: those of a raw row, standardised as it says there, are
    # those of a training row; the statistics must then be those of these rows.
    columns, names = data.preparation.columns, data.preparation.names
    stored = np.asarray(data.train[0])[:, [names.index(c.name) for c in columns]]
    standard = np.stack([((raw[c.name] - c.mean) * c.scale).fillna(0) for c in columns], axis=1)
    distances = np.abs(stored[:, None, :] - standard[None, :, :]).max(axis=2)
    assert distances.min(axis=1).max() < 1e-5
    train = raw.iloc[distances.argmin(axis=1)]
    for c in columns:
        values = train[c.name].dropna()
        np.testing.assert_allclose([c.mean, c.scale], [values.mean(), 1 / values.std(ddof=0)], rtol=1e-9)


def test_four_hospitals_from_csv_to_predictions(hospitals, tmp_path):
    raw = pd.read_csv(hospitals, na_values=["?"])
    raw["disease"] = np.where(raw.num > 0, "ill", "well")
    raw["sex"] = raw.sex.map({1: "male", 0: "female"})
    raw.drop(columns="num").to_parquet(tmp_path / "patients.parquet")
    task = from_file(tmp_path / "patients.parquet", label="disease", client="hospital")
    loaded = task.load(0)
    assert {"sex=female", "sex=male", "ca missing"} <= set(loaded.data.preparation.names)
    assert (
        "columns trestbps, chol, fbs, restecg, thalach, exang, oldpeak, slope and 2 more have" in notes(loaded.data)[0]
    )
    *_, last = fl.simulate(fl.FedAvg(), loaded.federation, fl.SGD(0.05, batch_size=10), loaded.w, rounds=30, chunk=30)
    assert loaded.evaluate(last.w)["test accuracy"] > 0.75
    assert len(loaded.by_client(last.w)["accuracy"].values) == 4

    prepared = loaded.data.preparation
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = prepared.features(raw[[*reversed(raw.columns)]].drop(columns=["disease", "hospital", "num"]))
    found = prepared.predictions(task.model.apply(task.model.unravel(last.w), x, None))
    assert set(found["prediction"]) == {"ill", "well"}
    assert np.mean(found["prediction"] == raw.disease) > 0.75
    np.testing.assert_allclose(found["probability of ill"] + found["probability of well"], 1)
    np.testing.assert_array_equal(found["probability of ill"] > 0.5, found["prediction"] == "ill")


# Examples.


@pytest.mark.parametrize("data", ["the hospitals' own", "made up"])
def test_the_example_of_hospitals_goes_from_csv_to_predictions(data, tmp_path, monkeypatch, capsys):
    folder = tmp_path if data == "made up" else real("heart_disease")
    monkeypatch.setenv("FEDLOOM_DATA", str(folder))
    runpy.run_path(str(ROOT / "examples/hospitals.py"))["main"](rounds=12, seeds=1)
    out = capsys.readouterr().out
    assert f"A table of {400 if data == 'made up' else 920} rows of 4 clients (hospital)" in out
    assert {"fedavg", "scaffold", "feddyn"} <= {line.split()[0] for line in out.splitlines() if line}
    path = re.search(r"predictions: (\S+)", out)[1]
    patients, predictions = pd.read_csv(path.replace("predictions", "patients")), pd.read_csv(path)
    assert np.mean(patients.disease == predictions.prediction) > 0.7


def test_the_example_of_a_hugging_face_folder_compares_methods(capsys):
    pytest.importorskip("datasets", reason="needs datasets")
    runpy.run_path(str(ROOT / "examples/huggingface_folder.py"))["main"](rounds=3, seeds=1)
    out = capsys.readouterr().out
    assert "A table of 700 rows of 5 clients (shop): 16 columns, 16 features" in out
    assert {"fedavg", "scaffold", "fedadam"} <= {line.split()[0] for line in out.splitlines() if line}
