"""Handwritten digits: 1,797 images of 8 x 8 pixels that come with FedLoom, so that nothing needs to be downloaded.

They are the test set of UCI's "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998, CC BY 4.0), the
same as scikit-learn's `load_digits`; digits.txt has the details.
"""

import pathlib

import numpy as np

from fedloom.data.dataset import Dataset

_TEST = 360  # the last fifth: not the same writers as the first


def digits() -> Dataset:
    """1,437 training and 360 test digits, float32 [n, 8, 8] in [0, 1]."""
    with np.load(pathlib.Path(__file__).with_name("digits.npz")) as file:
        x, y = (file["images"] / 16).astype(np.float32), file["labels"].astype(np.int32)
    return Dataset(x[:-_TEST], y[:-_TEST], x[-_TEST:], y[-_TEST:], classes=10, origin="the UCI digits")
