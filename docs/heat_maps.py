"""The heat maps of the papers' pages: what all runs of a grid over two step sizes came out as, a panel for each method.

One scale of colours for all panels. Rings: the best step of y for each of x, where it is near the best of all.
"""

import math
import textwrap
from collections.abc import Sequence
from xml.sax.saxutils import escape

from docs.svg import LEFT, TITLE, WIDTH, n, svg, title
from fedloom.reproductions.recording import Points
from fedloom.reproductions.reproduction import Grid, Line

CELL = 22, 14  # pixels
STOPS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))  # of the map viridis
FAILED = "#ddd"
COLUMNS, BELOW = 3, 44


def heat_maps(found: Sequence[tuple[Line, Points]], near: float) -> str:
    """An SVG; near: how far from a method's best a point may be to have a ring."""
    finite = [v for _, points in found for v in points.values if math.isfinite(v)]
    scale = (min(finite), max(finite)) if finite else (0.0, 1.0)
    grids = [line.grid for line, _ in found if line.grid is not None]
    down = TITLE + CELL[1] * max(len(grid.ys) for grid in grids) + BELOW
    panels = [
        _panel(f"{line.method}: {line.setting}", line.grid, of.values, scale, near) for line, of in found if line.grid
    ]
    columns = min(COLUMNS, len(panels))
    placed = [
        f'<g transform="translate({WIDTH * (i % columns)},{24 + down * (i // columns)})">{panel}</g>'
        for i, panel in enumerate(panels)
    ]
    metric = found[0][0].measure.words
    return svg([_legend(scale, metric), *placed], WIDTH * columns, 24 + down * math.ceil(len(panels) / columns))


def colour(value: float, scale: tuple[float, float]) -> str:
    """Between the smallest value of all, which is dark, and the largest."""
    if not math.isfinite(value):
        return FAILED
    low, high = scale
    place = (len(STOPS) - 1) * ((value - low) / (high - low) if high > low else 1.0)
    i = min(int(place), len(STOPS) - 2)
    mixed = (round(a + (place - i) * (b - a)) for a, b in zip(STOPS[i], STOPS[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def best_of_columns(values: Sequence[float], grid: Grid, near: float) -> list[tuple[int, int]]:
    """The places (of x, of y) of the best y for each x, if it is within `near` of the best of all."""
    rows = len(grid.ys)
    finite = [v if math.isfinite(v) else -math.inf for v in values]
    columns = [finite[rows * i : rows * (i + 1)] for i in range(len(grid.xs))]
    return [(i, of.index(max(of))) for i, of in enumerate(columns) if max(of) >= max(finite) - near > -math.inf]


def _panel(words: str, grid: Grid, values: Sequence[float], scale: tuple[float, float], near: float) -> str:
    wide, tall = CELL
    rows = len(grid.ys)
    bottom = TITLE + tall * rows

    def corner(i: int, j: int) -> tuple[float, float]:
        return LEFT + wide * i, bottom - tall * (j + 1)

    cells = ""
    for place, value in enumerate(values):
        x, y = corner(place // rows, place % rows)
        cells += f'<path d="M{n(x)} {n(y)}h{wide}v{tall}h-{wide}z" fill="{colour(value, scale)}"/>'
    for i, j in best_of_columns(values, grid, near):
        x, y = corner(i, j)
        cells += f'<circle cx="{n(x + wide / 2)}" cy="{n(y + tall / 2)}" r="4" fill="none" stroke="#d00"/>'
    for i, v in enumerate(grid.xs):
        if i % 2 == 0:
            cells += f'<text class="m" x="{n(LEFT + wide * (i + 0.5))}" y="{bottom + 14}">{v:.2g}</text>'
    for j, v in enumerate(grid.ys):
        if j % 2 == 0:
            cells += f'<text class="e" x="{LEFT - 6}" y="{n(bottom - tall * j - 3)}">{v:.2g}</text>'
    middle = LEFT + wide * len(grid.xs) / 2
    cells += f'<text class="m" x="{n(middle)}" y="{bottom + 28}">{escape(grid.x)}</text>'
    for i, of in enumerate(reversed(textwrap.wrap(grid.y, 12))):
        cells += f'<text class="e" x="{LEFT - 6}" y="{TITLE - 6 - 11 * i}">{escape(of)}</text>'
    return title(words, 32) + cells  # which leaves the words beside it alone


def _legend(scale: tuple[float, float], words: str) -> str:
    low, high = scale
    steps = [low + (high - low) * i / 4 for i in range(5)]
    drawn = f'<text x="10" y="16">{escape(words)}: {low:.3g}</text>'
    start = 10 + 6.2 * len(f"{words}: {low:.3g}") + 8
    for i, v in enumerate(steps):
        drawn += f'<path d="M{n(start + 20 * i)} 6h20v12h-20z" fill="{colour(v, scale)}"/>'
    rings = '<tspan fill="#d00">ring</tspan>: the best of a column, if it is near the best of all'
    return drawn + f'<text x="{n(start + 106)}" y="16">{high:.3g}; grey: a seed diverged; {rings}</text>'
