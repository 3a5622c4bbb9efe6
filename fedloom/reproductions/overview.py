"""What can be reproduced: which data it needs and whether they are here, what is recorded, about how long it takes."""

import math
from typing import NamedTuple

from fedloom.cohorts import CohortRule, bernoulli, everyone
from fedloom.data.catalogue import CATALOGUE
from fedloom.experiments import Experiment
from fedloom.experiments.side_by_side import alike
from fedloom.places import data_directory
from fedloom.reproductions.recording import recorded
from fedloom.reproductions.reproduction import Reproduction
from fedloom.tasks.evaluated import MEMBER, mean_of_models


class Local(NamedTuple):
    """What local training costs: about, as recorded runs took, one on each core beside other work."""

    step: float  # seconds
    epoch: float  # steps of a client in a pass over its examples
    clients: int


# By the beginning of the task's name, the longest that fits. Steps of tasks that have records are chosen so that the
# estimates are near what these took; the others follow from the sizes of models and data.
LOCAL = {
    "synthetic": Local(4e-6, 36, 30),
    "feddr-synthetic": Local(1.5e-5, 36, 30),
    "feddr-femnist": Local(2e-4, 18, 200),
    "feddyn-synthetic": Local(6e-6, 20, 20),
    "digits": Local(1e-5, 2, 100),
    "asyncfeddr": Local(7e-4, 94, 20),
    "mnist-2nn": Local(5e-4, 12, 100),
    "mnist-2nn-digits": Local(6e-4, 9, 100),
    "mnist-lr-digits": Local(4e-5, 9, 100),
    "mnist-cnn-digits": Local(1.4e-2, 9, 100),
    "mnist-writers": Local(2e-4, 11, 539),
    "emnist-l": Local(3e-4, 10, 100),
    "cifar10-cnn": Local(7.5e-2, 10, 100),
    "cifar10-cnn-iid-1000": Local(7.5e-2, 1, 1000),
    "cifar10-cnn-dir0.3-1000": Local(7.5e-2, 1, 1000),
    "cifar100-cnn": Local(7.5e-2, 10, 100),
    "cifar100-cnn-iid-500": Local(7.5e-2, 2, 500),
    "cifar100-cnn-dir0.3-500": Local(7.5e-2, 2, 500),
    "cifar10-resnet18gn": Local(1.0, 10, 100),
    "cifar10-resnet": Local(0.8, 8, 100),
    "cifar10-lda": Local(0.7, 5, 500),
    "cifar100-pam": Local(0.7, 5, 500),
    "cifar100-tff": Local(0.7, 5, 500),
    "shakespeare-leaf": Local(0.16, 20, 100),
    "shakespeare-fedprox": Local(0.03, 360, 143),
    "shakespeare": Local(2.5e-2, 12, 1000),
    "emnist-cr": Local(1e-2, 10, 3400),
    "emnist-ae": Local(8e-3, 10, 3400),
    "femnist-fedprox": Local(1e-4, 18, 200),
    "sent140": Local(0.04, 4, 772),
    "stackoverflow-lr": Local(0.1, 4, 10_000),
    "stackoverflow-nwp": Local(0.2, 20, 10_000),
}


START = 3.5  # seconds to compile a program, which runs that differ only in numbers share
MODEL = 1e-8  # seconds for each number in the clients' models, to average them: much of a round of FedDyn's rows of 1%
FORWARD = 1 / 3  # of what a step takes for an example: the gradient takes the other two thirds
TEST = 1 / 6  # test examples for each training example: 10,000 for 60,000 in MNIST, and nearly so elsewhere


def seconds_of(r: Reproduction) -> float:
    """About how long all runs of a seed take, one after the other."""
    runs = r.runs(r.seeds[:1])
    return START * len(alike([e for _, e in runs])) + sum(rounds_of(r, name) * seconds_of_round(e) for name, e in runs)


def rounds_of(r: Reproduction, run: str) -> float:
    """How many rounds a run has: if it ends at its targets, so many as the paper needed for the last of them.

    A client sends a model or more in each round, so there are at most as many rounds as models. What follows from
    rounds, MiB and seconds, has the same targets; and in a search only the best point needs so few.
    """
    needed: dict[tuple[str, float | None], float] = {}
    for line in r.lines:
        if run in line.runs:
            target = line.measure.metric, line.measure.target
            needed.setdefault(target, math.inf)
            known = line.run == run and line.combined is None and line.measure.counted in ("rounds", "models")
            if known and line.reported is not None:
                needed[target] = line.reported
    return min(r.experiments[run].rounds, max(needed.values(), default=math.inf))


def seconds_of_round(e: Experiment) -> float:
    """About how long a round takes, with its share of the evaluations."""
    local = local_of(e)
    steps = getattr(e.solver, "steps", None) or getattr(e.solver, "epochs", 1) * local.epoch
    clients = 1.0 if e.engine == "events" else cohort_size(e.cohort, local.clients)
    return clients * steps * local.step + seconds_of_evaluation(e) / e.evaluate_every


def seconds_of_evaluation(e: Experiment) -> float:
    local, model = local_of(e), e.base_task().model
    evaluated = {"".join(metric.partition("test")[:2]) for metric in e.evaluate or ()}  # once for all metrics of a part
    evaluated |= {"own train", "own test"} if e.own_models else set()
    passes = 0.0  # over all training examples
    for part in evaluated:
        if not part.startswith(MEMBER):  # a client's examples are few
            passes += 1 if "gradient" in part else FORWARD * (TEST if part.endswith("test") else 1)
    seconds = passes * local.clients * local.epoch * local.step
    if model is not None and any(map(mean_of_models, evaluated)):
        seconds += MODEL * local.clients * model.parameters
    return seconds


def local_of(e: Experiment) -> Local:
    name = e.base_task().name
    return LOCAL[max((start for start in LOCAL if name.startswith(start)), key=len)]


def cohort_size(rule: CohortRule, clients: int) -> float:
    """How many clients take part in a round, on average."""
    if hasattr(rule, "of"):
        return cohort_size(rule.of, clients)
    if isinstance(rule, bernoulli):
        return rule.q * clients / (1 - (1 - rule.q) ** clients)  # at least one takes part
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
    time: str  # of all runs together, one core for each


def entry(r: Reproduction) -> Entry:
    places = {need: place_of(need) for need in r.needs}
    data = ", ".join(n if place == "here" else f"{n} ({place})" for n, place in places.items()) or "-"
    words = "-"
    try:
        kept = recorded(r)
    except ValueError:  # the list is about the others, too
        kept, words = None, "damaged"
    if kept is None:
        seconds = len(r.seeds) * seconds_of(r)
        return Entry(r.name, data, r.published, words, f"about {_time(seconds)}")
    seeds = f"{len(kept.seeds)} seed{'s' * (len(kept.seeds) > 1)}"
    shorter = f", {kept.rounds} of {r.rounds} rounds" if kept.rounds < r.rounds else ""
    there, all_ = sum(map(len, kept.values.values())), len(r.lines) * len(kept.seeds)
    part = f", {there} of {all_} figures" if there < all_ else ""
    return Entry(r.name, data, r.published, seeds + shorter + part, _time(kept.seconds))


def _time(seconds: float) -> str:
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.0f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"
