"""A million events of a tiny task: how long the asynchronous engine takes, on the host and in all.

python -m benchmarks.speed.events [--updates N]
"""

import argparse
import itertools
import time

import jax.numpy as jnp
import numpy as np

import fedloom as fl
from fedloom.engines.timeline import Timeline
from fedloom.systems import Work
from fedloom.systems.compute import exponential


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1_000_000)
    updates = parser.parse_args().updates
    federation, w = fl.quadratics(clients=20, dimension=10), jnp.ones(10)
    system = fl.System(compute=exponential(), speeds=2.0)
    solver, cohort = fl.GD(lr=0.1, steps=5), fl.cohorts.everyone()

    draw = cohort.over(federation.weights)
    courses = system.over(Work(80, 80, np.full(20, 5.0)), 0)
    rng = np.random.default_rng(0)
    timeline = Timeline(courses, lambda wave: draw(rng, wave), federation.weights, 20, 1)
    start = time.perf_counter()
    for _ in itertools.islice(timeline, updates):
        pass
    print(f"the order of {updates:,} events: {time.perf_counter() - start:.1f} s")

    start = time.perf_counter()
    records = fl.events(fl.FedDR(0.5, 0.5), federation, solver, w, updates, system=system, chunk=10_000)
    clock = [record.clock for record in records][-1]
    seconds = time.perf_counter() - start
    assert clock is not None
    print(f"with all that clients compute: {seconds:.1f} s, {seconds / updates * 1e6:.0f} us each")
    print(f"{clock.seconds:,.0f} simulated seconds, staleness up to {len(clock.staleness) - 1}")


if __name__ == "__main__":
    main()
