"""The tables of a report, against numbers worked out by hand."""

import csv
import dataclasses
import io
import json
import math
import re

import pytest

from fedloom import evidence, report
from fedloom.evidence import budgets
from fedloom.experiments import Result, Study, experiment
from fedloom.experiments.terms import Budget, Terms
from fedloom.report import page, standings, tables
from tests.made_up import run
from tests.test_report import MODEL, data_of, result, some

FIRST = Terms(crossing="first")


def by_name(study):
    return {r.name: r for r in report.rows(study)}


def cells(row, columns):
    return {c.head: c.text(row) for c in columns}


def costs(row, goal=None):
    return cells(row, tables.cost_columns(goal or evidence.Target("test accuracy", 0.5, True, "given")))


def test_first_crossings_are_those_of_the_first_round_at_the_target():
    rows = by_name(dataclasses.replace(some(), terms=FIRST))
    assert (rows["all"].reached, rows["all"].rounds) == (2, (1 + 3) / 2)  # equality reaches: 0.5 in round 1, 0.6 in 3
    assert rows["all"].models == (1 + 3) / 2
    assert rows["all"].bytes == (1 * 4 * MODEL + 3 * 4 * MODEL) / 2  # two clients, down and up
    assert rows["all"].seconds == 2.0
    assert (rows["slow"].rounds, rows["slow"].models) == (4, 8)  # two models in each round
    assert rows["slow"].bytes == 4 * 2 * 3 * MODEL
    assert rows["all"].final.mean == pytest.approx(0.75)
    assert rows["all"].final.spread == pytest.approx(math.sqrt(2) * 0.05)  # sample standard deviation of 0.8 and 0.7
    assert (rows["slow"].final.spread, rows["slow"].final.mean) == (None, 0.5)


def test_methods_are_compared_at_equal_cost():
    cheap, dear = run("cheap", [0.1, 0.2, 0.3, 0.4, 0.5]), run("dear", [0.1, 0.6, 0.7, 0.8, 0.9], bytes_each=1000)
    study = Study("", [dear, cheap], ("test accuracy", 0.5))
    rows = by_name(study)
    assert standings.columns_of_cost(study, "digits") == {"bytes": 400, "gradients": 40}  # the smallest total
    assert rows["dear"].at["bytes"].mean == 0.1  # it cannot afford a round
    assert rows["dear"].at["gradients"].mean == 0.9
    assert rows["cheap"].at["bytes"].mean == 0.5
    assert [r.name for r in report.rows(study)] == ["cheap", "dear"]
    given = dataclasses.replace(study, terms=Terms(Budget.from_text("bytes=2kB")))
    assert by_name(given)["dear"].at["bytes"].mean == 0.7  # 2 rounds cost exactly that
    assert by_name(given)["cheap"].at["bytes"].mean == 0.5  # it never spends so much
    assert [r.name for r in report.rows(given)] == ["dear", "cheap"]
    assert "Never spent 2 kB, and compared by what was reached with less: cheap." in tables.text(given)
    assert "Never spent" not in tables.text(study)
    rounds = dataclasses.replace(study, terms=Terms(Budget.from_text("rounds=1")))
    assert list(standings.columns_of_cost(rounds, "digits")) == ["rounds", "bytes", "gradients"]
    assert by_name(rounds)["dear"].at["rounds"].mean == 0.6


def test_a_method_can_afford_its_own_total_with_every_seed():
    seeds = [run("a", [0.1, 0.2, 0.3], s, gradients_each=each) for s, each in enumerate((9, 10, 11))]
    study = Study("", seeds, ("test accuracy", 0.5))
    assert by_name(study)["a"].at["gradients"].mean == pytest.approx(0.3)
    assert standings.columns_of_cost(study, "digits")["gradients"] == 22


def test_a_sweep_is_ordered_by_its_selection_and_has_no_card():
    def point(name, accuracy, loss):
        made = run(name, [0.1, accuracy])
        rows = [{**row, "train loss": loss} for row in made.rows]
        about = {**made.about, "metrics": {**made.about["metrics"], "train loss": False}}
        return dataclasses.replace(made, rows=rows, about=about)

    facts = {"kind": "sweep", "over": {"solver.lr": [1, 2]}, "random": None,
             "points": {"one": {"solver.lr": 1}, "two": {"solver.lr": 2}},
             "select": {"metric": "train loss", "last": 100}}  # fmt: skip
    study = Study("", [point("one", 0.9, 2.0), point("two", 0.2, 1.0)], ("test accuracy", 0.5), facts)
    assert [row.name for row in report.rows(study)] == ["two", "one"]
    assert "mean test accuracy at" not in page.page(study)


def test_a_diverged_method_does_not_set_the_budget():
    lost = run("lost", [0.1, 0.2], diverged=2)
    study = Study("", [run("a", [0.1, 0.2, 0.3]), lost], ("test accuracy", 0.5))
    assert standings.columns_of_cost(study, "digits")["bytes"] == 200
    assert by_name(study)["lost"].at["bytes"] is None


def test_seconds_are_simulated_seconds():
    one = run("a", [0.1, 0.2, 0.3])
    timed = dataclasses.replace(one, rows=[{**row, "simulated seconds": 1.5 * row["round"]} for row in one.rows])
    assert budgets.amount([timed], Budget("seconds")) == 3.0
    assert budgets.row_at(timed, "seconds", 2.0)["round"] == 1
    assert budgets.amount([one], Budget("seconds", 5.0)) is None
    study = Study("", [one], ("test accuracy", 0.5), terms=Terms(Budget("seconds")))
    assert "No verdict: these runs have no simulated seconds; give clients a system" in tables.text(study)


@pytest.mark.parametrize(
    ("text", "cost", "amount"),
    [
        ("bytes=20MB", "bytes", 20e6),
        ("bytes=1.5GB", "bytes", 1.5e9),
        ("bytes = 300", "bytes", 300),
        ("gradients=70k", "gradients", 70e3),
        ("gradients=1e6", "gradients", 1e6),
        ("rounds=50", "rounds", 50),
        ("seconds=3.5", "seconds", 3.5),
        ("seconds=3s", "seconds", 3),
        ("gradients", "gradients", None),
    ],
)
def test_budgets_as_text(text, cost, amount):
    assert Budget.from_text(text) == Budget(cost, amount)


@pytest.mark.parametrize("text", ["bytes=", "bytes=-1", "bytes=nan", "bytes=inf", "bytes=0", "rounds=20MB", "bytes=x"])
def test_bad_budgets(text):
    with pytest.raises(ValueError, match=r"budget: (write COST=AMOUNT|the amount)"):
        Budget.from_text(text)


def test_a_budget_of_something_else():
    with pytest.raises(ValueError, match=r"no cost 'byte'\. Did you mean 'bytes'"):
        Budget.from_text("byte=3")


def test_other_cohorts_and_more_exchanges_are_marked_where_methods_are_named():
    results = [run(name, [0.1, 0.2]) for name in ("a", "b", "c")]
    results += [run("all", [0.1, 0.2], clients=100), run("two", [0.1, 0.2], exchanges=2)]
    assert evidence.labels(results) == {
        "a": "a", "b": "b", "c": "c", "all": "all (everyone)", "two": "two (2 exchanges)",
    }  # fmt: skip
    study = Study("", results, ("test accuracy", 0.5))
    for shown in (tables.text(study), tables.latex(study), page.page(study)):
        assert shown.count("two (2 exchanges)") >= 2
        assert "all (everyone)" in shown
    assert evidence.labels([results[4]]) == {"two": "two"}  # nothing to differ from


def test_exchanges_count_as_rounds_do_for_models_and_bytes():
    study = Study("", [result("two", [0.1, 0.2, 0.9], exchanges=2)], ("test accuracy", 0.9), terms=FIRST)
    (found,) = report.rows(study)
    assert (found.rounds, found.models, found.bytes) == (2, 4, 2 * 2 * 4 * MODEL)


def test_what_is_not_reached_is_shown_as_such():
    study = dataclasses.replace(some(), terms=FIRST)
    rows = by_name(study)
    assert [costs(rows["never"])[head] for head in ("rounds", "models", "bytes")] == ["not reached", "-", "-"]
    assert costs(rows["half"])["rounds"] == "1 (1 of 2)"
    assert rows["half"].final.mean == pytest.approx(0.5)
    assert (rows["lost"].diverged, rows["lost"].final, rows["lost"].lost) == ((2,), None, True)
    ends = {name: cells(row, tables.standing_columns(study, "digits"))["at the end"] for name, row in rows.items()}
    assert ends["lost"] == "diverged (round 2)"
    assert rows["under way"].unfinished == 1
    assert costs(rows["under way"])["rounds"] == "not yet"
    assert ends["under way"] == "0.2000, unfinished"


def test_the_order_is_that_of_the_budget_then_unfinished_then_diverged():
    assert [r.name for r in report.rows(some())] == ["all", "half", "slow", "never", "under way", "lost"]


def test_one_diverged_seed_of_two_is_left_out_of_the_final_value():
    study = Study("", [result("a", [0.1] * 5, 0), result("a", [0.1, 0.4], 1, diverged=2)], ("test accuracy", 0.9))
    (found,) = report.rows(study)
    assert (found.final.mean, found.final.spread, found.lost) == (0.1, None, False)
    end = cells(found, tables.standing_columns(study, "digits"))["at the end"]
    assert end == "0.1000, 1 of 2 diverged (round 2)"


def test_a_run_that_has_not_begun_has_a_row():
    empty = Result("b", experiment("digits", "fedavg", rounds=4), [], {"metrics": {}})
    (found,) = report.rows(Study("", [empty]))
    assert (found.reached, found.final, found.seconds, found.unfinished) == (0, None, None, 1)
    assert "unfinished" in tables.text(Study("", [empty]))
    assert "unfinished" in page.page(Study("", [empty]))


def test_a_damaged_run_has_a_row():
    bad = Result("b", experiment("digits", "fedavg", rounds=4), [], {"metrics": {}}, damaged="log.jsonl is damaged.")
    study = Study("", [bad, run("a", [0.1, 0.2])])
    assert (by_name(study)["b"].damaged, by_name(study)["b"].unfinished) == (1, 0)
    assert "damaged" in tables.text(study)


def test_tasks_are_apart():
    results = [result("a", [0.1, 0.9, 0.9, 0.9, 0.9]), result("a", [0.1, 0.2, 0.2, 0.2, 0.2], task="synthetic-0-0")]
    study = Study("", results, ("test accuracy", 0.5))
    found = report.rows(study)
    assert [(r.task, r.seeds, r.reached) for r in found] == [("digits", 1, 1), ("synthetic-0-0", 1, 0)]
    assert tables.latex(study).count(r"\begin{tabular}") == 4
    assert [task["task"] for task in data_of(page.page(study))["tasks"]] == ["digits", "synthetic-0-0"]


def test_csv_has_the_rows_in_full():
    study = some()
    read = list(csv.DictReader(io.StringIO(tables.csv(study))))
    for line, r in zip(read, report.rows(study), strict=True):
        assert line["name"] == r.name
        for field in ("rounds", "models", "bytes", "seconds"):
            assert (float(line[field]) if line[field] else None) == getattr(r, field)
        assert (float(line["final"]) if line["final"] else None) == (r.final.mean if r.final else None)
        at = r.at.get("bytes")
        assert (float(line["at equal bytes"]) if line["at equal bytes"] else None) == (at.mean if at else None)
        assert (int(line["seeds"]), int(line["reached"])) == (r.seeds, r.reached)
        assert tuple(int(t) for t in line["diverged"].split()) == r.diverged
        assert float(line["target"]) == 0.5


def test_json_and_nan():
    study = Study("", [result("a", [0.1, math.nan, math.nan])], ("test accuracy", 0.5))
    (plain,) = json.loads(json.dumps(tables.plain(study), allow_nan=False))
    assert (plain["final"], plain["reached"], plain["name"]) == (None, 0, "a")


def test_text_is_aligned():
    lines = tables.text(dataclasses.replace(some(), terms=FIRST)).split("\n")
    rule = [i for i, line in enumerate(lines) if line.startswith("---")][1]
    ends = [m.end() for m in re.finditer("-+", lines[rule])]
    assert "  rounds" in lines[rule - 1]
    body = lines[rule + 1 : rule + 7]
    assert [line[ends[0] : ends[1]].strip() for line in body] == ["2", "1 (1 of 2)", "4", "not reached", "not yet", "1"]
    assert all(line[ends[2] : ends[2] + 2] == "  " for line in body)
    assert lines[0] == "A <title>"
    assert any("test accuracy >= 0.5 (given)" in line for line in lines)


def test_latex_is_escaped():
    study = Study("50%", [result(r"a_b & 5% $x^2$ {~} \c #1", [0.1, 0.2])], ("test accuracy", 0.5))
    body = [line for line in tables.latex(study).split("\n") if line.startswith("a")]
    name = r"a\_b \& 5\% \$x\textasciicircum{}2\$ \{\textasciitilde{}\} \textbackslash{}c \#1 & "
    assert all(line.startswith(name) and line.endswith(r" \\") for line in body)
    assert [line.count(" & ") for line in body] == [1, 7]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (5_784_000, "5.78 MB"), (123_456_789_000, "123 GB")],
)
def test_bytes_in_words(value, words):
    assert budgets.byte_words(value) == words


def test_where_settings_come_from_is_shown():
    one = run("a", [0.1, 0.2])
    told = dataclasses.replace(
        one, about={**one.about, "setting": {"origin": "tuned", "words": "tuned here: 24 points"}}
    )
    study = Study("", [told])
    assert "settings: tuned here: 24 points (all methods)" in tables.text(study)
    assert "Where the settings come from" in page.page(study)
