"""Clients that have examples of a few classes only."""

import numpy as np
from numpy.typing import ArrayLike

from fedloom.data.split import Split
from fedloom.data.splits.checks import checked_labels, generator, require, require_clients
from fedloom.data.splits.dealing import deal, shuffled_by_class, taken_before
from fedloom.hyperparameters import count


def digits_p(labels: ArrayLike, p: int, clients: int = 100, seed: int = 6) -> Split:
    """p classes for each client, with equally many examples of each (Yang et al., arXiv:2101.11203).

    The test examples of the same clients: of_classes(test_labels, digits_p_classes(labels, p, clients, seed)).
    """
    return of_classes(labels, digits_p_classes(labels, p, clients, seed))


def digits_p_classes(labels: ArrayLike, p: int, clients: int = 100, seed: int = 6) -> np.ndarray:
    """The classes [clients, p] of `digits_p`: drawn among those that have more than enough left for one more client.

    If fewer than p have, the client takes these, and then the class that has most left, which may repeat one.

    Departures: the authors draw p = 1, 2, 5, 10 from one stream (`authors_classes`); here each starts from the seed.
    Where clients * p is not a multiple of the number of classes, the quota is rounded down so far that it suffices for
    everyone.
    """
    labels = checked_labels("digits_p", labels)
    require_clients("digits_p", len(labels), clients)
    require("digits_p", count, p=p)
    each, classes = _truncated("digits_p", labels), int(labels.max()) + 1
    if p > classes:
        raise ValueError(f"digits_p: p = {p} is larger than the number of classes, {classes}.")
    quota = each // -(-clients * p // classes)
    if quota == 0:
        raise ValueError(f"digits_p: {each} examples of each class are too few for {clients} clients with p = {p}.")
    rng = generator("digits_p", seed)
    left, chosen = np.full(classes, each), np.empty((clients, p), np.int64)
    for own in chosen:
        enough = np.flatnonzero(left > quota)
        if len(enough) > p:
            enough = rng.choice(enough, p, replace=False)
        own[: len(enough)] = enough
        left[enough] -= quota
        for j in range(len(enough), p):
            own[j] = np.argmax(left)
            left[own[j]] -= quota
    return chosen


_AUTHORS_P = (1, 2, 5, 10)


def authors_classes(labels: ArrayLike, p: int) -> np.ndarray:
    """The classes [100, p] of the authors' own files of `digits_p`, for p = 1, 2, 5 or 10: there is one draw only.

    Their program makes all four files, in this order, with NumPy's old generator and the seed 6. Where fewer than p
    classes have enough left, it fills up with those that have most left, without counting what it has just taken.
    """
    labels = checked_labels("authors_classes", labels)
    each, known = _truncated("authors_classes", labels), int(labels.max()) + 1
    if p not in _AUTHORS_P:
        raise ValueError(f"authors_classes: the authors have files for p = {_AUTHORS_P}, not for p = {p!r}.")
    rng = np.random.RandomState(6)
    for q in _AUTHORS_P[: _AUTHORS_P.index(p) + 1]:
        quota, left, chosen = each * known // (100 * q), np.full(known, each), np.empty((100, q), np.int64)
        for own in chosen:
            enough = np.flatnonzero(left > quota)
            if len(enough) >= q:
                own[:] = rng.choice(enough, q, replace=False)
            else:
                own[: len(enough)], fullest = enough, left.copy()
                for j in range(len(enough), q):
                    own[j] = np.argmax(fullest)
                    fullest[own[j]] -= 1
            np.subtract.at(left, own, quota)
        if left.min() < 0:
            raise ValueError(f"authors_classes: the authors' program fails for p = {q}, {each} examples of each class.")
    return chosen


def of_classes(labels: ArrayLike, classes: ArrayLike) -> Split:
    """Client k has equally many examples of each of classes[k]: as many as the most wanted class can give to everyone.

    Like the authors of `digits_p`, all classes are cut to the length of the smallest, less one, and given out from
    the end; so it is not exhaustive. A class that is listed twice counts twice.
    """
    labels = checked_labels("of_classes", labels)
    each, known = _truncated("of_classes", labels), int(labels.max()) + 1
    wanted = np.asarray(classes)
    if wanted.ndim != 2 or wanted.size == 0 or not np.issubdtype(wanted.dtype, np.integer):
        raise ValueError(f"of_classes: classes must be integers of shape [clients, p], got shape {wanted.shape}.")
    if wanted.min() < 0 or wanted.max() >= known:
        raise ValueError(f"of_classes: classes must be in 0 .. {known - 1}, as the labels are.")
    most = np.bincount(wanted.ravel()).max()
    if each < most:
        raise ValueError(f"of_classes: {each} examples of each class are too few for the {most} clients that want one.")
    counts = np.bincount(labels)
    last_first = (np.cumsum(counts) - counts + each)[:, None] - 1 - np.arange(each)[None, :]
    rows = np.argsort(labels, kind="stable")[last_first.ravel()]
    clients, p = wanted.shape
    amounts = np.full(wanted.size, each // most)
    return deal(rows, np.full(known, each), np.repeat(np.arange(clients), p), wanted.ravel(), amounts, clients)


def _truncated(where: str, labels: np.ndarray) -> int:
    """The examples that the authors of `digits_p` keep of each class: those of the smallest class, less one."""
    counts = np.bincount(labels)
    if counts.min() < 2:
        raise ValueError(f"{where}: class {counts.argmin()} has {counts.min()} examples; every class needs two.")
    return int(counts.min()) - 1


def fedprox_mnist(labels: ArrayLike, clients: int = 1000, seed: int = 0) -> Split:
    """FedProx's MNIST (arXiv:1812.06127): client u has the digits u and u + 1 (mod 10), and sizes vary greatly.

    Five examples of both; then the rest of every class is divided in proportion to lognormal(0, 2) shares, rounded
    down, so that it is not exhaustive. The authors split all 70,000 images, and then `train_test`.

    Departures: the examples of a class are shuffled before.
    """
    labels = checked_labels("fedprox_mnist", labels)
    owner, classes, counts = _neighbours("fedprox_mnist", labels, clients, per_client=2, least=5)
    rng = generator("fedprox_mnist", seed)
    shares = rng.lognormal(0.0, 2.0, len(owner))
    rest = counts - 5 * np.bincount(classes, minlength=len(counts))
    total = np.bincount(classes, weights=shares, minlength=len(counts))
    extra = (rest[classes] * (shares / total[classes])).astype(np.int64)
    return deal(shuffled_by_class(labels, rng), counts, owner, classes, 5 + extra, clients)


def fedprox_femnist(labels: ArrayLike, clients: int = 200, seed: int = 0) -> Split:
    """FedProx's FEMNIST (arXiv:1812.06127): client u has the classes u, u + 1, u + 2 (mod 10), in equal parts.

    Sizes are lognormal(4, 1) + 5, with at least two examples of each class. Not exhaustive. The authors take the lower
    case letters a to j, at most 4,000 images of each, and then `train_test`.

    Departures: in the authors' file clients with a common class share images, which they call a bug; here no two do.
    So a class may run out: then later clients have two examples of it. Examples of a class are shuffled before.
    """
    labels = checked_labels("fedprox_femnist", labels)
    owner, classes, counts = _neighbours("fedprox_femnist", labels, clients, per_client=3, least=2)
    rng = generator("fedprox_femnist", seed)
    extra = np.maximum(((rng.lognormal(4.0, 1.0, clients) + 5) / 3).astype(np.int64) - 2, 0)[owner]
    room = (counts - 2 * np.bincount(classes, minlength=len(counts)))[classes] - taken_before(classes, extra)
    amounts = 2 + np.clip(room, 0, extra)
    return deal(shuffled_by_class(labels, rng), counts, owner, classes, amounts, clients)


def _neighbours(
    where: str, labels: np.ndarray, clients: int, per_client: int, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Client u asks for the classes u, ..., u + per_client - 1 modulo their number: clients, classes, class counts."""
    require_clients(where, len(labels), clients)
    counts = np.bincount(labels)
    owner = np.repeat(np.arange(clients), per_client)
    classes = (owner + np.tile(np.arange(per_client), clients)) % len(counts)
    need = least * np.bincount(classes, minlength=len(counts))
    short = np.flatnonzero(counts < need)
    if len(short):
        c = short[0]
        raise ValueError(f"{where}: {clients} clients need {need[c]} examples of class {c}, but it has {counts[c]}.")
    return owner, classes, counts
