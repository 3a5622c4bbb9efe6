"""Recorded traces: a table in Python, or a CSV file with the client in the first column."""

import csv
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

Trace = dict[int, list[tuple[float, ...]]]  # the rows of each client, in order


def read_trace(trace: Any, columns: tuple[str, ...]) -> Trace:
    """The rows of each client. A row of one column may be given as a number."""
    if isinstance(trace, str | pathlib.Path):
        return _from_file(pathlib.Path(trace), columns)
    if isinstance(trace, Sequence):
        trace = dict(enumerate(trace))
    if not isinstance(trace, Mapping):
        raise ValueError(f"trace must be a table {{client: rows}} or the name of a CSV file, got {trace!r:.100}.")
    return {k: [_row(row, columns, k) for row in rows] for k, rows in trace.items()}


def _row(row: Any, columns: tuple[str, ...], k: Any) -> tuple[float, ...]:
    values = tuple(row) if isinstance(row, Sequence) else (row,)
    if len(values) != len(columns):
        raise ValueError(f"trace: a row of client {k} must have {', '.join(columns)}, got {row!r:.100}.")
    return tuple(float(v) for v in values)


def _from_file(path: pathlib.Path, columns: tuple[str, ...]) -> Trace:
    if not path.is_file():
        raise ValueError(f"trace: there is no file {str(path)!r}.")
    trace: Trace = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [c for c in ("client", *columns) if c not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"trace: {path} has no column {missing[0]!r}; it needs client,{','.join(columns)}.")
        for row in reader:
            try:
                trace.setdefault(int(row["client"]), []).append(tuple(float(row[c]) for c in columns))
            except (TypeError, ValueError):
                raise ValueError(
                    f"trace: {path}, line {reader.line_num}: these must be numbers, got {row!r}."
                ) from None
    return trace


def check_trace(trace: Trace, clients: int, what: str) -> Trace:
    """All of its clients exist."""
    for k in trace:
        if not isinstance(k, int) or not 0 <= k < clients:
            raise ValueError(f"{what}: the trace names client {k!r}, but clients are 0 to {clients - 1}.")
    return trace
