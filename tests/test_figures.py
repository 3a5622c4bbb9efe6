"""What pictures show: seeds and their intervals, methods that stretch an axis, sweeps, clocks, names of clients."""

import dataclasses
import html
import math
import re

import numpy as np
import pytest
import scipy.stats

from fedloom import report
from fedloom.engines.clock import Clock
from fedloom.experiments import Study
from fedloom.experiments.result import clock_columns
from fedloom.experiments.terms import Terms
from fedloom.report import clock, drawing, figures, heat_maps, page, series
from tests.test_report import data_of, result


def test_the_interval_is_that_of_a_t_test():
    seeds = [[0.1, 0.2, 0.9], [0.2, 0.5, 0.7], [0.4, 0.6]]  # the last stopped early
    band = series.series("a", [result("a", values, s) for s, values in enumerate(seeds)]).metrics["test accuracy"]
    for i in range(3):
        values = [one[i] for one in seeds if len(one) > i]
        expected = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
        assert band.mean[i] - band.interval[i] == pytest.approx(expected.low)
        assert band.mean[i] + band.interval[i] == pytest.approx(expected.high)
    assert math.isnan(series.series("a", [result("a", [0.1])]).metrics["test accuracy"].interval[0])


def test_three_seeds_have_an_interval_and_two_are_drawn():
    three = Study("", [result("a", [0.1, 0.2 + 0.1 * s], s) for s in range(3)])
    (axes,) = figures.curves(three).axes
    assert len(axes.collections) == 1
    assert not [line for line in axes.lines if line.get_linewidth() < 1]
    (axes,) = figures.curves(dataclasses.replace(three, results=three.results[:2])).axes
    assert len(axes.collections) == 0
    thin = [line.get_ydata().tolist() for line in axes.lines if line.get_linewidth() < 1]
    assert thin == [[0.1, 0.2], [0.1, pytest.approx(0.3)]]


def test_gradients_are_an_axis():
    rows = [{**row, "gradients": 7 * row["round"]} for row in result("a", [0.1, 0.2]).rows]
    study = Study("", [dataclasses.replace(result("a", [0.1, 0.2]), rows=rows)])
    (axes,) = figures.curves(study, x="gradients").axes
    assert axes.lines[0].get_xdata().tolist() == [0, 7]
    assert data_of(page.page(study))["tasks"][0]["series"][0]["axes"]["gradients"] == [0, 7]


ROUNDS = np.arange(11.0)


def flat(*values):
    """Methods, the best first, which stay at a value and a little above it."""
    return {f"m{i}": (ROUNDS, np.where(ROUNDS == 5, v + 0.01, v)) for i, v in enumerate(values)}


@pytest.mark.parametrize(
    ("values", "log", "expected"),
    [
        ((0.9, 0.89, 0.88, 0.1), False, ["m3"]),
        ((0.9, 0.89, 0.1, 0.88), False, ["m2"]),
        ((0.9, 0.1, 0.11, 0.12), False, []),  # the better half is always in view
        ((0.9, 0.88, 0.1), False, []),  # too few to call one of them an exception
        ((0.9, 0.7, 0.5, 0.3), False, []),  # none is far from all others
        ((0.5,) * 4, False, []),
        ((1e-1, 1e-2, 1e-3, 1e-4), True, []),
        ((0.9, 0.9, 0.9, 0.9, 0.89, 0.89, 0.2, 0.1), False, ["m7", "m6"]),  # a quarter of them
        ((0.9, 0.9, 0.9, 0.89, 0.89, 0.3, 0.2, 0.1), False, []),  # three of eight are no exceptions
    ],
)
def test_one_method_does_not_stretch_the_axis(values, log, expected):
    assert series.outside(flat(*values), 10.0, log) == expected


def test_the_start_is_nobodys_fault():
    curves = flat(0.9, 0.89, 0.88, 0.87)
    curves["m3"] = (ROUNDS, np.where(ROUNDS < 2, 0.0, 0.87))
    assert series.outside(curves, 10.0) == []


def test_the_scale_leaves_it_out_and_says_so():
    study = Study("", [result(f"m{i}", [0, a, a, a, a + 0.01]) for i, a in enumerate((0.9, 0.89, 0.88, 0.1))])
    figure = figures.curves(study)
    assert figure.axes[0].get_ylim()[0] > 0.8
    assert "m3" in figure.get_supxlabel()
    assert data_of(page.page(study))["tasks"][0]["outside"]["test accuracy"] == {"linear": ["m3"], "log": ["m3"]}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([0.2, 0.8], [0.2, 0.8]),
        ([0.5, 0.5, 0.5], [0.5, 0.6, 0.7]),
        ([1.0, 0.95], [1.0, 0.9]),
        ([0.05, 0.0, 0.3], [0.1, 0.0, 0.3]),
        ([], []),
    ],
)
def test_labels_are_spread(wanted, expected):
    assert drawing.spread(wanted, 0.1, 0.0, 1.0) == pytest.approx(expected)


def test_the_best_of_each_study_have_colours_of_their_own():
    study = Study("", [result(f"m{i}", [0.0, 0.01 * i]) for i in range(11)])
    looks = figures.styles(study)
    best = [looks[f"m{i}"] for i in range(10, 5, -1)]
    assert len({colour for colour, _ in best}) == 5
    assert {dash for _, dash in best} == {"solid"}
    assert len(set(looks.values())) == 11


# Sweeps


def swept(points):
    """A sweep over two fields; its score is the training loss, lowest at solver.lr = 0.3 and algorithm.lr = 1."""
    lrs, about = [10.0 ** (-i / 2) for i in range(points // 2)], {}
    results = []
    for lr in lrs:
        for server in (0.5, 1.0):
            name = f"solver.lr={lr:.4g},algorithm.lr={server:g}"
            about[name] = {"solver.lr": lr, "algorithm.lr": server}
            loss = abs(math.log10(lr) + 0.5) + 1 - server / 2
            results.append(result(name, [0.1, 0.2, 0.3, 0.4, 0.5], loss=loss))
    over = {"solver.lr": lrs, "algorithm.lr": [0.5, 1.0]}
    select = {"metric": "train loss", "last": 100}
    return Study(
        "a sweep", results, None, {"kind": "sweep", "over": over, "random": None, "select": select, "points": about}
    )


def test_a_large_sweep_shows_its_best_points():
    study = swept(72)
    text = page.page(study)
    (task,) = data_of(text)["tasks"]
    assert len(task["series"]) == 5
    assert (task["series"][0]["name"], task["series"][0]["label"]) == (
        "solver.lr=0.3162,algorithm.lr=1",
        "solver.lr=0.3162,algorithm.lr=1",  # two fields are called lr
    )
    assert text.count("<pre>") == 1  # one configuration, which can be run
    (axes,) = figures.curves(study).axes
    assert len([line for line in axes.lines if "solver.lr" in str(line.get_label())]) == 5
    section = report.extras.first_sections(study)[0][1]
    rows = re.findall("<tr>(.*?)</tr>", section)
    assert len(rows) == 1 + 72
    cells = [html.unescape(cell) for cell in re.findall("<td>(.*?)</td>", rows[1])]
    assert cells == ["solver.lr=0.3162,algorithm.lr=1", "0.3162", "1", "0.5"]


def test_points_are_called_by_the_last_words_of_their_fields():
    study = swept(4)
    points = {name: {"solver.lr": v["solver.lr"], "algorithm.mu": 0.1} for name, v in study.about["points"].items()}
    shown = series.labels(dataclasses.replace(study, about={**study.about, "points": points}))
    assert shown["solver.lr=0.3162,algorithm.lr=1"] == "lr=0.3162, mu=0.1"
    assert series.labels(swept(4)) == {name: name for name in points}
    assert series.labels(Study("", [result("a", [0.1])])) == {"a": "a"}


def test_the_terminal_shows_the_ten_best_points_of_a_sweep():
    lines = report.sweep_text(swept(72)).split("\n")
    assert lines[1].split() == ["0.3162", "1", "0.5"]
    assert len(lines) == 1 + 10 + 3
    assert lines[11] == "... and 62 more points: see report.html and table.csv"
    assert lines[-1] == "best: solver.lr=0.3162,algorithm.lr=1"
    small = report.sweep_text(swept(10))
    assert "more points" not in small
    assert len(small.split("\n")) == 1 + 10 + 2


def test_a_best_value_at_an_edge_is_pointed_out():
    study = swept(10)
    heading, _, figure = report.extras.first_sections(study)[0]
    assert heading == "The sweep"
    title = figure["layout"]["title"]["text"]
    assert (
        "The best lies at the edge of algorithm.lr: extend the grid." in title
    )  # not of solver.lr, where it is inside
    drawn = heat_maps.heat_map(**report.extras._map(study))
    assert drawn.get_supxlabel() == "The best lies at the edge of algorithm.lr: extend the grid."
    over = {"solver.lr": study.about["over"]["solver.lr"]}  # a single field has no heat map
    points = {name: {"solver.lr": v["solver.lr"]} for name, v in study.about["points"].items()}
    single = dataclasses.replace(study, about={**study.about, "over": over, "points": points})
    assert "edge" not in report.extras.first_sections(single)[0][1]
    shorter = dataclasses.replace(single, about={**single.about, "over": {"solver.lr": [10**-0.5, 0.1]}})
    assert "The best lies at the edge of solver.lr: extend the grid." in report.extras.first_sections(shorter)[0][1]


def test_ticks_are_the_values():
    lrs = [10**-1.5, 10**-1, 0.101, 1000.0]
    found = report.heat_map_plotly(lrs, [0.03, 1], np.arange(8).reshape(2, 4), "x", "y", "title")
    assert heat_maps._ticks(np.array([0.25, 1.5])) == ["0.25", "1.5"]  # two digits at least
    assert found["layout"]["xaxis"]["ticktext"] == ["0.0316", "0.1", "0.101", "1000"]
    assert found["layout"]["yaxis"]["ticktext"] == ["0.03", "1"]
    assert found["layout"]["xaxis"]["title"]["text"] == "x"


# Simulated time


def timed(name, accuracies, staleness, seed=0, **how):
    made = result(name, accuracies, seed, **how)
    spent = [clock_columns(Clock())] + [
        clock_columns(Clock(seconds=10.0 * t, jobs=t, replies=t, staleness=staleness)) for t in range(1, len(made.rows))
    ]
    return dataclasses.replace(made, rows=[{**row, **more} for row, more in zip(made.rows, spent, strict=True)])


def test_the_tables_agree_on_who_reaches_the_target():
    study = Study(
        "",
        [
            timed("some", [0.1, 0.6, 0.6, 0.6, 0.6], (1, 1), 0),
            timed("some", [0.1, 0.2, 0.2, 0.2, 0.2], (1, 1), 1),
            timed("all", [0.1, 0.2, 0.6, 0.6, 0.6], (1, 1), 0),
            timed("none", [0.1] * 5, (1, 1), 0),
            timed("under way", [0.1, 0.1], (1, 1), 0),
        ],
        ("test accuracy", 0.5),
        terms=Terms(crossing="first"),
    )
    seconds = {line[0]: line[1] for line in clock.clock_rows(study, "digits")}
    rounds = {
        row.name: report.tables.cost_columns(report.target(study, "digits"))[1].text(row) for row in report.rows(study)
    }
    assert rounds == {"some": "1 (1 of 2)", "all": "2", "none": "not reached", "under way": "not yet"}
    assert seconds == {"some": "10.00 (1 of 2)", "all": "20.00", "none": "not reached", "under way": "not yet"}


def staleness(*histograms):
    study = Study("", [timed(f"m{i}", [0.1, 0.2], counts) for i, counts in enumerate(histograms)])
    return clock.histogram(study, figures.styles(study))


def test_staleness_is_drawn_once_if_it_is_equal():
    found = staleness(*[(1, 3)] * 7)["data"]
    assert [(t["name"], t["y"]) for t in found] == [("all methods", [0.25, 0.75])]
    found = staleness((1, 3), (1, 3), (1, 1))["data"]
    assert [(t["name"], t["y"]) for t in found] == [("m0, m1", [0.25, 0.75]), ("m2", [0.5, 0.5])]
    assert staleness((4,), (4,)) is None


def test_many_kinds_of_staleness_are_rows():
    (found,) = staleness(*[(1,) * (i + 1) for i in range(8)])["data"]
    assert found["type"] == "heatmap"
    assert len(found["z"]) == 8
    assert {len(row) for row in found["z"]} == {8}
    assert found["z"][1] == [0.5, 0.5, 0, 0, 0, 0, 0, 0]


# The split

CITIES = ["Cleveland", "Columbus", "a town with a name that is far too long for a picture"]


def test_clients_have_their_names():
    about = {**result("a", [0.1]).about, "names": CITIES}
    lines = report.split_text(about, 72).split("\n")
    assert [line.split("  ")[0].strip() for line in lines[2:]] == ["Cleveland", "Columbus", "a town with a nam…"]
    assert max(map(len, lines[1:])) <= 72
    ticks = [label.get_text() for label in figures.split_picture(about).axes[1].get_xticklabels()]
    assert ticks == ["Cleveland", "Columbus", "a town with a name …"]
    study = Study("", [dataclasses.replace(result("a", [0.1]), about=about)])
    assert data_of(page.page(study))["tasks"][0]["split"]["names"] == CITIES
