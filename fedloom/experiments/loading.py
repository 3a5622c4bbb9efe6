"""What an experiment runs on: a task by its name or file, and its data with another split, model, loss or weights."""

import contextlib
import dataclasses
import functools
import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fedloom.data.federated_data import FederatedData
from fedloom.data.splits import SPLITS
from fedloom.experiments.own_files import Kind, called, find, is_reference
from fedloom.experiments.table_files import is_table, unread
from fedloom.hyperparameters import nearest
from fedloom.loss import Coupled
from fedloom.metrics import LOSSES, METRICS, Criterion, Metric
from fedloom.metrics.evaluation import Scorer
from fedloom.models import MODELS, Model
from fedloom.tasks import TASKS, Loaded, Task

TASK = Kind("task", "a Task", lambda v: isinstance(v, Task))
MODEL = Kind(
    "model",
    "a Model or a function without arguments that returns one",
    lambda v: isinstance(v, Model) or _is_function(v),
)
LOSS = Kind(
    "loss",
    "a function (outputs, y) -> the loss of each example, or Coupled",
    lambda v: _is_function(v) or isinstance(v, Coupled),
)
METRIC = Kind("metric", "a Metric", lambda v: isinstance(v, Metric))


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def find_task(name: str, again: bool = True) -> Task:
    """A registered task, or FILE.py:NAME, a task defined in a Python file."""
    if name in TASKS:
        return TASKS[name]
    if is_table(name):
        return unread(name)
    if not is_reference(name):
        raise ValueError(
            f"There is no task {name!r}.{nearest(name, TASKS)} A task of your own is given as FILE.py:NAME, a table by "
            "its file."
        )
    return find(name, TASK, again)


def find_model(name: str) -> Model:
    """A registered model, or FILE.py:NAME, a model or a function that returns one."""
    found = find(name, MODEL, again=False) if is_reference(name) else MODELS[name]()
    if isinstance(found, Model):
        return found
    if needed := [p.name for p in inspect.signature(found).parameters.values() if p.default is p.empty]:
        raise ValueError(f"model: {name} needs {', '.join(needed)}; give a function without arguments.")
    made = called(found)
    if not isinstance(made, Model):
        raise ValueError(f"model: {name} must return a Model, but returns {made!r:.80}.")
    return made


def find_loss(name: str) -> Criterion | Coupled:
    """A registered loss, or FILE.py:NAME."""
    return find(name, LOSS, again=False) if is_reference(name) else LOSSES[name]


def find_metric(name: str) -> Metric:
    """A registered metric, or FILE.py:NAME."""
    return find(name, METRIC, again=False) if is_reference(name) else METRICS[name]


def check_split(split: Mapping[str, Any]) -> None:
    """Raise a ValueError unless the split is named and has only fields that it knows."""
    name = split.get("name")
    if name is None:
        raise ValueError(f"split.{next(iter(split), 'name')} needs a split: give --split NAME, too.")
    if name not in RESPLIT:
        raise ValueError(f"split: there is no split {name!r} by labels.{nearest(str(name), RESPLIT)}")
    known = [p for p in list(inspect.signature(SPLITS[name]).parameters)[1:] if p not in ("seed", "sizes", "priors")]
    for key in split:
        if key not in ("name", *known):
            raise ValueError(f"split: {name} has no field {key!r}.{nearest(key, known)}")


# Splits by labels alone, which can replace a task's own.
RESPLIT = tuple(n for n in SPLITS if next(iter(inspect.signature(SPLITS[n]).parameters)) in ("n", "labels"))


@functools.lru_cache(maxsize=8)  # the methods of a comparison share their data, one copy for each seed
def load(
    task: Task,
    seed: int,
    split: str | None,
    model: Model | None,
    loss: Criterion | Coupled | None,
    metrics: tuple[Metric, ...],
    weights: str | None,
    validation: float,
) -> Loaded:
    """The task's data; the split is a table in JSON, which is hashable. The metrics come after the task's own."""
    more = tuple(metric for metric in metrics if metric not in task.metrics)
    given = {"model": model, "criterion": loss, "weights": weights, "metrics": (*task.metrics, *more) if more else None}
    changes: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if task.model is None and changes:
        raise ValueError(
            f"model, loss, metrics and weights: task {task.name!r} is given by functions of w, which have none of them."
        )
    if split is not None or validation > 0:
        data: Any = task.data(seed) if callable(task.data) else task.data
        if split is not None:
            data = _resplit(task, data, json.loads(split), seed)
        if validation > 0 and not isinstance(data, FederatedData):
            raise ValueError(f"validation: the clients of task {task.name!r} have no examples to hold out.")
        changes["data"] = data.with_validation(validation, seed) if validation > 0 else data
    with contextlib.nullcontext() if model is None else _fitting("model", task):
        loaded = dataclasses.replace(task, **changes).load(seed)
    if loss is not None:
        with _fitting("loss", task):
            jax.eval_shape(loaded.federation.loss, loaded.w)
    own = loaded.task.model
    if more and own is not None and loaded.data is not None:
        score, some = Scorer(more, own.apply, task.prepare), jax.tree.map(lambda a: a[:2], loaded.data.train)
        with _fitting("metrics", task):
            jax.eval_shape(score, own.unravel(loaded.w), some)
    return loaded


@contextlib.contextmanager
def _fitting(field: str, task: Task) -> Iterator[None]:
    """An error says which field does not fit the task."""
    try:
        yield
    except (OSError, ImportError):  # the data are missing, or a library
        raise
    except Exception as error:  # whatever the user's function does
        raise ValueError(f"{field}: it does not fit task {task.name!r}: {error}") from error


def _resplit(task: Task, data: Any, split: dict[str, Any], seed: int) -> FederatedData:
    """The task's training examples, divided anew; the test set stays, but no longer belongs to clients.

    If the task holds examples out for validation, the new clients hold out the same share.
    """
    function = SPLITS[split.pop("name")]
    first = next(iter(inspect.signature(function).parameters))
    if not isinstance(data, FederatedData) or (first != "n" and np.ndim(data.train[1]) != 1):
        raise ValueError(f"split: the data of task {task.name!r} have no labels to split by.")
    held = 0 if data.validation_split is None else len(data.validation_split.order)
    share = held / (held + len(data.split.order))
    data = data.with_validation(0, seed)
    rows = np.sort(data.split.order)
    labels = np.asarray(data.train[1])[rows]
    try:
        divided = function(len(labels) if first == "n" else labels, seed=seed, **split)
    except TypeError as error:
        raise ValueError(f"split: {error}.") from error
    divided = dataclasses.replace(divided, order=rows[divided.order]).at_least(1)
    anew = data.divided(divided, None, None)
    return anew.with_validation(share, seed) if held else anew
