"""Where the searches of a tuning start, from a file that `fedloom suggest` wrote."""

import os
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any

from fedloom.algorithms import ALGORITHMS
from fedloom.experiments.changes import changed
from fedloom.experiments.definition import Experiment
from fedloom.experiments.own_files import absolute
from fedloom.hyperparameters import nearest
from fedloom.tasks import Task

ABOUT = {"task", "variant"}  # what the file has besides a table for each method
OF_METHOD = {"theorem", "theory", "practice"}
PARTS = ("algorithm", "solver")


def around(bases: Mapping[str, Experiment], file: str | os.PathLike[str]) -> dict[str, Experiment]:
    """The experiments with the "practice" values of the file; methods that it does not have stay as they are."""
    path = pathlib.Path(file)
    try:
        plain = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"around: {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"around: {path} is not a TOML file: {error}.") from error
    try:
        _check_task(plain, next(iter(bases.values())))
        starts = {name: _practice(name, table, bases) for name, table in plain.items() if name not in ABOUT}
        return {name: _started(name, e, starts.get(name, {})) for name, e in bases.items()}
    except ValueError as error:
        raise ValueError(f"around: {path}: {error}") from error


def _check_task(plain: Mapping[str, Any], base: Experiment) -> None:
    own = base.task.name if isinstance(base.task, Task) else base.task
    if "task" not in plain:
        raise ValueError('task is missing; `fedloom suggest` writes it, such as task = "digits".')
    if absolute(plain["task"]) != own:
        raise ValueError(f"task is {plain['task']!r:.80}, but {own!r} is to be tuned.")


def _practice(name: str, table: Any, bases: Mapping[str, Experiment]) -> Mapping[str, Any]:
    if name not in ALGORITHMS and name not in bases:
        raise ValueError(f"there is no algorithm {name!r}.{nearest(name, ALGORITHMS)}")
    if not isinstance(table, Mapping):
        raise ValueError(f"{name} must be a table with the table {name}.practice, got {table!r:.80}.")
    for key in table:
        if key not in OF_METHOD:
            raise ValueError(f"{name} has no field {key!r}.{nearest(key, OF_METHOD)}")
    start = table.get("practice")
    if not isinstance(start, Mapping):
        raise ValueError(f"{name}.practice must be a table such as solver.lr = 0.1, got {start!r:.80}.")
    return start


def _started(name: str, base: Experiment, start: Mapping[str, Any]) -> Experiment:
    for field in start:
        if field.partition(".")[0] not in PARTS:
            raise ValueError(f"{name}.practice.{field}: a start has fields of algorithm and solver only.")
    try:
        return changed(base, start)
    except ValueError as error:
        raise ValueError(f"{name}.practice: {error}") from error
