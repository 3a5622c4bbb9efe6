"""The tasks of FedDyn: Acar et al., ICLR 2021, arXiv:2111.04263 (appendix A).

Devices take part independently of each other with the given probability. The usual variant is 10% participation.

Departures: the paper's curves are those of the mean of all devices' last models; `evaluate` takes the server's. The
heterogeneity levels (gamma) of the synthetic data are not published; here each is 1. FedProx's epochs are not stated;
here they are FedAvg's. The authors clip all gradients at norm 10; SCAFFOLD's control variates need unclipped steps.
Where the winners of a search are not listed (CIFAR, synthetic), the settings are those of the authors' example scripts,
and `tuned_over` has the search. The iid Shakespeare is a random division of the same windows as the other.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from fedloom.algorithms import FedAvg, FedDyn, FedProx, Scaffold
from fedloom.cohorts import bernoulli, everyone
from fedloom.data import inputs, splits
from fedloom.data.dataset import Dataset
from fedloom.data.federated_data import FederatedData, federated, natural
from fedloom.data.sources import cifar, emnist, mnist, shakespeare
from fedloom.data.synthetic_data import feddyn_synthetic
from fedloom.models import MODELS
from fedloom.schedules import exponential
from fedloom.solvers import SGD
from fedloom.tasks.task import Reported, Setting, Task

PAPER = "FedDyn, arXiv:2111.04263"
METHODS = ("feddyn", "scaffold", "fedavg", "fedprox")


def _settings(
    share: float,
    rounds: int,
    *,
    alpha: float,
    mu: float,
    k: int,
    epochs: int,
    feddyn_epochs: int | None = None,
    lr: float = 0.1,
    decay: float = 1.0,
    **solver: Any,
) -> dict[str, Setting]:
    """One row of the appendix: alpha is FedDyn's, mu FedProx's, k SCAFFOLD's number of local steps."""
    step = lr if decay == 1 else exponential(lr, decay)
    cohort = everyone() if share == 1 else bernoulli(share)

    def sgd(**work: Any) -> SGD:
        return SGD(step, **work, **solver)

    return {
        "feddyn": Setting(FedDyn(alpha), sgd(epochs=feddyn_epochs or epochs, clip=10.0), cohort, rounds),
        "scaffold": Setting(Scaffold(), sgd(steps=k), cohort, rounds),
        "fedavg": Setting(FedAvg(), sgd(epochs=epochs, clip=10.0), cohort, rounds),
        "fedprox": Setting(FedProx(mu), sgd(epochs=epochs, clip=10.0), cohort, rounds),
    }


def _to_target(target: str, *values: float) -> Reported:
    return Reported(f"models sent by a device to reach {target}", dict(zip(METHODS, values, strict=True)))


def _to_loss(target: float, *values: float) -> tuple[float, Reported]:
    return target, _to_target(f"training loss {target}", *values)


# Synthetic data.

_SYNTHETIC: dict[str, tuple[dict[str, float], str, tuple[float, Reported]]] = {
    "homogeneous": ({}, "all devices alike", _to_loss(0.0603, 32, 70, 136, 49)),
    "type1": ({"rules": 1.0}, "devices differ in their rules", _to_loss(1.5717, 17, 88, 20, 18)),
    "type2": ({"inputs": 1.0}, "devices differ in inputs", _to_loss(0.1205, 150, 164, 274, 275)),
    "type3": ({"quantities": 1.0}, "devices differ in size", _to_loss(0.0854, 34, 260, 79, 106)),
}

SYNTHETIC = tuple(
    Task(
        f"feddyn-synthetic-{kind}",
        lambda seed, levels=levels: feddyn_synthetic(**levels, seed=seed),  # type: ignore[misc]
        MODELS["feddyn-logistic"](),
        about=f"FedDyn's synthetic data, 20 devices, 5 classes: {words}.",
        paper=PAPER,
        settings={
            "10%": _settings(0.1, 500, alpha=0.01, mu=1e-4, k=200, epochs=10, lr=0.1, batch_size=10, weight_decay=1e-5)
        },
        tuned_over={
            "solver.lr": (1.0, 0.1),
            "solver.epochs": (1.0, 10.0, 50.0),
            "solver.steps": (20.0, 200.0, 1000.0),
            "alpha": (0.1, 0.01, 0.001),
            "mu": (0.01, 0.0001),
        },
        reported=(reported,),
        target=("train loss", target),
    )
    for kind, (levels, words, (target, reported)) in _SYNTHETIC.items()
)


# Images.


def _split(source: Callable[[], Dataset], clients: int, alpha: float | None, sigma: float) -> Any:
    """100 devices or more: iid, or Dirichlet label priors; equal sizes, or lognormal ones."""

    def data(seed: int) -> FederatedData:
        examples = source()
        n = len(examples.y)
        sizes = splits.lognormal_sizes(n, clients, sigma, seed) if sigma else splits.balanced_sizes(n, clients)
        if alpha is not None:
            return federated(examples, splits.dirichlet(examples.y, clients, alpha, seed, sizes=sizes))
        if source is cifar.cifar100 and not sigma:
            return federated(examples, splits.iid_balanced(examples.y, clients, seed))
        return federated(examples, splits.iid(n, clients, seed, sizes=sizes))

    return data


_KINDS: dict[str, float | None] = {"iid": None, "dir0.6": 0.6, "dir0.3": 0.3}


def _words(kind: str) -> str:
    return "iid" if kind == "iid" else f"Dirichlet({kind[3:]}) labels"


def _digits_or_letters(
    name: str,
    model: str,
    source: Callable[[], Dataset],
    scale: Any,
    k: int,
    alphas: dict[str, tuple[float, ...]],
    **fields: Any,
) -> tuple[Task, ...]:
    """MNIST and EMNIST-L; alphas: FedDyn's for 10%, 100% and 1% participation."""
    common: dict[str, Any] = {"mu": 1e-4, "k": k, "feddyn_epochs": 50, "batch_size": 50, "weight_decay": 1e-4}
    return tuple(
        Task(
            f"{name}-{kind}",
            _split(source, 100, alpha, 0.0),
            MODELS[model](),
            prepare=scale,
            paper=PAPER,
            settings={
                "10%": _settings(0.1, 500, alpha=alphas[kind][0], epochs=10, decay=0.998, **common),
                "100%": _settings(1, 500, alpha=alphas[kind][1], epochs=20, **common),
                "1%": _settings(0.01, 500, alpha=alphas[kind][2], epochs=10, decay=0.998, **common),
            },
            tuned_over=fields.get("tuned_over", {}),
            about=f"{fields['title']} over 100 devices, {_words(kind)}: two hidden layers.",
            reported=fields["reported"].get(kind, ()),
            needs=fields["needs"],
        )
        for kind, alpha in _KINDS.items()
    )


def _standardised_letters() -> Dataset:
    """All pixels minus their mean, over their standard deviation, both of the training images."""
    data = emnist.emnist_l()
    mean, std = np.mean(data.x, dtype=float), np.std(data.x, dtype=float)
    x, test_x = (((images - mean) / std).astype(np.float32) for images in (data.x, data.test_x))
    return dataclasses.replace(data, x=x, test_x=test_x)


MNIST = _digits_or_letters(
    "mnist-2nn",
    "2nn",
    mnist.mnist,
    inputs.standardised(*inputs.MNIST),
    600,
    {"iid": (0.03, 0.01, 0.01), "dir0.6": (0.01,) * 3, "dir0.3": (0.01,) * 3},
    title="MNIST",
    tuned_over={
        "solver.lr": (0.1, 0.01),
        "solver.epochs": (10.0, 20.0, 50.0),
        "solver.steps": (120.0, 240.0, 600.0),
        "mu": (1.0, 0.01, 0.0001),
        "alpha": (0.001, 0.01, 0.03, 0.1),
    },
    reported={"iid": (_to_target("98.2% test accuracy, 10%", 100, 142, 588, 362),)},
    needs=("mnist",),
)

EMNIST_L = _digits_or_letters(
    "emnist-l",
    "feddyn-emnist",
    _standardised_letters,
    inputs.plain,
    500,
    {"iid": (0.003, 0.005, 0.003), "dir0.6": (0.005, 0.005, 0.001), "dir0.3": (0.01, 0.005, 0.005)},
    title="The letters A to J of EMNIST",
    reported={},
    needs=("emnist",),
)


_SEARCH = {"solver.lr.decay": (0.992, 0.998, 1.0), "alpha": (1e-3, 1e-2, 1e-1), "mu": (1e-2, 1e-3, 1e-4)}
_SEARCH_500 = {"solver.epochs": (2.0, 5.0), "solver.steps": (4.0, 10.0), "alpha": (0.1, 0.01, 0.001)}

# inf: not reached in the 1000 (100 devices) or 2000 rounds of the experiment.
_CIFAR_REPORTED = {
    "cifar10-cnn-iid": (
        _to_target("84.5% test accuracy, 10%", 637, 1852, np.inf, np.inf),
        _to_target("82.3% test accuracy, 10%", 240, 512, 994, 825),
        _to_target("85.0% test accuracy, 100%", 198, 1860, np.inf, np.inf),
    ),
    "cifar10-cnn-dir0.3": (_to_target("80.7% test accuracy, 10%", 232, 594, 863, 930),),
    "cifar10-cnn-iid-1000": (_to_target("80% test accuracy, 10%", 840, np.inf, np.inf, np.inf),),
}


def _cifar(
    classes: int,
    kind: str,
    *,
    clients: int = 100,
    sigma: float = 0.0,
    suffix: str = "",
    shares: tuple[float, ...] = (0.1,),
    rounds: int = 1000,
    model: str | None = None,
    tuned_over: dict[str, tuple[float, ...]] | None = None,
    **row: Any,
) -> Task:
    source, colours = (cifar.cifar10, inputs.CIFAR10) if classes == 10 else (cifar.cifar100, inputs.CIFAR100)
    row = {"alpha": 0.01, "mu": 1e-4, "epochs": 5, "k": 50, "batch_size": 50, "weight_decay": 1e-3} | row
    name = f"cifar{classes}-{'cnn' if model is None else 'resnet18gn'}-{kind}{suffix}"
    sizes = ", unequal sizes" if sigma else ""
    return Task(
        name,
        _split(source, clients, _KINDS[kind], sigma),
        MODELS[model or f"feddyn-cifar{classes}"](),
        prepare=inputs.cifar_feddyn(*colours),
        paper=PAPER,
        settings={f"{share:.0%}": _settings(share, rounds, **row) for share in shares},
        tuned_over=_SEARCH if tuned_over is None else tuned_over,
        about=f"CIFAR-{classes} over {clients} devices, {_words(kind)}{sizes}: a {'ResNet-18' if model else 'CNN'}.",
        reported=_CIFAR_REPORTED.get(name, ()),
        needs=(f"cifar{classes}",),
    )


_LOPSIDED: dict[str, Any] = {"sigma": 0.3, "suffix": "-unbalanced"}

CIFAR = (
    *(_cifar(classes, kind, shares=(0.1, 1.0, 0.01)) for classes in (10, 100) for kind in _KINDS),
    *(_cifar(10, kind, clients=1000, suffix="-1000", rounds=2000, k=5) for kind in ("iid", "dir0.3")),
    *(
        _cifar(100, kind, clients=500, suffix="-500", rounds=2000, epochs=2, k=4, tuned_over=_SEARCH_500)
        for kind in ("iid", "dir0.3")
    ),
    *(_cifar(10, kind, **_LOPSIDED) for kind in ("iid", "dir0.3")),
    *(_cifar(100, kind, **_LOPSIDED, epochs=2, alpha=0.1, k=20, tuned_over={}) for kind in ("iid", "dir0.3")),
    _cifar(10, "iid", model="feddyn-resnet18"),
)


# Text.


def _roles(seed: int) -> FederatedData:
    return natural(shakespeare.shakespeare_leaf(clients=100, crop=(2000, 400), seed=seed))


def _mixed_roles(seed: int) -> FederatedData:
    """The same windows, dealt out at random."""
    data = _roles(seed)
    return FederatedData(
        data.train,
        splits.iid(len(data.train[1]), 100, seed),
        data.test,
        splits.iid(len(data.test[1]), 100, seed),
        data.classes,
    )


_LSTM: dict[str, Any] = {"mu": 1e-4, "k": 100, "epochs": 5, "lr": 1.0, "batch_size": 100, "weight_decay": 1e-4}

SHAKESPEARE = tuple(
    Task(
        name,
        source,
        MODELS["feddyn-shakespeare"](),
        prepare=inputs.tokens,
        paper=PAPER,
        settings={
            f"{share:.0%}": _settings(share, 1000, alpha=alpha, decay=decay, **_LSTM)
            for share, alpha, decay in ((0.1, 0.015, 1.0), (1.0, 0.009, 1.0), (0.01, 0.001, 0.998))
        },
        tuned_over={
            "solver.epochs": (1.0, 5.0),
            "solver.steps": (20.0, 100.0),
            "mu": (0.01, 0.0001),
            "alpha": (0.001, 0.009, 0.01, 0.015),
        },
        about=f"Shakespeare over 100 devices with 2,000 windows of 80 characters each, {words}: the next character.",
        needs=("shakespeare_roles",),
    )
    for name, source, words in (
        ("shakespeare-leaf", _roles, "each of one role"),
        ("shakespeare-leaf-iid", _mixed_roles, "mixed"),
    )
)

TASKS = (*SYNTHETIC, *MNIST, *EMNIST_L, *CIFAR, *SHAKESPEARE)
