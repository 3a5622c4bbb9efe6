"""Tune methods with equal effort, then compare them: every method gets the same number of points and seeds.

The directory has
* tuning.json: what was asked for, from which the rest follows;
* tuning/METHOD/batch-N: the points of a method, a few at a time, each a sweep that `fedloom report` can show;
* settings/METHOD.toml: the best point of a method, an experiment that `fedloom run` and `fedloom compare` take;
* comparison: a study of the best points on fresh seeds, with all training data.
"""

import json
import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from fedloom.experiments.arguments import Names, name_list, reporter
from fedloom.experiments.around import around as starts_of
from fedloom.experiments.changes import changed
from fedloom.experiments.comparisons import comparison
from fedloom.experiments.definition import Experiment
from fedloom.experiments.files import Damaged, write_whole
from fedloom.experiments.growth import resume_study
from fedloom.experiments.looking import looked
from fedloom.experiments.run_directory import new_directory, read_json
from fedloom.experiments.settings import from_toml
from fedloom.experiments.spaces import axes_of
from fedloom.experiments.study import OpenSink, Progress, Study, run_all
from fedloom.experiments.study_file import STUDY, directory_name
from fedloom.experiments.sweeps import Select
from fedloom.experiments.trials import BATCH, FIRST_SEED, Trials, Tuning
from fedloom.experiments.used_files import refuse_changed
from fedloom.hyperparameters import count, interval, nearest
from fedloom.tasks import Task

TUNING, COMPARISON, SETTINGS = "tuning.json", "comparison", "settings"
AT_MOST = 2  # times the points, if the best value of some method still lies at the edge of what was tried
SHARE = interval(0, 1)


def tune(
    task: str | Task = "digits",
    algorithms: Names | None = None,
    *,
    points: int = 24,
    seeds: int = 3,
    variant: str | None = None,
    validation: float = 0.2,
    select: str | None = None,
    around: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | bool | None = None,
    sinks: Sequence[OpenSink] = (),
    **changes: Any,
) -> Study:
    """Tune methods on a task with equal effort, then compare the best point of each on fresh seeds.

    A search starts at the task's settings, or at those of a file, and goes on in half decades until the best value of
    every field lies between others that were tried; remaining points are spent on steps half as large. If a best value
    still lies at an edge, all methods get more points, up to twice as many.

    Args:
        task: the name of a task, FILE.py:NAME, or a task.
        algorithms: names, also as "fedavg,scaffold", or FILE.py:NAME; None: all that the task has settings for.
        points: how many combinations of values each method may try.
        seeds: runs of each point, and runs of each method in the comparison, which has other seeds.
        variant: the settings of the task at which the searches start; the first for the engine if None.
        validation: the share of each client's training examples by which points are judged.
        select: the metric to judge by; None: what the task's target is about, on validation data.
        around: a file of `fedloom suggest`, whose "practice" values are where the searches start; methods that it does
            not have start at the task's settings.
        directory: a new directory; None keeps everything in memory.
        progress: True for a bar, or a progress reporter, which is also told after every batch of points.
        sinks: destinations for the rows of the comparison, besides the logs.
        changes: fields to change in all experiments: rounds=50, engine="events", or **{"solver.batch_size": 20}.
    """
    for name, value in (("points", points), ("seeds", seeds)):
        if not count.holds(value):
            raise ValueError(f"{name} must be {count.words}, got {value!r}.")
    if not SHARE.holds(validation):
        raise ValueError(f"validation must be {SHARE.words}, got {validation!r}.")
    algorithms = None if algorithms is None else name_list(algorithms)
    if others := [a for a in algorithms or () if not isinstance(a, str)]:
        raise ValueError(f"algorithms must be names, such as 'fedavg'; got {others[0]!r}.")
    bases = dict(comparison(task, algorithms, seeds=[0], variant=variant, changes=changes))
    if around is not None:
        started = starts_of(bases, around)
        bases = {name: changed(e, changes) for name, e in started.items()}  # what is given wins
    first = next(iter(bases.values()))
    tuning = Tuning(bases, points, seeds, validation, _metric(first) if select is None else select)
    _check(tuning)
    path = None if directory is None else pathlib.Path(directory)
    if path is not None:
        if (path / TUNING).exists():
            raise ValueError(
                f"{path} already has a tuning; run `fedloom resume {shlex.quote(str(path))}` to continue, or choose "
                "another directory."
            )
        plain = tuning.to_plain()
        new_directory(path)
        write_whole(path / TUNING, json.dumps(plain, indent=1).encode())
    return _go(tuning, path, reporter(progress), sinks)


def resume_tuning(
    directory: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    sinks: Sequence[OpenSink] = (),
) -> Study:
    """Go on with a tuning: what was run is read, and the search takes the same way as if it had never stopped."""
    path = pathlib.Path(directory)
    kinds = {"bases": dict, "points": int, "seeds": int, "validation": int | float, "metric": str}
    plain = read_json(path / TUNING, *kinds)
    files = plain.setdefault("files", {})  # earlier versions have none
    for key, kind in {**kinds, "files": dict}.items():
        if not isinstance(plain[key], kind):
            raise Damaged(f"{path / TUNING} is damaged: {key} cannot be {plain[key]!r:.100}.")
    bases = {name: from_toml(str(text), str(path / TUNING), recorded=True) for name, text in plain["bases"].items()}
    refuse_changed(files, files)
    return _go(Tuning(**{key: plain[key] for key in kinds} | {"bases": bases}), path, progress, sinks)


def _metric(experiment: Experiment) -> str:
    """What the task's target is about, on validation data; the objective itself for tasks without examples."""
    task = experiment.base_task()
    if task.model is None:
        return "train loss"
    part, _, name = task.target[0].partition(" ") if task.target else ("", "", "")
    return f"validation {name if part == 'test' else 'loss'}"


def _check(tuning: Tuning) -> None:
    """Raise a ValueError for whatever cannot be run, before anything is compiled."""
    if Select(tuning.metric).by_test:
        instead = tuning.metric.split("test ")[1]
        raise ValueError(
            f"select: {tuning.metric!r} is measured on test data, which must not decide; use 'validation {instead}'."
        )
    for method, base in tuning.bases.items():
        axes_of(method, base)
        base.check()
        loaded = changed(base, tuning.held_out).load()
        names = () if loaded.data is None else loaded.metrics
        allowed = ["train loss", *(f"validation {name}" for name in names)]
        if tuning.metric not in allowed:
            raise ValueError(f"select: there is no metric {tuning.metric!r}.{nearest(tuning.metric, allowed)}")
        tuning.experiment(method, {}, FIRST_SEED).check()


def _go(
    tuning: Tuning,
    path: pathlib.Path | None,
    progress: Progress | None,
    sinks: Sequence[OpenSink],
) -> Study:
    searches = [Trials(tuning, method, None if path is None else path / "tuning") for method in tuning.bases]
    points = tuning.points
    for search in searches:
        search.go_on(points, progress)
    while points < AT_MOST * tuning.points and any(search.origin.edges for search in searches):
        points = min(points + BATCH, AT_MOST * tuning.points)
        for search in searches:
            search.go_on(points, progress)
    kept = [search for search in searches if search.score is not None]
    if not kept:
        raise ValueError("No point of any method is better than the initial model; start from smaller step sizes.")
    best = {search.method: changed(tuning.bases[search.method], search.best) for search in kept}
    if path is not None:
        (path / SETTINGS).mkdir(exist_ok=True)
        for search in kept:
            text = f"# {search.origin.words}\n{best[search.method].to_toml()}"
            write_whole(path / SETTINGS / f"{directory_name(search.method)}.toml", text.encode())
        if (path / COMPARISON / STUDY).exists():
            return resume_study(path / COMPARISON, None, progress, sinks)
    task = next(iter(best.values())).base_task()
    study = run_all(
        [(method, changed(e, {"seed": seed})) for method, e in best.items() for seed in range(tuning.seeds)],
        None if path is None else path / COMPARISON,
        title=f"{task.name}: a comparison of tuned methods",
        target=task.target,
        about={
            "kind": "comparison",
            "no recipe": "it compares tuned methods",
            "tuning": {search.method: search.to_plain() for search in searches},
        },
        progress=progress,
        sinks=sinks,
    )
    return looked(study)
