"""A run in progress: its log, its checkpoints, and when it is over."""

import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from fedloom.engines import Clock, NonFiniteUpdate, Record, asynchronous, processes, synchronous
from fedloom.engines.checks import resumed
from fedloom.engines.choose_plan import planned, sharded
from fedloom.engines.plan import Plan
from fedloom.engines.run import Run
from fedloom.experiments import checkpoint
from fedloom.experiments.about import about
from fedloom.experiments.definition import Checked, Experiment, method_name
from fedloom.experiments.files import Damaged, naming, write_whole
from fedloom.experiments.result import COUNTERS, Result, Row, clock_columns
from fedloom.experiments.run_directory import (
    ABOUT,
    CHECKPOINT,
    EARLIER,
    LOG,
    SECONDS,
    check_log,
    read_json,
    read_rows,
    read_seconds,
    whole_rounds,
)
from fedloom.experiments.until import has_ended
from fedloom.problem import Vector
from fedloom.systems import Delays

EXPLODED = 1e3  # a loss this many times the first one, or above 1, will not recover

Watch = Callable[[Row], None]


def check_start(directory: pathlib.Path, first: Row, checked: Checked) -> None:
    """Raise a ValueError if the first row of a run's log is not that of the task's initial model any more."""
    values = checked.evaluation.of(checked.loaded.w)
    if json.dumps(values) != json.dumps({name: first.get(name) for name in values}):
        raise ValueError(
            f"{directory}: the metrics of the initial model differ from those in the log, so the task or its data have "
            "changed since the run began. Run the experiment again in another directory."
        )


def schedule_time(run: Run, record: Record) -> int:
    """The rounds that step size schedules count at a record; of an asynchronous run, rounds' worth of replies."""
    if record.clock is None or run.buffer is None:
        return record.round
    clients = run.federation.clients if isinstance(run.system, Delays) else run.cohort_room
    return record.clock.replies // clients


def run_again(experiment: Experiment, plan: Plan) -> Run:
    """The run of an experiment in another process, which loads the data itself."""
    return experiment.check().run._replace(plan=plan)


class Running:
    """A run in progress: its log and its checkpoints. `go` does it all; callers with their own records use the rest."""

    def __init__(
        self,
        experiment: Experiment,
        checked: Checked,
        directory: pathlib.Path | None,
        name: str,
        watch: tuple[Watch, ...],
        checkpoint_seconds: float,
        say: Callable[[str], None] = lambda words: None,
    ):
        self.experiment, self.directory, self.watch, self.say = experiment, directory, watch, say
        self.loaded, self.run, self.evaluation = checked
        self.name = name or method_name(experiment.algorithm)
        self.checkpoint_seconds = checkpoint_seconds
        self.rows: list[Row] = []
        self.log: BinaryIO | None = None
        self.about = about(experiment, checked)
        self.memories: Mapping[int, Any] | None = None  # of the clients at the end, if nothing else keeps them
        self.plan: Plan | None = None  # chosen when the rounds begin, unless the directory has one
        self.share = 1.0  # of the time since this began that is its own
        self.spent = 0.0  # before that, by earlier processes
        self.started = self.saved = time.monotonic()

    def go(self) -> Result:
        record = self.open()
        try:
            w = self._rounds(record)
        finally:
            self.close()
        return dataclasses.replace(self.result(w), memories=self.memories)

    def open(self) -> Record | None:
        """Open the log, if there is a directory. Return the record of its last checkpoint."""
        return None if self.directory is None else self._open(self.directory)

    def close(self) -> None:
        if self.log is not None:
            assert self.directory is not None
            with naming(self.directory / LOG):
                self.log.close()

    def result(self, w: Vector | None) -> Result:
        return Result(self.name, self.experiment, self.rows, self.about, self._seconds(), self.directory, w)

    def _open(self, directory: pathlib.Path) -> Record | None:
        """Open the log where the last checkpoint left it, or at its start."""
        e, record, length = self.experiment, None, 0
        if (directory / CHECKPOINT).exists():
            start, clients = self.loaded.w, self.loaded.federation.clients
            record, length = checkpoint.load(
                directory / CHECKPOINT, self.run.algorithm, start, clients, e.to_toml(), self.about["versions"]
            )
        self.spent = read_seconds(directory)
        check_log(directory, length)
        if record is not None:
            check_start(directory, read_rows(directory)[0], Checked(self.loaded, self.run, self.evaluation))
        if (directory / ABOUT).exists() and (plan := read_json(directory / ABOUT).get("plan")):
            try:
                self.plan = Plan(**plan)  # rounding depends on it
            except (TypeError, ValueError) as error:
                raise Damaged(f"{directory / ABOUT} is damaged: its plan is {plan!r:.100}.") from error
        if not processes.is_first():  # it has read what it needs; the first process writes
            self.rows = [row for row in read_rows(directory) if record is not None and row["round"] <= record.round]
            self.directory = None
            return record
        self._write_about()
        self.log = open(directory / LOG, "a+b")  # noqa: SIM115 (`close` closes it)
        self.log.truncate(length)
        self.rows = read_rows(directory)
        return record

    def _write_about(self) -> None:
        if self.plan is not None:
            plan = dataclasses.asdict(self.plan)
            self.about = {**self.about, "plan": plan, "machine": {**self.about["machine"], "plan": str(self.plan)}}
        if self.directory is not None:
            write_whole(self.directory / ABOUT, json.dumps(self.about, indent=1).encode())

    def _rounds(self, start: Record | None) -> Vector | None:
        e, w = self.experiment, self.loaded.w if start is None else start.w
        if start is None:
            self.begin(self.evaluation.of(w))
        if self.plan is None:
            self.plan = self._planned()
            self._write_about()
        run = self.run._replace(plan=self.plan)
        chunk = min(e.evaluate_every, e.rounds)
        try:
            for record in self._records(run if start is None else resumed(run, start), chunk):
                taken = self.take(record, self.evaluation.of(record.w, record.clients, schedule_time(run, record)))
                # Several processes evaluate the same model, but the last bit of a loss may differ between machines.
                taken, over = map(bool, processes.of_first(taken, self.over))
                if not taken:
                    return None
                w = record.w
                if self.directory is None and e.algorithm.own_model(e.algorithm.init_client(w)) is not None:
                    self.memories = record.clients
                if self.directory is not None and record.round == whole_rounds(e) < e.rounds:
                    self._save(self.directory, record, EARLIER)
                if over:
                    break
        except NonFiniteUpdate as error:
            self.give_up(error.round, str(error))
            return None
        return w

    def _planned(self) -> Plan | None:
        if self.experiment.engine != "ray":
            return planned(self.run).plan
        from fedloom.cluster.connect import connect, usual_shards  # imported late: Ray is an extra

        connect()
        return sharded(self.run, self.experiment.shards, usual_shards).plan

    def _records(self, run: Run, chunk: int) -> Iterator[Record]:
        if self.experiment.engine != "ray":
            return (synchronous if run.buffer is None else asynchronous).run_records(run, chunk)
        from fedloom.cluster.connect import connect
        from fedloom.cluster.engine import run_records

        connect()
        return run_records(run, run_again, (self.experiment, run.plan), chunk, self.say)

    def begin(self, values: dict[str, Any]) -> None:
        """The row of the initial model."""
        timed = self.experiment.engine == "events" or self.experiment.system is not None
        self._add(Record(0, None, {}, clock=Clock() if timed else None), values)

    def take(self, record: Record, values: dict[str, Any]) -> bool:
        """Log an evaluated round, and save it if it is time to. Return False if the run diverged and is given up."""
        if words := self._exploded(values):
            self.give_up(record.round, words)
            return False
        self._add(record, values)
        late = time.monotonic() - self.saved >= self.checkpoint_seconds
        if self.directory is not None and (late or self.over):
            self._save(self.directory, record)
        return True

    @property
    def over(self) -> bool:
        """Whether the last row is that of the last round, or the one with which the run has met what it was for."""
        return has_ended(self.rows, self.experiment.rounds, self.experiment.until)

    def _exploded(self, values: dict[str, Any]) -> str:
        """Why the run is given up, if its first loss (of training, validation or test examples) says so."""
        name = next((name for name in values if name.partition(" ")[2] == "loss"), None)
        if name is None:  # not evaluated: NaN and infinity are noticed by the engine alone
            return ""
        loss, first = values[name], self.rows[0][name]
        words = "training loss" if name.startswith("train") else name
        if not math.isfinite(loss):
            return f"The {words} is {loss}."
        bound = first + EXPLODED * max(abs(first), 1.0)
        return f"The {words} is {loss:.3g}, from {first:.3g} at the start." if loss > bound else ""

    def give_up(self, round: int, words: str) -> None:
        self._write({"round": round, "diverged": words})
        if self.directory is not None:
            self._write_seconds(self.directory)

    def _add(self, record: Record, values: dict[str, Any]) -> None:
        counters = {name: getattr(record.counters, field) for name, field in COUNTERS.items()}
        extra = {} if record.residual is None else {"residual": record.residual}
        self._write({"round": record.round, **values, **counters, **extra, **clock_columns(record.clock)})

    def _write(self, row: Row) -> None:
        self.rows.append(row)
        if self.log is not None:
            assert self.directory is not None
            with naming(self.directory / LOG):
                self.log.write(json.dumps(row).encode() + b"\n")
                self.log.flush()
        for watch in self.watch:
            watch(row)

    def _save(self, directory: pathlib.Path, record: Record, file: str = CHECKPOINT) -> None:
        assert self.log is not None
        with naming(directory / LOG):
            os.fsync(self.log.fileno())
        self._write_seconds(directory)
        config, length = self.experiment.to_toml(), self.log.tell()
        checkpoint.save(directory / file, record, config, length, self.about["versions"])
        self.saved = time.monotonic()

    def _write_seconds(self, directory: pathlib.Path) -> None:
        write_whole(directory / SECONDS, json.dumps({"seconds": round(self._seconds(), 3)}).encode())

    def _seconds(self) -> float:
        return self.spent + (time.monotonic() - self.started) * self.share
