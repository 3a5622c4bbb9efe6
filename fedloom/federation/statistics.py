"""The preparation of tables over a federation: clients send sums over training rows, and no row leaves its client.

    1. client k sends its schema: `schemas`                               unfitted = merged(schemas)
    2. client k sends counts, totals, and how often each category is      mean = totals / counts
    3. client k sends its sums of squared deviations from that mean       fitted(unfitted, total, squares)

The result is that of `from_frame` on all rows in one table; `tables.sums` has the mathematics. What travels is plain
data, and JSON keeps numbers exactly.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedloom.federation.own_data import OwnData
from fedloom.federation.schemas import Plain
from fedloom.tables import sums as of_tables
from fedloom.tables.preparation import Category, Number, Preparation, Quantity

# What a client sends.


def sums_of(own: OwnData, unfitted: Preparation) -> Plain:
    """Over the training rows: how many numbers each column has and their sum, how many rows have each category."""
    held = own.unprepared
    numbers, codes, sizes = of_tables.measured(unfitted, held.table)
    with np.errstate(over="ignore"):  # found next
        sums = _plain(of_tables.of_client(numbers[held.train], codes[held.train], sizes))
    _sums(own.name, unfitted, sums)
    return sums


def squares_of(own: OwnData, unfitted: Preparation, mean: list[float]) -> list[float]:
    """Over the training rows: the sums of squared deviations from the mean of all clients."""
    held, columns = own.unprepared, _numeric(unfitted)
    numbers = of_tables.measured(unfitted, held.table).numbers[held.train]
    with np.errstate(over="ignore"):  # found next
        squares = of_tables.squares_of_client(numbers, _checked(own.name, "mean", mean, columns, float)).tolist()
    _checked(own.name, "squares", squares, columns, float)
    return squares


# What the server makes of it.


def added(unfitted: Preparation, sums: Mapping[str, Plain]) -> Plain:
    """The sums of all clients, from those of each by name, in the order of their numbers."""
    return _plain(functools.reduce(of_tables.added, (_sums(client, unfitted, s) for client, s in sums.items())))


def mean_of(unfitted: Preparation, total: Plain) -> list[float]:
    """The mean of each column of numbers, from what `added` returned: what clients are told next."""
    return of_tables.mean_of(_sums("all", unfitted, total)).tolist()


def fitted(unfitted: Preparation, total: Plain, squares: Mapping[str, list[float]]) -> Preparation:
    """The preparation, from what `added` returned and the squares of each client by name, in the same order."""
    columns = _numeric(unfitted)
    found = functools.reduce(np.add, (_checked(client, "squares", s, columns, float) for client, s in squares.items()))
    if isinstance(unfitted.label, Quantity) and found[-1] == 0:
        words = f"The label {unfitted.label.name!r} is the same in all training rows; there is nothing to learn."
        raise ValueError(words)
    return of_tables.fitted_to(unfitted, _sums("all", unfitted, total), found)


def _plain(sums: of_tables.Sums) -> Plain:
    return {
        "counts": sums.counts.tolist(),
        "totals": sums.totals.tolist(),
        "categories": [counts.tolist() for counts in sums.categories],
    }


def _sums(client: str, unfitted: Preparation, plain: Plain) -> of_tables.Sums:
    """Sums that a client has sent, if they fit the columns."""
    columns, textual = _numeric(unfitted), [c for c in unfitted.columns if isinstance(c, Category)]
    if sorted(plain) != ["categories", "counts", "totals"] or len(plain["categories"]) != len(textual):
        raise ValueError(f"Client {client!r} must send counts, totals, and categories of {len(textual)} columns.")
    categories = (
        _checked(client, "categories", counts, [c.name] * len(c.categories), int)
        for c, counts in zip(textual, plain["categories"], strict=True)
    )
    return of_tables.Sums(
        _checked(client, "counts", plain["counts"], columns, int),
        _checked(client, "totals", plain["totals"], columns, float),
        tuple(categories),
    )


def _numeric(unfitted: Preparation) -> list[str]:
    return [c.name for c in (*unfitted.columns, unfitted.label) if isinstance(c, Number | Quantity)]


def _checked(client: str, what: str, values: Any, columns: list[str], kind: type) -> np.ndarray:
    """One number for each column, if they are as many and of the kind that they must be."""
    if not isinstance(values, list) or [type(value) for value in values] != [kind] * len(columns):
        words = {int: "an integer", float: "a float"}[kind]
        raise ValueError(f"Client {client!r}: {what} must have {words} for each of {len(columns)} columns.")
    for name, value in zip(columns, values, strict=True):
        if not np.isfinite(value):
            raise ValueError(f"Client {client!r}: the numbers of column {name!r} are too large; divide them first.")
        if what not in ("totals", "mean") and value < 0:
            raise ValueError(f"Client {client!r}: {what} of column {name!r} cannot be {value}.")
    return np.array(values, kind)
