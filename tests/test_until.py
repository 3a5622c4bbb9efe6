"""Runs that end when they have met what they are for: the same rows as whole runs, up to that one."""

import dataclasses
import itertools
import json
import pathlib
import sys
import types

import numpy as np
import pytest

import fedloom as fl
from fedloom import evidence, sinks
from fedloom.experiments import (
    compare,
    experiment,
    extend,
    growth,
    read,
    resume,
    resume_study,
    run,
    run_all,
    side_by_side,
    sweep,
    tune,
)
from fedloom.experiments.side_by_side import run_side_by_side
from fedloom.experiments.terms import Terms
from fedloom.experiments.until import Condition, condition, is_met
from fedloom.report.series import series
from fedloom.reproductions import reproduction
from fedloom.reproductions.digests import digests
from fedloom.reproductions.recording import record
from fedloom.reproductions.reproduction import Line, Reproduction
from fedloom.tasks import Measure
from tests.test_sinks import send


def small(algorithm="feddyn", **changes):
    given = {"rounds": 12, "evaluate_every": 1, "cohort": "everyone"} | changes
    return experiment("quadratics", algorithm, **given)


def losses(result):
    return [row["train loss"] for row in result.rows]


def log(directory):
    return (pathlib.Path(directory) / "log.jsonl").read_bytes()


@pytest.fixture(scope="module")
def whole():
    """A run of all rounds, whose losses fall in every round, and a loss that it passes in round 4."""
    result = run(small())
    assert np.all(np.diff(losses(result)) < 0)
    return result, f"train loss <= {(losses(result)[3] + losses(result)[4]) / 2!r}"


def test_conditions_are_read_as_they_are_written():
    assert condition("test accuracy >= 0.95") == Condition("test accuracy", True, 0.95)
    assert condition("train:200 loss<=1e-3") == Condition("train:200 loss", False, 0.001)
    for c in (Condition("a", True, 0.1), Condition("b c", False, -3e-20)):
        assert condition(str(c)) == c


def test_each_condition_is_met_by_some_trained_model():
    rows = [{"round": 0, "a": 9, "b": 0}, {"round": 1, "a": 3, "b": 5}, {"round": 2, "a": 1, "b": 1}]
    assert is_met(("a >= 3", "b <= 1"), rows)  # in rounds 1 and 2
    assert not is_met(("a >= 4",), rows)  # the initial model does not count
    assert not is_met(("a >= 3", "b <= 0"), rows)
    assert not is_met(("a >= 3",), [*rows[:1], {"round": 1, "diverged": "NaN."}])
    assert not is_met(None, rows)


def test_a_run_ends_with_the_row_that_meets_it(tmp_path, whole):
    whole, until = whole
    result = run(small(until=until), tmp_path / "a")
    assert result.rows == whole.rows[:5]
    assert result.finished
    again = read(tmp_path / "a")
    assert again.finished
    np.testing.assert_array_equal(again.w, result.w)  # the model of that row
    before = log(tmp_path / "a")
    assert resume(tmp_path / "a").rows == result.rows  # there is nothing left
    assert log(tmp_path / "a") == before
    assert run(small(until="train loss <= 0.0")).rows == whole.rows  # which it never meets


def test_a_run_that_has_not_met_it_is_not_finished(tmp_path, whole):
    whole, until = whole
    e = small(until=until)

    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(e, tmp_path / "a", watch=[stop], checkpoint_seconds=0)
    assert not read(tmp_path / "a").finished
    assert resume(tmp_path / "a").rows == whole.rows[:5]


def test_more_rounds_are_for_those_who_need_them(tmp_path, whole):
    whole, until = whole
    few = [("short", small(rounds=3, until=until)), ("there", small(rounds=3, until="train loss <= 1e9"))]
    study = run_all(few, tmp_path / "s")
    assert [len(r.rows) for r in study.results] == [4, 2]
    longer = extend(tmp_path / "s", rounds=12)
    assert [r.rows for r in longer.results] == [whole.rows[:5], whole.rows[:2]]
    assert all(r.finished for r in longer.results)


def test_points_side_by_side_end_each_at_its_own_time(tmp_path, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(side_by_side, "time", types.SimpleNamespace(monotonic=lambda: float(next(ticks))))
    e = small("fedavg", rounds=30, solver="gd", until="train loss <= 2.5")
    values = [0.1, 0.3, 0.9]
    runs = [(f"lr={lr}", dataclasses.replace(e, solver=dataclasses.replace(e.solver, lr=lr))) for lr in values]
    study = run_all(runs, tmp_path / "s", each=run_side_by_side)
    ends = []
    for result, lr in zip(study.results, values, strict=True):
        alone = run(dataclasses.replace(e, solver=dataclasses.replace(e.solver, lr=lr)))
        assert losses(result) == pytest.approx(losses(alone), rel=1e-12)
        np.testing.assert_allclose(result.w, alone.w, rtol=1e-10)
        assert result.finished
        assert read(result.directory).finished
        ends.append(result.rows[-1]["round"])
    assert len(set(ends)) == 3  # they differ
    assert max(ends) < 30
    assert sum(r.seconds for r in study.results) == pytest.approx(max(ends))  # a tick a round, whoever has ended


def test_a_sink_is_told_that_the_run_has_finished(monkeypatch, tmp_path):
    endings = []

    class Writer:
        def __init__(self, *args): ...
        def numbers(self, round, values): ...
        def close(self, ending):
            endings.append(ending)

    monkeypatch.setitem(sys.modules, "fedloom.sinks.tensorboard", types.SimpleNamespace(Writer=Writer))
    monkeypatch.setattr(sinks, "sink", lambda name: lambda *run: sinks._Sink("tensorboard", *run))
    rows = [{"round": 0, "train loss": 2.5}, {"round": 2, "train loss": 1.25}]
    e = experiment("quadratics", "fedavg", rounds=4)
    for until in (None, "train loss <= 1.25", "train loss <= 1.0"):
        send("tensorboard", rows, tmp_path, dataclasses.replace(e, until=until))
    assert endings == ["stopped", "finished", "stopped"]
    # Of two conditions, one was met in an earlier process.
    (tmp_path / "log.jsonl").write_text('{"round": 0, "train loss": 2.5}\n{"round": 1, "train loss": 0.5}\n')
    both = dataclasses.replace(e, until=("train loss <= 0.5", "bytes up <= 1"))
    send("tensorboard", [{"round": 2, "train loss": 0.6, "bytes up": 1}], tmp_path, both)
    assert endings[-1] == "finished"


@pytest.mark.parametrize(
    "study",
    [
        lambda: compare("quadratics", "feddyn,feddr", until="train loss <= 2.0"),
        lambda: sweep(small(until="train loss <= 2.0"), {"algorithm.alpha": [1.0, 2.0]}),
        lambda: tune("quadratics", "feddyn", until="train loss <= 2.0"),
    ],
    ids=["compare", "sweep", "tune"],
)
def test_what_is_judged_at_equal_cost_refuses_it(study):
    with pytest.raises(ValueError, match="until is for single runs: methods and points are compared at equal cost"):
        study()


def test_runs_that_end_early_are_not_called_better(whole):
    """They would be read at the moment at which they are at the target, by construction."""
    until = whole[1]
    runs = [(name, small(name, until=until, seed=seed)) for name in ("feddyn", "feddr") for seed in (0, 1)]
    study = run_all(runs, terms=Terms(crossing="first"), target=("train loss", float(until.split("<=")[1])))
    found = evidence.verdict(study, "quadratics")
    assert "runs ended when they had met what they are for (until)" in found.why_not
    assert not found.against
    goal = evidence.target(study, "quadratics")
    assert [evidence.reached(r, goal, study.terms)["round"] for r in study.results] == [
        r.rows[-1]["round"] for r in study.results
    ]


def test_the_mean_of_curves_ends_with_the_first_that_does():
    e = small(until="train loss <= 2.0")
    fast, slow = (run(dataclasses.replace(e, algorithm=fl.FedDyn(alpha))) for alpha in (1.0, 4.0))
    assert 1 < len(fast.rows) < len(slow.rows)
    mean = series("both", [fast, slow])
    assert len(mean.axes["rounds"]) == len(fast.rows)  # what follows would be that of the slow one alone


@pytest.mark.parametrize(
    ("until", "words"),
    [
        ("train loss = 1", "until: 'train loss = 1' is not a condition such as 'test accuracy >= 0.95'"),
        ("<= 1", "is not a condition"),
        ("train loss <= nan", "is not a condition"),
        ("train los <= 1", "until: 'train los' is not evaluated; add it to --evaluate, .* Did you mean 'train loss'"),
        ("train loss >= 1", "train loss is better when smaller, so write 'train loss <= 1.0'"),
        ((), "until must be"),
    ],
)
def test_what_cannot_be_met_is_refused(until, words):
    with pytest.raises(ValueError, match=words):
        small(until=until).check()


def test_a_percentage_is_noticed():
    words = "until: test accuracy is always between 0 and 1, so it cannot reach 95. Did you mean 0.95?"
    with pytest.raises(ValueError, match=words):
        experiment("digits", "fedavg", until="test accuracy >= 95").check()


# Reproductions.


def made_up(*measures):
    methods = {name: small(name, rounds=40, evaluate="train loss") for name in ("fedprox", "feddyn")}
    lines = [Line(m.words, name, name, m) for m in measures for name in methods]
    return Reproduction("made-up", "Made up.", "nowhere", methods, tuple(lines), ())


TARGETS = (Measure("train loss", 2.5, "rounds"), Measure("train loss", 1.9, "models"))


def test_a_reproduction_ends_runs_at_their_last_target(tmp_path, monkeypatch):
    found = made_up(*TARGETS)
    runs = found.runs((0, 1))
    assert {e.until for _, e in runs} == {("train loss <= 2.5", "train loss <= 1.9")}
    study = run_all(runs, tmp_path / "s", about={"kind": "reproduction", "name": "made-up"})
    complete = run_all([(name, dataclasses.replace(e, until=None)) for name, e in runs])
    assert found.values(study) == found.values(complete)
    assert all(len(r.rows) < 41 for r in study.results)
    kept = [json.loads(record(s, found, {}).to_json(found))["figures"] for s in (study, complete)]
    assert kept[0] == kept[1]  # a record of whole runs is one of these, and the other way round
    monkeypatch.setattr(reproduction.Reproduction, "_until", lambda self, run: None)
    assert digests(found) == digests(made_up(*TARGETS))


def test_a_reproduction_that_measures_the_end_is_run_to_the_end():
    assert {e.until for _, e in made_up(*TARGETS, Measure("train loss")).runs((0,))} == {None}


def test_a_reproduction_is_resumed_side_by_side(tmp_path, monkeypatch):
    """As it was begun: else rounding would depend on where it was stopped."""
    seen = []
    real = growth.run_side_by_side
    monkeypatch.setattr(growth, "run_side_by_side", lambda *args: seen.append(1) or real(*args))
    study = run_all(made_up(*TARGETS).runs((0,)), tmp_path / "s", about={"kind": "reproduction", "name": "made-up"})
    again = resume_study(tmp_path / "s")
    assert seen == [1]
    assert [r.rows for r in again.results] == [r.rows for r in study.results]
