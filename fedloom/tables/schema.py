"""What the columns of a table are: which are features, of which kind, and what the label is.

The schema is that of the whole table, so that a model has the same size whichever rows are held out.
"""

from typing import Any

import numpy as np

from fedloom.hyperparameters import nearest
from fedloom.tables.columns import Column, Table, usable
from fedloom.tables.preparation import Category, Classes, Number, Preparation, Quantity, as_floats

MOST_CLASSES = 20  # different integers of a label that is a class
MOST_CATEGORIES = 100  # different texts of a feature
NEARLY_ALL = 0.9  # of the rows differ, if there are more than MOST_CLASSES: an identifier, not a category


def unfitted(table: Table, label: str, others: set[str]) -> Preparation:
    """The preparation before any statistics: every column is a feature, except for the label and `others`."""
    found = _label(label, table.columns[label])
    names = [name for name in table.columns if name != label and name not in others]
    if not names:
        raise ValueError("No column is left to be a feature; there must be another one than label and client.")
    return Preparation(tuple(_feature(name, table.columns[name]) for name in names), found)


def column_named(table: Table, name: Any, role: str) -> Column:
    """The column that the user named for a role."""
    if name not in table.columns:
        raise ValueError(f"{role}: there is no column {name!r}.{nearest(str(name), table.columns)}")
    return table.columns[name]


def complete(name: str, column: Column, role: str) -> Column:
    """The column, if every row has a value."""
    usable(name, column, f"it cannot be the {role}")
    if (missing := column.missing).any():
        row = int(np.argmax(missing))
        raise ValueError(f"The {role} {name!r} has no value in row {row} (the first is row 0); remove such rows.")
    return column


def _label(name: str, column: Column) -> Classes | Quantity:
    values = complete(name, column, "label").values
    distinct = sorted(set(values.tolist()))
    if len(distinct) == 1:
        raise ValueError(f"The label {name!r} is {distinct[0]!r} in every row; there is nothing to learn.")
    if column.is_text and _identifies(distinct, values):
        raise ValueError(f"The label {name!r} has {len(distinct)} different texts in {len(values)} rows: too many.")
    if column.is_text or values.dtype.kind == "b" or (values.dtype.kind in "iu" and len(distinct) <= MOST_CLASSES):
        return Classes(name, tuple(distinct))
    as_floats(name, column)
    return Quantity(name)


def _feature(name: str, column: Column) -> Number | Category:
    missing = usable(name, column).missing
    if missing.all():
        raise ValueError(f"Column {name!r} has no value in any row; leave it out (leave_out).")
    marked = bool(missing.any())
    if not column.is_text:
        as_floats(name, column)
        return Number(name, marked, _all_different(column.values))
    known = column.values[~missing]
    categories = sorted(set(known.tolist()))
    if len(categories) > MOST_CATEGORIES or _identifies(categories, known):
        raise ValueError(
            f"Column {name!r} has {len(categories)} different texts in {len(known)} rows, like an identifier or free "
            f"text, and at most {MOST_CATEGORIES} can be categories; leave it out (leave_out)."
        )
    return Category(name, tuple(categories), marked, (False,) * len(categories))


def _identifies(distinct: list[Any], values: np.ndarray) -> bool:
    return len(distinct) > max(NEARLY_ALL * len(values), MOST_CLASSES)


def _all_different(values: np.ndarray) -> bool:
    return values.dtype.kind in "iu" and len(values) > MOST_CLASSES and len(np.unique(values)) == len(values)
