"""What all pictures share: how they become files, and how text gets into them unharmed."""

import io
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that shows itself in a notebook, whether or not pyplot was imported."""

    def _repr_png_(self) -> bytes:
        return content(self, "png")


def content(figure: Figure, kind: str) -> bytes:
    """The figure as a PNG or SVG file; equal figures give equal files."""
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "fedloom", "svg.fonttype": "none"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=160, bbox_inches="tight", facecolor="white", metadata=metadata)
    return file.getvalue()


def words(text: str) -> str:
    """Escape what Matplotlib treats specially: dollar signs, and labels that start with an underscore."""
    return text.replace("$", r"\$") if not text.startswith("_") else " " + text.replace("$", r"\$")


def plotly_words(text: str) -> str:
    """Escape the HTML that Plotly would interpret in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near to the wanted ones as possible, at least `gap` apart, and between the ends if there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [0.0] * len(wanted)
    top = low - gap
    for i in order:
        top = places[i] = max(wanted[i], top + gap)
    limit = high + gap
    for i in reversed(order):
        limit = places[i] = min(places[i], limit - gap)
    return places
