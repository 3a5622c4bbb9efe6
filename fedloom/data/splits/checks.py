"""What all splits share: the checks of their arguments, and their random numbers."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedloom.hyperparameters import Domain, count, interval

seeds = Domain(
    "a non-negative integer",
    lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and v >= 0,
)
# Wide enough for everyone, narrow enough for double precision. 0 is no such number: say 1e-12 for "one class each".
positive = interval(1e-12, 1e12, "[]")


def require(where: str, domain: Domain, **values: Any) -> None:
    """Raise a sentence for the first value that lies outside the domain."""
    for name, value in values.items():
        if np.ndim(value) or not domain.holds(value):
            raise ValueError(f"{where}: {name} must be {domain.words}, got {value!r}.")


def generator(where: str, seed: int) -> np.random.Generator:
    """Random numbers of one function: with the same seed, sizes, priors and rows must not depend on each other."""
    require(where, seeds, seed=seed)
    return np.random.default_rng([int(seed), *where.encode()])


def require_clients(where: str, n: int, clients: int) -> None:
    require(where, count, n=n, clients=clients)
    if n < clients:
        raise ValueError(f"{where}: {n} examples are too few for {clients} clients; every client needs at least one.")


def checked_labels(where: str, labels: ArrayLike, name: str = "labels") -> np.ndarray:
    """Labels as int64, one for each example."""
    a = np.asarray(labels)
    if a.ndim != 1 or len(a) == 0 or not np.issubdtype(a.dtype, np.integer):
        raise ValueError(
            f"{where}: {name} must be a one-dimensional array of integers, one for each example, "
            f"got {a.dtype} of shape {a.shape}."
        )
    if a.min() < 0:
        raise ValueError(f"{where}: {name} must be 0, 1, 2, ..., but one is {a.min()}.")
    return a.astype(np.int64)


def checked_sizes(where: str, sizes: ArrayLike, n: int, clients: int) -> np.ndarray:
    """The clients' numbers of examples."""
    a = np.asarray(sizes)
    if a.shape != (clients,) or not np.issubdtype(a.dtype, np.integer) or a.min() < 1:
        raise ValueError(f"{where}: sizes must be {clients} positive integers, one for each client.")
    if a.sum() > n:
        raise ValueError(f"{where}: sizes add up to {a.sum()}, but there are {n} examples.")
    return a.astype(np.int64)
