"""A split drawn for a terminal: each client has a row, with a shaded cell for each label and a bar for its size."""

from collections.abc import Mapping
from typing import Any

import numpy as np

ROWS = 25  # clients that are drawn
NAME = 18  # characters of a client's name
BAR = 16  # characters of the longest bar
SHADES = " ░▒▓█"
BOUNDS = (0.0, 0.1, 0.25, 0.5)  # a share above the i-th of these has shade i + 1
EIGHTHS = " ▏▎▍▌▋▊▉█"


def split_text(about: Mapping[str, Any], width: int = 80) -> str:
    """Draw a split.

    Args:
        about: a result's `about`: "sizes" has the number of examples of each client, "labels", if present, how many of
            them have each label, "names", if present, what the clients are called, and "clients" their number.
        width: columns of the terminal.
    """
    if not about.get("sizes"):
        raise ValueError("The task has no examples, so there is no split to draw.")
    sizes, labels = about["sizes"], about.get("labels")
    drawn = min(len(sizes), ROWS)
    names = [_short(str(name)) for name in (about.get("names") or range(drawn))][:drawn]
    side = "<" if about.get("names") else ">"
    number = max(len("client"), *(len(name) for name in names))
    size = max(len("examples"), len(str(max(sizes))))
    bar = max(4, min(BAR, width - number - size - 4 - (0 if labels is None else 12)))
    lines, cells = [], [""] * drawn
    head = ""
    if labels is not None:
        room = max(1, width - number - size - bar - 8)
        shares, head, words = _shares(np.asarray(labels[:drawn], float), room)
        cells = shares
        lines.append(words)
    indent = len(head)
    gap = "  " if labels is not None else ""
    lines.append(f"{'client':{side}{number}}  {head}{gap}{'examples':>{size}}")
    longest = max(max(sizes[:drawn]), 1)
    for k in range(drawn):
        line = f"{names[k]:{side}{number}}  {cells[k]:{indent}}{gap}{sizes[k]:>{size}}  {_bar(sizes[k] / longest, bar)}"
        lines.append(line.rstrip())
    if about["clients"] > drawn:
        lines.append(f"... and {about['clients'] - drawn:,} more clients")
    return "\n".join(lines)


def _short(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def _shares(counts: np.ndarray, room: int) -> tuple[list[str], str, str]:
    """The shaded cells of each client, the labels above them, and the legend."""
    classes = counts.shape[1]
    together = -(-classes // room)  # neighbouring labels that share a column
    starts = np.arange(0, classes, together)
    sums = np.add.reduceat(counts, starts, axis=1)
    shares = sums / np.maximum(sums.sum(1, keepdims=True), 1)
    wide = max(1, min(3, room // len(starts)))  # characters of a column
    shades = np.searchsorted(BOUNDS, shares, side="left")
    cells = ["".join(SHADES[s] * wide for s in row) for row in shades]
    head = "".join(f"{start:<{wide}}" if wide > len(str(classes - 1)) else "" for start in starts)
    key = "  ".join(f"{SHADES[i + 1]} {low}" for i, low in enumerate(("under 10%", "to 25%", "to 50%", "more")))
    what = "label" if together == 1 else f"{together} labels"
    return cells, head or f"labels 0 to {classes - 1}"[:room].ljust(len(cells[0])), f"Share of each {what}: {key}"


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
