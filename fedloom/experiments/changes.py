"""Changes to an experiment: tables, dotted names and values are merged into its fields here, and only here."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fedloom.experiments.definition import FIELDS, PARTS, Experiment, entries
from fedloom.experiments.own_files import forget_changed, path_of, references_in
from fedloom.experiments.plain import from_plain, from_record
from fedloom.hyperparameters import nearest
from fedloom.systems import System


def changed(old: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """The experiment with some fields changed: {"rounds": 50, "solver.lr": 0.1, "algorithm": {"name": "fedavg"}}.

    Values may be plain data or the values themselves. A dotted name, or a table, changes the fields that it mentions
    and keeps the others, unless it names a value of another kind.
    """
    whole = {k: v for k, v in changes.items() if k in PARTS and not isinstance(v, Mapping | str)}
    base = dataclasses.replace(old, **whole)
    tables = nested({k: v for k, v in changes.items() if k not in whole})
    return dataclasses.replace(base, **fields_from(tables, base))


def fields_from(tables: Mapping[str, Any], old: Experiment | None = None, recorded: bool = False) -> dict[str, Any]:
    """The fields of an experiment from plain data. What a table does not mention is kept from the old experiment.

    Of a table that a run has `recorded`, what is one's own may be gone.
    """
    fields: dict[str, Any] = {}
    tables = {k: entries(v) if k == "metrics" and isinstance(v, str) and v != "none" else v for k, v in tables.items()}
    for path in map(path_of, references_in(tables)):
        forget_changed(path)
    for name, value in tables.items():
        if name not in FIELDS:
            raise ValueError(f"An experiment has no field {name!r}.{nearest(name, FIELDS)}")
        before = None if old is None else getattr(old, name)
        if isinstance(value, str) and value == "none":
            fields[name] = None
        elif name == "split" and isinstance(value, Mapping | str):
            given = {"name": value} if isinstance(value, str) else dict(value)
            kept = before if before is not None and given.get("name", before["name"]) == before["name"] else {}
            fields[name] = {**kept, **given}
        elif name in PARTS and isinstance(value, Mapping | str):
            if name == "system" and before is None:
                before = System()  # the kind of system that a table without a name means
            read = from_record if recorded else from_plain
            fields[name] = read(value, PARTS[name], name, before)
        else:
            fields[name] = value
    return fields


def nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as tables: {"solver": "gd", "solver.lr": 1} becomes {"solver": {"name": "gd", "lr": 1}}."""
    tables: dict[str, Any] = {}
    for key, value in sorted(changes.items(), key=lambda item: item[0].count(".")):
        *path, last = key.split(".")
        table = tables
        for depth, name in enumerate(path):
            inner = table.get(name, {})
            if not isinstance(inner, Mapping | str):
                field = (*path, last)[depth + 1]
                raise ValueError(f"{'.'.join(path[: depth + 1])} has no field {field!r}: it is {inner!r}.")
            table[name] = {"name": inner} if isinstance(inner, str) else dict(inner)
            table = table[name]
        table[last] = value
    return tables
