"""What can be reproduced: which data it needs and whether they are here, about how long it takes, what is recorded."""

from typing import NamedTuple

from fedloom.cohorts import CohortRule, bernoulli, everyone
from fedloom.data.catalogue import CATALOGUE
from fedloom.experiments import Experiment
from fedloom.places import data_directory
from fedloom.reproductions.recording import recorded
from fedloom.reproductions.reproduction import Reproduction


class Local(NamedTuple):
    """What local training costs: about, on two cores of a processor of 2024."""

    step: float  # seconds
    epoch: float  # steps of a client in a pass over its examples
    clients: int


# By the beginning of the task's name, the longest that fits. Those of mnist-2nn, mnist-lr, synthetic, feddr-synthetic,
# feddyn-synthetic, shakespeare-roles and cifar10-cnn were timed, the others follow from the sizes of models and data.
LOCAL = {
    "synthetic": Local(1e-5, 36, 30),
    "feddr-synthetic": Local(2e-5, 36, 30),
    "feddr-femnist": Local(1e-4, 18, 200),
    "feddyn-synthetic": Local(3e-6, 20, 20),
    "digits": Local(1e-5, 2, 100),
    "asyncfeddr": Local(2e-4, 94, 20),
    "mnist-2nn": Local(2.6e-4, 12, 100),
    "mnist-2nn-digits": Local(3.3e-4, 9, 100),
    "mnist-lr-digits": Local(3e-5, 9, 100),
    "mnist-cnn-digits": Local(1.2e-2, 9, 100),
    "mnist-writers": Local(1e-4, 11, 539),
    "emnist-l": Local(1.5e-4, 10, 100),
    "cifar10-cnn": Local(3.4e-2, 10, 100),
    "cifar10-cnn-iid-1000": Local(3.4e-2, 1, 1000),
    "cifar10-cnn-dir0.3-1000": Local(3.4e-2, 1, 1000),
    "cifar100-cnn": Local(3.4e-2, 10, 100),
    "cifar100-cnn-iid-500": Local(3.4e-2, 2, 500),
    "cifar100-cnn-dir0.3-500": Local(3.4e-2, 2, 500),
    "cifar10-resnet18gn": Local(0.5, 10, 100),
    "cifar10-resnet": Local(0.4, 8, 100),
    "cifar10-lda": Local(0.36, 5, 500),
    "cifar100-pam": Local(0.36, 5, 500),
    "cifar100-tff": Local(0.36, 5, 500),
    "shakespeare-leaf": Local(0.08, 20, 100),
    "shakespeare-fedprox": Local(0.01, 360, 143),
    "shakespeare": Local(8e-3, 12, 1000),
    "emnist-cr": Local(5e-3, 10, 3400),
    "emnist-ae": Local(4e-3, 10, 3400),
    "femnist-fedprox": Local(5e-5, 18, 200),
    "sent140": Local(0.02, 4, 772),
    "stackoverflow-lr": Local(0.05, 4, 10_000),
    "stackoverflow-nwp": Local(0.1, 20, 10_000),
}


def seconds_of(e: Experiment) -> float:
    """About how long a run takes on two cores, without evaluations."""
    name = e.task if isinstance(e.task, str) else e.task.name
    local = LOCAL[max((start for start in LOCAL if name.startswith(start)), key=len)]
    steps = getattr(e.solver, "steps", None) or getattr(e.solver, "epochs", 1) * local.epoch
    clients = 1.0 if e.engine == "events" else cohort_size(e.cohort, local.clients)
    return e.rounds * clients * steps * local.step


def cohort_size(rule: CohortRule, clients: int) -> float:
    """How many clients take part in a round, on average."""
    if hasattr(rule, "of"):
        return cohort_size(rule.of, clients)
    if isinstance(rule, bernoulli):
        return rule.q * clients
    return clients if isinstance(rule, everyone) else float(getattr(rule, "m", clients))


# Where data may be besides the files of the catalogue: other forms, and what cannot be downloaded.
ELSEWHERE = {
    "shakespeare_roles": ("shakespeare/shakespeare_roles_moby.json.gz", "shakespeare/shakespeare_roles_moby.json"),
    "mnist_writers": ("mnist/mnist-train-writers-idx1-short.gz",),
    "cifar10": ("cifar10/cifar-10-batches-py", "cifar-10-batches-py"),
    "cifar100": ("cifar100/cifar-100-python", "cifar-100-python"),
    "glove": ("sent140/glove.6B.300d.txt", "glove.6B.300d.txt", "sent140/glove.6B.300d.txt.gz"),
}


def place_of(need: str) -> str:
    """Whether data are here, or how they can be had."""
    files = CATALOGUE.get(need, ())
    whole = files and all(_exists(f.path) or (f.unpacked() and all(map(_exists, f.unpacked()))) for f in files)
    if whole or any(map(_exists, ELSEWHERE.get(need, () if files else (need,)))):
        return "here"
    return f"fedloom download {need}" if files else "by hand"


def _exists(name: str) -> bool:
    return (data_directory() / name).exists()


class Entry(NamedTuple):
    """A line of the list."""

    name: str
    data: str
    published: int  # numbers of the paper that ours stand beside
    recorded: str
    time: str


def entry(r: Reproduction) -> Entry:
    places = {need: place_of(need) for need in r.needs}
    data = ", ".join(n if place == "here" else f"{n} ({place})" for n, place in places.items()) or "-"
    words = "-"
    try:
        kept = recorded(r)
    except ValueError:  # the list is about the others, too
        kept, words = None, "damaged"
    if kept is None:
        seconds = len(r.seeds) * sum(map(seconds_of, r.experiments.values()))
        return Entry(r.name, data, r.published, words, f"about {_time(seconds)} on 2 cores")
    seeds = f"{len(kept.seeds)} seed{'s' * (len(kept.seeds) > 1)}"
    shorter = f", {kept.rounds} of {r.rounds} rounds" if kept.rounds < r.rounds else ""
    there, all_ = sum(map(len, kept.values.values())), len(r.lines) * len(kept.seeds)
    part = f", {there} of {all_} figures" if there < all_ else ""
    return Entry(r.name, data, r.published, seeds + shorter + part, _time(kept.seconds))


def _time(seconds: float) -> str:
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.0f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"
