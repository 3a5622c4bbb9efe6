"""The rows of a table: who owns which, which are held out, and their preparation from those that clients train on."""

import dataclasses
from typing import Any

import numpy as np

from fedloom.data.federated_data import FederatedData
from fedloom.data.split import Split
from fedloom.data.splits import by_key, train_test
from fedloom.tables.columns import Column, Table, words
from fedloom.tables.preparation import Classes, Preparation, shortened
from fedloom.tables.sums import fitted

TRAIN, VALIDATION, TEST = range(3)
PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("validation", "valid", "val"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}


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


def owners(column: Column) -> Split:
    """A client for each value, sorted as the values are: 2 before 10."""
    v = column.values
    whole = v.dtype.kind == "f" and np.all((v == np.round(v)) & (np.abs(v) < 2**53))
    return by_key(v.astype(np.int64) if whole else v)


def official_parts(table: Table, split_column: str | None) -> np.ndarray | None:
    """TRAIN, VALIDATION or TEST for each row, if a column or the file says it."""
    if split_column is None and table.part is None:
        return None
    if split_column is None:
        where, entries = "the parts of the folder", table.part
    elif table.part is None:
        where, entries = f"split_column {split_column!r}", words(table.columns[split_column])
    else:
        raise ValueError("split_column: the folder has an official split already; leave the option out.")
    texts = ["(no value)" if entry is None else str(entry) for entry in np.asarray(entries).tolist()]
    if strange := sorted({text for text in texts if text.lower() not in PARTS}):
        raise ValueError(f"{where}: the values must be train, validation or test, but some are {shortened(strange)}.")
    parts = np.array([PARTS[text.lower()] for text in texts])
    if not np.any(parts == TRAIN):
        raise ValueError(f"{where}: no row of the table is for training.")
    return parts
