"""Tasks besides the papers': small ones that need no download, and natural federations of real data.

Their settings are ours. Those of digits are tuned (docs/tuning.md), the others are not: a start for one's own
experiments.
"""

import fedloom.algorithms as a
from fedloom.algorithm import Algorithm
from fedloom.client import Solver
from fedloom.cohorts import CohortRule, everyone, uniform
from fedloom.data import inputs, splits
from fedloom.data.dataset import Dataset
from fedloom.data.federated_data import FederatedData, by_client, federated, natural
from fedloom.data.quadratic import quadratics
from fedloom.data.sources import heart, mnist
from fedloom.data.sources.digits import digits
from fedloom.models import MODELS, mlp
from fedloom.solvers import SGD, Exact
from fedloom.tasks.digits_settings import TUNED
from fedloom.tasks.origin import UNTUNED
from fedloom.tasks.task import Setting, Task


def start(solver: Solver, cohort: CohortRule, rounds: int, mu: float = 0.01) -> dict[str, dict[str, Setting]]:
    """Every kind of method, with one solver."""
    methods: dict[str, Algorithm] = {
        "fedavg": a.FedAvg(),
        "fedavgm": a.FedAvgM(lr=0.5),
        "fedprox": a.FedProx(mu),
        "scaffold": a.Scaffold(),
        "feddane": a.FedDANE(mu),
        "feddyn": a.FedDyn(max(mu, 0.01)),
        "feddr": a.FedDR(eta=10.0, alpha=1.0),
        "fedadam": a.FedAdam(lr=0.03, tau=1e-2),
        "fedyogi": a.FedYogi(lr=0.03, tau=1e-2),
        "fedadagrad": a.FedAdagrad(lr=0.1, tau=1e-2),
    }
    settings = {name: Setting(method, solver, cohort, rounds, origin=UNTUNED) for name, method in methods.items()}
    settings["fedpd"] = Setting(a.FedPD(10.0), solver, everyone(), rounds, origin=UNTUNED)
    return {"start": settings}


def _digits(seed: int) -> FederatedData:
    data = digits()
    return federated(data, splits.dirichlet(data.y, 100, 0.3, seed))


def _heart(seed: int) -> FederatedData:
    """A fifth of each hospital's patients is for testing."""
    data: Dataset = heart.heart_disease()
    assert data.keys is not None
    return by_client(data.x, data.y, data.keys, test=0.2, seed=seed)


_QUADRATIC_METHODS: dict[str, Algorithm] = {
    "feddyn": a.FedDyn(1.0),
    "feddr": a.FedDR(eta=1.0, alpha=1.0),
    "fedprox": a.FedProx(1.0),
    "fedsplit": a.FedSplit(1.0),
}

TASKS = (
    Task(
        "quadratics",
        lambda seed: quadratics(clients=20, dimension=10, seed=seed),
        metrics=(),
        settings={
            "exact": {name: Setting(m, Exact(), uniform(5), 100) for name, m in _QUADRATIC_METHODS.items()}
            | {"fedpd": Setting(a.FedPD(1.0), Exact(), everyone(), 100)}
        },
        about="Quadratics over 20 clients that differ: the optimum is known in closed form.",
    ),
    Task(
        "digits",
        _digits,
        mlp(64, 32, 10),
        settings=TUNED | start(SGD(0.1, batch_size=10, epochs=5), uniform(10), 100),
        target=("test accuracy", 0.9),
        about="8x8 images of digits (UCI) over 100 clients, Dirichlet(0.3) labels: a hidden layer of 32. No download.",
    ),
    Task(
        "mnist-writers",
        lambda seed: natural(mnist.mnist(writers=True)),
        MODELS["2nn"](),
        prepare=inputs.standardised(*inputs.MNIST),
        settings=start(SGD(0.1, batch_size=10, epochs=1), uniform(10), 200),
        about="MNIST by the person who wrote the digit: 539 clients; the test set has 297 other writers.",
        needs=("mnist", "mnist_writers"),
    ),
    Task(
        "heart",
        _heart,
        mlp(32, 16, 2),
        weights="uniform",  # hospitals count alike, whatever their size
        settings=start(SGD(0.1, batch_size=10, weight_decay=3e-3), everyone(), 200),
        about="Heart disease in four hospitals, 920 patients, a federation across silos: a hidden layer of 16.",
        needs=("heart_disease",),
    ),
)
