"""The tasks of FedProx (Li et al., MLSys 2020, arXiv:1812.06127) and FedDANE (Li et al., 2020, arXiv:2001.01920).

10 clients in a round, 20 local epochs in batches of 10. With stragglers a share of each cohort finishes a random part
of its epochs only: FedAvg drops these clients, FedProx counts what they did.

Departures: the papers' minibatches come in a fixed order, ours in a random one. FedDANE's best mu is not published; its
setting has FedProx's, and `tuned_over` has the grid. LEAF's old random split of Shakespeare leaks test windows into
training; ours is chronological. FEMNIST's clients share no image, which they do in the authors' file. The synthetic
sets are drawn anew for each seed, sizes included; where a name ends in "-authors", the clients have the sizes of the
authors' files, whose largest client is much larger than usual (61% of Synthetic(1, 1)).
"""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedloom.algorithms import FedAvg, FedDANE, FedProx
from fedloom.cohorts import stragglers, uniform
from fedloom.data import inputs, splits
from fedloom.data.dataset import Dataset
from fedloom.data.federated_data import FederatedData, held_out, natural
from fedloom.data.sources import emnist, mnist, sent140, shakespeare
from fedloom.data.synthetic_data import synthetic
from fedloom.metrics.evaluation import Rows
from fedloom.metrics.scores import binary_accuracy, binary_cross_entropy
from fedloom.models import MODELS
from fedloom.places import data_directory
from fedloom.problem import Key
from fedloom.solvers import SGD
from fedloom.tasks.task import Setting, Task

PAPER = "FedProx, arXiv:1812.06127; FedDANE, arXiv:2001.01920"

TUNED_OVER = {"fedprox.mu": (0.001, 0.01, 0.1, 0.5, 1.0), "feddane.mu": (0.0, 0.001, 0.01, 0.1, 1.0)}


def _settings(lr: float, rounds: int, mu: float) -> dict[str, dict[str, Setting]]:
    solver = SGD(lr, batch_size=10, epochs=20)
    tables = {}
    for share in (0.0, 0.5, 0.9):
        kept = stragglers(of=uniform(10), share=share) if share else uniform(10)
        dropped = stragglers(of=uniform(10), share=share, drop=True) if share else uniform(10)
        tables[f"{share:.0%} stragglers"] = {
            "fedavg": Setting(FedAvg(), solver, dropped, rounds),
            "fedprox": Setting(FedProx(mu), solver, kept, rounds),
        }
    tables["0% stragglers"]["feddane"] = Setting(FedDANE(mu), solver, uniform(10), rounds)
    return tables


def _task(
    name: str, data: Callable[[int], FederatedData], model: str, lr: float, rounds: int, mu: float, **fields: Any
) -> Task:
    settings = _settings(lr, rounds, mu)
    return Task(name, data, MODELS[model](), settings=settings, tuned_over=TUNED_OVER, paper=PAPER, **fields)


# alpha and beta of the synthetic data; None: one rule for all, inputs of mean 0.
LEVELS: dict[str, tuple[float | None, float | None]] = {
    "iid": (None, None),
    "0-0": (0.0, 0.0),
    "0.5-0.5": (0.5, 0.5),
    "1-1": (1.0, 1.0),
}


# Of the clients of the synthetic data: the suffix of the tasks' names, `sizes` of `synthetic`, and in words.
SIZES = (("", None, "of very different sizes"), ("-authors", "authors", "with the sizes of the authors' clients"))


def synthetic_data(kind: str, sizes: str | None = None) -> Callable[[int], FederatedData]:
    return lambda seed: synthetic(*LEVELS[kind], sizes=sizes, seed=seed)


def synthetic_words(kind: str) -> str:
    return "Synthetic-IID" if kind == "iid" else f"Synthetic({kind.replace('-', ', ')})"


def _mnist(seed: int) -> FederatedData:
    """All 70,000 digits, each pixel minus its mean over its standard deviation + 0.001; 90% of each user's to train."""
    data = mnist.mnist()
    x = np.concatenate([data.x, data.test_x]).reshape(70_000, 784).astype(np.float32)
    x = (x - x.mean(0)) / (x.std(0) + 0.001)
    y = np.concatenate([data.y, np.asarray(data.test_y)])
    return held_out(Dataset(x, y, classes=10), splits.fedprox_mnist(y, 1000, seed), 0.9, seed)


def lowercase(seed: int) -> FederatedData:
    """Up to 4,000 images each of the lowercase letters a to j, over 200 users with 3 letters each."""
    data = emnist.emnist("byclass")
    x = np.concatenate([data.x, data.test_x])
    y = np.concatenate([data.y, np.asarray(data.test_y)]) - 36  # 10 digits and 26 capitals come first
    rows = np.concatenate([np.flatnonzero(y == letter)[:4000] for letter in range(10)])
    return held_out(Dataset(x[rows], y[rows], classes=10), splits.fedprox_femnist(y[rows], 200, seed), 0.9, seed)


@functools.cache
def _sent140(directory: pathlib.Path) -> tuple[Dataset, sent140.WordVectors]:
    return sent140.sent140()


def _words(rows: Rows, key: Key | None) -> tuple[jax.Array, jax.Array]:
    """Words as their vectors, which are known only when the data are."""
    return inputs.embedded(_sent140(data_directory())[1])(rows, key)


_FEMNIST = ("emnist",)

TASKS = (
    *(
        _task(
            f"synthetic-{kind}{suffix}",
            synthetic_data(kind, sizes),
            "synthetic-logistic",
            0.01,
            200,
            1.0,
            about=f"{synthetic_words(kind)}, 30 clients {words}: logistic regression.",
        )
        for suffix, sizes, words in SIZES
        for kind in LEVELS
    ),
    _task(
        "mnist-fedprox",
        _mnist,
        "mnist-logistic",
        0.03,
        100,
        1.0,
        about="MNIST over 1,000 clients with two digits each, sizes by a power law: logistic regression.",
        needs=("mnist",),
    ),
    _task(
        "femnist-fedprox",
        lowercase,
        "femnist-logistic",
        0.003,
        200,
        1.0,
        prepare=inputs.unit,
        about="The letters a to j of EMNIST over 200 clients with three letters each: logistic regression.",
        needs=_FEMNIST,
    ),
    _task(
        "shakespeare-fedprox",
        lambda seed: natural(shakespeare.shakespeare_leaf(clients=143, seed=seed)),
        "fedprox-shakespeare",
        0.8,
        40,
        0.001,
        prepare=inputs.tokens,
        about="Shakespeare, all windows of 80 characters of 143 roles: the next character.",
        needs=("shakespeare_roles",),
    ),
    _task(
        "sent140",
        lambda seed: natural(_sent140(data_directory())[0]),
        "fedprox-sent140",
        0.3,
        800,
        0.01,
        criterion=binary_cross_entropy,
        metrics=(binary_accuracy,),
        prepare=_words,
        about="Tweets by user: happy or not, from 25 words as GloVe vectors.",
        needs=("sent140", "glove"),
    ),
)
