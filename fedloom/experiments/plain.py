"""Values as plain data: how files and the command line write algorithms, solvers, cohorts, schedules, regularizers.

A value is a table of its registered name and its fields, {"name": "feddyn", "alpha": 0.1}; a bare name stands for the
value with its defaults. TOML has no null, so None is written "none", unless the field has a choice of that name.
"""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedloom.hyperparameters import Optimizer, nearest

Registry = Mapping[str, Callable[..., Any]]


def parse(text: str) -> Any:
    """A number, a list or a table in TOML's notation. Any other text is a name, which needs no quotes here."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def name_of(value: object, registry: Registry) -> str | None:
    """The name under which a value is registered, if it is."""
    if isinstance(value, Optimizer):
        return value.name
    return next((name for name, kind in registry.items() if type(value) is kind), None)


def to_plain(value: Any, registry: Registry) -> dict[str, Any]:
    """The table of a registered value, with all of its fields."""
    name = name_of(value, registry)
    if name is None:
        known = ", ".join(sorted(registry))
        raise ValueError(f"{value!r:.100} cannot be written to a file: it is not one of the registered {known}.")
    if isinstance(value, Optimizer):
        return {"name": name, **{k: _plain(v, {}, k) for k, v in value.settings.items()}}
    fields = {f.name: _plain(getattr(value, f.name), _registry(f), f.name) for f in dataclasses.fields(value)}
    return {"name": name, **fields}


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


def from_plain(plain: Any, registry: Registry, what: str, old: Any = None) -> Any:
    """The value that a name or a table stands for.

    Args:
        plain: a name, or a table with a name and fields.
        registry: the kinds of values, by name.
        what: where the value belongs, such as "solver.lr", for error messages.
        old: the value to change. A table that has its name, or none, keeps the fields that it does not mention.
    """
    table = {"name": plain} if isinstance(plain, str) else plain
    if not isinstance(table, Mapping):
        raise ValueError(f"{what} must be a name or a table, got {plain!r:.100}.")
    given = {k: v for k, v in table.items() if k != "name"}
    own = name_of(old, registry)
    name: Any = table.get("name", own)
    kept: Any = old if name == own and (dataclasses.is_dataclass(old) or isinstance(old, Optimizer)) else None
    if kept is None and not isinstance(name, str):
        raise ValueError(f"{what} must have a name, one of {_some(registry)}; got {plain!r:.100}.")
    if kept is None and name not in registry:
        raise ValueError(f"{what}: there is no {name!r}.{nearest(name, registry)}")
    kind: Any = type(kept) if dataclasses.is_dataclass(kept) else registry[name]
    if not isinstance(kind, type):  # a function that makes an optimizer
        settings = kept.settings if isinstance(kept, Optimizer) else {}
        try:
            return kind(**settings | {k: None if v == "none" else v for k, v in given.items()})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what}: {name} cannot be made from {given!r}: {error}.") from error
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key in given:
        if key not in fields:
            raise ValueError(f"{what}: {name or kind.__name__} has no field {key!r}.{nearest(key, fields)}")
    missing = [f.name for f in fields.values() if f.default is dataclasses.MISSING and f.name not in given]
    if kept is None and missing:
        raise ValueError(f"{what}: {name} needs {', '.join(missing)}.")
    values = {key: _value(v, fields[key], f"{what}.{key}", getattr(kept, key, None)) for key, v in given.items()}
    try:
        return kind(**values) if kept is None else dataclasses.replace(kept, **values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: {error}") from error


def _value(plain: Any, field: dataclasses.Field, what: str, old: Any) -> Any:
    registry, domain = _registry(field), field.metadata.get("domain")
    if isinstance(plain, Mapping) or (isinstance(plain, str) and plain in registry):
        if not registry and domain and domain.holds(plain):
            return plain  # a trace
        if not registry:
            raise ValueError(f"{what} must be a single value, got the table {plain!r:.100}.")
        return from_plain(plain, registry, what, old)
    if isinstance(plain, list):
        if plain and all(isinstance(v, int | float) and not isinstance(v, bool) for v in plain):
            return tuple(plain) if field.metadata.get("static") else np.array(plain, float)
        return tuple(tuple(v) if isinstance(v, list) else v for v in plain)
    return None if isinstance(plain, str) and plain == "none" and not (domain and domain.holds(plain)) else plain


def _registry(field: dataclasses.Field) -> Registry:
    domain = field.metadata.get("domain")
    return domain.registry if domain else {}


def _some(registry: Registry) -> str:
    names = sorted(registry)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
