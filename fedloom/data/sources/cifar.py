"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from the "python version" of the files: a folder or the .tar.gz itself."""

import io
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate
from fedloom.data.pickles import read_arrays


def cifar10() -> Dataset:
    """50,000 training and 10,000 test images of 10 classes, as bytes [n, 32, 32, 3]."""
    path = _locate("cifar10", "cifar-10-batches-py", "cifar-10-python.tar.gz")
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    *train, test = (_batch(*each, "labels") for each in _contents(path, names))
    return Dataset(
        x=np.concatenate([x for x, _ in train]),
        y=np.concatenate([y for _, y in train]),
        test_x=test[0],
        test_y=test[1],
        classes=10,
        origin=f"CIFAR-10 from {path}",
    )


def cifar100() -> Dataset:
    """50,000 training and 10,000 test images of 100 classes (and `coarse`, 20 superclasses), bytes [n, 32, 32, 3]."""
    path = _locate("cifar100", "cifar-100-python", "cifar-100-python.tar.gz")
    train, test = (_batch(*each, "fine_labels", "coarse_labels") for each in _contents(path, ["train", "test"]))
    return Dataset(
        x=train[0],
        y=train[1],
        test_x=test[0],
        test_y=test[1],
        classes=100,
        coarse=train[2],
        origin=f"CIFAR-100 from {path}",
    )


def _locate(name: str, *forms: str) -> Path:
    return locate(*(f"{name}/{form}" for form in forms), *forms)


def _contents(path: Path, names: list[str]) -> list[tuple[dict[str, Any], str]]:
    """The dictionaries in the files `names`, of a folder or of an archive that has one folder, and where they are."""
    if path.is_dir():
        missing = [name for name in names if not (path / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{path} has no {' and no '.join(missing)}; unpack the archive again.")
        contents = []
        for name in names:
            with (path / name).open("rb") as file:
                contents.append((read_arrays(file, str(path / name)), str(path / name)))
        return contents
    found = {}
    try:
        with tarfile.open(path, "r|gz") as archive:  # one pass: looking for each name would decompress it each time
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in names and member.isfile():
                    extracted: Any = archive.extractfile(member)
                    found[name] = extracted.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete .tar.gz archive ({error}); delete it and get it again.") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path} has no file {' and no file '.join(missing)} in it.")
    return [(read_arrays(io.BytesIO(found[name]), f"{path}:{name}"), f"{path}:{name}") for name in names]


def _batch(content: dict[str, Any], origin: str, *labels: str) -> tuple[np.ndarray, ...]:
    """The images of one file, and its labels under each of these names."""
    missing = [name for name in ("data", *labels) if name not in content]
    if missing:
        raise ValueError(f"{origin} has no {' and no '.join(missing)}, only {', '.join(map(str, content))}.")
    x = np.asarray(content["data"])
    if x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != 3072:
        raise ValueError(f"{origin}: data must be rows of 3072 bytes, but is {x.dtype} of shape {x.shape}.")
    ys = [np.asarray(content[name]) for name in labels]
    for name, y in zip(labels, ys, strict=True):
        if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
            raise ValueError(f"{origin}: {name} must be {len(x)} integers, but is {y.dtype} of shape {y.shape}.")
    # Red, green and blue planes one after the other -> channels last.
    return np.ascontiguousarray(x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), *(y.astype(np.int32) for y in ys)
