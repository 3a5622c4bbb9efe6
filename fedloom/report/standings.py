"""Where each method stands: at equal cost, at the end, and until the target."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from fedloom.evidence.budgets import amount, row_at
from fedloom.evidence.groups import by_name, by_task, has, labels
from fedloom.evidence.targets import Target, reached, target
from fedloom.evidence.verdicts import Verdict, verdict
from fedloom.experiments.origins import origin_of
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.experiments.sweeps import ranking
from fedloom.experiments.terms import Budget


@dataclasses.dataclass(frozen=True)
class Level:
    """A metric of one method, mean over its seeds, and its standard deviation (n - 1 in the denominator)."""

    mean: float
    spread: float | None


@dataclasses.dataclass(frozen=True)
class Standing:
    """One row of the tables: a method on a task. Values that were not reached, or are unknown, are None."""

    task: str
    name: str
    label: str  # the name, and in what it differs from the others
    seeds: int
    at: dict[str, Level | None]  # the metric at an equal amount of each cost
    final: Level | None  # the metric at the end, of the seeds that did not diverge
    behind: float | None  # the best at the budget minus this method, positive if it is worse
    interval: tuple[float, float] | None  # 95%, of `behind`
    p: float | None  # corrected for all comparisons and looks
    verdict: str  # best, tied, worse, or nothing
    more_seeds: int | None  # that would decide against the best
    reached: int  # seeds that reach the target; rounds, models, bytes and gradients are means over these
    touched: tuple[int, ...]  # the rounds in which the others first touched it
    arrived: int  # of these, the seeds whose last evaluation is at the target, though their running mean is not
    rounds: float | None
    models: float | None
    bytes: float | None
    gradients: float | None
    seconds: float | None
    diverged: tuple[int, ...]  # the round of each seed that diverged
    unfinished: int  # seeds
    damaged: int  # seeds
    clients: float | None  # per exchange, on average
    setting: str  # where the hyperparameters come from

    @property
    def lost(self) -> bool:
        """Whether all seeds diverged."""
        return len(self.diverged) == self.seeds


def columns_of_cost(study: Study, task: str) -> dict[str, float]:
    """The costs at which methods are compared, the budget first, with equal amounts."""
    results, budget = by_task(study)[task], study.terms.budget
    wanted = [budget, *(Budget(cost) for cost in ("bytes", "gradients") if cost != budget.cost)]
    found = {b.cost: amount(results, b) for b in wanted}
    return {cost: value for cost, value in found.items() if value}


def rows(study: Study, task: str | None = None) -> list[Standing]:
    """The rows of the tables, for each task the best method at the budget first, those that diverged last."""
    return [row for name in by_task(study) if task in (None, name) for row in _of_task(study, name)]


@functools.lru_cache(maxsize=16)
def _of_task(study: Study, task: str) -> tuple[Standing, ...]:
    results, goal, judged = by_task(study)[task], target(study, task), verdict(study, task)
    limits, shown = columns_of_cost(study, task), labels(results)
    made = [_row(study, task, shown[name], seeds, goal, judged, limits) for name, seeds in by_name(results).items()]
    order = [p.name for p in ranking(study)] if study.about.get("kind") == "sweep" else judged.means
    places = {name: i for i, name in enumerate(order)}
    sign = -1 if goal.larger_is_better else 1

    def rank(row: Standing) -> tuple[bool, float, float]:
        value = math.inf if row.final is None or math.isnan(row.final.mean) else sign * row.final.mean
        return row.lost, places.get(row.name, len(places)), value

    return tuple(sorted(made, key=rank))


def _row(
    study: Study,
    task: str,
    label: str,
    seeds: Sequence[Result],
    goal: Target,
    judged: Verdict,
    limits: dict[str, float],
) -> Standing:
    name = seeds[0].name
    hits = [(r, reached(r, goal, study.terms)) for r in seeds]
    places = [(r, [row["round"] for row in r.evaluated].index(hit["round"])) for r, hit in hits if hit is not None]
    missed = [r for r, hit in hits if hit is None and has(r, goal.metric) and not math.isnan(goal.value)]
    touches = [row["round"] for r in missed if (row := r.first_reaches(goal.metric, goal.value)) is not None]
    arrived = [r for r in missed if goal.meets(r.evaluated[-1][goal.metric]) and r.diverged is None]
    against = judged.against.get(name)
    shared = judged.seeds if name in judged.means else ()
    compared = [r for r in seeds if r.experiment.seed in shared] or seeds
    return Standing(
        task,
        name,
        label,
        seeds=len(seeds),
        at={cost: _level(_values_at(compared, goal.metric, cost, limit)) for cost, limit in limits.items()},
        final=_level([float(r.column(goal.metric)[-1]) for r in seeds if r.diverged is None and has(r, goal.metric)]),
        behind=None if against is None else against.behind,
        interval=None if against is None else against.interval,
        p=None if against is None else against.p,
        verdict=_word(name, judged),
        more_seeds=against.more_seeds if against is not None and against.tied else None,
        reached=len(places),
        touched=tuple(touches),
        arrived=len(arrived),
        rounds=_mean([r.column("round")[i] for r, i in places]),
        models=_mean([r.column("models")[i] for r, i in places]),
        bytes=_mean([r.column("bytes")[i] for r, i in places]),
        gradients=_mean([r.column("gradients")[i] for r, i in places]),
        seconds=_mean([r.seconds for r in seeds if r.rows]),
        diverged=tuple(r.rows[-1]["round"] for r in seeds if r.diverged is not None),
        unfinished=sum(not r.finished and not r.damaged for r in seeds),
        damaged=sum(bool(r.damaged) for r in seeds),
        clients=_mean(
            [row["messages"] / 2 / row["exchanges"] for r in seeds for row in r.evaluated[-1:] if row["exchanges"]]
        ),
        setting=next((s["words"] for r in seeds if (s := origin_of(study, r))), ""),
    )


def _word(name: str, judged: Verdict) -> str:
    if not judged.against:
        return ""
    if name == judged.best:
        return "best" if judged.separated else "tied"
    against = judged.against.get(name)
    return "" if against is None else "tied" if against.tied else "worse"


def _values_at(seeds: Sequence[Result], metric: str, cost: str, limit: float) -> list[float]:
    """The metric at the budget; nothing if a seed diverged, or has not got that far and is not finished."""
    found = []
    for r in seeds:
        row = row_at(r, cost, limit) if has(r, metric) else None
        if row is None or r.diverged is not None or (row is r.evaluated[-1] and not r.finished):
            return []
        found.append(float(row[metric]))
    return found


def _level(values: Sequence[float]) -> Level | None:
    mean = _mean(values)
    if mean is None:
        return None
    with np.errstate(invalid="ignore"):
        return Level(mean, float(np.std(values, ddof=1)) if len(values) > 1 else None)


def _mean(values: Sequence[float]) -> float | None:
    with np.errstate(invalid="ignore"):  # of inf and -inf
        return float(np.mean(values)) if len(values) else None
