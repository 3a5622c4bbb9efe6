"""Figures for papers and notebooks: curves, heat maps and the picture of a split. They do not use pyplot."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, MaxNLocator

from fedloom.evidence.targets import target
from fedloom.experiments.study import Study
from fedloom.hyperparameters import nearest
from fedloom.report.series import (
    AXES,
    AXIS_LABELS,
    BANDWIDTH,
    COLOURS,
    DASHES,
    EARLY,
    MOST,
    axes_of,
    by_name,
    by_task,
    metrics,
    series,
)
from fedloom.report.standings import rows

DASHED = {"solid": "-", "dash": "--", "dot": ":"}
ANNOTATED = 100  # a heat map with more cells has no numbers in them


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


def styles(study: Study) -> dict[str, tuple[str, str]]:
    """Colour and dash of each method, the same in every figure of a study. Of many methods, the best are distinct."""
    names = list(by_name(study.results))
    if len(names) > MOST:
        names = list(dict.fromkeys(row.name for row in rows(study)))
    return {n: (COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]) for i, n in enumerate(names)}


def curves(
    study: Study, metric: str | None = None, x: str = "rounds", task: str | None = None, bandwidth: float = BANDWIDTH
) -> Figure:
    """A metric of every method: the mean over seeds as a line, their range as a band, a cross where one diverged.

    Args:
        study: the results.
        metric: the metric to draw; the target's if not given.
        x: "rounds", "exchanges", "models", "bytes", "time", or "clock" if all have simulated time.
        task: one of the study's tasks; the first if not given.
        bandwidth: MB/s of each client, for x = "time".
    """
    tasks = by_task(study)
    if not tasks:
        raise ValueError("The study has no results to draw.")
    task = next(iter(tasks)) if task is None else task
    if task not in tasks:
        raise ValueError(f"task: the study has no {task!r}.{nearest(task, tasks)}")
    if x not in AXES:
        raise ValueError(f"x: there is no axis {x!r}.{nearest(x, AXES)}")
    if x not in axes_of(tasks[task]):
        raise ValueError("x: some of these runs have no simulated time; give them a system, or use x = 'rounds'.")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be a positive number of MB/s, got {bandwidth!r}.")
    known = metrics(tasks[task])
    goal = target(study, task)
    metric = goal.metric if metric is None else metric
    if known and metric not in known:
        raise ValueError(f"metric: task {task!r} has no {metric!r}.{nearest(metric, known)}")

    figure = Picture(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    scale = 1 / (bandwidth * 1e6) if x == "time" else 1.0
    order = [row.name for row in rows(study, task)]
    looks, seeds = styles(study), by_name(tasks[task])
    limits: list[float] = []
    crosses: list[tuple[float, float, str]] = []
    for name in order[:MOST]:
        found = series(name, seeds[name])
        if metric not in found.metrics:
            continue
        band, at = found.metrics[metric], found.axes[x] * scale
        colour, dash = looks[name]
        axes.plot(at, band.mean, color=colour, linestyle=DASHED[dash], linewidth=1.8, label=_words(name))
        if found.seeds > 1:
            axes.fill_between(at, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
        crosses += [(mark[x] * scale, mark[metric], colour) for mark in found.diverged]
        by = "clock" if x == "clock" else "rounds"
        late = found.axes[by] >= EARLY * max(r.rows[-1].get(AXES[by], 0) for r in tasks[task] if r.rows)
        if not found.diverged:
            limits += [v for v in (*band.low[late], *band.high[late]) if math.isfinite(v)]
    if metric == goal.metric and math.isfinite(goal.value):
        axes.axhline(goal.value, color="#555555", linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"target {goal.value:.4g}", (1, goal.value), (-4, 3), ha="right", va="bottom", color="#555555", fontsize=9,
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
        limits.append(goal.value)
    if limits:  # neither divergence nor the start may hide the differences
        room = 0.05 * (max(limits) - min(limits)) or 1.0
        axes.set_ylim(min(limits) - room, max(limits) + room)
    for at_x, at_y, colour in crosses:  # at the edge, if it lies beyond
        inside = np.clip(at_y, *axes.get_ylim()) if limits else at_y
        axes.plot(at_x, inside, "x", color=colour, markersize=9, markeredgewidth=2.5, clip_on=False)
    axes.set_xlabel(AXIS_LABELS[x].format(bandwidth=bandwidth))
    axes.set_ylabel(_words(metric))
    some = f" (the first {MOST} of {len(order)} in the table)" if len(order) > MOST else ""
    axes.set_title(_words(task) + some, loc="left", fontsize=11)
    if x == "bytes":
        axes.xaxis.set_major_formatter(EngFormatter("B"))
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def _words(words: str) -> str:
    """Escape what Matplotlib treats specially: dollar signs, and labels that start with an underscore."""
    return words.replace("$", r"\$") if not words.startswith("_") else " " + words.replace("$", r"\$")


def _grid(xs: Sequence[float], ys: Sequence[float], values: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both axes in increasing order; values[i, j] is for ys[i] and xs[j]."""
    x, y, z = np.asarray(xs, float), np.asarray(ys, float), np.asarray(values, float)
    if z.shape != (len(y), len(x)):
        raise ValueError(f"values must have a row for each of ys and a column for each of xs, {(len(y), len(x))}; "
                         f"got {z.shape}.")  # fmt: skip
    z = np.where(np.isfinite(z), z, np.nan)
    return np.sort(x), np.sort(y), z[np.argsort(y)][:, np.argsort(x)]


def _ticks(values: np.ndarray, label: str) -> tuple[list[str], str]:
    """The text of the ticks and the label: logarithms, if the values span a decade, as learning rates do."""
    if np.all(values > 0) and len(values) > 1 and values.max() / values.min() >= 10:
        return [f"{v:.2g}" for v in np.log10(values) + 0.0], f"log10 {label}"
    return [f"{v:g}" for v in values], label


def _wide(z: np.ndarray) -> bool:
    """Whether the values span a decade: then the colours show their logarithms."""
    found = z[np.isfinite(z)]
    return bool(len(found) and found.min() > 0 and found.max() / found.min() >= 10)


def _best(z: np.ndarray, larger_is_better: bool) -> tuple[int, int] | None:
    if np.all(np.isnan(z)):
        return None
    at = int(np.nanargmax(z) if larger_is_better else np.nanargmin(z))
    return at // z.shape[1], at % z.shape[1]


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
        axes.add_patch(Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor="#D55E00", lw=2.5))
        figure.colorbar(image, ax=axes)
    x_ticks, x_words = _ticks(x, x_label)
    y_ticks, y_words = _ticks(y, y_label)
    axes.set_xticks(range(len(x)), x_ticks)
    axes.set_yticks(range(len(y)), y_ticks)
    axes.set(xlabel=_words(x_words), ylabel=_words(y_words))
    axes.set_title(_words(title), loc="left", fontsize=11)
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
    x_ticks, x_words = _ticks(x, x_label)
    y_ticks, y_words = _ticks(y, y_label)
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
        shapes.append({"type": "rect", **corners, "line": {"color": "#D55E00", "width": 3}})
    shade = np.log10(z) if _wide(z) else z
    trace = {
        "type": "heatmap",
        "z": [[None if np.isnan(v) else float(v) for v in row] for row in shade],
        "customdata": [
            [[f"{a:g}", f"{b:g}", f"{v:.4g}"] for a, v in zip(x, row, strict=True)] for b, row in zip(y, z, strict=True)
        ],
        "hovertemplate": f"{_safe(x_label)} %{{customdata[0]}}<br>{_safe(y_label)} %{{customdata[1]}}<br>"
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
    return {
        "data": [trace, lost],
        "layout": {
            "title": {"text": _safe(title), "x": 0, "xanchor": "left"},
            "height": 180 + 46 * len(y),
            "xaxis": {"title": {"text": _safe(x_words)}, "tickvals": list(range(len(x))), "ticktext": x_ticks},
            "yaxis": {"title": {"text": _safe(y_words)}, "tickvals": list(range(len(y))), "ticktext": y_ticks},
            "shapes": shapes,
        },
    }


def _safe(words: str) -> str:
    """Escape the HTML that Plotly would interpret in labels."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def split_picture(about: Mapping[str, Any]) -> Figure:
    """How the data are split, from a result's `about`: the examples of each client, and below them its labels."""
    if "sizes" not in about:
        raise ValueError("The task has no examples, so there is no split to draw.")
    sizes, labels = np.asarray(about["sizes"]), about.get("labels")
    figure = Picture(figsize=(7.2, 2.2 if labels is None else 4.2), layout="constrained")
    ratios = (1.0,) if labels is None else (1.0, 2.4)
    panels = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)
    bars = panels[0, 0]
    bars.bar(np.arange(len(sizes)), sizes, width=0.85, color=COLOURS[0])
    bars.set_ylabel("examples")
    bars.spines[["top", "right"]].set_visible(False)
    clients = f"{len(sizes)} clients"
    if about["clients"] > len(sizes):
        clients = f"the first {len(sizes)} of {about['clients']:,} clients"
    bars.set_title(_words(f"{about['task']}: {clients}"), loc="left", fontsize=11)
    if labels is not None:
        map_ = panels[1, 0]
        image = map_.imshow(np.asarray(labels).T, aspect="auto", origin="lower", cmap="Blues", interpolation="nearest")
        map_.set_ylabel("label")
        map_.yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=map_, label="examples", pad=0.01)
    panels[-1, 0].set_xlabel("client")
    panels[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
