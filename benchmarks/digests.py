"""Digests of runs, one of every kind: did a change that should alter no result alter a bit?

    python -m benchmarks.digests > before.txt           # then change the code, and
    python -m benchmarks.digests | diff before.txt -

Bits depend on the machine, on the versions of JAX and XLA, and on XLA_FLAGS: compare on one machine.
"""

import hashlib
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

import fedloom as fl
from fedloom import cohorts, schedules
from fedloom.engines import memory_store
from fedloom.engines.grid import simulate_grid
from fedloom.engines.plan import Plan
from fedloom.regularizers import l1
from fedloom.systems.compute import lognormal
from fedloom.systems.faults import random

ROUNDS = 7


def digest(values: Iterable[Any]) -> str:
    """Of all arrays and numbers in the values, in order."""
    sha = hashlib.sha256()
    for value in values:
        for leaf in jax.tree.leaves(value):
            x = np.asarray(leaf)
            sha.update(f"{x.dtype}{x.shape}".encode() + x.tobytes())
    return sha.hexdigest()[:16]


def contents(records: Iterable[Any]) -> Iterator[Any]:
    """Everything of the records that is a result."""
    for r in records:
        yield r.round, r.server, {k: r.clients[k] for k in sorted(r.clients)}, r.counters, r.cohort
        yield r.residual, r.unsolved, r.clock


def small() -> tuple[Any, Any]:
    task = fl.load("synthetic-1-1")
    return task.federation, task.w


def runs() -> dict[str, Callable[[], Iterable[Any]]]:
    federation, w = small()
    sgd = fl.SGD(0.05, batch_size=10)
    ten = cohorts.uniform(10)

    def simulated(algorithm: Any, solver: Any = sgd, rounds: int = ROUNDS, **more: Any) -> Callable[[], Iterator[Any]]:
        return lambda: contents(fl.simulate(algorithm, federation, solver, w, rounds, **{"chunk": 3, **more}))

    def asynchronous(algorithm: Any, **more: Any) -> Callable[[], Iterator[Any]]:
        return lambda: contents(fl.events(algorithm, federation, sgd, w, 20, **{"chunk": 4, **more}))

    def resumed(engine: Any, algorithm: Any, **more: Any) -> Callable[[], Iterator[Any]]:
        def go() -> Iterator[Any]:
            half = list(engine(algorithm, federation, sgd, w, 4, chunk=2, **more))[-1]
            return contents(engine(algorithm, federation, sgd, w, 8, chunk=2, resume=half, **more))

        return go

    def on_disk() -> Iterator[Any]:
        before, memory_store.ON_DEVICE = memory_store.ON_DEVICE, 0
        try:
            yield from contents(fl.simulate(fl.Scaffold(), federation, sgd, w, ROUNDS, cohort=ten, chunk=3))
        finally:
            memory_store.ON_DEVICE = before

    def grid() -> Iterator[Any]:
        points = [fl.FedAdam(lr=lr, tau=1e-3) for lr in (0.1, 0.03, 0.01)]
        for r in simulate_grid(points, federation, [sgd] * 3, w, ROUNDS, cohort=ten, chunk=3):
            yield r.round, r.servers, r.counters

    def directory() -> Iterator[Any]:
        with tempfile.TemporaryDirectory() as place:
            fl.run(fl.experiment("digits", "feddyn", rounds=6), pathlib.Path(place) / "run")
            yield np.frombuffer((pathlib.Path(place) / "run" / "log.jsonl").read_bytes(), np.uint8)

    slow = fl.System(compute=lognormal(sigma=0.5), speeds=2.0, faults=random(drop=0.1, lost=0.1, duplicate=0.1))
    partial = fl.System(compute=lognormal(sigma=0.5), speeds=2.0, deadline=2.0, late="partial")
    two = Plan(3, 2)
    return {
        "fedavg": simulated(fl.FedAvg(), cohort=ten),
        "fedavg on two devices": simulated(fl.FedAvg(), cohort=ten, plan=two),
        "fedprox with stragglers": simulated(fl.FedProx(mu=0.1), cohort=cohorts.stragglers(ten, 0.5)),
        "fedprox under a deadline": simulated(fl.FedProx(mu=0.1), cohort=ten, system=partial),
        "fedadam with a schedule": simulated(fl.FedAdam(lr=0.01), fl.SGD(schedules.exponential(0.05, 0.9)), cohort=ten),
        "scaffold by weight": simulated(fl.Scaffold(), cohort=cohorts.by_weight(10)),
        "scaffold under faults": simulated(fl.Scaffold(), cohort=ten, system=slow),
        "scaffold on two devices": simulated(fl.Scaffold(), cohort=ten, plan=two),
        "feddyn": simulated(fl.FedDyn(alpha=0.1), cohort=ten),
        "feddane, bernoulli": simulated(fl.FedDANE(mu=0.1), cohort=cohorts.bernoulli(0.3)),
        "feddane under faults": simulated(fl.FedDANE(mu=0.1), cohort=ten, system=slow),
        "feddr": simulated(fl.FedDR(0.5, g=l1(0.01)), cohort=ten),
        "fedpd": simulated(fl.FedPD(eta=1.0)),
        "fedsplit": simulated(fl.FedSplit(eta=1.0), fl.GD(0.1, steps=3)),
        "adaalter": simulated(fl.AdaAlter(), fl.Adagrad(0.1), cohort=ten),
        "to a tolerance": simulated(fl.FedProx(mu=1.0), fl.ToTolerance(1e-2, lr=0.1), rounds=2, cohort=ten),
        "with replacement": simulated(fl.Scaffold(), cohort=cohorts.with_replacement(10)),
        "reference scaffold": lambda: contents(
            fl.reference(fl.Scaffold(), federation, sgd, w, 2, cohort=cohorts.uniform(3), system=slow)
        ),
        "resumed feddr": resumed(fl.simulate, fl.FedDR(0.5), cohort=ten),
        "events feddr": asynchronous(fl.FedDR(0.5), cohort=ten, system=slow),
        "events fedbuff": asynchronous(fl.FedBuff(), cohort=ten, system=slow, buffer=3),
        "events scaffold by weight": asynchronous(fl.Scaffold(), cohort=cohorts.by_weight(10), system=slow, buffer=2),
        "events with delays": asynchronous(fl.FedDR(0.5), system=fl.Delays(3)),
        "events resumed": resumed(fl.events, fl.FedBuff(), cohort=ten, system=slow, buffer=2),
        "memories on disk": on_disk,
        "a grid": grid,
        "a directory": directory,
    }


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    for name, results in runs().items():
        print(f"{digest(results())}  {name}", flush=True)
