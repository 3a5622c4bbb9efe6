"""From what a client has to its rows: a function of its own, a table, or its part of a task."""

import dataclasses
import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedloom.client import Federation
from fedloom.data.federated_data import FederatedData, by_client
from fedloom.data.splits import train_validation
from fedloom.experiments.definition import Experiment
from fedloom.experiments.own_files import Kind, called, find, is_reference
from fedloom.experiments.table_files import is_table
from fedloom.federation.one_client import client_of
from fedloom.federation.own_table import OwnTable, own_table
from fedloom.tables.preparation import Preparation, counted
from fedloom.tables.reading import read

TASK = "task"  # in the place of data: the client's part of the experiment's own task
TEST_SHARE = 0.1  # of arrays without test rows: as in `by_client`
DATA = Kind(
    "data",
    "a function, without arguments or of the client's name, that returns the client's rows",
    lambda v: callable(v) and not isinstance(v, type),
)


@dataclasses.dataclass(frozen=True, eq=False)
class OwnData:
    """What one client has: rows, a table that is not prepared yet, or an objective of its own."""

    name: str
    data: FederatedData | None = None  # of this client alone
    table: OwnTable | None = None
    federation: Federation | None = None
    place: int = 0  # of this client in that federation

    def prepared(self, preparation: Preparation) -> "OwnData":
        """The rows of the table as a model takes them."""
        return dataclasses.replace(self, data=self.unprepared.prepared(preparation, self.name))

    @property
    def unprepared(self) -> OwnTable:
        """The client's table."""
        if self.table is None:
            raise ValueError(f"Client {self.name!r} has no table: its data need no preparation.")
        return self.table

    @property
    def size(self) -> int:
        """The number n_k of examples to train on."""
        if self.data is not None:
            return len(self.data.split.order)
        if self.table is not None:
            return len(self.table.train)
        assert self.federation is not None
        return int(self.federation.objective(self.place).size)

    @property
    def test_size(self) -> int:
        """The number of test examples."""
        if self.data is not None:
            return 0 if self.data.test_split is None else len(self.data.test_split.order)
        return 0 if self.table is None else len(self.table.test)

    @property
    def capacity(self) -> int:
        """An upper bound of n_k as far as this client knows; that of the federation is the largest of all clients'."""
        return self.size if self.federation is None else int(self.federation.objective(self.place).capacity)


def own_rows(data: str, experiment: Experiment, k: int, name: str, seed: int) -> OwnData:
    """What client k has.

    Args:
        data: FILE.py:NAME, a function of one's own, see `DATA`; the path of a table, all of whose rows are this
            client's; or "task", client k of the experiment's own task.
        experiment: has the roles of a table's columns, the validation share, and the task.
        k: the client's number.
        name: the client's name.
        seed: draws, together with k, the rows that are held out.
    """
    drawn = own_seed(seed, k)
    if data == TASK:
        return _of_task(experiment, k, name, seed)
    if is_reference(data):
        return _returned(data, _result(data, name), experiment, k, name, drawn)
    if not is_table(data):
        raise ValueError(
            f"data: {data!r} is neither FILE.py:NAME, nor a table (.csv, .tsv, .parquet, .npz, or a folder of the "
            f"Hugging Face library), nor {TASK!r}."
        )
    try:
        return OwnData(name, table=own_table(read(data), experiment, drawn))
    except FileNotFoundError as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        raise ValueError(f"{pathlib.Path(data).name}: {error}") from error


def own_seed(seed: int, k: int) -> int:
    """The seed of what client k draws alone, whoever the other clients are."""
    return int(np.random.SeedSequence([seed, k]).generate_state(1, np.uint64)[0])


# A function of one's own.


def _result(reference: str, name: str) -> Any:
    function: Callable[..., Any] = find(reference, DATA)
    parameters = inspect.signature(function).parameters.values()
    if len([p for p in parameters if p.default is p.empty]) > 1:
        raise ValueError(f"data: {reference} must be a function without arguments, or of the client's name alone.")
    return function(name) if parameters else called(function)


def _returned(reference: str, found: Any, experiment: Experiment, k: int, name: str, seed: int) -> OwnData:
    if isinstance(found, Federation):
        if found.clients != 1 and k >= found.clients:
            raise ValueError(f"data: {reference} returns {found.clients} clients, and none with the number {k}.")
        return OwnData(name, federation=found, place=0 if found.clients == 1 else k)
    if isinstance(found, FederatedData):
        if found.clients != 1:
            raise ValueError(f"data: {reference} must return the rows of one client, but returns {found.clients}.")
        return OwnData(name, data=client_of(_with_validation(found, experiment, seed), 0))
    if isinstance(found, tuple | list) and len(found) in (2, 4):
        try:
            return OwnData(name, data=_with_validation(_of_arrays(*found, name=name, seed=seed), experiment, seed))
        except ValueError as error:
            raise ValueError(f"data: {reference}: {error}") from error
    if isinstance(found, tuple | list) or found is None:
        what = "None" if found is None else f"a {type(found).__name__} of {len(found)}"
        raise ValueError(
            f"data: {reference} must return (x, y), (x, y, test_x, test_y), a table, FederatedData or a Federation, "
            f"but returns {what}."
        )
    try:
        return OwnData(name, table=own_table(found, experiment, seed))
    except ValueError as error:
        raise ValueError(f"data: {reference}: {error}") from error


def _of_arrays(x: Any, y: Any, test_x: Any = None, test_y: Any = None, *, name: str, seed: int) -> FederatedData:
    def made(x: Any, y: Any, share: float) -> FederatedData:
        return by_client(x, y, np.full(np.shape(y)[:1], name), test=share, seed=seed)

    if test_y is None:
        return made(x, y, TEST_SHARE)
    train, test = made(x, y, 0), made(test_x, test_y, 0)
    shapes = [jax.tree.map(lambda a: a.shape[1:], d.train) for d in (train, test)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"rows for training and rows for testing have different shapes: {shapes[0]} and {shapes[1]}.")
    classes = None if train.classes is None or test.classes is None else max(train.classes, test.classes)
    return dataclasses.replace(train, test=test.train, test_split=test.split, classes=classes)


def _with_validation(data: FederatedData, experiment: Experiment, seed: int) -> FederatedData:
    """The data, of which a share is held out to select by; none of it, if the client has too few examples."""
    if experiment.validation == 0:
        return data
    whole = data.with_validation(0, seed)
    kept, spared = train_validation(whole.split, seed, experiment.validation)
    return whole.divided(kept, spared if len(spared.order) else None, whole.test_split)


def _of_task(experiment: Experiment, k: int, name: str, seed: int) -> OwnData:
    loaded = dataclasses.replace(experiment, seed=seed).load()
    clients = loaded.federation.clients
    if k >= clients:
        raise ValueError(
            f"data: task {loaded.task.name!r} has {counted(clients, 'client')}, and none with the number {k}."
        )
    if loaded.data is None:
        return OwnData(name, federation=loaded.federation, place=k)
    return OwnData(name, data=client_of(loaded.data, k))
