"""Experiments from the settings of tasks: by a task's name, from a table, or from a TOML file."""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.algorithm import Algorithm
from fedloom.algorithms import ALGORITHMS
from fedloom.cohorts import everyone
from fedloom.experiments.changes import changed, fields_from
from fedloom.experiments.definition import Experiment, method_name
from fedloom.experiments.loading import find_task
from fedloom.hyperparameters import nearest
from fedloom.solvers import SGD
from fedloom.tasks import UNTUNED, Setting, Task
from fedloom.tasks.more import start

# For tasks without settings of their own.
OWN_TASKS = start(SGD(0.1, batch_size=10, epochs=1), everyone(), 100)["start"]

# A table with all of these is complete: it can be read without looking the task up.
COMPLETE = {"task", "algorithm", "solver", "cohort", "rounds", "evaluate_every"}


def experiment(
    task: str | Task, algorithm: str | Algorithm | None = None, variant: str | None = None, **changes: Any
) -> Experiment:
    """The experiment that a task's own settings describe, with changes: experiment("digits", "feddyn", rounds=50).

    If no variant is named, the settings are those of the first variant for the engine, or of the first one. An
    algorithm for which the task has no settings gets its defaults, with the solver and cohort of the task's first
    method.
    """
    found = task if isinstance(task, Task) else find_task(_text(task, "task"))
    engine = changes.get("engine")
    name = next(iter(_first(found, variant, engine))) if algorithm is None else algorithm
    if isinstance(name, Algorithm):
        name = method_name(name)
    elif name not in ALGORITHMS:
        raise ValueError(f"There is no algorithm {name!r}.{nearest(str(name), ALGORITHMS)}")
    setting = setting_of(found, name, variant, engine)
    if isinstance(algorithm, Algorithm):
        setting = dataclasses.replace(setting, algorithm=algorithm)
    every = _every(changes.get("rounds", setting.rounds))
    own = Experiment(
        task,
        setting.algorithm,
        setting.solver,
        setting.cohort,
        setting.rounds,
        every,
        engine=setting.engine,
        buffer=setting.buffer,
    )
    return changed(own, changes)


def from_config(plain: Mapping[str, Any]) -> Experiment:
    """The experiment of a table as `to_plain` writes it; fields that are missing come from the task's settings."""
    if "task" not in plain:
        raise ValueError('An experiment needs a task, such as task = "digits".')
    if plain.keys() >= COMPLETE:
        return Experiment(**fields_from(plain))
    algorithm = plain.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else algorithm
    engine = {"engine": plain["engine"]} if "engine" in plain else {}
    own = experiment(plain["task"], None if name is None else _text(name, "algorithm"), **engine)
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


def methods(task: str | Task, variant: str | None = None, engine: str | None = None) -> list[str]:
    """The algorithms of a comparison: those for which the task has settings, and which the engine supports."""
    found = _first(task if isinstance(task, Task) else find_task(task), variant, engine)
    return [name for name in found if engine != "events" or ALGORITHMS[name].tolerates_staleness]


def _every(rounds: Any) -> int:
    """A hundred evaluations, if there are that many rounds."""
    return max(1, rounds // 100) if isinstance(rounds, int) and rounds < 2**32 else 1


def _first(task: Task, variant: str | None, engine: str | None = None) -> Mapping[str, Setting]:
    """The settings of a variant; if none is named, of the first that is for the engine, or else of the first."""
    if variant is not None and variant not in task.settings:
        raise ValueError(f"Task {task.name!r} has no variant {variant!r}.{nearest(variant, task.settings)}")
    if variant is not None:
        return task.settings[variant]
    return _fitting([table for table in task.settings.values() if table] or [OWN_TASKS], engine)[0]


def _fitting(tables: Sequence[Mapping[str, Setting]], engine: str | None) -> list[Mapping[str, Setting]]:
    """The tables for the engine first. Settings for synchronous rounds are a start for events, but not vice versa."""
    wanted = [table for table in tables if next(iter(table.values())).engine == (engine or "simulate")]
    others = [table for table in tables if table not in wanted]
    return wanted + others if engine == "events" or not wanted else wanted


def setting_of(task: Task, name: str, variant: str | None = None, engine: str | None = None) -> Setting:
    """What `experiment` makes an algorithm run with."""
    first = _first(task, variant, engine)
    every = _fitting([t for t in task.settings.values() if t], engine) if variant is None else []
    for table in (first, *every):
        if name in table:
            return table[name]
    like = dataclasses.replace(next(iter(first.values())), origin=UNTUNED)
    algorithm = ALGORITHMS[name]() if name in ALGORITHMS else like.algorithm
    return dataclasses.replace(
        like, algorithm=algorithm, cohort=everyone() if algorithm.needs_everyone else like.cohort
    )


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{field} must be a name, got {value!r}.")
    return value
