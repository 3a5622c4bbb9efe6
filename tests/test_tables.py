"""Sources that are tables: heart disease, LEAF's json, Hugging Face datasets."""

import gzip
import json
import sys

import numpy as np
import pytest

from fedloom.data.sources.heart import HOSPITALS, heart_disease
from fedloom.data.sources.huggingface import huggingface
from fedloom.data.sources.leaf import leaf, read_leaf
from tests.test_sources import real

# Heart disease.


def test_heart_disease_against_the_description_of_the_files():
    folder = real("heart_disease") / "heart_disease"
    data = heart_disease()
    assert data.x.shape == (920, 32)
    assert data.x.dtype == np.float32
    names, first, sizes = np.unique(data.keys, return_index=True, return_counts=True)
    assert dict(zip(names, sizes, strict=True)) == {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
    assert tuple(names[np.argsort(first)]) == HOSPITALS
    # The class distribution in heart-disease.names: those without disease.
    healthy = {name: int(np.sum(data.y[data.keys == name] == 0)) for name in names}
    assert healthy == {"cleveland": 164, "hungarian": 188, "switzerland": 8, "va": 51}

    rows = [line.split(",") for name in HOSPITALS for line in (folder / f"processed.{name}.data").read_text().split()]
    table = np.array([[np.nan if entry == "?" else float(entry) for entry in row] for row in rows])
    assert np.sum(table[:, 4] == 0) == 172
    assert np.sum(table[data.keys == "switzerland", 4] == 0) == 123
    table[table[:, 4] == 0, 4] = np.nan  # chol
    table[table[:, 3] == 0, 3] = np.nan  # trestbps
    expected = []
    for j in range(13):
        column = table[:, j]
        known = column[~np.isnan(column)]
        if j in (0, 3, 4, 7, 9, 11):
            expected.append(np.where(np.isnan(column), 0, (column - known.mean()) / known.std()))
        elif j in (1, 5, 8):
            expected.append(np.where(np.isnan(column), 0, column - 0.5))
        else:
            expected += [column == value for value in np.unique(known)]
    expected += [np.isnan(table[:, j]) for j in range(13) if np.isnan(table[:, j]).any()]
    np.testing.assert_allclose(data.x, np.stack(expected, 1), atol=1e-6)


ROW = "63,1,4,140,260,0,1,112,1,3,2,?,?,2"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (ROW + ",1", "line 2: there must be 14 columns, but there are 15"),
        (ROW.replace("63", "old"), "line 2: age must be a number or [?], but is 'old'"),
        (ROW.replace("63", "nan"), "line 2: age must be a number"),
        (ROW.replace("63,1,4", "63,1,5"), r"line 2: cp must be one of \(1, 2, 3, 4\) or [?], but is '5'"),
        (ROW[:-1] + "?", r"line 2: num must be one of \(0, 1, 2, 3, 4\), but is '[?]'"),
    ],
)
def test_bad_heart_disease(tmp_path, monkeypatch, row, says):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    (tmp_path / "heart_disease").mkdir()
    path = tmp_path / "heart_disease/processed.cleveland.data"
    path.write_text(f"{ROW}\n{row}\n")
    with pytest.raises(ValueError, match=says) as error:
        heart_disease()
    assert str(path) in str(error.value)
    path.write_text("")
    with pytest.raises(ValueError, match=r"processed\.cleveland\.data is empty"):
        heart_disease()
    path.unlink()
    with pytest.raises(FileNotFoundError, match="fedloom download heart_disease"):
        heart_disease()


# LEAF.


def content(**users):
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


A = content(f_00000=([[0, 1, 2, 3], [4, 5, 6, 7]], [1, 0]), f_00001=([[8, 9, 10, 11]], [2]))
B = content(f_00002=([[12, 13, 14, 15]], [1]), nobody=([], []))


def test_leaf_folders(tmp_path, monkeypatch):
    write(tmp_path / "femnist/train/b.json", B)
    write(tmp_path / "femnist/train/a.json.gz", A)
    write(tmp_path / "femnist/test/a.json", B)
    (tmp_path / "femnist/train/notes.txt").touch()
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    data = leaf("femnist", shape=(2, 2), classes=3)
    np.testing.assert_array_equal(data.x, np.arange(16).reshape(4, 2, 2))
    assert (data.x.dtype, data.y.dtype) == (np.float32, np.int32)
    assert data.y.tolist() == [1, 0, 2, 1]
    assert data.keys.tolist() == ["f_00000", "f_00000", "f_00001", "f_00002"]
    np.testing.assert_array_equal(data.test_x, [[[12, 13], [14, 15]]])
    assert data.test_y.tolist() == [1]
    assert data.test_keys.tolist() == ["f_00002"]

    alone = leaf(tmp_path / "femnist/train/a.json.gz")
    assert alone.x.shape == (3, 4)
    assert alone.test_x is None
    with pytest.raises(ValueError, match=r"train labels must be in 0 \.\. 1"):
        leaf(tmp_path / "femnist/train", classes=2)


def test_leaf_as_it_stands_for_texts(tmp_path):
    write(tmp_path / "a.json", content(HAMLET=(["to be ", "or not"], ["o", "t"]), GHOST=(["swear "], ["s"])))
    users, x, y = read_leaf(tmp_path)
    assert users.tolist() == ["HAMLET", "HAMLET", "GHOST"]
    assert (x, y) == (["to be ", "or not", "swear "], ["o", "t", "s"])
    with pytest.raises(ValueError, match=r"a\.json: user 'HAMLET': x and y must be numbers"):
        leaf(tmp_path)


def test_users_may_be_numbers(tmp_path):
    write(tmp_path / "a.json", {**content(**{"7": ([[1]], [0])}), "users": [7]})
    assert leaf(tmp_path / "a.json").keys.tolist() == ["7"]


X = [[0.5], [1.5]]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "is not a LEAF file: it has no list named users"),
        ({"users": [], "num_samples": []}, "no dict named user_data"),
        ({**A, "num_samples": 3}, "no list named num_samples"),
        ({**A, "num_samples": [2]}, "2 users, but 1 entries in num_samples"),
        ({**A, "num_samples": [2, 2]}, "user 'f_00001' should have 2 examples by num_samples, but has 1 x and 1 y"),
        (content(a=(X, [1])), "user 'a' should have 1 examples by num_samples, but has 2 x and 1 y"),
        ({**A, "users": ["f_00000", "f_00000"]}, "listed more than once"),
        ({**A, "users": ["f_00000"], "num_samples": [2]}, "user_data has user 'f_00001', who is not in users"),
        ({**B, "user_data": {"nobody": {"x": [], "y": []}}}, "user 'f_00002' is in users, but user_data has no lists"),
        ({**B, "user_data": {"f_00002": {"x": [[1]]}, "nobody": {}}}, "'f_00002' is in users, but user_data has no"),
        (content(a=([[0.5], [1, 2]], [0, 1])), "user 'a': x and y must be numbers, x of one length"),
        (
            content(a=(X, [0, 1]), b=([[1, 2]], [0])),
            r"user 'b': inputs have shape \(2,\), but those before have \(1,\)",
        ),
        (content(a=([[0.5], [None]], [0, 1])), "user 'a': an entry of x is null"),
        (content(a=(X, [0, None])), "user 'a': y must be one integer"),
        (content(a=(X, [0, 0.5])), "user 'a': y must be one integer"),
        (content(a=(X, [[0], [1]])), "user 'a': y must be one integer"),
        (content(a=([], [])), "not a single example"),
    ],
)
def test_bad_leaf(tmp_path, value, says):
    path = tmp_path / "a.json"
    write(path, value)
    with pytest.raises(ValueError, match=says) as error:
        leaf(path)
    assert str(path) in str(error.value)


def test_files_that_are_not_leaf(tmp_path):
    (tmp_path / "a.json").write_text('{"users": ["a"')
    with pytest.raises(ValueError, match=r"a\.json is not json"):
        leaf(tmp_path)
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ValueError, match=r"a\.json is not json"):
        read_leaf(tmp_path / "a.json")
    write(tmp_path / "a.json", A)
    with pytest.raises(ValueError, match=r"an input has 4 numbers, which is not the shape \(28, 28\)"):
        leaf(tmp_path, shape=(28, 28))
    (tmp_path / "a.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no \.json or \.json\.gz file"):
        leaf(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no"):
        read_leaf(tmp_path / "a.json")


# Hugging Face.


@pytest.fixture(scope="module")
def datasets():
    return pytest.importorskip("datasets", reason="needs the extra huggingface")


TABLE = {"a": [0.5, 1.5, 2.5], "b": [1, 2, 3], "who": ["x", "y", "x"], "label": [2, 0, 1], "text": ["p", "q", "r"]}


def test_huggingface_in_memory(datasets):
    table = datasets.Dataset.from_dict({**TABLE, "pixels": [[[0, 1], [2, 3]]] * 3})
    data = huggingface(table, x="pixels", y="label", key="who")
    assert data.x.shape == (3, 2, 2)
    assert (data.x.dtype, data.y.dtype, data.classes) == (np.int32, np.int32, 3)
    assert data.y.tolist() == [2, 0, 1]
    assert data.keys.tolist() == ["x", "y", "x"]
    assert data.test_x is None
    several = huggingface(table, x=["a", "b"], y="label")
    np.testing.assert_array_equal(several.x, [[0.5, 1], [1.5, 2], [2.5, 3]])
    assert several.x.dtype == np.float32

    both = datasets.DatasetDict(train=table, held_out=table.select([1]).class_encode_column("label"))
    data = huggingface(both, "a", "label", test_split="held_out")
    assert data.x.tolist() == [0.5, 1.5, 2.5]
    assert data.test_x.tolist() == [1.5]


def test_huggingface_knows_the_number_of_classes(datasets):
    table = datasets.Dataset.from_dict({"x": [1.0, 2.0], "y": ["dog", "cat"]})
    table = table.cast_column("y", datasets.ClassLabel(names=["cat", "dog", "horse"]))
    data = huggingface(table, "x", "y")
    assert data.classes == 3
    assert data.y.tolist() == [1, 0]


def test_huggingface_images(datasets):
    pil = pytest.importorskip("PIL.Image", reason="datasets needs Pillow for images")
    grey, red = np.arange(24, dtype="u1").reshape(2, 3, 4), np.arange(72, dtype="u1").reshape(2, 3, 4, 3)
    features = datasets.Features({"x": datasets.Image(), "y": datasets.Value("int64")})
    for pixels in (grey, red):
        images = {"x": [pil.fromarray(image) for image in pixels], "y": [0, 1]}
        data = huggingface(datasets.Dataset.from_dict(images, features=features), "x", "y")
        assert data.x.dtype == np.uint8
        np.testing.assert_array_equal(data.x, pixels)
    mixed = {"x": [pil.fromarray(grey[0]), pil.fromarray(grey[0, :2])], "y": [0, 1]}
    with pytest.raises(ValueError, match="differ in shape"):
        huggingface(datasets.Dataset.from_dict(mixed, features=features), "x", "y")
    palette = pil.fromarray(red[0]).convert("P", palette=pil.Palette.ADAPTIVE)
    data = huggingface(datasets.Dataset.from_dict({"x": [palette], "y": [0]}, features=features), "x", "y")
    np.testing.assert_array_equal(data.x, [np.asarray(palette.convert("RGB"))])


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_huggingface_from_a_file(datasets, tmp_path, kind):
    path = str(tmp_path / f"table.{kind}")
    getattr(datasets.Dataset.from_dict(TABLE), f"to_{kind}")(path)
    data = huggingface(kind, ["a", "b"], "label", "who", data_files=path, cache_dir=str(tmp_path / "cache"))
    np.testing.assert_array_equal(data.x, [[0.5, 1], [1.5, 2], [2.5, 3]])
    assert data.y.tolist() == [2, 0, 1]
    assert data.keys.tolist() == ["x", "y", "x"]
    with pytest.raises(ValueError, match=f"dataset {kind}, split 'nil', cannot be loaded"):
        huggingface(kind, "a", "label", split="nil", data_files=path, cache_dir=str(tmp_path / "cache"))


def test_bad_huggingface(datasets, monkeypatch):
    table = datasets.Dataset.from_dict({**TABLE, "ragged": [[1], [1, 2], [3]]})
    for x, y, key, says in [
        ("c", "label", None, "has the columns a, b, .*but not 'c'"),
        ("a", "label", "whom", "not 'whom'"),
        ("a", "text", None, r"column 'text' must be integers.*class_encode_column\('text'\)"),
        ("a", "a", None, "column 'a' must be integers"),
        ("text", "label", None, "column 'text' must have images or numbers"),
        ("ragged", "label", None, "column 'ragged' differ in shape"),
    ]:
        with pytest.raises(ValueError, match=says):
            huggingface(table, x, y, key)
    with pytest.raises(ValueError, match="pass a DatasetDict"):
        huggingface(table, "a", "label", test_split="test")
    with pytest.raises(ValueError, match="has the splits train, but not 'test'"):
        huggingface(datasets.DatasetDict(train=table), "a", "label", test_split="test")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'fedloom\[huggingface\]'"):
        huggingface("cifar10", "img", "label")
