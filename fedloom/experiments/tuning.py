"""Tune methods with equal effort, then compare them: every method gets the same number of points and seeds.

The directory has
* tuning.json: what was asked for, from which the rest follows;
* tuning/METHOD/batch-N: the points of a method, a few at a time, each a sweep that `fedloom report` can show;
* settings/METHOD.toml: the best point of a method, an experiment that `fedloom run` and `fedloom compare` take;
* comparison: a study of the best points on fresh seeds, with all training data.
"""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.experiments.changes import changed
from fedloom.experiments.comparisons import comparison
from fedloom.experiments.definition import Experiment
from fedloom.experiments.files import write_whole
from fedloom.experiments.points import short
from fedloom.experiments.result import Result
from fedloom.experiments.run_directory import new_directory, read_json
from fedloom.experiments.search import LOST, Place, Score, best_place, ends, next_places
from fedloom.experiments.settings import from_toml
from fedloom.experiments.side_by_side import run_side_by_side
from fedloom.experiments.spaces import axes_of
from fedloom.experiments.study import STUDY, OpenSink, Progress, Study, create_study, resume_study, run_all
from fedloom.experiments.sweeps import Select, resume_sweep
from fedloom.hyperparameters import count, nearest
from fedloom.tasks import Task, Tuned
from fedloom.tasks.evaluated import known_metrics

TUNING, COMPARISON, SETTINGS = "tuning.json", "comparison", "settings"
FIRST_SEED = 1000  # tuning uses the seeds from here on, comparisons those from 0
BATCH = 4  # points side by side: one program for all batches of a method, and the search learns after each
AT_MOST = 2  # times the points, if the best value of some method still lies at the edge of what was tried
LAST = 5  # points are judged by the last fifth of the rounds

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What determines a tuning, besides the search itself."""

    bases: Mapping[str, Experiment]  # by method: where its search starts
    points: int
    seeds: int
    validation: float
    metric: str

    def experiment(self, method: str, values: Mapping[str, float], seed: int) -> Experiment:
        """A run of the search: without the validation data, evaluated 25 times, and on nothing but what decides."""
        every = max(1, self.bases[method].rounds // (5 * LAST))
        evaluated = {"evaluate_every": every, "evaluate": tuple(dict.fromkeys((self.loss, self.metric)))}
        return changed(self.bases[method], {**values, **self.held_out, **evaluated, "seed": seed})

    @property
    def loss(self) -> str:
        """What decides between equals."""
        return f"{self.metric.split(' ')[0]} loss"

    @property
    def held_out(self) -> dict[str, Any]:
        """How the data of the search differ from those of the comparison."""
        return {"validation": self.validation} if self.metric.startswith("validation") else {}

    def to_plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "bases": {name: e.to_toml() for name, e in self.bases.items()}}


def tune(
    task: str | Task = "digits",
    algorithms: Sequence[str] | None = None,
    *,
    points: int = 24,
    seeds: int = 3,
    variant: str | None = None,
    validation: float = 0.2,
    select: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
    sinks: Sequence[OpenSink] = (),
    **changes: Any,
) -> Study:
    """Tune methods on a task with equal effort, then compare the best point of each on fresh seeds.

    A search starts at the task's settings and goes on in half decades until the best value of every field lies between
    others that were tried; remaining points are spent on steps half as large. If a best value still lies at an edge,
    all methods get more points, up to twice as many.

    Args:
        task: the name of a task, FILE.py:NAME, or a task.
        algorithms: names; None: all that the task has settings for.
        points: how many combinations of values each method may try.
        seeds: runs of each point, and runs of each method in the comparison, which has other seeds.
        variant: the settings of the task at which the searches start; the first for the engine if None.
        validation: the share of each client's training examples by which points are judged.
        select: the metric to judge by; None: what the task's target is about, on validation data.
        directory: a new directory; None keeps everything in memory.
        progress: a progress reporter.
        say: called with a line of text after every batch of points.
        sinks: destinations for the rows of the comparison, besides the logs.
        changes: fields to change in all experiments: rounds=50, engine="events", or **{"solver.batch_size": 20}.
    """
    for name, value in (("points", points), ("seeds", seeds)):
        if not count.holds(value):
            raise ValueError(f"{name} must be {count.words}, got {value!r}.")
    bases = dict(comparison(task, algorithms, seeds=[0], variant=variant, changes=changes))
    first = next(iter(bases.values()))
    tuning = Tuning(bases, points, seeds, validation, select or _metric(first))
    _check(tuning)
    path = None if directory is None else pathlib.Path(directory)
    if path is not None:
        if (path / TUNING).exists():
            raise ValueError(
                f"{path} already has a tuning; run `fedloom resume {path}` to continue, or choose another directory."
            )
        plain = tuning.to_plain()
        new_directory(path)
        write_whole(path / TUNING, json.dumps(plain, indent=1).encode())
    return _go(tuning, path, progress, say, sinks)


def resume_tuning(
    directory: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    say: Say | None = None,
    sinks: Sequence[OpenSink] = (),
) -> Study:
    """Go on with a tuning: what was run is read, and the search takes the same way as if it had never stopped."""
    path = pathlib.Path(directory)
    plain = read_json(path / TUNING)
    bases = {name: from_toml(text, str(path / TUNING)) for name, text in plain["bases"].items()}
    return _go(Tuning(**{**plain, "bases": bases}), path, progress, say, sinks)


def _metric(experiment: Experiment) -> str:
    """What the task's target is about, on validation data; the objective itself for tasks without examples."""
    task = experiment.base_task()
    if task.model is None:
        return "train loss"
    return "validation " + (task.target[0].removeprefix("test ") if task.target else "loss")


def _check(tuning: Tuning) -> None:
    """Raise a ValueError for whatever cannot be run, before anything is compiled."""
    if tuning.metric.startswith("test ") or tuning.metric.startswith("own test "):
        raise ValueError(
            f"select: {tuning.metric!r} is measured on test data, which must not decide; use 'validation "
            f"{tuning.metric.split('test ')[1]}'."
        )
    for method, base in tuning.bases.items():
        axes_of(method, base)
        base.check()
        known = known_metrics(changed(base, tuning.held_out).load())
        if tuning.metric not in known:
            raise ValueError(f"select: there is no metric {tuning.metric!r}.{nearest(tuning.metric, known)}")
        tuning.experiment(method, {}, FIRST_SEED).check()


class _Search:
    """The search of one method: what was tried, and how it went."""

    def __init__(self, tuning: Tuning, method: str, path: pathlib.Path | None):
        self.tuning, self.method, self.path = tuning, method, path
        self.axes = axes_of(method, tuning.bases[method])
        self.tried: dict[Place, Score] = {}
        self.batches = 0
        self.larger = False  # whether larger values of the metric are better
        last = max(1, tuning.bases[method].rounds // LAST)
        self.select, self.between_equals = Select(tuning.metric, last), Select(tuning.loss, last)

    def go_on(self, points: int, progress: Progress | None, say: Say | None) -> None:
        """Try places until there are so many."""
        while len(self.tried) < points:
            places = next_places(self.axes, self.tried, min(BATCH, points - len(self.tried)))
            if not places:
                return
            self._try(places, progress)
            if say is not None:
                say(f"{self.method}: {len(self.tried)} of {points} points, {self.words}")

    def _try(self, places: Sequence[Place], progress: Progress | None) -> None:
        self.batches += 1
        names = {place: f"{self.method} {_named(self.values(place))}" for place in places}
        path = None if self.path is None else self.path / self.method / f"batch-{self.batches:02}"
        if path is not None and (path / STUDY).exists():
            study = resume_sweep(path, progress=progress)
            if [*study.about["points"]] != [*names.values()]:
                raise ValueError(f"{path} has other points than this version of FedLoom would try; tune again.")
            results = study.results
        else:
            results = run_side_by_side(self._place(names, path), progress)
        for place, name in names.items():
            self.tried[place] = self._score([r for r in results if r.name == name])

    def _place(self, names: Mapping[Place, str], path: pathlib.Path | None) -> list[Any]:
        seeds = range(FIRST_SEED, FIRST_SEED + self.tuning.seeds)
        values = {name: self.values(place) for place, name in names.items()}
        runs = [(name, self.tuning.experiment(self.method, v, s)) for name, v in values.items() for s in seeds]
        task = self.tuning.bases[self.method].base_task()
        over = {field: sorted({v[field] for v in values.values()}) for field in next(iter(values.values()))}
        about = {
            "kind": "sweep",
            "over": {**over, "seed": [*seeds]},
            "random": None,
            "select": dataclasses.asdict(self.select),
            "points": values,
        }
        title = f"{task.name}: tuning {self.method}, batch {self.batches}"
        return create_study(runs, path, title=title, target=task.target, about=about)

    def _score(self, results: Sequence[Result]) -> Score:
        """The means over seeds, smaller being better.

        A place loses if one of its runs diverged, or if it ends no better than the initial model: between places that
        learned nothing, chance would decide.
        """
        mean, loss = (float(np.mean([s.score(r) for r in results])) for s in (self.select, self.between_equals))
        if not (math.isfinite(mean) and math.isfinite(loss)):
            return LOST
        first = float(np.mean([r.rows[0][self.tuning.metric] for r in results]))
        self.larger = results[0].larger_is_better(self.tuning.metric)
        sign = -1 if self.larger else 1
        return (sign * mean, loss) if sign * mean < sign * first else LOST

    def values(self, place: Place) -> dict[str, float]:
        values = {axis.field: axis.value(step) for axis, step in zip(self.axes, place, strict=True)}
        return {field: value for field, value in values.items() if value is not None}

    @property
    def best(self) -> dict[str, float]:
        return self.values(best_place(self.tried))

    @property
    def score(self) -> float | None:
        """The metric at the best place; None if every place lost."""
        score = self.tried[best_place(self.tried)]
        return None if score == LOST else -score[0] if self.larger else score[0]

    @property
    def origin(self) -> Tuned:
        every = [self.values(place) for place in self.tried]
        over = {axis.field: tuple(sorted({v[axis.field] for v in every})) for axis in self.axes}
        edges, limits = ends(self.axes, self.tried, best_place(self.tried))
        return Tuned(len(self.tried), self.tuning.seeds, self.tuning.metric, over, edges, limits)

    @property
    def words(self) -> str:
        score = self.score
        return (
            "no better than the initial model"
            if score is None
            else f"{self.tuning.metric} {score:.4g} with {_named(self.best)}"
        )

    def to_plain(self) -> dict[str, Any]:
        origin = self.origin
        found = {"origin": origin.kind, "words": origin.words, **dataclasses.asdict(origin)}
        return {**found, "values": self.best, "score": self.score}


def _named(values: Mapping[str, float]) -> str:
    return ",".join(f"{field}={short(value)}" for field, value in values.items())


def _go(
    tuning: Tuning,
    path: pathlib.Path | None,
    progress: Progress | None,
    say: Say | None,
    sinks: Sequence[OpenSink],
) -> Study:
    searches = [_Search(tuning, method, None if path is None else path / "tuning") for method in tuning.bases]
    points = tuning.points
    for search in searches:
        search.go_on(points, progress, say)
    while points < AT_MOST * tuning.points and any(search.origin.edges for search in searches):
        points = min(points + BATCH, AT_MOST * tuning.points)
        for search in searches:
            search.go_on(points, progress, say)
    kept = [search for search in searches if search.score is not None]
    if not kept:
        raise ValueError("No point of any method is better than the initial model; start from smaller step sizes.")
    best = {search.method: changed(tuning.bases[search.method], search.best) for search in kept}
    if path is not None:
        (path / SETTINGS).mkdir(exist_ok=True)
        for search in kept:
            text = f"# {search.origin.words}\n{best[search.method].to_toml()}"
            write_whole(path / SETTINGS / f"{search.method}.toml", text.encode())
        if (path / COMPARISON / STUDY).exists():
            return resume_study(path / COMPARISON, None, progress, sinks)
    task = next(iter(best.values())).base_task()
    return run_all(
        [(method, changed(e, {"seed": seed})) for method, e in best.items() for seed in range(tuning.seeds)],
        None if path is None else path / COMPARISON,
        title=f"{task.name}: a comparison of tuned methods",
        target=task.target,
        about={"kind": "comparison", "tuning": {search.method: search.to_plain() for search in searches}},
        progress=progress,
        sinks=sinks,
    )
