"""What the kind of a study adds to its report: a table and a heat map for a sweep, verdicts for a reproduction."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

from matplotlib.figure import Figure

from fedloom import reproductions
from fedloom.experiments.points import short
from fedloom.experiments.study import Study
from fedloom.experiments.sweeps import BY_TEST, heat_map, larger, ranking, selection, sweep_table
from fedloom.report import figures, heat_maps
from fedloom.report.clock import clock_page, histogram
from fedloom.report.page import Extra

PRINTED = 10  # points of a sweep in a terminal


def first_sections(study: Study) -> list[Extra]:
    """The first sections of the page."""
    kind = study.about.get("kind")
    if kind == "sweep":
        map_ = _map(study)
        return [("The sweep", _sweep(study, map_), None if map_ is None else heat_maps.heat_map_plotly(**map_))]
    if kind == "reproduction":
        return [("Compared with the paper", f"<pre>{escape(reproductions.text(study))}</pre>", None)]
    return []


def _sweep(study: Study, map_: dict[str, Any] | None) -> str:
    """The best point of a sweep, a hint if it lies at an edge of the grid, and the table of all points."""
    drawn = () if map_ is None else (map_["x_label"], map_["y_label"])  # the heat map has a hint of its own
    points, select = ranking(study), selection(study)
    found = f"<p>Best: <b>{escape(points[0].name)}</b>, {escape(str(select))} {escape(points[0].words)}.</p>"
    if select.by_test:
        found += f"<p><b>{escape(BY_TEST)}</b></p>"
    over = {} if study.about["random"] is not None else study.about["over"]
    edges = [
        field
        for field, values in over.items()
        if field not in ("seed", *drawn) and _numbers(values)
        if points[0].values[field] in (min(values), max(values))
    ]
    hint = "" if math.isnan(points[0].score) else heat_maps.at_the_edge(edges)
    fields = list(points[0].values)
    heads = "".join(f"<th>{escape(head)}</th>" for head in ("point", *fields, str(select)))
    lines = [
        "".join(f"<td>{escape(cell)}</td>" for cell in (p.name, *(short(p.values[f]) for f in fields), p.words))
        for p in points
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'{found}<p class="note">{escape(hint)}</p><details><summary>All {len(points)} points</summary>'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )


def sweep_text(study: Study) -> str:
    """The best points of a sweep for a terminal, and where the others are."""
    table, _, best = sweep_table(study).partition("\n\n")
    lines = table.split("\n")
    points = len(study.about["points"])
    kept = lines[: len(lines) - points + PRINTED]
    if points > PRINTED:
        kept.append(f"... and {points - PRINTED} more points: see report.html and table.csv")
    return "\n".join([*kept, "", best]).rstrip()


def last_sections(study: Study) -> list[Extra]:
    """The last sections of the page: simulated time."""
    found = clock_page(study)
    return [("Simulated time", found, histogram(study, figures.styles(study)))] if found else []


def extra_pictures(study: Study) -> dict[str, Callable[[], Figure]]:
    """The figures for files."""
    map_ = _map(study) if study.about.get("kind") == "sweep" else None
    return {} if map_ is None else {"heat-map": partial(heat_maps.heat_map, **map_)}


def _numbers(values: Sequence[Any]) -> bool:
    """Whether these are several numbers, so that they have an order and ends."""
    return len(set(values)) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _map(study: Study) -> dict[str, Any] | None:
    """The heat map of a grid over two numeric fields: the step sizes, as in FedOpt's figure 2, if it has them."""
    if study.about["random"] is not None:
        return None
    fields = [field for field, values in study.about["over"].items() if field != "seed" and _numbers(values)]
    first = [f for f in ("solver.lr", "algorithm.lr") if f in fields]
    order = first + [f for f in fields if f not in first]
    if len(order) < 2:
        return None
    select = selection(study)
    xs, ys, scores = heat_map(study, order[0], order[1])
    return {
        "xs": xs,
        "ys": ys,
        "values": scores,
        "x_label": order[0],
        "y_label": order[1],
        "title": f"{select}; the best over all other fields" if len(order) > 2 else str(select),
        "larger_is_better": larger(study, select.metric),
    }
