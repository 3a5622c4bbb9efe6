"""The definition of an experiment: one frozen value that determines a run, down to its bits.

Its fields are also the keys of a TOML file and the options of the command line.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from fedloom.algorithm import Algorithm
from fedloom.algorithms import ALGORITHMS
from fedloom.client import Solver
from fedloom.cluster import need_ray
from fedloom.cohorts import COHORTS, CohortRule
from fedloom.engines.checks import checked
from fedloom.engines.costs import message_sizes
from fedloom.engines.plan import Plan
from fedloom.engines.run import Run
from fedloom.experiments.last_member import last_member
from fedloom.experiments.loading import RESPLIT, check_split, find_loss, find_metric, find_model, find_task, load
from fedloom.experiments.own_files import absolute, is_reference
from fedloom.experiments.plain import Lost, name_of, to_plain
from fedloom.experiments.table_files import COLUMNS, check_columns, is_table, table_task, whole_path
from fedloom.experiments.until import check_conditions, condition
from fedloom.hyperparameters import Domain, check_fields, choice, flag, frozen, interval, nearest, optional, static
from fedloom.metrics import LOSSES, METRICS
from fedloom.models import MODELS
from fedloom.solvers import SOLVERS
from fedloom.systems import SYSTEMS, Delays, System
from fedloom.tables import table_model
from fedloom.tasks import TASKS, Evaluation, Loaded, Task
from fedloom.tasks.evaluated import ENTRIES


def _integer(least: int) -> Domain:
    words = f"an integer from {least} to 2^32 - 1"
    return Domain(words, lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v < 2**32)


_task = Domain("a name or a Task", lambda v: isinstance(v, str | Task))
_algorithm = Domain("an Algorithm, e.g. FedAvg()", lambda v: isinstance(v, Algorithm | Lost), ALGORITHMS)
_solver = Domain("a Solver, e.g. SGD(0.1)", lambda v: isinstance(v, Solver | Lost), SOLVERS)
_cohort = Domain("a CohortRule, e.g. uniform(10)", lambda v: isinstance(v, CohortRule | Lost), COHORTS)
_system = Domain("a System, e.g. System(speeds=2.0)", lambda v: isinstance(v, System | Delays), SYSTEMS)
_split = Domain(
    "a name or a table such as {name = 'iid', clients = 10}", lambda v: isinstance(v, Mapping), choices=RESPLIT
)
_model = Domain(
    "a name from `fedloom list models` or FILE.py:NAME", lambda v: isinstance(v, str), choices=tuple(MODELS)
)
_loss = Domain("a name from `fedloom list losses` or FILE.py:NAME", lambda v: isinstance(v, str), choices=tuple(LOSSES))


def _texts(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and all(isinstance(entry, str) and entry for entry in value)


_evaluate = Domain("a list such as ['test', 'train:5000']", _texts)
_until = Domain("a list such as ['test accuracy >= 0.95']", _texts)
_column = Domain("the name of a column", lambda v: isinstance(v, str) and v != "")
_columns = Domain("a list of columns such as ['id', 'date']", _texts)
_metrics = Domain("a list such as ['accuracy', 'FILE.py:NAME']", _texts, choices=tuple(METRICS))
# Fields that are names, or lists of names, with their registries; FILE.py:NAME is one's own.
NAMED: dict[str, Mapping[str, Any]] = {"model": MODELS, "loss": LOSSES, "metrics": METRICS}
_plan = Domain("'auto' or LANESxDEVICES, such as '5x2'", lambda v: isinstance(v, str))


class Checked(NamedTuple):
    """An experiment that can be run: its data, the run on them, and what is evaluated."""

    loaded: Loaded
    run: Run
    evaluation: Evaluation


@frozen
class Experiment:
    """Everything that determines a run: equal experiments give equal logs, bit for bit, on the same machine and
    with the same plan (a measured plan is remembered, and a resumed run keeps its own).

    `experiment("digits", "feddyn")` makes one from a task's own settings. Split, model, loss and weights are the task's
    unless they are given here. The seed determines the split, the initial model, the cohorts and the minibatches, so
    experiments that differ only in the algorithm see the same clients.
    """

    task: str | Task = static(_task, "a name from `fedloom list tasks`, FILE.py:NAME, the path of a table, or a Task")
    algorithm: Algorithm = static(
        _algorithm, "a name from `fedloom list algorithms`, or FILE.py:NAME; --algorithm.FIELD sets a hyperparameter"
    )
    solver: Solver = static(
        _solver, "how clients minimize, from `fedloom list solvers`, or FILE.py:NAME; --solver.lr 0.1 sets a field"
    )
    cohort: CohortRule = static(
        _cohort, "who takes part, from `fedloom list cohorts`, or FILE.py:NAME; --cohort.m 20 sets a field"
    )
    rounds: int = static(_integer(1), "number of rounds")
    evaluate_every: int = static(
        _integer(1),
        "rounds between evaluations (default: 100 evaluations, or as many as the task says); the last is always one",
        default=1,
    )
    evaluate: tuple[str, ...] | None = static(
        optional(_evaluate),
        f"what to evaluate, separated by commas: {', '.join(ENTRIES)} (default: what is cheap)",
        default=None,
    )
    until: tuple[str, ...] | None = static(
        optional(_until),
        "end a run before its last round once it has met this: 'test accuracy >= 0.95', several separated by commas",
        default=None,
    )
    validation: float = static(
        interval(0, 1, "[)"),
        "share of each client's training examples that is held out to select by (default 0)",
        default=0.0,
    )
    seed: int = static(
        _integer(0), "determines the split, the initial model, the cohorts and the minibatches", default=0
    )
    split: Mapping[str, Any] | None = static(
        optional(_split),
        "split the data differently: --split dirichlet --split.clients 50 --split.alpha 0.1",
        default=None,
    )
    label: str | None = static(optional(_column), "of a table: the column to predict", default=None)
    client: str | None = static(optional(_column), "of a table: the column that says whose row it is", default=None)
    split_column: str | None = static(
        optional(_column), "of a table: the column that says train, validation or test", default=None
    )
    leave_out: tuple[str, ...] | None = static(
        optional(_columns), "of a table: columns that are no features, separated by commas", default=None
    )
    model: str | None = static(
        optional(_model),
        "another model, from `fedloom list models` or FILE.py:NAME; of a table: linear, mlp, mlp-128-64",
        default=None,
    )
    loss: str | None = static(
        optional(_loss), "another loss, from `fedloom list losses`, or FILE.py:NAME", default=None
    )
    metrics: tuple[str, ...] | None = static(
        optional(_metrics),
        "more metrics, from `fedloom list metrics`, or FILE.py:NAME, separated by commas",
        default=None,
    )
    weights: str | None = static(
        optional(choice("examples", "uniform")), "population weights: examples or uniform", default=None
    )
    own_models: bool = static(
        flag, "true: also evaluate the clients' own models, which FedDR, FedPD and FedSplit keep", default=False
    )
    on_nonfinite: str = static(
        choice("raise", "drop"), "a client that returns NaN ends the run (raise) or is left out (drop)", default="raise"
    )
    plan: str = static(
        _plan, "clients side by side, and devices, such as 5x2 (default: auto, chosen for you)", default="auto"
    )
    engine: str = static(
        choice("simulate", "events", "ray", "flower"),
        "simulate (synchronous rounds, the default), events (asynchronous, on a simulated clock) or ray (on a cluster)",
        default="simulate",
    )
    shards: int | None = static(
        optional(_integer(1)),
        "with ray: into how many parts the clients are divided (default: some for each CPU of the cluster)",
        default=None,
    )
    buffer: int = static(_integer(1), "with events: replies per server update, which counts as a round", default=1)
    system: System | Delays | None = static(
        optional(_system),
        "simulated devices and links, see `fedloom list systems`; --system.faults.lost 0.1 sets a field",
        default=None,
    )

    def __post_init__(self) -> None:
        for name in ("evaluate", "until", "metrics", "leave_out"):
            if isinstance(value := getattr(self, name), str | list):  # as files and the command line write it
                object.__setattr__(self, name, tuple(entries(value)))
        check_fields(self)
        object.__setattr__(self, "task", whole_path(str(self.task)) if is_table(self.task) else absolute(self.task))
        for name, registry in NAMED.items():
            value = getattr(self, name)
            for entry in (value,) if isinstance(value, str) else value or ():
                if name == "model" and is_table(self.task) and not is_reference(entry):
                    table_model(entry, 1, 1)  # raises for a name that it does not know
                elif entry not in registry and not is_reference(entry):
                    raise ValueError(f"{name}: there is no {entry!r}.{nearest(entry, registry)}")
            whole = tuple(map(absolute, value)) if isinstance(value, tuple) else absolute(value)
            object.__setattr__(self, name, whole)
        for text in self.until or ():
            condition(text)  # raises if it is none
        if self.split is not None:
            check_split(self.split)
        if self.plan != "auto":
            Plan.from_text(self.plan)
        if self.engine != "events" and self.buffer != 1:
            raise ValueError(f"buffer = {self.buffer} requires the asynchronous engine; add engine = 'events'.")
        if self.engine != "ray" and self.shards is not None:
            raise ValueError(f"shards = {self.shards} requires a cluster; add engine = 'ray'.")

    def base_task(self) -> Task:
        """The task itself, without the experiment's own split, model and weights."""
        check_columns(self.task, self.columns, self.split)
        if is_table(self.task):
            return table_task(str(self.task), self.columns, self.model)
        return self.task if isinstance(self.task, Task) else find_task(self.task, again=False)

    @property
    def columns(self) -> dict[str, Any]:
        """The roles of a table's columns."""
        return {name: getattr(self, name) for name in COLUMNS}

    def load(self) -> Loaded:
        """The task's data for this seed, with the experiment's own split, validation part, model, loss and weights."""
        split = None if self.split is None else json.dumps({k: _number(v) for k, v in self.split.items()})  # hashable
        model = None if self.model is None or is_table(self.task) else find_model(self.model)
        loss = None if self.loss is None else find_loss(self.loss)
        metrics = tuple(map(find_metric, self.metrics or ()))
        return load(self.base_task(), self.seed, split, model, loss, metrics, self.weights, self.validation)

    @property
    def lost(self) -> str:
        """Why an experiment that was read from a directory cannot be run, if a file that it names is not as it was."""
        return next((f"{name}: {v.why}" for name in PARTS if isinstance(v := getattr(self, name), Lost)), "")

    def check(self) -> "Checked":
        """Load the data and raise a ValueError for whatever cannot be run, before anything is trained."""
        if self.lost:
            raise ValueError(self.lost)
        if self.engine == "flower":
            raise ValueError("engine: 'flower' is a federation; start it with `fedloom federate`, or use 'simulate'.")
        loaded, asynchronous = self.load(), self.engine == "events"
        run = checked(
            self.algorithm,
            loaded.federation,
            self.solver,
            loaded.w,
            self.rounds,
            cohort=self.cohort,
            seed=self.seed,
            on_nonfinite=self.on_nonfinite,
            system=System() if self.system is None and asynchronous else self.system,
            buffer=self.buffer if asynchronous else None,
            plan=None if self.plan == "auto" else Plan.from_text(self.plan),
        )
        if self.engine == "ray":
            need_ray(run)
        if name_of(self.algorithm, ALGORITHMS) is None or name_of(self.solver, SOLVERS) is None:
            _try(run)
        if self.own_models and self.algorithm.own_model(self.algorithm.init_client(loaded.w)) is None:
            name = method_name(self.algorithm)
            raise ValueError(f"own_models: {name} does not keep a model for each client; FedDR, FedPD and FedSplit do.")
        if self.own_models and loaded.data is None:
            raise ValueError(f"own_models: the clients of task {loaded.task.name!r} have no examples.")
        last = last_member(self.cohort, run)
        evaluation = Evaluation(loaded, self.evaluate, self.algorithm, self.solver, self.own_models, last)
        evaluation.check()
        if self.until is not None:
            check_conditions(self.until, evaluation.metrics)
        assert evaluation.algorithm is not None
        return Checked(loaded, run._replace(algorithm=evaluation.algorithm), evaluation)

    def to_plain(self) -> dict[str, Any]:
        """The experiment as plain data, from which `from_config` makes it again."""
        if isinstance(self.task, Task) and TASKS.get(self.task.name, self.task) is not self.task:
            raise ValueError(
                f"This task differs from the registered one named {self.task.name!r}; to write it to a file, give it "
                "a name of its own."
            )
        plain: dict[str, Any] = {"task": self.task.name if isinstance(self.task, Task) else self.task}
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if field.name in PARTS and value is not None:
                plain[field.name] = to_plain(value, PARTS[field.name])
            elif isinstance(value, tuple):
                plain[field.name] = list(value)
            elif value is not None:
                table = isinstance(value, Mapping)
                plain[field.name] = {k: _number(v) for k, v in value.items()} if table else value
        return plain

    def to_toml(self) -> str:
        """The experiment as a TOML file, with every field."""
        plain = self.to_plain()
        return tomli_w.dumps(dict(sorted(plain.items(), key=lambda item: isinstance(item[1], dict))))


FIELDS: dict[str, dataclasses.Field] = {f.name: f for f in dataclasses.fields(Experiment)}

# The fields whose values have a name and fields of their own, with their registries.
PARTS = {name: f.metadata["domain"].registry for name, f in FIELDS.items() if f.metadata["domain"].registry}


def entries(value: str | Sequence[Any]) -> list[Any]:
    """A list, which may be written with commas."""
    listed = value.split(",") if isinstance(value, str) else value
    return [entry.strip() if isinstance(entry, str) else entry for entry in listed]


def _try(run: Run) -> None:
    """Trace a round, without compiling it: what is one's own may never have run."""
    try:
        message_sizes(run)
    except Exception as error:  # whatever it does
        raise ValueError(f"{type(run.algorithm).__name__} with {run.solver!r}: {error}") from error


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def method_name(algorithm: Algorithm | Lost) -> str:
    """The name under which an algorithm is registered, or that of its class."""
    if isinstance(algorithm, Lost):
        return algorithm.table["name"].rpartition(":")[2]
    return name_of(algorithm, ALGORITHMS) or type(algorithm).__name__
