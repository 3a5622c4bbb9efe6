"""EMNIST (Cohen, Afshar, Tapson and van Schaik 2017, arXiv:1702.05373), from NIST's IDX or Matlab files.

Departures: both kinds of files store images by columns, so that they look mirrored and turned; we turn them upright,
as MNIST's. Letters are labelled 0 .. 25 here, 1 .. 26 in the files. `emnist_l` leaves images as stored, as FedDyn's
authors do.
"""

from pathlib import Path

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate
from fedloom.data.idx import read_images, read_labels

CLASSES = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}


def emnist(split: str, writers: bool = False, upright: bool = True) -> Dataset:
    """One of EMNIST's splits: balanced, byclass, bymerge, digits, letters or mnist; images are bytes [n, 28, 28].

    Args:
        split: the name of the split.
        writers: insist on the Matlab file, which knows who wrote what (`keys`). If False, either kind of file will do.
        upright: turn the images upright; otherwise they are as stored, rows for columns.
    """
    if split not in CLASSES:
        raise ValueError(f"EMNIST has the splits {', '.join(CLASSES)}, but not {split!r}.")
    matlab = (f"emnist/emnist-{split}.mat", f"emnist/matlab/emnist-{split}.mat")
    first = locate(*matlab) if writers else locate(*_idx(split, "train", "images"), *matlab)
    if first.suffix == ".mat":
        parts = _read_matlab(first)
    else:
        parts = [
            (
                read_images(locate(*_idx(split, part, "images"))),
                read_labels(locate(*_idx(split, part, "labels"))),
                None,
            )
            for part in ("train", "test")
        ]
    (x, y, keys), (test_x, test_y, test_keys) = parts
    if upright:
        x, test_x = (np.ascontiguousarray(images.transpose(0, 2, 1)) for images in (x, test_x))
    if split == "letters":
        y, test_y = y - 1, test_y - 1
    return Dataset(x, y, test_x, test_y, keys, test_keys, CLASSES[split], origin=f"EMNIST {split} from {first.parent}")


def emnist_l() -> Dataset:
    """FedDyn's EMNIST-L: the letters A to J, both cases of a letter together, images as stored (not upright)."""
    letters = emnist("letters", upright=False)
    keep, test_keep = letters.y < 10, np.asarray(letters.test_y) < 10
    return Dataset(
        x=letters.x[keep],
        y=letters.y[keep],
        test_x=letters.test_x[test_keep],
        test_y=np.asarray(letters.test_y)[test_keep],
        keys=None if letters.keys is None else letters.keys[keep],
        test_keys=None if letters.test_keys is None else letters.test_keys[test_keep],
        classes=10,
        origin=letters.origin,
    )


def _idx(split: str, part: str, what: str) -> tuple[str, ...]:
    name = f"emnist-{split}-{part}-{what}-idx{3 if what == 'images' else 1}-ubyte"
    return tuple(f"emnist/{folder}{name}{ending}" for folder in ("", "gzip/") for ending in (".gz", ""))


def _read_matlab(path: Path) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Images, labels and writers of the training and of the test part of an EMNIST Matlab file."""
    import scipy.io

    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []
    try:
        dataset = scipy.io.loadmat(path, variable_names=["dataset"])["dataset"][0, 0]
        for part in ("train", "test"):
            images, labels, writers = (dataset[part][0, 0][name] for name in ("images", "labels", "writers"))
            if images.dtype != np.uint8:
                raise ValueError(f"{part}.images has {images.dtype}, not bytes")
            parts.append((images.reshape(len(images), 28, 28), _column(labels), _column(writers)))
    except Exception as error:  # a damaged file can raise anything in there
        raise ValueError(
            f"{path} is not an EMNIST Matlab file, a struct dataset.train with images (rows of 784 bytes), labels and "
            f"writers, and the same for dataset.test: {type(error).__name__}: {error}."
        ) from error
    return parts


def _column(numbers: np.ndarray) -> np.ndarray:
    return numbers.reshape(-1).astype(np.int32)
