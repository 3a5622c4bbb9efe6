"""Recorded traces: a table in Python or in a file of experiments, or a CSV file with the client in the first column."""

import csv
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Rows = tuple[tuple[float, ...], ...]
Trace = Mapping[int, Rows]  # the rows of each client, in order


def is_trace(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple | np.ndarray | pathlib.Path) or (
        isinstance(value, str) and value != ""
    )


def tuples(value: Any) -> Any:
    """Lists and arrays as tuples, so that values can be compared and written to files."""
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(tuples(v) for v in value)
    return value.item() if isinstance(value, np.generic) else value


def settled(trace: Any, columns: tuple[str, ...]) -> Any:
    """A table with integers as clients and numbers in tuples; or the full path of a file, to be read later."""
    if isinstance(trace, str | pathlib.Path):
        return str(pathlib.Path(trace).resolve())
    table = trace if isinstance(trace, Mapping) else dict(enumerate(trace))
    found = {}
    for k, rows in table.items():
        client = int(k) if isinstance(k, str) and k.isdecimal() else k  # TOML has no other keys than text
        if not isinstance(rows, Sequence | np.ndarray) or isinstance(rows, str):
            raise ValueError(f"trace: client {client} must have a list of {' and '.join(columns)}, got {rows!r:.100}.")
        found[client] = tuple(_row(row, columns, client) for row in rows)
    return found


def _row(row: Any, columns: tuple[str, ...], client: Any) -> tuple[float, ...]:
    values = tuple(row) if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) else (row,)
    try:
        numbers = tuple(float(v) for v in values)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != len(columns):
        raise ValueError(f"trace: a row of client {client} must be {' and '.join(columns)}, numbers; got {row!r:.100}.")
    return numbers


def read_trace(trace: Any, columns: tuple[str, ...]) -> Trace:
    """The rows of each client, of a settled trace."""
    if isinstance(trace, Mapping):
        return trace
    path = pathlib.Path(trace)
    if not path.is_file():
        raise ValueError(f"trace: there is no file {str(path)!r}.")
    rows: dict[int, list[tuple[float, ...]]] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [c for c in ("client", *columns) if c not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"trace: {path} has no column {missing[0]!r}; it needs client,{','.join(columns)}.")
        for row in reader:
            try:
                rows.setdefault(int(row["client"]), []).append(tuple(float(row[c]) for c in columns))
            except (TypeError, ValueError):
                raise ValueError(
                    f"trace: {path}, line {reader.line_num}: these must be numbers, got {row!r}."
                ) from None
    return {k: tuple(of_client) for k, of_client in rows.items()}


def check_trace(trace: Trace, clients: int, what: str) -> Trace:
    """All of its clients exist."""
    for k in trace:
        if not isinstance(k, int) or not 0 <= k < clients:
            raise ValueError(f"{what}: the trace names client {k!r}, but clients are 0 to {clients - 1}.")
    return trace
