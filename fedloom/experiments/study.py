"""A study: several experiments, each with several seeds, in one directory; stopped at any moment, it can be resumed."""

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fedloom.experiments.experiment import Experiment
from fedloom.experiments.files import write_whole
from fedloom.experiments.result import Result, Row
from fedloom.experiments.run import CONFIG, default_name, new_directory, plan, read, read_config, resume, run

STUDY = "study.json"


class Progress(Protocol):
    """What wants to know how a study goes on."""

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None: ...
    def row(self, name: str, experiment: Experiment, row: Row) -> None: ...
    def end(self, result: Result) -> None: ...
    def close(self) -> None: ...  # also after an interruption


class Sink(Protocol):
    """Where the rows of one run go besides its log."""

    def row(self, row: Row) -> None: ...
    def close(self) -> None: ...


OpenSink = Callable[[str, Experiment, pathlib.Path | None], Sink]


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """The results of several experiments, and what they are compared by."""

    title: str
    results: Sequence[Result]
    target: tuple[str, float] | None = None  # a metric and the value to reach
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what made it, and what it wants to know later
    directory: pathlib.Path | None = None


Runs = Sequence[tuple[str, Experiment]]


def run_all(
    runs: Runs,
    directory: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    target: tuple[str, float] | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
) -> Study:
    """Run experiments one after the other. A name may have several, which differ in the seed.

    One that diverges is a result like the others. All are checked before the first is run.
    """
    for _, experiment in runs:
        experiment.check()
    if directory is None:
        results = _run_each([(name, e, None) for name, e in runs], progress, sinks)
        return Study(title, results, target, about or {})
    path = pathlib.Path(directory)
    plan_study(runs, path, title=title, target=target, about=about or {})
    return resume_study(path, dict(zip(_places(runs), (e for _, e in runs), strict=True)), progress, sinks)


def plan_study(
    runs: Runs, path: pathlib.Path, *, title: str, target: tuple[str, float] | None, about: Mapping[str, Any]
) -> list[pathlib.Path]:
    """Make the directory of a study, and in it the directory of each run; these are returned."""
    if (path / STUDY).exists():
        raise ValueError(f"{path} has a study already: `fedloom resume {path}` goes on; or take a new directory.")
    new_directory(path)
    places = _places(runs)
    for place, (_, experiment) in zip(places, runs, strict=True):
        plan(experiment, path / place)
    named = [{"name": name, "run": place} for place, (name, _) in zip(places, runs, strict=True)]
    plain = {"title": title, "target": target, "about": dict(about), "runs": named}
    write_whole(path / STUDY, json.dumps(plain, indent=1).encode())
    return [path / place for place in places]


def resume_study(
    directory: str | os.PathLike[str],
    experiments: Mapping[str, Experiment] | None = None,
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
) -> Study:
    """Run what is left of a study. Experiments by directory are needed only for tasks that have no name."""
    path = pathlib.Path(directory)
    plain = _read_plain(path)
    given = experiments or {}
    places = [(r["name"], path / r["run"], given.get(r["run"])) for r in plain["runs"]]
    runs = [(name, e or read_config(place), place) for name, place, e in places]
    return _study(path, plain, _run_each(runs, progress, sinks))


def resume_alone(
    directory: str | os.PathLike[str], progress: Progress | None = None, sinks: Sequence[OpenSink] = ()
) -> Study:
    """Go on with a single run, as a study of its own."""
    path = pathlib.Path(directory)
    experiment = read_config(path)
    name = default_name(experiment)
    results = _run_each([(name, experiment, path)], progress, sinks)
    task = experiment.base_task()
    return Study(f"{task.name}: {name}", results, task.target, {}, path)


def read_study(directory: str | os.PathLike[str]) -> Study:
    """A study as its directory has it, finished or not."""
    path = pathlib.Path(directory)
    plain = _read_plain(path)
    return _study(path, plain, [read(path / r["run"], r["name"]) for r in plain["runs"]])


def _study(path: pathlib.Path, plain: dict[str, Any], results: Sequence[Result]) -> Study:
    target = None if plain["target"] is None else (plain["target"][0], plain["target"][1])
    return Study(plain["title"], results, target, plain["about"], path)


def find_runs(directories: Sequence[str | os.PathLike[str]]) -> Study:
    """All runs below the given directories, as one study."""
    paths = [pathlib.Path(d) for d in directories]
    if len(paths) == 1 and (paths[0] / STUDY).exists():
        return read_study(paths[0])
    results: list[Result] = []
    targets: list[tuple[str, float] | None] = []
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"There is no directory {path}.")
        if (path / STUDY).exists():
            study = read_study(path)
            results += study.results
            targets.append(study.target)
            continue
        found = sorted(config.parent for config in path.rglob(CONFIG))
        if not found:
            raise ValueError(f"There is no run in {path}: no {CONFIG} in it or below it.")
        results += (here := [read(run_path) for run_path in found])
        targets += [(t[0], t[1]) if (t := result.about.get("target")) else None for result in here]
    target = targets[0] if targets and all(t == targets[0] for t in targets) else None
    return Study(", ".join(str(p) for p in paths), results, target)


def _read_plain(path: pathlib.Path) -> dict[str, Any]:
    if not (path / STUDY).is_file():
        raise ValueError(f"{path} is not the directory of a study: it has no {STUDY}.")
    return json.loads((path / STUDY).read_bytes())


def _run_each(
    runs: Sequence[tuple[str, Experiment, pathlib.Path | None]], progress: Progress | None, sinks: Sequence[OpenSink]
) -> list[Result]:
    if progress is None:
        return [run_one(name, e, place, None, sinks) for name, e, place in runs]
    progress.begin([(name, e) for name, e, _ in runs])
    try:
        return [run_one(name, e, place, progress, sinks) for name, e, place in runs]
    finally:
        progress.close()


def run_one(
    name: str,
    experiment: Experiment,
    directory: pathlib.Path | None,
    progress: Progress | None,
    sinks: Sequence[OpenSink],
) -> Result:
    opened = [open_sink(name, experiment, directory) for open_sink in sinks]
    watch: list[Callable[[Row], None]] = [sink.row for sink in opened]
    if progress is not None:
        watch.append(lambda row: progress.row(name, experiment, row))
    try:
        if directory is None:
            result = run(experiment, name=name, watch=watch)
        else:
            result = resume(directory, experiment=experiment, name=name, watch=watch)
    finally:
        for sink in opened:
            sink.close()
    if progress is not None:
        progress.end(result)
    return result


def _places(runs: Runs) -> list[str]:
    """A directory for each run: its name, and below it the seed."""
    places = [f"{re.sub('[^A-Za-z0-9.=_,+-]+', '-', name).strip('-')}/seed-{e.seed}" for name, e in runs]
    if len(set(places)) < len(places):
        twice = next(p for p in places if places.count(p) > 1)
        raise ValueError(f"Two experiments have the same name and seed: {twice}.")
    return places
