"""Run one experiment: log, checkpoints, divergence. A run in a directory can be killed at any moment and resumed."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterable

from fedloom.engines.processes import is_first
from fedloom.experiments.arguments import reporter
from fedloom.experiments.definition import Checked, Experiment, method_name
from fedloom.experiments.files import Damaged, only_one
from fedloom.experiments.following import Progress
from fedloom.experiments.result import Result
from fedloom.experiments.run_directory import (
    ABOUT,
    CONFIG,
    create_run,
    is_over,
    read,
    read_config,
    read_json,
)
from fedloom.experiments.running import Running, Watch
from fedloom.experiments.used_files import refuse_changed


def run(
    experiment: Experiment,
    directory: str | os.PathLike[str] | None = None,
    *,
    name: str = "",
    watch: Iterable[Watch] = (),
    progress: Progress | bool | None = None,
    checkpoint_seconds: float = 10.0,
) -> Result:
    """Run an experiment to its end.

    Args:
        experiment: what to run.
        directory: a new directory for config, log and checkpoints; None keeps the log in memory only.
        name: the name of the curve in reports; the algorithm's if not given.
        watch: functions that are called with every new row.
        progress: True for a bar in a notebook or at a terminal, or a progress reporter.
        checkpoint_seconds: the time between checkpoints.
    """
    checked = experiment.check()
    directory = created(experiment, directory)
    shown, label = reporter(progress), name or method_name(experiment.algorithm)
    if shown is not None:
        shown.begin([(label, experiment)])
        watch = [*watch, lambda row: shown.row(label, experiment, row)]
    try:
        result = finish(
            experiment, directory, name=name, watch=watch, checkpoint_seconds=checkpoint_seconds, checked=checked
        )
        if shown is not None:
            shown.end(result)
        return result
    finally:
        if shown is not None:
            shown.close()


def resume(
    directory: str | os.PathLike[str],
    *,
    experiment: Experiment | None = None,
    name: str = "",
    watch: Iterable[Watch] = (),
    checkpoint_seconds: float = 10.0,
) -> Result:
    """Continue the run of a directory from its last checkpoint, bit for bit as if it had never stopped.

    The experiment is read from the directory; it must be given if its task is neither registered nor in a file.
    """
    path = pathlib.Path(directory)
    config = read_config(path)
    if experiment is not None and experiment.to_toml() != config.to_toml():
        raise ValueError(f"{path / CONFIG} differs from the experiment that was given; choose another directory.")
    return finish(experiment or config, path, name=name, watch=watch, checkpoint_seconds=checkpoint_seconds)


def finish(
    experiment: Experiment,
    directory: str | os.PathLike[str] | None,
    *,
    name: str = "",
    watch: Iterable[Watch] = (),
    checkpoint_seconds: float = 10.0,
    checked: Checked | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> Result:
    """Run what is left of an experiment whose directory exists; all of it, in memory, if it has none.

    `checked` is what `experiment.check()` returned, if the caller has just called it. `say` is told what is worth
    knowing of a cluster at work.
    """
    path = None if directory is None else pathlib.Path(directory)
    with only_one(path) if path is not None and is_first() else contextlib.nullcontext():
        if path is not None and is_over(path, experiment):
            return read(path, name, experiment)
        if path is not None:
            check_files(path)
        checked = checked or experiment.check()
        return Running(experiment, checked, path, name, tuple(watch), checkpoint_seconds, say).go()


def created(experiment: Experiment, directory: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Make the directory of a run that has not started. Of several processes only the first has one."""
    if directory is None or not is_first():
        return None
    create_run(experiment, directory)
    return directory


def check_files(directory: pathlib.Path) -> None:
    """Raise a ValueError if a file that the run is made of has changed since it began."""
    if (directory / ABOUT).exists():
        recorded = read_json(directory / ABOUT).get("files", {})
        if not isinstance(recorded, dict):
            raise Damaged(f"{directory / ABOUT} is damaged: its files are {recorded!r:.100}.")
        refuse_changed(recorded, recorded)
