"""Examples as they come from a source, before they are given to clients."""

import dataclasses
from typing import Any

import numpy as np


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
            if self.classes is not None and n:
                low, high = int(np.min(y)), int(np.max(y))
                if low < 0 or high >= self.classes:
                    raise ValueError(
                        f"{self.origin}: {part} labels must be in 0 .. {self.classes - 1}, but go from {low} to {high}."
                    )
