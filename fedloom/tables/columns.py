"""Columns by name, from whatever has them: frames of pandas and polars, Arrow tables, arrays.

A column is one of four kinds of NumPy array: booleans, integers, floats in which nan is missing, and texts (objects) in
which None is missing. Booleans and integers with missing values are floats. A column of vectors is a matrix of floats.
"""

import collections
import dataclasses
import datetime
import decimal
import importlib
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Column(NamedTuple):
    """The values of one column, a row each; or what it has that no feature can be made of, in words."""

    values: np.ndarray
    problem: str = ""

    @property
    def is_text(self) -> bool:
        """Whether the values are texts (and None)."""
        return self.values.dtype.kind == "O"

    @property
    def missing(self) -> np.ndarray:
        """Where there is no value."""
        v = self.values
        if self.is_text:
            return np.fromiter((entry is None for entry in v), bool, len(v))
        return np.isnan(v) if v.dtype.kind == "f" else np.zeros(v.shape, bool)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length by name; and, where the file says it, the part of an official split of each row."""

    columns: Mapping[str, Column]
    part: np.ndarray | None = None

    def __post_init__(self) -> None:
        lengths = {name: len(column.values) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            words = ", ".join(f"{name} {n}" for name, n in lengths.items())
            raise ValueError(f"The columns of a table must all have the same number of rows, but have: {words}.")

    @property
    def rows(self) -> int:
        """The number of rows."""
        return next((len(column.values) for column in self.columns.values()), 0)

    def without(self, names: Iterable[str] = ()) -> "Table":
        """The other columns, with a column of vectors x as the columns x_0, x_1, ..., which can be left out, too."""
        names = set(names)
        columns = [(name, column) for name, column in self.columns.items() if name not in names]
        flat = [pair for name, column in columns for pair in _flat(name, column)]
        return Table(by_name((name, column) for name, column in flat if name not in names), self.part)


def by_name(columns: Iterable[tuple[str, Column]]) -> dict[str, Column]:
    """Columns as a dictionary, refusing two of the same name."""
    pairs = list(columns)
    distinct(name for name, _ in pairs)
    return dict(pairs)


def distinct(names: Iterable[str]) -> None:
    """Raise a ValueError if two columns have the same name."""
    if twice := [name for name, n in collections.Counter(names).items() if n > 1]:
        raise ValueError(f"Two columns have the name {twice[0]!r}; rename one of them.")


def _flat(name: str, column: Column) -> list[tuple[str, Column]]:
    if column.values.ndim == 1:
        return [(name, column)]
    return [(f"{name}_{j}", Column(column.values[:, j])) for j in range(column.values.shape[1])]


def as_table(frame: Any) -> Table:
    """A pandas or polars DataFrame, an Arrow table, a dictionary of arrays, or a `Table`, as a `Table`."""
    if isinstance(frame, Table):
        return frame
    if isinstance(frame, Mapping):
        return Table({str(name): _of_entries(str(name), values) for name, values in frame.items()})
    nw = library("narwhals", "table")
    try:
        found = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        raise ValueError(
            "A table must be a pandas or polars DataFrame (a LazyFrame must be collected first), an Arrow table, or a "
            f"dictionary of arrays, got {type(frame).__name__}."
        ) from error
    except nw.exceptions.DuplicateError:
        distinct(str(name) for name in getattr(frame, "column_names", frame.columns))
        raise
    distinct(str(name) for name in found.columns)
    return Table({str(name): _of_series(nw, found[name]) for name in found.columns})


def library(name: str, extra: str) -> Any:
    """A library that is imported only when it is needed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.split(".")[0]
        raise ImportError(f"{package} is not installed; run: pip install 'fedloom[{extra}]'") from error


def _of_series(nw: Any, series: Any) -> Column:
    if isinstance(series.dtype, nw.Categorical | nw.Enum):  # whatever the categories are; to_numpy has wrong ones
        return Column(_texts(series.to_list()))
    return as_column(series.to_numpy())


def _of_entries(name: str, values: Any) -> Column:
    try:
        found = np.asarray(values)
    except ValueError:  # lists of different lengths
        return Column(np.zeros(len(values)), "lists of different lengths")
    if found.ndim == 0:
        raise ValueError(f"Column {name!r} must be an array with an entry for each row, got {values!r:.80}.")
    return as_column(found)


def as_column(values: np.ndarray) -> Column:
    """An array with a row for each example as a column."""
    kind, rows = values.dtype.kind, np.zeros(len(values))
    if kind in "Mm":
        return Column(rows, "dates or times")
    if values.ndim == 2 and kind in "biuf":
        return Column(values.astype(float))
    if values.ndim > 1:
        return Column(rows, f"arrays of shape {values.shape[1:]}")
    if kind == "S":
        return Column(_texts([entry.decode(errors="replace") for entry in values.tolist()]))
    if kind == "U":
        return Column(_texts(values.tolist()))
    if kind == "O":
        return _of_objects(values)
    if kind not in "biuf":
        return Column(rows, f"values of type {values.dtype}")
    return Column(values.astype(float) if kind == "f" else values)


def _of_objects(values: np.ndarray) -> Column:
    """Python objects: of one type, except for those that stand for missing."""
    missing = np.fromiter((is_missing(entry) for entry in values), bool, len(values))
    known = values[~missing].tolist()
    if all(isinstance(entry, str) for entry in known):
        return Column(_texts(values.tolist()))
    if all(isinstance(entry, bool | np.bool_ | numbers.Real | decimal.Decimal) for entry in known):
        exact = np.array(known)
        if not missing.any() and exact.dtype.kind in "biu":
            return Column(exact)
        column = np.full(len(values), np.nan)
        column[~missing] = np.array(known, float)
        return Column(column)
    if all(isinstance(entry, list | tuple | np.ndarray) for entry in known):
        return _of_vectors(known, len(values))
    dates = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
    kinds: dict[str, Any] = {"dates or times": dates, "bytes": bytes, "structures": Mapping}
    found = (words for words, types in kinds.items() if all(isinstance(entry, types) for entry in known))
    return Column(np.zeros(len(values)), next(found, "values of different types"))


def _of_vectors(known: list[Any], rows: int) -> Column:
    try:
        matrix = np.asarray([np.asarray(entry) for entry in known])
    except ValueError:
        return Column(np.zeros(rows), "lists of different lengths")
    if len(known) < rows or matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        return Column(np.zeros(rows), "lists that are missing in some rows, or have more than numbers")
    return Column(matrix.astype(float))


REMEDIES = {
    "dates or times": ", or turn it into a number, such as an age",
    "images": ", or read images with fedloom.data.sources.huggingface",
    "texts that are not in UTF-8": ", or save the file in UTF-8",
}


def usable(name: str, column: Column, remedy: str = "leave it out (leave_out)") -> Column:
    """The column, unless no feature can be made of it."""
    if column.problem:
        remedy += REMEDIES.get(column.problem, "")
        raise ValueError(f"Column {name!r} has {column.problem}, of which no feature can be made: {remedy}.")
    return column


def is_missing(value: Any) -> bool:
    """None, nan, and what pandas has for it."""
    if value is None or (isinstance(value, float) and value != value):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def word(value: Any) -> str:
    """A value as the name of a category or of a client; 3.0 is 3, which it was before its column had missing values."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _texts(values: list[Any]) -> np.ndarray:
    """Words, and None for what is missing; an empty text is missing."""
    found = np.empty(len(values), object)
    found[:] = [None if is_missing(value) or value == "" else word(value) for value in values]
    return found


def words(column: Column) -> np.ndarray:
    """The values of any column as texts."""
    return column.values if column.is_text else _texts(column.values.tolist())
