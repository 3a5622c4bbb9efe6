"""The tasks of FedDyn: Acar et al., ICLR 2021, arXiv:2111.04263 (appendix A).

Devices take part independently of each other with the given probability. The usual variant is 10% participation. All
rows of tables 1, 2, 4, 5 and 6 are reported. They are about the mean of all devices' last models, which experiments
evaluate as `last models test accuracy` and `last models train loss`.

Departures: what experiments evaluate by default is the server's model. Where devices differ in size, the mean of last
models is weighted by examples, as the authors have it for FedAvg and FedProx; for FedDyn and SCAFFOLD theirs is plain
(`plain last models`), and their SCAFFOLD takes plain means of models and weighs control variates by size.
The heterogeneity levels (gamma) of the synthetic data are not published; here each is 1. FedProx's epochs on MNIST and
EMNIST-L are not stated; here they are FedAvg's. The authors clip all gradients at norm 10; SCAFFOLD's control variates
need unclipped steps, or a `divisor`. Where the winners of a search are not listed (CIFAR with 100 and 1000 devices,
synthetic), the settings are those of the authors' example scripts, but alpha is 0.1 for CIFAR-10, iid, 10%, which
appendix A.3 finds best; `tuned_over` has the search. Rounds are those of the figures; for EMNIST-L and 100% these end
at 500, where table 2 has "1000+". The iid Shakespeare deals out the same windows at random.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np

from fedloom.data import inputs, splits
from fedloom.data.dataset import Dataset
from fedloom.data.federated_data import FederatedData, federated, natural
from fedloom.data.inputs import Prepare
from fedloom.data.sources import cifar, emnist, mnist, shakespeare
from fedloom.data.synthetic_data import feddyn_synthetic
from fedloom.models import MODELS
from fedloom.tasks.feddyn_tables import TABLES, settings
from fedloom.tasks.task import Task

PAPER = "FedDyn, arXiv:2111.04263"

Data = Callable[[int], FederatedData]  # by seed


# Synthetic data.

# The levels (gamma) of heterogeneity in rules, inputs and quantities, and in words.
_SYNTHETIC: dict[str, tuple[tuple[float | None, float | None, float | None], str]] = {
    "homogeneous": ((None, None, None), "all devices alike"),
    "type1": ((1.0, None, None), "devices differ in their rules"),
    "type2": ((None, 1.0, None), "devices differ in inputs"),
    "type3": ((None, None, 1.0), "devices differ in size"),
}


def _synthetic(kind: str, levels: tuple[float | None, float | None, float | None], words: str) -> Task:
    name = f"feddyn-synthetic-{kind}"
    (reported,) = TABLES[name]
    assert reported.measure.target is not None
    return Task(
        name,
        lambda seed: feddyn_synthetic(*levels, seed=seed),
        MODELS["feddyn-logistic"](),
        about=f"FedDyn's synthetic data, 20 devices, 5 classes: {words}.",
        paper=PAPER,
        settings={
            "10%": settings(
                0.1,
                500,
                alpha=0.01,
                mu=1e-4,
                k=200,
                epochs=10,
                batch_size=10,
                weight_decay=1e-5,
                unequal=levels[2] is not None,
            )
        },
        tuned_over={
            "solver.lr": (1.0, 0.1),
            "solver.epochs": (1.0, 10.0, 50.0),
            "solver.steps": (20.0, 200.0, 1000.0),
            "alpha": (0.1, 0.01, 0.001),
            "mu": (0.01, 0.0001),
        },
        reported=(reported,),
        target=("train loss", reported.measure.target),  # of the server's model, which every method has
    )


SYNTHETIC = tuple(_synthetic(kind, *row) for kind, row in _SYNTHETIC.items())


# Images.


def _split(source: Callable[[], Dataset], clients: int, alpha: float | None, sigma: float) -> Data:
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


# The parameter of the Dirichlet priors, if any, and in words.
_KINDS: dict[str, tuple[float | None, str]] = {
    "iid": (None, "iid"),
    "dir0.6": (0.6, "Dirichlet(0.6) labels"),
    "dir0.3": (0.3, "Dirichlet(0.3) labels"),
}


def _digits_or_letters(
    name: str,
    model: str,
    source: Callable[[], Dataset],
    scale: Prepare,
    k: int,
    alphas: dict[str, tuple[float, ...]],
    *,
    title: str,
    needs: tuple[str, ...],
    tuned_over: Mapping[str, tuple[float, ...]],
) -> tuple[Task, ...]:
    """MNIST and EMNIST-L; alphas: FedDyn's for 10%, 100% and 1% participation."""
    row = functools.partial(settings, mu=1e-4, k=k, feddyn_epochs=50, batch_size=50, weight_decay=1e-4)
    return tuple(
        Task(
            f"{name}-{kind}",
            _split(source, 100, alpha, 0.0),
            MODELS[model](),
            prepare=scale,
            paper=PAPER,
            settings={
                "10%": row(0.1, 1000, alpha=alphas[kind][0], epochs=10, decay=0.998),
                "100%": row(1, 500, alpha=alphas[kind][1], epochs=20),
                "1%": row(0.01, 1000, alpha=alphas[kind][2], epochs=10, decay=0.998),
            },
            tuned_over=tuned_over,
            about=f"{title} over 100 devices, {words}: two hidden layers.",
            reported=TABLES.get(f"{name}-{kind}", ()),
            needs=needs,
        )
        for kind, (alpha, words) in _KINDS.items()
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
    needs=("emnist",),
    tuned_over={},
)


# FedDyn's alpha by the share of devices that take part, as in the authors' example script.
_TENTH = {0.1: 0.01}
_EVERY_SHARE = _TENTH | {1.0: 0.01, 0.01: 0.01}

_SEARCH = {"solver.lr.decay": (0.992, 0.998, 1.0), "alpha": (1e-3, 1e-2, 1e-1), "mu": (1e-2, 1e-3, 1e-4)}
_SEARCH_500 = {"solver.epochs": (2.0, 5.0), "solver.steps": (4.0, 10.0), "alpha": (0.1, 0.01, 0.001)}


def _cifar(
    classes: int,
    kind: str,
    *,
    clients: int = 100,
    sigma: float = 0.0,
    suffix: str = "",
    alphas: Mapping[float, float] = _TENTH,
    rounds: int = 1000,
    model: str | None = None,
    tuned_over: Mapping[str, tuple[float, ...]] = _SEARCH,
    epochs: int = 5,
    k: int = 50,
) -> Task:
    source, colours = (cifar.cifar10, inputs.CIFAR10) if classes == 10 else (cifar.cifar100, inputs.CIFAR100)
    row = functools.partial(settings, mu=1e-4, batch_size=50, weight_decay=1e-3, unequal=bool(sigma))
    name = f"cifar{classes}-{'cnn' if model is None else 'resnet18gn'}-{kind}{suffix}"
    prior, words = _KINDS[kind]
    sizes = ", unequal sizes" if sigma else ""
    return Task(
        name,
        _split(source, clients, prior, sigma),
        MODELS[model or f"feddyn-cifar{classes}"](),
        prepare=inputs.cifar_feddyn(*colours),
        paper=PAPER,
        settings={f"{share:.0%}": row(share, rounds, alpha=a, epochs=epochs, k=k) for share, a in alphas.items()},
        tuned_over=tuned_over,
        about=f"CIFAR-{classes} over {clients} devices, {words}{sizes}: a {'ResNet-18' if model else 'CNN'}.",
        reported=TABLES.get(name, ()),
        needs=(f"cifar{classes}",),
    )


_lopsided = functools.partial(_cifar, sigma=0.3, suffix="-unbalanced")

CIFAR = (
    _cifar(10, "iid", alphas=_EVERY_SHARE | {0.1: 0.1}),  # figure 1
    *(_cifar(10, kind, alphas=_EVERY_SHARE) for kind in ("dir0.6", "dir0.3")),
    *(_cifar(100, kind, alphas=_EVERY_SHARE) for kind in _KINDS),
    *(_cifar(10, kind, clients=1000, suffix="-1000", rounds=2000, k=5) for kind in ("iid", "dir0.3")),
    *(
        _cifar(100, kind, clients=500, suffix="-500", rounds=2000, epochs=2, k=4, tuned_over=_SEARCH_500)
        for kind in ("iid", "dir0.3")
    ),
    *(_lopsided(10, kind) for kind in ("iid", "dir0.3")),
    *(_lopsided(100, kind, epochs=2, alphas={0.1: 0.1}, k=20, tuned_over={}) for kind in ("iid", "dir0.3")),
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


# The share of devices that take part, rounds, FedDyn's alpha, and the decay of the step size.
_LEVELS = ((0.1, 250, 0.015, 1.0), (1.0, 150, 0.009, 1.0), (0.01, 250, 0.001, 0.998))

_lstm = functools.partial(settings, mu=1e-4, k=100, epochs=5, lr=1.0, batch_size=100, weight_decay=1e-4)

SHAKESPEARE = tuple(
    Task(
        name,
        source,
        MODELS["feddyn-shakespeare"](),
        prepare=inputs.tokens,
        paper=PAPER,
        settings={
            f"{share:.0%}": _lstm(share, rounds, alpha=alpha, decay=decay) for share, rounds, alpha, decay in _LEVELS
        },
        tuned_over={
            "solver.epochs": (1.0, 5.0),
            "solver.steps": (20.0, 100.0),
            "mu": (0.01, 0.0001),
            "alpha": (0.001, 0.009, 0.01, 0.015),
        },
        about=f"Shakespeare over 100 devices with 2,000 windows of 80 characters each, {words}: the next character.",
        reported=TABLES.get(name, ()),
        needs=("shakespeare_roles",),
    )
    for name, source, words in (
        ("shakespeare-leaf", _roles, "each of one role"),
        ("shakespeare-leaf-iid", _mixed_roles, "mixed"),
    )
)

TASKS = (*SYNTHETIC, *MNIST, *EMNIST_L, *CIFAR, *SHAKESPEARE)
