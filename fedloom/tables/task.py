"""A table as a task: its rows given to clients, prepared from what they train on, with a model."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fedloom.data.federated_data import FederatedData
from fedloom.data.split import Split
from fedloom.data.splits import by_key, train_test
from fedloom.metrics.scores import NONNEGATIVE, Metric, accuracy, cross_entropy, squared_error
from fedloom.models import Model, logistic, mlp
from fedloom.tables.columns import Column, Table, as_table, words
from fedloom.tables.preparation import Classes, Preparation, counted, shortened
from fedloom.tables.reading import read
from fedloom.tables.schema import column_named, complete, unfitted
from fedloom.tables.sums import fitted
from fedloom.tasks.task import Task

TableModel = str | Model | Callable[[int, int], Model]

TRAIN, VALIDATION, TEST = range(3)
PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("validation", "valid", "val"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}


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
    leave_out = (leave_out,) if isinstance(leave_out, str) else tuple(leave_out)
    whole = as_table(frame)
    for left in leave_out:
        if left not in whole.columns:
            column_named(whole.without(), left, "leave_out")
    table = whole.without(leave_out)
    roles = {"label": label, "client": client, "split_column": split_column}
    given = {role: column for role, column in roles.items() if column is not None}
    for role, column in given.items():
        column_named(table, column, role)
    if len(set(given.values())) < len(given):
        raise ValueError(f"{', '.join(given)} must be different columns, got {', '.join(given.values())}.")
    if table.rows < 2:
        raise ValueError(f"A table must have at least 2 rows, but has {table.rows}.")
    preparation = unfitted(table, label, set(given.values()))
    owners = Split(np.arange(table.rows), np.array([table.rows]), np.array(["all"]))
    if client is not None:
        owners = by_key(_keys(complete(client, table.columns[client], "client")))
    rows = TableRows(table, preparation, owners, _parts(table, split_column), test)
    made = table_model(model, len(preparation.names), preparation.label.outputs)
    _check_model(made, preparation)
    classes = isinstance(preparation.label, Classes)
    return Task(
        name,
        rows,
        made,
        criterion=cross_entropy if classes else standardised_error,
        metrics=(accuracy,) if classes else (mse,),
        about=_about(rows, client),
    )


def from_file(path: str | pathlib.Path, **options: Any) -> Task:
    """`from_frame` for a file that `read` can read; the task is named after it."""
    stem = pathlib.Path(path).name.split(".")[0] or "table"
    return from_frame(read(path), **{"name": stem, **options})


@dataclasses.dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a table and who owns them; a function of the seed, which draws the rows that are held out."""

    table: Table
    unfitted: Preparation
    owners: Split
    part: np.ndarray | None  # TRAIN, VALIDATION or TEST for each row, where there is an official split
    test: float

    def __call__(self, seed: int) -> FederatedData:
        order, owner, part = self.owners.order, self.owners.owner(), self._drawn(seed)[self.owners.order]
        trains = np.bincount(owner[part == TRAIN], minlength=self.owners.clients) > 0
        number = np.cumsum(trains) - 1  # of the clients that train; the others have at most test rows
        stored, tested = np.flatnonzero((part != TEST) & trains[owner]), np.flatnonzero(part == TEST)

        def split(places: np.ndarray, chosen: np.ndarray) -> Split:
            """Those of the places in a store that are chosen."""
            sizes = np.bincount(number[owner[places[chosen]]], minlength=trains.sum())
            names = None if self.owners.names is None else self.owners.names[trains]
            return Split(np.flatnonzero(chosen), sizes, names)

        training = split(stored, part[stored] == TRAIN)
        held = split(stored, part[stored] == VALIDATION)
        own = split(tested, trains[owner[tested]])
        stores = Stores(self.table, self.unfitted, order[stored], order[tested])
        label = self.unfitted.label
        return FederatedData(
            split=training,
            test_split=own if len(own.order) else None,
            classes=label.outputs if isinstance(label, Classes) else None,
            validation_split=held if len(held.order) else None,
            refit=stores.refit,
            **stores.fitted(training),
        )

    def _drawn(self, seed: int) -> np.ndarray:
        if self.part is not None:
            return self.part
        part = np.full(self.table.rows, TRAIN)
        if self.test > 0:
            part[train_test(self.owners, seed, max(1 - self.test, 1e-9))[1].order] = TEST
        return part


@dataclasses.dataclass(frozen=True, eq=False)
class Stores:
    """Which rows of a table are in the training store and in the test set, and how they are prepared."""

    table: Table
    unfitted: Preparation
    train: np.ndarray
    test: np.ndarray

    def fitted(self, split: Split) -> dict[str, Any]:
        """The stores, prepared from the rows that clients train on."""
        made = fitted(self.unfitted, self.table, [self.train[split.rows(k)] for k in range(split.clients)])
        x, y = made.encoded(self.table), made.labels(self.table)
        test = (x[self.test], y[self.test]) if len(self.test) else None
        return {"train": (x[self.train], y[self.train]), "test": test, "preparation": made}

    def refit(self, data: FederatedData) -> FederatedData:
        """The data, prepared anew from the rows that clients train on now."""
        return dataclasses.replace(data, **self.fitted(data.split))


def _keys(column: Column) -> np.ndarray:
    """Names of clients that sort as the values do: 2 before 10."""
    v = column.values
    return v.astype(np.int64) if v.dtype.kind == "f" and np.all(v == np.round(v)) else v


def _parts(table: Table, split_column: str | None) -> np.ndarray | None:
    if split_column is None and table.part is None:
        return None
    if split_column is not None and table.part is not None:
        raise ValueError("split_column: the folder has an official split already; leave the option out.")
    where = "split_column" if split_column is None else f"split_column {split_column!r}"
    entries = table.part if split_column is None else words(table.columns[split_column])
    texts = ["(no value)" if entry is None else str(entry) for entry in entries]  # type: ignore[union-attr]
    if strange := sorted({text for text in texts if text.lower() not in PARTS}):
        raise ValueError(f"{where}: the values must be train, validation or test, but some are {shortened(strange)}.")
    parts = np.array([PARTS[text.lower()] for text in texts])
    if not np.any(parts == TRAIN):
        raise ValueError(f"{where}: no row of the table is for training.")
    return parts


def table_model(model: TableModel, features: int, outputs: int) -> Model:
    """A model of a table: "linear", "mlp" (a hidden layer of 64), "mlp-128-64" (hidden layers of these sizes)."""
    if isinstance(model, Model):
        return model
    if callable(model):
        made = model(features, outputs)
        if not isinstance(made, Model):
            raise ValueError(f"model: the function must return a Model, got {made!r:.80}.")
        return made
    if model == "linear":
        return logistic(features, outputs)
    if isinstance(model, str) and re.fullmatch(r"mlp(-[1-9]\d{0,5})*", model):
        hidden = [int(size) for size in model.split("-")[1:]] or [64]
        return mlp(features, *hidden, outputs)
    raise ValueError(
        f"model: there is no model {model!r} of tables; give linear, mlp, mlp-128-64 (sizes of hidden layers), a "
        "Model, or a function (features, outputs) -> Model."
    )


def _check_model(model: Model, preparation: Preparation) -> None:
    features, outputs = len(preparation.names), preparation.label.outputs
    x = jax.ShapeDtypeStruct((2, features), np.float32)
    try:
        found = jax.eval_shape(lambda x: model.apply(model.init(jax.random.key(0)), x, None), x).shape
    except (TypeError, ValueError) as error:
        raise ValueError(f"model: {model.name} does not take the table's {features} features: {error}") from error
    if found != (2, outputs) and not (outputs == 1 and found == (2,)):
        raise ValueError(
            f"model: {model.name} gives outputs of shape {found} for 2 rows, but the label "
            f"{preparation.label.name!r} needs {(2, outputs)}."
        )


def standardised_error(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """The squared error of a number, in deviations of the training rows; y has rows (standardised label, deviation)."""
    return squared_error(outputs, y[:, 0])


def _own_units(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    squared = standardised_error(outputs, y) * y[:, 1] ** 2
    return squared, jax.numpy.ones_like(squared)


mse = Metric("mse", _own_units, larger_is_better=False, bounds=NONNEGATIVE)  # in the label's own units


def _about(rows: TableRows, client: str | None) -> str:
    columns, label = rows.unfitted.columns, rows.unfitted.label
    whose = "" if client is None else f" of {counted(rows.owners.clients, 'client')} ({client})"
    made = f"{counted(len(columns), 'column')}, {counted(len(rows.unfitted.names), 'feature')}"
    what = f"{label.outputs} classes" if isinstance(label, Classes) else "a number"
    return f"A table of {counted(rows.table.rows, 'row')}{whose}: {made}, the label {label.name!r} ({what})."
