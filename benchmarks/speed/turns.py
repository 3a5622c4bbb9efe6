"""The side of a system that is measured: it waits for its turn, runs a block of rounds, and says how long they took.

It says one line of JSON when it is ready, and after each line "go B" one about a block of B rounds. In between it is
frozen from outside (see players.py), whatever threads and processes it has. Standard library and NumPy only.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from benchmarks.speed import load
from benchmarks.speed.workloads import WORKLOADS

CORES = os.cpu_count() or 1


def arguments(workers: bool = False, modes: tuple[str, ...] = ()) -> argparse.Namespace:
    """Those of every script. `workers`, for one that can use several: how many of its own train clients."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    if workers:
        parser.add_argument("--workers", type=int, default=1)
    if modes:
        parser.add_argument("--mode", choices=modes, default=modes[0])
    return parser.parse_args()


class Turns:
    """wait, start, stop, answer, and so on, until the process is ended from outside.

    Standard output is for these lines alone: what libraries print there goes to standard error.
    """

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages
        self.facts: dict[str, Any] = {}  # to be said when ready
        self.said_ready = False
        self.seconds = 0.0
        self.lines = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def wait(self) -> int:
        """Wait for the next turn; returns its number of rounds."""
        if not self.said_ready:
            versions = {"python": platform.python_version()} | {name: version(name) for name in self.packages}
            self._say({"versions": versions, **self.facts})
            self.said_ready = True
        line = sys.stdin.readline()
        if not line:
            _end()
        word, rounds = line.split()
        assert word == "go"
        return int(rounds)

    def start(self) -> None:
        self.started = time.perf_counter()

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self.started

    def answer(self, steps: list[int]) -> None:
        """`steps`: SGD steps of all clients, in each round of the block."""
        self._say({"seconds": self.seconds, "steps": steps})

    def _say(self, what: dict[str, Any]) -> None:
        try:
            print(json.dumps(what), file=self.lines, flush=True)
        except BrokenPipeError:
            _end()


def _end() -> None:
    """Nobody is there any more: end the processes below this one, and this one with all its threads."""
    for pid in load.family(os.getpid()).keys() - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def serve(turns: Turns, play: Callable[[int], list[int]]) -> None:
    """For a system whose loop over rounds is ours: play(B) runs B rounds and returns the steps taken in each."""
    while True:
        rounds = turns.wait()
        turns.start()
        steps = play(rounds)
        turns.stop()
        turns.answer(steps)
