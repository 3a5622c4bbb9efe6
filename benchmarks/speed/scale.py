"""What a round costs as the population and the cohort grow: logistic regression 784-10, 20 examples a client, batch 10.

python -m benchmarks.speed.scale [--populations 1000,1000000] [--cohorts 10,1000]

Clients own windows of one pool of examples, so that the data do not grow with the population; the memories of SCAFFOLD
do, and go to disk where they would not fit. Every population has a process of its own, for its peak of memory.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import jax

jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import fedloom as fl  # noqa: E402
from fedloom.data.empirical_risk import Examples  # noqa: E402
from fedloom.engines.memory_store import DiskStore  # noqa: E402
from fedloom.metrics import cross_entropy  # noqa: E402

POOL, EXAMPLES, CHUNK, CHUNKS = 60_000, 20, 5, 5


def federation(population: int) -> tuple[Examples, jax.Array]:
    model = fl.models.logistic(784, 10)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((POOL, 784), dtype=np.float32)
    made = Examples(
        store=(jnp.asarray(x), jnp.asarray(rng.integers(0, 10, POOL), jnp.int32)),
        order=None,
        offsets=rng.integers(0, POOL - EXAMPLES, population).astype(np.int32),
        sizes=np.full(population, EXAMPLES, np.int32),
        weights=np.full(population, 1 / population),
        capacity=EXAMPLES,
        width=EXAMPLES,
        loss_of=_loss,
        unravel=model.unravel,
    )
    return made, model.flat()


def _loss(params: dict[str, jax.Array], rows: tuple[jax.Array, jax.Array], key: jax.Array | None) -> jax.Array:
    return cross_entropy(fl.models.logistic(784, 10).apply(params, rows[0], key), rows[1])


def measure(population: int, cohorts: list[int]) -> None:
    made, w = federation(population)
    for m in cohorts:
        for algorithm in (fl.FedAvg(), fl.Scaffold()):
            times: list[float] = []
            run = fl.simulate(
                algorithm,
                made,
                fl.SGD(0.01, batch_size=10),
                w,
                (CHUNKS + 1) * CHUNK,
                cohort=fl.cohorts.uniform(m),
                chunk=CHUNK,
            )
            start = time.perf_counter()
            for record in run:
                record.w.block_until_ready()
                times.append((time.perf_counter() - start) / CHUNK)
                start = time.perf_counter()
            store = getattr(record.clients, "store", None)
            where = "disk" if isinstance(store, DiskStore) else "memory"
            print(
                json.dumps(
                    {
                        "population": population,
                        "cohort": m,
                        "method": type(algorithm).__name__,
                        "ms": statistics.median(times[1:]) * 1e3,
                        "memories": where if isinstance(algorithm, fl.Scaffold) else "none",
                        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                    }
                ),
                flush=True,
            )


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--populations", type=numbers, default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--cohorts", type=numbers, default=[10, 100, 1000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        measure(given.one, given.cohorts)
        return
    heads = ("population", "cohort", "method", "ms/round", "ms/client", "memories", "peak MB")
    print("{:>10} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8}".format(*heads))
    for population in given.populations:
        cohorts = ",".join(map(str, given.cohorts))
        command = [sys.executable, "-m", "benchmarks.speed.scale", f"--one={population}", f"--cohorts={cohorts}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for text in process.stdout:
                r = json.loads(text)
                print(
                    f"{r['population']:>10,} {r['cohort']:>6,} {r['method']:>9} {r['ms']:>9.2f} "
                    f"{r['ms'] / r['cohort']:>9.3f} {r['memories']:>9} {r['peak_mb']:>8.0f}",
                    flush=True,
                )
        if process.returncode:
            sys.exit(process.returncode)


if __name__ == "__main__":
    main()
