"""The settings of task "digits", found by `fedloom tune`; docs/tuning.md has the commands and the scores."""

from collections.abc import Mapping
from typing import NamedTuple

import fedloom.algorithms as a
from fedloom.algorithm import Algorithm
from fedloom.cohorts import everyone, uniform
from fedloom.solvers import SGD
from fedloom.tasks.origin import Tuned
from fedloom.tasks.task import Setting

POINTS, SEEDS = 40, 3  # of every method

Grid = Mapping[str, tuple[float, ...]]  # the values of each field


class Row(NamedTuple):
    """What was found for one method."""

    algorithm: Algorithm
    lr: float  # the step size of the clients
    limits: tuple[str, ...] = ()  # fields at an end of their domain


# Synchronous rounds.
ROUNDS = {
    "fedavg": Row(a.FedAvg(lr=1.8), lr=0.32),
    "fedavgm": Row(a.FedAvgM(lr=0.89), lr=0.032),
    "fedprox": Row(a.FedProx(mu=0.00032, lr=1.8), lr=0.32),
    "scaffold": Row(a.Scaffold(lr=3.2), lr=0.056),
    "feddane": Row(a.FedDANE(mu=0.32), lr=0.18),
    "feddyn": Row(a.FedDyn(alpha=0.0001), lr=0.18),
    "feddr": Row(a.FedDR(eta=1.8, alpha=2.0), lr=0.18, limits=("algorithm.alpha",)),
    "fedpd": Row(a.FedPD(eta=3.2), lr=0.18),
    "fedadagrad": Row(a.FedAdagrad(lr=0.18, tau=0.001), lr=0.18),
    "fedadam": Row(a.FedAdam(lr=0.017, tau=0.001), lr=0.056),
    "fedyogi": Row(a.FedYogi(lr=0.017, tau=0.001), lr=0.056),
}

# Asynchronous updates, each of a single reply.
EVENTS = {
    "fedavg": Row(a.FedAvg(lr=0.18), lr=0.32),
    "fedavgm": Row(a.FedAvgM(lr=0.16), lr=0.01),
    "fedprox": Row(a.FedProx(mu=0.0032, lr=0.18), lr=0.32),
    "scaffold": Row(a.Scaffold(lr=0.32), lr=0.056),
    "feddr": Row(a.FedDR(eta=1.8, alpha=2.0), lr=0.18, limits=("algorithm.alpha",)),
    "fedadagrad": Row(a.FedAdagrad(lr=0.1, tau=5.6e-05), lr=0.1),
    "fedadam": Row(a.FedAdam(lr=0.017, tau=0.056), lr=0.18),
    "fedyogi": Row(a.FedYogi(lr=0.0095, tau=0.0056), lr=0.1),
}

# The values that were tried.
TRIED_IN_ROUNDS: dict[str, Grid] = {
    "fedavg": {
        "solver.lr": (0.032, 0.056, 0.1, 0.18, 0.32, 0.56, 1.0, 1.8, 3.2),
        "algorithm.lr": (0.1, 0.32, 0.56, 1.0, 1.8, 3.2, 5.6, 10.0, 18.0),
    },
    "fedavgm": {
        "solver.lr": (0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1, 0.18, 0.32),
        "algorithm.lr": (0.05, 0.16, 0.28, 0.5, 0.89, 1.6, 2.8, 5.0, 16.0),
    },
    "fedprox": {
        "solver.lr": (0.032, 0.1, 0.18, 0.32, 0.56, 1.0),
        "algorithm.mu": (0.0001, 0.00018, 0.00032, 0.00056, 0.001, 0.0018, 0.0032, 0.01),
        "algorithm.lr": (0.32, 0.56, 1.0, 1.8, 3.2, 5.6),
    },
    "scaffold": {
        "solver.lr": (0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1, 0.18, 0.32, 0.56),
        "algorithm.lr": (0.32, 0.56, 1.0, 1.8, 3.2, 5.6, 10.0, 18.0, 32.0),
    },
    "feddane": {
        "solver.lr": (0.032, 0.056, 0.1, 0.18, 0.32, 0.56),
        "algorithm.mu": (0.001, 0.0018, 0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1, 0.18, 0.32, 0.56, 1.0),
    },
    "feddyn": {
        "solver.lr": (0.032, 0.056, 0.1, 0.18, 0.32, 0.56, 1.0),
        "algorithm.alpha": (3.2e-05, 5.6e-05, 0.0001, 0.00018, 0.00032, 0.00056, 0.001, 0.0018, 0.0032, 0.01, 0.032),
    },
    "feddr": {
        "solver.lr": (0.01, 0.032, 0.056, 0.1, 0.18, 0.32),
        "algorithm.eta": (0.32, 0.56, 1.0, 1.8, 3.2, 10.0),
        "algorithm.alpha": (0.5, 1.0, 1.5, 1.75, 2.0),
    },
    "fedpd": {
        "solver.lr": (0.018, 0.032, 0.056, 0.1, 0.18, 0.32, 0.56, 1.0, 1.8),
        "algorithm.eta": (0.32, 0.56, 1.0, 1.8, 3.2, 5.6, 10.0, 18.0, 32.0),
    },
    "fedadagrad": {
        "solver.lr": (0.01, 0.032, 0.056, 0.1, 0.18, 0.32),
        "algorithm.lr": (0.01, 0.032, 0.056, 0.1, 0.18, 0.32),
        "algorithm.tau": (0.0001, 0.00032, 0.00056, 0.001, 0.0018, 0.0032, 0.01),
    },
    "fedadam": {
        "solver.lr": (0.01, 0.018, 0.032, 0.056, 0.1, 0.32),
        "algorithm.lr": (0.003, 0.0095, 0.017, 0.03, 0.053, 0.095),
        "algorithm.tau": (0.00032, 0.00056, 0.001, 0.0018, 0.0032, 0.0056, 0.01),
    },
    "fedyogi": {
        "solver.lr": (0.01, 0.018, 0.032, 0.056, 0.1, 0.18, 0.32),
        "algorithm.lr": (0.003, 0.0053, 0.0095, 0.017, 0.03, 0.053, 0.095),
        "algorithm.tau": (0.00032, 0.00056, 0.001, 0.0018, 0.0032, 0.0056, 0.01),
    },
}

TRIED_IN_EVENTS: dict[str, Grid] = {
    "fedavg": {
        "solver.lr": (0.032, 0.056, 0.1, 0.18, 0.32, 0.56, 1.0, 1.8, 3.2),
        "algorithm.lr": (0.018, 0.032, 0.056, 0.1, 0.18, 0.32, 0.56, 1.0, 3.2),
    },
    "fedavgm": {
        "solver.lr": (0.00032, 0.001, 0.0018, 0.0032, 0.0056, 0.01, 0.018, 0.032, 0.1),
        "algorithm.lr": (0.016, 0.05, 0.089, 0.16, 0.28, 0.5, 0.89, 1.6),
    },
    "fedprox": {
        "solver.lr": (0.01, 0.032, 0.056, 0.1, 0.18, 0.32, 0.56),
        "algorithm.mu": (0.00032, 0.001, 0.0018, 0.0032, 0.0056, 0.01, 0.032),
        "algorithm.lr": (0.032, 0.1, 0.18, 0.32, 0.56, 1.0),
    },
    "scaffold": {
        "solver.lr": (0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1, 0.18, 0.32, 0.56),
        "algorithm.lr": (0.032, 0.056, 0.1, 0.18, 0.32, 0.56, 1.0, 1.8, 3.2),
    },
    "feddr": {
        "solver.lr": (0.01, 0.032, 0.056, 0.1, 0.18, 0.32, 0.56),
        "algorithm.eta": (0.32, 0.56, 1.0, 1.8, 3.2, 5.6, 10.0),
        "algorithm.alpha": (0.5, 1.0, 1.5, 1.75, 2.0),
    },
    "fedadagrad": {
        "solver.lr": (0.01, 0.032, 0.056, 0.1, 0.18, 0.32),
        "algorithm.lr": (0.01, 0.032, 0.056, 0.1, 0.18, 0.32),
        "algorithm.tau": (1e-05, 1.8e-05, 3.2e-05, 5.6e-05, 0.0001, 0.00018, 0.00032, 0.001, 0.0032, 0.01),
    },
    "fedadam": {
        "solver.lr": (0.01, 0.032, 0.056, 0.1, 0.18, 0.32, 1.0),
        "algorithm.lr": (0.00095, 0.003, 0.0053, 0.0095, 0.017, 0.03),
        "algorithm.tau": (0.0032, 0.01, 0.018, 0.032, 0.056, 0.1, 0.32),
    },
    "fedyogi": {
        "solver.lr": (0.032, 0.056, 0.1, 0.18, 0.32, 0.56, 1.0),
        "algorithm.lr": (0.003, 0.0053, 0.0095, 0.017, 0.03),
        "algorithm.tau": (0.0032, 0.0056, 0.01, 0.018, 0.032, 0.056, 0.1),
    },
}


def _settings(rows: Mapping[str, Row], tried: Mapping[str, Grid], rounds: int, engine: str) -> dict[str, Setting]:
    return {
        name: Setting(
            row.algorithm,
            SGD(row.lr, batch_size=10, epochs=5),
            everyone() if row.algorithm.needs_everyone else uniform(10),
            rounds,
            engine=engine,
            origin=Tuned(POINTS, SEEDS, "validation accuracy", tried[name], limits=row.limits),
        )
        for name, row in rows.items()
    }


# As many replies in both: 100 rounds of 10 clients, or 1000 updates.
TUNED = {
    "tuned": _settings(ROUNDS, TRIED_IN_ROUNDS, 100, "simulate"),
    "tuned events": _settings(EVENTS, TRIED_IN_EVENTS, 1000, "events"),
}
