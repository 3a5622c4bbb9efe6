"""Metrics of a model over a federation: clients send numerators and denominators, the server divides their sums."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from fedloom.client import Federation
from fedloom.federation.objectives import loaded_alone
from fedloom.federation.own_data import OwnData
from fedloom.hyperparameters import nearest
from fedloom.loss import Coupled
from fedloom.metrics.scored import Ratio
from fedloom.problem import Scalar, Vector
from fedloom.tasks import Task
from fedloom.tasks.evaluated import PARTS

Sums = dict[str, list[float]]  # {metric: [numerator, denominator]}


def check_metrics(task: Task) -> None:
    """Raise a ValueError for a metric that is no ratio of sums over examples."""
    if others := [metric.name for metric in task.metrics if metric.function is not None]:
        raise ValueError(
            f"metrics: {others[0]!r} is a function of all examples together, but in a federation only sums over "
            "examples leave a client; leave it out."
        )


def check_parts(task: Task, parts: Sequence[str]) -> None:
    """Raise a ValueError for what cannot be evaluated over a federation."""
    known = [*PARTS, *(f"{part} {name}" for part in PARTS for name in summed(task))]
    if strange := [entry for entry in parts if entry not in known]:
        raise ValueError(f"evaluate: a federation cannot evaluate {strange[0]!r}.{nearest(strange[0], known)}")


def summed(task: Task) -> list[str]:
    """The metrics that are ratios of sums; a loss that couples examples has no sum, except on a client's own."""
    return ["loss"] * (not isinstance(task.criterion, Coupled)) + [m.name for m in task.metrics if m.function is None]


def sums_of_model(task: Task, own: OwnData, w: Vector, parts: Sequence[str] = ("train", "test")) -> Sums:
    """What a client sends of a model: "train loss" for "train", and every metric for "validation" and "test".

    An entry may also be a single metric, such as "test accuracy". Where the client has no examples there is nothing.
    """
    found: Sums = {}
    if {"train", "train loss"} & set(parts):
        found["train loss"] = [_loss(own, task, w) * own.size, float(own.size)]
    if own.data is None:
        return found
    there = {"train": own.data.split, "validation": own.data.validation_split, "test": own.data.test}
    for part in PARTS:
        entries = [entry.removeprefix(part).strip() for entry in parts if f"{entry} ".startswith(f"{part} ")]
        names = [n for n in summed(task) if n in entries or ("" in entries and part != "train")]
        names = [n for n in names if f"{part} {n}" not in found]
        if there[part] is None or not names:
            continue
        for name, scored in loaded_alone(task, own).examplewise(w, part, names).items():
            assert isinstance(scored, Ratio)
            found[f"{part} {name}"] = [float(np.sum(x, dtype=float)) for x in scored]
    return found


def _loss(own: OwnData, task: Task, w: Vector) -> float:
    if own.federation is not None:
        return float(_loss_of(own.federation, own.place, w))
    return float(loaded_alone(task, own).federation.loss(w))


@jax.jit
def _loss_of(federation: Federation, k: Scalar, w: Vector) -> Scalar:
    return federation.objective(k).loss(w)


def metrics_of(sums: Mapping[int, Mapping[str, Sequence[float]]], p: Sequence[float] | np.ndarray) -> dict[str, float]:
    """The metrics of a model, from the sums of those clients that answered, by number; p are the population weights.

    Of training examples they are averaged by p_k over clients, as f(w) is; of others they are those of all examples.
    """
    names = dict.fromkeys(name for own in sums.values() for name in own)
    return {name: _metric(name, {k: own[name] for k, own in sums.items() if name in own}, p) for name in names}


def _metric(name: str, own: Mapping[int, Sequence[float]], p: Sequence[float] | np.ndarray) -> float:
    known = {k: pair for k, pair in sorted(own.items()) if pair[1] > 0}
    if name.startswith("train "):
        known = {k: (p[k] * a / b, p[k]) for k, (a, b) in known.items()}
    above, below = (sum(pair[i] for pair in known.values()) for i in (0, 1))
    return float(above / below) if below else float("nan")
