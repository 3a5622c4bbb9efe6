"""Clients that prefer some classes: every client draws its labels from a prior of its own.

Classes run out. Then all priors are renormalised over the classes that are left, and a prior without mass on those
becomes the shares that they have in what is left at that moment, so that every split comes to an end.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedloom.data.split import Split
from fedloom.data.splits.checks import checked_labels, checked_sizes, generator, positive, require, require_clients
from fedloom.data.splits.dealing import deal, shuffled_by_class
from fedloom.data.splits.sizes import balanced_sizes
from fedloom.hyperparameters import count

_NO_MASS = np.finfo(float).tiny  # below it, u * mass may round to mass


def dirichlet_priors(clients: int, classes: int, alpha: float, seed: int) -> np.ndarray:
    """Priors [clients, classes], each drawn from Dir(alpha, ..., alpha)."""
    require("dirichlet_priors", count, clients=clients, classes=classes)
    require("dirichlet_priors", positive, alpha=alpha)
    return generator("dirichlet_priors", seed).dirichlet(np.full(classes, float(alpha)), clients)


def dirichlet(
    labels: ArrayLike,
    clients: int,
    alpha: float | None,
    seed: int,
    sizes: ArrayLike | None = None,
    priors: ArrayLike | None = None,
) -> Split:
    """FedDyn's split (arXiv:2111.04263): the label of each example is drawn from its client's Dir(alpha) prior.

    Until all clients have their sizes (equal ones if not given): take a client at random among those that are not
    full, draw a class from its prior, and give it an unused example of that class. Exhaustive if sizes add up to the
    number of examples. `priors`, one row for each client, takes the place of alpha; with the same seed, a split of test
    examples has the priors of the split of training examples without it.

    Departures: the authors redraw while a class is exhausted, which need not end; here priors are renormalised.
    """
    labels = checked_labels("dirichlet", labels)
    require_clients("dirichlet", len(labels), clients)
    sizes = balanced_sizes(len(labels), clients) if sizes is None else sizes
    sizes = checked_sizes("dirichlet", sizes, len(labels), clients)
    priors = _priors("dirichlet", labels, clients, alpha, priors, seed)
    rng = generator("dirichlet", seed)
    # Let every client receive its examples at the times of a Poisson process of rate 1: then whose turn is next is
    # uniform among the clients that are not full, and sorting the times gives all turns at once.
    waits = rng.standard_exponential(sizes.sum())
    times = np.cumsum(waits)
    start = np.cumsum(sizes) - sizes
    times -= np.repeat(times[start] - waits[start], sizes)
    owner = np.repeat(np.arange(clients), sizes)[np.argsort(times)]
    return _drawn(labels, owner, priors, rng)


def latent_dirichlet(
    labels: ArrayLike,
    clients: int,
    alpha: float | None,
    seed: int,
    size: int | None = None,
    priors: ArrayLike | None = None,
) -> Split:
    """FedOpt's CIFAR-10 (Hsu et al., arXiv:1909.06335): like `dirichlet`, but one client after another is filled.

    Every client has `size` examples; by default as many as there are for all, which is exhaustive if the number of
    clients divides that of the examples. `priors` as in `dirichlet`: test clients use those of the training clients.

    Departures: the authors' row of a late client can become 0 / 0; here it becomes the shares of what is left.
    """
    labels = checked_labels("latent_dirichlet", labels)
    require_clients("latent_dirichlet", len(labels), clients)
    size = _checked_size("latent_dirichlet", len(labels) // clients if size is None else size, clients, len(labels))
    priors = _priors("latent_dirichlet", labels, clients, alpha, priors, seed)
    owner = np.repeat(np.arange(clients), size)
    return _drawn(labels, owner, priors, generator("latent_dirichlet", seed))


def pachinko(
    coarse: ArrayLike, fine: ArrayLike, clients: int, seed: int, size: int = 100, alpha: float = 0.1, beta: float = 10.0
) -> Split:
    """FedOpt's CIFAR-100 (arXiv:2003.00295, appendix F): labels from a two-level tree, `size` for each client in turn.

    When a client is built it draws a root from Dir(alpha) over the coarse labels that are left and, for each of them,
    Dir(beta) over its fine labels that are left; then `size` times a coarse label, a fine label below it and an unused
    example. An exhausted label is pruned and its level renormalised. Exhaustive if clients * size is the number of
    examples.
    """
    coarse, fine = checked_labels("pachinko", coarse, "coarse"), checked_labels("pachinko", fine, "fine")
    if len(coarse) != len(fine):
        raise ValueError(f"pachinko: there are {len(coarse)} coarse labels, but {len(fine)} fine ones.")
    require_clients("pachinko", len(fine), clients)
    size = _checked_size("pachinko", size, clients, len(fine))
    require("pachinko", positive, alpha=alpha, beta=beta)
    counts = np.bincount(fine)
    parent = np.zeros(len(counts), np.int64)
    parent[fine] = coarse
    astray = np.flatnonzero(parent[fine] != coarse)
    if len(astray):
        raise ValueError(f"pachinko: the fine label {fine[astray[0]]} is found under more than one coarse label.")
    rng = generator("pachinko", seed)
    left, picks = counts.copy(), np.empty((clients, size), np.int64)
    for k in range(clients):
        root, leaves = _tree(parent, left, alpha, beta, rng)
        begin = 0
        while begin < size:
            cdf = np.cumsum(root[parent] * leaves)
            drawn = np.searchsorted(cdf, rng.random(size - begin) * cdf[-1], side="right")
            drawn = drawn[: _until_exhausted(drawn, left)]
            picks[k, begin : begin + len(drawn)] = drawn
            begin += len(drawn)
            left -= np.bincount(drawn, minlength=len(left))
            if begin < size:
                _prune(root, leaves, parent, left)
    owner = np.repeat(np.arange(clients), size)
    amounts = np.ones(clients * size, np.int64)
    return deal(shuffled_by_class(fine, rng), counts, owner, picks.ravel(), amounts, clients)


def _tree(
    parent: np.ndarray, left: np.ndarray, alpha: float, beta: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A new client's probabilities: of the coarse labels, and of the fine ones given their coarse label."""
    root, leaves = np.zeros(parent.max() + 1), np.zeros(len(parent))
    open_coarse = np.unique(parent[left > 0])
    root[open_coarse] = rng.dirichlet(np.full(len(open_coarse), float(alpha)))
    for c in open_coarse:
        below = np.flatnonzero((parent == c) & (left > 0))
        leaves[below] = rng.dirichlet(np.full(len(below), float(beta)))
    return root, leaves


def _prune(root: np.ndarray, leaves: np.ndarray, parent: np.ndarray, left: np.ndarray) -> None:
    """Renormalise both levels, in place, over the labels that are left."""
    root[:] = _renormalised(root, np.bincount(parent, weights=left, minlength=len(root)))
    for c in np.unique(parent[left > 0]):
        below = np.flatnonzero(parent == c)
        leaves[below] = _renormalised(leaves[below], left[below])
    leaves[left == 0] = 0


def _drawn(labels: np.ndarray, owner: np.ndarray, priors: np.ndarray, rng: np.random.Generator) -> Split:
    """The split in which example after example goes to owner[0], owner[1], ..., its class from the owner's prior.

    All are drawn at once. Up to the one that exhausts a class the draws stand; of the later ones those of an exhausted
    class are drawn again from the renormalised priors (the others have that distribution already), and so on: at most
    one pass for each class.
    """
    clients, priors = len(priors), priors.T
    counts = np.bincount(labels, minlength=len(priors))
    left = counts.copy()
    picks = np.empty(len(owner), np.min_scalar_type(len(counts)))  # a short type, which sorts faster
    begin, again = 0, np.arange(len(owner))
    while begin < len(owner):
        priors = _renormalised(priors, left)
        cdf = np.cumsum(priors, axis=0)
        who = owner[again]
        u = rng.random(len(again)) * cdf[-1][who]
        drawn = np.zeros(len(again), picks.dtype)
        for c in range(len(counts) - 1):
            drawn += cdf[c][who] <= u
        picks[again] = drawn
        end = begin + _until_exhausted(picks[begin:], left)
        left -= np.bincount(picks[begin:end], minlength=len(left))
        begin = end
        again = begin + np.flatnonzero(left[picks[begin:]] == 0)
    amounts = np.ones(len(owner), np.int64)
    return deal(shuffled_by_class(labels, rng), counts, owner, picks, amounts, clients)


def _until_exhausted(picks: np.ndarray, left: np.ndarray) -> int:
    """How many picks can be made until a class is exhausted; all of them if none is."""
    order = np.argsort(picks, kind="stable")
    asked = np.bincount(picks, minlength=len(left))
    gone = np.flatnonzero((asked >= left) & (left > 0))
    last = (np.cumsum(asked) - asked)[gone] + left[gone] - 1
    return int(order[last].min()) + 1 if len(gone) else len(picks)


def _renormalised(priors: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Priors, classes along the first axis, over the classes that are left; one without mass becomes their shares."""
    left = left.reshape(-1, *[1] * (priors.ndim - 1))
    priors = np.where(left > 0, priors, 0)
    priors = np.where(priors.sum(axis=0) < _NO_MASS, left, priors)
    return priors / priors.sum(axis=0)


def _priors(
    where: str, labels: np.ndarray, clients: int, alpha: float | None, priors: ArrayLike | None, seed: int
) -> np.ndarray:
    classes = int(labels.max()) + 1
    if (alpha is None) == (priors is None):
        raise ValueError(f"{where}: give either alpha or priors.")
    if alpha is not None:
        require(where, positive, alpha=alpha)
        return dirichlet_priors(clients, classes, alpha, seed)
    p = np.asarray(priors, dtype=float)
    if p.ndim != 2 or p.shape[0] != clients or p.shape[1] < classes:
        raise ValueError(f"{where}: priors must have shape [{clients}, {classes}], clients and classes, got {p.shape}.")
    if not np.all(np.isfinite(p)) or np.any(p < 0) or not np.all(p.any(axis=1)):
        raise ValueError(f"{where}: priors must be finite and non-negative, and no row may be all zero.")
    p = p / p.max(axis=1, keepdims=True)  # before the sum, which could overflow
    return p / p.sum(axis=1, keepdims=True)


def _checked_size(where: str, size: int, clients: int, n: int) -> int:
    require(where, count, size=size)
    if clients * size > n:
        raise ValueError(
            f"{where}: {clients} clients with size = {size} need {clients * size} examples, but there are only {n}."
        )
    return int(size)
