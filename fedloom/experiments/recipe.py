"""The recipe of a comparison: what is needed to add a method to it later, with the same changes."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.experiments.definition import PARTS, Experiment
from fedloom.experiments.plain import to_plain
from fedloom.experiments.settings import experiment
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
    name = str(task)
    if ".py:" in name:  # it may be extended from another folder
        file, _, attribute = name.rpartition(":")
        name = f"{pathlib.Path(file).resolve()}:{attribute}"
    return {"recipe": {"task": name, "variant": variant, "changes": found, "rounds": None}}


def _plain_change(field: str, value: Any) -> Any:
    if field in PARTS and value is not None and not isinstance(value, Mapping | str):
        return to_plain(value, PARTS[field])
    value = value.item() if isinstance(value, np.generic) else value
    return json.loads(json.dumps(value))


def from_recipe(made: Mapping[str, Any], algorithm: str | Algorithm) -> Experiment:
    """The experiment of a method as the comparison would have made it."""
    e = experiment(made["task"], algorithm, made["variant"], **made["changes"])
    return e if made["rounds"] is None else dataclasses.replace(e, rounds=made["rounds"])
