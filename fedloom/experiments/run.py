"""Run one experiment: log, checkpoints, divergence. In a directory a run can be killed at any moment and resumed.

A directory has
* config.toml: the experiment, all fields resolved;
* about.json: the federation in figures, versions, machine;
* log.jsonl: a row for each evaluated round; equal experiments have equal logs, byte for byte;
* checkpoint.npz: the last checkpoint; rows of the log that came after it are cut off and written again;
* seconds.json: time spent, which is no part of the log.
"""

import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

from fedloom.engines import Clock, NonFiniteUpdate, Record, asynchronous, synchronous
from fedloom.engines.checks import resumed
from fedloom.engines.choose_plan import planned
from fedloom.engines.plan import Plan
from fedloom.experiments import checkpoint
from fedloom.experiments.about import about
from fedloom.experiments.experiment import Experiment, from_toml, name_of
from fedloom.experiments.files import DRAFT, only_one, write_whole
from fedloom.experiments.result import COUNTERS, Result, Row, on_clock
from fedloom.tasks import Loaded

CONFIG, ABOUT, LOG, CHECKPOINT, SECONDS = "config.toml", "about.json", "log.jsonl", "checkpoint.npz", "seconds.json"
EXPLODED = 1e3  # a training loss so many times above the first one, or above 1, will not come back

Watch = Callable[[Row], None]


def run(
    experiment: Experiment,
    directory: str | os.PathLike[str] | None = None,
    *,
    name: str = "",
    watch: Iterable[Watch] = (),
    checkpoint_seconds: float = 10.0,
) -> Result:
    """Run an experiment to its end.

    Args:
        experiment: what to run.
        directory: a new directory for config, log and checkpoints; None keeps the log in memory only.
        name: of the curve in reports; the algorithm's if not given.
        watch: functions that are called with every new row.
        checkpoint_seconds: time between checkpoints.
    """
    loaded = experiment.check()
    if directory is None:
        return Running(experiment, loaded, None, name, tuple(watch), checkpoint_seconds).go()
    plan(experiment, directory)
    return resume(directory, experiment=experiment, name=name, watch=watch, checkpoint_seconds=checkpoint_seconds)


def plan(experiment: Experiment, directory: str | os.PathLike[str]) -> None:
    """Make the directory of a run that has not started."""
    path = pathlib.Path(directory)
    text = experiment.to_toml().encode()
    if (path / CONFIG).exists():
        raise ValueError(f"{path} has a run already: `fedloom resume {path}` goes on with it; or take a new directory.")
    new_directory(path)
    write_whole(path / CONFIG, text)


def new_directory(path: pathlib.Path) -> None:
    """Make a directory, or take an empty one: nothing that is there is ever overwritten."""
    try:
        if path.exists() and (not path.is_dir() or any(p.suffix != DRAFT for p in path.iterdir())):
            what = "is not empty" if path.is_dir() else "is not a directory"
            raise ValueError(f"{path} is there already and {what}; take a new directory.")
        path.mkdir(parents=True, exist_ok=True)
        (path / f"try{DRAFT}").touch()
        (path / f"try{DRAFT}").unlink()
    except OSError as error:
        raise ValueError(f"Nothing can be written to {path}: {error.strerror}. Take another directory.") from error


def resume(
    directory: str | os.PathLike[str],
    *,
    experiment: Experiment | None = None,
    name: str = "",
    watch: Iterable[Watch] = (),
    checkpoint_seconds: float = 10.0,
) -> Result:
    """Go on with the run of a directory from its last checkpoint, bit by bit as if it had never stopped."""
    path = pathlib.Path(directory)
    config = read_config(path)
    if experiment is not None and experiment.to_toml() != config.to_toml():
        raise ValueError(f"{path / CONFIG} is another experiment than the one given; take a new directory.")
    experiment = experiment or config
    with only_one(path):
        if is_over(path, experiment):
            return read(path, name, experiment)
        return Running(experiment, experiment.check(), path, name, tuple(watch), checkpoint_seconds).go()


def read(directory: str | os.PathLike[str], name: str = "", experiment: Experiment | None = None) -> Result:
    """The result of a run, finished or not, as its directory has it."""
    path = pathlib.Path(directory)
    experiment = experiment or read_config(path)
    rows = _rows(path)
    if rows and not (path / ABOUT).exists():
        raise ValueError(f"{path / ABOUT} is missing: the run cannot be read without it.")
    facts = _json(path / ABOUT) if rows else {"metrics": {}}
    saved = path / CHECKPOINT
    model = None
    if saved.exists():
        checkpoint.check_config(saved, experiment.to_toml())
        model = checkpoint.read_model(saved) if not (rows and "diverged" in rows[-1]) else None
    return Result(name or default_name(experiment), experiment, rows, facts, _seconds(path), path, model)


def _seconds(path: pathlib.Path) -> float:
    return float(_json(path / SECONDS)["seconds"]) if (path / SECONDS).exists() else 0.0


def _json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from error


def read_config(path: pathlib.Path) -> Experiment:
    if not path.is_dir():
        raise ValueError(f"There is no directory {path}.")
    if not (path / CONFIG).is_file():
        raise ValueError(f"{path} is not the directory of a run: it has no {CONFIG}.")
    return from_toml((path / CONFIG).read_text(), str(path / CONFIG))


def default_name(experiment: Experiment) -> str:
    return name_of(experiment.algorithm)


def _rows(path: pathlib.Path) -> list[Row]:
    """The rows of the log; a last line without its end was being written when the run was killed."""
    if not (path / LOG).exists():
        return []
    try:
        return [json.loads(line) for line in (path / LOG).read_bytes().split(b"\n")[:-1]]
    except ValueError as error:
        raise ValueError(f"{path / LOG} is damaged: {error}.") from error


def is_over(path: pathlib.Path, experiment: Experiment) -> bool:
    rows = _rows(path)
    if rows and "diverged" in rows[-1]:
        return True
    if not (path / CHECKPOINT).exists():
        return False
    checkpoint.check_config(path / CHECKPOINT, experiment.to_toml())
    done = checkpoint.read_meta(path / CHECKPOINT)["round"] == experiment.rounds
    return done and bool(rows) and rows[-1]["round"] == experiment.rounds


class Running:
    """A run under way: its log and its checkpoints. `go` does it all; those who bring the records call the others."""

    def __init__(
        self,
        experiment: Experiment,
        loaded: Loaded,
        directory: pathlib.Path | None,
        name: str,
        watch: tuple[Watch, ...],
        checkpoint_seconds: float,
    ):
        self.experiment, self.loaded, self.directory, self.watch = experiment, loaded, directory, watch
        self.name = name or default_name(experiment)
        self.checkpoint_seconds = checkpoint_seconds
        self.rows: list[Row] = []
        self.log: BinaryIO | None = None
        self.about = about(loaded, experiment.own_models)
        self.plan: Plan | None = None  # chosen when the rounds begin; in a directory that has one, that one again
        self.share = 1.0  # of the time that passes; the others go on beside it
        self.spent = 0.0  # by earlier processes
        self.started = self.saved = time.monotonic()

    def go(self) -> Result:
        record = self.open()
        try:
            w = self._rounds(record)
        finally:
            self.close()
        return self.result(w)

    def open(self) -> Record | None:
        """Open the log, if there is a directory; the record of its last checkpoint."""
        return None if self.directory is None else self._open(self.directory)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def result(self, w: Any) -> Result:
        return Result(self.name, self.experiment, self.rows, self.about, self._seconds(), self.directory, w)

    def _open(self, directory: pathlib.Path) -> Record | None:
        """Open the log where the last checkpoint left it, or at its beginning."""
        e, record, length = self.experiment, None, 0
        if (directory / CHECKPOINT).exists():
            record, length = checkpoint.load(
                directory / CHECKPOINT, e.algorithm, self.loaded.w, self.loaded.federation.clients, e.to_toml()
            )
        self.spent = _seconds(directory)
        if length and (not (directory / LOG).exists() or (directory / LOG).stat().st_size < length):
            raise ValueError(
                f"{directory / LOG} is shorter than its checkpoint says: rows were removed. Run the experiment again "
                "in a new directory."
            )
        if record is not None:
            first, values = _rows(directory)[0], self.loaded.evaluate(self.loaded.w)
            if json.dumps(values) != json.dumps({name: first.get(name) for name in values}):
                raise ValueError(
                    f"{directory}: the initial model is not worth what it was when the run began, so the task or its "
                    "data have changed since. Run the experiment again in a new directory."
                )
        if (directory / ABOUT).exists() and (plan := _json(directory / ABOUT).get("plan")):
            self.plan = Plan(**plan)  # rounding depends on it
        self._write_about()
        self.log = open(directory / LOG, "a+b")  # noqa: SIM115 (`close` closes it)
        self.log.truncate(length)
        self.rows = _rows(directory)
        return record

    def _write_about(self) -> None:
        if self.plan is not None:
            plan = dataclasses.asdict(self.plan)
            self.about = {**self.about, "plan": plan, "machine": {**self.about["machine"], "plan": str(self.plan)}}
        if self.directory is not None:
            write_whole(self.directory / ABOUT, json.dumps(self.about, indent=1).encode())

    def _rounds(self, start: Record | None) -> Any:
        e, loaded = self.experiment, self.loaded
        w = loaded.w if start is None else start.w
        if start is None:
            self.begin(self._values(w, {}))
        run = e.checked(loaded)
        if self.plan is None:
            run = planned(run)
            self.plan = run.plan
            self._write_about()
        run = run._replace(plan=self.plan)
        engine = synchronous if run.buffer is None else asynchronous
        chunk = min(e.evaluate_every, e.rounds)
        try:
            for record in engine.records(run if start is None else resumed(run, start), chunk):
                if not self.take(record, self._values(record.w, record.clients)):
                    return None
                w = record.w
        except NonFiniteUpdate as error:
            self.give_up(error.round, str(error))
            return None
        return w

    def _values(self, w: Any, clients: Mapping[int, Any]) -> dict[str, float]:
        values = self.loaded.evaluate(w)
        if self.experiment.own_models:
            values |= self.loaded.evaluate_own(self.experiment.algorithm, clients)
        return values

    def begin(self, values: dict[str, float]) -> None:
        """The row of the initial model."""
        timed = self.experiment.engine == "events" or self.experiment.system is not None
        self._add(Record(0, None, {}, clock=Clock() if timed else None), values)

    def take(self, record: Record, values: dict[str, float]) -> bool:
        """Log an evaluated round, and save it if it is time to. False: the run has exploded and is given up."""
        if words := self._exploded(values):
            self.give_up(record.round, words)
            return False
        self._add(record, values)
        late = time.monotonic() - self.saved >= self.checkpoint_seconds
        if self.directory is not None and (late or record.round == self.experiment.rounds):
            self._save(self.directory, record)
        return True

    def _exploded(self, values: dict[str, float]) -> str:
        loss, first = values["train loss"], self.rows[0]["train loss"]
        if not math.isfinite(loss):
            return f"The training loss is {loss}."
        bound = first + EXPLODED * max(abs(first), 1.0)
        return f"The training loss is {loss:.3g}, from {first:.3g} at the start." if loss > bound else ""

    def give_up(self, round: int, words: str) -> None:
        self._write({"round": round, "diverged": words})
        if self.directory is not None:
            self._write_seconds(self.directory)

    def _add(self, record: Record, values: dict[str, float]) -> None:
        counters = {name: getattr(record.counters, field) for name, field in COUNTERS.items()}
        extra = {} if record.residual is None else {"residual": record.residual}
        self._write({"round": record.round, **values, **counters, **extra, **on_clock(record.clock)})

    def _write(self, row: Row) -> None:
        self.rows.append(row)
        if self.log is not None:
            self.log.write(json.dumps(row).encode() + b"\n")
            self.log.flush()
        for watch in self.watch:
            watch(row)

    def _save(self, directory: pathlib.Path, record: Record) -> None:
        assert self.log is not None
        os.fsync(self.log.fileno())
        self._write_seconds(directory)
        checkpoint.save(directory / CHECKPOINT, record, self.experiment.to_toml(), self.log.tell())
        self.saved = time.monotonic()

    def _write_seconds(self, directory: pathlib.Path) -> None:
        write_whole(directory / SECONDS, json.dumps({"seconds": round(self._seconds(), 3)}).encode())

    def _seconds(self) -> float:
        return self.spent + (time.monotonic() - self.started) * self.share
