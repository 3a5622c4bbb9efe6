"""Tables as the tasks of experiments: the path of a file in the place of a name, and the roles of columns as fields."""

import functools
import hashlib
import inspect
import pathlib
from typing import Any, NoReturn

from fedloom import tables
from fedloom.experiments.own_files import Kind, find, is_reference
from fedloom.models import Model
from fedloom.tables.reading import READERS
from fedloom.tasks import Task

COLUMNS = ("label", "client", "split_column", "leave_out")  # the fields of an experiment that name columns
MODEL = Kind(
    "model",
    "a Model, or a function (features, outputs) -> Model",
    lambda v: isinstance(v, Model) or (callable(v) and not isinstance(v, type)),
)


def is_table(task: Any) -> bool:
    """Is it the path of a table, and not the name of a task?"""
    if not isinstance(task, str) or is_reference(task):
        return False
    path = pathlib.Path(task)
    if path.name.lower().removesuffix(".gz").rpartition(".")[2] in READERS.keys() - {"folder"}:
        return True
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def whole_path(table: str) -> str:
    """The absolute path of a table, since a run may be resumed from another folder."""
    return str(pathlib.Path(table).resolve())


def check_columns(task: Any, columns: dict[str, Any], split: Any) -> None:
    """Raise a ValueError unless the columns of a table are named, and only those of a table."""
    if not is_table(task):
        if named := [name for name, value in columns.items() if value]:
            raise ValueError(f"{named[0]} names a column of a table, but the task is {_name(task)!r}; leave it out.")
        return
    if not columns["label"]:
        raise ValueError(f"label: name the column of {_name(task)} that is to be predicted, such as --label outcome.")
    if not columns["client"] and split is None:
        raise ValueError(
            f"client: name the column of {_name(task)} that says whose row it is, such as --client hospital; or divide "
            "the rows yourself: --split iid --split.clients 10."
        )


def _name(task: Any) -> str:
    return pathlib.Path(task).name if isinstance(task, str) else str(task.name)


def unread(path: str) -> Task:
    """What is known of a table without reading it: its name."""

    def data(seed: int) -> NoReturn:
        raise ValueError(f"{path} is a table: say what is to be predicted, with --label COLUMN --client COLUMN.")

    return Task(pathlib.Path(path).name.split(".")[0] or "table", data)


def table_task(path: str, columns: dict[str, Any], model: str | None) -> Task:
    """The task of a table: the same one as long as the file is the same, so that data are read once."""
    made: Any = model or "mlp"
    if is_reference(made):
        made = find(made, MODEL, again=False)
        if not isinstance(made, Model) and not inspect.signature(made).parameters:
            made = made()
    return _read(path, _stamp(path), tuple(columns.items()), made)


@functools.lru_cache(maxsize=4)
def _read(path: str, stamp: Any, columns: tuple[tuple[str, Any], ...], model: Any) -> Task:
    given = {name: value for name, value in columns if value}
    try:
        return tables.from_file(path, model=model, **given)
    except FileNotFoundError as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        raise ValueError(f"{pathlib.Path(path).name}: {error}") from error


def _stamp(path: str) -> tuple[Any, ...]:
    return tuple((str(p), s.st_mtime_ns, s.st_size) for p in _files(path) if (s := p.stat()))


def _files(path: str) -> list[pathlib.Path]:
    """The file, or all files of a folder."""
    place = pathlib.Path(path)
    return sorted(p for p in place.rglob("*") if p.is_file()) if place.is_dir() else [place] * place.is_file()


def table_digest(path: str) -> str | None:
    """The SHA-256 of a table's file, or of the files of its folder; None if there are none."""
    found = hashlib.sha256()
    for file in _files(path):
        with file.open("rb") as opened:
            found.update(hashlib.file_digest(opened, "sha256").digest())
    return found.hexdigest() if _files(path) else None
