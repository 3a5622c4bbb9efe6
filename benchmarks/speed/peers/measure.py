"""What the scripts of all peers share: their arguments, the peak of memory, and the line of JSON they end with."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.speed.workloads import WORKLOADS, Workload

CORES = os.cpu_count() or 1


def arguments(workers: bool = False) -> argparse.Namespace:
    """Those of every script. `workers`: processes that train clients, for a peer that can use several."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3, help="rounds to time")
    parser.add_argument("--warmup", type=int, default=1, help="rounds before those")
    if workers:
        parser.add_argument(
            "--workers", type=int, help="processes that train; default: one, then one per core, the better"
        )
    given = parser.parse_args()
    if given.rounds < 1 or given.warmup < 1:
        parser.error("rounds and warmup must be at least 1: the first round compiles, starts workers or evaluates")
    return given


def peak_mb() -> float:
    """Sum, over this process and all below it that still run, of each one's peak of resident memory."""
    status = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = [line.split(":") for line in path.read_text().splitlines()]
        except OSError:  # it has ended
            continue
        status[int(path.parent.name)] = {line[0]: line[1].split() for line in lines}
    family = {os.getpid()}
    while more := {pid for pid, s in status.items() if int(s["PPid"][0]) in family} - family:
        family |= more
    return round(sum(int(status[pid]["VmHWM"][0]) for pid in family if "VmHWM" in status[pid]) / 1024, 1)


def report(
    system: str,
    packages: tuple[str, ...],
    workload: Workload,
    seconds: list[float],
    steps: list[int],
    workers: int = 1,
    peak: float | None = None,
) -> None:
    """Print the result as one line of JSON."""
    result = {
        "system": system,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "workload": workload.name,
        "workers": workers,
        "seconds": seconds,
        "steps": steps,
        "peak_mb": peak_mb() if peak is None else peak,
    }
    sys.stderr.flush()
    print(json.dumps(result), flush=True)


def best_of_workers(module: str, given: argparse.Namespace) -> None:
    """Run the module with one worker and with one per core, and print the result with the smaller median."""
    results = []
    for workers in sorted({1, CORES}):
        command = [sys.executable, "-m", module, given.workload, f"--rounds={given.rounds}", f"--warmup={given.warmup}"]
        done = subprocess.run([*command, f"--workers={workers}"], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.returncode)  # it has said why
        results.append(json.loads(done.stdout.splitlines()[-1]))
    best = min(results, key=lambda result: statistics.median(result["seconds"]))
    best["tried"] = {str(r["workers"]): statistics.median(r["seconds"]) for r in results}
    print(json.dumps(best), flush=True)
