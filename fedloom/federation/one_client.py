"""Data of a single client: out of the data of many, and together with others."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.data.federated_data import FederatedData
from fedloom.data.split import Split


def client_of(data: FederatedData, k: int) -> FederatedData:
    """The data of client k alone. Test rows that nobody owns are dealt out, so that clients together test on all."""
    train = data.split.rows(k)
    held = np.zeros(0, int) if data.validation_split is None else data.validation_split.rows(k)
    names = None if data.split.names is None else data.split.names[[k]]
    tests = np.zeros(0, int)
    if data.test is not None:
        own, owned = (tests, tests) if data.test_split is None else (data.test_split.rows(k), data.test_split.order)
        nobodys = np.setdiff1d(np.arange(len(data.test[1])), owned)
        tests = np.concatenate([own, nobodys[k :: data.clients]])

    def rows(store: Any, chosen: np.ndarray) -> Any:
        return jax.tree.map(lambda a: a[chosen], store)

    def split(first: int, n: int) -> Split | None:
        return Split(np.arange(first, first + n), np.array([n]), names) if n else None

    n = len(train)
    return FederatedData(
        rows(data.train, np.concatenate([train, held])),
        Split(np.arange(n), np.array([n]), names),
        rows(data.test, tests) if len(tests) else None,
        split(0, len(tests)),
        data.classes,
        split(n, len(held)),
        data.preparation,
    )


def together(clients: Mapping[str, FederatedData]) -> FederatedData:
    """The data of several single clients, by name, as one: to simulate a federation whose rows are at hand."""
    found, names = list(clients.values()), np.array(list(clients))

    def joined(stores: Sequence[Any]) -> Any:
        there = [store for store in stores if store is not None]
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *there) if there else None

    def split(stores: Sequence[Any], splits: Sequence[Split | None]) -> Split:
        lengths = np.array([0 if store is None else len(store[1]) for store in stores])
        first = np.cumsum(lengths) - lengths
        orders = [np.zeros(0, int) if s is None else s.order + f for s, f in zip(splits, first, strict=True)]
        return Split(np.concatenate(orders), np.array([len(order) for order in orders]), names)

    stores, tests = [d.train for d in found], [d.test for d in found]
    own_tests, held = split(tests, [d.test_split for d in found]), split(stores, [d.validation_split for d in found])
    classes = [d.classes for d in found if d.classes is not None]
    return FederatedData(
        joined(stores),
        split(stores, [d.split for d in found]),
        joined(tests),
        own_tests if len(own_tests.order) else None,
        max(classes) if len(classes) == len(found) else None,
        held if len(held.order) else None,
        found[0].preparation,
    )
