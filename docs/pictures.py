"""The pictures of the papers' pages: what was recorded of a reproduction, with the numbers that its paper prints.

Curves, or figures of all seeds; grids are in heat_maps.py and slopes.py.
"""

import itertools
import math
import textwrap
from xml.sax.saxutils import escape

from docs.axes import COLOURS, PAPER, Axis, arrow, axis, bar, below, beside, curve, diamond, dot
from docs.heat_maps import heat_maps
from docs.slopes import slopes
from docs.svg import LEFT, RIGHT, TITLE, WIDTH, n, svg, title
from fedloom.reproductions import Reproduction
from fedloom.reproductions.fedopt import NEAR
from fedloom.reproductions.recording import Recorded
from fedloom.reproductions.reproduction import Line
from fedloom.reproductions.spread import Spread

COLUMNS, BELOW = 3, 40  # panels in a row; pixels below one
ROW, CURVE = 18, 130  # the least height of a method's row, and that of a panel of curves
LABEL, LINE = 15, 11  # letters that fit beside a row, and the height of a line of them
ENTRY = 150  # the width of a legend's entry


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
        return heat_maps(grids, NEAR) if all(line.combined is None for line, _ in grids) else slopes(grids)
    ends = all(len(line.runs) == 1 and line.measure.target is None for line in measured)
    curves = ends and any(line.runs[0] in kept.curves for line in measured)  # a run that diverged has none
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


def _curves(lines: list[Line], methods: list[str], kept: Recorded) -> str:
    """A curve for each method, with how many seeds it is of, if some diverged; the paper's number is a diamond."""
    there = [line for line in lines if line.measure.metric in kept.curves.get(line.runs[0], {})]
    found = {line: kept.curves[line.runs[0]][line.measure.metric] for line in there}
    errors = all("accuracy" in line.measure.metric for line in lines)  # whose differences show where they are small

    def drawn_as(value: float) -> float:
        return 1 - value if errors else value

    points = {
        line: [(t, drawn_as(v)) for t, v in zip(c.rounds, c.values, strict=True) if math.isfinite(v)]
        for line, c in found.items()
    }
    metrics = dict.fromkeys("1 - " * errors + line.measure.metric for line in lines)
    ends = {line: drawn_as(number / line.measure.scale) for line, number in _printed(lines).items()}
    values = [v for of in points.values() for _, v in of] + list(ends.values())
    rounds = [t for c in found.values() for t in c.rounds]
    if not values:
        return ""
    x = Axis(0, max(1, *rounds), False, LEFT, WIDTH - RIGHT)
    y = axis(values, TITLE + CURVE, TITLE, errors or "loss" in lines[0].measure.metric)
    drawn = below(x, TITLE + CURVE, f"{' and '.join(metrics)}, by round") + beside(y)
    for line, of in points.items():
        drawn += curve([(x.at(t), y.at(v)) for t, v in of], methods.index(line.method))
    for line, end in ends.items():
        drawn += diamond(x.end, y.at(end), COLOURS[methods.index(line.method) % len(COLOURS)])
    seeds = {line: (len(c.seeds), len(kept.values[line.setting, line.method])) for line, c in found.items()}
    fewer = [f"{line.method}: {some} of {all_} seeds" for line, (some, all_) in seeds.items() if some < all_]
    for i, words in enumerate(fewer):
        drawn += f'<text class="e" x="{x.end:g}" y="{TITLE + CURVE // 2 + 11 * i}">{escape(words)}</text>'
    return drawn


def _figures(lines: list[Line], kept: Recorded) -> str:
    """A row for each method: a dot for each seed, a bar for their mean, an arrow if any has no number; the paper's."""
    spreads = {line: Spread(tuple(kept.values[line.setting, line.method].values())) for line in lines}
    values = [float(v) for spread in spreads.values() for v in spread.finite]
    printed = _printed(lines)
    values += printed.values()
    x = axis(values or [0.0], LEFT, WIDTH - RIGHT, bool(values) and max(values) > 3 * min(values) > 0)
    ends = list(itertools.accumulate(map(_row, lines), initial=TITLE))
    computed = "from " * (lines[0].combined is not None)
    drawn = below(x, ends[-1], computed + lines[0].measure.words, marked=bool(values))
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
    entries = [(curve([(0, 0), (20, 0)], i), method) for i, method in enumerate(methods)]
    return entries + [(diamond(10, 0, "#333"), "the paper")] * bool(_printed(lines))


def _legend_of_figures(lines: list[Line], kept: Recorded) -> list[tuple[str, str]]:
    entries = [(dot(10, 0), "ours, a seed"), (bar(10, 0), "ours, the mean")]
    for words in dict.fromkeys(
        line.failed for line in lines if not all(map(math.isfinite, kept.values[line.setting, line.method].values()))
    ):
        entries.append((arrow(14, 0), f"a seed: {words}"))
    return entries + [(diamond(10, 0, PAPER), "the paper")] * bool(_printed(lines))
