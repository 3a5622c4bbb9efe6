"""Any dataset that the Hugging Face library `datasets` can load: from its hub, or from csv, json and parquet files."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset


def huggingface(
    name: Any,
    x: str | Sequence[str],
    y: str,
    key: str | None = None,
    split: str = "train",
    test_split: str | None = None,
    **load: Any,
) -> Dataset:
    """Columns of a Hugging Face dataset: images as bytes, other numbers as float32 or int32, labels as int32.

    Args:
        name: a name for datasets.load_dataset ("cifar10", "csv", ...), or a loaded datasets.Dataset (then that is the
            training part) or datasets.DatasetDict.
        x: the column of the inputs; or several columns of numbers, which become the columns of a matrix.
        y: the column of the labels.
        key: the column that says whose example it is.
        split: the training part.
        test_split: the test part, if there is one.
        load: further arguments of load_dataset, such as data_files or revision.
    """
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise ImportError(
            "huggingface() needs the library datasets: pip install 'fedloom[huggingface]' (or pip install datasets)."
        ) from error
    loaded = name if isinstance(name, datasets.Dataset | datasets.DatasetDict) else None
    if isinstance(loaded, datasets.Dataset) and test_split is not None:
        raise ValueError("huggingface: a loaded Dataset has no other split; pass a DatasetDict to name a test_split.")
    origin = f"Hugging Face dataset {name}" if loaded is None else "the loaded Hugging Face dataset"

    def part(which: str) -> Any:
        if isinstance(loaded, datasets.Dataset):
            return loaded
        if loaded is not None:
            if which not in loaded:
                raise ValueError(f"{origin} has the splits {', '.join(loaded)}, but not {which!r}.")
            return loaded[which]
        try:
            return datasets.load_dataset(name, split=which, **load)
        except Exception as error:  # of many kinds, by what is wrong with the hub, the network or the files
            raise ValueError(f"{origin}, split {which!r}, cannot be loaded: {type(error).__name__}: {error}") from error

    train, test = part(split), None if test_split is None else part(test_split)
    parts = [p for p in (train, test) if p is not None]
    for column in ([x] if isinstance(x, str) else [*x]) + [y] + ([] if key is None else [key]):
        for p in parts:
            if column not in p.column_names:
                raise ValueError(f"{origin} has the columns {', '.join(p.column_names)}, but not {column!r}.")
    ys = [_labels(p, y, origin) for p in parts]
    feature = train.features[y]
    classes = feature.num_classes if isinstance(feature, datasets.ClassLabel) else 1 + max(int(a.max()) for a in ys)
    xs = [_inputs(p, x, origin) for p in parts]
    keys = [None if key is None else np.asarray(list(p[key])) for p in parts]
    held_out = (xs[1], ys[1], keys[1]) if test is not None else (None, None, None)
    return Dataset(xs[0], ys[0], held_out[0], held_out[1], keys[0], held_out[2], classes, origin=origin)


def _labels(part: Any, column: str, origin: str) -> np.ndarray:
    labels = np.asarray(list(part[column]))
    if labels.ndim != 1 or len(labels) == 0 or labels.dtype.kind not in "iub":
        raise ValueError(
            f"{origin}: the labels in column {column!r} must be integers, at least one; "
            f"dataset.class_encode_column({column!r}) turns texts into numbers."
        )
    return labels.astype(np.int32)


def _inputs(part: Any, x: str | Sequence[str], origin: str) -> np.ndarray:
    if not isinstance(x, str):
        return np.stack([_inputs(part, column, origin) for column in x], axis=1).astype(np.float32)
    values = [_pixels(value) if hasattr(value, "mode") else value for value in part[x]]
    try:
        inputs = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{origin}: the entries of column {x!r} differ in shape; make them one size first.") from error
    if inputs.dtype.kind not in "fiub":
        raise ValueError(
            f"{origin}: column {x!r} must have images or numbers, but has {inputs.dtype}; encode it first."
        )
    return inputs if inputs.dtype == np.uint8 else inputs.astype(np.float32 if inputs.dtype.kind == "f" else np.int32)


def _pixels(image: Any) -> np.ndarray:
    """A PIL image as bytes; a palette's numbers are no colours."""
    return np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
