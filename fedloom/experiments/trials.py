"""The trials of a tuning: the points that one method tried, a few at a time, and the best of them."""

import dataclasses
import math
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.experiments.changes import changed
from fedloom.experiments.definition import Experiment
from fedloom.experiments.files import Damaged
from fedloom.experiments.points import short
from fedloom.experiments.result import Result
from fedloom.experiments.search import LOST, Place, Score, best_place, ends, next_places
from fedloom.experiments.side_by_side import run_side_by_side
from fedloom.experiments.spaces import axes_of
from fedloom.experiments.study import STUDY, PlacedRun, Progress, create_study
from fedloom.experiments.study_file import directory_name
from fedloom.experiments.sweeps import Select, resume_sweep
from fedloom.experiments.used_files import digests
from fedloom.tasks import Tuned

FIRST_SEED = 1000  # tuning uses the seeds from here on, comparisons those from 0
BATCH = 4  # points side by side: one program for all batches of a method, and the search learns after each
LAST = 5  # points are judged by the last fifth of the rounds


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
        bases = {name: e.to_toml() for name, e in self.bases.items()}
        return {**dataclasses.asdict(self), "bases": bases, "files": digests(self.bases.values())}


class Trials:
    """The points of one method that were tried, and how they did."""

    def __init__(self, tuning: Tuning, method: str, path: pathlib.Path | None):
        self.tuning, self.method, self.path = tuning, method, path
        self.axes = axes_of(method, tuning.bases[method])
        self.tried: dict[Place, Score] = {}
        self.batches = 0
        self.larger = False  # whether larger values of the metric are better
        last = max(1, tuning.bases[method].rounds // LAST)
        self.select, self.between_equals = Select(tuning.metric, last), Select(tuning.loss, last)

    def go_on(self, points: int, progress: Progress | None) -> None:
        """Try places until there are so many."""
        while len(self.tried) < points:
            places = next_places(self.axes, self.tried, min(BATCH, points - len(self.tried)))
            if not places:
                return
            self._try(places, progress)
            if progress is not None:
                progress.say(f"{self.method}: {len(self.tried)} of {points} points, {self.words}")

    def _try(self, places: Sequence[Place], progress: Progress | None) -> None:
        self.batches += 1
        names = {place: f"{self.method} {_named(self.values(place))}" for place in places}
        path = None if self.path is None else self.path / directory_name(self.method) / f"batch-{self.batches:02}"
        if path is not None and (path / STUDY).exists():
            study = resume_sweep(path, progress=progress)
            if [*study.about["points"]] != [*names.values()]:
                raise ValueError(f"{path} has other points than this version of FedLoom would try; tune again.")
            results = study.results
            if bad := [r for r in results if r.damaged is not None]:
                again = f"fedloom resume {shlex.quote(str(path))} --again RUN"
                raise Damaged(f"{bad[0].name} cannot be judged: {bad[0].damaged} Begin it again with `{again}`.")
        else:
            results = run_side_by_side(self._place(names, path), progress)
        for place, name in names.items():
            self.tried[place] = self._score([r for r in results if r.name == name])

    def _place(self, names: Mapping[Place, str], path: pathlib.Path | None) -> list[PlacedRun]:
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
        if self.score is None:
            return "none better than the initial model"
        return f"best {self.tuning.metric} {self.score:.4g} with {_named(self.best)}"

    def to_plain(self) -> dict[str, Any]:
        origin = self.origin
        found = {"origin": origin.kind, "words": origin.words, **dataclasses.asdict(origin)}
        return {**found, "values": self.best, "score": self.score}


def _named(values: Mapping[str, float]) -> str:
    return ",".join(f"{field}={short(value)}" for field, value in values.items())
