"""Reports: tables against numbers worked out by hand, pages and figures against the results they show."""

import dataclasses
import html.parser
import json
import math
import re

import numpy as np
import pytest

from fedloom import report
from fedloom.experiments import Result, Study, experiment
from fedloom.report import drawing, figures, heat_maps, page, series

MODEL = 1000  # bytes of the model
METRICS = {"train loss": False, "test loss": False, "test accuracy": True}
TASKS = {task: experiment(task, "fedavg", rounds=4) for task in ("digits", "synthetic-0-0")}


def row(t, accuracy, loss=None, exchanges=1, clients=2, extra=1):
    """Round t of a method in which `clients` take part and send `extra` models in each exchange."""
    trips = t * exchanges * clients
    counters = {"exchanges": t * exchanges, "messages": 2 * trips}
    loss = 2.0 - accuracy if loss is None else loss
    values = {"train loss": loss, "test loss": loss, "test accuracy": accuracy}
    return {
        "round": t, **values, **counters, "bytes down": trips * MODEL, "bytes up": trips * extra * MODEL, "gradients": 0
    }  # fmt: skip


def result(name, accuracies, seed=0, *, rounds=4, diverged=None, task="digits", seconds=1.0, every=1, **how):
    rows = [row(every * i, a, **how) for i, a in enumerate(accuracies)]
    if diverged is not None:
        rows.append({"round": diverged, "diverged": "The training loss is inf."})
    about = {
        "task": task, "words": "words", "clients": 3, "parameters": MODEL // 4, "model bytes": MODEL,
        "metrics": METRICS, "sizes": [3, 2, 1], "labels": [[3, 0], [1, 1], [0, 1]],
        "versions": {"jax": "1"}, "machine": {"cores": 2},
    }  # fmt: skip
    made = dataclasses.replace(TASKS[task], rounds=rounds, seed=seed)
    return Result(name, made, rows, about, seconds)


def some():
    return Study(
        "A <title>",
        [
            result("slow", [0.1, 0.2, 0.3, 0.4, 0.5], extra=2),
            result("all", [0.1, 0.5, 0.6, 0.7, 0.8], 0, seconds=1.0),
            result("all", [0.1, 0.2, 0.4, 0.6, 0.7], 1, seconds=3.0),
            result("half", [0.1, 0.6, 0.6, 0.6, 0.6], 0),
            result("half", [0.1, 0.2, 0.2, 0.3, 0.4], 1),
            result("lost", [0.1, 0.9], diverged=2),
            result("never", [0.1, 0.1, 0.1, 0.1, 0.1]),
            result("under way", [0.1, 0.2]),
        ],
        target=("test accuracy", 0.5),
    )


def test_a_series_is_the_mean_of_all_seeds_under_way():
    seeds = [
        result("a", [0.0, 0.1, 0.2, 0.3, 0.4], 0),
        result("a", [0.2, 0.6, 0.8], 1, every=2),  # rounds 0, 2, 4
        result("a", [0.4, 0.5, 0.7], 2, diverged=3),  # rounds 0, 1, 2
    ]
    found = series.series("a", seeds)
    band = found.metrics["test accuracy"]
    assert found.axes["rounds"].tolist() == [0, 2, 4]
    np.testing.assert_allclose(band.mean, [0.2, 0.5, 0.6])
    np.testing.assert_allclose(band.low, [0.0, 0.2, 0.4])
    np.testing.assert_allclose(band.high, [0.4, 0.7, 0.8])
    np.testing.assert_allclose(found.axes["time"], [0, 2 * 2 * MODEL, 4 * 2 * MODEL])  # one client, not two
    (mark,) = found.diverged
    assert (mark["rounds"], mark["test accuracy"]) == (2, 0.7)


def data_of(text):
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(data)


def test_the_page_has_the_numbers_of_the_results():
    study = some()
    (task,) = data_of(page.page(study))["tasks"]
    assert [one["name"] for one in task["series"]] == [r.name for r in report.rows(study)]
    one = next(one for one in task["series"] if one["name"] == "slow")
    assert one["metrics"]["test accuracy"] == [study.results[0].column("test accuracy").tolist()]
    for axis, column in ((a, c) for a, c in series.AXES.items() if a != "clock"):
        assert one["axes"][axis] == study.results[0].column(column).tolist()
    assert task["target"] == {"metric": "test accuracy", "value": 0.5}
    assert task["split"]["counts"] == [[3, 1, 0], [0, 1, 1]]  # labels by clients


class Elements(html.parser.HTMLParser):
    """What a browser sees: elements with attributes, and the text in them."""

    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def strange(words):
    """A study with these words everywhere: title, name, metric, and what is said of task and machine."""
    one = result(words, [0.1, 0.2])
    rows = [{**row, words: row["test accuracy"]} for row in one.rows]
    facts = {"words": words, "summary": words, "machine": {words: words}, "metrics": {"train loss": False, words: True}}
    return Study(words, [dataclasses.replace(one, rows=rows, about=one.about | facts)], (words, 0.5))


def test_hostile_words_are_only_text():
    bad = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
    seen, expected = Elements(), Elements()
    seen.feed(page.page(strange(bad), extra=[(bad, "", None)]))
    expected.feed(page.page(strange("fine"), extra=[("fine", "", None)]))
    assert [tag for tag, _ in seen.tags] == [tag for tag, _ in expected.tags]
    assert [attributes.keys() for _, attributes in seen.tags] == [attributes.keys() for _, attributes in expected.tags]
    assert seen.words.count(bad) == expected.words.count("fine") > 5
    assert data_of(page.page(strange(bad)))["tasks"][0]["series"][0]["name"] == bad


def test_the_page_asks_for_nothing():
    seen = Elements()
    seen.feed(page.page(some()))
    for _, attributes in seen.tags:
        assert not {"src", "href", "srcset"} & attributes.keys()
    policy = [a["content"] for _, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy[0].startswith("default-src 'none'")


def test_configurations_of_one_name_that_differ_are_all_shown():
    first, second = result("a", [0.1], 0), result("a", [0.1], 1)
    other = dataclasses.replace(second, experiment=dataclasses.replace(second.experiment, rounds=9))
    assert page.page(Study("", [first, second])).count("<details>") == 1
    assert page.page(Study("", [first, other])).count("<details>") == 2


def test_write_makes_every_file_and_replaces_only_its_own(tmp_path):
    study = some()
    path = report.write(study, tmp_path / "new" / "folder", extra=[("Heading", "<p>fragment</p>", None)])
    names = {p.name for p in path.parent.iterdir()}
    pictures = {f"{n}.{k}" for n in ("curves-test-accuracy", "curves-train-loss", "split") for k in ("png", "svg")}
    assert names == {"report.html", "table.csv", "table.tex"} | pictures
    assert "<h2>Heading</h2><p>fragment</p>" in path.read_text()
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    report.write(study, path.parent, extra=[("Heading", "<p>fragment</p>", None)])
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


@pytest.mark.parametrize("name", ["report.html", "table.csv", "split.png"])
def test_what_a_user_made_is_kept(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"{name} was not written by FedLoom"):
        report.write(some(), tmp_path)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["mine"]


def test_curves_draw_mean_band_target_and_cross():
    (axes,) = figures.curves(some(), x="time", bandwidth=0.001).axes
    lines = {line.get_label(): line for line in axes.lines}
    np.testing.assert_allclose(lines["all"].get_ydata(), [0.1, 0.35, 0.5, 0.65, 0.75])
    np.testing.assert_allclose(lines["all"].get_xdata(), 2 * np.arange(5))  # 2 kB in a round, at 1 kB/s
    thin = [line for line in axes.lines if line.get_linewidth() < 1]
    assert len(thin) == 2 * 2  # both seeds of the two names with two
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [line.get_xdata().tolist() for line in crosses] == [[2.0]]
    assert any(np.allclose(line.get_ydata(), 0.5) and len(line.get_ydata()) == 2 for line in axes.lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"metric": "test acc"}, "Did you mean 'test accuracy'"),
        ({"x": "round"}, "Did you mean 'rounds'"),
        ({"task": "digit"}, "Did you mean 'digits'"),
        ({"bandwidth": 0}, "bandwidth must be a positive number"),
    ],
)
def test_curves_refuse_what_is_not_there(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        figures.curves(some(), **arguments)


def test_neither_the_start_nor_an_explosion_sets_the_scale():
    study = Study("", [result("a", [0.0, 0.5, 0.7, 0.8, 0.9]), result("b", [0.0, 9.0], diverged=2)])
    (axes,) = figures.curves(study).axes
    low, high = axes.get_ylim()
    assert 0.4 < low < 0.5
    assert 0.9 < high < 1.0
    (cross,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert (*cross.get_xdata(), *cross.get_ydata()) == (1.0, high)  # at the edge


def test_names_with_dollars_and_low_lines_are_drawn():
    figure = figures.curves(Study("", [result("_a $x^$", [0.1, 0.2])]))
    assert drawing.content(figure, "png").startswith(b"\x89PNG")
    assert "_a $x^$" in drawing.content(figure, "svg").decode()


def test_a_heat_map_is_sorted_and_marks_the_best():
    values = [[3.0, 1.0], [math.nan, 2.0], [math.inf, 9.0]]
    arguments = ([1.0, 0.1], [0.01, 1.0, 0.1], values, "client lr", "server lr", "title")
    found = heat_maps.heat_map_plotly(*arguments)
    assert found["data"][0]["z"] == [[1.0, 3.0], [9.0, None], [2.0, None]]
    assert found["data"][1]["z"] == [[None, None], [None, 1], [None, 1]]
    assert found["layout"]["xaxis"]["ticktext"] == ["0.1", "1"]
    assert found["layout"]["yaxis"]["ticktext"] == ["0.01", "0.1", "1"]
    (best,) = found["layout"]["shapes"]
    assert (best["x0"], best["y0"]) == (-0.5, 0.5)  # the 9
    (best,) = heat_maps.heat_map_plotly(*arguments, larger_is_better=False)["layout"]["shapes"]
    assert (best["x0"], best["y0"]) == (-0.5, -0.5)  # the 1
    axes = heat_maps.heat_map(*arguments).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array().filled(-1), [[1, 3], [9, -1], [2, -1]])
    frame = [p for p in axes.patches if not p.get_fill()]
    assert [p.get_xy() for p in frame] == [(-0.5, 0.5)]
    assert sum(p.get_hatch() is not None for p in axes.patches) == 2
    with pytest.raises(ValueError, match="a row for each of ys"):
        heat_maps.heat_map([1.0], [1.0], values, "", "", "")


def test_a_split_in_a_terminal():
    text = report.split_text({"labels": [[9, 0, 1], [2, 2, 6]], "sizes": [10, 20], "clients": 2}, 60)
    _, head, first, second = text.split("\n")
    at = head.index("0")
    assert [first[at + 3 * c] for c in range(3)] == ["█", " ", "░"]  # 90%, nothing, 10%
    assert [second[at + 3 * c] for c in range(3)] == ["▒", "▒", "█"]  # 20%, 20%, 60%
    assert second.count("█") - 3 == 2 * (first.count("█") - 3)  # twice the size, twice the bar


@pytest.mark.parametrize("classes", [2, 10, 62, 1000])
def test_a_split_fits_its_width_and_says_what_is_left_out(classes):
    labels = np.random.default_rng(0).poisson(1, (40, classes)).tolist()
    about = {"labels": labels, "sizes": [sum(line) for line in labels], "clients": 1040}
    lines = report.split_text(about, 72).split("\n")
    assert max(map(len, lines[1:])) <= 72
    assert lines[-1] == "... and 1,015 more clients"
    assert len(lines) == 25 + 3


def test_a_split_without_labels_has_bars():
    lines = report.split_text({"sizes": [1, 4], "clients": 2}, 40).split("\n")
    assert [line.count("█") for line in lines] == [0, 4, 16]
    (axes,) = figures.split_picture({"task": "t", "clients": 9, "sizes": [1, 4]}).axes
    assert [bar.get_height() for bar in axes.patches] == [1, 4]
    assert "first 2 of 9" in axes.get_title(loc="left")


def test_of_many_methods_the_best_are_in_colour_and_labelled():
    study = Study("", [result(f"m{i}", [0.0, 0.01 * i]) for i in range(30)])
    figure = figures.curves(study)
    (axes,) = figure.axes
    drawn = {line.get_label(): line.get_color() for line in axes.lines if line.get_label().startswith("m")}
    assert len(drawn) == 30
    best = {f"m{i}" for i in range(25, 30)}
    assert {name for name, colour in drawn.items() if colour != figures.GREY} == best
    assert len({drawn[name] for name in best}) == 5
    assert {text.get_text() for text in axes.texts if text.get_text().startswith("m")} == best
    assert "Grey: m24, m23," in figure.get_supxlabel()
    looks = figures.styles(study)
    assert len(set(looks.values())) == series.MOST  # those that can be told apart, and then again from the start


def test_a_figure_shows_itself_in_a_notebook():
    assert figures.curves(some())._repr_png_().startswith(b"\x89PNG")
