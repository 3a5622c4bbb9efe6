"""Heat maps: a metric over two hyperparameters, for papers and for a report's page."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedloom.report.drawing import Picture, plotly_words, words

ANNOTATED = 100  # a heat map with more cells has no numbers in them
FRAME = "#D55E00"  # of the best cell


def _grid(xs: Sequence[float], ys: Sequence[float], values: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both axes in increasing order; values[i, j] is for ys[i] and xs[j]."""
    x, y, z = np.asarray(xs, float), np.asarray(ys, float), np.asarray(values, float)
    if z.shape != (len(y), len(x)):
        raise ValueError(f"values must have a row for each of ys and a column for each of xs, {(len(y), len(x))}; "
                         f"got {z.shape}.")  # fmt: skip
    z = np.where(np.isfinite(z), z, np.nan)
    return np.sort(x), np.sort(y), z[np.argsort(y)][:, np.argsort(x)]


def _ticks(values: np.ndarray) -> list[str]:
    """The values as text, with as few digits as tell them apart."""
    for digits in range(2, 17):
        found = [f"{v:.{digits}g}" for v in values]
        if len(set(found)) == len(set(values)):
            break
    return [f"{float(v):g}" if len(v) < 8 else v for v in found]


def _wide(z: np.ndarray) -> bool:
    """Whether the values span a decade: then the colours show their logarithms."""
    found = z[np.isfinite(z)]
    return bool(len(found) and found.min() > 0 and found.max() / found.min() >= 10)


def _best(z: np.ndarray, larger_is_better: bool) -> tuple[int, int] | None:
    if np.all(np.isnan(z)):
        return None
    at = int(np.nanargmax(z) if larger_is_better else np.nanargmin(z))
    return at // z.shape[1], at % z.shape[1]


def _hint(best: tuple[int, int] | None, shape: tuple[int, ...], y_label: str, x_label: str) -> str:
    """What to do if the best may lie beyond the grid."""
    pairs = [] if best is None else zip(best, shape, (y_label, x_label), strict=True)
    return at_the_edge([label for i, length, label in pairs if length > 1 and i in (0, length - 1)][::-1])


def at_the_edge(fields: Sequence[str]) -> str:
    """A sentence on the fields of which the best value is the first or the last; empty if there are none."""
    return f"The best lies at the edge of {' and '.join(fields)}: extend the grid." if fields else ""


def heat_map(
    xs: Sequence[float],
    ys: Sequence[float],
    values: Any,
    x_label: str,
    y_label: str,
    title: str,
    *,
    larger_is_better: bool = True,
) -> Figure:
    """A metric over two hyperparameters, as in FedOpt's figure 2: one row for each y; nan means that a run diverged.

    The best cell has a frame, and those that diverged are hatched.
    """
    x, y, z = _grid(xs, ys, values)
    figure = Picture(figsize=(2.2 + 0.62 * len(x), 1.6 + 0.5 * len(y)), layout="constrained")
    axes = figure.subplots()
    colours = "viridis" if larger_is_better else "viridis_r"
    norm = "log" if _wide(z) else "linear"
    image = axes.imshow(np.ma.masked_invalid(z), origin="lower", aspect="auto", cmap=colours, norm=norm)
    for i, j in np.argwhere(np.isnan(z)):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="#eeeeee", edgecolor="#aaaaaa", hatch="///", lw=0))
    if z.size <= ANNOTATED:
        for i, j in np.argwhere(np.isfinite(z)):
            red, green, blue, _ = image.cmap(image.norm(z[i, j]))
            ink = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
            axes.text(j, i, f"{z[i, j]:.3g}", ha="center", va="center", fontsize=8, color=ink)
    if (best := _best(z, larger_is_better)) is not None:
        axes.add_patch(Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor=FRAME, lw=2.5))
        figure.colorbar(image, ax=axes)
    axes.set_xticks(range(len(x)), _ticks(x))
    axes.set_yticks(range(len(y)), _ticks(y))
    axes.set(xlabel=words(x_label), ylabel=words(y_label))
    hint = _hint(best, z.shape, y_label, x_label)
    axes.set_title(words(title), loc="left", fontsize=11)
    if hint:
        figure.supxlabel(words(hint), fontsize=8, x=0.01, ha="left")
    return figure


def heat_map_plotly(
    xs: Sequence[float],
    ys: Sequence[float],
    values: Any,
    x_label: str,
    y_label: str,
    title: str,
    *,
    larger_is_better: bool = True,
) -> dict[str, Any]:
    """The same heat map as data for Plotly, for a report's page."""
    x, y, z = _grid(xs, ys, values)
    lost = {
        "type": "heatmap",
        "z": [[1 if np.isnan(v) else None for v in row] for row in z],
        "text": [["\N{MULTIPLICATION SIGN}" if np.isnan(v) else "" for v in row] for row in z],
        "texttemplate": "%{text}",
        "hovertemplate": "diverged<extra></extra>",
        "colorscale": [[0, "#9a9a9a"], [1, "#9a9a9a"]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    best, shapes = _best(z, larger_is_better), []
    if best is not None:
        i, j = best
        corners = {"x0": j - 0.5, "x1": j + 0.5, "y0": i - 0.5, "y1": i + 0.5}
        shapes.append({"type": "rect", **corners, "line": {"color": FRAME, "width": 3}})
    shade = np.log10(z) if _wide(z) else z
    trace = {
        "type": "heatmap",
        "z": [[None if np.isnan(v) else float(v) for v in row] for row in shade],
        "customdata": [
            [[f"{a:g}", f"{b:g}", f"{v:.4g}"] for a, v in zip(x, row, strict=True)] for b, row in zip(y, z, strict=True)
        ],
        "hovertemplate": f"{plotly_words(x_label)} %{{customdata[0]}}<br>{plotly_words(y_label)} %{{customdata[1]}}<br>"
        "<b>%{customdata[2]}</b><extra></extra>",
        "colorbar": {"title": {"text": "log10"}} if _wide(z) else {},
        "hoverongaps": False,
        "colorscale": "Viridis",
        "reversescale": not larger_is_better,
        "xgap": 1,
        "ygap": 1,
    }
    if z.size <= ANNOTATED:
        trace |= {"text": [[f"{v:.3g}" for v in row] for row in z], "texttemplate": "%{text}"}
    hint = _hint(best, z.shape, y_label, x_label)
    hint = f"<br><span style='font-size:12px'>{plotly_words(hint)}</span>" if hint else ""
    return {
        "data": [trace, lost],
        "layout": {
            "title": {"text": plotly_words(title) + hint, "x": 0, "xanchor": "left"},
            "height": 200 + 46 * len(y),
            "margin": {"t": 70 if hint else 40},
            "xaxis": {"title": {"text": plotly_words(x_label)}, "tickvals": list(range(len(x))), "ticktext": _ticks(x)},
            "yaxis": {"title": {"text": plotly_words(y_label)}, "tickvals": list(range(len(y))), "ticktext": _ticks(y)},
            "shapes": shapes,
        },
    }
