"""Figures of a population that an experiment can evaluate by name, and the models that its clients have."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.metrics import population
from fedloom.metrics.scores import NONNEGATIVE, Metric
from fedloom.problem import Vector
from fedloom.regularizers import Regularizer


class ClientModels:
    """The clients' own models x_k, from the memories of those that have taken part; they are read one by one.

    A client that never took part has what its memory begins with, the initial model.
    """

    def __init__(self, algorithm: Algorithm, initial: Vector, weights: np.ndarray, memories: Mapping[int, Any]):
        self.algorithm, self.weights, self.memories = algorithm, np.asarray(weights, float), memories
        self.first = np.asarray(algorithm.own_model(algorithm.init_client(initial)), float)

    def __iter__(self) -> Iterator[tuple[float, np.ndarray]]:
        """Weights and models of the clients that have taken part."""
        for k in self.memories:
            yield float(self.weights[k]), np.asarray(self.algorithm.own_model(self.memories[k]), float)

    @functools.cached_property
    def mean(self) -> np.ndarray:
        """x = sum_k p_k x_k."""
        return self.first + sum((p * (x - self.first) for p, x in self), start=np.zeros_like(self.first))

    @property
    def plain_mean(self) -> np.ndarray:
        """The mean in which every client counts alike."""
        of_each = sum((x - self.first for _, x in self), start=np.zeros_like(self.first))
        return self.first + of_each / len(self.weights)

    def consensus_error(self) -> float:
        """sqrt(sum_k p_k |x_k - x|^2), as `metrics.consensus_error` of all models at once."""
        absent = float(np.sum(np.delete(self.weights, list(self.memories))))
        others = sum(p * np.sum((x - self.mean) ** 2) for p, x in self)
        return float(np.sqrt(absent * np.sum((self.first - self.mean) ** 2) + others))


class Moment(NamedTuple):
    """A model in the course of a run."""

    federation: Federation
    w: Vector
    t: int  # rounds so far: the time of step size schedules
    algorithm: Algorithm | None
    solver: Solver | None
    models: ClientModels | None


class Figure(NamedTuple):
    """A figure of the population at a model."""

    words: str
    of: Callable[[Moment], float]
    of_method: bool = False  # it depends on the method or its solver, so that it needs an experiment
    of_clients: bool = False  # it needs the clients' own models
    least: float = 0.0

    def metric(self, name: str) -> Metric:
        """How it is judged."""
        return Metric(name, None, larger_is_better=False, bounds=(self.least, NONNEGATIVE[1]))


def _gradient_norm(at: Moment) -> float:
    return population.gradient_norm(at.federation, at.w)


def _gradient_mapping_norm(at: Moment) -> float:
    g: Any = getattr(at.algorithm, "g", None)
    if not isinstance(g, Regularizer):
        return _gradient_norm(at)
    eta: Any = getattr(at.algorithm, "eta", 1.0)
    return population.gradient_mapping_norm(at.federation, at.w, g, float(eta))


def _drift(at: Moment) -> float:
    assert at.solver is not None
    return population.drift(at.federation, at.solver, at.w, t=at.t)


def _consensus_error(at: Moment) -> float:
    assert at.models is not None
    return at.models.consensus_error()


FIGURES = {
    "gradient norm": Figure("the norm of the gradient of f at w", _gradient_norm),
    "gradient mapping norm": Figure(
        "the same for f + g with the method's own regularizer g and step size eta, which FedDR has; of other methods "
        "the gradient norm",
        _gradient_mapping_norm,
        of_method=True,
    ),
    "dissimilarity": Figure(
        "B of FedProx: the root mean square norm of the clients' gradients at w, over the norm of their mean",
        lambda at: population.dissimilarity(at.federation, at.w),
        least=1.0,
    ),
    "drift": Figure(
        "how far plain local training from w, with the experiment's solver in the next round, takes the clients: a "
        "root mean square",
        _drift,
        of_method=True,
    ),
    "consensus error": Figure(
        "how far the clients' own models are from their mean: a root mean square; of methods that keep none, the last "
        "models",
        _consensus_error,
        of_method=True,
        of_clients=True,
    ),
}
