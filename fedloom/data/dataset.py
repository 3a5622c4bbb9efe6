"""Examples as they come from a source, before they are given to clients."""

import dataclasses
from typing import Any

import numpy as np

_MOST_CLASSES = 10_000_000


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples, with the client of each example where the source knows it.

    Arrays are as compact as the source has them (pixels stay uint8); a task's `prepare` turns a minibatch into what
    the model takes.
    """

    x: Any  # inputs, examples along the first axis: an array or a tuple of arrays
    y: np.ndarray  # labels or targets
    test_x: Any = None
    test_y: np.ndarray | None = None
    keys: np.ndarray | None = None  # the client of each training example: any values that can be compared
    test_keys: np.ndarray | None = None
    classes: int | None = None  # labels are 0 .. classes - 1
    coarse: np.ndarray | None = None  # coarse labels of the training examples, where there are two levels
    origin: str = "the dataset"  # where it comes from, for error messages

    def __post_init__(self) -> None:
        parts = ("train", self.x, self.y, self.keys), ("test", self.test_x, self.test_y, self.test_keys)
        for part, x, y, keys in parts:
            if y is None:
                continue
            n = len(y)
            columns = {"x": x if isinstance(x, tuple) else (x,), "keys": () if keys is None else (keys,)}
            for name, arrays in columns.items():
                for a in arrays:
                    if len(a) != n:
                        raise ValueError(f"{self.origin}: {part} has {n} labels but {len(a)} entries in {name}.")
            check_labels(f"{self.origin}: {part}", y, self.classes)


def check_finite(name: str, arrays: Any, of: str = "") -> None:
    """Raise a ValueError for the first row that has nan or infinity, which training would turn into a model of nan."""
    for array in arrays if isinstance(arrays, tuple) else (arrays,):
        a = np.asarray(array)
        if a.dtype.kind != "f" or np.isfinite(a).all():  # integers are finite
            continue
        row, *place = (int(i[0]) for i in np.nonzero(~np.isfinite(a)))
        where = "" if not place else f" in column {place[0]}" if len(place) == 1 else f" at {tuple(place)}"
        raise ValueError(f"{name}: row {row}{of} has {a[(row, *place)]}{where}; remove or fill it.")


def check_labels(where: str, y: Any, classes: int | None) -> None:
    """Labels of a classification are integers 0 .. classes - 1, and few enough to have an output each."""
    if classes is None or np.size(y) == 0:
        return
    a = np.asarray(y)
    if a.dtype.kind not in "biu":
        raise ValueError(f"{where} labels must be integers, got {a.dtype}.")
    if not 1 <= classes <= _MOST_CLASSES:
        raise ValueError(f"{where} has {classes} classes; labels must be numbered 0, 1, 2, ..., without large gaps.")
    low, high = int(a.min()), int(a.max())
    if low < 0 or high >= classes:
        raise ValueError(f"{where} labels must be in 0 .. {classes - 1}, but go from {low} to {high}.")
