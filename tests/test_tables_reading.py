"""Tables from files and frames: every format gives the same columns, and every bad file one sentence."""

import datetime
import decimal
import gzip
import subprocess
import sys

import numpy as np
import pytest

import fedloom as fl
from fedloom.tables import as_table, read, write

pd = pytest.importorskip("pandas", reason="needs pandas")
pl = pytest.importorskip("polars", reason="needs polars")
pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
datasets = pytest.importorskip("datasets", reason="needs datasets")
datasets.disable_progress_bars()

RNG = np.random.default_rng(0)
N = 60
FEVER = [None if m else float(v) for m, v in zip(RNG.random(N) < 0.2, RNG.normal(38, 1, N), strict=True)]
DRUG = [None if m else str(v) for m, v in zip(RNG.random(N) < 0.2, RNG.choice(["a", "b b", "c"], N), strict=True)]
COLUMNS = {
    "age": RNG.integers(20, 90, N).tolist(),
    "fever": FEVER,
    "smoker": (RNG.random(N) < 0.5).tolist(),
    "drug": DRUG,
    "ill": RNG.choice(["no", "yes"], N).tolist(),
    "ward": RNG.integers(1, 4, N).tolist(),
}


def csv_text(separator=","):
    def entry(value):
        return "" if value is None else str(value)

    lines = [separator.join(COLUMNS)]
    lines += [separator.join(map(entry, row)) for row in zip(*COLUMNS.values(), strict=True)]
    return "\n".join(lines) + "\n"


def in_csv(folder):
    (folder / "t.csv").write_text(csv_text())
    return read(folder / "t.csv")


def in_csv_gz(folder):
    (folder / "t.csv.gz").write_bytes(gzip.compress(csv_text().encode()))
    return read(str(folder / "t.csv.gz"))


def in_tsv(folder):
    (folder / "t.tsv").write_text(csv_text("\t"))
    return read(folder / "t.tsv")


def in_parquet(folder):
    parquet.write_table(pa.table(COLUMNS), folder / "t.parquet")
    return read(folder / "t.parquet")


def in_npz(folder):
    arrays = {name: np.array(values) for name, values in COLUMNS.items() if name not in ("fever", "drug")}
    fever = np.array([np.nan if v is None else v for v in FEVER])
    np.savez(folder / "t.npz", **arrays, fever=fever, drug=np.array([v or "" for v in DRUG]))
    return read(folder / "t.npz")


def in_folder(folder):
    datasets.Dataset.from_dict(COLUMNS).save_to_disk(folder / "saved")
    return read(folder / "saved")


def in_parquet_by_polars(folder):
    pl.DataFrame(COLUMNS).write_parquet(folder / "p.parquet")
    return read(folder / "p.parquet")


FORMATS = {
    "csv": in_csv,
    "csv.gz": in_csv_gz,
    "tsv": in_tsv,
    "parquet": in_parquet,
    "parquet of polars": in_parquet_by_polars,
    "npz": in_npz,
    "folder": in_folder,
    "pandas": lambda folder: pd.DataFrame(COLUMNS),
    "pandas with nullable types": lambda folder: pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas with objects": lambda folder: pd.DataFrame(COLUMNS).astype(object),
    "pandas with categories": lambda folder: pd.DataFrame(COLUMNS).astype({"drug": "category", "ill": "category"}),
    "polars": lambda folder: pl.DataFrame(COLUMNS),
    "polars with categories": lambda folder: pl.DataFrame(COLUMNS).with_columns(pl.col("drug").cast(pl.Categorical)),
    "arrow": lambda folder: pa.table(COLUMNS),
    "arrow with dictionaries": lambda folder: pa.table(
        COLUMNS | {"drug": pa.array(DRUG).dictionary_encode(), "ward": pa.array(COLUMNS["ward"], pa.uint8())}
    ),
    "dictionary": lambda folder: COLUMNS,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_arrays(name, tmp_path):
    """Against the lists that the files were written from."""
    frame = FORMATS[name](tmp_path)
    table = as_table(frame)
    assert set(table.columns) == set(COLUMNS)
    assert table.rows == N
    np.testing.assert_array_equal(table.columns["age"].values, COLUMNS["age"])
    assert table.columns["age"].values.dtype.kind in "iu"
    np.testing.assert_array_equal(table.columns["fever"].values, np.array([np.nan if v is None else v for v in FEVER]))
    assert table.columns["smoker"].values.dtype == bool
    np.testing.assert_array_equal(table.columns["smoker"].values, COLUMNS["smoker"])
    assert table.columns["drug"].values.tolist() == DRUG
    assert table.columns["drug"].missing.tolist() == [v is None for v in DRUG]

    names = dict(label="ill", client="ward", leave_out=())
    mine, expected = (fl.from_frame(f, **names).load(3) for f in (frame, COLUMNS))
    order = [expected.data.preparation.names.index(feature) for feature in mine.data.preparation.names]
    for part in ("train", "test"):
        (x, y), (wanted_x, wanted_y) = (getattr(data, part) for data in (mine.data, expected.data))
        np.testing.assert_array_equal(x, wanted_x[:, np.array(order)])  # NPZ files have another order of columns
        np.testing.assert_array_equal(y, wanted_y)
    assert mine.data.split.names.tolist() == ["1", "2", "3"]


def test_missing_values_of_a_csv_file(tmp_path):
    (tmp_path / "t.csv").write_text("number, text,whole\n1.5, a b ,1\n?,?,2\n, ?,3\nNA,NA,\nnan,null,5\n2,c,6\n")
    columns = read(tmp_path / "t.csv").columns
    np.testing.assert_array_equal(columns["number"].values, [1.5, *[np.nan] * 4, 2])
    assert columns["text"].values.tolist() == ["a b", None, None, None, None, "c"]
    np.testing.assert_array_equal(columns["whole"].values, [1, 2, 3, np.nan, 5, 6])


def test_a_csv_file_of_excel(tmp_path):
    """With a byte order mark and carriage returns; and one that is not in UTF-8."""
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfage,site\r\n1,a\r\n2,b\r\n")
    columns = read(tmp_path / "t.csv").columns
    assert columns["age"].values.tolist() == [1, 2]
    assert columns["site"].values.tolist() == ["a", "b"]
    (tmp_path / "latin.csv").write_bytes("age,y,site\n1,0,Z\u00fcrich\n2,1,Bern\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"Column 'site' has texts that are not in UTF-8.*or save the file in UTF-8"):
        fl.tables.from_file(tmp_path / "latin.csv", label="y", client="site")
    assert fl.tables.from_file(tmp_path / "latin.csv", label="y", leave_out="site").load().data.clients == 1


def test_types_are_found_in_the_whole_file(tmp_path):
    """Also where the first megabytes look like integers."""
    rows = 300_000
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(rows)) + "0.5,x\n")
    columns = read(tmp_path / "t.csv").columns
    assert columns["a"].values.dtype == float
    assert columns["b"].values[[0, -1]].tolist() == ["0", "x"]


def test_vectors_become_columns_of_numbers(tmp_path):
    vectors = np.arange(12.0).reshape(4, 3)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 3)
    frames = {
        "arrow": pa.table({"e": fixed, "y": [0, 1, 0, 1]}),
        "lists": pa.table({"e": pa.array(vectors.tolist()), "y": [0, 1, 0, 1]}),
        "polars": pl.DataFrame({"e": vectors, "y": [0, 1, 0, 1]}),
        "pandas": pd.DataFrame({"e": list(vectors), "y": [0, 1, 0, 1]}),
        "matrix": {"e": vectors.astype(int), "y": np.array([0, 1, 0, 1])},
    }
    np.savez(tmp_path / "v.npz", e=vectors.astype(np.float32), y=[0, 1, 0, 1])
    features = datasets.Features(
        {"e": datasets.Sequence(datasets.Value("float32"), length=3), "y": datasets.Value("int64")}
    )
    saved = datasets.Dataset.from_dict({"e": vectors.tolist(), "y": [0, 1, 0, 1]}, features=features)
    saved.save_to_disk(tmp_path / "saved")
    frames |= {"npz": read(tmp_path / "v.npz"), "folder": read(tmp_path / "saved")}
    for name, frame in frames.items():
        flat = as_table(frame).without()
        assert list(flat.columns) == ["e_0", "e_1", "e_2", "y"], name
        np.testing.assert_array_equal(flat.columns["e_2"].values, vectors[:, 2])
        prepared = fl.from_frame(frame, label="y", leave_out="e_1", test=0).load().data.preparation
        assert prepared.names == ["e_0", "e_2"]
        standard = (vectors - vectors.mean(axis=0)) / vectors.std(axis=0)
        np.testing.assert_allclose(prepared.features(frame), standard[:, [0, 2]], rtol=1e-6)
    with pytest.raises(ValueError, match="Two columns have the name 'e_1'"):
        as_table({"e": vectors, "e_1": np.zeros(4)}).without()
    with pytest.raises(ValueError, match="No column is left"):
        fl.from_frame(frames["matrix"], label="y", leave_out="e")


def test_a_folder_with_an_official_split(tmp_path):
    features = datasets.Features({"x": datasets.Value("float32"), "y": datasets.ClassLabel(names=["well", "ill"])})

    def part(x, y):
        return datasets.Dataset.from_dict({"x": x, "y": y}, features=features)

    saved = datasets.DatasetDict(
        train=part([1.0, 2.0, 3.0, 6.0], [0, 1, 1, 0]), validation=part([10.0], [0]), test=part([4.0, 5.0], [1, 0])
    )
    saved.save_to_disk(tmp_path / "saved")
    data = fl.tables.from_file(tmp_path / "saved", label="y").load(seed=5).data
    assert data.preparation.label.values == ("ill", "well")  # by name, and sorted
    mean, deviation = 3.0, np.sqrt((4 + 1 + 0 + 9) / 4)
    np.testing.assert_allclose(np.asarray(data.test[0])[:, 0], (np.array([4.0, 5.0]) - mean) / deviation, rtol=1e-6)
    assert data.test[1].tolist() == [0, 1]
    np.testing.assert_allclose(data.train[0][data.validation_split.order, 0], (10 - mean) / deviation, rtol=1e-6)
    assert sorted(data.split.order) == [0, 1, 2, 3]
    twice = datasets.DatasetDict({name: d.add_column("fold", ["train"] * len(d)) for name, d in saved.items()})
    twice.save_to_disk(tmp_path / "twice")
    with pytest.raises(ValueError, match="split_column: the folder has an official split already"):
        fl.tables.from_file(tmp_path / "twice", label="y", split_column="fold")

    datasets.DatasetDict(train=part([1.0], [0]), extra=part([2.0], [1])).save_to_disk(tmp_path / "extra")
    with pytest.raises(ValueError, match="must be train, validation or test, but some are extra"):
        fl.tables.from_file(tmp_path / "extra", label="y")
    odd = datasets.Dataset.from_dict({"x": [1.0]})
    datasets.DatasetDict(train=part([1.0], [0]), test=odd).save_to_disk(tmp_path / "odd")
    with pytest.raises(ValueError, match="'train' and 'test' do not have the same columns: y"):
        read(tmp_path / "odd")
    part([1.0, 2.0, 3.0], [0, 1, -1]).save_to_disk(tmp_path / "unlabelled")
    with pytest.raises(ValueError, match="The label 'y' has no value in row 2"):
        fl.tables.from_file(tmp_path / "unlabelled", label="y")


def test_images_are_refused_by_name(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="needs pillow").new("L", (4, 4))
    features = datasets.Features({"scan": datasets.Image(), "x": datasets.Value("int8"), "y": datasets.Value("int8")})
    table = {"scan": [image] * 4, "x": [1, 2, 3, 4], "y": [0, 1, 0, 1]}
    datasets.Dataset.from_dict(table, features=features).save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"Column 'scan' has images.*leave_out.*fedloom\.data\.sources\.huggingface"):
        fl.tables.from_file(tmp_path / "saved", label="y")
    assert fl.tables.from_file(tmp_path / "saved", label="y", leave_out=["scan"]).load().data.preparation.names == ["x"]


REFUSED = {
    "dates or times": [
        np.array(["2020-01-01"] * 4, "datetime64[D]"),
        pa.array([datetime.date(2020, 1, 1)] * 4),
        pd.Series(pd.to_datetime(["2020-01-01"] * 4)),
        pd.Series([datetime.date(2020, 1, 1)] * 3 + [None], dtype=object),
        pl.Series([datetime.timedelta(1)] * 4),
    ],
    "structures": [pa.array([{"a": 1}] * 4)],
    "bytes": [pa.array([b"a"] * 4)],
    "lists of different lengths": [pa.array([[1], [1, 2], [1], [1]]), [[1], [1, 2], [1], [1]]],
    "lists that are missing in some rows": [pa.array([[1], None, [1], [1]]), pa.array([["a"], ["b"], ["c"], ["d"]])],
    "values of different types": [np.array(["a", 1, 2, 3], object)],
    r"arrays of shape \(2, 2\)": [np.zeros((4, 2, 2))],
    "values of type complex": [np.zeros(4, complex)],
}


@pytest.mark.parametrize(("words", "values"), [(words, v) for words, vs in REFUSED.items() for v in vs])
def test_what_no_feature_can_be_made_of_is_refused_unless_it_is_left_out(words, values):
    others = {"x": [1, 2, 3, 4], "y": [0, 1, 0, 1]}
    if isinstance(values, pa.Array):
        frame = pa.table({"odd": values, **others})
    elif isinstance(values, pl.Series):
        frame = pl.DataFrame({"odd": values, **others})
    elif isinstance(values, pd.Series):
        frame = pd.DataFrame({"odd": values, **others})
    else:
        frame = {"odd": values, **others}
    with pytest.raises(ValueError, match=f"Column 'odd' has {words}.*leave it out"):
        fl.from_frame(frame, label="y")
    with pytest.raises(ValueError, match="it cannot be the label"):
        fl.from_frame(frame, label="odd")
    assert fl.from_frame(frame, label="y", leave_out="odd").load().data.preparation.names == ["x"]
    prepared = fl.from_frame({**others, "odd": [5.0, 6.0, 7.0, 8.0]}, label="y").load().data.preparation
    with pytest.raises(ValueError, match=f"Column 'odd' has {words}"):
        prepared.features(frame)


def test_objects_that_are_numbers_are_numbers():
    column = as_table({"a": np.array([decimal.Decimal("1.5"), None, 2], object)}).columns["a"]
    np.testing.assert_array_equal(column.values, [1.5, np.nan, 2])
    column = as_table({"a": np.array([True, None, False], object)}).columns["a"]
    np.testing.assert_array_equal(column.values, [1, np.nan, 0])
    assert as_table({"a": np.array([10**30, 1], object)}).columns["a"].values.tolist() == [1e30, 1.0]
    assert as_table({"a": np.array([b"x", b"y"])}).columns["a"].values.tolist() == ["x", "y"]
    assert as_table(pa.table({"a": pa.array([None, None], pa.null())})).columns["a"].missing.all()


FILES = {
    "nothing.csv": (b"", "nothing.csv cannot be read: the file is empty."),
    "blank.csv": (b" \n\n", "the file is empty"),
    "header.csv": (b"a,b\n", "header.csv has no rows."),
    "ragged.csv": (b"a,b\n1,2\n3\n", "ragged.csv cannot be read: CSV parse error"),
    "twice.csv": (b"a,b,a\n1,2,3\n", "Two columns have the name 'a'"),
    "semicolons.csv": (b"a;b\n1;2\n", "not separated by ','"),
    "tabs.csv": (b"a\tb\n1\t2\n", "not separated by ','"),
    "commas.tsv": (b"a,b\n1,2\n", "not separated by"),
    "index.csv": (b",a\n0,2\n", "column 1 has no name; name it, or save the file without an index"),
    "cut.csv.gz": (gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:40], "not a complete gzip file"),
    "t.parquet": (b"PAR1 is not all", "t.parquet cannot be read"),
    "t.npz": (b"PK\x03\x04 nothing", "t.npz cannot be read"),
    "t.xlsx": (b"", r"t.xlsx is not a table that can be read; known are \.csv"),
    "t.npz.gz": (b"", "is not a table that can be read"),
    "noending": (b"a,b\n1,2\n", "is not a table that can be read"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_refused_with_a_sentence(name, tmp_path):
    content, sentence = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path / name)


def test_what_is_no_table_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*patients\.csv"):
        read(tmp_path / "patients.csv")
    with pytest.raises(ValueError, match="the folder was not written by save_to_disk"):
        read(tmp_path)
    np.savez(tmp_path / "objects.npz", a=np.array([{}, 1], object))
    with pytest.raises(ValueError, match=r"objects\.npz cannot be read: Object arrays"):
        read(tmp_path / "objects.npz")
    np.savez(tmp_path / "lengths.npz", a=[1, 2], b=[1, 2, 3])
    with pytest.raises(ValueError, match="the same number of rows, but have: a 2, b 3"):
        read(tmp_path / "lengths.npz")
    np.savez(tmp_path / "scalar.npz", a=1)
    with pytest.raises(ValueError, match="Column 'a' must be an array with an entry for each row"):
        read(tmp_path / "scalar.npz")
    for frame in ([1, 2], pl.LazyFrame({"a": [1]}), None):
        with pytest.raises(ValueError, match="A table must be a pandas or polars DataFrame"):
            as_table(frame)
    same = pd.DataFrame([[1, 2]], columns=["a", "a"]), pa.table([[1], [2]], names=["a", "a"])
    for frame in (*same, pd.DataFrame([[1, 2]], columns=["1", 1])):
        with pytest.raises(ValueError, match=r"Two columns have the name '[a1]'"):
            as_table(frame)
    parquet.write_table(same[1], tmp_path / "same.parquet")
    with pytest.raises(ValueError, match=r"same\.parquet cannot be read: Two columns have the name 'a'"):
        read(tmp_path / "same.parquet")


@pytest.mark.parametrize(
    ("absent", "extra"), [("narwhals", "table"), ("pyarrow.csv", "table"), ("datasets", "huggingface")]
)
def test_an_absent_library_is_named_with_its_extra(absent, extra, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text(csv_text())
    datasets.Dataset.from_dict(COLUMNS).save_to_disk(tmp_path / "saved")
    monkeypatch.setitem(sys.modules, absent, None)
    package = absent.split(".")[0]
    with pytest.raises(ImportError, match=rf"{package} is not installed; run: pip install 'fedloom\[{extra}\]'"):
        read(tmp_path / ("saved" if absent == "datasets" else "t.csv"))


def test_importing_fedloom_imports_no_library_of_tables():
    heavy = {"narwhals", "pyarrow", "pandas", "polars", "datasets"}
    program = f"import sys, fedloom; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_are_written_as_they_are_and_never_over_another_file(ending, tmp_path):
    path = tmp_path / f"out.{ending}"
    columns = {
        "prediction": np.array(["a, b", 'say "c"', "d"]),
        "probability of x": np.array([0.1, 1 / 3, 1e-300]),
        "n": np.arange(3),
        "b": np.array([True, False, True]),
    }
    write(columns, path)
    found = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
    assert list(found) == list(columns)
    for name, values in columns.items():
        assert found[name].tolist() == values.tolist()
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="already exists"):
        write({"n": np.arange(2)}, path)
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write(columns, tmp_path / f"none/out.{ending}")
    with pytest.raises(ValueError, match="the name must end in"):
        write(columns, tmp_path / "out.txt")
    with pytest.raises(ValueError, match="zip"):
        write({"a": np.arange(2), "b": np.arange(3)}, tmp_path / "other.csv")
    assert not (tmp_path / "other.csv").exists()
