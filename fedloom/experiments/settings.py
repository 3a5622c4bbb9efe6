"""Experiments from the settings of tasks: by a task's name, from a table, or from a TOML file."""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.algorithm import Algorithm
from fedloom.algorithms import ALGORITHMS
from fedloom.cohorts import everyone
from fedloom.experiments.changes import changed, fields_from
from fedloom.experiments.definition import Experiment
from fedloom.experiments.loading import find_task
from fedloom.experiments.own_files import find, is_reference
from fedloom.experiments.plain import ALGORITHM
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

    Task and algorithm may be your own, FILE.py:NAME.
    If no variant is named, the settings are those of the first variant for the engine, or of the first one. An
    algorithm for which the task has no settings gets its defaults, with the solver and cohort of the task's first
    method.
    """
    found = task if isinstance(task, Task) else find_task(_text(task, "task"))
    engine = changes.get("engine")
    name = next(iter(_first(found, variant, engine))) if algorithm is None else algorithm
    if isinstance(name, Algorithm):
        setting = dataclasses.replace(setting_of(found, type(name), variant, engine), algorithm=name)
    elif is_reference(name):
        setting = setting_of(found, find(name, ALGORITHM), variant, engine)
        changes = {"algorithm": name, **changes}
    elif isinstance(name, str) and name in ALGORITHMS:
        setting = setting_of(found, ALGORITHMS[name], variant, engine)
    else:
        raise ValueError(f"There is no algorithm {name!r}.{nearest(str(name), ALGORITHMS)}")
    every = _every(found, changes.get("rounds", setting.rounds))
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


def from_config(plain: Mapping[str, Any], recorded: bool = False) -> Experiment:
    """The experiment of a table as `to_plain` writes it; fields that are missing come from the task's settings.

    A table that a run has `recorded` can be read even if what it names as FILE.py:NAME is gone.
    """
    if "task" not in plain:
        raise ValueError('An experiment needs a task, such as task = "digits".')
    if plain.keys() >= COMPLETE:
        return Experiment(**fields_from(plain, recorded=recorded))
    algorithm = plain.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else algorithm
    given = {"engine": plain["engine"]} if "engine" in plain else {}
    if isinstance(algorithm, Mapping):  # one's own may have fields without defaults
        given |= {f"algorithm.{field}": value for field, value in algorithm.items() if field != "name"}
    own = experiment(plain["task"], None if name is None else _text(name, "algorithm"), **given)
    if "rounds" in plain:
        own = dataclasses.replace(own, evaluate_every=_every(find_task(_text(plain["task"], "task")), plain["rounds"]))
    return changed(own, {key: value for key, value in plain.items() if key != "task"})


def from_toml(text: str, where: str = "the file", recorded: bool = False) -> Experiment:
    """The experiment of a TOML file; `where` names the file in error messages. `recorded` is as in `from_config`."""
    try:
        return from_config(tomllib.loads(text), recorded)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where} is not a TOML file: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def methods(task: str | Task, variant: str | None = None, engine: str | None = None) -> list[str]:
    """The algorithms of a comparison: those for which the task has settings, and which the engine supports."""
    found = _first(task if isinstance(task, Task) else find_task(task), variant, engine)
    return [name for name in found if engine != "events" or ALGORITHMS[name].tolerates_staleness]


def _every(task: Task, rounds: Any) -> int:
    """As many evaluations as the task asks for, if there are that many rounds."""
    return max(1, rounds // task.evaluations) if isinstance(rounds, int) and rounds < 2**32 else 1


def _first(task: Task, variant: str | None, engine: str | None = None) -> Mapping[str, Setting]:
    """The settings of a variant; if none is named, of the first that is for the engine, or else of the first."""
    if variant is not None and variant not in task.settings:
        raise ValueError(f"Task {task.name!r} has no variant {variant!r}.{nearest(variant, task.settings)}")
    if variant is not None:
        return task.settings[variant]
    return _fitting([table for table in task.settings.values() if table] or [OWN_TASKS], engine)[0]


def _fitting(tables: Sequence[Mapping[str, Setting]], engine: str | None) -> list[Mapping[str, Setting]]:
    """The tables for the engine first. Settings for synchronous rounds are a start for events, but not vice versa."""
    kind = "events" if engine == "events" else "simulate"  # settings do not depend on where rounds are computed
    wanted = [table for table in tables if next(iter(table.values())).engine == kind]
    others = [table for table in tables if table not in wanted]
    return wanted + others if engine == "events" or not wanted else wanted


def setting_of(task: Task, kind: type[Algorithm], variant: str | None = None, engine: str | None = None) -> Setting:
    """What `experiment` makes an algorithm run with; the algorithm itself only if its kind is registered."""
    first = _first(task, variant, engine)
    every = _fitting([t for t in task.settings.values() if t], engine) if variant is None else []
    name = next((n for n, registered in ALGORITHMS.items() if registered is kind), "")
    for table in (first, *every):
        if name in table:
            return table[name]
    like = dataclasses.replace(next(iter(first.values())), origin=UNTUNED)
    algorithm = ALGORITHMS[name]() if name else like.algorithm
    return dataclasses.replace(like, algorithm=algorithm, cohort=everyone() if kind.needs_everyone else like.cohort)


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{field} must be a name, got {value!r}.")
    return value
