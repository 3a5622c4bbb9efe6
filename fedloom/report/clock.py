"""How each method used simulated time: a table, and a histogram of staleness."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from fedloom.evidence.targets import Target, reached, target
from fedloom.experiments.result import Result, room
from fedloom.experiments.study import Study
from fedloom.experiments.text import columns
from fedloom.report.drawing import plotly_words
from fedloom.report.series import BEST, COLOURS, by_name, by_task, has_clock, labels
from fedloom.report.standings import Standing, rows
from fedloom.report.tables import missed_words, number

NEUTRAL = "#7A8290"  # of what belongs to no method
HEADS = (
    *("method", "seconds to target", "seconds", "replies", "idle"),
    *("wasted", "lost jobs", "duplicates", "staleness", "max"),
)
FOOTNOTE = (
    "seconds: simulated, until the target and in total.  replies: those that the server counted.",
    "idle: share of the time for which clients that could have been at work were not.  wasted: seconds of computing",
    "that did not count.  lost jobs: those without a counted reply.  duplicates: second copies, which are ignored.",
    "staleness: server updates between a client's start and its reply, mean and maximum.",
)


def clock_rows(study: Study, task: str) -> list[tuple[str, ...]]:
    """A row for each method with simulated time; means over seeds."""
    goal, shown = target(study, task), labels(study)
    lines: list[tuple[str, ...]] = []
    by_method = by_name(by_task(study)[task])
    for standing in rows(study, task):
        name, seeds = standing.name, by_method[standing.name]
        timed = [r for r in seeds if has_clock([r]) and len(r.evaluated) > 1]
        if not timed:
            continue
        ends = [r.evaluated[-1] for r in timed]
        hits = [row for r in timed if (row := reached(r, goal, study.terms)) is not None]
        histogram = staleness(timed)
        seats = [(row["idle seconds"] / _seat_seconds(r, row)) for r, row in zip(timed, ends, strict=True)]
        failed = [sum(v for key, v in row.items() if key.startswith("jobs ")) for row in ends]
        lines.append(
            (
                shown[name],
                _to_target([row["simulated seconds"] for row in hits], standing, goal),
                number(_mean(ends, "simulated seconds")),
                f"{_mean(ends, 'replies'):.0f}",
                f"{np.mean(seats):.0%}",
                number(_mean(ends, "wasted seconds")),
                f"{np.mean(failed):.0f}",
                f"{_mean(ends, 'duplicates'):.0f}",
                f"{histogram @ np.arange(len(histogram)) / max(histogram.sum(), 1):.2f}",
                str(len(histogram) - 1),
            )
        )
    return lines


def _to_target(times: Sequence[float], standing: Standing, goal: Target) -> str:
    """The mean over the seeds that reach the target, in the words of the main table."""
    if not times:
        return missed_words(standing, goal)
    some = f" ({len(times)} of {standing.seeds})" if len(times) < standing.seeds else ""
    return number(float(np.mean(times))) + some


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(np.mean([row[key] for row in rows]))


def _seat_seconds(result: Result, row: Mapping[str, Any]) -> float:
    """Simulated seconds times the number of clients that can be at work at once."""
    return max(row["simulated seconds"] * room(result), 1e-300)


def staleness(results: Sequence[Result]) -> np.ndarray:
    """The number of counted replies by staleness, over all seeds."""
    counts = [r.evaluated[-1]["staleness"] for r in results]
    total = np.zeros(max(len(c) for c in counts))
    for c in counts:
        total[: len(c)] += c
    return total


def clock_text(study: Study) -> str:
    """The table for a terminal; empty if no run has simulated time."""
    parts = []
    for task in by_task(study):
        if lines := clock_rows(study, task):
            parts += ["", f"{task}, on the simulated clock:", "", columns([HEADS, *lines])]
    return "\n".join([*parts, "", *FOOTNOTE]) if parts else ""


def clock_page(study: Study) -> str:
    """The table for the report's page."""
    tasks, parts = by_task(study), []
    heads = "".join(f"<th>{escape(head)}</th>" for head in HEADS)
    for task in tasks:
        if lines := clock_rows(study, task):
            rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
            parts.append(f"<h3>{escape(task)}</h3>" if len(tasks) > 1 else "")
            parts.append(
                f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
            )
    return "".join(parts) + f'<p class="quiet">{escape(" ".join(FOOTNOTE))}</p>' if parts else ""


def histogram(study: Study, looks: Mapping[str, tuple[str, str]]) -> dict[str, Any] | None:
    """Staleness as plain data for Plotly; None if every reply was fresh. Methods with equal staleness are drawn once.

    Few histograms are bars side by side; many are the rows of a heat map.
    """
    equal: dict[tuple[float, ...], list[str]] = {}
    methods = by_name(r for r in study.results if has_clock([r]) and len(r.evaluated) > 1)
    for name, seeds in methods.items():
        counts = staleness(seeds)
        equal.setdefault(tuple((counts / max(counts.sum(), 1)).tolist()), []).append(name)
    if all(len(share) < 2 for share in equal):
        return None
    axis = {"title": {"text": "staleness, in server updates"}}
    named = {_together(names, len(methods), labels(study)): share for share, names in equal.items()}
    if len(named) > BEST:
        longest = max(len(share) for share in equal)
        rows = [[*share, *[0.0] * (longest - len(share))] for share in named.values()]
        colours = {"colorscale": "Viridis", "colorbar": {"title": {"text": "share of replies", "side": "right"}}}
        text = [[words] * longest for words in named]
        hover = {"text": text, "hovertemplate": "%{text}<br>staleness %{x}: %{z:.1%}<extra></extra>"}
        trace = {"type": "heatmap", "z": rows, "xgap": 1, "ygap": 1, **colours, **hover}
        down = {"autorange": "reversed", "tickvals": list(range(len(named))), "ticktext": list(named)}
        return {"data": [trace], "layout": {"xaxis": axis, "yaxis": down, "height": 130 + 26 * len(named)}}
    ink = [looks.get(names[0], (COLOURS[0], ""))[0] for names in equal.values()] if len(equal) > 1 else [NEUTRAL]
    traces = [
        {"type": "bar", "name": words, "x": list(range(len(share))), "y": list(share), "marker": {"color": colour}}
        for (words, share), colour in zip(named.items(), ink, strict=True)
    ]
    return {
        "data": traces,
        "layout": {
            "xaxis": axis,
            "yaxis": {"title": {"text": "share of replies"}},
            "barmode": "group",
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.25, "yanchor": "top"},
            "height": 340,
        },
    }


def _together(names: Sequence[str], every: int, shown: Mapping[str, str]) -> str:
    if len(names) == every > 1:
        return "all methods"
    others = len(names) - 3
    more = f" and {others} other{'s' * (others > 1)}" if others > 0 else ""
    return plotly_words(", ".join(shown[name] for name in names[:3]) + more)
