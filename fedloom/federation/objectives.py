"""The federation as one client sees it: its own examples, among others of whom it knows nothing but how many they are.

What it computes has the bits that the federation of all clients in one process gives it: minibatches depend on the
largest client's number of examples, and the rounding of a full pass on the width of its chunks.
"""

import dataclasses
import functools
from typing import Any, NamedTuple, NoReturn

import numpy as np

from fedloom.client import Federation, Objective, normalised
from fedloom.data.empirical_risk import Examples
from fedloom.data.passes import chunk_width
from fedloom.federation.own_data import OwnData
from fedloom.hyperparameters import frozen
from fedloom.problem import Scalar
from fedloom.tables.models import TableModel, check_model, table_model
from fedloom.tables.preparation import Classes, Preparation
from fedloom.tables.task import mse, standardised_error
from fedloom.tasks import Loaded, Task


class Told(NamedTuple):
    """What the server tells a client about the federation; plain numbers."""

    k: int  # the client's number
    clients: int
    weight: float  # p_k
    capacity: int  # the largest client's number of examples
    width: int  # examples in a chunk of a full pass


def told(sizes: Any, weights: Any = "examples", capacity: int | None = None) -> list[Told]:
    """What each client is told, from their numbers of examples. `weights` is as in `Task`."""
    n = np.asarray(sizes)
    p = normalised(
        {"examples": n, "uniform": np.ones(len(n))}[weights] if isinstance(weights, str) else weights, len(n)
    )
    most = int(n.max()) if capacity is None else capacity
    return [Told(k, len(n), float(p[k]), most, chunk_width(n)) for k in range(len(n))]


def seen_by(own: OwnData, task: Task, told: Told) -> Federation:
    """The federation as client k sees it: only `objective(k)` and `relative_weight(k)` are known."""
    k, clients, weight, capacity, width = told
    if not 0 <= k < clients or not 0 <= weight <= 1:
        raise ValueError(f"Client {own.name!r} cannot have the number {k} of {clients} and the weight {weight}.")
    weights = np.full(clients, (1 - weight) / max(clients - 1, 1))  # of others: a guess that nobody needs
    weights[k] = weight
    if own.federation is not None:
        whole = own.federation
        if whole.clients == clients and own.place == k and float(np.asarray(whole.weights)[k]) == weight:
            return whole
        return Placed(whole, own.place, weights)
    if own.size > capacity:
        raise ValueError(f"Client {own.name!r} has {own.size} examples, but is told that nobody has over {capacity}.")
    alone, sizes = loaded_alone(task, own).federation, np.ones(clients, np.int32)
    assert isinstance(alone, Examples)
    sizes[k] = own.size
    return dataclasses.replace(
        alone, offsets=np.zeros(clients, np.int32), sizes=sizes, weights=weights, capacity=capacity, width=width
    )


@frozen
class Placed(Federation):
    """A federation of one's own objectives, of which one is this client's, whatever its number."""

    federation: Federation
    place: int = dataclasses.field(metadata={"static": True})
    weights: Any

    def objective(self, k: Scalar) -> Objective:
        return self.federation.objective(self.place)

    @property
    def on_host(self) -> bool:
        return self.federation.on_host

    def check(self, w: Any) -> None:
        self.federation.check(w)


@functools.lru_cache(maxsize=8)
def loaded_alone(task: Task, own: OwnData) -> Loaded:
    """The task with the rows of one client, checked: its labels have outputs, its model takes its rows."""
    if own.data is None:
        raise ValueError(f"The table of client {own.name!r} must be prepared first.")
    return dataclasses.replace(task, data=own.data, weights="uniform").load()


def table_task(preparation: Preparation, model: TableModel = "mlp", name: str = "table") -> Task:
    """The task of a table that nobody has as a whole: what `from_frame` makes of it, but for the data."""
    made = table_model(model, len(preparation.names), preparation.label.outputs)
    check_model(made, preparation)

    def data(seed: int) -> NoReturn:
        raise ValueError(f"The rows of task {name!r} are with its clients.")

    if isinstance(preparation.label, Classes):
        return Task(name, data, made)
    return Task(name, data, made, criterion=standardised_error, metrics=(mse,))
