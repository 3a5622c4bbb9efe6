"""How rows of a table become what a model takes, and what it gives becomes predictions.

A preparation is made from training rows only (`fedloom.tables.sums`), and travels with the model.
"""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedloom.hyperparameters import nearest
from fedloom.tables.columns import Column, Table, as_table, usable, word, words


@dataclasses.dataclass(frozen=True)
class Number:
    """A column of numbers: minus the mean, times the scale; a missing value is taken to be the mean."""

    name: str
    marked: bool = False  # a second feature, 0 or 1, says where the value is missing
    distinct: bool = False  # a different integer in every row: perhaps a number that somebody gave to the row
    mean: float = 0.0
    scale: float = 0.0  # 1 / deviation; 0 if all training values are equal, from which nothing can be learnt

    kind = "number"

    @property
    def names(self) -> list[str]:
        """The names of the features that are made of it."""
        return [self.name, f"{self.name} missing"] if self.marked else [self.name]

    def fitted(self, mean: float, deviation: float) -> "Number":
        """With the statistics of its training values."""
        return dataclasses.replace(self, mean=mean, scale=1 / deviation if deviation else 0.0)

    def encoded(self, column: Column) -> np.ndarray:
        """The features, [rows, len(names)]."""
        values = as_floats(self.name, column)
        missing = np.isnan(values)
        standard = np.where(missing, 0.0, (values - self.mean) * self.scale)
        return np.stack([standard, missing][: len(self.names)], axis=1)

    def remarks(self, column: Column) -> list[str]:
        """What is odd about new rows, in sentences."""
        missing = int(column.missing.sum())
        if self.marked or not missing:
            return []
        return [f"Column {self.name!r} has no value in {counted(missing, 'row')}; the training mean is taken instead."]


@dataclasses.dataclass(frozen=True)
class Category:
    """A column of texts: a feature for each category, 1 in the rows that have it.

    A category that no training row has is 0 everywhere, like one that is not in the list.
    """

    name: str
    categories: tuple[str, ...]
    marked: bool = False
    seen: tuple[bool, ...] = ()  # by training rows

    kind = "category"

    @property
    def names(self) -> list[str]:
        """The names of the features that are made of it."""
        return [f"{self.name}={category}" for category in self.categories] + [f"{self.name} missing"] * self.marked

    def fitted(self, seen: np.ndarray) -> "Category":
        """With the categories that training rows have."""
        return dataclasses.replace(self, seen=tuple(seen.tolist()))

    def codes(self, column: Column) -> np.ndarray:
        """The number of each row's category; -1 where it is missing, and -2 where it is not in the list."""
        numbers = {None: -1} | {category: i for i, category in enumerate(self.categories)}
        return np.fromiter((numbers.get(entry, -2) for entry in words(column)), np.int64, len(column.values))

    def encoded(self, column: Column) -> np.ndarray:
        """The features, [rows, len(names)]."""
        codes = self.codes(column)[:, None]
        hot = (codes == np.arange(len(self.categories))) & np.array(self.seen, bool)
        return np.concatenate([hot, codes == -1], axis=1)[:, : len(self.names)]

    def remarks(self, column: Column) -> list[str]:
        """What is odd about new rows, in sentences."""
        known = {category for category, seen in zip(self.categories, self.seen, strict=True) if seen}
        entries = [entry for entry in words(column) if entry is not None and entry not in known]
        found = []
        if entries:
            found.append(
                f"Column {self.name!r} has values that no training row has, in {counted(len(entries), 'row')}: "
                f"{shortened(sorted(set(entries)))}; they count as no category."
            )
        missing = int(column.missing.sum())
        if missing and not self.marked:
            found.append(
                f"Column {self.name!r} has no value in {counted(missing, 'row')}, which counts as no category."
            )
        return found


@dataclasses.dataclass(frozen=True)
class Classes:
    """A label to classify: its values in sorted order, which the data have as 0, 1, 2, ..."""

    name: str
    values: tuple[Any, ...]  # texts, booleans or integers

    kind = "classes"

    @property
    def outputs(self) -> int:
        """How many outputs a model needs."""
        return len(self.values)

    def encoded(self, column: Column) -> np.ndarray:
        """The labels 0, 1, 2, ... of rows, int32."""
        numbers = {word(value): i for i, value in enumerate(self.values)}
        codes = np.fromiter((numbers.get(entry, -1) for entry in words(column)), np.int32, len(column.values))
        if len(strange := np.flatnonzero(codes < 0)):
            row = int(strange[0])
            entry = words(column)[row]
            what = "no value" if entry is None else f"the value {entry!r}, which is none of {shortened(numbers)}"
            raise ValueError(f"The label {self.name!r} has {what} in row {row} (the first is row 0).")
        return codes

    def decoded(self, y: Any) -> np.ndarray:
        """The label's own values, from labels 0, 1, 2, ..."""
        return np.array(self.values)[np.asarray(y)]

    def predictions(self, outputs: np.ndarray) -> dict[str, np.ndarray]:
        """The most likely value, and the probability of each."""
        odds = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        shares = (odds / odds.sum(axis=1, keepdims=True)).T
        named = {f"probability of {value}": share for value, share in zip(self.values, shares, strict=True)}
        return {"prediction": self.decoded(outputs.argmax(axis=1)), **named}


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A label that is a number. A model learns (label - mean) / deviation, with those of the training rows.

    Data have it as rows (standardised label, deviation), so that errors can be given in the label's own units.
    """

    name: str
    mean: float = 0.0
    deviation: float = 1.0

    kind = "quantity"
    outputs = 1

    def fitted(self, mean: float, deviation: float) -> "Quantity":
        """With the statistics of its training values."""
        return dataclasses.replace(self, mean=mean, deviation=deviation or 1.0)

    def encoded(self, column: Column) -> np.ndarray:
        """Rows (standardised label, deviation)."""
        values = as_floats(self.name, column)
        if len(missing := np.flatnonzero(np.isnan(values))):
            raise ValueError(f"The label {self.name!r} has no value in row {missing[0]} (the first is row 0).")
        return np.stack([(values - self.mean) / self.deviation, np.full(len(values), self.deviation)], axis=1)

    def decoded(self, y: Any) -> np.ndarray:
        """The label in its own units, from the data's rows."""
        return np.asarray(y, float)[:, 0] * self.deviation + self.mean

    def predictions(self, outputs: np.ndarray) -> dict[str, np.ndarray]:
        """The prediction in the label's own units."""
        return {"prediction": outputs[:, 0] * self.deviation + self.mean}


KINDS: dict[str, Any] = {part.kind: part for part in (Number, Category, Classes, Quantity)}


@dataclasses.dataclass(frozen=True)
class Preparation:
    """From the columns of a table to features and labels, and from a model's outputs to predictions."""

    columns: tuple[Number | Category, ...]
    label: Classes | Quantity

    @property
    def names(self) -> list[str]:
        """The names of the features, in order."""
        return [name for column in self.columns for name in column.names]

    def features(self, frame: Any) -> np.ndarray:
        """The features of new rows, float32 [rows, features]. Columns are matched by name; others do not matter.

        A category that training did not see gives zeros and a warning, and so does a missing value in a column that had
        none.
        """
        table = as_table(frame).without()
        for column in self.columns:
            if column.name not in table.columns:
                raise ValueError(
                    f"The table has no column {column.name!r}, which the model needs."
                    f"{nearest(column.name, table.columns)}"
                )
            usable(column.name, table.columns[column.name])
        x = self.encoded(table)
        for column in self.columns:
            for remark in column.remarks(table.columns[column.name]):
                warnings.warn(remark, stacklevel=2)
        return x

    def encoded(self, table: Table) -> np.ndarray:
        """The features of rows whose columns were looked at before."""
        with np.errstate(over="ignore"):
            parts = [column.encoded(table.columns[column.name]) for column in self.columns]
            x = np.concatenate(parts, axis=1).astype(np.float32)
        if not np.isfinite(x).all():
            row, feature = np.argwhere(~np.isfinite(x))[0]
            raise ValueError(
                f"Column {self.names[feature]!r} has a number in row {row} (the first is row 0) that is too far from "
                "those of the training rows."
            )
        return x

    def labels(self, frame: Any) -> np.ndarray:
        """The labels of rows as the data have them: 0, 1, 2, ..., or rows (standardised label, deviation)."""
        table = as_table(frame)
        if self.label.name not in table.columns:
            known = nearest(self.label.name, table.columns)
            raise ValueError(f"The table has no column {self.label.name!r}, the label.{known}")
        return self.label.encoded(table.columns[self.label.name])

    def decoded(self, y: Any) -> np.ndarray:
        """The label's own values, from labels as the data have them."""
        return self.label.decoded(y)

    def predictions(self, outputs: Any) -> dict[str, np.ndarray]:
        """Columns of a model's outputs: "prediction" in the label's own values, and the probability of each class."""
        found = np.asarray(outputs, float)
        if found.ndim == 1 and self.label.outputs == 1:
            found = found[:, None]
        if found.ndim != 2 or found.shape[1] != self.label.outputs:
            raise ValueError(
                f"The outputs for the label {self.label.name!r} must have shape (rows, {self.label.outputs}), "
                f"got {found.shape}."
            )
        return self.label.predictions(found)

    def to_plain(self) -> dict[str, Any]:
        """Numbers, texts, lists and dictionaries, as JSON has them; nothing is lost."""
        return {"columns": [_plain(column) for column in self.columns], "label": _plain(self.label)}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> "Preparation":
        """What `to_plain` described."""
        try:
            return Preparation(tuple(_made(column) for column in plain["columns"]), _made(plain["label"]))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"This does not describe the preparation of a table: {error!r}.") from error


def _plain(part: Any) -> dict[str, Any]:
    fields = {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(part).items()}
    return {"kind": part.kind, **fields}


def _made(plain: Mapping[str, Any]) -> Any:
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in plain.items() if name != "kind"}
    return KINDS[plain["kind"]](**fields)


def as_floats(name: str, column: Column) -> np.ndarray:
    """A column of numbers as floats, nan where they are missing."""
    if column.is_text and not column.missing.all():
        row = int(np.argmin(column.missing))
        raise ValueError(f"Column {name!r} must have numbers, but has {column.values[row]!r} in row {row}.")
    values = np.full(len(column.values), np.nan) if column.is_text else column.values.astype(float)
    if len(infinite := np.flatnonzero(np.isinf(values))):
        row = int(infinite[0])
        raise ValueError(f"Column {name!r} has {values[row]} in row {row} (the first is row 0); remove or fill it.")
    return values


def counted(n: int, what: str) -> str:
    """A number of things, in words."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def shortened(names: Any) -> str:
    """The first few of many names."""
    names = [str(name) for name in names]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
