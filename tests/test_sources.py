"""Sources: the real files where they are, tiny files of the same format otherwise, and files with something wrong."""

import gzip
import os
import pathlib
import pickle
import shutil
import tarfile

import numpy as np
import pytest

from fedloom.data import download
from fedloom.data.sources.cifar import cifar10, cifar100
from fedloom.data.sources.digits import digits
from fedloom.data.sources.emnist import CLASSES, emnist, emnist_l
from fedloom.data.sources.mnist import mnist
from tests.test_files import idx

RNG = np.random.default_rng(0)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    return tmp_path


def real(folder):
    data = os.environ.get("FEDLOOM_DATA")
    if not data or not (pathlib.Path(data) / folder).is_dir():
        pytest.skip(f"needs {folder} in the directory that FEDLOOM_DATA names")
    return pathlib.Path(data)


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


# Digits.


def test_digits_are_the_published_table():
    data = digits()
    assert data.x.shape == (1437, 8, 8)
    assert data.test_x.shape == (360, 8, 8)
    assert data.x.dtype == data.test_x.dtype == np.float32
    assert data.y.dtype == data.test_y.dtype == np.int32
    labels = np.concatenate([data.y, data.test_y])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    pixels = 16 * np.concatenate([data.x, data.test_x])
    np.testing.assert_array_equal(pixels, np.round(pixels))
    assert (pixels.min(), pixels.max()) == (0, 16)
    # The first row of UCI's optdigits.tes.
    assert pixels[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert labels[:10].tolist() == list(range(10))


def test_digits_are_those_of_scikit_learn_in_the_same_order():
    images, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    data = digits()
    np.testing.assert_array_equal(16 * np.concatenate([data.x, data.test_x]).reshape(1797, 64), images)
    np.testing.assert_array_equal(np.concatenate([data.y, data.test_y]), labels)


# MNIST.


def test_mnist():
    real("mnist")
    data = mnist(writers=True)
    assert data.x.shape == (60000, 28, 28)
    assert data.test_x.shape == (10000, 28, 28)
    assert data.x.dtype == data.test_x.dtype == np.uint8
    assert data.y.dtype == data.test_y.dtype == np.int32
    assert np.bincount(data.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.test_y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    np.testing.assert_allclose([data.x.mean() / 255, data.x.std() / 255], [0.1307, 0.3081], atol=5e-5)
    writers, counts = np.unique(data.keys, return_counts=True)
    assert (len(writers), counts.min(), np.median(counts), counts.max()) == (539, 19, 116, 131)
    assert len(np.unique(data.test_keys)) == 297
    assert not set(writers) & set(data.test_keys)


@pytest.mark.parametrize("name", ["mnist", "heart_disease"])
def test_the_real_files_have_the_checksums_of_the_catalogue(name):
    assert all(path.exists() for path in download.fetch(name, real(name), progress=False))


def test_mnist_without_gzip_and_with_the_writers_of_qmnist(directory):
    x, y = RNG.integers(0, 256, (5, 28, 28), "u1"), np.array([9, 0, 3, 3, 1], "u1")
    table = RNG.integers(0, 2600, (9, 8), "i4")  # QMNIST has more test digits than MNIST, and MNIST's come first
    for part, qmnist, n in [("train", "train", 5), ("t10k", "test", 9)]:
        put(directory / f"mnist/{part}-images-idx3-ubyte", idx(x))
        put(directory / f"mnist/{part}-labels-idx1-ubyte", idx(y))
        put(directory / f"mnist/qmnist-{qmnist}-labels-idx2-int.gz", idx(table[:n]))
    data = mnist(writers=True)
    np.testing.assert_array_equal(data.test_x, x)
    np.testing.assert_array_equal(data.y, y)
    np.testing.assert_array_equal(data.keys, table[:5, 2])
    np.testing.assert_array_equal(data.test_keys, table[:5, 2])
    assert mnist().keys is None

    put(directory / "mnist/qmnist-train-labels-idx2-int.gz", idx(table[:, :3]))
    with pytest.raises(ValueError, match="8 columns of QMNIST"):
        mnist(writers=True)
    put(directory / "mnist/t10k-labels-idx1-ubyte", idx(y[:4]))
    with pytest.raises(ValueError, match="MNIST: test has 4 labels but 5"):
        mnist()
    put(directory / "mnist/train-labels-idx1-ubyte", idx(y + 1))
    with pytest.raises(ValueError, match=r"MNIST: train labels must be in 0 \.\. 9"):
        mnist()


def test_a_missing_mnist_says_what_to_do(directory):
    with pytest.raises(FileNotFoundError, match="fedloom download mnist"):
        mnist()


# EMNIST: images with a mark in the corner at the top right, (row 0, column 27), stored as NIST does.


def images(n):
    upright = RNG.integers(0, 200, (n, 28, 28), "u1")
    upright[:, 0, 27] = 255
    stored = np.stack([image.ravel(order="F") for image in upright])  # column after column, as Matlab has it
    return upright, stored


def matlab(directory, split, labels, folder="emnist"):
    import scipy.io

    upright, stored = images(len(labels))
    part = {
        "images": stored,
        "labels": np.array(labels, "u1")[:, None],
        "writers": 100.0 + np.arange(len(labels))[:, None],
    }
    path = directory / folder / f"emnist-{split}.mat"
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, {"dataset": {"train": part, "test": part, "mapping": np.eye(2)}}, do_compression=True)
    return upright


@pytest.mark.parametrize("folder", ["emnist", "emnist/matlab"])
def test_emnist_from_matlab(directory, folder):
    upright = matlab(directory, "balanced", [46, 0, 3], folder)
    data = emnist("balanced", writers=True)
    np.testing.assert_array_equal(data.x, upright)
    assert (data.x.dtype, data.y.dtype, data.classes) == (np.uint8, np.int32, 47)
    assert data.y.tolist() == data.test_y.tolist() == [46, 0, 3]
    assert data.keys.tolist() == data.test_keys.tolist() == [100, 101, 102]


@pytest.mark.parametrize("split", CLASSES)
@pytest.mark.parametrize(("folder", "ending"), [("", ".gz"), ("gzip/", "")])
def test_emnist_from_idx(directory, split, folder, ending):
    first = 1 if split == "letters" else 0
    labels = np.array([first, first + CLASSES[split] - 1], "u1")
    upright, stored = images(2)
    for part in ("train", "test"):
        put(
            directory / f"emnist/{folder}emnist-{split}-{part}-images-idx3-ubyte{ending}",
            idx(stored.reshape(2, 28, 28)),
        )
        put(directory / f"emnist/{folder}emnist-{split}-{part}-labels-idx1-ubyte{ending}", idx(labels))
    data = emnist(split)
    np.testing.assert_array_equal(data.x, upright)
    assert data.test_x.flags.c_contiguous
    assert data.test_y.tolist() == [0, CLASSES[split] - 1]
    assert data.keys is None
    with pytest.raises(FileNotFoundError, match="fedloom download emnist_writers"):
        emnist(split, writers=True)


def test_emnist_l_is_the_first_ten_letters_as_stored(directory):
    upright = matlab(directory, "letters", [26, 1, 10, 11, 5])
    data = emnist_l()
    assert data.y.tolist() == data.test_y.tolist() == [0, 9, 4]
    assert data.classes == 10
    assert data.keys.tolist() == [101, 102, 104]
    np.testing.assert_array_equal(data.x, upright[[1, 2, 4]].transpose(0, 2, 1))
    assert np.all(data.test_x[:, 27, 0] == 255)


def test_bad_emnist(directory):
    with pytest.raises(ValueError, match="not 'leters'"):
        emnist("leters")
    matlab(directory, "digits", [3, 10])
    with pytest.raises(ValueError, match=r"train labels must be in 0 \.\. 9"):
        emnist("digits")
    path = directory / "emnist/emnist-digits.mat"
    for content in (path.read_bytes()[:300], b"", b"nothing like Matlab" * 20):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"emnist-digits\.mat is not an EMNIST Matlab file"):
            emnist("digits")


# CIFAR.


def python2(**entries):
    """A pickle as Python 2 wrote CIFAR's: protocol 2, texts as bytes, NumPy by its old module name."""

    def text(content):
        return b"T" + len(content).to_bytes(4, "little") + content

    def number(n):
        return b"J" + n.to_bytes(4, "little", signed=True)

    out = b"\x80\x02}("
    for name, value in entries.items():
        out += text(name.encode())
        if isinstance(value, list):
            out += b"](" + b"".join(map(number, value)) + b"e"
            continue
        out += b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
        dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
        dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
        shape = number(value.shape[0]) + number(value.shape[1]) + b"\x86"
        out += b"(" + number(1) + shape + dtype + number(0) + text(value.tobytes()) + b"tb"
    return out + b"u."


def python3(**entries):
    return pickle.dumps({name.encode(): value for name, value in entries.items()}, 2)


def cifar_rows(n):
    """Images [n, 32, 32, 3] and the rows in which CIFAR stores them: red, then green, then blue."""
    x = RNG.integers(0, 256, (n, 32, 32, 3), "u1")
    return x, np.concatenate([x[..., c].reshape(n, 1024) for c in range(3)], axis=1)


def cifar10_files(directory, dump):
    x, rows = cifar_rows(12)
    folder = directory / "cifar10/cifar-10-batches-py"
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        put(folder / name, dump(data=rows[2 * i : 2 * i + 2], labels=[i, 9 - i]))
    return folder, x


@pytest.mark.parametrize("dump", [python2, python3])
@pytest.mark.parametrize("archive", [False, True])
def test_cifar10(directory, dump, archive):
    folder, x = cifar10_files(directory, dump)
    if archive:
        with tarfile.open(directory / "cifar10/cifar-10-python.tar.gz", "w:gz") as tar:
            tar.add(folder, folder.name)
        shutil.rmtree(folder)
    data = cifar10()
    np.testing.assert_array_equal(data.x, x[:10])
    np.testing.assert_array_equal(data.test_x, x[10:])
    assert data.y.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert data.test_y.tolist() == [5, 4]
    assert (data.x.dtype, data.y.dtype, data.classes) == (np.uint8, np.int32, 10)


def test_cifar100_has_two_levels_of_labels(directory):
    x, rows = cifar_rows(3)
    for name in ("train", "test"):
        put(
            directory / "cifar100/cifar-100-python" / name,
            python2(data=rows, fine_labels=[99, 0, 50], coarse_labels=[19, 0, 7]),
        )
    data = cifar100()
    np.testing.assert_array_equal(data.x, x)
    assert data.y.tolist() == data.test_y.tolist() == [99, 0, 50]
    assert data.coarse.tolist() == [19, 0, 7]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (python2(labels=[1, 2]), "has no data, only labels"),
        (python2(data=np.zeros((2, 3071), "u1"), labels=[1, 2]), r"rows of 3072 bytes.*\(2, 3071\)"),
        (python3(data=np.zeros((2, 3072)), labels=[1, 2]), "rows of 3072 bytes.*float64"),
        (python2(data=np.zeros((2, 3072), "u1"), labels=[1]), r"labels must be 2 integers.*\(1,\)"),
        (python3(data=np.zeros((2, 3072), "u1"), labels=os.system), r"asks for (posix|nt)\.system"),
        (b"", "is refused as a pickle"),
    ],
)
def test_bad_cifar(directory, content, says):
    folder, _ = cifar10_files(directory, python2)
    (folder / "data_batch_3").write_bytes(content)
    with pytest.raises(ValueError, match=says) as error:
        cifar10()
    assert str(folder / "data_batch_3") in str(error.value)


def test_incomplete_cifar(directory):
    folder, _ = cifar10_files(directory, python2)
    (folder / "test_batch").unlink()
    with pytest.raises(FileNotFoundError, match="has no test_batch"):
        cifar10()
    archive = directory / "cifar10/cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match="has no file test_batch"):
        cifar10()
    archive.write_bytes(archive.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"not a complete \.tar\.gz"):
        cifar10()
    archive.unlink()
    with pytest.raises(FileNotFoundError, match="fedloom download cifar10"):
        cifar10()
