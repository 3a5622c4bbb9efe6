"""Federated data: flat stores of training and test examples, and who owns which."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.data.dataset import Dataset, check_finite, check_labels
from fedloom.data.describe import Description, description
from fedloom.data.empirical_risk import Examples, examples
from fedloom.data.split import Split
from fedloom.data.splits import by_key, train_test, train_validation
from fedloom.loss import Loss
from fedloom.problem import Vector


@dataclasses.dataclass(frozen=True, eq=False)
class FederatedData:
    """Training examples with their owners; a global test set; test examples of single clients where there are any.

    Validation examples, to select by, are rows of the training store that clients do not train on; the global
    validation set is all of them.

    A store is a pair (x, y) of arrays, or of trees of arrays, with examples along the first axis; it is put on JAX's
    device at once, so that there is one copy. Memory is that of the examples plus a few numbers for each client.
    """

    train: Any
    split: Split
    test: Any = None  # the global test set
    test_split: Split | None = None  # the test examples of each client, as rows of `test`
    classes: int | None = None  # labels are 0 .. classes - 1; None: not a classification
    validation_split: Split | None = None  # the validation examples of each client, as rows of `train`
    preparation: Any = None  # how rows of a table became x and y, and how outputs become predictions
    # Makes the preparation, and with it x and y, anew: of data whose clients now train on other rows.
    refit: "Callable[[FederatedData], FederatedData] | None" = None

    def __post_init__(self) -> None:
        parts = (
            ("train", self.train, self.split),
            ("test", self.test, self.test_split),
            ("train", self.train, self.validation_split),
        )
        for name, store, split in parts:
            if store is None:
                continue
            if not isinstance(store, tuple) or len(store) != 2:
                raise ValueError(f"{name} must be a pair (x, y) of arrays, got {type(store).__name__}.")
            rows = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(store)}
            if len(rows) != 1:
                raise ValueError(f"{name}: the arrays must all have the same number of rows, but have {sorted(rows)}.")
            if split is not None and len(split.order) and split.order.max() >= max(rows):
                raise ValueError(
                    f"{name}: the split assigns row {split.order.max()}, but there are only {max(rows)} rows."
                )
        for name, words, store in (("train", "training", self.train), ("test", "test", self.test)):
            if store is not None:
                check_labels(name, store[1], self.classes)
                for part, arrays in zip("xy", store, strict=True):
                    check_finite(part, tuple(jax.tree.leaves(arrays)), f" of the {words} data")
        for name, own in (("test", self.test_split), ("validation", self.validation_split)):
            if own is not None and own.clients != self.split.clients:
                raise ValueError(
                    f"{name}_split has {own.clients} clients, but there are {self.split.clients}; "
                    f"a client without {name} examples has size 0."
                )
        if self.validation_split is not None:
            shared = np.intersect1d(self.validation_split.order, self.split.order)
            if len(shared):
                raise ValueError(f"Row {shared[0]} of the training data is in split and in validation_split.")
            if len(self.validation_split.order) == 0:
                raise ValueError("validation_split has no examples; leave it out.")
        if np.any(self.split.sizes < 1):
            empty = int(np.argmax(self.split.sizes < 1))
            raise ValueError(f"Client {empty} has no training example; leave it out with split.at_least(1).")
        if self.test is not None and len(self.test[1]) == 0:
            raise ValueError("test has no examples; leave it out.")
        same = self.test is self.train
        object.__setattr__(self, "train", jax.tree.map(jnp.asarray, self.train))
        object.__setattr__(self, "test", self.train if same else jax.tree.map(jnp.asarray, self.test))

    @property
    def clients(self) -> int:
        """The number of clients."""
        return self.split.clients

    def with_validation(self, share: float, seed: int) -> "FederatedData":
        """The same data, of which each client holds out a share of its training examples, drawn with the seed.

        Examples that are held out already come back first, so that 0 gives data without a validation part. See
        `splits.train_validation` for how the share is rounded.
        """
        split = self.split
        if (held := self.validation_split) is not None:
            owner = np.concatenate([split.owner(), held.owner()])
            order = np.concatenate([split.order, held.order])[np.argsort(owner, kind="stable")]
            split = Split(order, split.sizes + held.sizes, split.names)
        kept, spared = train_validation(split, seed, share)
        if share > 0 and len(spared.order) == 0:
            raise ValueError(
                f"validation: {share!r} of the clients' {len(split.order)} training examples is not even one example, "
                "or no client has two; give a larger share."
            )
        return self.divided(kept, spared if len(spared.order) else None, self.test_split)

    def divided(self, split: Split, validation_split: Split | None, test_split: Split | None) -> "FederatedData":
        """The same examples given to clients differently, and prepared from those that are trained on now."""
        made = dataclasses.replace(self, split=split, validation_split=validation_split, test_split=test_split)
        return made if self.refit is None else self.refit(made)

    def federation(self, loss: Loss, unravel: Callable[[Vector], Any], weights: Any = "examples") -> Examples:
        """The clients to train on. `loss` and `weights` are as in `examples`."""
        return examples(self.train, self.split, loss, unravel, weights)

    def describe(self) -> Description:
        """Sizes, label histogram, and how much the clients differ."""
        test = None if self.test is None else len(self.test[1])
        found = description(np.asarray(self.train[1]), self.split, self.classes, test)
        held = 0 if self.validation_split is None else len(self.validation_split.order)
        return dataclasses.replace(found, validation_examples=held)


def federated(dataset: Dataset, split: Split, test_split: Split | None = None) -> FederatedData:
    """The examples of a dataset, given to clients."""
    test = None if dataset.test_y is None or len(dataset.test_y) == 0 else (dataset.test_x, dataset.test_y)
    return FederatedData((dataset.x, dataset.y), split, test, None if test is None else test_split, dataset.classes)


def held_out(dataset: Dataset, split: Split, fraction: float, seed: int) -> FederatedData:
    """Each client trains on the given fraction of its examples, drawn with the seed; the others are the test set."""
    train, test = train_test(split, seed=seed, fraction=fraction)
    if len(test.order) == 0:  # no client has enough examples to spare one
        return federated(dataset, train)
    rows = jax.tree.map(lambda a: np.asarray(a)[test.order], (dataset.x, dataset.y))
    own = Split(np.arange(len(test.order)), test.sizes, test.names)
    return FederatedData((dataset.x, dataset.y), train, rows, own, dataset.classes)


def by_client(
    x: Any, y: Any, clients: Any, *, test: float = 0.1, validation: float = 0.0, seed: int = 0
) -> FederatedData:
    """One's own arrays: examples x with labels or targets y; clients[i] is the name of the client that owns example i.

    The share `test` of each client's examples, drawn with `seed`, is set aside for testing; 0 keeps all for training.
    Of the others, the share `validation` is held out to select by: see `FederatedData.with_validation`.
    Integer labels y make it a classification.
    """
    x = x if isinstance(x, tuple) else np.asarray(x)
    y, clients = np.asarray(y), np.asarray(clients)
    for name, a in (("x", x), ("y", y)):
        for part in a if isinstance(a, tuple) else (a,):
            if np.ndim(part) == 0 or np.asarray(part).dtype.kind not in "biuf":
                raise ValueError(f"{name} must be an array of numbers with a row for each example, got {part!r:.80}.")
        check_finite(name, a)
    for name, share in (("test", test), ("validation", validation)):
        if not isinstance(share, int | float) or not 0 <= share < 1:
            raise ValueError(f"{name} must be a share in [0, 1), got {share!r}.")
    if clients.shape != (len(y),):
        raise ValueError(f"clients must name the owner of each of {len(y)} examples, got shape {clients.shape}.")
    labels = y.ndim == 1 and y.dtype.kind in "iu"
    data = Dataset(x, y, classes=int(y.max()) + 1 if labels and len(y) else None)
    split = by_key(clients)
    made = federated(data, split) if test == 0 else held_out(data, split, max(1 - test, 1e-9), seed)
    return made if validation == 0 else made.with_validation(validation, seed)


def natural(dataset: Dataset, at_least: int = 1) -> FederatedData:
    """One client for each of the dataset's own keys (writers, roles, hospitals) with enough training examples.

    The test examples of the same key are the client's own; the global test set has all.
    """
    if dataset.keys is None:
        raise ValueError(f"{dataset.origin} does not say who owns its examples; use a split such as iid or dirichlet.")
    split = by_key(dataset.keys)
    test_split = None
    if dataset.test_keys is not None:
        distinct = np.unique(dataset.keys)  # sorted, as by_key has them
        place = np.minimum(np.searchsorted(distinct, dataset.test_keys), len(distinct) - 1)
        rows = np.flatnonzero(distinct[place] == dataset.test_keys)
        if len(rows):
            order = rows[np.argsort(place[rows], kind="stable")]
            test_split = Split(order, np.bincount(place[rows], minlength=split.clients), split.names)
    keep = np.flatnonzero(split.sizes >= at_least)
    if len(keep) == 0:
        raise ValueError(f"{dataset.origin}: no client has {at_least} examples; the largest has {split.sizes.max()}.")
    if len(keep) < split.clients:
        split, test_split = split.take(keep), None if test_split is None else test_split.take(keep)
    return federated(dataset, split, test_split)
