"""What follows runs as they go: progress reporters, and destinations for their rows."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Protocol

from fedloom.experiments.definition import Experiment
from fedloom.experiments.result import Result, Row


class Progress(Protocol):
    """A progress reporter of a study."""

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None: ...
    def row(self, name: str, experiment: Experiment, row: Row) -> None: ...
    def end(self, result: Result) -> None: ...
    def say(self, words: str) -> None: ...  # about the study as a whole
    def close(self) -> None: ...  # also after an interruption


class Sink(Protocol):
    """A destination for the rows of one run, besides its log."""

    def row(self, row: Row) -> None: ...
    def close(self) -> None: ...


OpenSink = Callable[[str, Experiment, pathlib.Path | None], Sink]
