"""scikit-learn's digits: 1,797 images of 8 x 8 pixels that come with it, so that nothing needs to be downloaded."""

import importlib.util
import pathlib

import numpy as np

from fedloom.data.dataset import Dataset

_TEST = 360  # a fifth, the last: other writers than the first


def digits() -> Dataset:
    """1,437 training and 360 test digits, float32 [n, 8, 8] in [0, 1]."""
    found = importlib.util.find_spec("sklearn")
    assert found is not None, "scikit-learn is one of FedLoom's requirements"
    assert found.origin is not None
    # The file itself, because scikit-learn takes a second to import. A row: 64 pixels from 0 to 16, and the digit.
    path = pathlib.Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    x, y = (table[:, :-1].reshape(-1, 8, 8) / 16).astype(np.float32), table[:, -1].astype(np.int32)
    return Dataset(x[:-_TEST], y[:-_TEST], x[-_TEST:], y[-_TEST:], classes=10, origin="scikit-learn's digits")
