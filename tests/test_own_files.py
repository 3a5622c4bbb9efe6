"""FILE.py:NAME for everything that can be one's own: it runs, it is resumed, it is refused if it changed, and reports
need only the logs."""

import dataclasses
import hashlib
import json
import pathlib
import re
import sys
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cli
from fedloom.experiments import changed, experiment, find_runs, from_toml, own_files, read, resume, run
from fedloom.experiments.plain import Lost
from tests import own
from tests.test_runs import log, refused, stopped

KINDS = tuple(own.KINDS)
CHANGED = "own.py has changed since the run began; put the old file back, or run the experiment again in another"
MISSING = "own.py is missing; put the old file back, or run the experiment again in another directory"


@pytest.fixture(autouse=True)
def files(tmp_path):
    own.put(tmp_path)
    return tmp_path / "own.py"


def made(kind, **changes):
    """The experiment of a kind, from the folder of the files."""
    given = {"rounds": 5, "evaluate_every": 1, "solver": "gd", "solver.lr": 0.5, "cohort": "everyone"} | own.KINDS[kind]
    algorithm = given.pop("algorithm", "fedavg")
    return experiment("own.py:task" if kind == "task" else "base.py:task", algorithm, **given | changes)


def sha(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_in_the_run_and_the_run_remembers_its_files(tmp_path, kind, monkeypatch):
    e = made(kind)
    result = run(e, tmp_path / "a")
    plain = run(experiment("base.py:task", "fedavg", rounds=5, evaluate_every=1, solver=fl.GD(0.5)))
    if kind == "metrics":
        assert [row["test accuracy"] for row in result.rows] == [row["test accuracy"] for row in plain.rows]
        assert {"test largest", "test shift"} <= result.rows[-1].keys()
    elif kind != "task":  # it has an effect
        assert result.rows[-1]["train loss"] != plain.rows[-1]["train loss"]
    own_file, base, second = (str(tmp_path / name) for name in ("own.py", "base.py", "mse_of.py"))
    used = {own_file} | ({base} if kind != "task" else set()) | ({second} if kind == "metrics" else set())
    files = json.loads((tmp_path / "a/about.json").read_text())["files"]
    assert files == {path: sha(path) for path in used}
    monkeypatch.chdir("/")  # paths are whole
    again = from_toml((tmp_path / "a/config.toml").read_text())
    assert again == e
    assert again.to_toml() == e.to_toml() == (tmp_path / "a/config.toml").read_text()
    assert run(again).rows == result.rows


def test_options_reach_the_fields(tmp_path):
    assert made("algorithm").algorithm.lr == 0.75
    assert made("solver").solver.lr == 0.03125
    assert made("cohort").cohort.m == 3
    assert made("cohort in a cohort").cohort.of.m == 3
    table = {"task": "digits", "algorithm": {"name": "own.py:Mine", "lr": 0.25}}
    assert fl.experiments.from_config(table).algorithm.lr == 0.25
    e = changed(made("algorithm"), {"algorithm": "own.py:Mine"})  # the same name keeps the fields
    assert e.algorithm.lr == 0.75
    assert changed(e, {"algorithm": "fedprox"}).algorithm == fl.FedProx()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_is_resumed_from_elsewhere_with_the_same_bits(tmp_path, kind, monkeypatch):
    whole = run(made(kind), tmp_path / "whole")
    directory = stopped(tmp_path / "a", made(kind))
    monkeypatch.chdir("/")
    own_files._versions.clear()  # as in a new process
    resumed = resume(directory)
    assert log(directory) == log(tmp_path / "whole")
    np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changed_is_refused_until_it_is_back(tmp_path, kind, files):
    run(made(kind), tmp_path / "whole")
    directory = stopped(tmp_path / "a", made(kind))
    old = files.read_bytes()
    files.write_bytes(old + b"\n# A comment is a change, too.\n")
    refused(directory, CHANGED)
    files.write_bytes(b"def f(:")
    refused(directory, CHANGED)
    files.unlink()
    refused(directory, MISSING)
    files.write_bytes(old)
    resume(directory)
    assert log(directory) == log(tmp_path / "whole")


def test_the_file_of_another_kind_in_the_run_is_watched_too(tmp_path):
    directory = stopped(tmp_path / "a", made("metrics"))
    (tmp_path / "mse_of.py").write_text(own.MSE_OF + "\n")
    refused(directory, "mse_of.py has changed since the run began")


def without_names(text):
    return text + "\ndel Mine, Signs, Pairs, net, small, margin, largest, task\n"


def another_field(text):
    """Each class has a field more, with a default: the old tables could be read, but would not be written so again."""
    more = "    more: int = fl.static(count, 'more', default=1)\n"
    return text.replace("    lr: float", f"{more}    lr: float").replace("    m: int", f"{more}    m: int")


WAYS = {
    "broken": lambda text: text + "\ndef f(:\n",
    "raises": lambda text: "raise KeyError('no such column')\n" + text,
    "exits": lambda text: "import sys\nsys.exit(3)\n" + text,
    "without names": without_names,
    "another field": another_field,
    "gone": None,
}


@pytest.mark.parametrize("kind", ["algorithm", "cohort in a cohort", "model", "loss", "metrics"])
def test_reports_need_only_the_logs(tmp_path, capsys, files, kind):
    directory = tmp_path / "a/run"
    result, text = run(made(kind), directory), files.read_text()
    config = (directory / "config.toml").read_bytes()
    for change in WAYS.values():
        files.unlink() if change is None else files.write_text(change(text))
        again = read(directory)
        assert (again.rows, again.name) == (result.rows, result.name)
        assert again.experiment.to_toml().encode() == config
        np.testing.assert_array_equal(again.w, result.w)
        found = find_runs([tmp_path / "a"])
        assert [r.rows for r in found.results] == [result.rows]
        assert "skipped" not in found.about
        assert list(fl.evidence.groups.by_task(found)) == ["ours"]  # the task's name, not the file's
        assert resume(directory).rows == result.rows  # it is finished, so nothing is needed
    for command in ("report", "resume"):
        assert cli.main([command, str(directory), *["--quiet"] * (command == "resume")]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert re.search(rf"ours: test accuracy .*\n{result.name} ", out, re.DOTALL)
    assert (directory / "config.toml").read_bytes() == config


@pytest.mark.parametrize("kind", ["algorithm", "solver", "cohort", "cohort in a cohort"])
def test_what_is_lost_says_why_and_cannot_be_run(tmp_path, files, kind):
    run(made(kind), tmp_path / "a")
    text = files.read_text()
    part = kind.split(" ")[0]

    def why():
        e = read(tmp_path / "a").experiment
        assert isinstance(getattr(e, part), Lost)
        with pytest.raises(ValueError, match=f"^{part}: ") as caught:
            e.check()
        with pytest.raises(ValueError, match=f"^{part}: "):
            changed(e, {f"{part}.lr": 1.0})
        assert isinstance(dataclasses.replace(e, seed=1), fl.Experiment)
        assert changed(e, {part: "fedavg" if part == "algorithm" else "gd" if part == "solver" else "everyone"}).check()
        return str(caught.value)

    files.write_text("1\n2\nraise RuntimeError('no')\n")
    assert why() == f"{part}: {files}, line 3: RuntimeError: no"
    files.write_text(without_names(text))
    assert "own.py has no " in why()
    files.write_text(another_field(text))
    assert "has other fields than it had" in why()
    files.unlink()
    assert why() == f"{part}: There is no file {files}."


def test_a_run_whose_note_of_its_files_is_damaged(tmp_path):
    directory = stopped(tmp_path / "a", made("algorithm"))
    about = json.loads((directory / "about.json").read_text())
    (directory / "about.json").write_text(json.dumps({**about, "files": 3}))
    refused(directory, r"about.json is damaged: its files are 3\.")


def test_a_run_that_has_not_begun_says_what_is_missing(tmp_path, files):
    fl.experiments.run_directory.create_run(made("algorithm"), tmp_path / "a")
    files.unlink()
    with pytest.raises(ValueError, match=r"algorithm: There is no file .*own.py\."):
        resume(tmp_path / "a")


@pytest.mark.parametrize("engine", ["simulate", "events"])
def test_a_copy_of_a_registered_method_has_its_log_byte_for_byte(tmp_path, engine):
    (tmp_path / "copy.py").write_text((pathlib.Path(fl.__file__).parent / "algorithms/fedavg.py").read_text())
    changes = {"rounds": 4, "engine": engine, "buffer": 2 if engine == "events" else 1}
    for place, algorithm in (("ours", "fedavg"), ("own", "copy.py:FedAvg")):
        run(experiment("digits", algorithm, **changes, **{"algorithm.lr": 0.5}), tmp_path / place)
    assert log(tmp_path / "own") == log(tmp_path / "ours")
    assert read(tmp_path / "own").name == "FedAvg"


def test_a_file_may_have_the_name_of_a_library(tmp_path):
    (tmp_path / "json.py").write_text((tmp_path / "own.py").read_text())
    assert experiment("json.py:task", "json.py:Mine").check()
    import json as library

    assert library.loads("[1]") == [1]


def test_a_file_that_fails_leaves_nothing_behind(files):
    files.write_text("x = 1\nraise KeyError('no')\n")
    before = set(sys.modules)
    with pytest.raises(KeyError):
        experiment("own.py:task")
    assert set(sys.modules) == before


def test_an_alias_is_the_class_that_it_stands_for(tmp_path, files):
    """Its table is the same, however it was named and in whatever order."""
    files.write_text(files.read_text() + "\nBest = Mine\n")
    best, mine = (experiment("digits", f"own.py:{name}") for name in ("Best", "Mine"))
    assert best.to_toml() == mine.to_toml()
    own_files._versions.clear()
    assert experiment("digits", "own.py:Best").to_toml() == mine.to_toml()


def test_a_model_is_made_once(tmp_path):
    """So that seeds and methods share compiled programs."""
    first, second = (made("model", seed=seed).check().loaded.task.model for seed in (0, 1))
    assert first is second


def test_losses_and_metrics_by_name():
    e = experiment("base.py:task", "fedavg", rounds=1, loss="cross_entropy")
    assert run(e).rows == run(experiment("base.py:task", "fedavg", rounds=1)).rows  # it is the task's own
    assert "loss" not in experiment("base.py:task", "fedavg").to_plain()
    e = experiment("base.py:task", "fedavg", rounds=1, metrics="accuracy,own.py:largest")
    assert e.metrics[0] == "accuracy"
    rows = run(e).rows  # accuracy is the task's own already
    metrics = {name for name in rows[0] if name.startswith("test ")}
    assert metrics == {"test loss", "test accuracy", "test largest", "test blocks"}


def test_a_loss_of_ones_own_is_minimised():
    """By hand: the mean hinge loss over all training examples, at the initial model."""
    e = experiment("base.py:task", "fedavg", rounds=1, loss="own.py:margin")
    loaded = e.check().loaded
    x, y = (np.asarray(a) for a in loaded.data.train)
    rows = loaded.data.split.order
    outputs = np.asarray(loaded.task.model.apply(loaded.task.model.unravel(loaded.w), jnp.asarray(x[rows]), None))
    right = outputs[np.arange(len(rows)), y[rows]]
    by_hand = np.mean(np.maximum(0, 1 + outputs - right[:, None]).sum(axis=1) - 1)
    np.testing.assert_allclose(run(e).rows[0]["train loss"], by_hand, rtol=1e-12)


def test_a_method_with_a_field_that_has_no_default(tmp_path):
    text = (tmp_path / "own.py").read_text()
    (tmp_path / "own.py").write_text(
        text.replace(
            '    lr: float = fl.hyper(positive, "server',
            '    times: int = fl.static(count, "?")\n    lr: float = fl.hyper(positive, "server',
        )
    )
    e = experiment("digits", "own.py:Mine", **{"algorithm.times": 3})
    assert e.algorithm.times == 3
    (tmp_path / "e.toml").write_text('task = "digits"\nalgorithm = {name = "own.py:Mine", times = 4}')
    assert from_toml((tmp_path / "e.toml").read_text()).algorithm.times == 4
    with pytest.raises(ValueError, match=r"own.py:Mine needs times"):
        experiment("digits", "own.py:Mine")


def test_a_method_that_needs_everyone_gets_everyone(files):
    files.write_text(files.read_text().replace("    exact = False", "    exact = False\n    needs_everyone = True"))
    assert experiment("digits", "own.py:Mine").cohort == fl.cohorts.everyone()
    assert experiment("digits", "fedavg").cohort == fl.cohorts.uniform(10)


def test_a_method_named_like_a_registered_one_is_another(files):
    """It does not get the settings that were tuned for that one."""
    files.write_text(files.read_text().replace("class Mine", "class fedavg"))
    e = experiment("digits", "own.py:fedavg")
    assert e.algorithm.lr == 0.5
    assert fl.experiments.origin(e)["origin"] == "untuned"
    assert tomllib.loads(e.to_toml())["algorithm"]["name"] == f"{files}:fedavg"
    assert fl.experiments.origin(experiment("digits", "fedavg"))["origin"] == "tuned"
    study = fl.compare("digits", ["fedavg", "own.py:fedavg"], rounds=1, seeds=[0])
    assert [r.name for r in study.results] == ["fedavg", "own.py:fedavg"]
