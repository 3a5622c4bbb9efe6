"""FedOpt's grid of 8 x 9 step sizes for FedAdam on small tasks: in one program, and one run after another.

python -m benchmarks.speed.grid [--rounds R]
"""

import argparse
import itertools
import os
import time
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import numpy as np  # noqa: E402

import fedloom as fl  # noqa: E402
from fedloom.engines.grid import simulate_grid  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--chunk", type=int, default=10)
    given = parser.parse_args()
    for name in ("synthetic-1-1", "digits"):
        measure(name, given.rounds, given.chunk)


def measure(name: str, rounds: int, chunk: int) -> None:
    task = fl.load(name)
    points = list(itertools.product(10.0 ** np.arange(-3, 1, 0.5), 10.0 ** np.arange(-3, 1.5, 0.5)))
    algorithms = [fl.FedAdam(lr=float(server)) for _, server in points]
    solvers = [fl.SGD(float(client), batch_size=10, epochs=1) for client, _ in points]
    options: dict[str, Any] = {"rounds": rounds, "chunk": chunk, "cohort": fl.cohorts.uniform(10)}

    def together() -> float:
        start = time.perf_counter()
        for record in simulate_grid(algorithms, task.federation, solvers, task.w, **options):
            record.w.block_until_ready()
        return time.perf_counter() - start

    def alone() -> float:
        start = time.perf_counter()
        for algorithm, solver in zip(algorithms, solvers, strict=True):
            for record in fl.simulate(algorithm, task.federation, solver, task.w, **options, on_nonfinite="drop"):
                record.w.block_until_ready()
        return time.perf_counter() - start

    compiled = together()
    one, all_alone = together(), alone()
    again = alone()
    print(f"{name}: {len(points)} points, {rounds} rounds, {task.w.size} parameters")
    print(f"in one program: {one:.2f} s (the first time, with compilation: {compiled:.2f} s)")
    print(
        f"one after another, compiled once: {again:.2f} s (with compilation {all_alone:.2f} s); ratio {again / one:.1f}"
    )


if __name__ == "__main__":
    main()
