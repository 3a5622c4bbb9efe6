"""The picture of corollary 2's slopes: the squared norm of every run of a grid against the product of its two sides.

Both axes are logarithmic, so that a power law is a straight line: a panel for each setting, a colour for each figure,
with the line whose slope is the figure.
"""

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from docs.axes import COLOURS, axis, below, beside, curve, dot
from docs.svg import LEFT, RIGHT, TITLE, WIDTH, svg, title
from fedloom.reproductions.recording import Points
from fedloom.reproductions.reproduction import Line

HEIGHT, BELOW, ROW = 170, 40, 18  # of a panel, what is below one, and a row of the legend


def slopes(found: Sequence[tuple[Line, Points]]) -> str:
    """An SVG of figures that have the points of a grid."""
    settings: dict[str, list[tuple[Line, Points]]] = {}
    for line, points in found:
        settings.setdefault(line.setting, []).append((line, points))
    methods = list(dict.fromkeys(line.method for line, _ in found))
    head = 8 + ROW * len(methods)
    parts = [
        f'<g transform="translate({WIDTH * i},{head})">{title(setting)}{_panel(of, methods)}</g>'
        for i, (setting, of) in enumerate(settings.items())
    ]
    for i, method in enumerate(methods):
        mark = curve([(0, 0), (20, 0)], i) + dot(10, 0, COLOURS[i])
        parts.append(
            f'<g transform="translate(10,{12 + ROW * i})">{mark}<text x="26" y="4">{escape(method)}</text></g>'
        )
    return svg(parts, WIDTH * len(settings), head + TITLE + HEIGHT + BELOW)


def _panel(found: Sequence[tuple[Line, Points]], methods: list[str]) -> str:
    placed = {line.method: _places(line, points) for line, points in found}
    xs, ys = ([place[i] for of in placed.values() for place in of] for i in (0, 1))
    if not xs:
        return ""
    x, y = axis(xs, LEFT, WIDTH - RIGHT, log=True), axis(ys, TITLE + HEIGHT, TITLE, log=True)
    (grid,) = {(line.grid.x, line.grid.y) for line, _ in found if line.grid is not None}
    drawn = below(x, TITLE + HEIGHT, f"{' times '.join(grid)}; above: the square of {found[0][0].measure.metric}")
    drawn += beside(y)
    for method, of in placed.items():
        i = methods.index(method)
        drawn += "".join(dot(x.at(a), y.at(b), COLOURS[i]) for a, b in of)
        if len(of) > 1:
            log_x, log_y = np.log(np.transpose(of))
            power, start = np.polyfit(log_x, log_y, 1)
            ends = min(a for a, _ in of), max(a for a, _ in of)
            drawn += curve([(x.at(a), y.at(math.exp(start) * a**power)) for a in ends], i)
    return drawn


def _places(line: Line, points: Points) -> list[tuple[float, float]]:
    """The product of the two sides, and the square of the mean norm, of every run without a failed seed."""
    assert line.grid is not None
    sides = [(a, b) for a in line.grid.xs for b in line.grid.ys]
    return [(a * b, v**2) for (a, b), v in zip(sides, points.values, strict=True) if math.isfinite(v)]
