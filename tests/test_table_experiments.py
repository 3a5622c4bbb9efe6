"""From a table to an answer in one command, and from the answer to predictions."""

import json
import re

import numpy as np
import pytest

import fedloom as fl
from fedloom.cli import main
from fedloom.experiments.table_files import is_table

pandas = pytest.importorskip("pandas", reason="frames need pandas")
pytest.importorskip("pyarrow", reason="CSV files are read with pyarrow")

N = 120
RNG = np.random.default_rng(3)
AGE, DOSE, WARD = RNG.normal(60, 9, N).round(1), RNG.integers(0, 4, N), RNG.choice(["a", "b", "c"], N)
ILL = AGE + 5 * DOSE + RNG.normal(0, 3, N) > 67
FRAME = pandas.DataFrame(
    {
        "age": AGE,
        "dose": DOSE,
        "ward": WARD,
        "site": np.array(["north", "south", "west"])[np.arange(N) % 3],
        "ill": np.where(ILL, "yes", "no"),
        "fold": np.where(np.arange(N) % 4 == 3, "test", "train"),
    }
)
OPTIONS = ("--label", "ill", "--client", "site", "--split-column", "fold", "--model", "linear", "--rounds", "4")


@pytest.fixture
def patients(tmp_path):
    FRAME.to_csv(tmp_path / "patients.csv", index=False)
    return "patients.csv"


def say(capsys, *arguments):
    code = main([str(a) for a in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_compare_export_predict(patients, tmp_path, capsys):
    code, out, err = say(capsys, "compare", patients, *OPTIONS, "--seeds", "2", "--algorithms", "fedavg,scaffold")
    assert code == 0, err
    assert {line.split()[0] for line in out.splitlines() if line} >= {"fedavg", "scaffold"}
    assert "120 rows of 3 clients (site)" in err
    study = fl.experiments.read_study("runs/compare-patients-1")
    assert study.results[0].about["names"] == ["north", "south", "west"]
    new = FRAME.drop(columns=["ill", "fold", "site"]).head(7)
    new.to_csv("new.csv", index=False)
    code, out, _ = say(capsys, "predict", "runs/compare-patients-1", "new.csv", "--algorithm", "scaffold")
    assert (code, out) == (0, "new-predictions.csv: predictions for 7 rows\n")
    written = pandas.read_csv("new-predictions.csv")
    result = next(r for r in study.results if r.name == "scaffold")
    assert written["prediction"].tolist() == result.predict(new).tolist()
    assert set(written["prediction"]) <= {"yes", "no"}
    np.testing.assert_allclose(written["probability of yes"] + written["probability of no"], 1)
    say(capsys, "export", "runs/compare-patients-1", "--algorithm", "scaffold", "--out", "m.safetensors")
    (tmp_path / "patients.csv").unlink()  # the model's file is enough
    code, *_ = say(capsys, "predict", "m.safetensors", "new.csv", "--out", "again.csv")
    assert code == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "new-predictions.csv").read_bytes()


def test_the_model_is_the_formula_on_the_prepared_columns(patients):
    """Logistic regression by hand: standardised with the training rows' mean and deviation, wards as 0 and 1."""
    e = fl.experiment(patients, "fedavg", rounds=3, label="ill", client="site", split_column="fold", model="linear")
    result = fl.run(e)
    train = FRAME[FRAME["fold"] == "train"]
    columns = [(FRAME[c] - train[c].mean()) / train[c].std(ddof=0) for c in ("age", "dose")]
    columns += [(FRAME["ward"] == ward).astype(float) for ward in "abc"]
    logits = np.stack(columns, axis=1) @ np.asarray(result.params["w"]).T + np.asarray(result.params["b"])
    chosen = np.array(["no", "yes"])[logits.argmax(axis=1)]
    assert result.predict(FRAME).tolist() == chosen.tolist()
    test = (FRAME["fold"] == "test").to_numpy()
    assert result.rows[-1]["test accuracy"] == pytest.approx(np.mean(chosen[test] == FRAME["ill"][test]), abs=1e-6)


def test_a_run_is_its_file(patients, tmp_path):
    e = fl.experiment(patients, "feddr", rounds=2, label="ill", client="site", leave_out="fold")
    assert e.task == str(tmp_path / "patients.csv")
    again = fl.experiments.from_toml(e.to_toml())
    assert again == e
    assert json.dumps(fl.run(again).rows) == json.dumps(fl.run(e).rows)


def test_python_and_the_command_line_are_the_same(patients, capsys):
    say(capsys, "run", patients, *OPTIONS, "--algorithm", "fedavg", "--out", "run")
    task = fl.from_frame(FRAME, label="ill", client="site", split_column="fold", model="linear", name="patients")
    mine = fl.run(fl.experiment(task, "fedavg", rounds=4))
    there = fl.experiments.read("run")
    assert [row["test accuracy"] for row in mine.rows] == [row["test accuracy"] for row in there.rows]


def test_a_changed_table_is_not_resumed(patients, tmp_path, capsys):
    say(capsys, "compare", patients, *OPTIONS, "--seeds", "1", "--algorithms", "fedavg", "--out", "study")
    code, *_ = say(capsys, "extend", "study", "--seeds", "2")
    assert code == 0
    FRAME.head(100).to_csv(tmp_path / "patients.csv", index=False)
    code, _, err = say(capsys, "extend", "study", "--seeds", "3")
    assert code == 2
    assert "patients.csv has changed since the run began" in err


@pytest.mark.parametrize("how", ["gone", "broken"])
def test_reports_need_no_table(patients, tmp_path, capsys, how):
    say(capsys, "compare", patients, *OPTIONS, "--seeds", "1", "--algorithms", "fedavg,feddyn", "--out", "study")
    before = say(capsys, "report", "study")[1]
    (tmp_path / "patients.csv").unlink()
    if how == "broken":
        (tmp_path / "patients.csv").write_text("a,b\n1\n")
    code, out, err = say(capsys, "report", "study")
    assert (code, out) == (0, before), err


def test_methods_can_be_added_from_another_folder(patients, tmp_path, capsys, monkeypatch):
    say(capsys, "compare", patients, *OPTIONS, "--seeds", "1", "--algorithms", "fedavg", "--out", "study")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, out, err = say(capsys, "extend", "../study", "--algorithms", "+fedprox")
    assert code == 0, err
    assert "fedprox" in out


def test_rows_without_clients_are_divided(patients, capsys):
    options = ("--label", "ill", "--leave-out", "site,fold", "--rounds", "2", "--split", "iid", "--split.clients", "5")
    code, _, err = say(capsys, "run", patients, *options, "--algorithm", "fedavg", "--out", "run")
    assert code == 0, err
    assert fl.experiments.read("run").about["clients"] == 5


def test_numbers_are_predicted_in_their_own_units(patients, capsys):
    options = ("--label", "age", "--client", "site", "--split-column", "fold", "--rounds", "30", "--model", "linear")
    code, out, err = say(capsys, "run", patients, *options, "--algorithm", "fedavg", "--out", "run")
    assert code == 0, err
    result, test = fl.experiments.read("run"), (FRAME["fold"] == "test").to_numpy()
    squared = np.mean((result.predict(FRAME)[test] - AGE[test]) ** 2)
    assert result.rows[-1]["test mse"] == pytest.approx(squared, rel=1e-4)
    assert squared < result.rows[0]["test mse"]
    assert "patients: cost to reach test mse <= " in out


def test_a_folder_of_hugging_face_is_a_table(tmp_path, capsys):
    datasets = pytest.importorskip("datasets", reason="Hugging Face's folders need datasets")
    parts = {
        part: datasets.Dataset.from_pandas(FRAME[FRAME["fold"] == part], preserve_index=False)
        for part in ("train", "test")
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "folder")
    assert is_table("folder")
    options = ("--label", "ill", "--client", "site", "--leave-out", "fold", "--model", "linear", "--rounds", "3")
    code, _, err = say(capsys, "run", "folder", *options, "--algorithm", "fedavg", "--out", "one")
    assert code == 0, err
    FRAME.to_parquet("patients.parquet", index=False)
    say(capsys, "run", "patients.parquet", *OPTIONS[:-1], "3", "--algorithm", "fedavg", "--out", "other")
    one, other = fl.experiments.read("one"), fl.experiments.read("other")
    assert one.rows[-1]["test accuracy"] == pytest.approx(other.rows[-1]["test accuracy"], abs=1e-12)
    file = next((tmp_path / "folder").rglob("*.arrow"))
    file.write_bytes(file.read_bytes() + b" ")
    code, _, err = say(capsys, "extend", "one", "--rounds", "5")
    assert code == 2
    assert "has changed since the run began" in err


def test_unseen_categories_are_one_sentence(patients, capsys):
    say(capsys, "run", patients, *OPTIONS, "--algorithm", "fedavg", "--out", "run")
    FRAME.assign(ward="z").head(3).to_csv("new.csv", index=False)
    code, _, err = say(capsys, "predict", "run", "new.csv")
    assert code == 0
    assert re.fullmatch(r"fedloom: Column 'ward' has values that no training row has, in 3 rows: .*z.*\n", err)


def test_a_metric_by_name(patients, capsys):
    code, _, err = say(capsys, "run", patients, *OPTIONS, "--algorithm", "fedavg", "--metrics", "auc", "--out", "run")
    assert code == 0, err
    result = fl.experiments.read("run")
    from sklearn.metrics import roc_auc_score

    test = FRAME[FRAME["fold"] == "test"]
    wanted = roc_auc_score(test["ill"] == "yes", result.model.probabilities(test)[:, 1])
    assert result.rows[-1]["test auc"] == pytest.approx(wanted, abs=1e-6)


def test_a_table_is_described(patients, capsys):
    FRAME.assign(age=FRAME["age"].where(FRAME["age"] > 50)).to_csv("gaps.csv", index=False)
    code, out, err = say(capsys, "describe", "gaps.csv", "--label", "ill", "--client", "site", "--leave-out", "fold")
    assert code == 0, err
    assert "gaps: A table of 120 rows of 3 clients (site): 3 columns" in out
    assert "north" in out
    assert re.search("age.*missing values", out)


WRONG = [
    ("compare patients.csv --client site", "label: name the column of patients.csv that is to be predicted"),
    ("compare patients.csv --label ill", "client: name the column of patients.csv that says whose row it is"),
    ("compare patients.csv --label il --client site", "there is no column 'il'. Did you mean 'ill'"),
    ("compare patients.csv --label ill --client hospital", "there is no column 'hospital'"),
    ("compare patients.csv --label ill --client site --split-column ward", "must be train, validation or test"),
    ("compare patients.csv --label ill --client site --leave-out wrd", "there is no column 'wrd'. Did you mean 'ward'"),
    ("compare patients.csv --label ill --client site --model cnn", "no model 'cnn' of tables"),
    ("compare gone.csv --label ill --client site", "There is no file"),
    ("compare digits --label ill", "label names a column of a table, but the task is 'digits'"),
    ("describe patients.csv", "label: name the column of patients.csv that is to be predicted"),
    ("describe digits --label ill", "label names a column of a table"),
    ("predict patients.csv patients.csv", "cannot be read as a model"),
]


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_wrong_arguments_are_sentences(patients, capsys, line, words):
    code, _, err = say(capsys, *line.split())
    assert code == 2
    assert re.search(words, err), err
    assert err.count("\n") == 1
