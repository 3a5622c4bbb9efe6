"""The recipe of a comparison: what is needed to add a method to it later, with the same changes."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.experiments.definition import PARTS, Experiment, entries
from fedloom.experiments.own_files import absolute, is_reference, labels
from fedloom.experiments.plain import to_plain
from fedloom.experiments.settings import experiment
from fedloom.experiments.table_files import is_table, whole_path
from fedloom.hyperparameters import brief
from fedloom.tasks import Task


def recipe(task: str | Task, variant: str | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """{"recipe": ...}: task, variant and changes of a comparison as plain data, or {"no recipe": why there is none}."""
    if isinstance(task, Task):
        return {"no recipe": "its task was given as an object, not by its name or as FILE.py:NAME"}
    found: dict[str, Any] = {}
    for field, value in changes.items():
        try:
            found[field] = _plain_change(field, value)
        except (TypeError, ValueError):
            return {"no recipe": f"it was made with a value of {field} that cannot be written to a file"}
    return {
        "recipe": {
            "task": whole_path(task) if is_table(task) else absolute(task),
            "variant": variant,
            "changes": found,
            "rounds": None,
        }
    }


def _plain_change(field: str, value: Any) -> Any:
    if field in PARTS and value is not None and not isinstance(value, Mapping | str):
        return to_plain(value, PARTS[field])
    if field == "metrics" and isinstance(value, str):
        value = entries(value)
    value = value.item() if isinstance(value, np.generic) else value
    return _absolute(json.loads(json.dumps(value)))


def _absolute(value: Any) -> Any:
    """With whole paths, since the comparison may be extended from another folder."""
    if isinstance(value, dict):
        return {key: _absolute(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_absolute(v) for v in value]
    return absolute(value)


def method_names(methods: Sequence[str | Algorithm], known: Mapping[str, Experiment] | None = None) -> list[str]:
    """What the methods of a comparison are called; `known` are those that it has. Own ones have short names."""
    names = [brief(m) if isinstance(m, Algorithm) else m for m in methods]
    taken = {name: name for name in names if not is_reference(name)}
    taken |= {name: to_plain(e.algorithm, PARTS["algorithm"])["name"] for name, e in (known or {}).items()}
    own = labels([absolute(name) for name in names if is_reference(name)], taken)
    return [own.get(absolute(name), name) for name in names]


def from_recipe(made: Mapping[str, Any], algorithm: str | Algorithm) -> Experiment:
    """The experiment of a method as the comparison would have made it."""
    e = experiment(made["task"], algorithm, made["variant"], **made["changes"])
    return e if made["rounds"] is None else dataclasses.replace(e, rounds=made["rounds"])
