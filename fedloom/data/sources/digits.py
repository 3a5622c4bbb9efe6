"""scikit-learn's digits: 1,797 images of 8 x 8 pixels that come with it, so that nothing needs to be downloaded."""

import numpy as np

from fedloom.data.dataset import Dataset

_TEST = 360  # a fifth, the last: other writers than the first


def digits() -> Dataset:
    """1,437 training and 360 test digits, float32 [n, 8, 8] in [0, 1]."""
    from sklearn.datasets import load_digits  # here, because it takes a second to import

    bunch = load_digits()
    x, y = (bunch.images / 16).astype(np.float32), bunch.target.astype(np.int32)
    return Dataset(x[:-_TEST], y[:-_TEST], x[-_TEST:], y[-_TEST:], classes=10, origin="scikit-learn's digits")
