"""Targets: which mean something, and when a run has reached one."""

import dataclasses
import math

import pytest

from fedloom import evidence, report
from fedloom.experiments import Study
from fedloom.experiments.terms import Terms
from fedloom.report import page, tables
from tests.made_up import run
from tests.test_report import some
from tests.test_standings import FIRST, by_name, costs


def test_reaching_a_target_means_to_stay():
    goal = evidence.Target("test accuracy", 0.5, True, "given")
    terms = Terms(window=2)
    noisy = run("noisy", [0.1, 0.2, 0.9, 0.2, 0.2, 0.3])
    assert noisy.first_reaches("test accuracy", 0.5)["round"] == 2
    assert evidence.reached(noisy, goal, Terms(window=2, crossing="first"))["round"] == 2
    assert evidence.reached(noisy, goal, terms) is None  # its mean crosses in round 2, but it ends below
    steady = run("steady", [0.1, 0.2, 0.6, 0.3, 0.6, 0.6])
    assert evidence.reached(steady, goal, terms)["round"] == 5  # means 0.4, 0.45, 0.45, 0.6
    assert evidence.reached(steady, goal, Terms(window=1))["round"] == 2
    short = run("short", [0.9, 0.3, 0.8])  # fewer evaluations than the window, and the initial model does not count
    assert evidence.reached(short, goal, Terms(window=9))["round"] == 2
    assert evidence.reached(run("short", [0.9, 0.3, 0.6]), goal, Terms(window=9)) is None
    early = run("early", [0.1, 0.9, 0.2, 0.7, 0.7])
    assert evidence.reached(early, goal, Terms(window=3))["round"] == 3  # 0.6: a first evaluation alone is no mean
    lost = run("lost", [0.1, 0.9, 0.9], diverged=3)
    assert evidence.reached(lost, goal, terms) is None
    running = run("running", [0.1, 0.9, 0.9], rounds=9)
    assert evidence.reached(running, goal, terms) is None
    rising = run("rising", [0.1, 0.1, 0.1, 0.1, 0.6])
    rows = by_name(Study("", [noisy, steady, lost, running, rising], ("test accuracy", 0.5), terms=terms))
    assert costs(rows["running"])["rounds"] == "not yet"
    assert costs(rows["rising"])["rounds"] == "touched at 4, not yet kept"
    assert costs(rows["noisy"])["rounds"] == "touched at 2, ended below"
    assert costs(rows["lost"])["rounds"] == "touched at 1, diverged"
    assert (costs(rows["steady"])["rounds"], rows["steady"].bytes, rows["steady"].gradients) == ("5", 500, 50)


def test_a_loss_is_reached_from_above():
    goal = evidence.Target("test loss", 0.5, False, "given")
    assert evidence.reached(run("a", [0.1, 0.6, 0.7, 0.8]), goal, Terms(window=2))["round"] == 2  # 0.9 0.65 0.35 0.25
    assert evidence.reached(run("a", [0.9, 0.6, 0.1, 0.1]), goal, Terms(window=2)) is None
    (row,) = report.rows(Study("", [run("a", [0.1, 0.6, 0.1, 0.1])], ("test loss", 0.5), terms=Terms(window=2)))
    assert costs(row, goal)["rounds"] == "touched at 1, ended above"


def test_a_target_that_nobody_gave_lies_between_the_initial_model_and_the_best():
    study = dataclasses.replace(some(), target=None)
    goal = evidence.target(study, "digits")
    assert (goal.metric, goal.value) == ("test accuracy", pytest.approx(0.1 + 0.9 * ((0.65 + 0.475) / 2 - 0.1)))
    assert "90% of the way" in tables.text(study)
    study = dataclasses.replace(study, terms=FIRST)  # without running means, it is about the last evaluations
    assert evidence.target(study, "digits").value == pytest.approx(0.1 + 0.9 * (0.75 - 0.1))
    losses = [dataclasses.replace(r, about={**r.about, "metrics": {"train loss": False}}) for r in study.results]
    goal = evidence.target(Study("", losses, terms=FIRST), "digits")
    assert (goal.metric, goal.value) == ("train loss", pytest.approx(1.9 + 0.9 * (1.25 - 1.9)))
    found = by_name(Study("", losses, terms=FIRST))["all"]
    assert (found.reached, found.rounds) == (2, 3.5)  # 1.3 in rounds 3 and 4, where the target is 1.315


def test_no_target_where_no_method_improves():
    study = Study("", [run("a", [0.5, 0.4]), run("b", [0.5, 0.3])])
    goal = evidence.target(study, "digits")
    assert math.isnan(goal.value)
    assert "no method improves on the initial model" in tables.text(study)
    assert all(row.reached == 0 for row in report.rows(study))


def test_a_target_that_the_initial_model_meets_is_flagged():
    study = Study("", [run("a", [0.5, 0.6]), run("b", [0.5, 0.7])], ("test accuracy", 0.4))
    assert evidence.target(study, "digits").met_at_start
    assert "the initial model meets it already" in tables.text(study)
    assert "met by the initial model already" in page.page(study)
    assert not evidence.target(dataclasses.replace(study, target=("test accuracy", 0.55)), "digits").met_at_start


@pytest.mark.parametrize(
    ("value", "words"),
    [(math.nan, "finite number"), (math.inf, "finite number"), (90, "between 0 and 1.*Did you mean 0.9"), (-1, "betw")],
)
def test_targets_that_mean_nothing_are_refused(value, words):
    with pytest.raises(ValueError, match=words):
        evidence.check_target("test accuracy", value, [0, 1])
    with pytest.raises(ValueError, match=words):
        report.text(Study("", [run("a", [0.5, 0.6])], ("test accuracy", value)))


def test_a_loss_cannot_be_negative():
    with pytest.raises(ValueError, match="always at least 0"):
        evidence.check_target("test loss", -1.0, [0, None])
    evidence.check_target("test loss", 7.0, [0, None])


def test_a_task_may_have_its_own_target():
    own = [dataclasses.replace(r, about={**r.about, "target": ["test loss", 1.5]}) for r in some().results]
    goal = evidence.target(Study("", own), "digits")
    assert (goal.metric, goal.value, goal.larger_is_better, goal.rule) == ("test loss", 1.5, False, "the task's own")
    assert by_name(Study("", own, terms=FIRST))["all"].rounds == 2  # 2 - 0.5 in round 1, 2 - 0.6 in round 3
    given = evidence.target(Study("", own, ("test accuracy", 0.4)), "digits")
    assert (given.metric, given.rule) == ("test accuracy", "given")


def test_a_target_without_its_metric_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'test accuracy'"):
        report.rows(dataclasses.replace(some(), target=("test acuracy", 0.5)))
