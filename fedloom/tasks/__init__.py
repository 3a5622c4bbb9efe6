"""Named tasks: the data, splits, models, metrics and settings of the papers, and a few of our own."""

from fedloom.hyperparameters import nearest
from fedloom.tasks import feddr, feddyn, fedopt, fedprox, linear_speedup, more
from fedloom.tasks.evaluated import Evaluation as Evaluation
from fedloom.tasks.origin import UNTUNED as UNTUNED
from fedloom.tasks.origin import Origin as Origin
from fedloom.tasks.origin import Paper as Paper
from fedloom.tasks.origin import Tuned as Tuned
from fedloom.tasks.origin import Untuned as Untuned
from fedloom.tasks.reported import Measure as Measure
from fedloom.tasks.reported import Reported as Reported
from fedloom.tasks.task import Loaded as Loaded
from fedloom.tasks.task import Setting as Setting
from fedloom.tasks.task import Task as Task

TASKS: dict[str, Task] = {
    task.name: task for part in (more, fedprox, feddr, feddyn, linear_speedup, fedopt) for task in part.TASKS
}


def load(name: str, seed: int = 0) -> Loaded:
    """The registered task `name` with its data, for example load("synthetic-1-1")."""
    if name not in TASKS:  # or if it is not a string
        raise ValueError(f"There is no task {name!r}.{nearest(str(name), TASKS)}")
    return TASKS[name].load(seed)
