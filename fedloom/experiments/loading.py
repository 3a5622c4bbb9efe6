"""What an experiment runs on: a task by its name or file, and its data with another split, model or weights."""

import dataclasses
import functools
import importlib.util
import inspect
import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedloom.data.federated_data import FederatedData
from fedloom.data.splits import SPLITS
from fedloom.hyperparameters import nearest
from fedloom.models import MODELS
from fedloom.tasks import TASKS, Loaded, Task


def find_task(name: str) -> Task:
    """A registered task, or FILE.py:NAME, a task defined in a Python file."""
    if name in TASKS:
        return TASKS[name]
    path, _, attribute = name.rpartition(":")
    if not path.endswith(".py"):
        raise ValueError(
            f"There is no task {name!r}.{nearest(name, TASKS)} A task of your own is given as FILE.py:NAME."
        )
    module = _module(pathlib.Path(path).resolve())
    if not isinstance(getattr(module, attribute, None), Task):
        found = [n for n, value in vars(module).items() if isinstance(value, Task)]
        raise ValueError(f"{path} has no task {attribute!r}.{nearest(attribute, found)}")
    return getattr(module, attribute)


OWN_FILES: set[str] = set()  # Python files of users: an error in one of them is shown with its line there


@functools.cache
def _module(path: pathlib.Path) -> Any:
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    OWN_FILES.add(str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


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
def load(task: Task, seed: int, split: str | None, model: str | None, weights: str | None, validation: float) -> Loaded:
    """The task's data; the split is a table in JSON, which is hashable."""
    changes: dict[str, Any] = {}
    if task.model is None and (model or weights):
        raise ValueError(f"model and weights: task {task.name!r} is given by functions of w, which have neither.")
    if model is not None:
        changes["model"] = MODELS[model]()
    if weights is not None:
        changes["weights"] = weights
    if split is not None or validation > 0:
        data: Any = task.data(seed) if callable(task.data) else task.data
        if split is not None:
            data = _resplit(task, data, json.loads(split), seed)
        if validation > 0 and not isinstance(data, FederatedData):
            raise ValueError(f"validation: the clients of task {task.name!r} have no examples to hold out.")
        changes["data"] = data.with_validation(validation, seed) if validation > 0 else data
    return dataclasses.replace(task, **changes).load(seed)


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
