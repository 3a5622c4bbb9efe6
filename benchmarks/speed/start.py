"""How soon `fedloom run digits --algorithm fedavg --rounds 20` shows its result, with the cache of an earlier run.

python -m benchmarks.speed.start [--turns N] [CHECKOUT ...]

Every time is that of a new process until the line of the result. Other checkouts of FedLoom take turns with this one.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = str(pathlib.Path(__file__).parents[2])
COMMAND = [sys.executable, "-m", "fedloom.cli", "run", "digits", "--algorithm", "fedavg", "--rounds", "20"]


def seconds(checkout: str) -> float:
    """From the start of a process to its result line."""
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        process = subprocess.Popen(
            COMMAND,
            cwd=place,
            env=os.environ | {"PYTHONPATH": checkout},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        found = next((time.perf_counter() for line in process.stdout if line.startswith("[1/1]")), None)
        process.communicate()
        if found is None:
            raise SystemExit(f"{checkout}: the command printed no result.")
        return found - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("checkouts", nargs="*")
    given = parser.parse_args()
    checkouts = [HERE, *map(os.path.abspath, given.checkouts)]
    for checkout in checkouts:
        seconds(checkout)  # fills the cache
    times: dict[str, list[float]] = {checkout: [] for checkout in checkouts}
    for _ in range(given.turns):
        for checkout in checkouts:
            times[checkout].append(seconds(checkout))
    for checkout, own in times.items():
        ratios = [a / b for a, b in zip(own, times[HERE], strict=True)]
        print(
            f"{checkout}: {min(own):.2f} / {statistics.median(own):.2f} / {max(own):.2f} s (minimum, median, maximum), "
            f"{statistics.median(ratios):.2f} times as long as this one"
        )


if __name__ == "__main__":
    main()
