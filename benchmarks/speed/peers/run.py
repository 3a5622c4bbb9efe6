"""Run the peers' scripts on a workload, each in its own environment, and check that they do the same work.

python -m benchmarks.speed.peers.run WORKLOAD [--rounds R] [--warmup W] [--directory D]
"""

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.speed.peers import environments
from benchmarks.speed.workloads import WORKLOADS, Workload

ROOT = Path(__file__).parents[3]
SCRIPTS = {"torch": "torch_loop", "flower": "flower", "pfl": "pfl_research", "fedjax": "fedjax_peer"}


def run(workload: Workload, rounds: int, warmup: int, directory: Path = environments.DEFAULT) -> dict[str, Any]:
    """Each peer's result by its name: see measure.report. This process's environment variables are passed on.

    A peer that could not be installed or run has instead a sentence under "failed", with the last lines it said. One
    that takes other numbers of steps than the workload's cohorts ask for raises: nothing can be compared then.
    """
    results: dict[str, Any] = {}
    for peer in SCRIPTS:
        try:
            results[peer] = run_peer(peer, workload, rounds, warmup, directory)
        except RuntimeError as error:
            results[peer] = {"system": peer, "workload": workload.name, "failed": str(error)}
    return results


def run_peer(
    peer: str, workload: Workload, rounds: int, warmup: int, directory: Path = environments.DEFAULT
) -> dict[str, Any]:
    """One peer's result; RuntimeError if it fails, ValueError if it takes other numbers of steps."""
    python = environments.make(peer, directory)
    script = [str(python), "-m", f"benchmarks.speed.peers.{SCRIPTS[peer]}"]
    command = [*script, workload.name, f"--rounds={rounds}", f"--warmup={warmup}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ)
    if done.returncode:
        said = environments.last_lines(done.stderr)
        raise RuntimeError(f"{peer} failed on {workload.name} with exit code {done.returncode}; it said last:\n{said}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    check_steps(result, workload, rounds, warmup)
    return result


def check_steps(result: dict[str, Any], workload: Workload, rounds: int, warmup: int) -> None:
    """All peers let us choose the cohorts, so their own counts must be those of the workload's cohorts."""
    cohorts = workload.cohorts(warmup + rounds)[warmup:]
    expected = [sum(workload.steps(client) for client in cohort) for cohort in cohorts]
    if result["steps"] != expected or len(result["seconds"]) != rounds:
        raise ValueError(
            f"{result['system']} took {result['steps']} SGD steps in the {len(result['seconds'])} timed rounds of "
            f"{workload.name}, but the workload asks for {expected}; its times cannot be compared"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=environments.DEFAULT)
    given = parser.parse_args()
    for result in run(WORKLOADS[given.workload], given.rounds, given.warmup, given.directory).values():
        print(json.dumps(result))


if __name__ == "__main__":
    main()
