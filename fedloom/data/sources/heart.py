"""Heart disease in four hospitals (Janosi, Steinbrunn, Pfisterer and Detrano 1989, UCI, CC BY 4.0).

Departures from the 14 columns of the files, each a number in [-1, 1] or standardised:
- 6 numeric columns are standardised with the mean and the standard deviation of the known values of all hospitals.
- 4 categories become one-hot columns; 3 yes/no columns become -0.5 and 0.5.
- What is missing becomes 0, that is, the mean or no category, and a column of its own says that it is missing. A
  cholesterol or a blood pressure at rest of 0 is impossible and stands for missing, so it is read as missing: all
  123 Swiss patients and 49 of the Veterans Affairs patients have such a cholesterol.
- The label is num > 0, disease or none, as in most published work; the file grades it from 0 to 4.
"""

import csv

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
# In the order of the files: None is a number; otherwise the values that a category can take.
COLUMNS: dict[str, tuple[int, ...] | None] = {
    "age": None,
    "sex": (0, 1),
    "cp": (1, 2, 3, 4),
    "trestbps": None,
    "chol": None,
    "fbs": (0, 1),
    "restecg": (0, 1, 2),
    "thalach": None,
    "exang": (0, 1),
    "oldpeak": None,
    "slope": (1, 2, 3),
    "ca": None,
    "thal": (3, 6, 7),
    "num": (0, 1, 2, 3, 4),
}


def heart_disease() -> Dataset:
    """920 patients with 32 features each (float32), whether they have a heart disease, and their hospital as `keys`.

    There is no test part: what is held out is the task's decision.
    """
    tables = [_read(hospital) for hospital in HOSPITALS]
    values = dict(zip(COLUMNS, np.concatenate(tables).T, strict=True))
    num = values.pop("num")
    for name in ("trestbps", "chol"):
        values[name] = np.where(values[name] == 0, np.nan, values[name])
    features = [column for name, value in values.items() for column in _encode(value, COLUMNS[name])]
    features += [np.isnan(value) for value in values.values() if np.isnan(value).any()]
    return Dataset(
        x=np.stack(features, axis=1).astype(np.float32),
        y=(num > 0).astype(np.int32),
        keys=np.repeat(HOSPITALS, [len(table) for table in tables]),
        classes=2,
        origin="heart disease",
    )


def _encode(value: np.ndarray, categories: tuple[int, ...] | None) -> list[np.ndarray]:
    """The features made of one column, all 0 where it is missing (NaN)."""
    if categories is None:
        value = (value - np.nanmean(value)) / np.nanstd(value)
    elif categories == (0, 1):
        value = value - 0.5
    else:
        return [(value == category).astype(float) for category in categories]
    return [np.nan_to_num(value)]


def _read(hospital: str) -> np.ndarray:
    """The 14 columns of one hospital, with NaN for what is missing."""
    path = locate(f"heart_disease/processed.{hospital}.data")
    with path.open(newline="", encoding="ascii", errors="replace") as file:
        rows = [(line, row) for line, row in enumerate(csv.reader(file), start=1) if row]
    if not rows:
        raise ValueError(f"{path} is empty.")
    table = np.empty((len(rows), len(COLUMNS)))
    for i, (line, row) in enumerate(rows):
        if len(row) != len(COLUMNS):
            raise ValueError(f"{path}, line {line}: there must be {len(COLUMNS)} columns, but there are {len(row)}.")
        for j, ((name, categories), entry) in enumerate(zip(COLUMNS.items(), row, strict=True)):
            missing = entry.strip() == "?" and name != "num"
            try:
                value = np.nan if missing else float(entry)
            except ValueError:
                value = np.inf
            if not missing and (not np.isfinite(value) or (categories is not None and value not in categories)):
                legal = "a number or ?" if categories is None else f"one of {categories}" + " or ?" * (name != "num")
                raise ValueError(f"{path}, line {line}: {name} must be {legal}, but is {entry!r}.")
            table[i, j] = value
    return table
