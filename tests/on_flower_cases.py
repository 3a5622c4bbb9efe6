"""Federations that a ServerApp of the tests runs one after the other, over the same three SuperNodes."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import fedloom as fl
from fedloom import cohorts
from fedloom.federation.engine import agreed
from fedloom.federation.party import Party
from fedloom.federation.store import Store
from fedloom.federation.work import Objectives
from fedloom.testing import usual_solver
from tests.cases import CASES
from tests.federations import least_squares

QUADRATICS = fl.quadratics(clients=3, dimension=4, seed=3)
RAGGED = least_squares(sizes=(3, 9, 5))
W = np.array([2.0, -1.0, 0.5, 3.0])
ROUNDS, SEED = 3, 5
SHORT = ("scaffold-II", "feddane", "minibatches", "asynchronous")


def federations():
    """By name: algorithm, solver, federation, cohort rule, and the buffer of an asynchronous run."""
    found = {}
    for i, (name, case) in enumerate(CASES.items()):
        solver = case.solver or usual_solver(case.algorithm)
        partial = cohorts.bernoulli(0.6) if i % 2 else cohorts.uniform(2)
        found[name] = case.algorithm, solver, QUADRATICS, partial, None
        if case.algorithm.needs_everyone:
            found[name] = case.algorithm, solver, QUADRATICS, cohorts.everyone(), None
    found["minibatches"] = fl.FedDyn(0.3), fl.SGD(0.05, batch_size=2), RAGGED, cohorts.uniform(2), None
    late = cohorts.stragglers(of=cohorts.everyone(), share=0.5)
    found["stragglers"] = fl.FedProx(0.2), fl.SGD(0.05, batch_size=2, epochs=4), RAGGED, late, None
    found["asynchronous"] = fl.FedDR(eta=2.0, alpha=1.0), fl.Exact(), QUADRATICS, cohorts.uniform(2), 1
    return found


def uid(name):
    return f"federation-{name}"[:64]


def party(directory, name, k):
    algorithm, solver, federation, _, _ = federations()[name]
    store = Store(pathlib.Path(directory) / f"{name}-{k}.db", uid(name))
    own = Objectives(federation, k)
    return Party(agreed(uid(name), algorithm, solver), algorithm, solver, k, own, store, f"client-{k}")


def run(grid, directory, names):
    """What the ServerApp does: every federation, and its last record on the disk."""
    for name in names:
        algorithm, solver, federation, rule, buffer = federations()[name]
        place = pathlib.Path(directory) / name
        records = fl.on_flower(
            grid,
            algorithm,
            solver,
            jnp.asarray(W),
            ROUNDS if buffer is None else 50,
            directory=place,
            clients=[f"client-{k}" for k in range(3)],
            federation=uid(name),
            cohort=rule,
            seed=SEED,
            buffer=buffer,
            weights=federation.weights,
            deadline=30.0,
            patience=60.0,
        )
        for record in records:
            last = record
        assert last.traffic is not None
        leaves = {f"server {i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(last.server))}
        np.savez(place / "draft.npz", counters=np.array(last.counters), traffic=np.array(last.traffic), **leaves)
        (place / "draft.npz").rename(place / "last.npz")
