"""Values as plain data: how files and the command line write algorithms, solvers, cohorts, schedules, regularizers.

A value is a table of its registered name and its fields, {"name": "feddyn", "alpha": 0.1}; a bare name stands for the
value with its defaults. TOML has no null, so None is written "none", unless the field has a choice of that name.
Algorithms, solvers and cohort rules may also be one's own, named FILE.py:NAME.
"""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.algorithms import ALGORITHMS
from fedloom.client import Solver
from fedloom.cohorts import COHORTS, CohortRule
from fedloom.experiments.own_files import Kind, absolute, find, is_reference, own_words, reference_of, references_in
from fedloom.hyperparameters import Optimizer, nearest
from fedloom.solvers import SOLVERS

Registry = Mapping[str, Callable[..., Any]]


def _subclasses(word: str, base: type) -> Kind:
    def holds(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, base) and dataclasses.is_dataclass(value)

    return Kind(word, f"a subclass of {base.__name__} that is made with frozen", holds)


ALGORITHM = _subclasses("algorithm", Algorithm)
OWN_KINDS = (  # what may be one's own
    (ALGORITHMS, ALGORITHM),
    (SOLVERS, _subclasses("solver", Solver)),
    (COHORTS, _subclasses("cohort rule", CohortRule)),
)


@dataclasses.dataclass(frozen=True)
class Lost:
    """A value of one's own whose file is gone or has changed: its table can be read and written, but it cannot run."""

    table: Mapping[str, Any]
    why: str


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
    """The table of a value that is registered or in a file of one's own, with all of its fields."""
    if isinstance(value, Lost):
        return dict(value.table)
    name = name_of(value, registry) or _own_name(value, registry)
    if name is None:
        known = ", ".join(sorted(registry))
        own = "; a class of your own needs a file, from which it is imported" if _own_kind(registry) else ""
        raise ValueError(f"{value!r:.100} cannot be written to a file: it is not one of the registered {known}{own}.")
    if isinstance(value, Optimizer):
        return {"name": name, **{k: _plain(v, {}, k) for k, v in value.settings.items()}}
    fields = {f.name: _plain(getattr(value, f.name), _registry(f), f.name) for f in dataclasses.fields(value)}
    return {"name": name, **fields}


def _own_kind(registry: Registry) -> Kind | None:
    return next((kind for of, kind in OWN_KINDS if of is registry), None)


def _own_name(value: Any, registry: Registry) -> str | None:
    kind = _own_kind(registry)
    return reference_of(value) if kind and kind.holds(type(value)) else None


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
    if isinstance(old, Lost):
        if table.get("name", old.table["name"]) == old.table["name"]:
            raise ValueError(f"{what}: {old.why}")
        old = None
    own = name_of(old, registry)
    name: Any = absolute(table.get("name", own))
    in_file = find(name, wanted) if is_reference(name) and (wanted := _own_kind(registry)) else None
    same = type(old) is in_file if in_file else name == own
    kept: Any = old if same and (dataclasses.is_dataclass(old) or isinstance(old, Optimizer)) else None
    if kept is None and not isinstance(name, str):
        raise ValueError(f"{what} must have a name, one of {_some(registry)}; got {plain!r:.100}.")
    if kept is None and not in_file and name not in registry:
        raise ValueError(f"{what}: there is no {name!r}.{nearest(name, registry)}")
    kind: Any = type(kept) if dataclasses.is_dataclass(kept) else in_file or registry[name]
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
        made = kind(**values) if kept is None else dataclasses.replace(kept, **values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: {error}") from error
    if in_file and not isinstance(made, CohortRule) and jax.tree_util.all_leaves([made]):
        raise ValueError(f"{what}: {name} is not made with frozen; write @fedloom.frozen above the class.")
    return made


def from_record(table: Any, registry: Registry, what: str, old: Any = None) -> Any:
    """`from_plain` of what a run has recorded; `Lost` if it is one's own and its file no longer has it so."""
    if not isinstance(table, Mapping) or not any(references_in(table)):
        return from_plain(table, registry, what, old)
    try:
        made = from_plain(table, registry, what)
        if to_plain(made, registry) == table:
            return made
        why = f"{table['name']} has other fields than it had."
    except (Exception, SystemExit) as error:  # whatever the user's file does
        why = own_words(error) or str(error)
    return Lost(table, why)


def _value(plain: Any, field: dataclasses.Field, what: str, old: Any) -> Any:
    registry, domain = _registry(field), field.metadata.get("domain")
    if isinstance(plain, Mapping) or (isinstance(plain, str) and (plain in registry or _is_own(plain, registry))):
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


def _is_own(text: str, registry: Registry) -> bool:
    return is_reference(text) and _own_kind(registry) is not None


def _registry(field: dataclasses.Field) -> Registry:
    domain = field.metadata.get("domain")
    return domain.registry if domain else {}


def _some(registry: Registry) -> str:
    names = sorted(registry)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
