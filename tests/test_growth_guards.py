"""What keeps a growing study whole: one process at a time, the same data, no run that grows alone, no damaged trial."""

import json

import numpy as np
import pytest

from fedloom.experiments import compare, experiment, extend, loading, looking, read_study, resume_tuning, run, tune
from fedloom.experiments.files import Damaged, only_one
from fedloom.experiments.progress import Lines
from fedloom.native import build

TASK = """
import numpy as np, fedloom as fl
def data(seed):
    return fl.by_client(np.arange(24.0)[:, None] / 24, np.load("y.npy"), np.arange(24) % 3, test=0.25)
task = fl.Task("mine", data, fl.models.mlp(1, 2))
"""


def study(path, **more):
    return compare("quadratics", ["feddyn", "feddr"], **{"seeds": [0], "rounds": 2, "directory": path, **more})


def test_a_study_that_is_running_cannot_be_extended(tmp_path):
    study(tmp_path / "a")
    before = (tmp_path / "a/study.json").read_bytes()
    with only_one(tmp_path / "a"), pytest.raises(ValueError, match="Another process is running"):
        extend(tmp_path / "a", rounds=4)
    assert (tmp_path / "a/study.json").read_bytes() == before


def test_a_running_study_holds_its_directory(tmp_path):
    class Trying(Lines):
        refused = 0

        def end(self, result):
            with pytest.raises(ValueError, match="Another process is running"):
                extend(tmp_path / "a", seeds=3)
            Trying.refused += 1

    study(tmp_path / "a", progress=Trying())
    assert Trying.refused == 2


def test_a_look_changes_nothing_else(tmp_path):
    """The study has grown since it was read: what it then got stays."""
    study(tmp_path / "a")
    old = read_study(tmp_path / "a")
    extend(tmp_path / "a", rounds=4)
    looking.looked(old)
    assert json.loads((tmp_path / "a/study.json").read_text())["about"]["recipe"]["rounds"] == 4


def test_a_run_of_a_study_does_not_grow_alone(tmp_path):
    study(tmp_path / "a")
    with pytest.raises(ValueError, match=r"is a run of the study .*; extend the study"):
        extend(tmp_path / "a/feddyn/seed-0", rounds=4)
    assert not read_study(tmp_path / "a").results[0].damaged


def test_other_data_are_noticed_before_anything_is_added(tmp_path):
    (tmp_path / "own.py").write_text(TASK)
    np.save("y.npy", np.arange(24) % 2)
    compare(f"{tmp_path}/own.py:task", ["fedavg"], seeds=[0], rounds=2, directory=tmp_path / "a")
    before = (tmp_path / "a/study.json").read_bytes()
    np.save("y.npy", np.arange(24) // 7 % 2)
    loading.load.cache_clear()
    with pytest.raises(ValueError, match="the task or its data have changed"):
        extend(tmp_path / "a", seeds=2)
    assert (tmp_path / "a/study.json").read_bytes() == before


def test_kernels_that_were_not_there_are_noticed_before_anything_is_added(tmp_path, monkeypatch):
    """Made without a compiler, where there is one now: layers would round differently from here on."""
    study(tmp_path / "a")
    run(experiment("quadratics", "fedavg", rounds=2), tmp_path / "b")

    def files():
        return {p: p.read_bytes() for p in tmp_path.rglob("*.*") if p.suffix in (".json", ".jsonl", ".npz", ".toml")}

    before = files()
    monkeypatch.setattr(build, "used_in", lambda *given: ["conv"])
    monkeypatch.setattr(build, "kernels", lambda source: "compiled")
    for name, what in (("a", {"seeds": 2}), ("a", {"rounds": 4}), ("b", {"rounds": 4})):
        with pytest.raises(ValueError, match=r"was run with native conv not used \(here \w+\)"):
            extend(tmp_path / name, **what)
    assert files() == before


def test_a_damaged_trial_stops_a_tuning(tmp_path):
    arguments = {"points": 3, "seeds": 1, "rounds": 3}
    tune("quadratics", ["feddyn"], directory=tmp_path / "t", **arguments)
    (config, *_) = sorted((tmp_path / "t/tuning").rglob("config.toml"))
    config.write_text("x")
    with pytest.raises(Damaged, match=r"cannot be judged.*Begin it again with `fedloom resume .*--again"):
        resume_tuning(tmp_path / "t")


def test_only_what_ran_now_is_told(tmp_path, capsys):
    study(tmp_path / "a", progress=Lines())
    assert capsys.readouterr().err.count("] feddyn, seed 0") == 1
    extend(tmp_path / "a", seeds=2, progress=Lines())
    told = capsys.readouterr().err
    assert "seed 1" in told
    assert "seed 0" not in told
