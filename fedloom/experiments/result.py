"""The result of a run: its log, and what follows from it."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.engines.clock import FATES, Clock
from fedloom.engines.records import Counters, Record
from fedloom.experiments import checkpoint
from fedloom.experiments.definition import Experiment
from fedloom.experiments.trained import Trained, trained
from fedloom.experiments.until import has_ended
from fedloom.hyperparameters import nearest
from fedloom.models.adapters import library
from fedloom.problem import Vector
from fedloom.tasks import Loaded
from fedloom.tasks.evaluated import TEST_BLOCKS

# A row of a log has "round", the metrics, and totals since the start: the counters under these names.
COUNTERS = {name.replace("_", " "): name for name in Counters._fields if name != "rounds"}
Row = dict[str, Any]


def clock_columns(clock: Clock | None) -> Row:
    """The columns of simulated time: totals since the start."""
    if clock is None:
        return {}
    jobs = {"jobs": clock.jobs, "replies": clock.replies, **{f"jobs {fate}": getattr(clock, fate) for fate in FATES}}
    return {
        "simulated seconds": clock.seconds,
        "idle seconds": clock.idle,
        "wasted seconds": clock.wasted,
        **jobs,
        "duplicates": clock.duplicates,
        "staleness": list(clock.staleness),
    }


def federation_columns(record: Record) -> Row:
    """The columns of a federation: real time, what became of jobs, and the bytes that really travelled."""
    clock, (down, up) = record.clock or Clock(), record.traffic or (0, 0)
    return {
        "seconds": clock.seconds,
        "jobs": clock.jobs,
        "replies": clock.replies,
        "jobs late": clock.late,
        "jobs lost": clock.lost,
        "staleness": list(clock.staleness),
        "travelled down": down,
        "travelled up": up,
    }


EVALUATED = "evaluated"  # of a federation: the share of the population behind the metrics of a row

# The other columns of a row.
NOT_METRICS = frozenset(
    (
        *("round", "residual", TEST_BLOCKS, EVALUATED, *COUNTERS),
        *clock_columns(Clock()),
        *federation_columns(Record(0, None, {})),
    )
)


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """A run, finished or not. Results with the same name are repetitions of one experiment with different seeds."""

    name: str
    experiment: Experiment
    rows: Sequence[Row]  # one for each evaluated round; a run that diverged ends with a row that says why
    about: dict[str, Any]  # clients, parameters, metrics, versions, machine: see `about.py`
    seconds: float = 0.0  # spent, including compilation
    directory: pathlib.Path | None = None
    w: np.ndarray | Vector | None = None  # the last model, unless the run diverged
    damaged: str | None = None  # why the run's directory cannot be read; then there are no rows
    memories: Mapping[int, Any] | None = None  # of the clients, if the run was not read from a directory

    @property
    def diverged(self) -> str | None:
        """Why the run was given up, if it was."""
        return self.rows[-1].get("diverged") if self.rows else None

    @property
    def finished(self) -> bool:
        """Whether the run reached its last round, or what it was to run until, or diverged."""
        return self.diverged is not None or has_ended(self.rows, self.experiment.rounds, self.experiment.until)

    @property
    def evaluated(self) -> list[Row]:
        """The rows that have metrics."""
        return [row for row in self.rows if "diverged" not in row]

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics, for example "train loss" and "test accuracy"."""
        return list(self.about["metrics"])

    def larger_is_better(self, metric: str) -> bool:
        """Whether larger values of the metric are better."""
        return bool(self.about["metrics"][metric])

    def column(self, name: str) -> np.ndarray:
        """A metric, a counter or one of the derived quantities, one entry for each evaluated round."""
        if name in DERIVED:
            return np.array([DERIVED[name](self, row) for row in self.evaluated], float)
        return np.array([row[name] for row in self.evaluated], float)

    @functools.cached_property
    def model(self) -> Trained:
        """The trained model."""
        if self.w is None:
            why = self.damaged or self.diverged or "it has no checkpoint yet."
            raise ValueError(f"{self.name}, seed {self.experiment.seed}, has no model: {why}")
        return trained(self.experiment.load(), self.w, self._facts())

    @property
    def params(self) -> Any:
        """The trained parameters as their library has them: see `Trained.params`."""
        return self.model.params

    def predict(self, x: Any) -> np.ndarray:
        """The predictions of the trained model for new inputs, or rows of a table: see `Trained.predict`."""
        return self.model.predict(x)

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write the trained model to a new file: .safetensors, .npz or .pt. `load_model` reads it."""
        return self.model.save(pathlib.Path(path))

    def client_model(self, client: int | str) -> Trained:
        """A client's own model, by its number or name, if the method keeps one: FedDR, FedPD and FedSplit do."""
        checked = self.experiment.check()
        algorithm, loaded = checked.run.algorithm, checked.loaded
        if algorithm.own_model(algorithm.init_client(loaded.w)) is None:
            raise ValueError(f"{self.name} does not keep a model for each client; FedDR, FedPD and FedSplit do.")
        k = client_number(client, loaded)
        if self.memories is None and self.directory is not None:
            found = checkpoint.read_memory(self.directory / checkpoint.CHECKPOINT, algorithm, loaded.w, k)
        else:
            found = (self.memories or {}).get(k)
        if found is None:
            raise ValueError(f"client {client!r} has no model of its own: it has not taken part yet.")
        return trained(loaded, algorithm.own_model(found), {**self._facts(), "client": client})

    def _facts(self) -> dict[str, Any]:
        return {"method": self.name, "seed": self.experiment.seed, "round": self.rows[-1]["round"] if self.rows else 0}

    def to_pandas(self) -> Any:
        """The log as a pandas DataFrame, with a row for each evaluated round."""
        return to_pandas([self])

    def _repr_html_(self) -> str:
        from fedloom.report.notebook import result_html  # imported late: drawing takes half a second to import

        return result_html(self)

    def first_reaches(self, metric: str, target: float) -> Row | None:
        """The first evaluated row at the target, which is what papers report. `evidence.reached` asks it to stay."""
        sign = 1 if self.larger_is_better(metric) else -1
        return next((row for row in self.evaluated if sign * row[metric] >= sign * target), None)


def client_number(client: int | str, loaded: Loaded) -> int:
    """The number of a client that is given by its number or its name."""
    names = None if loaded.data is None or loaded.data.split.names is None else loaded.data.split.names.tolist()
    if names is not None and str(client) in names:
        return int(names.index(str(client)))
    n = loaded.federation.clients
    if str(client).isdecimal() and int(client) < n:
        return int(client)
    known = nearest(str(client), names) if names is not None else f" They are numbered 0 to {n - 1}."
    raise ValueError(f"There is no client {client!r}.{known}")


def to_pandas(results: Sequence[Result]) -> Any:
    """The logs of several runs as one pandas DataFrame, with the columns "name" and "seed"."""
    pandas = library("pandas")
    lists = (TEST_BLOCKS, "staleness")  # which are no numbers
    return pandas.DataFrame(
        [
            {"name": r.name, "seed": r.experiment.seed, **{k: v for k, v in row.items() if k not in lists}}
            for r in results
            for row in r.rows
        ]
    )


def bytes_of_a_client(result: Result, row: Row) -> float:
    """Bytes down and up of a client that takes part in every exchange; clients transmit side by side."""
    trips = row["messages"] / 2
    return turns(result, row) * (row["bytes down"] + row["bytes up"]) / trips if trips else 0.0


def models_sent(result: Result, row: Row) -> float:
    """FedDyn's measure: rounds times the models that a client sends in each. A control variate counts as a model."""
    return turns(result, row) * models_of_a_reply(result, row)


def models_of_a_reply(result: Result, row: Row) -> float:
    trips = row["messages"] / 2
    return row["bytes up"] / trips / result.about["model bytes"] if trips else 0.0


def turns(result: Result, row: Row) -> float:
    """Exchanges; in an asynchronous run, the replies of a client that is always at work, on average."""
    if result.experiment.engine != "events":
        return float(row["exchanges"])
    return float(row["messages"] / 2 / room(result))


def room(result: Result) -> int:
    """How many clients can be at work at once; runs of earlier versions have not noted it."""
    noted = result.about.get("room")
    return noted if noted is not None else result.experiment.cohort.room(result.about["clients"])


DERIVED = {
    "bytes": lambda result, row: row["bytes down"] + row["bytes up"],
    "bytes of a client": bytes_of_a_client,
    "models": models_sent,
}
