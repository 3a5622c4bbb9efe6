"""A convolutional network of PyTorch, federated with SCAFFOLD on 8x8 digits whose classes are spread unevenly.

    python examples/torch_cnn.py
    fedloom compare examples/torch_cnn.py:task --algorithms fedavg,scaffold --rounds 20

Needs PyTorch: pip install 'fedloom[torch]'.
"""

import torch
from torch import nn

import fedloom as fl
from fedloom.data.sources.digits import digits


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 2 * 2, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)),
    )


def data(seed: int) -> fl.FederatedData:
    """Twenty clients; images are [n, 1, 8, 8], as PyTorch has them."""
    d = digits()
    split = fl.splits.dirichlet(d.y, clients=20, alpha=0.3, seed=seed)
    return fl.FederatedData((d.x[:, None], d.y), split, (d.test_x[:, None], d.test_y), classes=10)


SGD = fl.SGD(lr=0.1, batch_size=20, epochs=2)
FIVE = fl.cohorts.uniform(5)

task = fl.Task(
    "torch-digits",
    data,
    fl.models.from_torch(network, torch.zeros(2, 1, 8, 8)),  # every seed has its own initial weights
    about="8x8 digits of 20 clients with uneven classes, and a CNN in PyTorch.",
    target=("test accuracy", 0.85),
    settings={
        "ours": {
            "fedavg": fl.tasks.Setting(fl.FedAvg(), SGD, FIVE, 60),
            "scaffold": fl.tasks.Setting(fl.Scaffold(), SGD, FIVE, 60),
        }
    },
)

if __name__ == "__main__":
    loaded = task.load(seed=0)
    run = fl.simulate(fl.Scaffold(), loaded.federation, SGD, loaded.w, rounds=60, cohort=FIVE, chunk=10)
    for record in run:
        print(record.round, loaded.evaluate(record.w, ["test"]))
    trained = network()
    assert task.model is not None
    trained.load_state_dict(task.model.own(task.model.unravel(record.w)))
