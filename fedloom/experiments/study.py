"""A study: several experiments, each with several seeds, in one directory. It can be stopped and resumed."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fedloom.experiments.definition import Checked, Experiment, method_name
from fedloom.experiments.files import write_whole
from fedloom.experiments.result import Result, Row
from fedloom.experiments.run_directory import CONFIG, create_run, new_directory, read, read_config, read_json
from fedloom.experiments.runs import finish
from fedloom.experiments.settings import from_toml
from fedloom.experiments.terms import Terms
from fedloom.hyperparameters import nearest

STUDY = "study.json"
TERMS = Terms()


class Progress(Protocol):
    """A progress reporter of a study."""

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None: ...
    def row(self, name: str, experiment: Experiment, row: Row) -> None: ...
    def end(self, result: Result) -> None: ...
    def close(self) -> None: ...  # also after an interruption


class Sink(Protocol):
    """A destination for the rows of one run, besides its log."""

    def row(self, row: Row) -> None: ...
    def close(self) -> None: ...


OpenSink = Callable[[str, Experiment, pathlib.Path | None], Sink]


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """The results of several experiments, and the target that they are compared by."""

    title: str
    results: Sequence[Result]
    target: tuple[str, float] | None = None  # a metric and the value to reach
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # its kind, and what that kind needs later
    directory: pathlib.Path | None = None
    terms: Terms = TERMS


Runs = Sequence[tuple[str, Experiment]]


class PlacedRun(NamedTuple):
    """A run of a study, with its directory, which exists; None keeps the run in memory."""

    name: str
    experiment: Experiment
    directory: pathlib.Path | None
    checked: Checked | None = None  # of a run that starts at once; the data of a whole study may not fit into memory


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
) -> Study:
    """Run experiments one after the other. Those with the same name differ in the seed.

    All are checked before the first is run. A run that diverges is a result like any other.
    """
    _places(runs)  # raises for two runs with the same name and seed
    evaluated, possible = set[str](), dict[str, tuple[str, ...]]()  # metrics; metrics, and what else is evaluated
    for _, experiment in runs:
        evaluation = experiment.check().evaluation
        evaluated |= evaluation.metrics.keys()
        possible |= dict.fromkeys(evaluation.known, evaluation.what)
    if target is not None and target[0] not in evaluated:
        if target[0] in possible:
            what = ",".join((*possible[target[0]], target[0]))
            raise ValueError(f"target: {target[0]!r} is not evaluated; add it: --evaluate {what!r}.")
        raise ValueError(f"target: there is no metric {target[0]!r}.{nearest(target[0], evaluated | possible.keys())}")
    path = None if directory is None else pathlib.Path(directory)
    placed = create_study(runs, path, title=title, target=target, terms=terms, about=about or {})
    return Study(title, _run_each(placed, progress, sinks), target, about or {}, path, terms)


def run_alone(
    experiment: Experiment,
    directory: str | os.PathLike[str],
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
) -> Study:
    """Run a single experiment in a new directory, as a study of its own."""
    checked = experiment.check()
    create_run(experiment, directory)
    return _alone(experiment, pathlib.Path(directory), progress, sinks, checked)


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
    if (path / STUDY).exists():
        raise ValueError(
            f"{path} already has a study; run `fedloom resume {path}` to continue, or choose another directory."
        )
    places = _places(runs)
    named = [
        {"name": name, "run": place, "config": experiment.to_toml()}
        for place, (name, experiment) in zip(places, runs, strict=True)
    ]
    judged = dataclasses.asdict(terms)
    plain = {"title": title, "target": target, "terms": judged, "about": dict(about), "runs": named}
    new_directory(path)
    write_whole(path / STUDY, json.dumps(plain, indent=1).encode())  # from here on it can be resumed
    return [place_run(name, experiment, path / place) for place, (name, experiment) in zip(places, runs, strict=True)]


def place_run(name: str, experiment: Experiment, directory: pathlib.Path) -> PlacedRun:
    """A run with its directory, which is made if it does not exist."""
    if not (directory / CONFIG).exists():
        create_run(experiment, directory)
    return PlacedRun(name, experiment, directory)


def resume_study(
    directory: str | os.PathLike[str],
    experiments: Mapping[str, Experiment] | None = None,
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
) -> Study:
    """Run what is left of a study.

    Args:
        directory: that of the study.
        experiments: by the directories of their runs; needed only for tasks that are neither registered nor in a file.
        progress: a progress reporter.
        sinks: destinations for the rows, besides the logs.
    """
    path = pathlib.Path(directory)
    plain = _read_plain(path)
    given = experiments or {}
    runs = [(r["name"], given.get(r["run"]) or _config(path, r), path / r["run"]) for r in plain["runs"]]
    return _study(path, plain, _run_each([place_run(*run) for run in runs], progress, sinks))


def resume_alone(
    directory: str | os.PathLike[str], progress: Progress | None = None, sinks: Sequence[OpenSink] = ()
) -> Study:
    """Continue a single run, as a study of its own."""
    path = pathlib.Path(directory)
    return _alone(read_config(path), path, progress, sinks)


def _alone(
    experiment: Experiment,
    path: pathlib.Path,
    progress: Progress | None,
    sinks: Sequence[OpenSink],
    checked: Checked | None = None,
) -> Study:
    name, task = method_name(experiment.algorithm), experiment.base_task()
    results = _run_each([PlacedRun(name, experiment, path, checked)], progress, sinks)
    target = task.target if task.target is not None and task.target[0] in results[0].metrics else None
    return Study(f"{task.name}: {name}", results, target, {}, path)


def read_study(directory: str | os.PathLike[str]) -> Study:
    """A study, finished or not, from its directory."""
    path = pathlib.Path(directory)
    plain = _read_plain(path)
    return _study(path, plain, [_read(path, r) for r in plain["runs"]])


def _config(path: pathlib.Path, run: Mapping[str, str]) -> Experiment:
    """The experiment of a run: from its own file, or from the study's if the run has no directory yet."""
    place = path / run["run"]
    return read_config(place) if (place / CONFIG).exists() else from_toml(run["config"], str(path / STUDY))


def _read(path: pathlib.Path, run: Mapping[str, str]) -> Result:
    place = path / run["run"]
    if (place / CONFIG).exists():
        return read(place, run["name"])
    return Result(run["name"], _config(path, run), [], {"metrics": {}}, 0.0, place)


def _study(path: pathlib.Path, plain: dict[str, Any], results: Sequence[Result]) -> Study:
    target = None if plain["target"] is None else (plain["target"][0], plain["target"][1])
    return Study(plain["title"], results, target, plain["about"], path, Terms.from_plain(plain.get("terms", {})))


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
        studies = [read_study(file.parent) for file in sorted(path.rglob(STUDY))]
        inside = {r.directory for study in studies for r in study.results}
        alone = [read(c.parent) for c in sorted(path.rglob(CONFIG)) if c.parent not in inside]
        if not studies and not alone:
            raise ValueError(f"There is no run in {path}: no {CONFIG} in it or below it.")
        results += [r for study in studies for r in study.results] + alone
        targets += [study.target for study in studies]
        targets += [(t[0], t[1]) if (t := r.about.get("target")) else None for r in alone]
    target = targets[0] if targets and all(t == targets[0] for t in targets) else None
    return Study(", ".join(str(p) for p in paths), _told_apart(results), target)


def _told_apart(results: Sequence[Result]) -> list[Result]:
    """Results with the same name must be seeds of one experiment; otherwise the directory becomes part of the name."""
    kinds: dict[tuple[str, str], dict[str, set[int]]] = {}
    mixed = set()
    for r in results:
        group = (r.experiment.to_plain()["task"], r.name)
        config = dataclasses.replace(r.experiment, seed=0).to_toml()
        seeds = kinds.setdefault(group, {}).setdefault(config, set())
        if len(kinds[group]) > 1 or r.experiment.seed in seeds:
            mixed.add(group)
        seeds.add(r.experiment.seed)

    def named(r: Result) -> Result:
        if (r.experiment.to_plain()["task"], r.name) not in mixed:
            return r
        place = r.directory.parent if r.directory and r.directory.name.startswith("seed-") else r.directory
        return dataclasses.replace(r, name=f"{r.name} ({place})")

    return [named(r) for r in results]


def _read_plain(path: pathlib.Path) -> dict[str, Any]:
    if not path.is_dir():
        raise ValueError(f"There is no directory {path}.")
    if not (path / STUDY).is_file():
        raise ValueError(f"{path} is not the directory of a study: it has no {STUDY}.")
    return read_json(path / STUDY)


def _run_each(runs: Sequence[PlacedRun], progress: Progress | None, sinks: Sequence[OpenSink]) -> list[Result]:
    if progress is None:
        return [run_one(run, None, sinks) for run in runs]
    progress.begin([(run.name, run.experiment) for run in runs])
    try:
        return [run_one(run, progress, sinks) for run in runs]
    finally:
        progress.close()


def run_one(run: PlacedRun, progress: Progress | None = None, sinks: Sequence[OpenSink] = ()) -> Result:
    """Run what is left of one run of a study."""
    name, experiment, directory, checked = run
    opened = [open_sink(name, experiment, directory) for open_sink in sinks]
    watch: list[Callable[[Row], None]] = [sink.row for sink in opened]
    if progress is not None:
        watch.append(lambda row: progress.row(name, experiment, row))
    try:
        result = finish(experiment, directory, name=name, watch=watch, checked=checked)
    finally:
        for sink in opened:
            sink.close()
    if progress is not None:
        progress.end(result)
    return result


def _places(runs: Runs) -> list[str]:
    """The directory of each run inside the study: its name, and below it the seed."""
    if len({(name, e.seed) for name, e in runs}) < len(runs):
        names = [(name, e.seed) for name, e in runs]
        name, seed = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"Two experiments have the name {name!r} and the seed {seed}; give them different names.")
    words = {name: _word(name) for name, _ in runs}
    if len(set(words.values())) < len(words):  # distinct names that would share a directory
        words = {name: f"{word}-{_short_hash(name)}" for name, word in words.items()}
    return [f"{words[name]}/seed-{e.seed}" for name, e in runs]


def _word(name: str) -> str:
    """The name of a directory: without anything that leads elsewhere, and not too long."""
    word = re.sub(r"[^\w.=,+-]+", "-", name).strip("-.") or "run"
    return word if len(word.encode()) <= 100 else f"{word[:30]}-{_short_hash(name)}"


def _short_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]
