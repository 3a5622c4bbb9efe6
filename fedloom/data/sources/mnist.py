"""MNIST, and who wrote which digit."""

from pathlib import Path

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate
from fedloom.data.idx import read_idx, read_images, read_labels


def mnist(writers: bool = False) -> Dataset:
    """60,000 training and 10,000 test digits of LeCun, Cortes and Burges, as bytes [n, 28, 28].

    Args:
        writers: also say who wrote each digit, as `keys`: 539 writers of training digits, 297 others of test digits.
            QMNIST (Yadav and Bottou 2019, arXiv:1905.10498) found the NIST numbers of the writers.
    """
    test_y = read_labels(_file("t10k-labels-idx1-ubyte"))
    return Dataset(
        x=read_images(_file("train-images-idx3-ubyte")),
        y=read_labels(_file("train-labels-idx1-ubyte")),
        test_x=read_images(_file("t10k-images-idx3-ubyte")),
        test_y=test_y,
        keys=_writers("train", "train", None) if writers else None,
        test_keys=_writers("t10k", "test", len(test_y)) if writers else None,
        classes=10,
        origin="MNIST",
    )


def _names(stem: str) -> tuple[str, str]:
    return f"mnist/{stem}.gz", f"mnist/{stem}"


def _file(stem: str) -> Path:
    return locate(*_names(stem))


def _writers(part: str, qmnist: str, count: int | None) -> np.ndarray:
    """The writers, from QMNIST's table, whose first `count` rows are MNIST's, or from a file that has nothing else."""
    path = locate(*_names(f"qmnist-{qmnist}-labels-idx2-int"), *_names(f"mnist-{part}-writers-idx1-short"))
    table = read_idx(path)
    if table.ndim == 1:
        return table.astype(np.int32)
    if table.ndim != 2 or table.shape[1] != 8:
        raise ValueError(f"{path} must have the 8 columns of QMNIST's labels, but has shape {table.shape}.")
    return table[:count, 2].astype(np.int32)
