"""What a cluster costs and gains, on this machine: nodes with one core each, on loopback.

python -m benchmarks.cluster [exchange] [scaling] [population] [model]

exchange    time of an exchange with two workers by the size of the model, beside a round of `simulate`
scaling     one node against two, a compute-bound and a small workload, in turns
population  100,000 clients with memories over two nodes
model       on paper, with the constants that `exchange` measured: 10 to 1,000 machines

Nothing else should run. Each node is bound to a core; the driver may use any. Figures: benchmarks/cluster.md.
"""

import argparse
import contextlib
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # loopback only; Ray reads it when it is imported

import jax
import jax.numpy as jnp
import numpy as np

import fedloom as fl
from fedloom.cohorts import uniform
from fedloom.problem import Scalar, Vector

CORES = sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def nodes(count: int) -> Iterator[None]:
    """A cluster of so many nodes, each bound to one core, and a head that does no work."""
    import ray
    from ray.cluster_utils import Cluster

    from fedloom.cluster.staff import dismiss_all

    common = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 2**30}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = Cluster(initialize_head=True, head_node_args={**common, "num_cpus": 0})
        try:
            for i in range(count):
                os.sched_setaffinity(0, {CORES[i % len(CORES)]})  # what the node starts inherits it
                cluster.add_node(**common, num_cpus=1)
            os.sched_setaffinity(0, CORES)
            ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
            yield
        finally:
            os.sched_setaffinity(0, CORES)
            dismiss_all()
            ray.shutdown()
            cluster.shutdown()


class Sphere(NamedTuple):
    """F(w) = |w - c|^2 / 2: next to no work, so that what remains is the way there and back."""

    c: Scalar
    size: Scalar = 1
    capacity: int = 1

    def unravel(self, w: Vector) -> Vector:
        return w

    def loss(self, w: Vector) -> Scalar:
        return jnp.sum((w - self.c) ** 2) / 2

    def grad(self, w: Vector) -> Vector:
        return w - self.c

    def batch_grad(self, params: Vector, positions: jax.Array, mask: jax.Array, key: Any) -> Vector:
        return params - self.c


@fl.frozen
class Spheres(fl.Federation):
    """Clients with different centres."""

    centers: Any
    weights: Any

    def objective(self, k: Scalar) -> Sphere:
        return Sphere(jnp.asarray(self.centers)[k])


def spheres(clients: int) -> Spheres:
    return Spheres(np.linspace(-1, 1, clients, dtype=np.float32), np.full(clients, 1 / clients))


def seconds_of_rounds(records: Iterator[Any], warm: int = 5) -> list[float]:
    """How long each round took, but for the first, which compile."""
    times, before = [], time.perf_counter()
    for record in records:
        jax.block_until_ready(record.server)
        now = time.perf_counter()
        times.append(now - before)
        before = now
    return times[warm:]


def spread(values: list[float], unit: float = 1e3) -> str:
    return f"{unit * statistics.median(values):.3g} [{unit * min(values):.3g}, {unit * max(values):.3g}]"


def exchange() -> dict[int, float]:
    """Milliseconds of a round of FedAvg with 4 clients that do nothing, on two workers with one shard each."""
    found = {}
    print("exchange, two workers: ms of a round, median [min, max]")
    print(f"{'parameters':>12} {'MB':>8} {'on_ray':>24} {'simulate':>24}")
    with nodes(2):
        for d in (1_000, 25_000, 250_000, 1_000_000, 10_000_000):
            rounds = 45 if d < 10_000_000 else 15
            args = (fl.FedAvg(), spheres(4), fl.GD(0.1, 1), np.zeros(d, np.float32), rounds)
            there = seconds_of_rounds(fl.on_ray(*args, shards=2, plan=fl_plan(1)))
            here = seconds_of_rounds(fl.simulate(*args, plan=fl_plan(1)))
            print(f"{d:12,} {4 * d / 1e6:8.3g} {spread(there):>24} {spread(here):>24}", flush=True)
            found[d] = statistics.median(there)
    return found


def fl_plan(lanes: int) -> Any:
    from fedloom.engines.plan import Plan

    return Plan(lanes)


def _images(clients: int, each: int, features: int, classes: int) -> fl.FederatedData:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * each, features)).astype(np.float32)
    y = rng.integers(0, classes, clients * each)
    return fl.by_client(x, y, np.repeat(np.arange(clients), each))


def mlp() -> Callable[..., Iterator[Any]]:
    """Compute-bound: FedDyn's 2NN, 100 clients of 600 images, cohorts of 20, 5 epochs in batches of 50."""
    task = fl.Task("mlp", _images(100, 667, 784, 10), fl.models.mlp(784, 200, 200, 10)).load()
    args = (fl.FedAvg(), task.federation, fl.SGD(0.05, batch_size=50, epochs=5), task.w, 9)
    return lambda engine, **more: engine(*args, cohort=uniform(20), **more)


def logistic() -> Callable[..., Iterator[Any]]:
    """Small: logistic regression, 100 clients of 50 examples with 60 features, cohorts of 20, one epoch."""
    task = fl.Task("logistic", _images(100, 56, 60, 10), fl.models.logistic(60, 10)).load()
    args = (fl.FedAvg(), task.federation, fl.SGD(0.05, batch_size=10, epochs=1), task.w, 60)
    return lambda engine, **more: engine(*args, cohort=uniform(20), **more)


def scaling(turns: int = 3) -> None:
    """One node against two, in turns; also SCAFFOLD, whose memories have a home."""
    scaffold = fl.Task("mlp", _images(100, 667, 784, 10), fl.models.mlp(784, 200, 200, 10)).load()
    stateful = (fl.Scaffold(), scaffold.federation, fl.SGD(0.05, batch_size=50, epochs=5), scaffold.w, 9)
    workloads: dict[str, Callable[..., Iterator[Any]]] = {
        "2NN, FedAvg": mlp(),
        "2NN, SCAFFOLD": lambda engine, **more: engine(*stateful, cohort=uniform(20), **more),
        "logistic, FedAvg": logistic(),
    }
    times: dict[tuple[str, int], list[float]] = {(name, n): [] for name in workloads for n in (1, 2)}
    idle: dict[str, float] = {}
    for _ in range(turns):
        for n in (1, 2):
            with nodes(n):
                for name, work in workloads.items():
                    shards = 8
                    records = work(fl.on_ray, shards=shards)
                    times[name, n].append(statistics.median(_timed(records, idle, f"{name} {n}")))
    print("scaling: ms of a round (median of a run; over turns: median [min, max]), 8 shards")
    for name in workloads:
        one, two = times[name, 1], times[name, 2]
        ratios = [a / b for a, b in zip(one, two, strict=True)]
        print(
            f"{name:20} one node {spread(one):>22}  two nodes {spread(two):>22}  ratio {spread(ratios, 1)}"
            f"  idle with two {idle[f'{name} 2']:.0%}",
            flush=True,
        )


def _timed(records: Iterator[Any], idle: dict[str, float], name: str) -> list[float]:
    times, before = [], time.perf_counter()
    for record in records:
        now = time.perf_counter()
        times.append(now - before)
        before = now
        crew = record.clients.store.crew
        if record.round == 3:  # compiled by now
            crew.busy = crew.seconds = 0.0
        idle[name] = crew.idle
    return times[3:]


def population(clients: int = 100_000) -> None:
    """SCAFFOLD with a memory for each of 100,000 clients, logistic regression with 7,850 parameters."""

    def make() -> fl.Federation:
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(2 * clients, 784)).astype(np.float16), rng.integers(0, 10, 2 * clients)

        def loss(w: Vector, rows: Any, key: Any) -> jax.Array:
            x, y = rows
            weights, bias = w[:7840].reshape(784, 10), w[7840:]
            logits = x.astype(jnp.float32) @ weights + bias
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)[:, 0]

        return fl.examples((x, y), np.full(clients, 2), loss)

    with nodes(2):
        args = (fl.Scaffold(), make, fl.SGD(0.01, batch_size=2, epochs=1), np.zeros(7850, np.float32), 130)
        times, before = [], time.perf_counter()
        for record in fl.on_ray(*args, cohort=uniform(1000), shards=8):
            now = time.perf_counter()
            times.append(now - before)
            before, last = now, record
        met = len(last.clients)
        crew = last.clients.store.crew  # type: ignore[attr-defined]
        import ray

        resident = [ray.get(w.resident.remote()) for w in crew.workers.values()]
        began = time.perf_counter()
        import pathlib
        import tempfile

        with tempfile.TemporaryDirectory() as place:
            crew.save(pathlib.Path(place))
            written = sum(f.stat().st_size for f in pathlib.Path(place).iterdir())
        seconds = time.perf_counter() - began
        print(
            f"population: {clients:,} clients, cohorts of 1,000, {met:,} met; ms of a round {spread(times[10:])}; "
            f"workers' memory {', '.join(f'{r / 1e9:.2f} GB' for r in resident)}; checkpoint {written / 1e9:.2f} GB in "
            f"{seconds:.1f} s; {crew}",
            flush=True,
        )


def model(found: dict[int, float] | None = None) -> None:
    """On paper: a round of 10 s of work for each of 1,000 clients, models of 1 to 1,000 MB.

    Time of an exchange with M workers that send sums of b bytes to the driver, which adds them up: a + M * c * b, from
    the measured times of two workers. With a tree of sums of degree k: about log_k(M) * (a + k * c * b).
    """
    if found is None:
        found = exchange()
    sizes = np.array(sorted(found))
    a = found[int(sizes[0])]
    c = (found[int(sizes[-1])] - a) / (2 * 4 * float(sizes[-1]))  # seconds for a byte of one worker, both ways
    print(f"model: a = {1e3 * a:.1f} ms for an exchange, c = {1e9 * c:.2f} ns for a byte of the model and a worker")
    print(f"{'model':>8} {'machines':>9} {'work':>8} {'driver adds':>12} {'tree of 8':>10}   seconds of a round")
    for megabytes in (1, 100, 1000):
        for machines in (10, 100, 1000):
            work = 1000 * 10 / machines
            flat = a + machines * c * megabytes * 1e6
            tree = float(np.ceil(np.log(machines) / np.log(8))) * (a + 8 * c * megabytes * 1e6)
            print(f"{megabytes:5} MB {machines:9} {work:8.3g} {flat:12.3g} {tree:10.3g}", flush=True)


PARTS: dict[str, Callable[[], Any]] = {
    "exchange": exchange,
    "scaling": scaling,
    "population": population,
    "model": model,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    chosen = parser.parse_args().parts or list(PARTS)
    found = exchange() if "exchange" in chosen else None
    for part in chosen:
        if part == "model":
            model(found)
        elif part != "exchange":
            PARTS[part]()


if __name__ == "__main__":
    main()
