"""Losses and metrics: what is measured on an example, given a model's outputs.

A loss gives one number for each example. A metric is mostly a ratio of sums: it gives a numerator and a denominator for
each example, so that it can be summed over a test set, over a client, or over clients, and means the same everywhere.
What is no such ratio, like the area under a curve, is a function of all examples.
"""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy  # which imports its parts when they are used: some take a second

from fedloom.loss import Coupled

Criterion = Callable[[jax.Array, jax.Array], jax.Array]


def _mean_of_rest(x: jax.Array) -> jax.Array:
    return jnp.mean(x.reshape(x.shape[0], -1), axis=1)


def cross_entropy(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """Softmax cross-entropy with integer labels; for sequences the mean over positions, padding included.

    FedOpt's sequence models are trained so: their padded targets count in the loss, though not in the accuracy.
    """
    if outputs.shape[:-1] != y.shape:
        raise ValueError(f"Labels of shape {y.shape} do not match outputs of shape {outputs.shape}.")
    # A comparison instead of a look-up, whose gradient would be a scatter: slow for the small arrays of a client.
    right = y.astype(jnp.int32)[..., None] == jnp.arange(outputs.shape[-1]).reshape(*(1,) * y.ndim, -1)
    own = jnp.where(jnp.any(right, axis=-1), jnp.sum(jnp.where(right, outputs, 0), axis=-1), jnp.nan)  # no such class
    return _mean_of_rest(jax.nn.logsumexp(outputs, axis=-1) - own)


def binary_cross_entropy(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """Sigmoid cross-entropy with targets 0 or 1; for several outputs, as in tag prediction, their mean."""
    return _mean_of_rest(optax.sigmoid_binary_cross_entropy(outputs, y.reshape(outputs.shape).astype(outputs.dtype)))


def squared_error(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """The squared difference; for several outputs their mean."""
    return _mean_of_rest((outputs - y.reshape(outputs.shape)) ** 2)


UNBOUNDED = (-math.inf, math.inf)
SHARE = (0.0, 1.0)
NONNEGATIVE = (0.0, math.inf)


@dataclasses.dataclass(frozen=True)
class Metric:
    """`of(outputs, y)` gives a numerator and a denominator for each example; the metric is the ratio of their sums.

    `Metric.of_all` makes a metric of any other function of outputs and labels.
    """

    name: str
    of: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]] | None
    larger_is_better: bool = True
    bounds: tuple[float, float] = UNBOUNDED  # the smallest and the largest value that it can have
    function: Callable[..., Any] | None = None  # instead of `of`: function(y, given), of all examples
    given: str = "outputs"  # what the function is given: one of GIVEN

    @staticmethod
    def of_all(
        f: Callable[..., Any],
        name: str | None = None,
        *,
        of: str | None = None,
        larger_is_better: bool | None = None,
        bounds: tuple[float, float] = UNBOUNDED,
    ) -> "Metric":
        """The number f(y, given), computed on the host from all examples at once.

        These are the arguments of scikit-learn's metrics, which work as they are: `Metric.of_all(roc_auc_score)`. Their
        options are given with functools.partial.

        Args:
            f: f(y, given) with NumPy arrays of all labels and, in the same order, what `of` says.
            name: of the metric; that of f if not given, with spaces for underscores.
            of: "outputs" as the model gives them; "probabilities", of class 1 where there are two classes or one logit,
                [n, classes] otherwise; or "labels". None goes by the name of f's second parameter: y_score, y_prob and
                y_proba get probabilities, y_pred gets labels if the outputs are class scores, and all others outputs.
            larger_is_better: None goes by scikit-learn's convention: no, if the name of f ends in loss, error or
                deviance.
            bounds: the smallest and the largest value that it can have.
        """
        if not callable(f):
            raise ValueError(f"Metric.of_all needs a function of labels and outputs, f(y, given); got {f!r:.80}.")
        if of is not None and of not in GIVEN[:3]:
            raise ValueError(f"Metric.of_all: of must be one of {', '.join(GIVEN[:3])}, got {of!r}.")
        own = f.func if isinstance(f, functools.partial) else f
        called = getattr(own, "__name__", "<lambda>")
        if name is None and called == "<lambda>":
            raise ValueError(f"Metric.of_all: {f!r:.80} has no name; give it one: Metric.of_all(f, 'my score').")
        larger = not called.endswith(("loss", "error", "deviance")) if larger_is_better is None else larger_is_better
        return Metric(name or called.replace("_", " "), None, larger, bounds, f, of or _usually_given(f, called))


# What a function of all examples can be given; the last is what y_pred stands for.
GIVEN = ("outputs", "probabilities", "labels", "labels or outputs")


def _usually_given(f: Callable[..., Any], name: str) -> str:
    if "log_loss" in name:  # log_loss and d2_log_loss_score take probabilities, which older scikit-learns call y_pred
        return "probabilities"
    try:
        parameters = list(inspect.signature(f).parameters)
    except (TypeError, ValueError):  # some functions written in C do not say
        parameters = []
    second = parameters[1] if len(parameters) > 1 else ""
    by_name = dict.fromkeys(("y_score", "y_prob", "y_proba"), "probabilities") | {"y_pred": "labels or outputs"}
    return by_name.get(second, "outputs")


def _one_each(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, jnp.ones_like(x)


def _correct(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _one_each((jnp.argmax(outputs, axis=-1) == y).astype(outputs.dtype))


def _sign_correct(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _one_each(((outputs.reshape(y.shape) > 0) == (y > 0)).astype(outputs.dtype))


accuracy = Metric("accuracy", _correct, bounds=SHARE)
binary_accuracy = Metric("accuracy", _sign_correct, bounds=SHARE)  # of one output, the logit of class 1


@functools.cache
def token_accuracy(*ignored: int) -> Metric:
    """Share of right tokens among the positions whose target is none of `ignored`.

    The mask looks at the target only: predicting an ignored token elsewhere is an error like any other. FedOpt ignores
    padding (0) for Shakespeare, and padding, out-of-vocabulary and end of sentence for Stack Overflow.
    """

    def of(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        counted = jnp.ones(y.shape, bool)
        for token in ignored:
            counted &= y != token
        right = counted & (jnp.argmax(outputs, axis=-1) == y)
        return jnp.sum(right, axis=1).astype(outputs.dtype), jnp.sum(counted, axis=1).astype(outputs.dtype)

    return Metric("accuracy", of, bounds=SHARE)


@functools.cache
def recall_at(k: int) -> Metric:
    """True tags among the k highest scores, over all true tags: micro-averaged, as Keras' Recall(top_k=k)."""

    def of(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        top = jax.lax.top_k(outputs, k)[1]
        hits = jnp.take_along_axis(y, top, axis=1)
        return jnp.sum(hits, axis=1).astype(outputs.dtype), jnp.sum(y, axis=1).astype(outputs.dtype)

    return Metric(f"recall@{k}", of, bounds=SHARE)


def _squared(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _one_each(squared_error(outputs, y))


mse = Metric("mse", _squared, larger_is_better=False, bounds=NONNEGATIVE)


def _area(y: np.ndarray, outputs: np.ndarray) -> float:
    """The share of pairs of a 1 and a 0 in which the 1 has the higher score, ties counting half.

    By the Mann-Whitney statistic, that is the sum of the ranks of the ones less its least possible value. Differences
    of outputs order examples as probabilities do, but do not round to ties at 1.
    """
    scores = outputs[:, 1] - outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 2 else outputs
    if y.ndim != 1 or scores.shape != y.shape or not np.isin(y, (0, 1)).all():
        raise ValueError(
            f"auc needs two classes, 0 and 1, and one logit or two scores for each example, not outputs of shape "
            f"{outputs.shape} for labels from {y.min()} to {y.max()} of shape {y.shape}"
        )
    ones = int(np.sum(y == 1))
    if ones in (0, len(y)):
        return math.nan
    return float((np.sum(scipy.stats.rankdata(scores)[y == 1]) - ones * (ones + 1) / 2) / (ones * (len(y) - ones)))


auc = Metric.of_all(_area, "auc", of="outputs", bounds=SHARE)  # area under the ROC curve; nan if a class is missing


@functools.cache
def loss(criterion: Criterion | Coupled) -> Metric:
    """The mean of a loss, or the loss of all examples together if it couples them.

    Only the losses of this module are known to be non-negative.
    """
    if isinstance(criterion, Coupled):
        together = jax.jit(criterion.of)

        def of_all(y: np.ndarray, outputs: np.ndarray) -> float:
            return float(together(jnp.asarray(outputs), jnp.asarray(y), jnp.ones(len(y), bool)))

        return Metric("loss", None, larger_is_better=False, function=of_all)
    known = criterion in (cross_entropy, binary_cross_entropy, squared_error)

    def of(outputs: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _one_each(criterion(outputs, y))

    return Metric("loss", of, larger_is_better=False, bounds=NONNEGATIVE if known else UNBOUNDED)
