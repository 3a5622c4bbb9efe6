"""Are plans chosen well on a busy machine? Choices under load, judged by quiet timings of all plans.

python -m benchmarks.speed.plans [--choices N] [--workloads NAME,...]

All plans that could be chosen take turns first, with nothing else running, and have their shortest times. Then plans
are chosen while other processes are busy for moments of random length.
"""

import argparse
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.speed.fedloom_run import ENDLESS, setting
from benchmarks.speed.workloads import WORKLOADS
from fedloom import FedAvg
from fedloom.engines import choose_plan
from fedloom.engines.checks import checked
from fedloom.engines.plan import Plan
from fedloom.engines.run import Run
from fedloom.engines.time_plans import Stopwatch

TURNS = 15  # of each plan in the quiet timings
BURSTS = "import random, sys, time; r = random.Random(int(sys.argv[1]))\nwhile True:\n"
BURSTS += " end = time.time() + r.uniform(0.02, 2)\n while time.time() < end: pass\n time.sleep(r.uniform(0.02, 2))"


@contextlib.contextmanager
def load(seed: int) -> Iterator[None]:
    """One or two processes that are busy half of the time."""
    count = random.Random(seed).choice((1, 2))
    busy = [subprocess.Popen([sys.executable, "-c", BURSTS, str(10 * seed + i)]) for i in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def quiet_times(run: Run) -> dict[Plan, float]:
    """The shortest time of every plan that `measure` may try."""
    operations = choose_plan.step_operations(run)
    watch = Stopwatch(run, operations * choose_plan.steps_of_round(run))
    plans = [plan for group in choose_plan.plans_to_try(run, operations) for plan in group]
    looks = {plan: watch.prepare(plan) for plan in plans}
    good = [plan for plan in plans if looks[plan] < 2 * min(looks.values())]
    times: dict[Plan, list[float]] = {plan: [] for plan in good}
    for _ in range(TURNS):
        for plan in good:
            times[plan].append(watch.seconds(plan))
    return {plan: min(of) for plan, of in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--choices", type=int, default=20)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    given = parser.parse_args()
    names = given.workloads.split(",")
    runs = {}
    for name in names:
        federation, solver, w, cohort = setting(WORKLOADS[name])
        runs[name] = checked(FedAvg(), federation, solver, w, ENDLESS, cohort=cohort)
    times = {name: quiet_times(run) for name, run in runs.items()}
    worst = 0.0
    for i in range(given.choices):
        name = names[i % len(names)]
        start = time.perf_counter()
        with load(i):
            choice = choose_plan.measured(runs[name])
        best = min(times[name].values())
        slower = times[name].get(choice.plan, float("inf")) / best
        worst = max(worst, slower)
        fastest = min(times[name], key=times[name].__getitem__)
        words = "clear" if choice.clear else "not clear"
        print(
            f"{name}: {choice.plan} ({words}), {slower:.3f} times as long as {fastest}; "
            f"{time.perf_counter() - start:.1f} s",
            flush=True,
        )
    print(f"{given.choices} choices under load: at most {worst:.3f} times as long as the fastest plan")


if __name__ == "__main__":
    main()
