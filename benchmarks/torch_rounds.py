"""Rounds per second of PyTorch models, against a plain loop in PyTorch: run with nothing else running.

    python -m benchmarks.torch_rounds [--blocks 15] [CASE ...]

FedAvg with local SGD: by calls to PyTorch, compiled by torchax, with our own layers, and with PyTorch's own loop as the
solver (TorchLoop); each against the loop that one would write by hand, with the same clients, batch sizes, numbers of
steps and threads. All are in one process and take turns, a few rounds at a time, so that they meet the same machine.
"""

import argparse
import copy
import dataclasses
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

import fedloom as fl
from benchmarks.speed.bench import ALLOCATOR


@dataclasses.dataclass(frozen=True)
class Case:
    """Clients of equal sizes, and their local work."""

    network: Callable[[], nn.Module]
    ours: Callable[[], fl.models.Model]
    shape: tuple[int, ...]  # of an example, as PyTorch has it
    classes: int
    batch: int
    size: int = 200  # examples of a client
    clients: int = 50
    cohort: int = 10
    lr: float = 0.05
    rounds: int = 1  # of a block


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))


def cnn() -> nn.Module:
    """FedOpt's EMNIST network without its dropout."""
    convolutions = (nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(12 * 12 * 64, 128), nn.ReLU(), nn.Linear(128, 62))


def our_cnn() -> fl.models.Model:
    """Without dropout, too."""
    model = fl.models.emnist_cnn(62)
    return dataclasses.replace(model, apply=lambda p, x, key: model.apply(p, x, None))


OUR_MLP = lambda: fl.models.mlp(784, 200, 200, 10)  # noqa: E731
CASES = {
    "mlp, batches of 10": Case(mlp, OUR_MLP, (784,), 10, batch=10),
    "mlp, batches of 50": Case(mlp, OUR_MLP, (784,), 10, batch=50, size=600),
    "cnn, batches of 20": Case(cnn, our_cnn, (1, 28, 28), 62, batch=20, cohort=2),
}


class Plain:
    """The loop that one would write by hand."""

    def __init__(self, case: Case, x: np.ndarray, y: np.ndarray):
        self.case, self.model = case, case.network()
        data = zip(torch.from_numpy(x).split(case.size), torch.from_numpy(y).long().split(case.size), strict=True)
        self.data, self.rng = list(data), np.random.default_rng(0)

    def __call__(self) -> None:
        for _ in range(self.case.rounds):
            self.round()

    def round(self) -> None:
        parameters = list(self.model.parameters())
        server = [p.detach().clone() for p in parameters]
        mean = [torch.zeros_like(p) for p in server]
        for k in self.rng.choice(self.case.clients, self.case.cohort, replace=False):
            with torch.no_grad():
                for p, value in zip(parameters, server, strict=True):
                    p.copy_(value)
            self.train(*self.data[k])
            with torch.no_grad():
                for total, p in zip(mean, parameters, strict=True):
                    total.add_(p, alpha=1 / self.case.cohort)
        with torch.no_grad():
            for p, value in zip(parameters, mean, strict=True):
                p.copy_(value)

    def train(self, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.case.lr)
        for rows in torch.randperm(len(y)).split(self.case.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x[rows]), y[rows]).backward()
            optimizer.step()


class Simulated:
    """Blocks of rounds of one long run."""

    def __init__(self, case: Case, task: fl.tasks.Loaded, solver: fl.Solver):
        cohort = fl.cohorts.uniform(case.cohort)
        given = (fl.FedAvg(), task.federation, solver, task.w, 100_000)
        self.records = iter(fl.simulate(*given, cohort=cohort, chunk=case.rounds))

    def __call__(self) -> None:
        jax.block_until_ready(next(self.records).w)


def systems(case: Case) -> dict[str, Callable[[], None]]:
    rng = np.random.default_rng(0)
    n = case.clients * case.size
    x = rng.standard_normal((n, *case.shape), dtype=np.float32)
    y = rng.integers(0, case.classes, n, dtype=np.int32)
    data = fl.by_client(x, y, np.repeat(np.arange(case.clients), case.size), test=0)
    module = case.network()
    sgd = fl.SGD(lr=case.lr, batch_size=case.batch)
    loop = fl.TorchLoop(lambda p: torch.optim.SGD(p, lr=case.lr), batch_size=case.batch)

    def task(model: fl.models.Model) -> fl.tasks.Loaded:
        return fl.Task("bench", data, model).load()

    calls = task(fl.models.from_torch(copy.deepcopy(module), x[:2], compile=False))
    found: dict[str, Callable[[], None]] = {
        "plain loop": Plain(case, x, y),
        "calls": Simulated(case, calls, sgd),
        "TorchLoop": Simulated(case, calls, loop),
        "our layers": Simulated(case, task(case.ours()), sgd),
    }
    try:
        compiled = fl.models.from_torch(copy.deepcopy(module), x[:2], compile=True)
    except ValueError as error:
        print(f"torchax is left out: {error}", file=sys.stderr)
    else:
        found["torchax"] = Simulated(case, task(compiled), sgd)
    return found


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measured(case: Case, blocks: int) -> dict[str, list[float]]:
    """Seconds a round, block after block, of each system."""
    of = systems(case)
    for run in of.values():
        run()  # compiles
        run()
    times: dict[str, list[float]] = {name: [] for name in of}
    for _ in range(blocks):
        for name, run in of.items():
            times[name].append(seconds(run) / case.rounds)
    return times


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    named = re.search(r"model name\s*: (.*)", lines)
    return named[1] if named else platform.processor() or platform.machine()


def show(name: str, times: dict[str, list[float]]) -> None:
    plain = times["plain loop"]
    for system, taken in times.items():
        ratios = sorted(a / b for a, b in zip(plain, taken, strict=True))  # of blocks that followed each other
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        ratio: Any = statistics.median(plain) / statistics.median(taken)
        print(f"{name:<20} {system:<12} {1 / statistics.median(taken):>10.2f} {ratio:>8.2f}   {low:.2f} to {high:.2f}")


def main() -> None:
    if any(name not in os.environ for name in ALLOCATOR):  # the C library reads it when a process starts
        module = ["-m", "benchmarks.torch_rounds"]
        os.execve(sys.executable, [sys.executable, *module, *sys.argv[1:]], {**os.environ, **ALLOCATOR})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help=", ".join(CASES))
    parser.add_argument("--blocks", type=int, default=15)
    given = parser.parse_args()
    print(f"{processor()}, {os.cpu_count()} cores; torch {torch.__version__} with {torch.get_num_threads()} threads")
    print(f"{'case':<20} {'system':<12} {'rounds/s':>10} {'ratio':>8}   half of the blocks")
    for name in given.cases or CASES:
        show(name, measured(CASES[name], given.blocks))


if __name__ == "__main__":
    main()
