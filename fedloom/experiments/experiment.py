"""An experiment: one frozen value that determines a run, down to its bits; a TOML file; flags on the command line."""

import dataclasses
import json
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tomli_w

from fedloom.algorithm import Algorithm
from fedloom.algorithms import ALGORITHMS
from fedloom.client import Solver
from fedloom.cohorts import COHORTS, CohortRule, everyone
from fedloom.engines.events import check_asynchronous
from fedloom.engines.plan import Plan, check_plan
from fedloom.engines.prepare import prepare
from fedloom.experiments.loading import check_split, find_task, load
from fedloom.experiments.plain import from_plain, to_plain
from fedloom.hyperparameters import nearest
from fedloom.models import MODELS
from fedloom.solvers import SGD, SOLVERS
from fedloom.systems import SYSTEMS, Delays, System
from fedloom.tasks import TASKS, Loaded, Setting, Task
from fedloom.tasks.more import start

# For tasks without settings of their own.
OWN_TASKS = start(SGD(0.1, batch_size=10, epochs=1), everyone(), 100)["start"]

# The fields that are values with a name and fields of their own.
PARTS: dict[str, Any] = {"algorithm": ALGORITHMS, "solver": SOLVERS, "cohort": COHORTS, "system": SYSTEMS}
ENGINES = ("simulate", "events")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that determines a run: equal experiments give equal logs, bit for bit, on one machine and
    with one plan (a measured plan is remembered, a run that is resumed keeps its own).

    `experiment("digits", "feddyn")` makes one from a task's own settings. Split, model and weights are the task's
    unless they are given here. The seed determines the split, the initial model, the cohorts and the minibatches, so
    experiments that differ in the algorithm alone see the same clients.
    """

    task: str | Task  # a name from `fedloom list tasks`, FILE.py:NAME, or a task itself
    algorithm: Algorithm
    solver: Solver
    cohort: CohortRule
    rounds: int
    evaluate_every: int = 1  # rounds from one evaluation to the next; the last round is always evaluated
    seed: int = 0
    split: Mapping[str, Any] | None = None  # for example {"name": "dirichlet", "clients": 100, "alpha": 0.3}
    model: str | None = None  # a name from `fedloom list models`
    weights: str | None = None  # population weights: "examples" or "uniform"
    own_models: bool = False  # also evaluate each client's own model on its own examples, where a method keeps them
    on_nonfinite: str = "raise"  # a client that returns NaN ends the run ("raise") or is left out ("drop")
    plan: str = "auto"  # clients side by side and devices, such as "5x2"; "auto" chooses, see docs/speed.md
    engine: str = "simulate"  # synchronous rounds ("simulate"), or a server that waits for nobody ("events")
    buffer: int = 1  # with "events": replies that make an update of the server, which is what counts as a round there
    system: System | Delays | None = (
        None  # devices, links, availability and faults, on a virtual clock: see docs/systems.md
    )

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("evaluate_every", 1), ("seed", 0), ("buffer", 1)):
            value = getattr(self, name)
            if isinstance(value, np.integer):
                object.__setattr__(self, name, value := int(value))
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**32:
                raise ValueError(f"{name} must be a whole number from {least} to 2^32 - 1, got {value!r}.")
        for name, kind in (("algorithm", Algorithm), ("solver", Solver), ("cohort", CohortRule)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} must be a value such as {kind.__name__}s are, got {getattr(self, name)!r}.")
        if not isinstance(self.task, str | Task):
            raise ValueError(f"task must be a name or a Task, got {self.task!r}.")
        if self.model is not None and (not isinstance(self.model, str) or self.model not in MODELS):
            raise ValueError(f"model: there is no {self.model!r}.{nearest(str(self.model), MODELS)}")
        if self.weights not in (None, "examples", "uniform"):
            raise ValueError(f"weights must be 'examples' or 'uniform', got {self.weights!r}.")
        if not isinstance(self.own_models, bool):
            raise ValueError(f"own_models must be true or false, got {self.own_models!r}.")
        if self.on_nonfinite not in ("raise", "drop"):
            raise ValueError(f"on_nonfinite must be 'raise' or 'drop', got {self.on_nonfinite!r}.")
        if not isinstance(self.plan, str):
            raise ValueError(f"plan must be 'auto' or LANESxDEVICES, such as '5x2', got {self.plan!r}.")
        if self.plan != "auto":
            Plan.from_text(self.plan)
        if self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(map(repr, ENGINES))}, got {self.engine!r}.")
        if self.engine != "events" and self.buffer != 1:
            raise ValueError(f"buffer = {self.buffer} belongs to the asynchronous engine; say engine = 'events' too.")
        if self.system is not None and not isinstance(self.system, System | Delays):
            raise ValueError(f"system must be a value such as System(speeds=2.0), got {self.system!r}.")
        if self.split is not None:
            check_split(self.split)
        if isinstance(self.task, str) and ".py:" in self.task:  # a run may be resumed from another folder
            path, _, name = self.task.rpartition(":")
            object.__setattr__(self, "task", f"{pathlib.Path(path).resolve()}:{name}")

    def base_task(self) -> Task:
        """The task, looked up by name if need be."""
        return self.task if isinstance(self.task, Task) else find_task(self.task)

    def load(self) -> Loaded:
        """The task's data for this seed, with the experiment's own split, model and weights."""
        split = None if self.split is None else json.dumps({k: _number(v) for k, v in self.split.items()})  # hashable
        return load(self.base_task(), self.seed, split, self.model, self.weights)

    def check(self) -> Loaded:
        """Load the data and raise a sentence for what cannot be run, before anything is compiled."""
        loaded = self.load()
        run = (self.algorithm, loaded.federation, self.solver, loaded.w, self.rounds, self.cohort, self.seed)
        checked = prepare(*run, self.on_nonfinite, None, self.system, self.buffer if self.engine == "events" else None)
        if self.engine == "events":
            check_asynchronous(checked, self.buffer)
        elif isinstance(self.system, Delays):
            raise ValueError("system: delays are those of late replies; say engine = 'events' too.")
        if self.plan != "auto":
            check_plan(Plan.from_text(self.plan))
        if self.own_models and self.algorithm.own_model(self.algorithm.init_client(loaded.w)) is None:
            raise ValueError(
                f"own_models: {name_of(self.algorithm)} keeps no model of each client; FedDR and FedPD do."
            )
        if self.own_models and loaded.data is None:
            raise ValueError(f"own_models: the clients of task {loaded.task.name!r} have no examples.")
        return loaded

    def to_plain(self) -> dict[str, Any]:
        """The experiment as a nested table, every field resolved."""
        if isinstance(self.task, Task) and TASKS.get(self.task.name, self.task) is not self.task:
            raise ValueError(
                f"This task is not the registered one of the name {self.task.name!r}; to write it to a file, give it "
                "a name of its own."
            )
        plain: dict[str, Any] = {"task": self.task.name if isinstance(self.task, Task) else self.task}
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if field.name in PARTS and value is not None:
                plain[field.name] = to_plain(value, PARTS[field.name])
            elif value is not None:
                table = isinstance(value, Mapping)
                plain[field.name] = {k: _number(v) for k, v in value.items()} if table else value
        return plain

    def to_toml(self) -> str:
        """The experiment as the text of a config.toml."""
        plain = self.to_plain()
        return tomli_w.dumps(dict(sorted(plain.items(), key=lambda item: isinstance(item[1], dict))))


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def name_of(algorithm: Algorithm) -> str:
    """The name under which an algorithm is registered, or that of its class."""
    return next((name for name, kind in ALGORITHMS.items() if type(algorithm) is kind), type(algorithm).__name__)


def from_config(plain: Mapping[str, Any]) -> Experiment:
    """The experiment of a table as `to_plain` writes it; what is not given comes from the task's settings."""
    plain = dict(plain)
    names = [f.name for f in dataclasses.fields(Experiment)]
    for key in plain:
        if key not in names:
            raise ValueError(f"An experiment has no field {key!r}.{nearest(key, names)}")
    if "task" not in plain:
        raise ValueError('An experiment needs a task, such as task = "digits".')
    algorithm = plain.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else algorithm
    needed = (*(part for part in PARTS if part != "system"), "rounds", "evaluate_every")
    if all(part in plain for part in needed):  # it need not know the task to be read
        if isinstance(plain.get("system"), Mapping | str):
            plain["system"] = _merged(None, plain["system"], "system")
        parts = {part: from_plain(plain[part], PARTS[part], part) for part in PARTS if plain.get(part) is not None}
        if isinstance(plain.get("split"), str):
            parts["split"] = {"name": plain["split"]}
        return Experiment(**{**plain, **parts, "task": _text(plain["task"], "task")})
    start = experiment(plain.pop("task"), None if name is None else _text(name, "algorithm"))
    if "rounds" in plain:
        start = dataclasses.replace(start, evaluate_every=_every(plain["rounds"]))
    return changed(start, plain)


def from_toml(text: str, where: str = "the file") -> Experiment:
    """The experiment that the text of a TOML file describes."""
    try:
        return from_config(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where} is not TOML: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def experiment(
    task: str | Task, algorithm: str | Algorithm | None = None, variant: str | None = None, **changes: Any
) -> Experiment:
    """The experiment of a task's own settings, changed where asked: experiment("digits", "feddyn", rounds=50).

    An algorithm without settings in the task gets its defaults, with the solver and cohort of the task's first method.
    """
    found = task if isinstance(task, Task) else find_task(_text(task, "task"))
    name = next(iter(_first(found, variant))) if algorithm is None else algorithm
    if isinstance(name, Algorithm):
        name = name_of(name)
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


def _every(rounds: Any) -> int:
    """A hundred evaluations, if there are as many rounds."""
    return max(1, rounds // 100) if isinstance(rounds, int) and rounds < 2**32 else 1


def changed(old: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """The experiment with some fields changed: {"rounds": 50, "solver.lr": 0.1, "algorithm": {"name": "fedavg"}}.

    A dotted name, or a table of some fields, changes these and keeps the others. Values may be plain data or the values
    themselves.
    """
    names = [f.name for f in dataclasses.fields(Experiment)]
    new: dict[str, Any] = {}
    for key, value in changes.items():
        part, _, inner = key.partition(".")
        if part not in names:
            raise ValueError(f"An experiment has no field {key!r}.{nearest(part, names)}")
        now = new.get(part, getattr(old, part))
        if part == "system" and inner and now in (None, "none"):
            now = System()
        if not inner:
            new[part] = _merged(now, value, part) if part in (*PARTS, "split") else value
        elif part in PARTS and not isinstance(now, Mapping) and "." not in inner and _has_plain(now, inner, value):
            new[part] = _replaced(now, inner, value, part)  # also of a value that has no name
        else:
            new[part] = _put(_table(now, part), inner.split("."), value, part)
    for part, registry in PARTS.items():
        if part in new and isinstance(new[part], Mapping | str):
            new[part] = from_plain(new[part], registry, part)
    fields: dict[str, Any] = {k: None if isinstance(v, str) and v == "none" else v for k, v in new.items()}
    return dataclasses.replace(old, **fields)


def _has_plain(value: Any, field: str, new: Any) -> bool:
    """A number for a number: no names have to be looked up."""
    numbers = isinstance(getattr(value, field, None), int | float) and isinstance(new, int | float)
    return numbers and not isinstance(new, bool)


def _replaced(value: Any, field: str, new: Any, part: str) -> Any:
    try:
        return dataclasses.replace(value, **{field: new})
    except ValueError as error:
        raise ValueError(f"{part}: {error}") from error


def _table(value: Any, part: str) -> Any:
    """A part as plain data."""
    return to_plain(value, PARTS[part]) if part in PARTS and not isinstance(value, Mapping | str) else value


def _merged(old: Any, value: Any, part: str) -> Any:
    """A table of the same name as the old value, or of none, changes the fields that it has."""
    if not isinstance(value, Mapping | str) or (part == "split" and value == "none"):
        return value
    given = {"name": value} if isinstance(value, str) else dict(value)
    if part == "system":
        return _system(old, given)
    if part in PARTS and type(old) is not PARTS[part].get(given.get("name"), type(old)):
        return given  # of another kind: the old value, which may have no name, does not matter
    plain = _table(old, part) if old is not None and old != "none" else {}
    plain = {"name": plain} if isinstance(plain, str) else dict(plain)
    name = plain.get("name")
    return {**plain, **given} if given.get("name", name) == name else given


def _system(old: Any, given: dict[str, Any]) -> Any:
    """A system's table; it is a simulated one unless it says otherwise."""
    if given.get("name") == "none":
        return None
    named = {"name": to_plain(old, SYSTEMS)["name"] if isinstance(old, System | Delays) else "simulated", **given}
    same = isinstance(old, System | Delays) and named["name"] == to_plain(old, SYSTEMS)["name"]
    return {**to_plain(old, SYSTEMS), **named} if same else named


def _put(table: Any, path: list[str], value: Any, part: str) -> dict[str, Any]:
    """The table with one entry changed, at any depth. A name stands for the table of its defaults."""
    if isinstance(table, str) and table != "none":
        table = {"name": table}
    if not isinstance(table, Mapping):
        raise ValueError(f"{part} has no field {path[0]!r}: it is {table!r}.")
    inner = value if len(path) == 1 else _put(table.get(path[0], {}), path[1:], value, f"{part}.{path[0]}")
    return {**table, path[0]: inner}


def methods(task: str | Task, variant: str | None = None) -> list[str]:
    """The algorithms that a task has settings of, in the given variant or in the first."""
    return list(_first(task if isinstance(task, Task) else find_task(task), variant))


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
