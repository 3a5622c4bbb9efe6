"""Figures for papers and notebooks: curves and the picture of a split. They do not use pyplot."""

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from fedloom.evidence.targets import target
from fedloom.experiments.study import Study
from fedloom.experiments.sweeps import ranking
from fedloom.hyperparameters import nearest
from fedloom.report.drawing import Picture, spread, words
from fedloom.report.series import (
    AXES,
    AXIS_LABELS,
    BANDWIDTH,
    BEST,
    COLOURS,
    DASHES,
    EARLY,
    FEW,
    Band,
    axes_of,
    by_name,
    by_task,
    labels,
    metrics,
    outside,
    series,
)
from fedloom.report.standings import rows

NAMED = 50  # clients that can have their names below the picture of a split
GREY = "#b5b5b5"  # all but the best
LINE = 0.055  # of the height of the axes: a line of text
DASHED = {"solid": "-", "dash": "--", "dot": ":"}


def ordered(study: Study, task: str) -> list[str]:
    """The names of a task, the best first. Of a sweep, only those of the best points: it may have hundreds."""
    names = by_name(by_task(study)[task])
    if study.about.get("kind") == "sweep":
        return [point.name for point in ranking(study) if point.name in names][:BEST]
    return [row.name for row in rows(study, task)]


def styles(study: Study) -> dict[str, tuple[str, str]]:
    """Colour and dash of each method, the same in every figure of a study. The best have different colours."""
    first = [name for task in by_task(study) for name in ordered(study, task)]
    names = dict.fromkeys([*first, *by_name(study.results)])
    return {n: (COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]) for i, n in enumerate(names)}


def curves(
    study: Study, metric: str | None = None, x: str = "rounds", task: str | None = None, bandwidth: float = BANDWIDTH
) -> Figure:
    """A metric of every method: the mean over seeds as a line, a cross where one diverged.

    The best five are in colour, with the 95% interval of the mean, or with thin lines for the seeds if they are fewer
    than three; the others are grey. Of a sweep, only the best five points are drawn.

    Args:
        study: the results.
        metric: the metric to draw; the target's if not given.
        x: "rounds", "exchanges", "models", "bytes", "gradients", "time", or "clock" if all have simulated time.
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
    seeds = by_name(tasks[task])
    found = {name: one for name in ordered(study, task) if metric in (one := series(name, seeds[name])).metrics}
    shown = labels(study)
    looks = {name: (GREY, "solid") for name in found} | {name: styles(study)[name] for name in list(found)[:BEST]}
    for name in reversed(found):  # the best are drawn last, above the others
        band, at, (colour, dash) = found[name].metrics[metric], found[name].axes[x] * scale, looks[name]
        width = 1.0 if colour == GREY else 1.8
        axes.plot(at, band.mean, color=colour, linestyle=DASHED[dash], linewidth=width, label=words(shown[name]))
        if colour != GREY:
            _seeds(axes, at, band, colour)
    by = "clock" if x == "clock" else "rounds"
    sound = {name: one for name, one in found.items() if not one.diverged}
    end = max((one.axes[by][-1] for one in found.values()), default=0.0)
    left_out = outside({name: (one.axes[by], one.metrics[metric].mean) for name, one in sound.items()}, end)
    limits: list[float] = []
    for name, one in sound.items():
        band, late = one.metrics[metric], one.axes[by] >= EARLY * end
        edges = [band.mean] if looks[name][0] == GREY else [band.low, band.high]
        limits += [v for edge in edges for v in edge[late] if math.isfinite(v) and name not in left_out]
    if metric == goal.metric and math.isfinite(goal.value):
        axes.axhline(goal.value, color="#555555", linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"target {goal.value:.4g}", (0, goal.value), (4, 3), ha="left", va="bottom", color="#555555", fontsize=9,
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
        limits.append(goal.value)
    if limits:  # neither divergence nor the start may hide the differences
        room = 0.05 * (max(limits) - min(limits)) or 1.0
        axes.set_ylim(min(limits) - room, max(limits) + room)
    for name, one in found.items():
        for mark in one.diverged:  # at the edge, if it lies beyond
            inside = np.clip(mark[metric], *axes.get_ylim()) if limits else mark[metric]
            (cross,) = axes.plot(mark[x] * scale, inside, "x", color=looks[name][0], clip_on=False)
            cross.set(markersize=9, markeredgewidth=2.5)
    axes.set_xlabel(AXIS_LABELS[x].format(bandwidth=bandwidth))
    axes.set_ylabel(words(metric))
    some = f" (the best {len(found)} of {len(seeds)})" if len(found) < len(seeds) else ""
    axes.set_title(words(task) + some, loc="left", fontsize=11)
    if x in ("bytes", "gradients"):
        axes.xaxis.set_major_formatter(EngFormatter("B" if x == "bytes" else ""))
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    _label(axes, {name: (one.axes[x] * scale, one.metrics[metric].mean) for name, one in found.items()}, looks, shown)
    notes = [f"Grey: {', '.join(shown[n] for n in found if looks[n][0] == GREY)}."] if len(found) > BEST else []
    notes += [f"Left out of the vertical scale: {', '.join(shown[name] for name in left_out)}."] if left_out else []
    if notes:
        text = textwrap.fill(" ".join(notes), 110, max_lines=4)
        figure.supxlabel(words(text), fontsize=8, color="#555555", x=0.01, ha="left")
    return figure


def _seeds(axes: Axes, at: np.ndarray, band: Band, colour: str) -> None:
    """The 95% interval of the mean, or the seeds as thin lines if they are few."""
    if len(band.seeds) >= FEW:
        half = band.interval
        axes.fill_between(at, band.mean - half, band.mean + half, color=colour, alpha=0.1, linewidth=0)
    elif len(band.seeds) > 1:
        for values in band.seeds:
            axes.plot(at[: len(values)], values, color=colour, linewidth=0.6, alpha=0.6)


def _label(axes: Axes, ends: Mapping[str, Any], looks: Mapping[str, Any], shown: Mapping[str, str]) -> None:
    """Write the name of each coloured curve at its end, without overlaps."""
    names, wanted = [], []
    for name in (n for n in ends if looks[n][0] != GREY):
        at, values = ends[name]
        drawn = np.flatnonzero(np.isfinite(values))
        if len(drawn):
            place = axes.transData.transform((at[drawn[-1]], values[drawn[-1]]))
            names.append(name)
            wanted.append(axes.transAxes.inverted().transform(place))
    heights = spread([min(max(place[1], 0.0), 1.0) for place in wanted], LINE, 0.0, 1.0)
    for name, place, height in zip(names, wanted, heights, strict=True):
        axes.text(place[0] + 0.015, height, words(shown[name]), color=looks[name][0], fontsize=9, va="center",
                  transform=axes.transAxes)  # fmt: skip


def split_picture(about: Mapping[str, Any]) -> Figure:
    """How the data are split, from a result's `about`: the examples of each client, and below them its labels."""
    if "sizes" not in about:
        raise ValueError("The task has no examples, so there is no split to draw.")
    sizes, counts = np.asarray(about["sizes"]), about.get("labels")
    figure = Picture(figsize=(7.2, 2.2 if counts is None else 4.2), layout="constrained")
    ratios = (1.0,) if counts is None else (1.0, 2.4)
    panels = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)
    bars = panels[0, 0]
    bars.bar(np.arange(len(sizes)), sizes, width=0.85, color=COLOURS[0])
    bars.set_ylabel("examples")
    bars.spines[["top", "right"]].set_visible(False)
    clients = f"{len(sizes)} clients"
    if about["clients"] > len(sizes):
        clients = f"the first {len(sizes)} of {about['clients']:,} clients"
    bars.set_title(words(f"{about['task']}: {clients}"), loc="left", fontsize=11)
    if counts is not None:
        map_ = panels[1, 0]
        image = map_.imshow(np.asarray(counts).T, aspect="auto", origin="lower", cmap="Blues", interpolation="nearest")
        map_.set_ylabel("label")
        map_.yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=map_, label="examples", pad=0.01)
    panels[-1, 0].set_xlabel("client")
    if about.get("names"):
        every = -(-len(sizes) // NAMED)
        turned = [words(name) if len(name) < 20 else words(name[:19]) + "…" for name in about["names"]][::every]
        panels[-1, 0].set_xticks(range(0, len(sizes), every), turned, rotation=60, ha="right", fontsize=7)
    else:
        panels[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
