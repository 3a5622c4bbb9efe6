"""Sinks: destinations for the rows of a run, besides its log. TensorBoard, MLflow and Weights & Biases are extras.

A run never fails because of a sink. `sink` checks that a sink can be used, before anything is run; a later failure is
a warning, and the run continues without the sink.
"""

import functools
import importlib
import importlib.util
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from fedloom.experiments.definition import Experiment, method_name
from fedloom.experiments.result import Row
from fedloom.experiments.run_directory import read_rows
from fedloom.experiments.study import OpenSink
from fedloom.experiments.until import has_ended
from fedloom.hyperparameters import nearest

Ending = Literal["finished", "diverged", "stopped"]


class Writer(Protocol):
    """One run in one library, made from the run's name, its settings and its directory.

    The module of a sink has a `Writer`, and a function `check_usable` that raises if the library cannot be used.
    """

    def numbers(self, round: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a row."""

    def diverged(self, round: int, words: str) -> None:
        """Say that the run diverged, and why."""

    def close(self, ending: Ending) -> None:
        """Finish the run."""


class _Sink:
    """Passes the rows of one run to a writer. The first row opens it, so a run without rows leaves no trace."""

    def __init__(self, sink: str, name: str, experiment: Experiment, directory: pathlib.Path | None):
        self.sink, self.experiment, self.directory = sink, experiment, directory
        self.run = f"{name or method_name(experiment.algorithm)}/seed-{experiment.seed}"
        self.writer: Writer | None = None
        self.failed = False
        self.rows = [] if directory is None else read_rows(directory)  # also those of earlier processes
        self.ending: Ending = "stopped"

    def row(self, row: Row) -> None:
        if self.failed:
            return
        try:
            self.writer = self.writer or self._open()
            if "diverged" in row:
                self.ending = "diverged"
                self.writer.diverged(row["round"], row["diverged"])
            else:
                self.rows.append(row)
                over = has_ended(self.rows, self.experiment.rounds, self.experiment.until)
                self.ending = "finished" if over else "stopped"
                self.writer.numbers(row["round"], numbers(row))
        except Exception as error:  # whatever a library raises
            self._fail(error)

    def close(self) -> None:
        if self.writer is None or self.failed:  # closing one that failed could delay the run again
            return
        try:
            self.writer.close(self.ending)
        except Exception as error:
            self._fail(error)

    def _open(self) -> Writer:
        module = importlib.import_module(f"{__name__}.{self.sink}")
        return module.Writer(self.run, flat(self.experiment.to_plain()), self.directory)

    def _fail(self, error: Exception) -> None:
        self.failed = True
        warnings.warn(
            f"The sink {self.sink!r} failed and will get no more rows of {self.run}; the run continues. "
            f"{type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )


SINKS: dict[str, OpenSink] = {name: functools.partial(_Sink, name) for name in ("tensorboard", "mlflow", "wandb")}


def sink(name: str) -> OpenSink:
    """The sink with that name, for `run_all(..., sinks=[...])`, after a check that it can be used."""
    if name not in SINKS:
        raise ValueError(f"There is no sink {name!r}.{nearest(name, SINKS)}")
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:  # a folder with that name is not the library
        raise ValueError(f"The sink {name!r} needs an extra: pip install 'fedloom[{name}]'.")
    try:
        importlib.import_module(f"{__name__}.{name}").check_usable()
    except Exception as error:  # whatever a library raises
        raise ValueError(f"The sink {name!r} cannot be used: {error}") from error
    return SINKS[name]


def numbers(row: Row) -> dict[str, float]:
    """The numbers of a row that can be plotted."""
    return {k: v for k, v in row.items() if k != "round" and isinstance(v, int | float) and not isinstance(v, bool)}


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one: {"solver": {"lr": 0.1}} becomes {"solver.lr": 0.1}. Lists become text."""
    settings: dict[str, Any] = {}
    for key, value in plain.items():
        if isinstance(value, Mapping):
            settings |= flat(value, f"{prefix}{key}.")
        else:
            settings[prefix + key] = value if isinstance(value, bool | int | float | str) else str(value)
    return settings
