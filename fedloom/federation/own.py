"""A client's data and the task of an experiment, as a party uses them; and the task as the server knows it."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from fedloom.client import Federation
from fedloom.experiments.definition import Experiment
from fedloom.experiments.loading import find_loss, find_metric, find_model
from fedloom.experiments.own_files import find, is_reference
from fedloom.experiments.table_files import MODEL, is_table
from fedloom.federation.agreement import Setup
from fedloom.federation.desk import Desk
from fedloom.federation.evaluating import check_metrics, check_parts, sums_of_model
from fedloom.federation.objectives import Told, seen_by, table_task
from fedloom.federation.own_data import OwnData
from fedloom.federation.schemas import merged, schema_of
from fedloom.federation.statistics import added, fitted, mean_of, squares_of, sums_of
from fedloom.federation.wire import Frame, Refused
from fedloom.models import Model
from fedloom.problem import Vector
from fedloom.tables.preparation import Preparation
from fedloom.tasks import Task

USUAL = ("train", "test")  # what is evaluated if the experiment does not say


def task_of(experiment: Experiment, preparation: Any = None) -> Task | None:
    """The task without its data: model, loss and metrics. None for a table whose columns nobody has described yet."""
    if is_table(experiment.task):
        if preparation is None:
            return None
        name = pathlib.Path(str(experiment.task)).name.split(".")[0] or "table"
        task = table_task(Preparation.from_plain(preparation), _table_model(experiment), name)
    else:
        task = experiment.base_task()
    given = {
        "model": None if experiment.model is None or is_table(experiment.task) else find_model(experiment.model),
        "criterion": None if experiment.loss is None else find_loss(experiment.loss),
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if more := tuple(m for m in map(find_metric, experiment.metrics or ()) if m not in task.metrics):
        changes["metrics"] = (*task.metrics, *more)
    task = dataclasses.replace(task, **changes)
    check_metrics(task)
    check_parts(task, experiment.evaluate or USUAL)
    return task


def _table_model(experiment: Experiment) -> Any:
    name = experiment.model or "mlp"
    if not is_reference(name):
        return name
    found = find(name, MODEL, again=False)
    return found


def check_experiment(experiment: Experiment) -> None:
    """Raise a ValueError for what a federation cannot do."""
    if experiment.system is not None:
        raise ValueError("system: simulated devices and links have no place in a real federation; leave it out.")
    if experiment.split is not None:
        raise ValueError("split: the clients of a federation have their own data; leave it out.")
    if experiment.own_models:
        raise ValueError("own_models: the clients' own models stay with them; leave it out.")
    task_of(experiment)


class OwnRows:
    """The rows of one client."""

    def __init__(self, data: OwnData, experiment: Experiment):
        self.data, self.experiment = data, experiment
        self.parts = experiment.evaluate or USUAL
        self.task = task_of(experiment)
        if self.task is None and data.table is None:
            raise ValueError(f"data: the federation is about a table with the column {experiment.label!r}.")
        if self.task is not None and data.table is not None:
            raise ValueError(f"data: task {self.task.name!r} needs arrays, but a table was given; see --data.")

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def parameters(self) -> int | None:
        """Of the model, if it does not depend on a table."""
        model = None if self.task is None else self.task.model
        return model.parameters if isinstance(model, Model) else None

    def rows(self) -> dict[str, Any] | None:
        data = self.data.data
        if data is not None:
            y = data.train[1]
            return {"classes": data.classes, "y": [list(y.shape[1:]), str(y.dtype)]}
        return None

    def federation(self, setup: Setup) -> Federation:
        try:
            self._prepare(setup)
            assert self.task is not None
            return seen_by(
                self.data, self.task, Told(setup.k, setup.clients, setup.weight, setup.capacity, setup.width)
            )
        except ValueError as error:
            raise Refused(str(error)) from error

    def _prepare(self, setup: Setup) -> None:
        if self.data.table is not None and self.data.data is None:
            if setup.preparation is None:
                raise Refused("the server has not said how tables are prepared.")
            self.data = self.data.prepared(Preparation.from_plain(setup.preparation))
            self.task = task_of(self.experiment, setup.preparation)

    def statistics(self, question: Mapping[str, Any]) -> Any:
        if self.data.table is None:
            raise Refused("this client has no table.")
        step = question.get("step")
        try:
            if step == "schema":
                return schema_of(self.data)
            unfitted = Preparation.from_plain(question["unfitted"])
            return sums_of(self.data, unfitted) if step == "sums" else squares_of(self.data, unfitted, question["mean"])
        except (ValueError, KeyError) as error:
            raise Refused(str(error)) from error

    def evaluated(self, w: Vector, setup: Setup) -> dict[str, list[float]]:
        assert self.task is not None
        return sums_of_model(self.task, self.data, w, self.parts)


def first_model(experiment: Experiment, desk: Desk, patience: float) -> tuple[Vector, Any]:
    """The initial model, and the preparation of tables, for which clients are asked for sums over their rows."""
    preparation = _preparation(desk, patience).to_plain() if is_table(experiment.task) else None
    task = task_of(experiment, preparation)
    assert task is not None
    if task.model is None:  # functions of w
        return jnp.asarray(experiment.load().w), None
    return task.model.flat(experiment.seed), preparation


def _preparation(desk: Desk, patience: float) -> Preparation:
    def ask(step: str, **more: Any) -> dict[str, Any]:
        frame = Frame({"kind": "question", "uid": desk.agreed.uid, "ask": step, "step": step, **more})
        found = desk.ask_each(dict.fromkeys(range(len(desk.names)), frame), "answer", patience, everybody=True)
        return {desk.names[k]: found[k]["content"] for k in sorted(found)}

    unfitted = merged(ask("schema"))
    total = added(unfitted, ask("sums", unfitted=unfitted.to_plain()))
    return fitted(unfitted, total, ask("squares", unfitted=unfitted.to_plain(), mean=mean_of(unfitted, total)))
