"""Grids that papers searched, by name. Their values are those of the papers' tasks."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.experiments.definition import Experiment
from fedloom.hyperparameters import nearest
from fedloom.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class Preset:
    """A published grid: some of the fields that a task was tuned over."""

    about: str
    task: str | None  # None: the experiment's own
    fields: tuple[str, ...] = ()


_STEP_SIZES = ("solver.lr", "lr")

PRESETS = {
    "fedopt": Preset("FedOpt's step sizes of client and server, in half decades", "emnist-cr", _STEP_SIZES),
    "fedopt-tau": Preset("FedOpt's step sizes and the adaptivity tau", "emnist-cr", (*_STEP_SIZES, "tau")),
    "fedopt-autoencoder": Preset("FedOpt's step sizes for the autoencoder", "emnist-ae", _STEP_SIZES),
    "fedopt-tags": Preset("FedOpt's step sizes for the tag regression", "stackoverflow-lr", _STEP_SIZES),
    "paper": Preset("the grid that the task's own paper searched for the algorithm", None),
}


def preset(name: str, base: Experiment) -> dict[str, Sequence[Any]]:
    """The fields and values of a preset, as `sweep` takes them."""
    if name not in PRESETS:
        raise ValueError(f"There is no preset {name!r}.{nearest(name, PRESETS)}")
    chosen = PRESETS[name]
    if chosen.task is not None:
        grids = TASKS[chosen.task].tuned_over
        return {_place(field, base): grids[field] for field in chosen.fields}
    found = _own(base)
    if not found:
        task, algorithm = base.base_task().name, base.to_plain()["algorithm"]["name"]
        known = ", ".join(n for n, p in PRESETS.items() if p.task is not None)
        raise ValueError(
            f"preset: no grid for {algorithm} was published for task {task!r}; the other presets are {known}."
        )
    return found


def _place(field: str, base: Experiment) -> str:
    """The field of an experiment; for a step size that follows a schedule, its first value."""
    field = field if field.startswith("solver.") else f"algorithm.{field}"
    return field + ".value" if isinstance(_now(base, field), Mapping) else field


def _now(base: Experiment, field: str) -> Any:
    """The value of a field as plain data; None if there is no such field, or if it is None."""
    value: Any = base.to_plain()
    for key in field.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if isinstance(value, str) and value == "none" else value


def _own(base: Experiment) -> dict[str, Sequence[Any]]:
    """The grid that the task was tuned over, as far as it concerns the experiment's algorithm and solver.

    "fedprox.mu" belongs to FedProx. A field without the name of an algorithm belongs to all that the paper ran.
    """
    task, name = base.base_task(), base.to_plain()["algorithm"]["name"]
    published = any(name in settings for settings in task.settings.values())
    found: dict[str, Sequence[Any]] = {}
    for key, values in task.tuned_over.items():
        if key == "solver.lr.decay" and isinstance(lr := _now(base, "solver.lr"), float):
            found["solver.lr"] = tuple({"name": "exponential", "value": lr, "decay": decay} for decay in values)
            continue
        whose, _, field = key.rpartition(".")
        if whose == name or (not whose and published):
            place = _place(field, base)
        elif key.startswith("solver."):
            place = _place(key, base)
        else:
            continue
        now = _now(base, place)
        if now is None or (key == "solver.epochs" and _now(base, "solver.steps") is not None):
            continue  # a solver counts epochs or steps
        found[place] = tuple(int(v) for v in values) if isinstance(now, int) and _whole(values) else tuple(values)
    return found


def _whole(values: Sequence[float]) -> bool:
    return all(v == int(v) for v in values)
