"""The table of one client: which of its rows it trains on, and their preparation once the server has told it.

All rows are this client's. Which are held out is drawn from the seed and the client's number alone: in a simulation all
clients draw from one stream, so that a row more at one changes the draws of those after it.
"""

import dataclasses
from typing import Any

import numpy as np

from fedloom.data.federated_data import FederatedData
from fedloom.data.split import Split
from fedloom.data.splits import train_test, train_validation
from fedloom.experiments.definition import Experiment
from fedloom.tables.columns import Table, as_table, words
from fedloom.tables.preparation import Classes, Preparation, counted
from fedloom.tables.rows import TEST, TRAIN, VALIDATION, official_parts
from fedloom.tables.schema import column_named, complete

TEST_SHARE = 0.2  # of the rows, where the table has no official split: as in `from_frame`


@dataclasses.dataclass(frozen=True, eq=False)
class OwnTable:
    """Rows before their preparation, which needs the statistics of all clients."""

    table: Table  # the label, and the columns that are features
    label: str
    train: np.ndarray  # row numbers
    validation: np.ndarray
    test: np.ndarray

    def prepared(self, preparation: Preparation, name: str) -> FederatedData:
        """The rows as a model takes them: the data of a single client."""
        x, y = preparation.encoded(self.table), preparation.labels(self.table)
        n, held, tests = len(self.train), len(self.validation), len(self.test)
        stored, names = np.concatenate([self.train, self.validation]), np.array([name])
        return FederatedData(
            (x[stored], y[stored]),
            Split(np.arange(n), np.array([n]), names),
            (x[self.test], y[self.test]) if tests else None,
            Split(np.arange(tests), np.array([tests]), names) if tests else None,
            classes=preparation.label.outputs if isinstance(preparation.label, Classes) else None,
            validation_split=Split(np.arange(n, n + held), np.array([held]), names) if held else None,
            preparation=preparation,
        )


def own_table(frame: Any, experiment: Experiment, seed: int) -> OwnTable:
    """The rows of a table; `seed` is the client's own."""
    label, client, parts = experiment.label, experiment.client, experiment.split_column
    if label is None:
        raise ValueError("label: name the column that is to be predicted, such as label = 'outcome'.")
    table = as_table(frame)
    # A name that is not there is refused, as elsewhere: it may be spelled otherwise here, and would leave the client.
    for left in experiment.leave_out or ():
        if left not in table.columns:
            column_named(table.without(), left, "leave_out")
    table = table.without(experiment.leave_out or ())
    complete(label, column_named(table, label, "label"), "label")
    if parts is not None:
        column_named(table, parts, "split_column")
    if client is not None and client in table.columns and len(owners := set(words(table.columns[client]))) > 1:
        raise ValueError(
            f"client: the column {client!r} names {counted(len(owners), 'client')}, but all rows of a client's table "
            "are its own; give it a table with its own rows only."
        )
    train, validation, test = _divided(table, parts, experiment.validation, seed)
    return OwnTable(table.without(name for name in (client, parts) if name), label, train, validation, test)


def _divided(table: Table, split_column: str | None, share: float, seed: int) -> tuple[np.ndarray, ...]:
    """The rows to train on, to select by and to test on, each in the order of the table."""
    part = official_parts(table, split_column)
    if part is None:
        part = np.full(table.rows, TRAIN)
        part[train_test(_whole(np.arange(table.rows)), seed, 1 - TEST_SHARE)[1].order] = TEST
    train, held, test = (np.flatnonzero(part == which) for which in (TRAIN, VALIDATION, TEST))
    if share > 0:  # instead of what is held out already
        kept, spared = train_validation(_whole(np.concatenate([train, held])), seed, share)
        train, held = kept.order, spared.order
    return train, held, test


def _whole(rows: np.ndarray) -> Split:
    return Split(rows, np.array([len(rows)]))
