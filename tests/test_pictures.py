"""The pictures of the papers' pages: dots, curves, slopes, and that what is committed is what is drawn."""

import dataclasses
import itertools
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from docs import papers
from docs.axes import COLOURS, OURS, PAPER, Axis, axis
from docs.pictures import picture
from docs.slopes import slopes
from fedloom.reproductions import find
from fedloom.reproductions.recording import Curve, Points
from tests.test_papers import END, kept, made_up
from tests.test_project import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def words_of(svg):
    return [e.text for e in ET.fromstring(svg).iter(f"{SVG}text")]


def places_of(svg, kind, colour):
    """Where shapes of a colour are in the panel, by row; those of the legend are left out."""
    panel = ET.fromstring(svg).find(f"{SVG}g")
    shapes = [e for e in panel.iter(f"{SVG}{kind}") if colour in (e.get("fill"), e.get("stroke"))]
    return [e.attrib for e in shapes]


def without_numbers(r):
    return dataclasses.replace(r, lines=tuple(line._replace(reported=None) for line in r.lines))


def test_a_picture_of_counts_has_every_seed_and_the_paper_s_numbers():
    r = made_up(reported=(10.0, 40.0))
    record = kept(r, (5.0, 10.0, 20.0), (40.0, 80.0, math.inf))
    svg, bare = picture(r, record), picture(without_numbers(r), record)
    legend = {"ours, a seed", "ours, the mean", "a seed: not reached", "the paper"}
    assert {"easy", "a", "b", "rounds to train loss 0.5"} | legend <= set(words_of(svg))
    assert legend - set(words_of(bare)) == {"the paper"}
    seeds = [float(e["cx"]) for e in places_of(svg, "circle", OURS)]
    assert len(seeds) == 5
    steps = np.diff(seeds)  # on a logarithmic axis doublings are equally wide
    assert steps == pytest.approx([steps[0]] * 4, abs=0.2)
    diamonds = [float(re.match(r"M([\d.]+) ", e["d"])[1]) for e in places_of(svg, "path", PAPER)]
    assert diamonds == pytest.approx([seeds[1], seeds[3]], abs=0.2)  # where 10 and 40 are
    assert places_of(bare, "path", PAPER) == []


def test_a_picture_of_ends_has_curves_and_the_paper_s_ends():
    r = made_up(measure=END, reported=(80.0, 60.0))
    curves = {
        m: {"test accuracy": Curve((0, 10, 20), (0.2, 0.6, end), (0,))} for m, end in (("a", 0.8), ("b", math.nan))
    }
    svg = picture(r, kept(r, (88.0,), (70.0,), curves))
    assert {"easy", "1 - test accuracy, by round", "a", "b", "the paper"} <= set(words_of(svg))
    assert "ours, a seed" not in words_of(svg)
    points = [[tuple(map(float, p.split(","))) for p in e["points"].split()] for e in places_of(svg, "polyline", OURS)]
    ((start, middle, end),) = points
    assert start[0] < middle[0] < end[0]
    assert (start[1] - middle[1], middle[1] - end[1]) == pytest.approx((start[1] - end[1]) / 2 * np.ones(2), abs=0.2)
    (of_a,) = places_of(svg, "path", OURS)
    x, top = map(float, re.match(r"M([\d.]+) ([\d.]+)l5", of_a["d"]).groups())
    assert (x, top + 5) == pytest.approx(end, abs=0.2)  # 80% is where the curve ends
    (of_b,) = places_of(svg, "polyline", PAPER)
    assert len(of_b["points"].split()) == 2  # what is no number is not drawn


def test_a_curve_of_fewer_seeds_than_the_figure_says_so():
    """Of a run that diverged in some seeds; of one that did in all there is none, and the others are drawn."""
    r = made_up(measure=END, reported=(None, None))
    one = {"test accuracy": Curve((0, 20), (0.2, 0.8), (0,))}
    whole = {"test accuracy": Curve((0, 20), (0.2, 0.8), (0, 1))}
    record = kept(r, (80.0, -math.inf), (80.0, 80.0), {"a": one, "b": whole})
    assert "a: 1 of 2 seeds" in words_of(picture(r, record))
    assert "b: 2 of 2 seeds" not in words_of(picture(r, record))
    lost = picture(r, dataclasses.replace(record, curves={"b": whole}))
    assert places_of(lost, "polyline", OURS) == []
    assert len(places_of(lost, "polyline", PAPER)) == 1  # the second colour is that of b


def test_an_axis_on_which_nothing_has_a_place_has_no_marks():
    r = without_numbers(made_up())
    assert {"0", "1"} & set(words_of(picture(r, kept(r, (math.inf,), (math.inf,))))) == set()


def test_slopes_are_straight_lines_of_squares():
    """Norms that fall as (nK)^-0.25: the square of that of nK = 100 is at 0.1; a cell that was lost is left out."""
    line, *_ = (line for line in find("speedup-corollary2").lines if line.grid)
    cells = [n * k for n in line.grid.xs for k in line.grid.ys]
    values = [math.nan if i == 5 else c**-0.25 for i, c in enumerate(cells)]
    svg = slopes([(line, Points(tuple(values), (0, 1, 2)))])
    dots = [(float(e["cx"]), float(e["cy"])) for e in places_of(svg, "circle", COLOURS[0])]
    assert len(dots) == len(cells) - 1
    marks = {e.text: (float(e.get("x")), float(e.get("y"))) for e in ET.fromstring(svg).iter(f"{SVG}text")}
    (at_100, *_) = (place for place, c in zip(dots, cells[:5] + cells[6:], strict=True) if c == 100)
    assert at_100 == pytest.approx((marks["100"][0], marks["0.1"][1] - 4), abs=0.2)
    (path,) = places_of(svg, "polyline", COLOURS[0])
    ends = np.array([tuple(map(float, p.split(","))) for p in path["points"].split()])
    slope = np.diff(ends[:, 1]) / np.diff(ends[:, 0])
    np.testing.assert_allclose(
        [slope[0] * (x - ends[0, 0]) + ends[0, 1] for x, _ in dots], [y for _, y in dots], atol=0.3
    )


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0.0, 200.0, False, [0, 100, 200]),
        (0.11, 0.93, False, [0.2, 0.4, 0.6, 0.8]),
        (3.0, 2000.0, True, [10, 100, 1000]),
        (3.0, 60.0, True, [5, 10, 20, 50]),
        (11.0, 19.0, True, [12, 14, 16, 18]),
    ],
)
def test_ticks_are_round(low, high, log, ticks):
    assert Axis(low, high, log, 0, 1).ticks == pytest.approx(ticks)


@pytest.mark.parametrize("values", [(3.0,), (0.0,), (-1.0, 2.0), (1e-9, 1e9), (5.0, 5.0)])
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_has_room_for_all_values(values, log):
    x = axis(values, 0.0, 100.0, log)
    assert all(0 < x.at(v) < 100 for v in values)
    assert len(x.ticks) > 1


def test_the_pictures_are_up_to_date():
    place = ROOT / "docs" / papers.PICTURES
    drawn = {name: text for paper in papers.PAPERS for name, text in papers.pictures(paper).items()}
    assert {path.name for path in place.glob("*.svg")} == set(drawn), "run make docs"
    for name, text in drawn.items():
        assert (place / name).read_text() == text, f"{name}: run make docs"
        assert len(text) < 50_000


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / papers.PICTURES).glob("*.svg")), ids=lambda path: path.stem)
def test_names_of_methods_fit_beside_their_rows(path):
    """Letters are 5.6 pixels wide on average; the lines of two names keep 9 pixels between their feet."""
    panels: dict[tuple[float, float], list[float]] = {}
    for g in ET.fromstring(path.read_text()).iter(f"{SVG}g"):
        for e in g.findall(f"{SVG}text[@class='e']"):
            assert float(e.get("x")) - 5.6 * len(e.text) >= 0, e.text
            panels.setdefault((g.get("transform"), e.get("x")), []).append(float(e.get("y")))
    assert all(abs(b - a) >= 9 for feet in panels.values() for a, b in itertools.pairwise(feet))
