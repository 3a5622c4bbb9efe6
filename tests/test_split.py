"""`Split`: who owns which rows, and the file that keeps it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.split import Split, ranges


@st.composite
def some_splits(draw):
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
    rows = draw(st.permutations(range(sum(sizes) + draw(st.integers(0, 3)))))
    names = draw(st.none() | st.lists(st.text(max_size=4), min_size=len(sizes), max_size=len(sizes)))
    return Split(np.array(rows[: sum(sizes)], dtype=int), np.array(sizes), names)


def same(a, b):
    np.testing.assert_array_equal(a.order, b.order)
    np.testing.assert_array_equal(a.sizes, b.sizes)
    assert (a.names is None) == (b.names is None)
    if a.names is not None:
        np.testing.assert_array_equal(a.names, b.names)
    return True


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=8))
@settings(deadline=None)
def test_ranges(pairs):
    starts, lengths = np.array(pairs, dtype=int).reshape(-1, 2).T
    assert ranges(starts, lengths).tolist() == [i for start, n in pairs for i in range(start, start + n)]


@given(some_splits(), st.data())
@settings(deadline=None)
def test_rows_owner_take_and_at_least(split, data):
    rows = [split.rows(k).tolist() for k in range(split.clients)]
    assert [len(r) for r in rows] == split.sizes.tolist()
    assert np.concatenate(rows).tolist() == split.order.tolist()
    assert split.owner().tolist() == [k for k, r in enumerate(rows) for _ in r]
    some = data.draw(st.lists(st.integers(0, split.clients - 1), min_size=1, unique=True))
    taken = split.take(some)
    assert [taken.rows(j).tolist() for j in range(taken.clients)] == [rows[k] for k in some]
    if split.names is not None:
        assert taken.names.tolist() == [split.names[k] for k in some]
    n = data.draw(st.integers(0, int(split.sizes.max())))
    assert same(split.at_least(n), split.take([k for k, r in enumerate(rows) if len(r) >= n]))


def test_row_numbers_are_as_short_as_they_can_be():
    assert Split(np.array([2, 0]), np.array([2])).order.dtype == np.int32
    assert Split(np.array([], dtype=int), np.array([0])).order.dtype == np.int32
    assert Split(np.array([2**31 - 1]), np.array([1])).order.dtype == np.int32
    large = Split(np.array([2**31]), np.array([1], dtype=np.uint8))
    assert large.order.tolist() == [2**31]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Split(np.array([[0, 1]]), np.array([2])), "order must be a one-dimensional array of integers"),
        (lambda: Split(np.array([0.0, 1.0]), np.array([2])), "order must be a one-dimensional array of integers"),
        (lambda: Split(np.array([0, 1]), np.array([2.0])), "sizes must be a one-dimensional array of integers"),
        (lambda: Split(np.array([], int), np.array([], int)), "sizes must have at least one client"),
        (lambda: Split(np.array([0, 1]), np.array([3, -1])), "no negative number"),
        (lambda: Split(np.array([0, 1]), np.array([1])), "sizes add up to 1, but order has 2 rows"),
        (lambda: Split(np.array([0, -1]), np.array([2])), "order has a negative row number"),
        (lambda: Split(np.array([3, 1, 3]), np.array([2, 1])), "row 3 is assigned more than once"),
        (lambda: Split(np.array([3, 1]), np.array([1, 1]), np.array(["a"])), r"names has shape \(1,\).* 2 clients"),
        (lambda: Split(np.arange(3), np.array([2, 1])).take([2]), r"take: clients must be integers in 0 \.\. 1"),
        (lambda: Split(np.arange(3), np.array([2, 1])).take([-1]), r"take: clients must be integers in 0 \.\. 1"),
        (lambda: Split(np.arange(3), np.array([2, 1])).take([]), r"take: clients must be integers in 0 \.\. 1"),
        (lambda: Split(np.arange(3), np.array([2, 1])).take([True, False]), "take: clients must be integers"),
        (lambda: Split(np.arange(3), np.array([2, 1])).take([0, 0]), "assigned more than once"),
        (lambda: Split(np.arange(3), np.array([2, 1])).at_least(3), "No client has 3 examples; the largest has 2"),
    ],
)
def test_bad_splits_raise_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@given(some_splits())
@settings(max_examples=30, deadline=None)
def test_a_saved_split_comes_back(tmp_path_factory, split):
    path = tmp_path_factory.mktemp("split") / "it.npz"
    split.save(path)
    assert same(Split.load(path), split)


def test_saving_never_overwrites(tmp_path):
    first, second = Split(np.arange(4), np.array([1, 3])), Split(np.arange(4), np.array([2, 2]))
    first.save(tmp_path / "it.npz")
    with pytest.raises(
        FileExistsError, match=r"it\.npz already exists; delete it or save the split under another name"
    ):
        second.save(str(tmp_path / "it.npz"))
    assert same(Split.load(str(tmp_path / "it.npz")), first)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*none; make it before saving"):
        first.save(tmp_path / "none" / "it.npz")


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_file_is_refused_or_harmless(tmp_path_factory, data):
    """A byte changed or the end cut off: a sentence with the file's name, or the very same split, never another one."""
    split = Split(np.random.default_rng(0).permutation(300), np.array([100, 150, 50]), np.array(["a", "b", "c"]))
    path = tmp_path_factory.mktemp("split") / "it.npz"
    split.save(path)
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[where] ^= data.draw(st.integers(1, 255))
    else:
        del content[where:]
    path.write_bytes(content)
    try:
        loaded = Split.load(path)
    except ValueError as error:
        sentence = str(error)
    else:
        sentence = ""
        same(loaded, split)
    assert sentence == "" or "it.npz is not a split saved by Split.save, or is damaged" in sentence


def test_names_that_are_called_otherwise_are_not_overlooked(tmp_path):
    np.savez(tmp_path / "it.npz", order=np.arange(3), sizes=np.array([3]), nemes=np.array(["a"]))
    with pytest.raises(ValueError, match=r"it\.npz is not a split saved by Split\.save, or is damaged: it has nemes"):
        Split.load(tmp_path / "it.npz")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*none"):
        Split.load(tmp_path / "none.npz")
    (tmp_path / "text").write_text("order,sizes\n")
    np.save(tmp_path / "array.npy", np.arange(3))
    np.savez(tmp_path / "names.npz", order=np.arange(3))
    np.savez(tmp_path / "wrong.npz", order=np.arange(3), sizes=np.array([2]))
    np.savez(tmp_path / "objects.npz", order=np.arange(1), sizes=np.array([1]), names=np.array(["a"], dtype=object))
    for name in ("text", "array.npy", "names.npz", "wrong.npz", "objects.npz"):
        with pytest.raises(ValueError, match=f"{name} is not a split saved by Split.save, or is damaged: ."):
            Split.load(tmp_path / name)
