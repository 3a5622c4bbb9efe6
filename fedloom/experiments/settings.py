"""Experiments from the settings of tasks: by a task's name, from a table, or from a TOML file."""

import dataclasses
import tomllib
from collections.abc import Mapping
from typing import Any

from fedloom.algorithm import Algorithm
from fedloom.algorithms import ALGORITHMS
from fedloom.cohorts import everyone
from fedloom.experiments.changes import changed, fields_from
from fedloom.experiments.definition import Experiment, method_name
from fedloom.experiments.loading import find_task
from fedloom.hyperparameters import nearest
from fedloom.solvers import SGD
from fedloom.tasks import Setting, Task
from fedloom.tasks.more import start

# For tasks without settings of their own.
OWN_TASKS = start(SGD(0.1, batch_size=10, epochs=1), everyone(), 100)["start"]

# A table with all of these is complete: it can be read without looking the task up.
COMPLETE = {"task", "algorithm", "solver", "cohort", "rounds", "evaluate_every"}


def experiment(
    task: str | Task, algorithm: str | Algorithm | None = None, variant: str | None = None, **changes: Any
) -> Experiment:
    """The experiment that a task's own settings describe, with changes: experiment("digits", "feddyn", rounds=50).

    An algorithm for which the task has no settings gets its defaults, with the solver and cohort of the task's first
    method.
    """
    found = task if isinstance(task, Task) else find_task(_text(task, "task"))
    name = next(iter(_first(found, variant))) if algorithm is None else algorithm
    if isinstance(name, Algorithm):
        name = method_name(name)
    elif name not in ALGORITHMS:
        raise ValueError(f"There is no algorithm {name!r}.{nearest(str(name), ALGORITHMS)}")
    setting = _setting(found, name, variant)
    if isinstance(algorithm, Algorithm):
        setting = dataclasses.replace(setting, algorithm=algorithm)
    if setting.algorithm.needs_everyone:
        setting = dataclasses.replace(setting, cohort=everyone())
    every = _every(changes.get("rounds", setting.rounds))
    own = Experiment(task, setting.algorithm, setting.solver, setting.cohort, setting.rounds, every)
    return changed(own, changes)


def from_config(plain: Mapping[str, Any]) -> Experiment:
    """The experiment of a table as `to_plain` writes it; fields that are missing come from the task's settings."""
    if "task" not in plain:
        raise ValueError('An experiment needs a task, such as task = "digits".')
    if plain.keys() >= COMPLETE:
        return Experiment(**fields_from(plain))
    algorithm = plain.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else algorithm
    own = experiment(plain["task"], None if name is None else _text(name, "algorithm"))
    if "rounds" in plain:
        own = dataclasses.replace(own, evaluate_every=_every(plain["rounds"]))
    return changed(own, {key: value for key, value in plain.items() if key != "task"})


def from_toml(text: str, where: str = "the file") -> Experiment:
    """The experiment of a TOML file; `where` names the file in error messages."""
    try:
        return from_config(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where} is not a TOML file: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def methods(task: str | Task, variant: str | None = None) -> list[str]:
    """The algorithms for which a task has settings, in the given variant or in the first."""
    return list(_first(task if isinstance(task, Task) else find_task(task), variant))


def _every(rounds: Any) -> int:
    """A hundred evaluations, if there are that many rounds."""
    return max(1, rounds // 100) if isinstance(rounds, int) and rounds < 2**32 else 1


def _first(task: Task, variant: str | None) -> Mapping[str, Setting]:
    """The settings of a variant, or of the first one."""
    if variant is not None and variant not in task.settings:
        raise ValueError(f"Task {task.name!r} has no variant {variant!r}.{nearest(variant, task.settings)}")
    tables = [table for table in task.settings.values() if table] or [OWN_TASKS]
    return task.settings[variant] if variant is not None else tables[0]


def _setting(task: Task, name: str, variant: str | None) -> Setting:
    tables = [_first(task, variant), *(task.settings.values() if variant is None else ())]
    for table in tables:
        if name in table:
            return table[name]
    like = next(iter(tables[0].values()))
    return dataclasses.replace(like, algorithm=ALGORITHMS[name]()) if name in ALGORITHMS else like


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{field} must be a name, got {value!r}.")
    return value
