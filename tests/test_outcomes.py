"""What reproductions measure in runs, and what is printed of it: on runs made by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from fedloom.cli.listing import show
from fedloom.experiments.study import Study
from fedloom.reproductions import find
from fedloom.reproductions.reproduction import COUNTS, Claim, Line, Reproduction, comparable, not_run, value_of
from fedloom.tasks import TASKS, Measure
from fedloom.tasks.reported import COUNTED
from tests.test_claims import result

# Measures.


def test_the_end_is_the_mean_of_the_last_rounds():
    assert value_of(Measure("train loss", last=2), result("a", [9, 8, 4, 1])) == 2.5
    assert value_of(Measure("train loss", last=10), result("a", [9, 4, 1])) == 2.5  # not the initial model
    assert value_of(Measure("test mse", last=1, scale=1000), result("a", [9, 8, 4], "test mse")) == 4000


def test_a_diverged_run_is_the_worst():
    assert value_of(Measure("train loss"), result("a", [9, 8], diverged=True)) == math.inf
    assert (
        value_of(Measure("test accuracy"), result("a", [0, 1], "test accuracy", larger=True, diverged=True))
        == -math.inf
    )


def test_what_is_counted_to_a_target():
    """The loss is 3 in round 2; who sends two vectors in a round has sent four by then."""
    run = result("a", [9, 5, 3, 1], up=2.0)
    assert value_of(Measure("train loss", 3.0, "rounds"), run) == 2
    assert value_of(Measure("train loss", 3.0, "models"), run) == 4
    assert value_of(Measure("train loss", 3.0, "simulated seconds"), run) == 120
    assert value_of(Measure("train loss", 0.5, "models"), run) == math.inf
    long = result("a", [9.0] * 200 + [1.0], up=156 / 155)  # 155 weights, and a number beside them
    assert value_of(Measure("train loss", 3.0, "models"), long) == 200  # not 201


def test_the_mebibytes_of_table_2_of_the_linear_speedup():
    """2NN has 199,210 weights; three rounds cost 4.56 "MB", down and up, and 9.12 with SCAFFOLD's control variates."""
    measure = Measure("train loss", 3.0, "MiB")
    for vectors, published in ((1, 4.56), (2, 9.12)):
        run = result("a", [9, 8, 7, 3], up=4.0 * 199_210 * vectors)
        assert value_of(measure, run) == pytest.approx(published, abs=0.005)


def test_everything_that_can_be_said_to_be_counted_is():
    assert set(COUNTS) == set(COUNTED)


def test_every_reported_measure_can_be_read_off_a_run_and_said():
    reports = [(task, r) for task in TASKS.values() for r in task.reported]
    assert reports
    for task, r in reports:
        larger = {"loss": False} | {m.name: m.larger_is_better for m in task.metrics}
        parts = ("train", "test", "last models train", "last models test", "last member test")
        metrics = {f"{part} {name}": better for part in parts for name, better in larger.items()}
        end = 0.25 if r.measure.target is None else r.measure.target
        run = result("a", [0.0 if metrics[r.measure.metric] else 9.0, end], r.measure.metric)
        run.about["metrics"] = metrics
        assert math.isfinite(value_of(r.measure, run))
        assert r.words == f"{r.where}, {r.variant}: {r.measure.words}"


def test_what_a_paper_reports_is_shown_with_the_task():
    lines = show(TASKS["mnist-2nn-iid"]).splitlines()
    i = lines.index("reported in table 2, 10%: models to last models test accuracy 0.982:")
    assert lines[i + 1] == "  feddyn 100, scaffold 142, fedavg 588, fedprox 362"


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (Measure("train loss", 0.0603, "models"), "models to train loss 0.0603"),
        (Measure("test accuracy", 0.95, "rounds"), "rounds to test accuracy 0.95"),
        (Measure("test accuracy", last=100, scale=100), "100 x test accuracy, mean of the last 100 rounds"),
        (Measure("own train loss"), "own train loss, mean of the last 10 rounds"),
    ],
)
def test_the_words_of_a_measure(measure, words):
    assert measure.words == words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target": 0.5}, "counted must be one of rounds, models, MiB, simulated seconds for a target, got None"),
        ({"target": 0.5, "counted": "bytes"}, "counted must be .* got 'bytes'"),
        ({"counted": "rounds"}, "Counting rounds needs a target for 'train loss'"),
        ({"last": 0}, "last must be a positive number of rounds, got 0"),
    ],
)
def test_a_measure_that_cannot_be_taken_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Measure("train loss", **fields)


def test_comparable():
    assert comparable(1.0, 1.09)
    assert comparable(1.09, 1.0)
    assert not comparable(1.0, 1.11)
    assert not comparable(math.inf, math.inf)


# What is printed.


def small(**fields):
    (_, e), *_ = find("speedup-figures").runs([0], 1)
    lines = (Line("s", "a", "a", Measure("train loss"), 0.25), Line("s", "b", "b", Measure("train loss")))
    claims = (Claim("b ends below a", lambda f: f["s", "b"] < f["s", "a"], "s"),)
    return Reproduction("small", "A small one.", "A paper", {"a": e, "b": e}, lines, claims, **fields)


def printed(results):
    r = small()
    return r.outcome(r.values(Study("", results)))


def test_the_mean_over_seeds_and_its_interval():
    """1, 2 and 4: the interval is Student's for the logarithms."""
    made = [result(run, [9, v], seed=i) for run in "ab" for i, v in enumerate((1, 2, 4))]
    for run in made[3:]:
        run.rows[1]["train loss"] /= 2
    a, b, claim = printed(made)
    low, high = np.exp(stats.t.interval(0.95, 2, np.log(2), np.log(2) / np.sqrt(3)))
    assert a == ("s", "a", f"2 [{low:.3g}, {high:.3g}]", "0.25", "", "", "")
    assert b == ("s", "b", f"1 [{low / 2:.3g}, {high / 2:.3g}]", "", "", "", "")
    assert claim == ("s", "", "", "b ends below a", "", "", "holds in 3 of 3 seeds")


def test_a_seed_that_diverged_is_said_and_counts_as_the_worst():
    ends = [result(run, [9, v], seed=seed) for run, v in (("a", 1), ("b", 0.5)) for seed in (0, 1)]
    _, b, claim = printed([*ends, result("a", [9, 1], seed=2), result("b", [9, 0.5], diverged=True, seed=2)])
    assert b.ours == "0.5 (0.5 to 0.5), diverged in 1 of 3"
    assert claim.verdict == "cannot be said: true in 2 of 3 seeds"


def test_one_seed_decides_nothing():
    for end, words in ((0.5, "one seed: holds"), (1.5, "one seed: does not hold")):
        assert printed([result("a", [9, 1]), result("b", [9, end])])[2].verdict == words


def test_a_claim_is_checked_seed_by_seed():
    """The mean of b is below that of a, but so is b itself in one seed only."""
    ends = {("a", 0): 1, ("b", 0): 2, ("a", 1): 10, ("b", 1): 1}
    made = [result(run, [9, v], seed=seed) for (run, seed), v in ends.items()]
    assert printed(made)[2].verdict == "cannot be said: true in 1 of 2 seeds"


def test_runs_that_are_not_over_are_not_compared():
    rows = printed([result("a", [9, 1]), result("b", [9, 0.5], rounds=50)])
    assert [(row.ours, row.verdict, row.there) for row in rows] == [
        ("1", "", True),
        ("not run", "", False),
        ("", "not run", False),
    ]
    assert not_run(rows) == "Not run yet, everywhere or in part: b."
    assert not_run(printed([result("a", [9, 1]), result("b", [9, 0.5])])) == ""


def test_a_figure_needs_a_name_of_its_own():
    line = Line("s", "a", "a", Measure("train loss"))
    with pytest.raises(ValueError, match="two figures have the same setting and method"):
        Reproduction("twice", "", "", {}, (line, line), ())
