"""A forest plot: how far each method is from the best one, with intervals, for papers and for a report's page."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from fedloom.evidence.groups import by_task, labels
from fedloom.evidence.verdicts import verdict
from fedloom.experiments.study import Study
from fedloom.report.drawing import Picture, plotly_words, words

TIED, WORSE = "#0099EE", "#AA4411"  # the first two colours of curves, which everybody can tell apart
LONGEST = 40  # characters of a label


class Difference(NamedTuple):
    """The paired difference of a method to the best one, in the metric's unit."""

    label: str
    difference: float
    low: float  # its 95% interval
    high: float
    low_corrected: float  # the same, corrected for all comparisons
    high_corrected: float
    tied: bool  # with the best: nobody can tell


def differences(study: Study, task: str) -> tuple[list[Difference], str, str] | None:
    """What the forest plot of a study shows: each method against the best; None if nothing can be said."""
    judged, shown = verdict(study, task), labels(by_task(study)[task])
    if judged.best is None or not judged.against:
        return None
    sign = -1 if judged.larger_is_better else 1  # the best is at 0, and methods are where their values lie
    found = []
    for one in judged.against.values():
        low, high = sorted(sign * end for end in one.interval)
        least, most = sorted(sign * end for end in one.corrected)
        found.append(Difference(shown[one.name], sign * one.behind, low, high, least, most, one.tied))
    return found, shown[judged.best], f"{judged.metric} at {judged.at}"


def forest_plotly(differences: Sequence[Difference], reference: str, metric: str) -> dict[str, Any]:
    """Data and layout for Plotly. The first difference is on top.

    Thick lines are 95% intervals, thin ones are corrected for all comparisons; the best one is the line at 0.
    """
    rows = list(range(len(differences)))
    traces: list[dict[str, Any]] = []
    for tied, colour, name in ((True, TIED, "tied with the best"), (False, WORSE, "worse")):
        mine = [i for i in rows if differences[i].tied is tied]
        for ends, width in ((("low_corrected", "high_corrected"), 1.5), (("low", "high"), 6)):
            low, high = ([getattr(differences[i], end) for i in mine] for end in ends)
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": [v for a, b in zip(low, high, strict=True) for v in (a, b, None)],
                    "y": [v for i in mine for v in (i, i, None)],
                    "line": {"color": colour, "width": width},
                    "opacity": 0.55 if width > 2 else 1,
                    "hoverinfo": "skip",
                    "showlegend": False,
                }
            )
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [differences[i].difference for i in mine],
                "y": mine,
                "marker": {"color": colour, "size": 9, "symbol": "circle" if tied else "diamond"},
                "showlegend": bool(mine),
                "text": [_sentence(differences[i], plotly_words(differences[i].label)) for i in mine],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    zero = {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": "#808080"}}
    ticks = [plotly_words(_cut(one.label)) for one in differences]
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": plotly_words(_axis(reference, metric))}},
            "yaxis": {"tickvals": rows, "ticktext": ticks, "range": [len(rows) - 0.5, -0.5], "showgrid": False},
            "shapes": [zero],
            "hovermode": "closest",
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
            "margin": {"t": 40},
            "height": 130 + 30 * len(rows),
        },
    }


def forest_figure(differences: Sequence[Difference], reference: str, metric: str) -> Figure:
    """The same as a figure."""
    figure = Picture(figsize=(7.2, 1.3 + 0.3 * len(differences)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0, color="#808080", linewidth=1)
    for i, one in enumerate(differences):
        colour = TIED if one.tied else WORSE
        axes.plot([one.low_corrected, one.high_corrected], [i, i], color=colour, linewidth=1.2)
        axes.plot([one.low, one.high], [i, i], color=colour, linewidth=4.5, alpha=0.55, solid_capstyle="butt")
        axes.plot(one.difference, i, "o" if one.tied else "D", color=colour, markersize=6)
    axes.set_yticks(range(len(differences)), [words(_cut(one.label)) for one in differences])
    axes.set_ylim(max(len(differences), 1) - 0.5, -0.5)
    axes.set_xlabel(words(_axis(reference, metric)))
    key = "Thick: 95% interval; thin: corrected for all comparisons. Circles: tied with the best; diamonds: worse."
    figure.supxlabel(key, fontsize=8, color="#555555", x=0.01, ha="left")
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def _axis(reference: str, metric: str) -> str:
    return f"{metric}: difference to {_cut(reference)}"


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST else label[: LONGEST - 1] + "…"


def _sentence(one: Difference, label: str) -> str:
    return (
        f"<b>{label}</b>: {one.difference:+.4g}<br>95% interval: {one.low:+.4g} to {one.high:+.4g}<br>"
        f"corrected: {one.low_corrected:+.4g} to {one.high_corrected:+.4g}"
    )
