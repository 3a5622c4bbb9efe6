"""Targets: which value is worth reaching, and when a run has reached it."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from fedloom.evidence.groups import by_name, by_task, has, metrics
from fedloom.experiments.result import Result, Row
from fedloom.experiments.study import Study
from fedloom.experiments.terms import Terms, check_target
from fedloom.hyperparameters import nearest

WAY = 0.9  # from the initial model to the best, for a target that nobody gave


@dataclasses.dataclass(frozen=True)
class Target:
    """A metric, the value to reach, and where the value comes from."""

    metric: str
    value: float  # nan if there is none
    larger_is_better: bool
    rule: str
    start: float | None = None  # the metric of the initial model, mean over seeds

    def meets(self, value: float) -> bool:
        """Whether a value is at the target or beyond."""
        sign = 1 if self.larger_is_better else -1
        return sign * value >= sign * self.value

    @property
    def met_at_start(self) -> bool:
        """Whether the initial model meets it, so that reaching it says nothing."""
        return self.start is not None and not math.isnan(self.value) and self.meets(self.start)

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"{self.metric}: none, because {self.rule}"
        return f"{self.metric} {'>=' if self.larger_is_better else '<='} {self.value:.4g}"


def target(study: Study, task: str) -> Target:
    """The target of a task: the study's, or the task's own, or one between the initial model and the best method."""
    results = by_task(study)[task]
    known, everywhere = metrics(results), metrics(study.results)
    own = next((r.about["target"] for r in results if r.about.get("target")), None)
    if study.target is not None and everywhere and study.target[0] not in everywhere:
        raise ValueError(f"target: there is no metric {study.target[0]!r}.{nearest(study.target[0], everywhere)}")
    goal = study.target if study.target is not None and study.target[0] in known else own
    if goal is not None and goal[0] in known:
        check_target(goal[0], goal[1], next((r.about.get("bounds", {}).get(goal[0]) for r in results), None))
        rule = "the task's own" if own is not None and tuple(goal) == tuple(own) else "given"
        return Target(goal[0], goal[1], known[goal[0]], rule, _start(results, goal[0]))
    return _between(results, _judged_by(known), study.terms)


def _judged_by(known: dict[str, bool]) -> str:
    """The metric of a comparison to which nobody gave one: a score or an error on test data, or else a loss."""
    tests = [metric for metric in known if metric.startswith("test ") and metric != "test loss"]
    scores = sorted(tests, key=lambda metric: not known[metric])  # those of which more is better first
    return next(iter([*scores, *(m for m in known if m == "train loss"), *known]), "train loss")


def _between(results: Sequence[Result], metric: str, terms: Terms) -> Target:
    larger = metrics(results).get(metric, False)
    start, ends = _start(results, metric), finals(results, metric, 1 if terms.crossing == "first" else terms.window)
    if start is None or not ends:
        why = "no run has finished" if start is not None else "the metric of the initial model is not known"
        return Target(metric, math.nan, larger, why)
    best = max(ends) if larger else min(ends)
    if not (best > start if larger else best < start):
        return Target(metric, math.nan, larger, "no method improves on the initial model", start)
    return Target(
        metric, start + WAY * (best - start), larger, f"{WAY:.0%} of the way from the initial model to the best", start
    )


def _start(results: Sequence[Result], metric: str) -> float | None:
    """The metric of the initial model, mean over runs."""
    values = [r.evaluated[0][metric] for r in results if has(r, metric) and r.evaluated[0]["round"] == 0]
    return float(np.mean(values)) if values and np.all(np.isfinite(values)) else None


def finals(results: Sequence[Result], metric: str, window: int) -> list[float]:
    """The final running mean of each method that has one, mean over seeds."""
    found = []
    for seeds in by_name(results).values():
        done = [r for r in seeds if r.finished and r.diverged is None and has(r, metric)]
        ends = [means[-1][1] for r in done if (means := running_means(r, metric, window))]
        if ends and np.all(np.isfinite(ends)):
            found.append(float(np.mean(ends)))
    return found


def running_means(result: Result, metric: str, window: int) -> list[tuple[Row, float]]:
    """The mean of the metric over the last `window` evaluations, or over all if there are fewer, with the last row.

    The initial model is not counted: it is none of the method's doing.
    """
    rows = [row for row in result.evaluated if row["round"] > 0]
    width = min(window, len(rows))
    if not width:
        return []
    values = np.array([row[metric] for row in rows], float)
    means = np.lib.stride_tricks.sliding_window_view(values, width).mean(axis=1)
    return list(zip(rows[width - 1 :], means.tolist(), strict=True))


def reached(result: Result, goal: Target, terms: Terms) -> Row | None:
    """The evaluated row in which a run has reached the target under the study's terms; None if it has not.

    A run that stays has a running mean that crosses the target and does not end below it, nor does it diverge.
    """
    if not has(result, goal.metric) or math.isnan(goal.value):
        return None
    if terms.crossing == "first":
        return result.first_reaches(goal.metric, goal.value)
    if result.diverged is not None or not result.finished:
        return None
    means = running_means(result, goal.metric, terms.window)
    if not means or not goal.meets(means[-1][1]):
        return None
    return next(row for row, mean in means if goal.meets(mean))
