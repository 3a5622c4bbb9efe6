"""What the pictures of the papers' pages have in common: SVG without a library.

A plotting library's files are ten times as large and change with its version.
"""

import textwrap
from collections.abc import Iterable
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TITLE = 300, 92, 14, 34  # of a panel, in pixels
STYLE = (
    "text{font:11px sans-serif;fill:#333}.m{text-anchor:middle}.e{text-anchor:end}"
    ".a{stroke:#999;fill:none}.c{fill:none;stroke-width:1.5}"
)


def svg(parts: Iterable[str], width: int, height: int) -> str:
    """A whole picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def title(words: str, width: int = 38) -> str:
    """The heading of a panel, in lines of so many characters."""
    lines = textwrap.wrap(words, width)
    return "".join(
        f'<text class="m" x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{TITLE - 8 - 12 * (len(lines) - 1 - i)}">'
        f"{escape(line)}</text>"
        for i, line in enumerate(lines)
    )


def n(pixel: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{round(pixel, 1):g}"
