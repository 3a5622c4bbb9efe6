"""Seconds a round of the six workloads, and what they reach of the machine: `make bench`, `make bench-peers`.

python -m benchmarks.speed.bench [WORKLOAD ...] [--peers] [--out FILE]

Every workload runs in a process of its own, peers in their own environments, one after another and interleaved, so that
all meet the same machine; with one setting of the C library's allocator for all. Run it with nothing else running.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.speed.peers import environments
from benchmarks.speed.peers import run as peers
from benchmarks.speed.workloads import WORKLOADS, Workload

# Memory that is given back to the system between two steps has to be fetched page by page again.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
REPEATS = 2  # processes for each workload
PEER_ROUNDS = {"lr-mnist": 20, "lr-synthetic": 10}  # others: 3
WARMUP = 2  # rounds before those that count; FedLoom's are whole chunks


def fedloom(w: Workload, warmup: int, plan: str | None = None) -> Any:
    command = [sys.executable, "-m", "benchmarks.speed.fedloom_run", w.name]
    command += [f"--warmup={warmup}", *([] if plan is None else [f"--plan={plan}"])]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if done.returncode:
        raise RuntimeError(f"{w.name} failed:\n{environments.last_lines(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


def merged(runs: list[Any]) -> dict[str, Any]:
    """Several processes of one workload: all their rounds; the fraction of the matrix product's rate by the medians."""
    seconds = [s for run in runs for s in run["seconds"]]
    rate = statistics.median(run["matmul rate"] for run in runs)
    return {
        **runs[-1],
        "seconds": seconds,
        "matmul rate": rate,
        "fraction": runs[-1]["operations"] / statistics.median(seconds) / rate,
        "processes": len(runs),
    }


def line(w: Workload, r: dict[str, Any]) -> str:
    s = statistics.median(r["seconds"])
    return (
        f"{w.name:17} {s * 1e3:9.2f} {min(r['seconds']) * 1e3:9.2f} {w.cohort / s:10.0f} {r['fraction']:7.0%} "
        f"{r['start-up']:8.1f} {r['compilation']:8.1f} {r['peak_mb']:7.0f}  {r['plan']}"
    )


def typical(r: dict[str, Any]) -> float:
    """Seconds of a round."""
    return statistics.median(r["seconds"])


def same_rounds(w: Workload, runs: list[Any]) -> dict[str, Any]:
    """FedLoom's times to compare with: where rounds differ in work, those of the rounds that peers run too."""
    n = None if len(set(w.sizes)) == 1 else PEER_ROUNDS[w.name]
    return {"seconds": [s for run in runs for s in run["seconds"][:n]]}


def ratios(w: Workload, ours: dict[str, Any], others: dict[str, Any]) -> str:
    cells = []
    for name, r in others.items():
        cells.append(
            f"{name} failed"
            if "failed" in r
            else f"{name} {typical(r) * 1e3:.1f} ms, {typical(r) / typical(ours):.2f}x"
        )
    best = min((typical(r) for r in others.values() if "failed" not in r), default=float("nan"))
    return f"    {'; '.join(cells)}; the best peer / FedLoom = {best / typical(ours):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: all of {', '.join(WORKLOADS)}")
    parser.add_argument("--peers", action="store_true", help="also PyTorch loop, Flower, pfl and FedJAX")
    parser.add_argument("--environments", type=pathlib.Path, default=environments.DEFAULT)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench.json"))
    given = parser.parse_args()
    for name in given.workloads:
        if name not in WORKLOADS:
            parser.error(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    os.environ.update(ALLOCATOR)
    results: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        "allocator": ALLOCATOR,
        "workloads": {},
    }
    heads = ("workload", "median ms", "min ms", "clients/s", "matmul", "start s", "first s", "MB", "plan")
    print("{:17} {:>9} {:>9} {:>10} {:>7} {:>8} {:>8} {:>7}  {}".format(*heads), flush=True)
    for name in given.workloads or WORKLOADS:
        w = WORKLOADS[name]
        warmup = max(WARMUP, w.chunk)
        runs = [fedloom(w, warmup)]
        found: dict[str, Any] = {}
        if given.peers:
            rounds = PEER_ROUNDS.get(name, 3)
            found["peers"] = peers.run(w, rounds, WARMUP, given.environments)
        runs += [fedloom(w, warmup, plan=runs[0]["layout"]) for _ in range(REPEATS - 1)]
        ours = found["fedloom"] = merged(runs)
        results["workloads"][name] = found
        print(line(w, ours), flush=True)
        if given.peers:
            print(ratios(w, same_rounds(w, runs), found["peers"]), flush=True)
        given.out.write_text(json.dumps(results, indent=1))
    print(f"written to {given.out}")


def _processor() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
