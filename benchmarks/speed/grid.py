"""FedOpt's grid of 8 x 9 step sizes for FedAdam on small tasks: in one program, and one run after another.

python -m benchmarks.speed.grid [--rounds R] [--repeat N]

Every time is that of a new process, without imports and data: with an empty cache of compiled programs, and with a full
one, as for a user who does the same again. The last time is the second in one process, where nothing is compiled.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

TASKS = ("synthetic-1-1", "digits")
WAYS = ("together", "alone")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--chunk", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3, help="the two ways take turns so many times")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--one", help=argparse.SUPPRESS)  # task,way,cache: what a new process measures
    given = parser.parse_args()
    if given.one:
        name, way, cache = given.one.split(",")
        print(json.dumps(measured(name, way, cache, given.rounds, given.chunk)))
        return
    for task in given.tasks.split(","):
        times: dict[str, list[list[float]]] = {way: [] for way in WAYS}
        for _ in range(given.repeat):
            for way in WAYS:
                times[way].append(in_new_processes(task, way, given.rounds, given.chunk))
        show(task, given.rounds, times)


def in_new_processes(task: str, way: str, rounds: int, chunk: int) -> list[float]:
    """Seconds with an empty cache, with a full one, and once more in the same process."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "benchmarks.speed.grid", "--one", f"{task},{way},{cache}"]
        command += ["--rounds", str(rounds), "--chunk", str(chunk)]
        first, second = (json.loads(subprocess.check_output(command).splitlines()[-1]) for _ in range(2))
    return [first[0], second[0], min(first[1], second[1])]


def show(task: str, rounds: int, times: dict[str, list[list[float]]]) -> None:
    print(f"{task}, 72 points, {rounds} rounds; seconds, minimum / median:")
    for i, when in enumerate(("empty cache", "full cache", "nothing to compile")):
        together, alone = ([row[i] for row in times[way]] for way in WAYS)
        ratios = [b / a for a, b in zip(together, alone, strict=True)]
        words = [f"{min(x):.2f} / {statistics.median(x):.2f}" for x in (together, alone, ratios)]
        print(f"  {when}: in one program {words[0]}; one after another {words[1]}; ratio {words[2]}", flush=True)


def measured(name: str, way: str, cache: str, rounds: int, chunk: int) -> tuple[float, float]:
    """Seconds of the first time in this process, and of the second."""
    import jax

    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

    import numpy as np

    import fedloom as fl
    from fedloom.engines.grid import simulate_grid

    task = fl.load(name)
    points = list(itertools.product(10.0 ** np.arange(-3, 1, 0.5), 10.0 ** np.arange(-3, 1.5, 0.5)))
    algorithms = [fl.FedAdam(lr=float(server)) for _, server in points]
    solvers = [fl.SGD(float(client), batch_size=10, epochs=1) for client, _ in points]
    given: tuple[Any, Any] = (task.federation, task.w)
    options: dict[str, Any] = {"rounds": rounds, "chunk": chunk, "cohort": fl.cohorts.uniform(10)}

    def together() -> None:
        for record in simulate_grid(algorithms, given[0], solvers, given[1], **options):
            record.w.block_until_ready()

    def alone() -> None:
        for algorithm, solver in zip(algorithms, solvers, strict=True):
            for record in fl.simulate(algorithm, given[0], solver, given[1], **options, on_nonfinite="drop"):
                record.w.block_until_ready()

    run = {"together": together, "alone": alone}[way]
    return seconds(run), seconds(run)


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
