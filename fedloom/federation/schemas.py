"""The columns of a table over a federation: each client tells what its own are, and the server merges what it is told.

The result is `tables.schema.unfitted` of all rows in one table. What travels is plain data, as JSON has it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedloom.federation.own_data import OwnData
from fedloom.tables.columns import Column, distinct, usable
from fedloom.tables.preparation import Category, Classes, Number, Preparation, Quantity, as_floats
from fedloom.tables.schema import MOST_CATEGORIES, MOST_CLASSES, NEARLY_ALL, complete

Plain = dict[str, Any]

# What a client sends.


def schema_of(own: OwnData) -> Plain:
    """What the columns of a client's table are, all its rows considered."""
    held = own.unprepared
    features = [_feature(name, column) for name, column in held.table.columns.items() if name != held.label]
    if not features:
        raise ValueError("No column is left to be a feature; there must be another one than label and client.")
    return {"rows": held.table.rows, "columns": features, "label": _label(held.label, held.table.columns[held.label])}


def _feature(name: str, column: Column) -> Plain:
    missing = usable(name, column).missing
    found: Plain = {"name": name, "kind": "number", "missing": bool(missing.any())}
    if missing.all():
        return found | {"kind": "empty"}  # numbers or texts, as the others have
    if not column.is_text:
        as_floats(name, column)  # raises for infinity
        whole = column.values.dtype.kind in "iu"
        return found | {"distinct": whole and len(np.unique(column.values)) == len(column.values)}
    known = column.values[~missing].tolist()
    categories = sorted(set(known))
    _check_categories(name, categories, len(known))  # here, before they leave the client
    return found | {"kind": "text", "categories": categories, "known": len(known)}


def _label(name: str, column: Column) -> Plain:
    values = complete(name, column, "label").values
    if column.is_text:
        classes = sorted(set(values.tolist()))
        _check_classes(name, classes, len(values))
        return {"name": name, "kind": "text", "values": classes}
    as_floats(name, column)
    kind = {"b": "boolean", "f": "number"}.get(values.dtype.kind, "integer")
    classes = [] if kind == "number" else np.unique(values).tolist()  # what cannot be classes is not told
    return {"name": name, "kind": kind, "values": classes if len(classes) <= MOST_CLASSES else None}


def _check_categories(name: str, categories: list[str], rows: int) -> None:
    if len(categories) > MOST_CATEGORIES or _identify(categories, rows):
        raise ValueError(
            f"Column {name!r} has {len(categories)} different texts in {rows} rows, like an identifier or free text, "
            f"and at most {MOST_CATEGORIES} can be categories; leave it out (leave_out)."
        )


def _check_classes(name: str, classes: list[str], rows: int) -> None:
    if _identify(classes, rows):
        raise ValueError(f"The label {name!r} has {len(classes)} different texts in {rows} rows: too many.")


def _identify(values: list[str], rows: int) -> bool:
    return len(values) > max(NEARLY_ALL * rows, MOST_CLASSES)


# What the server makes of it.


def merged(schemas: Mapping[str, Plain]) -> Preparation:
    """The preparation before any statistics, of the schemas of all clients by name, in the order of their numbers."""
    for client, schema in schemas.items():
        _check(client, schema)
    tables = {client: {part["name"]: part for part in schema["columns"]} for client, schema in schemas.items()}
    first = next(iter(tables))
    for client in tables:
        for has, lacks in ((first, client), (client, first)):
            if absent := [name for name in tables[has] if name not in tables[lacks]]:
                raise ValueError(
                    f"Column {absent[0]!r} is in the table of client {has!r}, but not in that of client {lacks!r}; "
                    "add it there, or remove it here."
                )
    rows = sum(schema["rows"] for schema in schemas.values())
    label = _merged_label({client: schema["label"] for client, schema in schemas.items()}, rows)
    parts = {name: {client: table[name] for client, table in tables.items()} for name in tables[first]}
    return Preparation(tuple(_merged_feature(name, found, rows) for name, found in parts.items()), label)


def _merged_feature(name: str, found: Mapping[str, Plain], rows: int) -> Number | Category:
    kinds, marked = _kinds(f"Column {name!r}", found), any(part["missing"] for part in found.values())
    if not kinds:
        raise ValueError(f"Column {name!r} has no value at any client; leave it out (leave_out).")
    if kinds == {"number"}:
        # Clients do not tell their integers, so two of them may have the same ones. It is for a note only.
        return Number(name, marked, rows > MOST_CLASSES and all(part.get("distinct", False) for part in found.values()))
    texts = [part for part in found.values() if part["kind"] == "text"]
    categories = _union(part["categories"] for part in texts)
    _check_categories(name, categories, sum(part["known"] for part in texts))
    return Category(name, tuple(categories), marked, (False,) * len(categories))


def _merged_label(found: Mapping[str, Plain], rows: int) -> Classes | Quantity:
    names = {client: label["name"] for client, label in found.items()}
    (first, name), *_ = names.items()
    if odd := [client for client, other in names.items() if other != name]:
        raise ValueError(f"The label of client {first!r} is {name!r}, but that of {odd[0]!r} is {names[odd[0]]!r}.")
    kinds, told = _kinds(f"The label {name!r}", found), [label["values"] for label in found.values()]
    if "number" in kinds or None in told:
        return Quantity(name)
    # Booleans here and integers there are integers.
    classes = _union(told if len(kinds) == 1 else ([int(value) for value in values] for values in told))
    if len(classes) == 1:
        raise ValueError(
            f"The label {name!r} is {classes[0]!r} in every row of every client; there is nothing to learn."
        )
    if kinds == {"text"}:
        _check_classes(name, classes, rows)
    return Quantity(name) if "integer" in kinds and len(classes) > MOST_CLASSES else Classes(name, tuple(classes))


def _union(values: Iterable[Iterable[Any]]) -> list[Any]:
    return sorted({value for some in values for value in some})


def _kinds(what: str, found: Mapping[str, Plain]) -> set[str]:
    """The kinds of a column at those clients that have values, unless it has texts here and numbers there."""
    kinds = {client: part["kind"] for client, part in found.items() if part["kind"] != "empty"}
    texts = [client for client, kind in kinds.items() if kind == "text"]
    others = [client for client, kind in kinds.items() if kind != "text"]
    if texts and others:
        raise ValueError(
            f"{what} has texts at client {texts[0]!r}, but numbers at client {others[0]!r}; make it one or the other."
        )
    return set(kinds.values())


# What each kind of feature and label must say, whoever sent it.
FEATURES: dict[str, dict[str, type]] = {
    "number": {"distinct": bool},
    "text": {"categories": str, "known": int},
    "empty": {},
}
LABELS = {"text": str, "boolean": bool, "integer": int, "number": float}


def _check(client: str, schema: Any) -> None:
    """Raise a ValueError unless it is a schema."""
    try:
        whole = type(schema["rows"]) is int and schema["rows"] > 0 and len(schema["columns"]) > 0
        features = all(_is_feature(column) for column in schema["columns"])
        label, kind = schema["label"], LABELS[schema["label"]["kind"]]
        values = [] if label["values"] is None else label["values"]
        whole &= type(label["name"]) is str and all(type(value) is kind for value in values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"Client {client!r} has sent what is no schema of a table: {error!r}.") from error
    if not whole or not features:
        raise ValueError(f"Client {client!r} has sent what is no schema of a table.")
    try:
        distinct([schema["label"]["name"], *(column["name"] for column in schema["columns"])])
    except ValueError as error:
        raise ValueError(f"Client {client!r}: {error}") from error


def _is_feature(column: Any) -> bool:
    named = type(column["name"]) is str and type(column["missing"]) is bool
    for field, kind in FEATURES[column["kind"]].items():
        entries = column[field] if field == "categories" else [column[field]]
        named &= all(type(entry) is kind for entry in entries)
    return named
