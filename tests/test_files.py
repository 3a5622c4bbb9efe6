"""The data directory, gzip, IDX and pickles of arrays: what they read, and what they refuse and how."""

import gzip
import io
import os
import pathlib
import pickle
import struct
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedloom.data.catalogue import CATALOGUE
from fedloom.data.files import locate, open_binary
from fedloom.data.idx import read_idx, read_images, read_labels
from fedloom.data.pickles import read_arrays
from fedloom.places import cache_directory, data_directory

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array):
    """An IDX file, written from the description of the format on MNIST's page."""
    header = bytes([0, 0, CODES[array.dtype.str[1:]], array.ndim])
    sizes = b"".join(struct.pack(">I", n) for n in array.shape)
    return header + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    return tmp_path


# The directory.


def test_the_data_directory_is_what_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLOOM_DATA", "~/data")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_directory() == tmp_path / "data"
    monkeypatch.setenv("FEDLOOM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_directory() == tmp_path / "cache" / "fedloom"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_directory() == cache_directory() == tmp_path / ".cache" / "fedloom"


def test_a_user_without_a_home_has_a_cache_in_the_temporary_directory(monkeypatch, tmp_path):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("FEDLOOM_DATA", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pathlib.Path, "home", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert data_directory() == cache_directory() == tmp_path / "fedloom"


def test_the_first_of_several_names_that_exists_is_located(directory):
    for name in ("b", "c"):
        (directory / name).touch()
    assert locate("a", "b", "c") == directory / "b"
    (directory / "a").mkdir()
    assert locate("a", "b", "c") == directory / "a"


@pytest.mark.parametrize(
    ("names", "command"),
    [
        (("mnist/train-images-idx3-ubyte.gz", "mnist/train-images-idx3-ubyte"), "`fedloom download mnist`"),
        (("fed_emnist/fed_emnist_train.h5",), "`fedloom download fed_emnist`"),  # inside an archive
        (("nowhere/to/be/had.json",), None),
    ],
)
def test_a_missing_file_is_described(directory, names, command):
    with pytest.raises(FileNotFoundError) as error:
        locate(*names)
    message = str(error.value)
    assert str(directory / names[0]) in message
    assert "FEDLOOM_DATA" in message
    assert all(name in message for name in names)
    assert (command or "docs/data.md says what it is") in message
    assert (command is None) == ("`fedloom download` does not have it" in message)


def test_the_catalogue_is_in_order():
    paths = [path for files in CATALOGUE.values() for file in files for path in (file.path, *file.unpacked())]
    assert len(set(paths)) == len(paths)
    for file in (file for files in CATALOGUE.values() for file in files):
        algorithm, _, digest = file.digest.partition(":")
        assert len(bytes.fromhex(digest)) == {"sha256": 32, "md5": 16}[algorithm]
        assert file.url.startswith("https://")
        assert file.url.rpartition("/")[2] == file.path.rpartition("/")[2]
        assert not pathlib.PurePosixPath(file.path).is_absolute()
        assert ".." not in file.path


# Gzip.


def test_gzip_is_read_as_if_it_were_not_there(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"content"))
    for path in (tmp_path / "a", tmp_path / "a.gz"):
        with open_binary(path) as file:
            assert file.read() == b"content"


GOOD = gzip.compress(os.urandom(5000))


@pytest.mark.parametrize(
    "bad",
    [GOOD[:-1], GOOD[:2000], GOOD[:-8] + bytes(8), GOOD + b"more", b"plain", GOOD[:10] + b"\xff" + GOOD[11:]],
    ids=["short by one", "half", "checksum", "trailing", "not gzip", "no such block"],
)
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path, bad):
    path = tmp_path / "a.gz"
    path.write_bytes(bad)
    with (
        pytest.raises(ValueError, match=r"a\.gz is not a complete gzip file .*get it again"),
        open_binary(path) as file,
    ):
        file.read()


# IDX.


@settings(deadline=None)
@given(
    st.sampled_from(sorted(CODES)).flatmap(
        lambda code: arrays.arrays(code, arrays.array_shapes(max_dims=4, min_side=0, max_side=5))
    ),
    st.booleans(),
)
def test_idx_round_trip(tmp_path_factory, array, compressed):
    path = tmp_path_factory.mktemp("idx") / ("a.gz" if compressed else "a")
    path.write_bytes(gzip.compress(idx(array)) if compressed else idx(array))
    read = read_idx(path)
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


BYTES = idx(np.arange(24, dtype="u1").reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not an IDX file.*begins with nothing"),
        (b"\0\0\x08", "is not an IDX file"),
        (b"\x89PNG" + BYTES, "is not an IDX file.*begins with 89 50 4e 47"),
        (b"\0\0\x0a" + BYTES[3:], "is not an IDX file.*0x08.*0x0E"),
        (b"\0\1" + BYTES[2:], "is not an IDX file"),
        (BYTES[:10], "is truncated: 3 sizes"),
        (BYTES[:-1], r"\(2, 3, 4\), so 24 bytes.*but 23 do"),
        (BYTES + b"\0", r"\(2, 3, 4\), so 24 bytes.*but 25 do"),
        (BYTES[:4] + b"\xff" * 12 + BYTES[16:], f"so {(2**32 - 1) ** 3} bytes"),  # must not wrap around
    ],
)
def test_what_is_not_idx_is_refused(tmp_path, content, says):
    path = tmp_path / "digits"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says) as error:
        read_idx(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("read", "array"),
    [
        (read_images, np.zeros((3, 28, 27), "u1")),
        (read_images, np.zeros((3, 28, 28), "f4")),
        (read_images, np.zeros(3, "u1")),
        (read_labels, np.zeros((3, 1), "u1")),
        (read_labels, np.zeros(3, "f4")),
    ],
)
def test_idx_files_of_something_else_are_refused(tmp_path, read, array):
    path = tmp_path / "digits"
    path.write_bytes(idx(array))
    with pytest.raises(ValueError, match="digits must have"):
        read(path)


# Pickles.


class Malicious:
    """Leaves a file behind if it is called."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_not_run(tmp_path, protocol):
    target = tmp_path / "was run"
    content = pickle.dumps({"data": Malicious(f"'{target}'")}, protocol)
    with pytest.raises(ValueError, match=r"images.* asks for (posix|nt)\.system"):
        read_arrays(io.BytesIO(content), "images")
    assert not target.exists()
    pickle.loads(content)  # it does what we guard against
    assert target.exists()


@pytest.mark.parametrize("call", [eval, getattr, np.load, pickle.loads, np.random.default_rng])
def test_only_what_arrays_need_can_be_called(call):
    with pytest.raises(ValueError, match=f"asks for .*{call.__name__}"):
        read_arrays(io.BytesIO(pickle.dumps({"f": call})), "images")


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("key", ["data", b"data"])
def test_arrays_in_pickles(protocol, key):
    array = np.arange(250, 262, dtype="u1").reshape(3, 4)
    content = read_arrays(io.BytesIO(pickle.dumps({key: array, "labels": [1, 2]}, protocol)), "images")
    assert content["labels"] == [1, 2]
    np.testing.assert_array_equal(content["data"], array)
    assert content["data"].dtype == np.uint8


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps({"a": 1})[:-3], b"\x80\x02]q\0."])
def test_what_is_not_a_pickle_of_arrays_is_refused(content):
    with pytest.raises(ValueError, match=r"^images "):
        read_arrays(io.BytesIO(content), "images")
