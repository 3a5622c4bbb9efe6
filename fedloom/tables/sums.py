"""The statistics of training rows, as sums that clients report.

No row leaves its client: a client computes sums over its own training rows, and a server adds the sums of all clients.
It takes two exchanges, because squared deviations need the mean of all. Sums of squares would do with one, but lose all
digits of a column such as the year.

    1. client k sends the number of its values, their sum, and how many rows have each category
       mean = sum_k sums_k / sum_k counts_k
    2. client k sends sum (value - mean)^2
       deviation = sqrt(sum_k squares_k / sum_k counts_k)
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedloom.tables.columns import Table
from fedloom.tables.preparation import Category, Number, Preparation, Quantity, as_floats

# A column whose deviation is smaller than this, relative to its mean, has equal values: the mean of equal numbers is
# not exactly that number.
_ROUNDING = 1e-11


class Sums(NamedTuple):
    """What one client, or several together, report in the first exchange."""

    counts: np.ndarray  # of each column of numbers: how many values there are
    totals: np.ndarray  # and their sum
    categories: tuple[np.ndarray, ...]  # of each column of texts: how many rows have each category


def of_client(numbers: np.ndarray, codes: np.ndarray, sizes: Sequence[int]) -> Sums:
    """The sums over the rows of one client: numbers [rows, columns] and codes of categories [rows, columns]."""
    categories = (np.bincount(c[c >= 0], minlength=size) for c, size in zip(codes.T, sizes, strict=True))
    return Sums((~np.isnan(numbers)).sum(axis=0), np.nansum(numbers, axis=0), tuple(categories))


def squares_of_client(numbers: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The sums of squared deviations from the mean of all clients, over the rows of one client."""
    return np.nansum((numbers - mean) ** 2, axis=0)


def added(a: Sums, b: Sums) -> Sums:
    """The sums of two together."""
    categories = tuple(x + y for x, y in zip(a.categories, b.categories, strict=True))
    return Sums(a.counts + b.counts, a.totals + b.totals, categories)


class Measured(NamedTuple):
    """What sums are made of: the rows of a table as numbers and as codes of categories."""

    numbers: np.ndarray  # [rows, columns of numbers]; the label is the last, if it is a number
    codes: np.ndarray  # [rows, columns of texts]
    sizes: list[int]  # of each column of texts: how many categories there are


def measured(unfitted: Preparation, table: Table) -> Measured:
    """The rows of a table, of which sums are made."""
    numeric, textual = _numeric(unfitted), _textual(unfitted)
    numbers = _side_by_side([as_floats(c.name, table.columns[c.name]) for c in numeric], table.rows)
    codes = _side_by_side([c.codes(table.columns[c.name]) for c in textual], table.rows)
    return Measured(numbers, codes, [len(column.categories) for column in textual])


def mean_of(sums: Sums) -> np.ndarray:
    """The mean of each column of numbers; 0 if it has no value."""
    return sums.totals / np.maximum(sums.counts, 1)


def fitted(unfitted: Preparation, table: Table, clients: Sequence[np.ndarray]) -> Preparation:
    """The preparation with the statistics of the training rows; clients[k] are the rows of client k."""
    numbers, codes, sizes = measured(unfitted, table)
    with np.errstate(over="ignore", invalid="ignore"):  # found by fitted_to
        sums = functools.reduce(added, (of_client(numbers[rows], codes[rows], sizes) for rows in clients))
        mean = mean_of(sums)
        squares = functools.reduce(np.add, (squares_of_client(numbers[rows], mean) for rows in clients))
    return fitted_to(unfitted, sums, squares)


def fitted_to(unfitted: Preparation, sums: Sums, squares: np.ndarray) -> Preparation:
    """The preparation with the statistics that follow from the sums of all clients in both exchanges."""
    numeric, textual = _numeric(unfitted), _textual(unfitted)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = mean_of(sums), np.sqrt(squares / np.maximum(sums.counts, 1))
    if too_large := [column.name for column, d in zip(numeric, deviation, strict=True) if not np.isfinite(d)]:
        raise ValueError(f"The numbers of column {too_large[0]!r} are too large to be squared; divide them first.")
    deviation = np.where(deviation <= _ROUNDING * np.abs(mean), 0.0, deviation)
    found = {c.name: (float(mean[j]), float(deviation[j])) for j, c in enumerate(numeric)}
    present = {c.name: counts > 0 for c, counts in zip(textual, sums.categories, strict=True)}

    columns = (
        c.fitted(present[c.name]) if isinstance(c, Category) else c.fitted(*found[c.name]) for c in unfitted.columns
    )
    label = unfitted.label
    return Preparation(tuple(columns), label.fitted(*found[label.name]) if isinstance(label, Quantity) else label)


def _numeric(unfitted: Preparation) -> list[Number | Quantity]:
    return [column for column in (*unfitted.columns, unfitted.label) if isinstance(column, Number | Quantity)]


def _textual(unfitted: Preparation) -> list[Category]:
    return [column for column in unfitted.columns if isinstance(column, Category)]


def _side_by_side(columns: list[np.ndarray], rows: int) -> np.ndarray:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), np.int64)
