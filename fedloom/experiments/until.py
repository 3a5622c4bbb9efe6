"""When a run may end before its last round: conditions on its rows, such as "test accuracy >= 0.95"."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedloom.experiments.terms import check_target
from fedloom.hyperparameters import nearest
from fedloom.metrics.scores import Metric


class Condition(NamedTuple):
    """A metric and the value that it is to reach."""

    metric: str
    larger: bool  # it is met by values that are at least so large; else by those at most so large
    value: float

    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.larger else '<='} {self.value!r}"


def condition(text: str) -> Condition:
    """Read what `str` of a condition writes."""
    for sign in (">=", "<="):
        metric, found, value = text.partition(sign)
        if found:
            try:
                number = float(value)
            except ValueError:
                break
            if metric.strip() and math.isfinite(number):
                return Condition(metric.strip(), sign == ">=", number)
    raise ValueError(f"until: {text!r} is not a condition such as 'test accuracy >= 0.95' or 'train loss <= 0.1'.")


def is_met(until: Sequence[str] | None, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether trained models have met all conditions, each of them in some row; without conditions nothing is met."""
    return until is not None and all(
        any(_meets(row, c) for row in reversed(rows) if row["round"] > 0) for c in map(condition, until)
    )


def has_ended(rows: Sequence[Mapping[str, Any]], rounds: int, until: Sequence[str] | None) -> bool:
    """Whether a run that did not diverge is over: its last row is that of its last round, or all conditions are met."""
    return bool(rows) and (rows[-1]["round"] >= rounds or is_met(until, rows))


def _meets(row: Mapping[str, Any], c: Condition) -> bool:
    value = row.get(c.metric)
    return value is not None and (value >= c.value if c.larger else value <= c.value)


def check_conditions(until: Sequence[str], metrics: Mapping[str, Metric]) -> None:
    """Raise a ValueError for a metric that is not among those evaluated, and for what no better model can meet."""
    for c in map(condition, until):
        if c.metric not in metrics:
            known = nearest(c.metric, metrics)
            raise ValueError(f"until: {c.metric!r} is not evaluated; add it to --evaluate, or choose another.{known}")
        try:
            check_target(c.metric, c.value, metrics[c.metric].bounds)
        except ValueError as error:
            raise ValueError(str(error).replace("target: ", "until: ", 1)) from error
        if c.larger != metrics[c.metric].larger_is_better:
            right = c._replace(larger=not c.larger)
            better = "smaller" if c.larger else "larger"
            raise ValueError(f"until: {c.metric} is better when {better}, so write '{right}' instead of '{c}'.")


def refuse_until(until: object) -> None:
    """Raise a ValueError if there are conditions: methods that end at different costs are not compared or ranked."""
    if until is not None and until != "none":
        raise ValueError(
            "until is for single runs: methods and points are compared at equal cost, which runs that end early do not "
            "have. Leave it out; --target says what reaching a value costs."
        )
