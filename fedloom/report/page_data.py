"""The data of the report's page: what its program draws, as plain values, and how they are put into HTML."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.evidence.targets import target
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.report.series import Series, by_name, series
from fedloom.report.standings import Standing

LABELS = 60  # most frequent labels in the picture of a split


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
    rows: Sequence[Standing],
    looks: Mapping[str, tuple[str, str]],
) -> dict[str, Any]:
    """What the page draws for one task."""
    goal = target(study, task)
    seeds = by_name(results)
    drawn = [series(row.name, seeds[row.name]) for row in rows]  # the best first
    about = about_task(results)
    return {
        "task": task,
        "target": {"metric": goal.metric, "value": goal.value},
        "styles": {row.name: looks[row.name] for row in rows},
        "series": [_series_data(one) for one in drawn if one.seeds],
        "split": _split_data(about) if "sizes" in about else None,
    }


def _series_data(one: Series) -> dict[str, Any]:
    bands = {m: {"mean": band.mean, "low": band.low, "high": band.high} for m, band in one.metrics.items()}
    return {"name": one.name, "seeds": one.seeds, "axes": one.axes, "metrics": bands, "diverged": one.diverged}


def _split_data(about: Mapping[str, Any]) -> dict[str, Any]:
    if "labels" not in about:
        return {"sizes": about["sizes"], "labels": None, "names": None}
    counts = np.asarray(about["labels"]).T
    kept = np.sort(np.argsort(-counts.sum(1), kind="stable")[:LABELS])
    return {"sizes": about["sizes"], "labels": counts[kept], "names": kept}


def about_task(results: Sequence[Result]) -> Mapping[str, Any]:
    """The facts about the task, from the first result that was started."""
    return next((r.about for r in results if "clients" in r.about), {})
