"""Studies with FILE.py:NAME: names, files that change between two runs or while one runs, growth, sweeps, tunings."""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom import cli
from fedloom.experiments import (
    experiment,
    extend,
    own_files,
    read_study,
    resume_study,
    resume_sweep,
    resume_tuning,
    run,
    sweep,
    tune,
)
from fedloom.experiments.own_files import labels
from fedloom.experiments.recipe import method_names
from fedloom.experiments.study import run_all
from tests import conftest, own
from tests.test_runs import log

CHANGED = r"own.py has changed since the run began; put the old file back"
FEW = {"rounds": 3, "solver": "gd", "cohort": "everyone"}


@pytest.fixture(autouse=True)
def files(tmp_path):
    own.put(tmp_path)
    return tmp_path / "own.py"


class Stops:
    """A progress reporter that ends the process, in a manner of speaking, when so many runs have ended."""

    def __init__(self, runs, do=lambda: None, stop=True):
        self.left, self.do, self.stop = runs, do, stop

    def begin(self, runs): ...
    def row(self, name, experiment, row): ...
    def say(self, words): ...
    def close(self): ...

    def end(self, result):
        self.left -= 1
        if self.left == 0:
            self.do()
            if self.stop:
                raise KeyboardInterrupt


def logs(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("log.jsonl"))}


def unchanged(directory, act, sentence):
    """The act is refused with the sentence, and changes no file of the directory."""
    before = {p: p.read_bytes() for p in directory.rglob("*") if p.is_file() and p.name != "lock"}
    with pytest.raises(ValueError, match=sentence):
        act()
    assert before == {p: p.read_bytes() for p in directory.rglob("*") if p.is_file() and p.name != "lock"}


def test_a_file_that_changes_between_two_runs_of_a_study(tmp_path, files):
    """The second run has not begun: what it needs is noted in the study's own file."""
    fl.compare("base.py:task", ["own.py:Mine"], seeds=[0, 1], **FEW, directory=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fl.compare("base.py:task", ["own.py:Mine"], seeds=[0, 1], **FEW, directory=tmp_path / "a", progress=Stops(1))
    assert not (tmp_path / "a/Mine/seed-1/about.json").exists()
    noted = json.loads((tmp_path / "a/study.json").read_text())["files"]
    names = ("base.py", "own.py")
    assert noted == {str(tmp_path / n): hashlib.sha256((tmp_path / n).read_bytes()).hexdigest() for n in names}
    old = files.read_text()
    files.write_text(old.replace("0.5 * s.m", "0.4 * s.m"))
    unchanged(tmp_path / "a", lambda: resume_study(tmp_path / "a"), CHANGED)
    files.unlink()
    unchanged(tmp_path / "a", lambda: resume_study(tmp_path / "a"), r"own.py is missing; put the old file back")
    assert [len(r.rows) for r in read_study(tmp_path / "a").results] == [4, 0]
    files.write_text(old)
    resume_study(tmp_path / "a")
    assert logs(tmp_path / "a") == logs(tmp_path / "whole")


def test_a_run_that_begins_again_is_still_one_of_its_study(tmp_path, files):
    fl.compare("base.py:task", ["own.py:Mine"], seeds=[0], **FEW, directory=tmp_path / "a")
    fl.experiments.begin_again(tmp_path / "a", "Mine/seed-0")
    files.write_text(files.read_text() + "\n")
    with pytest.raises(ValueError, match=CHANGED):
        resume_study(tmp_path / "a")


@pytest.mark.parametrize("directory", [True, False])
def test_a_file_may_be_edited_while_a_study_runs(tmp_path, files, directory):
    """All runs have the version that the study began with, and say so."""
    whole = fl.compare("own.py:task", ["own.py:Mine"], seeds=[0, 1, 2], metrics="own.py:largest", **FEW)
    digest = hashlib.sha256(files.read_bytes()).hexdigest()

    def edit():
        text = files.read_text().replace("0.5 * s.m", "0.4 * s.m").replace("jnp.max", "jnp.min")
        files.write_text(text.replace("mlp(2, 3, 2)", "mlp(2, 5, 2)"))

    place = tmp_path / "a" if directory else None
    edits = Stops(1, edit, stop=False)
    study = fl.compare(
        *("own.py:task", ["own.py:Mine"]), seeds=[0, 1, 2], metrics="own.py:largest", **FEW, directory=place,
        progress=edits,
    )  # fmt: skip
    assert edits.left == -2
    assert [r.rows for r in study.results] == [r.rows for r in whole.results]
    assert {r.about["files"][str(files)] for r in study.results} == {digest}
    for algorithm in ("fedavg", "own.py:Mine"):  # an experiment that is made now has the new version
        after = run(experiment("own.py:task", algorithm, **FEW))
        assert after.about["parameters"] == 2 * 5 + 5 + 5 * 2 + 2
        assert after.about["files"] == {str(files): hashlib.sha256(files.read_bytes()).hexdigest()}


def test_an_experiment_of_two_versions_of_a_file_cannot_be_written(tmp_path, files):
    e = experiment("own.py:task", "own.py:Mine", **FEW)
    files.write_text(files.read_text().replace("0.5 * s.m", "0.4 * s.m"))
    assert experiment("own.py:task", "own.py:Mine", **FEW).to_toml()
    with pytest.raises(ValueError, match=r"own.py has changed since Mine was loaded from it; load it again"):
        run(e, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_growth_asks_for_the_files_of_what_is_new_and_for_no_others(tmp_path, files, monkeypatch):
    at_once = fl.compare("base.py:task", ["fedavg", "own.py:Mine"], seeds=[0, 1], **FEW)
    fl.compare("base.py:task", ["own.py:Mine"], seeds=[0], **FEW, directory=tmp_path / "a")
    old = files.read_bytes()
    files.write_bytes(old + b"#")
    monkeypatch.chdir("/")
    for more in ({"seeds": 2}, {"rounds": 5}):
        unchanged(tmp_path / "a", lambda more=more: extend(tmp_path / "a", **more), CHANGED)
    files.unlink()
    grown = extend(tmp_path / "a", algorithms=["fedavg"])  # which does not need it
    assert [r.name for r in grown.results] == ["Mine", "fedavg"]
    base = (tmp_path / "base.py").read_bytes()
    (tmp_path / "base.py").write_bytes(base + b"#")
    unchanged(tmp_path / "a", lambda: extend(tmp_path / "a", algorithms=["fedprox"]), r"base.py has changed since")
    (tmp_path / "base.py").unlink()
    missing = r"base.py is missing; put the old file back"
    unchanged(tmp_path / "a", lambda: extend(tmp_path / "a", algorithms=["fedprox"]), missing)
    (tmp_path / "base.py").write_bytes(base)
    files.write_bytes(old)
    grown = extend(tmp_path / "a", seeds=2)
    rows = {(r.name, r.experiment.seed): r.rows for r in grown.results}
    assert rows == {(r.name, r.experiment.seed): r.rows for r in at_once.results}


def test_a_method_of_ones_own_can_be_added(tmp_path, files, monkeypatch):
    fl.compare(
        "base.py:task", ["fedavg"], seeds=[0], **FEW, directory=tmp_path / "a", metrics="accuracy,own.py:largest"
    )
    monkeypatch.chdir("/")  # the recipe has whole paths
    grown = extend(tmp_path / "a", algorithms=[f"{files}:Mine"])
    assert [r.name for r in grown.results] == ["fedavg", "Mine"]
    assert "test largest" in grown.results[1].rows[0]
    with pytest.raises(ValueError, match="nothing to add"):
        extend(tmp_path / "a", algorithms=[f"{files}:Mine"])
    (tmp_path / "copy.py").write_bytes(files.read_bytes())
    names = [r.name for r in extend(tmp_path / "a", algorithms=[f"{tmp_path}/copy.py:Mine"]).results]
    assert names == ["fedavg", "Mine", "copy.py:Mine"]
    noted = json.loads((tmp_path / "a/study.json").read_text())["files"]
    assert noted.keys() == {str(tmp_path / name) for name in ("base.py", "own.py", "copy.py")}


def test_a_single_run_is_lengthened_only_with_its_file(tmp_path, files):
    run(experiment("base.py:task", "own.py:Mine", **FEW), tmp_path / "a")
    run(experiment("base.py:task", "own.py:Mine", **FEW | {"rounds": 5}, evaluate_every=1), tmp_path / "whole")
    old = files.read_bytes()
    files.write_bytes(old + b"#")
    unchanged(tmp_path / "a", lambda: extend(tmp_path / "a", rounds=5), CHANGED)
    files.write_bytes(old)
    extend(tmp_path / "a", rounds=5)
    assert log(tmp_path / "a") == log(tmp_path / "whole")


def test_sweeps(tmp_path, files):
    e = experiment("base.py:task", "own.py:Mine", **FEW)
    study = sweep(e, {"algorithm.lr": [0.25, 0.5], "seed": [0, 1]}, directory=tmp_path / "a")
    assert [r.finished for r in study.results] == [True] * 4
    over = sweep(e, {"algorithm": ["fedavg", "own.py:Mine"]})
    assert [r.name for r in over.results] == ["algorithm=fedavg", "algorithm=Mine"]
    whole = logs(tmp_path / "a")
    fl.experiments.begin_again(tmp_path / "a", "algorithm.lr=0.5/seed-1")
    old = files.read_bytes()
    files.write_bytes(old + b"#")
    with pytest.raises(ValueError, match=CHANGED):
        resume_sweep(tmp_path / "a")
    files.write_bytes(old)
    resume_sweep(tmp_path / "a")
    assert {place: text for place, text in logs(tmp_path / "a").items() if "damaged" not in place} == whole
    files.unlink()
    assert resume_sweep(tmp_path / "a").results[0].finished  # all of it is there


def test_tunings(tmp_path, files):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/own.py").write_bytes(files.read_bytes())
    asked = {"points": 2, "seeds": 1, "validation": 0.3, **FEW, "rounds": 10, "solver.steps": 9}
    methods = ["own.py:Mine", "more/own.py:Mine"]
    with pytest.raises(KeyboardInterrupt):
        tune("base.py:task", methods, **asked, directory=tmp_path / "t", progress=Stops(3))
    old = files.read_bytes()
    files.write_bytes(old + b"#")
    unchanged(tmp_path / "t", lambda: resume_tuning(tmp_path / "t"), CHANGED)
    files.write_bytes(old)
    study = resume_tuning(tmp_path / "t")
    assert [r.rows for r in study.results] == [r.rows for r in tune("base.py:task", methods, **asked).results]
    fields = {field for name in study.about["tuning"] for field in study.about["tuning"][name]["over"]}
    assert fields == {"solver.lr", "algorithm.lr"}  # its own step size may be any positive number
    settings = {p.name for p in (tmp_path / "t/settings").iterdir()}
    assert settings == {f"{tmp_path.name}-own.py-Mine.toml", "more-own.py-Mine.toml"}
    files.unlink()
    assert cli.main(["report", str(tmp_path / "t")]) == 0


def test_names_are_short_and_told_apart():
    a, b, c = "/x/one/mine.py:Mine", "/x/two/mine.py:Mine", "/x/two/mine.py:Other"
    assert labels([a]) == {a: "Mine"}
    assert labels([a, c]) == {a: "Mine", c: "Other"}
    assert labels([a, b, c]) == {a: "one/mine.py:Mine", b: "two/mine.py:Mine", c: "Other"}
    assert labels([a, "/x/two/yours.py:Mine"]) == {a: "mine.py:Mine", "/x/two/yours.py:Mine": "yours.py:Mine"}
    assert labels([a], {"Mine": b}) == {a: "mine.py:Mine"}
    assert labels([a], {"Mine": b, "mine.py:Mine": a}) == {a: "mine.py:Mine"}
    assert labels([a], {"Mine": a}) == {a: "Mine"}
    assert labels(["/m.py:Mine", "/x/m.py:Mine"]) == {"/m.py:Mine": "/m.py:Mine", "/x/m.py:Mine": "x/m.py:Mine"}
    own_and_ours = ["fedavg", fl.FedAvg(lr=0.5), "/x/mine.py:fedavg", "/x/mine.py:FedAvg"]
    assert method_names(own_and_ours) == ["fedavg", "FedAvg(lr=0.5)", "mine.py:fedavg", "FedAvg"]


def test_two_methods_of_one_name_in_a_study(tmp_path, capsys):
    (tmp_path / "one").mkdir()
    text = (tmp_path / "own.py").read_text()
    (tmp_path / "one/own.py").write_text(text.replace("default=0.5", "default=1.0"))
    line = "compare base.py:task --algorithms own.py:Mine,one/own.py:Mine --rounds 2 --seeds 1 --quiet --out a"
    assert cli.main(line.split()) == 0
    first, second = f"{tmp_path.name}/own.py:Mine", "one/own.py:Mine"
    assert first in (out := capsys.readouterr().out)
    assert second in out
    study = read_study(tmp_path / "a")
    assert [(r.name, r.experiment.algorithm.lr) for r in study.results] == [(first, 0.5), (second, 1.0)]


# A class that Python itself has imported.


@pytest.fixture
def imported(tmp_path, monkeypatch, files):
    """The module `ownmod`, whose file may change afterwards."""
    files.rename(tmp_path / "ownmod.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ownmod", raising=False)
    import ownmod

    yield ownmod
    sys.modules.pop("ownmod")


def test_a_class_that_was_imported_can_be_written_too(tmp_path, imported):
    e = experiment("base.py:task", imported.Mine(lr=0.25), **FEW)
    result = run(e, tmp_path / "a")
    for _ in range(100):  # Python rewrites the code of what runs often, which is no change
        imported.Mine().receive(imported.State(np.ones(1), np.ones(1)), np.ones(1), None)
    assert e.to_plain()["algorithm"] == {"name": f"{tmp_path}/ownmod.py:Mine", "lr": 0.25}
    assert result.about["files"].keys() == {str(tmp_path / "base.py"), str(tmp_path / "ownmod.py")}
    own_files._versions.clear()
    assert run(fl.experiments.from_toml(e.to_toml())).rows == result.rows
    assert fl.compare("base.py:task", [imported.Mine()], seeds=[0], **FEW).results[0].name == "Mine(lr=0.5)"


@pytest.mark.parametrize("old", ["0.5 * s.m", "return s.w\n", "objective.size)"])
def test_but_not_if_its_file_has_changed_since(tmp_path, imported, old):
    """In the class, in a method without numbers, elsewhere in the file: what runs would not be what is recorded."""
    e = experiment("base.py:task", imported.Mine(lr=0.25), **FEW)
    file = tmp_path / "ownmod.py"
    assert old in file.read_text()
    file.write_text(
        file.read_text().replace(old, old.replace("0.5", "0.4").replace("s.w", "s.m").replace("size", "capacity"))
    )
    with pytest.raises(ValueError, match=r"ownmod.py has changed since Mine was loaded from it"):
        run(e, tmp_path / "a")
    assert run(e).finished  # in memory it is what it is
    assert not (tmp_path / "a").exists()


def test_what_no_file_has_cannot_be_written(tmp_path, imported):
    @fl.frozen
    class Local(fl.FedAvg):
        """In a function."""

    imported.Gone = dataclasses.make_dataclass("Gone", [], bases=(imported.Mine,), frozen=True)
    for algorithm in (Local(), imported.Gone()):
        e = experiment("base.py:task", algorithm, **FEW)
        with pytest.raises(ValueError, match=r"cannot be written to a file.*a class of your own needs a file"):
            run(e, tmp_path / "a")


# Killed in earnest.

VICTIM = pathlib.Path(__file__).with_name("victim.py")
KILLS = ["finish log.jsonl 2", "replace about.json 1", "continue after a row 2", "finish checkpoint.npz.draft 2"]


def test_a_killed_run_of_everything_own_ends_with_the_same_bits(tmp_path):
    kinds = ("algorithm", "solver", "cohort", "model", "loss", "metrics")
    changes = {key: value for kind in kinds for key, value in own.KINDS[kind].items() if key != "algorithm"}
    e = experiment("own.py:task", "own.py:Mine", rounds=12, evaluate_every=1, **changes)
    whole = run(e, tmp_path / "whole")
    assert whole.about["files"].keys() == {str(tmp_path / "own.py"), str(tmp_path / "mse_of.py")}
    directory = tmp_path / "killed"
    directory.mkdir()
    (directory / "config.toml").write_text(e.to_toml())
    cache = {name.upper(): str(getattr(jax.config, name)) for name in conftest.CACHE}
    single = {"JAX_ENABLE_X64": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(VICTIM), str(directory)],
        env=os.environ | cache | single,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        cwd="/",
    ) as victim:
        for moment in (*KILLS, "never"):
            victim.stdin.write(moment + "\n")
            assert (victim.stdout.readline().strip() == "killed") == (moment != "never"), moment
        victim.stdin.close()
    assert log(directory) == log(tmp_path / "whole")
    assert json.loads((directory / "about.json").read_text())["files"] == whole.about["files"]


def test_reports_of_asynchronous_runs_do_not_ask_the_cohort_rule(tmp_path, files, capsys):
    """How many clients are at work at once, which the table of simulated time needs, is noted."""
    e = experiment("base.py:task", "fedbuff", rounds=6, engine="events", buffer=2, cohort="own.py:Pairs", solver="gd")
    run_all([("fedbuff", e)], tmp_path / "a")
    assert cli.main(["report", str(tmp_path / "a"), "--json"]) == 0
    before = capsys.readouterr().out
    files.unlink()
    assert cli.main(["report", str(tmp_path / "a"), "--json"]) == 0
    assert capsys.readouterr().out == before
