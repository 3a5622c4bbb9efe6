"""The data of the report's page: what its program draws, as plain values, and how they are put into HTML."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.evidence.targets import target
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.report.forest import differences, forest_plotly
from fedloom.report.series import Series, by_name, labels, outside, series

LABELS = 60  # most frequent labels in the picture of a split
DIGITS = 5  # of a metric in a curve: as many as anybody sees


def to_json(data: Any) -> str:
    """JSON for a script element: nan and infinity become null, and nothing can close the element."""
    return json.dumps(_numbers(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _numbers(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _numbers(value) for key, value in data.items()}
    if isinstance(data, np.ndarray):
        return _numbers(data.tolist())
    if isinstance(data, list | tuple):
        return [_numbers(value) for value in data]
    if isinstance(data, float | np.floating):
        return float(data) if math.isfinite(data) else None
    return int(data) if isinstance(data, np.integer) else data


def task_data(
    study: Study,
    task: str,
    results: Sequence[Result],
    names: Sequence[str],
    looks: Mapping[str, tuple[str, str]],
) -> dict[str, Any]:
    """What the page draws for one task, of these methods, the best first."""
    goal, seeds, shown = target(study, task), by_name(results), labels(study)
    drawn = [one for name in names if (one := series(name, seeds[name])).seeds]
    about = about_task(results)
    return {
        "task": task,
        "target": {"metric": goal.metric, "value": goal.value},
        "styles": {name: looks[name] for name in names},
        "series": [_series_data(one, shown[one.name]) for one in drawn],
        "outside": {
            metric: _outside(drawn, metric) for metric in dict.fromkeys(m for one in drawn for m in one.metrics)
        },
        "forest": forest_plotly(*found) if (found := differences(study, task)) else None,
        "split": _split_data(about) if "sizes" in about else None,
    }


def _series_data(one: Series, label: str) -> dict[str, Any]:
    """A method's curves, one for each seed; the page takes means, intervals and running means of them."""
    curves = {metric: [_rounded(values) for values in band.seeds] for metric, band in one.metrics.items()}
    return {
        "name": one.name,
        "label": label,
        "seeds": one.seeds,
        "axes": one.axes,
        "metrics": curves,
        "diverged": one.diverged,
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def _outside(drawn: Sequence[Series], metric: str) -> dict[str, list[str]]:
    """The methods that the vertical scale ignores, so that they do not stretch it: linear and logarithmic."""
    sound = [one for one in drawn if metric in one.metrics and not one.diverged]
    curves = {one.name: (one.axes["rounds"], one.metrics[metric].mean) for one in sound}
    end = max((one.axes["rounds"][-1] for one in drawn), default=0.0)
    return {scale: outside(curves, end, log=scale == "log") for scale in ("linear", "log")}


def _split_data(about: Mapping[str, Any]) -> dict[str, Any]:
    """Examples of each client and, if they have labels, how many of each; clients may have names."""
    found = {"sizes": about["sizes"], "names": about.get("names"), "labels": None, "counts": None}
    if "labels" in about:
        counts = np.asarray(about["labels"]).T
        kept = np.sort(np.argsort(-counts.sum(1), kind="stable")[:LABELS])
        found |= {"labels": kept, "counts": counts[kept]}
    return found


def about_task(results: Sequence[Result]) -> Mapping[str, Any]:
    """The facts about the task, from the first result that was started."""
    return next((r.about for r in results if "clients" in r.about), {})
