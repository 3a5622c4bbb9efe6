"""How long splits take, and how much memory a million clients do.

python benchmarks/scale.py
"""

import resource
import time

import numpy as np

import fedloom as fl


def main() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 60_000)
    start = time.perf_counter()
    fl.splits.dirichlet(labels, 1000, 0.3, seed=0)
    print(f"Dirichlet(0.3), 60,000 labels, 1,000 clients: {time.perf_counter() - start:.3f} s")

    n, start = 1_000_000, time.perf_counter()
    data = fl.data.synthetic(1.0, 1.0, clients=n, features=10, classes=5, sizes=np.full(n, 4), seed=0)
    print(
        f"{n:,} clients with {len(data.train[1]) + len(data.test[1]):,} examples: {time.perf_counter() - start:.1f} s"
    )
    task = fl.Task("a million", data, fl.models.logistic(10, 5)).load()
    run = fl.simulate(
        fl.Scaffold(), task.federation, fl.SGD(0.1, batch_size=2), task.w, 20, cohort=fl.cohorts.uniform(100)
    )
    next(run)  # compiles
    start = time.perf_counter()
    *_, last = run
    print(f"a round of SCAFFOLD with 100 of them: {(time.perf_counter() - start) / 19 * 1000:.1f} ms")
    start = time.perf_counter()
    task.evaluate(last.w, ["train", "test"])
    task.by_client(last.w)
    print(f"evaluation, overall and by client: {time.perf_counter() - start:.1f} s")
    print(f"largest size of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
