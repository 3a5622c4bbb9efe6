"""Tables as plain text."""

from collections.abc import Iterable, Sequence


def columns(lines: Iterable[Sequence[str]]) -> str:
    """Lines of cells, in columns as wide as they need to be."""
    rows = [list(line) for line in lines]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
