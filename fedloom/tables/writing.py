"""Writing columns, such as predictions, to a new file."""

import csv
import io
import pathlib
from collections.abc import Callable, Mapping

import numpy as np

from fedloom.tables.columns import library

Columns = Mapping[str, np.ndarray]


def write(columns: Columns, path: str | pathlib.Path) -> None:
    """Write columns to a new .csv or .parquet file; never over something that is there."""
    path = pathlib.Path(path)
    if path.suffix not in WRITERS:
        raise ValueError(f"{path}: the name must end in {' or '.join(WRITERS)}.")
    content = WRITERS[path.suffix](columns)  # first, so that no half-written file is left behind
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise FileExistsError(f"{path} already exists; delete it or choose another name.") from None
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}; make it first.") from None


def _csv(columns: Columns) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True))
    return text.getvalue().encode()


def _parquet(columns: Columns) -> bytes:
    arrow, parquet, content = library("pyarrow", "table"), library("pyarrow.parquet", "table"), io.BytesIO()
    parquet.write_table(arrow.table({name: np.asarray(values).tolist() for name, values in columns.items()}), content)
    return content.getvalue()


WRITERS: dict[str, Callable[[Columns], bytes]] = {".csv": _csv, ".parquet": _parquet}
