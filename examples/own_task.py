"""A task of one's own: arrays, who owns which example, and a model.

    fedloom compare examples/own_task.py:task --rounds 20

Sensors of 12 machines, each with its own calibration: is the machine about to fail?
"""

import numpy as np

import fedloom as fl
from fedloom.data import FederatedData


def data(seed: int) -> FederatedData:
    """Readings that each machine shifts and scales in its own way; the seed also draws which are held out."""
    rng = np.random.default_rng(0)
    machine = rng.integers(0, 12, 1200)
    wear = rng.normal(size=(1200, 6)).astype(np.float32)
    failing = (wear @ rng.normal(size=6) > 0.5).astype(np.int32)
    shift, scale = rng.normal(size=(12, 6)), rng.lognormal(sigma=0.5, size=(12, 6))
    readings = (wear * scale[machine] + shift[machine]).astype(np.float32)
    return fl.by_client(readings, failing, machine, test=0.2, seed=seed)


SGD = fl.SGD(lr=0.1, batch_size=10, epochs=2)
FIVE = fl.cohorts.uniform(5)

task = fl.Task(
    "machines",
    data,
    fl.models.mlp(6, 16, 2),
    about="Readings of 12 machines with their own calibrations: will it fail?",
    target=("test accuracy", 0.85),
    settings={
        "ours": {
            "fedavg": fl.tasks.Setting(fl.FedAvg(), SGD, FIVE, 50),
            "scaffold": fl.tasks.Setting(fl.Scaffold(), SGD, FIVE, 50),
            "feddyn": fl.tasks.Setting(fl.FedDyn(alpha=0.1), SGD, FIVE, 50),
        }
    },
)
