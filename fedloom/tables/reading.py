"""Tables from files: CSV, Parquet, NPZ, and folders that the Hugging Face library saved."""

import io
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fedloom.data.files import open_binary
from fedloom.tables.columns import Column, Table, as_column, as_table, library


def read(path: str | pathlib.Path) -> Table:
    """A table from a file: .csv, .tsv (both also .gz), .parquet, .npz, or a folder written by `save_to_disk`."""
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    kind = "folder" if path.is_dir() else path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind not in READERS or (path.suffix.lower() == ".gz" and kind not in ("csv", "tsv")):
        raise ValueError(
            f"{path} is not a table that can be read; known are .csv and .tsv (also .gz), .parquet, .npz, and folders "
            "that were written by save_to_disk of the Hugging Face library."
        )
    try:
        table = READERS[kind](path)
    except ImportError:
        raise
    except Exception as error:  # the libraries raise a dozen kinds for a damaged file
        raise ValueError(f"{path} cannot be read: {(str(error) or repr(error)).splitlines()[0]}") from error
    if table.rows == 0:
        raise ValueError(f"{path} has no rows.")
    return table


def _csv(path: pathlib.Path, delimiter: str = ",") -> Table:
    csv = library("pyarrow.csv", "table")
    with open_binary(path) as file:
        text = file.read()
    if not text.strip():
        raise ValueError("the file is empty.")
    # Arrow's list: empty, NA, N/A, NaN, null, ...; also after a comma and a space, which columns of texts keep.
    spellings = [*csv.ConvertOptions().null_values, "?"]
    nulls = [space + spelling for spelling in spellings for space in ("", " ")]
    found = csv.read_csv(
        io.BytesIO(text),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        convert_options=csv.ConvertOptions(null_values=nulls, strings_can_be_null=True),
    )
    names = [name.strip() for name in found.column_names]
    if "" in names:
        raise ValueError(
            f"column {names.index('') + 1} has no name; name it, or save the file without an index "
            "(in pandas to_csv(..., index=False))."
        )
    if len(names) == 1 and any(other in names[0] for other in ";\t,"):
        raise ValueError(f"the columns are not separated by {delimiter!r}; save them as CSV with commas or as .tsv.")
    table = as_table(found.rename_columns(names))
    return Table({name: _stripped(column) for name, column in table.columns.items()})


def _stripped(column: Column) -> Column:
    if column.problem == "bytes":
        return Column(column.values, "texts that are not in UTF-8")
    if not column.is_text:
        return column
    return as_column(np.array([None if entry is None else entry.strip() for entry in column.values], object))


def _tsv(path: pathlib.Path) -> Table:
    return _csv(path, "\t")


def _parquet(path: pathlib.Path) -> Table:
    with library("pyarrow.parquet", "table").ParquetFile(path) as file:
        return as_table(file.read())


def _npz(path: pathlib.Path) -> Table:
    # Opened here, because NumPy does not close a file that it cannot read.
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        return as_table({name: file[name] for name in file})


def _folder(path: pathlib.Path) -> Table:
    if not any((path / name).exists() for name in ("dataset_dict.json", "state.json")):
        raise ValueError("the folder was not written by save_to_disk of the Hugging Face library.")
    datasets = library("datasets", "huggingface")
    loaded = datasets.load_from_disk(str(path))
    if not isinstance(loaded, datasets.DatasetDict):
        return _of_dataset(datasets, loaded)
    tables = {part: _of_dataset(datasets, dataset) for part, dataset in loaded.items()}
    first, names = next(iter(tables.items()))
    for part, table in tables.items():
        if set(table.columns) != set(names.columns):
            odd = sorted(set(table.columns) ^ set(names.columns))
            raise ValueError(f"the parts {first!r} and {part!r} do not have the same columns: {', '.join(odd)}.")
    columns = {name: _joined([table.columns[name] for table in tables.values()]) for name in names.columns}
    return Table(columns, np.repeat(list(tables), [table.rows for table in tables.values()]))


def _of_dataset(datasets: Any, dataset: Any) -> Table:
    """Class labels become their names, and images are known as such."""
    columns = dict(as_table(dataset.with_format("arrow")[:]).columns)
    for name, feature in dataset.features.items():
        if isinstance(feature, datasets.ClassLabel):
            named = {i: text for i, text in enumerate(feature.names)}  # -1, as test sets have it, is missing
            columns[name] = as_column(np.array([named.get(code) for code in columns[name].values.tolist()], object))
        elif isinstance(feature, datasets.Image):
            columns[name] = Column(columns[name].values, "images")
    return Table(columns)


def _joined(columns: list[Column]) -> Column:
    """The same column of several parts."""
    if problem := next((column.problem for column in columns if column.problem), ""):
        return Column(np.zeros(sum(len(column.values) for column in columns)), problem)
    if len({column.is_text for column in columns}) > 1 or len({column.values.shape[1:] for column in columns}) > 1:
        return Column(np.zeros(sum(len(column.values) for column in columns)), "other values in other parts")
    return Column(np.concatenate([column.values for column in columns]))


READERS: dict[str, Callable[[pathlib.Path], Table]] = {
    "csv": _csv,
    "tsv": _tsv,
    "parquet": _parquet,
    "npz": _npz,
    "folder": _folder,
}
