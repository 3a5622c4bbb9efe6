"""A sweep: one experiment with several values of some fields, on a grid or at random, and which of them is best."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.experiments.arguments import reporter
from fedloom.experiments.definition import Experiment
from fedloom.experiments.points import Range as Range
from fedloom.experiments.points import Values, changed_as, json_value, points_of, short
from fedloom.experiments.points import over as over
from fedloom.experiments.points import parse_over as parse_over
from fedloom.experiments.presets import PRESETS as PRESETS
from fedloom.experiments.result import Result
from fedloom.experiments.side_by_side import alike, run_side_by_side
from fedloom.experiments.study import Progress, RunEach, Runs, Study, create_study, place_run, read_study
from fedloom.experiments.study_file import check_study_files, read_study_file
from fedloom.experiments.text import columns
from fedloom.experiments.until import refuse_until
from fedloom.hyperparameters import count, nearest
from fedloom.tasks.evaluated import on_test_examples


@dataclasses.dataclass(frozen=True)
class Select:
    """How points are judged: the mean of a metric over the evaluations in the last rounds. Seeds are averaged.

    Without a metric it is the validation loss where examples are held out for validation, else the training loss. The
    training loss over the last 100 rounds is FedOpt's rule; theirs is the loss of the clients that took part, ours is
    f(w) over all clients. A test metric must be asked for, and is marked: what is selected by it looks better on the
    test set than it is.
    """

    metric: str | None = None
    last: int = 100

    def __post_init__(self) -> None:
        if not count.holds(self.last):
            raise ValueError(f"select: last must be {count.words}, got {self.last!r}.")
        if self.metric == "":
            raise ValueError("select must name a metric, such as 'train loss'; got ''.")

    @property
    def by_test(self) -> bool:
        """Whether points are selected by test data."""
        return self.metric is not None and on_test_examples(self.metric)

    def among(self, metrics: Container[str]) -> "Select":
        """With a metric, if it has none: the validation loss, if that is among the given metrics."""
        usual = "validation loss" if "validation loss" in metrics else "train loss"
        return dataclasses.replace(self, metric=self.metric or usual)

    def __str__(self) -> str:
        metric = "validation or train loss" if self.metric is None else self.metric
        return f"{metric}, mean of the last {self.last} rounds" + (", selected by TEST data" if self.by_test else "")

    def score(self, result: Result) -> float:
        """The score of a run; nan if it diverged or has not finished."""
        if not result.finished or result.diverged is not None:
            return math.nan
        since, metric = max(0, result.experiment.rounds - self.last), str(self.among(result.metrics).metric)
        return float(np.mean([row[metric] for row in result.evaluated if row["round"] > since]))


USUAL = Select()
# What tables and reports add to a selection by test data.
BY_TEST = "Selected by TEST data: expect a worse score on new data."


@dataclasses.dataclass(frozen=True, eq=False)
class Point:
    """One choice of values, its runs, which differ in the seed, and its score."""

    name: str
    values: Mapping[str, Any]  # by field
    results: Sequence[Result]
    score: float  # nan if one of the runs diverged or has not finished

    @property
    def words(self) -> str:
        """The score, or the reason why there is none."""
        if any(result.diverged is not None for result in self.results):
            return "diverged"
        return "unfinished" if math.isnan(self.score) else f"{self.score:.5g}"


def sweep(
    base: Experiment,
    over: Mapping[str, Values],
    *,
    directory: str | os.PathLike[str] | None = None,
    random: int | None = None,
    select: Select = USUAL,
    progress: Progress | bool | None = None,
    each: RunEach = run_side_by_side,
) -> Study:
    """Run an experiment with several values of some fields.

    Args:
        base: the experiment to vary.
        over: the values of each field, by the names that `changed` takes; for random search a Range will do. Several
            values of "seed" are repetitions of every point.
        directory: a new directory, in which each run gets its own; None keeps everything in memory.
        random: the number of distinct random points, which the experiment's seed determines; None runs the whole grid.
        select: how `ranking`, `best`, `sweep_table` and `heat_map` judge; its metric is evaluated in all runs.
        progress: True for a bar in a notebook or at a terminal, or a progress reporter.
        each: how the runs are run; `spread_batches` does it on a cluster.
    """
    refuse_until(base.until)
    points = points_of(base, over, random)
    seeds = np.asarray(over.get("seed", [base.seed])).tolist()
    listed = [(name, changed_as(name, e, {"seed": seed})) for name, (_, e) in points.items() for seed in seeds]
    runs, select, evaluated = _checked(listed, select)
    facts = {
        "kind": "sweep",
        "over": {field: str(v) if isinstance(v, Range) else [json_value(x) for x in v] for field, v in over.items()},
        "random": random,
        "select": dataclasses.asdict(select),
        "points": {name: {field: json_value(v) for field, v in values.items()} for name, (values, _) in points.items()},
    }
    task = base.base_task()
    target = task.target if task.target is not None and task.target[0] in evaluated else None
    title = f"{task.name}: a sweep over {', '.join(over)}"
    path = None if directory is None else pathlib.Path(directory)
    placed = create_study(runs, path, title=title, target=target, about=facts)
    return Study(title, each(placed, reporter(progress), ()), target, facts, path)


def resume_sweep(
    directory: str | os.PathLike[str], *, progress: Progress | None = None, each: RunEach = run_side_by_side
) -> Study:
    """Run what is left of a sweep: points that were not finished start again."""
    study = _is_sweep(read_study(directory))
    runs = [(r.name, r.experiment, r.directory) for r in study.results if r.directory is not None]
    placed = [place_run(*run) for run in runs]
    check_study_files(read_study_file(pathlib.Path(directory)), runs)
    return dataclasses.replace(study, results=each(placed, progress, ()))


def _checked(runs: Runs, select: Select) -> tuple[Runs, Select, set[str]]:
    """Check what can be checked before anything is compiled; one run of each structure stands for the others.

    The selection gets a metric, if it has none, and all runs evaluate it. The names are all metrics of the runs.
    """
    found, evaluated = list(runs), set[str]()
    for members in alike([e for _, e in runs]):
        name, experiment = runs[members[0]]
        try:
            evaluation = experiment.check().evaluation
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        select = select.among(evaluation.known)
        evaluated |= {*evaluation.metrics, str(select.metric)}
        if select.metric not in evaluation.metrics:
            what = (*evaluation.what, str(select.metric))
            try:
                dataclasses.replace(experiment, evaluate=what).check()
            except ValueError as error:
                raise ValueError(str(error).replace("evaluate: ", "select: ", 1)) from error
            for i in members:
                found[i] = (found[i][0], dataclasses.replace(found[i][1], evaluate=what))
    return found, select, evaluated


# The outcome of a sweep.


def selection(study: Study) -> Select:
    """How a sweep's points are judged; the last 100 of 20 rounds are all 20."""
    select = Select(**_is_sweep(study).about["select"])
    rounds = max(result.experiment.rounds for result in study.results)
    return dataclasses.replace(select, last=min(select.last, rounds))


def _resolved(study: Study, select: Select | None) -> Select:
    own = selection(study)
    return own if select is None else dataclasses.replace(select, metric=select.metric or own.metric)


def ranking(study: Study, select: Select | None = None) -> list[Point]:
    """The points of a sweep, the best first, those without a score last."""
    select = _resolved(study, select)
    known = {metric for result in study.results for metric in result.metrics}
    if known and select.metric not in known:
        raise ValueError(f"select: there is no metric {select.metric!r}.{nearest(str(select.metric), known)}")
    points = []
    for name, values in study.about["points"].items():
        results = [result for result in study.results if result.name == name]
        points.append(Point(name, values, results, float(np.mean([select.score(result) for result in results]))))
    sign = -1 if larger(study, select.metric) else 1
    return sorted(points, key=lambda p: (math.isnan(p.score), sign * p.score if not math.isnan(p.score) else 0.0))


def best(study: Study, select: Select | None = None) -> Point:
    """The point with the best score."""
    first = ranking(study, select)[0]
    if math.isnan(first.score):
        raise ValueError(f"No point of {study.title} has a score: all of them diverged or are unfinished.")
    return first


def sweep_table(study: Study, select: Select | None = None) -> str:
    """The points with their values and scores, the best first."""
    select = _resolved(study, select)
    points = ranking(study, select)
    fields = list(points[0].values)
    lines = [[*fields, str(select)]]
    lines += [[*(short(point.values[field]) for field in fields), point.words] for point in points]
    end = "" if math.isnan(points[0].score) else f"\n\nbest: {points[0].name}"
    return columns(lines) + end + (f"\n{BY_TEST}" if select.by_test else "")


def heat_map(study: Study, x: str, y: str, select: Select | None = None) -> tuple[list[Any], list[Any], np.ndarray]:
    """The values of two fields, and for each pair [y, x] the best score over all other fields, nan if there is none."""
    points = ranking(study, select)
    for field in (x, y):
        if field not in points[0].values:
            raise ValueError(f"The sweep is not over {field!r}.{nearest(field, points[0].values)}")
    xs, ys = (_sorted([point.values[field] for point in points]) for field in (x, y))
    scores = np.full((len(ys), len(xs)), math.nan)
    for point in reversed(points):  # the best last
        scores[ys.index(point.values[y]), xs.index(point.values[x])] = point.score
    return xs, ys, scores


def _sorted(values: Sequence[Any]) -> list[Any]:
    numbers = all(isinstance(v, int | float) for v in values)
    return sorted(set(values)) if numbers else sorted(set(values), key=str)


def larger(study: Study, metric: str | None) -> bool:
    """Whether larger values of the metric are better. Runs that have not started do not know their metrics."""
    return any(result.larger_is_better(metric) for result in study.results if metric in result.metrics)


def _is_sweep(study: Study) -> Study:
    if study.about.get("kind") != "sweep":
        raise ValueError(f"{study.directory or study.title} is not a sweep.")
    return study
