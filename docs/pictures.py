"""The pictures of the papers' pages: what was recorded of a reproduction, with the numbers that its paper prints.

Curves, or figures of all seeds; heat maps are in heat_maps.py.
"""

import itertools
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from docs.heat_maps import heat_maps
from docs.svg import LEFT, RIGHT, TITLE, WIDTH, n, svg, title
from fedloom.reproductions import Reproduction
from fedloom.reproductions.fedopt import NEAR
from fedloom.reproductions.recording import Recorded
from fedloom.reproductions.reproduction import Line
from fedloom.reproductions.spread import Spread

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d1f", "#56b4e9", "#555555")
OURS, PAPER = COLOURS[:2]
COLUMNS, BELOW = 3, 40  # panels in a row; pixels below one
ROW, CURVE = 18, 130  # the least height of a method's row, and that of a panel of curves
LABEL, LINE = 15, 11  # letters that fit beside a row, and the height of a line of them
ENTRY = 150  # the width of a legend's entry


class Axis(NamedTuple):
    """From values to pixels."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high, v = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (v - low) / (high - low)

    @property
    def ticks(self) -> list[float]:
        """Two to six round values."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1) if self.log else ()
        for multiples in ((1,), (1, 2, 5)):
            found = [m * 10.0**k for k in decades for m in multiples if self.low <= m * 10.0**k <= self.high]
            if len(found) > 1:
                return found
        size = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
        for step in (size, 2 * size, 5 * size):
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            if last - first < 5:
                break
        return [i * step for i in range(first, last + 1)]


def axis(values: Sequence[float], start: float, end: float, log: bool) -> Axis:
    """Wide enough for all values, with some room at both ends."""
    low, high = min(values), max(values)
    if log and low > 0:
        room = max((high / low) ** 0.06, 1.03)
        return Axis(low / room, high * room, True, start, end)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return Axis(low - room, high + room, False, start, end)


def picture(r: Reproduction, kept: Recorded) -> str:
    """An SVG: curves, if every figure is the end of one, and otherwise the figures of all seeds."""
    settings: dict[str, list[Line]] = {}
    for line in r.lines:
        if (line.setting, line.method) in kept.values:
            settings.setdefault(line.setting, []).append(line)
    measured = [line for lines in settings.values() for line in lines]
    points = ((line, kept.points.get((line.setting, line.method))) for line in measured)
    grids = [(line, of) for line, of in points if of is not None]
    if grids:
        return heat_maps(grids, NEAR)
    curves = all(line.measure.target is None and _has_curve(line, kept) for line in measured)
    methods = list(dict.fromkeys(line.method for line in measured))
    height = CURVE if curves else max(sum(map(_row, lines)) for lines in settings.values())
    legend = _legend_of_curves(measured, methods) if curves else _legend_of_figures(measured, kept)
    columns = min(COLUMNS, len(settings))
    head, down = 8 + ROW * math.ceil(len(legend) / (2 * columns)), TITLE + height + BELOW
    parts = [
        f'<g transform="translate({WIDTH * (i % columns)},{head + down * (i // columns)})">'
        + title(setting)
        + (_curves(lines, methods, kept) if curves else _figures(lines, kept))
        + "</g>"
        for i, (setting, lines) in enumerate(settings.items())
    ]
    for i, (mark, words) in enumerate(legend):
        place = f"translate({10 + ENTRY * (i % (2 * columns))},{12 + ROW * (i // (2 * columns))})"
        parts.append(f'<g transform="{place}">{mark}<text x="26" y="4">{escape(words)}</text></g>')
    return svg(parts, WIDTH * columns, head + down * math.ceil(len(settings) / columns))


def _has_curve(line: Line, kept: Recorded) -> bool:
    return len(line.runs) == 1 and line.measure.metric in kept.curves.get(line.runs[0], {})


def _curves(lines: list[Line], methods: list[str], kept: Recorded) -> str:
    """A curve for each method; what the paper prints is a diamond at the end."""
    found = {line: kept.curves[line.runs[0]][line.measure.metric] for line in lines}
    points = {
        line: [(t, v) for t, v in zip(c.rounds, c.values, strict=True) if math.isfinite(v)] for line, c in found.items()
    }
    metrics = dict.fromkeys(line.measure.metric for line in lines)
    ends = {line: number / line.measure.scale for line, number in _printed(lines).items()}
    values = [v for of in points.values() for _, v in of] + list(ends.values())
    rounds = [t for c in found.values() for t in c.rounds]
    if not values:
        return ""
    x = Axis(0, max(1, *rounds), False, LEFT, WIDTH - RIGHT)
    y = axis(values, TITLE + CURVE, TITLE, "loss" in lines[0].measure.metric)
    drawn = _below(x, TITLE + CURVE, f"{' and '.join(metrics)}, by round") + _beside(y)
    for line, of in points.items():
        drawn += _curve([(x.at(t), y.at(v)) for t, v in of], methods.index(line.method))
    for line, end in ends.items():
        drawn += diamond(x.end, y.at(end), COLOURS[methods.index(line.method) % len(COLOURS)])
    return drawn


def _figures(lines: list[Line], kept: Recorded) -> str:
    """A row for each method: a dot for each seed, a bar for their mean, an arrow if any has no number; the paper's."""
    spreads = {line: Spread(tuple(kept.values[line.setting, line.method].values())) for line in lines}
    values = [float(v) for spread in spreads.values() for v in spread.finite]
    printed = _printed(lines)
    values += printed.values()
    x = axis(values or [0.0, 1.0], LEFT, WIDTH - RIGHT, bool(values) and max(values) > 3 * min(values) > 0)
    ends = list(itertools.accumulate(map(_row, lines), initial=TITLE))
    computed = "from " * (lines[0].combined is not None)
    drawn = _below(x, ends[-1], computed + lines[0].measure.words)
    for line, *row in zip(lines, ends, ends[1:], strict=False):
        y = sum(row) / 2
        drawn += _label(line.method, y)
        spread = spreads[line]
        drawn += "".join(dot(x.at(float(v)), y) for v in spread.finite)
        if len(spread.finite):
            drawn += bar(x.at(spread.mean), y)
        if len(spread.finite) < len(spread.values):
            drawn += arrow(WIDTH - RIGHT, y)
        if line in printed:
            drawn += diamond(x.at(printed[line]), y, PAPER)
    return drawn


def _row(line: Line) -> int:
    """The height of a method's row: a long name has several lines."""
    return max(ROW, LINE * len(textwrap.wrap(line.method, LABEL)) + 4)


def _label(words: str, y: float) -> str:
    """At the left of a row, in lines that fit there."""
    lines = textwrap.wrap(words, LABEL)
    first = y + 4 - LINE * (len(lines) - 1) / 2
    at = enumerate(lines)
    return "".join(f'<text class="e" x="{LEFT - 8}" y="{n(first + LINE * i)}">{escape(of)}</text>' for i, of in at)


def _printed(lines: list[Line]) -> dict[Line, float]:
    """The paper's numbers."""
    return {line: line.reported for line in lines if line.reported is not None and math.isfinite(line.reported)}


def _legend_of_curves(lines: list[Line], methods: list[str]) -> list[tuple[str, str]]:
    entries = [(_curve([(0, 0), (20, 0)], i), method) for i, method in enumerate(methods)]
    return entries + [(diamond(10, 0, "#333"), "the paper")] * bool(_printed(lines))


def _legend_of_figures(lines: list[Line], kept: Recorded) -> list[tuple[str, str]]:
    entries = [(dot(10, 0), "ours, a seed"), (bar(10, 0), "ours, the mean")]
    for words in dict.fromkeys(
        line.measure.failed
        for line in lines
        if not all(map(math.isfinite, kept.values[line.setting, line.method].values()))
    ):
        entries.append((arrow(14, 0), f"seeds {words}"))
    return entries + [(diamond(10, 0, PAPER), "the paper")] * bool(_printed(lines))


def _below(x: Axis, y: float, words: str) -> str:
    """A horizontal axis with its name."""
    ticks = "".join(f"M{n(x.at(t))} {y}v4" for t in x.ticks)
    drawn = f'<path class="a" d="M{x.start:g} {y}H{x.end:g}{ticks}"/>'
    drawn += "".join(f'<text class="m" x="{n(x.at(t))}" y="{y + 15}">{t:g}</text>' for t in x.ticks)
    middle = min((x.start + x.end) / 2, WIDTH - 3 * len(words))  # a letter is about 6 pixels wide
    return drawn + f'<text class="m" x="{middle:g}" y="{y + 29}">{escape(words)}</text>'


def _beside(y: Axis) -> str:
    """A vertical axis."""
    ticks = "".join(f"M{LEFT} {n(y.at(t))}h-4" for t in y.ticks)
    drawn = f'<path class="a" d="M{LEFT} {y.start:g}V{y.end:g}{ticks}"/>'
    return drawn + "".join(f'<text class="e" x="{LEFT - 7}" y="{n(y.at(t) + 4)}">{t:g}</text>' for t in y.ticks)


def _curve(points: Iterable[tuple[float, float]], i: int) -> str:
    """The i-th method's."""
    dashes = ("", ' stroke-dasharray="5 3"', ' stroke-dasharray="1 3"')[i // len(COLOURS) % 3]
    where = " ".join(f"{n(x)},{n(y)}" for x, y in points)
    return f'<polyline class="c" stroke="{COLOURS[i % len(COLOURS)]}"{dashes} points="{where}"/>'


def dot(x: float, y: float) -> str:
    return f'<circle cx="{n(x)}" cy="{n(y)}" r="2.5" fill="{OURS}" fill-opacity=".5"/>'


def bar(x: float, y: float) -> str:
    return f'<path d="M{n(x)} {n(y - 6)}v12" stroke="{OURS}" stroke-width="2"/>'


def arrow(x: float, y: float) -> str:
    return f'<path d="M{n(x)} {n(y - 4)}l8 4-8 4z" fill="{OURS}"/>'


def diamond(x: float, y: float, colour: str) -> str:
    return f'<path d="M{n(x)} {n(y - 5)}l5 5-5 5-5-5z" fill="none" stroke="{colour}" stroke-width="1.5"/>'
