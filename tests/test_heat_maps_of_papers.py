"""The heat maps of the papers' pages: every run has a cell, and the best of each column a ring."""

import math
import re
import xml.etree.ElementTree as ET

from docs.heat_maps import FAILED, STOPS, best_of_columns, colour, heat_maps
from fedloom.reproductions import find
from fedloom.reproductions.recording import Points
from fedloom.reproductions.reproduction import Grid

GRID = Grid("client's", (0.1, 1.0), "server's", (0.01, 0.1, 1.0))
NAN = math.nan


def test_the_best_of_a_column_has_to_be_near_the_best_of_all():
    values = [0.1, 0.9, 0.2, 0.88, 0.3, NAN]  # 0.1: three server steps, then 1.0
    assert best_of_columns(values, GRID, 0.05) == [(0, 1), (1, 0)]
    assert best_of_columns(values, GRID, 0.01) == [(0, 1)]
    assert best_of_columns([NAN] * 6, GRID, 0.05) == []


def test_colours_go_from_the_first_to_the_last():
    ends = ["#" + "".join(f"{part:02x}" for part in STOPS[i]) for i in (0, 2, -1)]
    assert [colour(v, (0.0, 1.0)) for v in (0.0, 0.5, 1.0)] == ends
    assert colour(NAN, (0.0, 1.0)) == FAILED
    assert colour(0.3, (0.3, 0.3)) == ends[-1]  # all alike


def test_every_run_of_every_method_has_a_cell():
    lines = [line for line in find("fedopt-figure2-digits").lines if line.grid is not None]
    assert [len(line.runs) for line in lines] == [72] * 11
    found = [(line, Points(tuple(i / 72 for i in range(72)), (0, 1, 2))) for line in lines]
    svg = heat_maps(found, 0.05)
    ET.fromstring(svg)
    assert len(re.findall(r"h22v14h-22z", svg)) == 11 * 72
    rings = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)]
    # Only the last column is near the best, and there the largest server step, at the top.
    assert rings == [(92 + 22 * 7.5, 34 + 7)] * 11
    for line in lines:
        assert f">{line.method}: {line.setting}</text>" in svg


def test_cells_are_in_the_order_of_the_runs():
    """By the names of the runs: their client's step goes with x, the server's with y."""
    (line, *_) = (line for line in find("fedopt-figure2-digits").lines if line.grid is not None)
    steps = [(x, y) for x in line.grid.xs for y in line.grid.ys]
    assert [f"{line.method}, {x:.2g}, {y:.2g}" for x, y in steps] == list(line.runs)
