"""A study: several experiments, each with several seeds, in one directory; stopped at any moment, it can be resumed."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fedloom.experiments.about import about as about_task
from fedloom.experiments.experiment import Experiment, from_toml
from fedloom.experiments.files import write_whole
from fedloom.experiments.result import Result, Row
from fedloom.experiments.run import CONFIG, default_name, new_directory, plan, read, read_config, resume, run
from fedloom.hyperparameters import nearest

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
    _places(runs)  # names must differ
    known = {
        metric for _, experiment in runs for metric in about_task(experiment.check(), experiment.own_models)["metrics"]
    }
    if target is not None and target[0] not in known:
        raise ValueError(f"target: there is no metric {target[0]!r}.{nearest(target[0], known)}")
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
    places = _places(runs)
    named = [
        {"name": name, "run": place, "config": experiment.to_toml()}
        for place, (name, experiment) in zip(places, runs, strict=True)
    ]
    plain = {"title": title, "target": target, "about": dict(about), "runs": named}
    new_directory(path)
    write_whole(path / STUDY, json.dumps(plain, indent=1).encode())  # from here on it can be resumed
    return [planned(path / place, experiment) for place, (_, experiment) in zip(places, runs, strict=True)]


def planned(place: pathlib.Path, experiment: Experiment) -> pathlib.Path:
    """The directory of a run, made if it is not there."""
    if not (place / CONFIG).exists():
        plan(experiment, place)
    return place


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
    runs = [(r["name"], given.get(r["run"]) or _config(path, r), path / r["run"]) for r in plain["runs"]]
    for _, experiment, place in runs:
        planned(place, experiment)
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
    return _study(path, plain, [_read(path, r) for r in plain["runs"]])


def _config(path: pathlib.Path, run: Mapping[str, str]) -> Experiment:
    """A run's own file, or what the study has planned."""
    place = path / run["run"]
    return read_config(place) if (place / CONFIG).exists() else from_toml(run["config"], str(path / STUDY))


def _read(path: pathlib.Path, run: Mapping[str, str]) -> Result:
    place = path / run["run"]
    if (place / CONFIG).exists():
        return read(place, run["name"])
    return Result(run["name"], _config(path, run), [], {"metrics": {}}, 0.0, place)


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
    """Results of one name must be seeds of one experiment; where they are not, the directory goes into the name."""
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
    try:
        return json.loads((path / STUDY).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path / STUDY} is damaged: {error}.") from error


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
    if len({(name, e.seed) for name, e in runs}) < len(runs):
        names = [(name, e.seed) for name, e in runs]
        name, seed = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"Two experiments have the name {name!r} and the seed {seed}; give them names of their own.")
    words = {name: _word(name) for name, _ in runs}
    if len(set(words.values())) < len(words):  # names that look alike as directories
        words = {name: f"{word}-{_short_hash(name)}" for name, word in words.items()}
    return [f"{words[name]}/seed-{e.seed}" for name, e in runs]


def _word(name: str) -> str:
    """A name as that of a directory: nothing that leads elsewhere, and not too long."""
    word = re.sub(r"[^\w.=,+-]+", "-", name).strip("-.") or "run"
    return word if len(word.encode()) <= 100 else f"{word[:30]}-{_short_hash(name)}"


def _short_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]
