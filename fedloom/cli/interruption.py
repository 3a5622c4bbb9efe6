"""Ctrl-C and SIGTERM, even where Python would lose them.

An exception that is raised in a destructor or in a callback of the garbage collector is lost, and JAX has such
callbacks. So an interruption is remembered, and raised again at the next row.
"""

import signal
import threading
from collections.abc import Sequence
from types import FrameType

from fedloom.experiments.definition import Experiment
from fedloom.experiments.result import Result, Row
from fedloom.experiments.study import Progress

_asked = threading.Event()


def listen() -> None:
    """Start to remember Ctrl-C, and SIGTERM, which ends a command in the same way."""
    _asked.clear()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _remember)


def _remember(number: int, frame: FrameType | None) -> None:
    _asked.set()
    raise KeyboardInterrupt


class Interruptible:
    """A progress reporter that raises an interruption that was lost."""

    def __init__(self, inner: Progress | None):
        self.inner = inner

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None:
        if self.inner is not None:
            self.inner.begin(runs)

    def row(self, name: str, experiment: Experiment, row: Row) -> None:
        if _asked.is_set():
            raise KeyboardInterrupt
        if self.inner is not None:
            self.inner.row(name, experiment, row)

    def end(self, result: Result) -> None:
        if self.inner is not None:
            self.inner.end(result)

    def say(self, words: str) -> None:
        if self.inner is not None:
            self.inner.say(words)

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()
