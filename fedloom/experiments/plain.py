"""Algorithms, solvers, cohorts, schedules and regularizers as plain data: what stands in files and on command lines.

A value is a table with its registered name and its fields, {"name": "feddyn", "alpha": 0.1}; a bare name stands for the
value with its defaults. TOML has no null, so None is the word "none", unless the field has a choice of that name.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedloom.hyperparameters import nearest
from fedloom.optimizers import Optimizer

Registry = Mapping[str, Callable[..., Any]]


def to_plain(value: Any, registry: Registry) -> dict[str, Any]:
    """The table of a registered value, all of its fields included."""
    if isinstance(value, Optimizer):
        return {"name": value.name, **{k: _plain(v, {}, k) for k, v in value.settings.items()}}
    for name, kind in registry.items():
        if type(value) is kind:
            fields = {f.name: _plain(getattr(value, f.name), _registry(f), f.name) for f in dataclasses.fields(value)}
            return {"name": name, **fields}
    raise ValueError(
        f"{value!r:.100} cannot be written to a file: it is not one of the registered {', '.join(sorted(registry))}."
    )


def _plain(value: Any, registry: Registry, field: str) -> Any:
    if value is None:
        return "none"
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping) and all(isinstance(k, int) for k in value):  # a trace; TOML's keys are text
        return {str(k): _plain(v, {}, field) for k, v in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, Optimizer):
        return [_plain(v, {}, field) for v in value]
    if hasattr(value, "tolist"):  # arrays and their scalars
        return np.asarray(value).tolist()
    if registry:
        return to_plain(value, registry)
    raise ValueError(f"{field} = {value!r:.100} cannot be written to a file; use a number, or a value with a name.")


def from_plain(plain: Any, registry: Registry, what: str) -> Any:
    """The value that a table or a name stands for; `what` is its place, as in "solver.lr", for error messages."""
    if isinstance(plain, str):
        plain = {"name": plain}
    if not isinstance(plain, Mapping) or not isinstance(plain.get("name"), str):
        raise ValueError(f"{what} must have a name, one of {_some(registry)}; got {plain!r:.100}.")
    name, given = plain["name"], {k: v for k, v in plain.items() if k != "name"}
    if name not in registry:
        raise ValueError(f"{what}: there is no {name!r}.{nearest(name, registry)}")
    kind = registry[name]
    if not dataclasses.is_dataclass(kind):
        try:
            return kind(**{k: None if v == "none" else v for k, v in given.items()})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what}: {name} cannot be made of {given!r}: {error}.") from error
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key in given:
        if key not in fields:
            raise ValueError(f"{what}: {name} has no field {key!r}.{nearest(key, fields)}")
    missing = [f.name for f in fields.values() if f.default is dataclasses.MISSING and f.name not in given]
    if missing:
        raise ValueError(f"{what}: {name} needs {', '.join(missing)}.")
    values = {key: _value(v, fields[key], f"{what}.{key}") for key, v in given.items()}
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: {error}") from error


def _value(plain: Any, field: dataclasses.Field, what: str) -> Any:
    registry, domain = _registry(field), field.metadata.get("domain")
    if isinstance(plain, Mapping) or (isinstance(plain, str) and plain in registry):
        if not registry and domain and domain.holds(plain):
            return plain  # a trace
        if not registry:
            raise ValueError(f"{what} must be one value, got the table {plain!r:.100}.")
        return from_plain(plain, registry, what)
    if isinstance(plain, list):
        if plain and all(isinstance(v, int | float) and not isinstance(v, bool) for v in plain):
            return tuple(plain) if field.metadata.get("static") else np.array(plain, float)
        return tuple(tuple(v) if isinstance(v, list) else v for v in plain)
    return None if plain == "none" and not (domain and domain.holds(plain)) else plain


def _registry(field: dataclasses.Field) -> Registry:
    domain = field.metadata.get("domain")
    return domain.registry if domain else {}


def _some(registry: Registry) -> str:
    names = sorted(registry)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
