"""Where the hyperparameters of a run come from: its task's settings, changed or not, or nobody's tuning."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from fedloom.algorithms import ALGORITHMS
from fedloom.experiments.definition import Experiment
from fedloom.experiments.plain import name_of
from fedloom.experiments.settings import setting_of
from fedloom.experiments.table_files import is_table
from fedloom.tasks import Origin, Setting, Task

if TYPE_CHECKING:
    from fedloom.experiments.result import Result
    from fedloom.experiments.study import Study

FROM_SETTINGS = ("algorithm", "solver", "cohort", "rounds", "engine", "buffer")
FROM_TASK = ("split", "model", "loss", "weights")  # settings are for the task's own


def origin(experiment: Experiment) -> dict[str, str]:
    """The kind of the origin ("paper", "tuned", "untuned", or "changed" by the user), and a short sentence."""
    nearest, differences = _nearest(experiment)
    if not differences:
        return {"origin": nearest.kind, "words": nearest.words}
    named = ", ".join(differences[:3]) + (", ..." if len(differences) > 3 else "")
    return {"origin": "changed", "words": f"{nearest.short}, with {named} changed"}


def origin_of(study: "Study", result: "Result") -> dict[str, str] | None:
    """`origin` of a run, as it was recorded; in the comparison that ends a tuning, what the tuning says."""
    tuned = study.about.get("tuning", {}).get(result.name)
    return {key: tuned[key] for key in ("origin", "words")} if tuned else result.about.get("setting")


def _nearest(experiment: Experiment) -> tuple[Origin, list[str]]:
    """The origin of the setting from which the experiment differs least, and the fields in which it does."""
    task = experiment.base_task()
    found = [(task.origin(s), _differences(experiment, s)) for s in _settings(task, experiment)]
    return min(found, key=lambda pair: len(pair[1]))


def _settings(task: Task, experiment: Experiment) -> list[Setting]:
    """The task's settings for the algorithm, or what it gets if there are none."""
    name = name_of(experiment.algorithm, ALGORITHMS) or ""
    own = [table[name] for table in task.settings.values() if name in table]
    if own:
        return own
    usual = setting_of(task, type(experiment.algorithm), engine=experiment.engine)
    return [usual if name else dataclasses.replace(usual, algorithm=experiment.algorithm)]


def _differences(experiment: Experiment, setting: Setting) -> list[str]:
    if experiment.engine in ("ray", "flower"):  # they compute the same rounds
        experiment = dataclasses.replace(experiment, engine="simulate", shards=None)
    fields = [
        field for part in FROM_SETTINGS for field in _differ(getattr(experiment, part), getattr(setting, part), part)
    ]
    own = FROM_TASK if not is_table(experiment.task) else ("split", "weights")  # a table has no model of its own
    return fields + [field for field in own if getattr(experiment, field) is not None]


def _differ(one: Any, other: Any, name: str) -> list[str]:
    """The fields in which two values differ, by dotted names."""
    if type(one) is type(other) and dataclasses.is_dataclass(one) and not isinstance(one, type):
        pairs = [(getattr(one, f.name), getattr(other, f.name), f"{name}.{f.name}") for f in dataclasses.fields(one)]
        return [field for pair in pairs for field in _differ(*pair)]
    return [] if one is other or np.array_equal(one, other) else [name]
