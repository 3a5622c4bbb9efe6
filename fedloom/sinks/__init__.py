"""Sinks: where the rows of a run go besides its log. TensorBoard, MLflow and Weights & Biases, each an extra.

A run never fails because of a sink. Whether a sink can be used is found out by `sink`, before anything is run; what
fails later is a warning, and the run goes on without it.
"""

import functools
import importlib
import importlib.util
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from fedloom.experiments.experiment import Experiment
from fedloom.experiments.result import Row
from fedloom.experiments.run import default_name
from fedloom.experiments.study import OpenSink
from fedloom.hyperparameters import nearest

Ending = Literal["finished", "diverged", "stopped"]


class Writer(Protocol):
    """One run in one library. The module of a sink has a `Writer` and a function `prepare`, which raises if it must.

    It is made of the run's name, its settings and its directory.
    """

    def numbers(self, round: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a row."""

    def diverged(self, round: int, words: str) -> None:
        """Say that the run diverged, and why."""

    def close(self, ending: Ending) -> None:
        """Finish the run."""


class _Sink:
    """The rows of one run on their way to a writer, which the first of them opens: no rows, no traces."""

    def __init__(self, sink: str, name: str, experiment: Experiment, directory: pathlib.Path | None):
        self.sink, self.experiment, self.directory = sink, experiment, directory
        self.run = f"{name or default_name(experiment)}/seed-{experiment.seed}"
        self.writer: Writer | None = None
        self.failed = False
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
                self.ending = "finished" if row["round"] == self.experiment.rounds else "stopped"
                self.writer.numbers(row["round"], numbers(row))
        except Exception as error:  # whatever a library raises
            self._fail(error)

    def close(self) -> None:
        if self.writer is None or self.failed:  # one that failed would keep the run waiting again
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
            f"The sink {self.sink!r} failed and gets no more rows of {self.run}; the run goes on. "
            f"{type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )


SINKS: dict[str, OpenSink] = {name: functools.partial(_Sink, name) for name in ("tensorboard", "mlflow", "wandb")}


def sink(name: str) -> OpenSink:
    """The sink of that name, for `run_all(..., sinks=[...])`, after a check that it can be used."""
    if name not in SINKS:
        raise ValueError(f"There is no sink {name!r}.{nearest(name, SINKS)}")
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:  # a folder of that name is not the library
        raise ValueError(f"The sink {name!r} needs an extra: pip install 'fedloom[{name}]'.")
    try:
        importlib.import_module(f"{__name__}.{name}").prepare()
    except Exception as error:  # whatever a library raises
        raise ValueError(f"The sink {name!r} cannot be used: {error}") from error
    return SINKS[name]


def numbers(row: Row) -> dict[str, float]:
    """What a row has to plot."""
    return {k: v for k, v in row.items() if k != "round" and isinstance(v, int | float) and not isinstance(v, bool)}


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables within tables as one: {"solver": {"lr": 0.1}} becomes {"solver.lr": 0.1}. Lists become text."""
    settings: dict[str, Any] = {}
    for key, value in plain.items():
        if isinstance(value, Mapping):
            settings |= flat(value, f"{prefix}{key}.")
        else:
            settings[prefix + key] = value if isinstance(value, bool | int | float | str) else str(value)
    return settings
