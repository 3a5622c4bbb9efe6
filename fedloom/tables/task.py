"""A table as a task: its rows, given to clients, and a model of the size that it needs."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.data.split import Split
from fedloom.metrics.scores import NONNEGATIVE, Metric, squared_error
from fedloom.tables.columns import Table, as_table
from fedloom.tables.models import TableModel, check_model, table_model
from fedloom.tables.preparation import Classes, counted
from fedloom.tables.reading import read
from fedloom.tables.rows import TableRows, official_parts, owners
from fedloom.tables.schema import column_named, complete, unfitted
from fedloom.tasks.task import Task


def from_frame(
    frame: Any,
    *,
    label: str,
    client: str | None = None,
    split_column: str | None = None,
    leave_out: str | Sequence[str] = (),
    model: TableModel = "mlp",
    test: float = 0.2,
    name: str = "table",
) -> Task:
    """A task from a table: predict the column `label`, with a client for each value of the column `client`.

    Texts, booleans, categories and integers with at most 20 different values are classes; other numbers are predicted
    as numbers. Features are made of all other columns, with statistics of the training rows: docs/tables.md.

    Args:
        frame: a pandas or polars DataFrame, an Arrow table, a dictionary of arrays, or what `tables.read` returns.
        label: the column to predict.
        client: the column that says whose row it is; None gives all rows to one client, to be split anew.
        split_column: the column that says train, validation or test. Without it, and if the file has no official split,
            the share `test` of each client's rows is held out, drawn with the seed.
        leave_out: columns that are no features.
        model: a name as in `table_model`, a Model, or a function (features, outputs) -> Model.
        test: the share of each client's rows for testing, in [0, 1).
        name: of the task.
    """
    if isinstance(test, bool) or not isinstance(test, int | float) or not 0 <= test < 1:
        raise ValueError(f"test must be a share in [0, 1), got {test!r}.")
    roles = {"label": label, "client": client, "split_column": split_column}
    given = {role: column for role, column in roles.items() if column is not None}
    table = _chosen(as_table(frame), given, (leave_out,) if isinstance(leave_out, str) else tuple(leave_out))
    preparation = unfitted(table, label, set(given.values()))
    split = Split(np.arange(table.rows), np.array([table.rows]), np.array(["all"]))
    if client is not None:
        split = owners(complete(client, table.columns[client], "client"))
    rows = TableRows(table, preparation, split, official_parts(table, split_column), test)
    made = table_model(model, len(preparation.names), preparation.label.outputs)
    check_model(made, preparation)
    about = _about(rows, client)
    if isinstance(preparation.label, Classes):
        return Task(name, rows, made, about=about)
    return Task(name, rows, made, criterion=standardised_error, metrics=(mse,), about=about)


def _chosen(table: Table, given: Mapping[str, str], leave_out: Sequence[str]) -> Table:
    """The table without what is left out, in which every column that was named exists."""
    for left in leave_out:
        if left not in table.columns:
            column_named(table.without(), left, "leave_out")
    table = table.without(leave_out)
    for role, column in given.items():
        column_named(table, column, role)
    if len(set(given.values())) < len(given):
        raise ValueError(f"{', '.join(given)} must be different columns, got {', '.join(given.values())}.")
    if table.rows < 2:
        raise ValueError(f"A table must have at least 2 rows, but has {table.rows}.")
    return table


def from_file(path: str | pathlib.Path, **options: Any) -> Task:
    """`from_frame` for a file that `read` can read; the task is named after it."""
    stem = pathlib.Path(path).name.split(".")[0] or "table"
    return from_frame(read(path), **{"name": stem, **options})


def standardised_error(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """The squared error of a number, in deviations of the training rows; y has rows (standardised label, deviation)."""
    return squared_error(outputs, y[:, 0])


def _own_units(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    squared = standardised_error(outputs, y) * y[:, 1] ** 2
    return squared, jnp.ones_like(squared)


mse = Metric("mse", _own_units, larger_is_better=False, bounds=NONNEGATIVE)  # in the label's own units


def _about(rows: TableRows, client: str | None) -> str:
    columns, label = rows.unfitted.columns, rows.unfitted.label
    whose = "" if client is None else f" of {counted(rows.owners.clients, 'client')} ({client})"
    made = f"{counted(len(columns), 'column')}, {counted(len(rows.unfitted.names), 'feature')}"
    what = f"{label.outputs} classes" if isinstance(label, Classes) else "a number"
    return f"A table of {counted(rows.table.rows, 'row')}{whose}: {made}, the label {label.name!r} ({what})."
