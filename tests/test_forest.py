"""The forest plot: what it draws is what it was given."""

import pytest

from fedloom.report import forest
from fedloom.report.drawing import content

ROWS = [
    forest.Difference("near & dear", -0.001, -0.004, 0.002, -0.006, 0.004, True),
    forest.Difference("<b>far</b>", -0.05, -0.06, -0.04, -0.07, -0.03, False),
]


def test_the_page_gets_every_interval_in_its_place():
    found = forest.forest_plotly(ROWS, "best", "test accuracy")
    lines = [t for t in found["data"] if t["mode"] == "lines" and t["x"]]
    drawn = {(t["line"]["color"], t["line"]["width"] > 2): (t["x"], t["y"]) for t in lines}
    assert drawn == {
        (forest.TIED, False): ([-0.006, 0.004, None], [0, 0, None]),
        (forest.TIED, True): ([-0.004, 0.002, None], [0, 0, None]),
        (forest.WORSE, False): ([-0.07, -0.03, None], [1, 1, None]),
        (forest.WORSE, True): ([-0.06, -0.04, None], [1, 1, None]),
    }
    marks = [(t["name"], t["x"], t["y"]) for t in found["data"] if t["mode"] == "markers"]
    assert marks == [("tied with the best", [-0.001], [0]), ("worse", [-0.05], [1])]
    axis = found["layout"]["yaxis"]
    assert axis["ticktext"] == ["near &amp; dear", "&lt;b&gt;far&lt;/b&gt;"]
    assert axis["range"][0] > axis["range"][1]  # the first on top
    assert "difference to best" in found["layout"]["xaxis"]["title"]["text"]


def test_the_figure_has_the_same_intervals():
    figure = forest.forest_figure(ROWS, "best", "test $accuracy")
    (axes,) = figure.axes
    lines = [
        line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_color() in (forest.TIED, forest.WORSE)
    ]
    drawn = [(line.get_color(), *line.get_xdata(), line.get_ydata()[0]) for line in lines]
    assert drawn == [
        (forest.TIED, -0.006, 0.004, 0),
        (forest.TIED, -0.004, 0.002, 0),
        (forest.WORSE, -0.07, -0.03, 1),
        (forest.WORSE, -0.06, -0.04, 1),
    ]
    assert lines[1].get_linewidth() > lines[0].get_linewidth()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["near & dear", "<b>far</b>"]
    assert content(figure, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("rows", [ROWS[:1], ROWS[1:], []])
def test_one_kind_alone_or_none(rows):
    forest.forest_figure(rows, "best", "loss")
    shown = [t["showlegend"] for t in forest.forest_plotly(rows, "best", "loss")["data"] if t["mode"] == "markers"]
    assert shown == [any(r.tied for r in rows), any(not r.tied for r in rows)]
