"""Dealing out the examples of each class."""

import numpy as np

from fedloom.data.split import Split, ranges


def taken_before(classes: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """How much of its class the requests before each request ask for."""
    turn = np.argsort(classes, kind="stable")
    before = np.cumsum(amounts[turn]) - amounts[turn]
    totals = np.bincount(classes, weights=amounts).astype(np.int64)
    result = np.empty_like(before)
    result[turn] = before - (np.cumsum(totals) - totals)[classes[turn]]
    return result


def deal(
    rows: np.ndarray, counts: np.ndarray, owner: np.ndarray, classes: np.ndarray, amounts: np.ndarray, clients: int
) -> Split:
    """Request i gives client owner[i] the next amounts[i] rows of class classes[i].

    `rows` are the rows of class 0 in the order in which they are given out, then those of class 1, ...; `counts` says
    how many each class has.
    """
    begin = (np.cumsum(counts) - counts)[classes] + taken_before(classes, amounts)
    turn = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, weights=amounts, minlength=clients).astype(np.int64)
    return Split(rows[ranges(begin[turn], amounts[turn])], sizes)


def shuffled_by_class(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """All rows, sorted by class and in random order within a class."""
    rows = rng.permutation(len(labels))
    return rows[np.argsort(labels[rows], kind="stable")]
