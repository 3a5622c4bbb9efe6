"""What was computed of each example, and what follows: a metric over all of them, by client, and on blocks of them."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy  # which imports its parts when they are used: some take a second

from fedloom.data.split import Split
from fedloom.loss import Coupled
from fedloom.metrics.scores import (
    Criterion,
    Metric,
    binary_cross_entropy,
    cross_entropy,
    squared_error,
)

BLOCKS = 100


class Ratio(NamedTuple):
    """A metric that is a ratio of sums: the numerator and the denominator of each example."""

    numerators: np.ndarray
    denominators: np.ndarray

    def value(self) -> float:
        """The metric over all examples; nan if the denominator is 0."""
        a, b = (float(np.sum(x, dtype=float)) for x in self)
        return a / b if b else float("nan")

    def by_client(self, split: Split) -> np.ndarray:
        """The metric for each client of a split of these examples."""
        owner = split.owner()
        a, b = (np.bincount(owner, np.asarray(x, float)[split.order], minlength=split.clients) for x in self)
        return ratios(a, b)

    def blocks(self, owners: np.ndarray | None = None) -> list[float]:
        """`blocks` of these numerators and denominators."""
        return blocks(self.numerators, self.denominators, owners)


class OfAll(NamedTuple):
    """A metric that is a function of all examples: their labels, and what the function is given besides."""

    metric: Metric
    y: np.ndarray
    given: np.ndarray

    def value(self) -> float:
        """The metric over all examples."""
        return number(self.metric, self.y, self.given)

    def by_client(self, split: Split) -> np.ndarray:
        """The metric for each client of a split of these examples; nan for those for which it is not defined."""
        rows = (split.rows(k) for k in range(split.clients))
        return np.array([self._where_defined(own) if len(own) else np.nan for own in rows])

    def blocks(self, owners: np.ndarray | None = None) -> list[float]:
        """The metric on blocks of its examples, by leaving them out; see `blocks`. None if it is not defined then.

        With R over all n examples and R_b over those that are not in block b, which has n_b, block b has
        R + B (1 - n_b / n) (R - R_b). These are the pseudo-values of the jackknife, B R - (B - 1) R_b if all blocks are
        of one size; of a mean they are those of `blocks`, whatever the sizes. For other metrics their own mean is R up
        to a bias of order 1 / n, which is taken off.
        """
        place = blocks_of(len(self.y), owners)
        sizes = np.bincount(place)
        rest = np.array([self._where_defined(place != b) for b in range(len(sizes))])
        whole = self.value()
        if len(sizes) < 2 or not np.isfinite([whole, *rest]).all():
            return []
        changes = len(sizes) * (1 - sizes / len(place)) * (whole - rest)
        return _rounded(whole + changes - changes.mean())

    def _where_defined(self, rows: np.ndarray) -> float:
        """The metric over some of the examples; nan where it is not defined, of one class for instance."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of each client with one class
            try:
                return number(self.metric, self.y[rows], self.given[rows])
            except Exception:
                return float("nan")


Scored = Ratio | OfAll


def blocks(numerators: np.ndarray, denominators: np.ndarray, owners: np.ndarray | None = None) -> list[float]:
    """A metric on each of at most BLOCKS random blocks of its examples, as pseudo-values whose mean is the metric.

    Examples of one owner, owners[i], stay in one block: those of one writer are no independent sample.

    With R = sum(num) / sum(den) over all examples and B blocks, block b has R + B (num_b - R den_b) / sum(den). The
    variance of the blocks over B is that of R, as another sample of test examples would have it (up to terms of higher
    order). Six significant digits are kept.
    """
    place = blocks_of(len(numerators), owners)
    a, b = (np.bincount(place, weights=np.asarray(x, float)) for x in (numerators, denominators))
    whole = a.sum() / b.sum() if b.sum() else np.nan
    return _rounded(whole + len(a) * (a - whole * b) / (b.sum() or 1.0))


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def blocks_of(n: int, owners: np.ndarray | None) -> np.ndarray:
    """The block of each of n examples."""
    return _dealt(n) if owners is None else _dealt(int(owners.max()) + 1)[owners]


@functools.lru_cache(maxsize=8)
def _dealt(n: int) -> np.ndarray:
    """The block of each of n examples or owners: the same for all runs, so that blocks can be compared between them."""
    return np.argsort(np.random.default_rng(0).permutation(n)) % min(BLOCKS, n)


def ratios(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, nan where b is 0."""
    return np.where(b > 0, a / np.where(b > 0, b, 1), np.nan)


def number(metric: Metric, y: np.ndarray, given: np.ndarray) -> float:
    """metric.function(y, given); a sentence if it is no number; nan if it fails where outputs are not finite."""
    assert metric.function is not None
    words = f"Metric {metric.name!r}: its function"
    try:
        found = metric.function(y, given)
    except Exception as error:
        if not np.all(np.isfinite(given)):  # the model has diverged, which is for the run to say
            return float("nan")
        raise ValueError(
            f"{words} raised {type(error).__name__}: {str(error).rstrip('.')}. A metric must return one number for "
            "labels and outputs; options of a function are given with functools.partial."
        ) from error
    if (value := _as_number(found)) is None:
        raise ValueError(f"{words} returned {_described(found)}, but a metric must return one number.")
    return value


def _as_number(found: Any) -> float | None:
    try:
        array = np.asarray(found)
    except ValueError:  # a list of arrays of different lengths
        return None
    return float(array) if array.ndim == 0 and array.dtype.kind in "biuf" else None


def _described(found: Any) -> str:
    if hasattr(found, "shape"):
        return f"an array of shape {tuple(found.shape)}"
    return f"a {type(found).__name__} of {len(found)}" if isinstance(found, tuple | list | dict) else f"{found!r:.60}"


def given_to(
    metric: Metric, outputs: np.ndarray, y: np.ndarray, criterion: Criterion | Coupled | None = None
) -> np.ndarray:
    """What the function of a metric is given of the outputs [n, ...] for the labels y of all examples.

    A last axis of length 1, which labels do not have, is dropped: (n,) - (n, 1) would be (n, n).
    """
    scores = np.asarray(outputs, float)
    if scores.shape == (*y.shape, 1):
        scores = scores[..., 0]
    kind = metric.given
    if kind == "labels or outputs":
        kind = "labels" if _are_class_scores(scores, y, criterion) else "outputs"
    if kind == "outputs":
        return scores
    if scores.shape == y.shape:  # a logit for each label
        return scipy.special.expit(scores) if kind == "probabilities" else (scores > 0).astype(int)
    if scores.shape[:-1] != y.shape:
        raise ValueError(
            f"Metric {metric.name!r} needs {kind}, but outputs of shape {np.shape(outputs)} are no class scores for "
            f"labels of shape {y.shape}; use of='outputs'."
        )
    if kind == "labels":
        return np.argmax(scores, axis=-1)
    return (
        scipy.special.expit(scores[..., 1] - scores[..., 0])
        if scores.shape[-1] == 2
        else scipy.special.softmax(scores, axis=-1)
    )


def _are_class_scores(scores: np.ndarray, y: np.ndarray, criterion: Criterion | Coupled | None) -> bool:
    """By the loss, if it is one of ours; else there are several for an integer, or one for labels that are 0 or 1."""
    known: dict[Callable[..., Any] | None, bool] = {
        cross_entropy: True,
        binary_cross_entropy: True,
        squared_error: False,
    }
    if criterion in known:
        return known[criterion]
    if scores.shape == y.shape:
        return bool(np.isin(y, (0, 1)).all())
    return scores.shape[:-1] == y.shape and y.dtype.kind in "biu"
