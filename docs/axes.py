"""What pictures with axes have in common: from values to pixels, axes with their names, and marks."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from docs.svg import LEFT, WIDTH, n

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d1f", "#56b4e9", "#555555")
OURS, PAPER = COLOURS[:2]


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


def below(x: Axis, y: float, words: str, marked: bool = True) -> str:
    """A horizontal axis with its name; without marks where nothing has a place on it."""
    places = x.ticks if marked else []
    ticks = "".join(f"M{n(x.at(t))} {y}v4" for t in places)
    drawn = f'<path class="a" d="M{x.start:g} {y}H{x.end:g}{ticks}"/>'
    drawn += "".join(f'<text class="m" x="{n(x.at(t))}" y="{y + 15}">{t:g}</text>' for t in places)
    middle = min((x.start + x.end) / 2, WIDTH - 3 * len(words))  # a letter is about 6 pixels wide
    return drawn + f'<text class="m" x="{middle:g}" y="{y + 29}">{escape(words)}</text>'


def beside(y: Axis) -> str:
    """A vertical axis."""
    ticks = "".join(f"M{LEFT} {n(y.at(t))}h-4" for t in y.ticks)
    drawn = f'<path class="a" d="M{LEFT} {y.start:g}V{y.end:g}{ticks}"/>'
    return drawn + "".join(f'<text class="e" x="{LEFT - 7}" y="{n(y.at(t) + 4)}">{t:g}</text>' for t in y.ticks)


def curve(points: Iterable[tuple[float, float]], i: int) -> str:
    """The i-th method's."""
    dashes = ("", ' stroke-dasharray="5 3"', ' stroke-dasharray="1 3"')[i // len(COLOURS) % 3]
    where = " ".join(f"{n(x)},{n(y)}" for x, y in points)
    return f'<polyline class="c" stroke="{COLOURS[i % len(COLOURS)]}"{dashes} points="{where}"/>'


def dot(x: float, y: float, colour: str = OURS) -> str:
    return f'<circle cx="{n(x)}" cy="{n(y)}" r="2.5" fill="{colour}" fill-opacity=".5"/>'


def bar(x: float, y: float) -> str:
    return f'<path d="M{n(x)} {n(y - 6)}v12" stroke="{OURS}" stroke-width="2"/>'


def arrow(x: float, y: float) -> str:
    return f'<path d="M{n(x)} {n(y - 4)}l8 4-8 4z" fill="{OURS}"/>'


def diamond(x: float, y: float, colour: str) -> str:
    return f'<path d="M{n(x)} {n(y - 5)}l5 5-5 5-5-5z" fill="none" stroke="{colour}" stroke-width="1.5"/>'
