"""An objective of one's own, which has moments instead of examples: docs/own.md says what it needs, and for whom."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl

rng = np.random.default_rng(0)
SIZES = np.array([20, 50, 30])
X = [rng.normal(size=(n, 3)) for n in SIZES]
Y = [x @ rng.normal(size=3) + 0.1 * rng.normal(size=len(x)) for x in X]
ASKED: list[str] = []  # the methods that were called


class Moments(NamedTuple):
    a: Any
    b: Any
    c: Any
    size: Any
    capacity: int

    def unravel(self, w):
        ASKED.append("unravel")
        return w

    def loss(self, w):
        ASKED.append("loss")
        return (w @ self.a @ w - 2 * self.b @ w + self.c) / 2

    def grad(self, w):
        ASKED.append("grad")
        return self.a @ w - self.b

    def batch_grad(self, params, positions, mask, key):
        ASKED.append("batch_grad")
        return self.a @ params - self.b


@fl.frozen
class Clients(fl.Federation):
    a: Any
    b: Any
    c: Any
    sizes: Any
    weights: Any
    capacity: int = dataclasses.field(metadata={"static": True})

    def objective(self, k):
        return Moments(*(jnp.asarray(x)[k] for x in (self.a, self.b, self.c, self.sizes)), self.capacity)


def clients():
    a = np.stack([x.T @ x / len(x) for x in X])
    b = np.stack([x.T @ y / len(x) for x, y in zip(X, Y, strict=True)])
    c = np.array([y @ y / len(y) for y in Y])
    return Clients(a, b, c, SIZES, SIZES / SIZES.sum(), capacity=50)


def halved(w, rows, key):
    x, y = rows
    return (x @ w - y) ** 2 / 2


@pytest.mark.parametrize(
    ("engine", "algorithm"),
    [(fl.simulate, fl.FedAvg()), (fl.reference, fl.Scaffold()), (fl.simulate, fl.FedDANE(mu=0.1))],
    ids=["FedAvg", "SCAFFOLD", "FedDANE"],
)
def test_its_iterates_are_those_of_the_examples_it_stands_for(engine, algorithm):
    examples = fl.examples((np.concatenate(X), np.concatenate(Y)), SIZES, halved)
    cohort = fl.cohorts.uniform(2)
    runs = (engine(algorithm, f, fl.GD(lr=0.2, steps=3), np.zeros(3), 5, cohort=cohort) for f in (clients(), examples))
    for own, ours in zip(*runs, strict=True):
        np.testing.assert_allclose(own.w, ours.w, rtol=0, atol=1e-13)
        assert own.counters == ours.counters
        np.testing.assert_allclose(clients().loss(own.w), examples.loss(own.w), rtol=1e-12)
        np.testing.assert_allclose(clients().grad(own.w), examples.grad(own.w), rtol=0, atol=1e-13)


@pytest.mark.parametrize("engine", [fl.simulate, fl.events])
def test_it_reaches_the_closed_form(engine):
    algorithm = fl.Scaffold() if engine is fl.simulate else fl.FedDR(eta=1.0)
    solver = fl.GD(lr=0.2, steps=5) if engine is fl.simulate else fl.Exact()
    *_, last = engine(algorithm, clients(), solver, np.zeros(3), 300)
    optimum = np.linalg.lstsq(np.concatenate(X), np.concatenate(Y), rcond=None)[0]
    np.testing.assert_allclose(last.w, optimum, rtol=0, atol=1e-9)


NEEDS = [  # as the table of docs/own.md says
    (fl.GD(0.1), {"grad"}),
    (fl.Exact(), {"grad"}),
    (fl.ToTolerance(1e-2, lr=0.1), {"grad"}),
    (fl.SGD(0.1, batch_size=5), {"grad", "unravel", "batch_grad"}),
    (fl.Adagrad(0.1, batch_size=5), {"grad", "unravel", "batch_grad"}),
    (fl.Optax(batch_size=5), {"grad", "unravel", "batch_grad"}),
]


@pytest.mark.parametrize(
    ("engine", "solver", "needed"),
    [(e, *of) for i, of in enumerate(NEEDS) for e in (fl.simulate, (fl.reference, fl.events)[i % 2])],
    ids=lambda v: type(v).__name__ if isinstance(v, fl.Solver) else getattr(v, "__name__", ""),
)
def test_who_asks_for_what(engine, solver, needed):
    jax.clear_caches()  # what has been traced before does not ask again
    ASKED.clear()
    federation = clients()
    run = engine(fl.FedAvg(), federation, solver, np.zeros(3), 2)
    if "batch_grad" in needed:
        once = ASKED.count("grad")
        list(run)
        assert ASKED.count("grad") == once == 1  # to check w, and never again
    else:
        list(run)
    assert set(ASKED) == needed
    federation.loss(np.zeros(3))
    assert set(ASKED) == needed | {"loss"}
