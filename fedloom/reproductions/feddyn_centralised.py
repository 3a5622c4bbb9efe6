"""FedDyn, section 3: its models trained on all data at one place. Acar et al., 2021, arXiv:2111.04263, appendix A.2."""

import dataclasses
from typing import Any, NamedTuple

from fedloom.experiments import experiment
from fedloom.reproductions.reproduction import Claim, Line, Reproduction
from fedloom.solvers import SGD
from fedloom.tasks import TASKS, Measure
from fedloom.tasks.feddyn import PAPER
from fedloom.tasks.feddyn import TASKS as FEDDYN_TASKS


class Place(NamedTuple):
    """The data of a task at one place, and how they are trained on."""

    task: str
    words: str
    model: str
    epochs: int
    lr: dict[str, Any]  # by epoch
    printed: float

    def schedule(self) -> str:
        """The step size in words."""
        start = f"{self.lr['value']:g}"
        if self.lr["name"] == "staircase":
            return f"{start}, halved every {self.lr['every']} epochs"
        return f"{start}, times {self.lr['decay']:g} after each"


BEST = "centralised, best"
HALVED = {"name": "staircase", "value": 0.1, "decay": 0.5, "every": 50}
SHRINKING = {"name": "exponential", "value": 0.1, "decay": 0.992}
PLACES = {
    "mnist": Place("mnist-2nn-iid", "MNIST", "2NN", 150, HALVED, 98.4),
    "emnist-l": Place("emnist-l-iid", "EMNIST-L", "2NN", 150, HALVED, 95.0),
    "cifar10": Place("cifar10-cnn-iid", "CIFAR-10", "CNN", 500, SHRINKING, 85.2),
    "cifar100": Place("cifar100-cnn-iid", "CIFAR-100", "CNN", 500, SHRINKING, 55.3),
    "shakespeare": Place("shakespeare-leaf", "Shakespeare by role", "LSTM", 150, HALVED | {"value": 1.0}, 51.2),
    "shakespeare-iid": Place("shakespeare-leaf-iid", "Shakespeare, mixed", "LSTM", 150, HALVED | {"value": 1.0}, 50.8),
}


def _data_of(task: str) -> str:
    """What the names of tasks with the same data have in common; Shakespeare's are others for either split."""
    return task if "shakespeare" in task else "-".join(task.split("-")[:2])


def highest_target(task: str) -> float:
    """Of all rows of the tables with these data, in percent."""
    return max(
        100 * (of.measure.target or 0.0)
        for other in FEDDYN_TASKS
        if _data_of(other.name) == _data_of(task)
        for of in other.reported
    )


def _centralised(name: str, place: Place) -> Reproduction:
    """Data at one place tell a target that the model misses from one that a method misses."""
    e = experiment(
        place.task,
        "fedavg",
        "100%",
        split={"name": "iid", "clients": 1},
        rounds=place.epochs,
        evaluate_every=1,
        **{"solver.epochs": 1, "solver.lr": place.lr},
    )
    assert isinstance(e.solver, SGD)
    measure, target, s = Measure("test accuracy", scale=100), highest_target(place.task), place.words
    best = dataclasses.replace(measure, best=True)  # a target is met by the best of all evaluations
    words = f"the highest target, {target:g}%, is within the model's reach"
    return Reproduction(
        f"feddyn-{name}-centralised",
        f"The {place.model} on all of {s} at one place: what the targets of the tables are measured against.",
        PAPER,
        {"centralised": e},
        (
            Line(s, "centralised", "centralised", measure, place.printed, "section 3"),
            Line(s, BEST, "centralised", best),
        ),
        (Claim(words, lambda f: f[s, BEST] >= target, ours=True),),
        f"As in appendix A.2: {place.epochs} epochs of SGD from a step size of {place.schedule()}; here in batches of "
        f"{e.solver.batch_size}, with the weight decay and the clipping of the devices.",
        TASKS[place.task].needs,
    )


REPRODUCTIONS = tuple(_centralised(name, place) for name, place in PLACES.items())
