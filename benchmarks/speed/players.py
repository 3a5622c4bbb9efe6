"""The side that measures: processes that take turns.

A player is a process that runs rounds when it is told to (see turns.py). It is frozen, with all processes below it,
while it is not its turn, so that nobody uses the machine but the one whose turn it is.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time
from typing import Any

from benchmarks.speed import load

ROOT = pathlib.Path(__file__).parents[2]
PATIENCE = 600.0  # seconds for one answer


class PlayerFailed(Exception):
    """A player ended or did not answer; with what it said last."""


@dataclasses.dataclass(frozen=True)
class Block:
    """One turn: rounds in a row."""

    rounds: int
    seconds: float  # by the player's own clock
    cpu: float  # CPU seconds of the player and all below it
    others: float  # cores that all else used meanwhile, on average
    steps: list[int]  # SGD steps of all clients in each round


class Player:
    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (until it is ended)
        self.text = b""
        # In a group of its own, whose members the kernel continues and ends if this process should be killed.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            process_group=0,
        )

    def ready(self) -> dict[str, Any]:
        """Wait until it is ready, and freeze it; returns what it says about itself."""
        said = self._line()
        load.send(self.process.pid, signal.SIGSTOP)
        return said

    def play(self, rounds: int) -> Block:
        pid, stdin = self.process.pid, self.process.stdin
        assert stdin is not None
        cpu, busy, start = load.cpu_seconds(pid), load.busy_seconds(), time.perf_counter()
        load.send(pid, signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):  # _line says why
            stdin.write(b"go %d\n" % rounds)
            stdin.flush()
        said = self._line()
        load.send(pid, signal.SIGSTOP)
        cpu, busy = load.cpu_seconds(pid) - cpu, load.busy_seconds() - busy
        others = max(busy - cpu, 0) / (time.perf_counter() - start)
        return Block(rounds, said["seconds"], cpu, others, said["steps"])

    def end(self) -> None:
        load.send(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # those whose parent had ended before
        self.process.communicate()
        self.errors.close()

    def _line(self) -> Any:
        """The next line of JSON; what libraries print while they are imported is skipped."""
        assert self.process.stdout is not None
        until = time.monotonic() + PATIENCE
        out = self.process.stdout.fileno()
        while True:
            while b"\n" in self.text:
                line, self.text = self.text.split(b"\n", 1)
                if line.startswith(b"{"):
                    return json.loads(line)
            if select.select([out], [], [], 0.5)[0] and (got := os.read(out, 65536)):
                self.text += got
            elif self.process.poll() is not None:  # processes below it may still have the pipe open
                raise PlayerFailed(f"{self.name} ended; {self._last_words()}")
            elif time.monotonic() > until:
                raise PlayerFailed(f"{self.name} did not answer within {PATIENCE:.0f} s; {self._last_words()}")

    def _last_words(self) -> str:
        self.errors.seek(0)
        return "it said last:\n" + "\n".join(self.errors.read().splitlines()[-25:])
