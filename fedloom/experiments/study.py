"""A study: several experiments, each with several seeds, in one directory. It can be stopped and resumed."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedloom.experiments.definition import Checked, Experiment, method_name
from fedloom.experiments.files import DRAFT, Damaged, only_one, reading
from fedloom.experiments.following import OpenSink as OpenSink
from fedloom.experiments.following import Progress as Progress
from fedloom.experiments.following import Sink as Sink
from fedloom.experiments.result import Result, Row, to_pandas
from fedloom.experiments.run_directory import CONFIG, create_run, lengthen, new_directory, read, read_config
from fedloom.experiments.runs import created, finish
from fedloom.experiments.study_file import STUDY as STUDY
from fedloom.experiments.study_file import Runs as Runs
from fedloom.experiments.study_file import (
    at_this_commit,
    check_study_files,
    listed,
    listed_experiment,
    places,
    read_study_file,
    refuse_study,
    write_study_file,
)
from fedloom.experiments.terms import Terms, check_target
from fedloom.experiments.used_files import digests
from fedloom.hyperparameters import nearest

TERMS = Terms()


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """The results of several experiments, and the target that they are compared by."""

    title: str
    results: Sequence[Result]
    target: tuple[str, float] | None = None  # a metric and the value to reach
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # its kind, and what that kind needs later
    directory: pathlib.Path | None = None
    terms: Terms = TERMS

    def to_pandas(self) -> Any:
        """The logs of all runs as one pandas DataFrame, with the columns "name" and "seed"."""
        return to_pandas(self.results)

    def _repr_html_(self) -> str:
        from fedloom.report.notebook import study_html  # imported late: drawing takes half a second to import

        return study_html(self)


class PlacedRun(NamedTuple):
    """A run of a study, with its directory, which exists; None keeps the run in memory."""

    name: str
    experiment: Experiment
    directory: pathlib.Path | None
    checked: Checked | None = None  # of a run that starts at once; the data of a whole study may not fit into memory
    damaged: str | None = None  # why it cannot be continued


def run_all(
    runs: Runs,
    directory: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    target: tuple[str, float] | None = None,
    terms: Terms = TERMS,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
    each: "RunEach | None" = None,
) -> Study:
    """Run experiments, one after the other or as `each` does it. Those with the same name differ in the seed.

    All are checked before the first is run. A run that diverges is a result like any other.
    """
    places(runs)  # raises for two runs with the same name and seed
    check_runs(runs, target)
    path = None if directory is None else pathlib.Path(directory)
    placed = create_study(runs, path, title=title, target=target, terms=terms, about=about or {})
    with contextlib.nullcontext() if path is None else only_one(path):
        return Study(title, (each or _run_each)(placed, progress, sinks), target, about or {}, path, terms)


def check_runs(runs: Runs, target: tuple[str, float] | None) -> None:
    """Raise a ValueError for a run that cannot be run, and for a target that none of them evaluates or that is met."""
    evaluated, possible = set[str](), dict[str, tuple[str, ...]]()  # metrics; metrics, and what else is evaluated
    for i, (_, experiment) in enumerate(runs):
        checked = experiment.check()
        evaluation = checked.evaluation
        evaluated |= evaluation.metrics.keys()
        possible |= dict.fromkeys(evaluation.known, evaluation.what)
        if i == 0 and target is not None and (metric := evaluation.metrics.get(target[0])) is not None:
            check_target(*target, metric.bounds)
            start, sign = evaluation.of(checked.loaded.w)[target[0]], 1 if metric.larger_is_better else -1
            if sign * start >= sign * target[1]:
                raise ValueError(
                    f"target: {target[0]} of the initial model is {start:.4g} already, so reaching {target[1]:g} says "
                    "nothing; choose one that is harder to reach."
                )
    if target is not None and target[0] not in evaluated:
        if target[0] in possible:
            what = ",".join((*possible[target[0]], target[0]))
            raise ValueError(f"target: {target[0]!r} is not evaluated; add it: --evaluate {what!r}.")
        raise ValueError(f"target: there is no metric {target[0]!r}.{nearest(target[0], evaluated | possible.keys())}")


def run_alone(
    experiment: Experiment,
    directory: str | os.PathLike[str],
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
) -> Study:
    """Run a single experiment in a new directory, as a study of its own."""
    checked = experiment.check()
    return _alone(experiment, created(experiment, directory), progress, sinks, checked)


def create_study(
    runs: Runs,
    path: pathlib.Path | None,
    *,
    title: str,
    target: tuple[str, float] | None,
    about: Mapping[str, Any],
    terms: Terms = TERMS,
) -> list[PlacedRun]:
    """Make the directory of a study, and in it that of each run; nothing if there is no path."""
    if path is None:
        return [PlacedRun(name, experiment, None) for name, experiment in runs]
    refuse_study(path)
    inside, judged = places(runs), dataclasses.asdict(terms)
    plain = {"title": title, "target": target, "terms": judged, "about": dict(about), "runs": listed(runs, inside)}
    plain["files"] = digests(e for _, e in runs)
    new_directory(path)
    write_study_file(path, plain)  # from here on it can be resumed
    return [place_run(name, experiment, path / place) for place, (name, experiment) in zip(inside, runs, strict=True)]


def place_run(name: str, experiment: Experiment, directory: pathlib.Path) -> PlacedRun:
    """A run with its directory, which is made if it does not exist; a shorter run gets the experiment's rounds."""
    try:
        if not _exists(directory):
            create_run(experiment, directory)
        elif _own_config(directory, experiment).rounds < experiment.rounds:
            lengthen(directory, experiment)
    except Damaged as error:
        return PlacedRun(name, experiment, directory, damaged=str(error))
    return PlacedRun(name, experiment, directory)


def _exists(directory: pathlib.Path) -> bool:
    """Has the run been created? Drafts are what a kill left of the attempt."""
    with reading(directory):
        return directory.is_dir() and any(file.suffix != DRAFT for file in directory.iterdir())


def _own_config(directory: pathlib.Path, experiment: Experiment) -> Experiment:
    """The experiment of a run's directory, which may only have fewer rounds than the study says."""
    if not (directory / CONFIG).is_file():
        raise Damaged(f"{directory / CONFIG} is missing.")
    own = read_config(directory)
    if own.rounds > experiment.rounds or dataclasses.replace(own, rounds=experiment.rounds).to_toml() != (
        experiment.to_toml()
    ):
        raise Damaged(f"{directory / CONFIG} was changed: it differs from {STUDY}.")
    return own


def resume_runs(
    directory: str | os.PathLike[str],
    experiments: Mapping[str, Experiment] | None = None,
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
    each: "RunEach | None" = None,
) -> Study:
    """Run what is left of the runs that study.json lists; the arguments are those of `resume_study` and `run_all`."""
    path = pathlib.Path(directory)
    plain = read_study_file(path)
    given = experiments or {}
    runs = [(r["name"], given.get(r["run"]) or listed_experiment(path, r), path / r["run"]) for r in plain["runs"]]
    with only_one(path):
        placed = [place_run(*run) for run in runs]
        check_study_files(plain, runs)
        plain = at_this_commit(path, plain, runs)
        return _study(path, plain, (each or _run_each)(placed, progress, sinks))


def begin_again(directory: str | os.PathLike[str], *runs: str) -> None:
    """Put the files of each run aside, into a directory beside it: resuming the study runs it from its start."""
    path = pathlib.Path(directory)
    known = [r["run"] for r in read_study_file(path)["runs"]]
    for run in runs:
        if run not in known:
            raise ValueError(f"again: {path} has no run {run!r}.{nearest(run, known)}")
    for place in (path / run for run in runs):
        if _exists(place):
            with only_one(place):
                beside = (place.with_name(f"{place.name}.damaged-{n}") for n in itertools.count(1))
                place.rename(next(p for p in beside if not p.exists()))


def is_set_aside(directory: pathlib.Path) -> bool:
    """Is it what `begin_again` left?"""
    return re.fullmatch(r"seed-\d+\.damaged-\d+", directory.name) is not None


def resume_alone(
    directory: str | os.PathLike[str], progress: Progress | None = None, sinks: Sequence[OpenSink] = ()
) -> Study:
    """Continue a single run, as a study of its own."""
    path = pathlib.Path(directory)
    return _alone(read_config(path), directory, progress, sinks)


def _alone(
    experiment: Experiment,
    directory: str | os.PathLike[str] | None,
    progress: Progress | None,
    sinks: Sequence[OpenSink],
    checked: Checked | None = None,
) -> Study:
    name, path = method_name(experiment.algorithm), None if directory is None else pathlib.Path(directory)
    try:
        results = _run_each([PlacedRun(name, experiment, path, checked)], progress, sinks, _run_healthy)
    except Damaged as error:
        raise Damaged(f"{error} Run the experiment again in another directory.") from error
    facts = results[0].about
    goal = facts["target"] if facts["target"] and facts["target"][0] in results[0].metrics else None
    return Study(f"{facts['task']}: {name}", results, None if goal is None else (goal[0], goal[1]), {}, path)


def read_study(directory: str | os.PathLike[str]) -> Study:
    """A study, finished or not, from its directory."""
    path = pathlib.Path(directory)
    plain = read_study_file(path)
    return _study(path, plain, [_read(path, r) for r in plain["runs"]])


def _read(path: pathlib.Path, run: Mapping[str, str]) -> Result:
    name, place, experiment = run["name"], path / run["run"], listed_experiment(path, run)
    try:
        if not _exists(place):
            return Result(name, experiment, [], {"metrics": {}}, 0.0, place)
        return dataclasses.replace(read(place, name, _own_config(place, experiment)), experiment=experiment)
    except ValueError as error:
        return damaged_result(name, experiment, place, str(error))


def damaged_result(name: str, experiment: Experiment, directory: pathlib.Path | None, words: str) -> Result:
    """What is left of a run whose directory cannot be read."""
    return Result(name, experiment, [], {"metrics": {}}, 0.0, directory, damaged=words)


def _study(path: pathlib.Path, plain: dict[str, Any], results: Sequence[Result]) -> Study:
    target = None if plain["target"] is None else (plain["target"][0], plain["target"][1])
    return Study(plain["title"], results, target, plain["about"], path, Terms.from_plain(plain.get("terms", {})))


def run_one(run: PlacedRun, progress: Progress | None = None, sinks: Sequence[OpenSink] = ()) -> Result:
    """Run what is left of one run of a study, unless its directory is damaged."""
    try:
        return _run_healthy(run, progress, sinks)
    except Damaged as error:
        result = damaged_result(run.name, run.experiment, run.directory, str(error))
    if progress is not None:
        progress.end(result)
    return result


def _run_healthy(run: PlacedRun, progress: Progress | None, sinks: Sequence[OpenSink]) -> Result:
    name, experiment, directory, checked, damaged = run
    if damaged is not None:
        raise Damaged(damaged)

    def say(words: str) -> None:
        if progress is not None:
            progress.say(words)

    opened = [open_sink(name, experiment, directory) for open_sink in sinks]
    watch: list[Callable[[Row], None]] = [sink.row for sink in opened]
    if progress is not None:
        watch.append(lambda row: progress.row(name, experiment, row))
    try:
        result = finish(experiment, directory, name=name, watch=watch, checked=checked, say=say)
    finally:
        for sink in opened:
            sink.close()
    if progress is not None:
        progress.end(result)
    return result


RunOne = Callable[[PlacedRun, Progress | None, Sequence[OpenSink]], Result]
# How the runs of a study are run: all of them, with the reporter and the sinks, to their results in order.
RunEach = Callable[[Sequence[PlacedRun], Progress | None, Sequence[OpenSink]], list[Result]]


def _run_each(
    runs: Sequence[PlacedRun], progress: Progress | None, sinks: Sequence[OpenSink], one: RunOne = run_one
) -> list[Result]:
    if progress is None:
        return [one(run, None, sinks) for run in runs]
    progress.begin([(run.name, run.experiment) for run in runs])
    try:
        return [one(run, progress, sinks) for run in runs]
    finally:
        progress.close()
