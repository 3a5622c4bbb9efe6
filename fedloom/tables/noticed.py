"""What a user should know about a table that was read without complaint."""

import numpy as np

from fedloom.data.describe import label_counts
from fedloom.data.federated_data import FederatedData
from fedloom.tables.preparation import Category, Number, Preparation, Quantity, shortened
from fedloom.tables.schema import MOST_CLASSES


def notes(data: FederatedData) -> tuple[str, ...]:
    """Short sentences about the data of a table; none about other data."""
    if not isinstance(data.preparation, Preparation):
        return ()
    columns, label = data.preparation.columns, data.preparation.label
    found = _filled([c.name for c in columns if isinstance(c, Number) and c.marked])
    for column in columns:
        if isinstance(column, Number) and column.distinct:
            found.append(
                f"column {column.name} has a different integer in every row; "
                "if that is an identifier, leave it out (leave_out)"
            )
        elif isinstance(column, Number) and column.scale == 0:
            found.append(f"column {column.name} has not two different values in the training rows, and is not used")
        elif isinstance(column, Category) and not all(column.seen):
            unseen = [name for name, seen in zip(column.categories, column.seen, strict=True) if not seen]
            found.append(f"column {column.name}: no training row has {shortened(unseen)}, which count as no category")
    if isinstance(label, Quantity):
        return (*found, *_few_values(label, np.asarray(data.train[1])[:, 0]))
    counts = label_counts(np.asarray(data.train[1]), data.split, label.outputs)
    return (*found, *_one_class(counts, data, label.values))


def _filled(names: list[str]) -> list[str]:
    if not names:
        return []
    have = f"column {names[0]} has" if len(names) == 1 else f"columns {shortened(names)} have"
    return [f"{have} missing values: they are filled with the training mean, and marked"]


def _few_values(label: Quantity, y: np.ndarray) -> list[str]:
    if len(np.unique(y)) > MOST_CLASSES:
        return []
    return [f"the label {label.name} has few different values, but is predicted as a number; make classes texts"]


def _one_class(counts: np.ndarray, data: FederatedData, values: tuple[object, ...]) -> list[str]:
    alone = np.flatnonzero((counts > 0).sum(axis=1) == 1)
    if len(alone) == 0:
        return []
    names = data.split.names
    client = alone[0] if names is None else names[alone[0]]
    first = f"client {str(client)!r} has training rows of one class only (label {values[counts[alone[0]].argmax()]})"
    more = {1: "", 2: ", and so has 1 other"}.get(len(alone), f", and so have {len(alone) - 1} others")
    return [f"{first}{more}; metrics such as AUC are undefined for such a client"]
