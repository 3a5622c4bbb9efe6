"""Splits that need no model of the clients: at random, by shards of the sorted labels, by a key that the data has."""

import numpy as np
from numpy.typing import ArrayLike

from fedloom.data.split import Split
from fedloom.data.splits.checks import checked_labels, checked_sizes, generator, require, require_clients
from fedloom.data.splits.dealing import shuffled_by_class
from fedloom.data.splits.sizes import balanced_sizes
from fedloom.hyperparameters import count, interval


def iid(n: int, clients: int, seed: int, sizes: ArrayLike | None = None) -> Split:
    """A random permutation of n rows, cut in equal pieces or in the given sizes. Exhaustive if those add up to n."""
    require_clients("iid", n, clients)
    sizes = checked_sizes("iid", balanced_sizes(n, clients) if sizes is None else sizes, n, clients)
    return Split(generator("iid", seed).permutation(n)[: sizes.sum()], sizes)


def iid_balanced(labels: ArrayLike, clients: int, seed: int) -> Split:
    """At random, but every class evenly: neither a class nor the whole differs by more than 1 between two clients.

    Exhaustive. FedDyn's balanced split where the number of clients divides that of every class.
    """
    labels = checked_labels("iid_balanced", labels)
    require_clients("iid_balanced", len(labels), clients)
    rng = generator("iid_balanced", seed)
    rows = shuffled_by_class(labels, rng)
    # Dealt like cards, class after class; who comes first, and so may have one more, is random.
    owner = np.resize(rng.permutation(clients), len(rows))
    return Split(rows[np.argsort(owner, kind="stable")], np.bincount(owner, minlength=clients))


def shards(labels: ArrayLike, clients: int, per_client: int = 2, seed: int = 0) -> Split:
    """McMahan et al. (arXiv:1602.05629): rows sorted by label, cut in equal shards, `per_client` of them for each.

    Exhaustive: where the shards cannot be equal, they differ by one example.
    """
    labels = checked_labels("shards", labels)
    require_clients("shards", len(labels), clients)
    require("shards", count, per_client=per_client)
    total = clients * per_client
    if len(labels) < total:
        raise ValueError(f"shards: {len(labels)} examples are too few for {total} shards of at least one example.")
    cards = Split(np.argsort(labels, kind="stable"), balanced_sizes(len(labels), total))
    dealt = cards.take(generator("shards", seed).permutation(total))
    return Split(dealt.order, dealt.sizes.reshape(clients, per_client).sum(axis=1))


def by_key(keys: ArrayLike) -> Split:
    """One client for each distinct key (writer, role, hospital), in sorted order and named after it. Exhaustive."""
    a = np.asarray(keys)
    if a.ndim != 1 or len(a) == 0:
        raise ValueError(f"by_key: keys must be one-dimensional, one for each example, got shape {a.shape}.")
    missing = np.asarray(a != a, bool)  # nan and not-a-time differ from themselves
    if missing.any():
        raise ValueError(f"by_key: the key of example {int(missing.argmax())} is {a[missing.argmax()]}.")
    try:
        order = np.argsort(a, kind="stable")
    except TypeError as error:
        raise ValueError(f"by_key: keys must be of the same type, so that they can be sorted: {error}.") from error
    keys = a[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    names = [k.decode(errors="replace") if isinstance(k, bytes) else str(k) for k in keys[first].tolist()]
    return Split(order, np.diff(first, append=len(keys)), np.array(names))


def train_test(split: Split, seed: int, fraction: float = 0.9) -> tuple[Split, Split]:
    """Every client's rows, shuffled: the first int(fraction * n_k) to train on, the others to test on, as in FedProx.

    Departures: one example at least is for training, so that a client with a single one can take part.
    """
    require("train_test", interval(0, 1), fraction=fraction)
    owner = split.owner()
    shuffled = split.order[np.lexsort((generator("train_test", seed).random(len(owner)), owner))]
    # 1 - 0.9 is a little less than 0.1: a share that is whole but for rounding counts as whole.
    sizes = np.maximum((fraction * split.sizes + 1e-9).astype(np.int64), np.minimum(split.sizes, 1))
    train = np.arange(len(owner)) - split.offsets[owner] < sizes[owner]
    return Split(shuffled[train], sizes, split.names), Split(shuffled[~train], split.sizes - sizes, split.names)


def train_validation(split: Split, seed: int, share: float) -> tuple[Split, Split]:
    """What each client trains on, in the order it was, and the given share of its rows, drawn at random, to select by.

    A client with n rows holds out share * n of them, rounded up or down at random so that this is the mean, and all
    clients together hold out their share too, however small they are. Every client keeps one row at least.
    """
    require("train_validation", interval(0, 1, "[)"), share=share)
    rng, owner = generator("train_validation", seed), split.owner()
    expected = np.minimum(share * split.sizes, np.maximum(split.sizes - 1, 0))
    sums = np.floor(np.cumsum(expected) + rng.random())
    sizes = np.minimum(np.diff(sums, prepend=0).astype(np.int64), np.maximum(split.sizes - 1, 0))
    shuffled = np.lexsort((rng.random(len(owner)), owner))
    held = np.zeros(len(owner), bool)
    held[shuffled[np.arange(len(owner)) - split.offsets[owner] < sizes[owner]]] = True
    kept = Split(split.order[~held], split.sizes - sizes, split.names)
    return kept, Split(split.order[held], sizes, split.names)
