"""Synthetic classification, drawn here: Synthetic(alpha, beta) of Li et al. and the synthetic data of FedDyn.

In both, client k has its own linear rule and its own distribution of inputs:

    W_k, b_k ~ N(u_k, 1)       u_k ~ N(0, alpha)         how much the rules differ
    v_k      ~ N(B_k, 1)       B_k ~ N(0, beta)          how much the inputs differ
    x ~ N(v_k, diag(j^-1.2)),  y = argmax(x W_k + b_k)

alpha and beta (gamma_1 and gamma_2 in FedDyn) are *standard deviations*, as in the authors' code; the papers'
N(0, alpha) reads as a variance, which differs for 0.5 only. Labels are the argmax: nothing is drawn from the softmax.
Synthetic(0, 0) is not iid: every client still has its own W_k and v_k. In fact alpha changes nothing: u_k adds the same
to the scores of all classes. What makes the clients' rules differ is the 1 in N(u_k, 1), for every alpha.

Departures: the authors set no seed, so only the distribution can be repeated; their files are read with `sources.leaf`.
With `sizes="authors"` the clients of Synthetic(alpha, beta) have the sizes of those files, to within 5 examples.
"""

import numpy as np

from fedloom.data.federated_data import FederatedData
from fedloom.data.split import Split
from fedloom.data.splits.checks import require, seeds
from fedloom.hyperparameters import count

# How many test examples each of the 30 users has in the files of FedProx, FedDANE and FedDR, by (alpha, beta). A user
# with t of them, a tenth of its examples rounded up, has 10 t - 9 to 10 t in all.
AUTHORS_TESTS: dict[tuple[float | None, float | None], str] = {
    (None, None): "6 9 9 6 8 6 71 44 6 50 6 22 360 7 10 6 10 9 7 9 6 21 6 22 16 15 17 18 8 15",
    (0, 0): "58 5 6 6 24 163 18 10 7 9 6 6 12 14 169 55 21 8 21 82 6 56 11 6 8 15 6 72 7 10",
    (0.5, 0.5): "5 7 40 11 6 12 8 37 21 20 10 5 33 465 8 9 20 6 11 9 6 6 62 6 15 11 19 18 11 15",
    (1, 1): "8 18 9 17 16 50 14 9 6 19 17 6 9 6 7 662 6 13 7 12 8 5 6 44 6 14 31 45 8 6",
}

# Clients and numbers at a time: the rules of a million clients are never in memory at once.
_BLOCK, _NUMBERS = 4096, 2**21


def synthetic(
    alpha: float | None,
    beta: float | None,
    *,
    clients: int = 30,
    features: int = 60,
    classes: int = 10,
    sizes: np.ndarray | str | None = None,
    seed: int = 0,
) -> FederatedData:
    """Synthetic(alpha, beta): 30 users, 60 features, 10 classes, sizes int(lognormal(4, 2)) + 50, 90% for training.

    alpha=None gives all users one rule W, b ~ N(0, 1), and beta=None gives all inputs mean 0; `synthetic(None, None)`
    is Synthetic-IID. `sizes` are the numbers of examples, training and test together, if given; "authors" takes those
    of the files with which FedProx, FedDANE and FedDR were run, whose largest user has 19% to 61% of all examples.
    """
    _check(alpha=alpha, beta=beta)
    require("synthetic", count, clients=clients, features=features, classes=classes)
    require("synthetic", seeds, seed=seed)
    rng = np.random.default_rng(seed)
    if sizes is None:
        sizes = rng.lognormal(4, 2, clients).astype(int) + 50
    sizes = authors_sizes(alpha, beta) if isinstance(sizes, str) and sizes == "authors" else np.asarray(sizes)
    if sizes.shape != (clients,) or sizes.dtype.kind not in "iu" or np.any(sizes < 2):
        raise ValueError(f"sizes must have an integer of at least 2 for each of {clients} clients, or be 'authors'.")
    train = (0.9 * sizes).astype(int)
    x, y, test_x, test_y = _draw(rng, alpha, beta, train, sizes - train, features, classes)
    split, test_split = (Split(np.arange(n.sum()), n) for n in (train, sizes - train))
    return FederatedData((x, y), split, (test_x, test_y), test_split, classes)


def authors_sizes(alpha: float | None, beta: float | None) -> np.ndarray:
    """Sizes with which each user has as many test examples as in the authors' file: 10 t - 5 for t of them."""
    if (alpha, beta) not in AUTHORS_TESTS:
        known = ", ".join(str(levels) for levels in AUTHORS_TESTS)
        raise ValueError(f"sizes: the authors have files for (alpha, beta) = {known}, not for {(alpha, beta)}.")
    return 10 * np.array(AUTHORS_TESTS[alpha, beta].split(), int) - 5


def feddyn_synthetic(
    rules: float | None = None,
    inputs: float | None = None,
    quantities: float | None = None,
    *,
    clients: int = 20,
    features: int = 30,
    classes: int = 5,
    mean_size: int = 200,
    seed: int = 0,
) -> FederatedData:
    """FedDyn's synthetic data (appendix A.1): 20 devices, 30 features, 5 classes, 200 examples a device.

    Type 1 heterogeneity is `rules`, type 2 `inputs`, type 3 `quantities` (the paper's gamma 1 to 3): the standard
    deviations of u_k, of B_k, and of the logarithm of the sizes. None disables a type: one rule for all,
    inputs of mean 0, equal sizes. The test set is the training set, as in the authors' code, whose targets are training
    losses.
    """
    _check(rules=rules, inputs=inputs, quantities=0.0 if quantities is None else quantities)
    require("feddyn_synthetic", count, clients=clients, features=features, classes=classes, mean_size=mean_size)
    require("feddyn_synthetic", seeds, seed=seed)
    rng = np.random.default_rng(seed)
    # The 1e-3 is in the authors' code: it keeps int() from making 199 of 200.
    sizes = np.maximum(rng.lognormal(np.log(mean_size + 1e-3), quantities or 0, clients).astype(int), 1)
    x, y, _, _ = _draw(rng, rules, inputs, sizes, np.zeros_like(sizes), features, classes)
    split = Split(np.arange(sizes.sum()), sizes)
    return FederatedData(store := (x, y), split, store, split, classes)


def _check(**standard_deviations: float | None) -> None:
    for name, value in standard_deviations.items():
        if value is not None and not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be None or a non-negative number, got {value!r}.")


def _draw(
    rng: np.random.Generator,
    rules: float | None,
    inputs: float | None,
    train: np.ndarray,
    test: np.ndarray,
    features: int,
    classes: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, y, test x, test y: clients one after another, train[k] and test[k] examples of client k."""
    scale = np.arange(1, features + 1) ** -0.6  # the covariance is diag(j^-1.2)
    parts = [(np.empty((n.sum(), features), np.float32), np.empty(n.sum(), np.int32)) for n in (train, test)]
    offsets = [np.concatenate([[0], np.cumsum(n)]) for n in (train, test)]
    shared = rng.normal(size=(features + 1, classes))
    for first in range(0, len(train), _BLOCK):
        last = min(first + _BLOCK, len(train))
        u = rng.normal(size=(last - first, 1, 1)) * (rules or 0)
        rule = u + rng.normal(size=(last - first, features + 1, classes))
        center = rng.normal(size=(last - first, 1)) * (inputs or 0) + rng.normal(size=(last - first, features))
        for (x, y), n, offset in zip(parts, (train, test), offsets, strict=True):
            owner = np.repeat(np.arange(last - first), n[first:last])
            most = max(_NUMBERS // (features * classes), 1)
            for start in range(0, len(owner), most):
                k = owner[start : start + most]
                rows = slice(offset[first] + start, offset[first] + start + len(k))
                drawn = rng.normal(size=(len(k), features)) * scale + (0 if inputs is None else center[k])
                if rules is None:
                    scores = drawn @ shared[:-1] + shared[-1]
                else:
                    scores = np.einsum("nf,nfc->nc", drawn, rule[k, :-1]) + rule[k, -1]
                x[rows], y[rows] = drawn, np.argmax(scores, axis=1)
    (x, y), (test_x, test_y) = parts
    return x, y, test_x, test_y
