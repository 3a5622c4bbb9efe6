"""What the kind of a study adds to its report: a table and a heat map for a sweep, verdicts for a reproduction."""

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

from matplotlib.figure import Figure

from fedloom import reproductions
from fedloom.experiments.study import Study
from fedloom.experiments.sweeps import BY_TEST, heat_map, larger, ranking, selection, sweep_table
from fedloom.report import figures
from fedloom.report.clock import clock_page, histogram
from fedloom.report.page import Extra


def first_sections(study: Study) -> list[Extra]:
    """The first sections of the page."""
    kind = study.about.get("kind")
    if kind == "sweep":
        best = ranking(study)[0]
        found = f"<p>Best: <b>{escape(best.name)}</b>, {escape(str(selection(study)))} {escape(best.words)}.</p>"
        if selection(study).by_test:
            found += f"<p><b>{escape(BY_TEST)}</b></p>"
        table = f"<details><summary>All points</summary><pre>{escape(sweep_table(study))}</pre></details>"
        map_ = _map(study)
        return [("The sweep", found + table, None if map_ is None else figures.heat_map_plotly(**map_))]
    if kind == "reproduction":
        return [("Compared with the paper", f"<pre>{escape(reproductions.text(study))}</pre>", None)]
    return []


def last_sections(study: Study) -> list[Extra]:
    """The last sections of the page: simulated time."""
    found = clock_page(study)
    return [("Simulated time", found, histogram(study, figures.styles(study)))] if found else []


def extra_pictures(study: Study) -> dict[str, Callable[[], Figure]]:
    """The figures for files."""
    map_ = _map(study) if study.about.get("kind") == "sweep" else None
    return {} if map_ is None else {"heat-map": partial(figures.heat_map, **map_)}


def _map(study: Study) -> dict[str, Any] | None:
    """The heat map of a grid over two numeric fields: the step sizes, as in FedOpt's figure 2, if it has them."""
    if study.about["random"] is not None:
        return None
    fields = [
        field
        for field, values in study.about["over"].items()
        if field != "seed" and len(values) > 1 and all(isinstance(v, int | float) for v in values)
    ]
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
