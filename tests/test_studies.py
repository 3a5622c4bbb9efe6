"""Comparisons and studies: what they run, in which directories, and how they go on after an interruption."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import fedloom as fl
from fedloom.experiments import Result, compare, experiment, find_runs, read_study, resume_study, run, run_all
from fedloom.experiments.comparisons import comparison
from fedloom.experiments.progress import Json, Lines, Live, Pace, duration
from fedloom.experiments.run_directory import create_run
from fedloom.experiments.study import run_alone


def quadratics(*algorithms, seeds=(0, 1), rounds=3):
    return comparison("quadratics", algorithms, seeds=seeds, changes={"rounds": rounds})


def test_a_comparison_has_every_method_with_every_seed():
    runs = comparison("digits", seeds=[3, 5])
    assert [(name, e.seed) for name, e in runs] == [
        (n, s) for n in fl.tasks.TASKS["digits"].settings["tuned"] for s in (3, 5)
    ]
    assert len(runs) >= 16  # at least eight methods
    for name, e in runs:
        setting = fl.tasks.TASKS["digits"].setting(name)
        assert (e.algorithm, e.solver, e.cohort) == (setting.algorithm, setting.solver, setting.cohort)


def test_the_default_comparison_is_that_of_the_issue():
    """The digits over 100 clients, Dirichlet(0.3), 10% participation."""
    loaded = fl.load("digits", seed=4)
    assert loaded.federation.clients == 100
    y = np.asarray(loaded.data.train[1])
    np.testing.assert_array_equal(loaded.data.split.order, fl.splits.dirichlet(y, 100, 0.3, seed=4).order)
    cohorts = {n: s.cohort for n, s in loaded.task.settings["tuned"].items() if not s.algorithm.needs_everyone}
    assert len(cohorts) >= 8
    assert set(cohorts.values()) == {fl.cohorts.uniform(10)}


def test_a_comparison_is_its_runs(tmp_path):
    study = compare("quadratics", ["feddyn", fl.FedProx(0.5)], seeds=[0, 1], rounds=3, directory=tmp_path / "study")
    assert [r.name for r in study.results] == ["feddyn"] * 2 + ["FedProx(mu=0.5, lr=1)"] * 2
    for result in study.results:
        assert result.rows == run(result.experiment).rows
    again = read_study(tmp_path / "study")
    assert [r.rows for r in again.results] == [r.rows for r in study.results]
    assert [r.name for r in again.results] == [r.name for r in study.results]
    assert (tmp_path / "study/feddyn/seed-1/config.toml").exists()


class Stop(Lines):
    def __init__(self, name, seed, round):
        super().__init__(io.StringIO())
        self.at = name, seed, round

    def row(self, name, experiment, row):
        if (name, experiment.seed, row["round"]) == self.at:
            raise KeyboardInterrupt


def logs(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("log.jsonl")}


def test_an_interrupted_study_ends_like_one_that_was_not(tmp_path):
    runs = quadratics("feddyn", "feddr")
    whole = run_all(runs, tmp_path / "whole", title="t", target=("train loss", 0.5))
    with pytest.raises(KeyboardInterrupt):
        run_all(runs, tmp_path / "stopped", title="t", target=("train loss", 0.5), progress=Stop("feddyn", 1, 2))
    half = read_study(tmp_path / "stopped")
    assert [r.finished for r in half.results] == [True, False, False, False]
    study = resume_study(tmp_path / "stopped")
    assert logs(tmp_path / "stopped") == logs(tmp_path / "whole")
    assert (study.title, study.target) == (whole.title, whole.target) == ("t", ("train loss", 0.5))
    with pytest.raises(ValueError, match=r"already has a study; run `fedloom resume .*stopped` to continue"):
        run_all(runs, tmp_path / "stopped")


def test_one_that_diverges_does_not_stop_the_others(tmp_path):
    bad = experiment("quadratics", "fedsgd", rounds=50, **{"algorithm.lr": 1e3})
    study = run_all([("bad", bad), *quadratics("feddyn", seeds=[0])], tmp_path / "a")
    assert [bool(r.diverged) for r in study.results] == [True, False]
    assert study.results[1].finished


def test_a_new_study_runs_its_own_experiments_and_only_a_resumed_one_reads_them(tmp_path, monkeypatch):
    def read(*arguments, **options):
        raise AssertionError("read from disk")

    runs = quadratics("feddyn")
    with monkeypatch.context() as patch:
        patch.setattr("fedloom.experiments.run_directory.from_toml", read)
        patch.setattr("fedloom.experiments.study_file.from_toml", read)
        study = run_all(runs, tmp_path / "study", about={"kind": "test"})
        assert [r.experiment for r in study.results] == [e for _, e in runs]
        run_alone(runs[0][1], tmp_path / "alone")
        with pytest.raises(AssertionError, match="read from disk"):
            resume_study(tmp_path / "study")
    again = read_study(tmp_path / "study")
    assert [r.rows for r in again.results] == [r.rows for r in study.results]
    assert (again.title, again.target, again.about) == (study.title, study.target, study.about)


def test_all_are_checked_before_the_first_is_run(tmp_path):
    bad = experiment("quadratics", "fedpd", cohort="uniform")
    with pytest.raises(ValueError, match="FedPD needs every client"):
        run_all([*quadratics("feddyn"), ("bad", bad)], tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_every_run_has_its_own_place_inside_the_study(tmp_path):
    e = experiment("quadratics", "feddyn", rounds=1)
    with pytest.raises(ValueError, match="Two experiments have the name 'a' and the seed 0"):
        run_all([("a", e), ("a", e)])
    names = ["a b", "a/b", "..", "-", "日本", "/etc", "x" * 300]
    study = run_all([(name, e) for name in names], tmp_path / "deep/study")
    assert [r.name for r in study.results] == names
    places = {r.directory for r in read_study(tmp_path / "deep/study").results}
    assert len(places) == len(names)
    assert all(p.resolve().parent.parent == (tmp_path / "deep/study").resolve() for p in places)


def test_a_study_that_was_stopped_while_it_was_created(tmp_path, monkeypatch):
    runs = quadratics("feddyn", "feddr")
    whole = run_all(runs, tmp_path / "whole")
    for stop_at in range(4):
        created = []

        def stop(*arguments, stop_at=stop_at, created=created):
            if len(created) == stop_at:
                raise KeyboardInterrupt
            created.append(arguments)
            return create_run(*arguments)

        directory = tmp_path / f"stopped{stop_at}"
        with monkeypatch.context() as patch:
            patch.setattr("fedloom.experiments.study.create_run", stop)
            with pytest.raises(KeyboardInterrupt):
                run_all(runs, directory)
        assert [r.rows for r in resume_study(directory).results] == [r.rows for r in whole.results]


def test_different_experiments_are_not_taken_for_seeds_of_one(tmp_path):
    for place, alpha, seed in (("a", 1.0, 0), ("b", 9.0, 0), ("c", 1.0, 1)):
        run(experiment("quadratics", fl.FedDyn(alpha), rounds=1, seed=seed), tmp_path / place)
    run(experiment("quadratics", "feddr", rounds=1), tmp_path / "d")
    names = [r.name for r in find_runs([tmp_path]).results]
    assert names == [f"feddyn ({tmp_path / p})" for p in "abc"] + ["feddr"]
    assert {r.name for r in find_runs([tmp_path / "a", tmp_path / "c"]).results} == {"feddyn"}  # two seeds
    study = run_all(quadratics("feddyn"), tmp_path / "e/study")
    assert [r.name for r in find_runs([tmp_path / "e"]).results] == [r.name for r in study.results]


def test_different_targets_are_none(tmp_path):
    for place, target in (("a", 0.1), ("b", 0.2)):
        run_all(quadratics("feddyn", seeds=[0]), tmp_path / place, target=("train loss", target))
    assert find_runs([tmp_path / "a", tmp_path / "b"]).target is None


def test_runs_are_found_wherever_they_are(tmp_path):
    runs = quadratics("feddyn", "feddr", seeds=[0])
    run_all(runs[:1], tmp_path / "one", target=("train loss", 0.1))
    run(runs[1][1], tmp_path / "deep/er/two")
    study = find_runs([tmp_path / "one", tmp_path / "deep"])
    assert [r.name for r in study.results] == ["feddyn", "feddr"]
    assert find_runs([tmp_path / "one"]).target == ("train loss", 0.1)
    (tmp_path / "empty/er").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"There is no run in .*er: no config.toml"):
        find_runs([tmp_path / "empty/er"])
    with pytest.raises(ValueError, match="There is no directory"):
        find_runs([tmp_path / "nowhere"])


def test_a_task_without_a_name_in_the_registry(tmp_path):
    data = fl.by_client(np.arange(12.0)[:, None], np.arange(12) % 2, np.arange(12) % 3, test=0.25)
    task = fl.Task("mine", data, fl.models.mlp(1, 2))
    study = compare(task, ["fedavg"], seeds=[0], rounds=2, directory=tmp_path / "a")
    assert study.results[0].finished
    assert find_runs([tmp_path / "a"]).results[0].rows == study.results[0].rows  # a report needs no task
    with pytest.raises(ValueError, match=r"There is no task 'mine'.*FILE.py:NAME"):
        find_runs([tmp_path / "a"]).results[0].experiment.check()


def result(rows, model_bytes=8, metrics=None):
    e = experiment("quadratics", "feddyn", rounds=10)
    about = {"model bytes": model_bytes, "metrics": metrics or {"train loss": False, "test accuracy": True}}
    return Result("x", e, rows, about)


def test_what_follows_from_a_log():
    """Ten clients, two exchanges a round, a model of 8 bytes; up 8 bytes in the first exchange, 16 in the second."""
    rows = [
        {"round": t, "train loss": 1 - t / 10, "test accuracy": t / 10, "exchanges": 2 * t, "messages": 40 * t}
        | {"bytes down": 160 * t, "bytes up": 240 * t, "gradients": 5 * t}
        for t in (0, 1, 3, 10)
    ]
    r = result(rows)
    np.testing.assert_allclose(r.column("bytes"), [0, 400, 1200, 4000])
    np.testing.assert_allclose(r.column("models"), [0, 3, 9, 30])  # 8 and 16 bytes are 3 models a round
    np.testing.assert_allclose(r.column("bytes of a client"), [0, 40, 120, 400])
    assert r.first_reaches("test accuracy", 0.3)["round"] == 3
    assert r.first_reaches("train loss", 0.75)["round"] == 3
    assert r.first_reaches("train loss", -1.0) is None
    assert r.finished
    assert not result(rows[:3]).finished


@pytest.mark.parametrize(("algorithm", "models"), [("fedavg", 1), ("scaffold", 2), ("feddane", 2), ("feddyn", 1)])
def test_models_sent_are_those_of_the_feddyn_paper(algorithm, models):
    r = run(experiment("quadratics", algorithm, rounds=2, evaluate_every=1, solver="gd"))
    np.testing.assert_allclose(r.column("models"), [0, models, 2 * models])


def test_plain_lines(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("fedloom.experiments.progress.EVERY", 0.0)
    run_all(quadratics("feddyn", seeds=[7]), progress=Lines(out))
    lines = out.getvalue().splitlines()
    assert len(lines) == 5  # rounds 0 to 3, and the end
    assert lines[1].startswith("feddyn, seed 7: round 1 of 3, train loss ")
    assert "rounds/s" in lines[2]
    assert "left" in lines[2]
    assert lines[-1].startswith("[1/1] feddyn, seed 7: 3 rounds, train loss ")


def test_live_progress_shows_the_run_and_leaves_a_line_for_each_method():
    out = io.StringIO()
    live = Live(Console(file=out, force_terminal=True, width=100, legacy_windows=False))
    run_all(quadratics("feddyn", "feddr"), progress=live)
    assert live.bars.finished
    text = out.getvalue()
    for words in ("feddyn: 2 seeds", "feddr: 2 seeds", "feddr 1", "loss", "MB", "rounds/s", "left", "4/4"):
        assert words in text


def test_live_progress_gives_the_terminal_back(monkeypatch):
    out = io.StringIO()
    live = Live(Console(file=out, force_terminal=True, width=100, legacy_windows=False))
    monkeypatch.setattr(live, "row", Stop("feddyn", 0, 2).row)
    with pytest.raises(KeyboardInterrupt):
        run_all(quadratics("feddyn"), progress=live)
    assert out.getvalue().rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in out.getvalue()  # the cursor is shown again


def test_json_lines(capsys):
    study = run_all(quadratics("feddyn", seeds=[0]), progress=Json())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [{"name": "feddyn", "seed": 0, **row} for row in study.results[0].rows] == lines[:-1]
    assert lines[-1]["seconds"] >= 0


def test_time_left(monkeypatch):
    now = 100.0
    monkeypatch.setattr("fedloom.experiments.progress.time.monotonic", lambda: now)
    runs = quadratics("feddyn", rounds=10)  # 20 rounds
    (name, first), (_, second) = runs
    clock = Pace(runs)
    clock.row(name, first, {"round": 0})
    assert clock.left() == ""
    now = 105.0
    clock.row(name, first, {"round": 5})
    assert clock.left() == "15 s left"
    assert clock.speed(name, first) == 1.0
    clock.row(name, second, {"round": 5})  # resumed: these rounds were those of another process
    assert clock.left() == "10 s left"
    clock.end(Result(name, first, [], {}))
    now = 115.0
    assert clock.left() == "8 s left"
    assert [duration(s) for s in (7, 65, 3725)] == ["7 s", "1:05", "1:02:05"]
