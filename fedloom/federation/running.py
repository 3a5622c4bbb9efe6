"""A federation's server at work: rounds, evaluation by the clients, and a run's directory that any report can read.

The directory is that of a run (config.toml, about.json, log.jsonl, checkpoint.npz) with journal.db, which is the truth:
the log is written from it, and nothing is lost when the server dies. status.json says what is going on now.
"""

import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fedloom.engines.records import NonFiniteUpdate, Record
from fedloom.experiments import checkpoint
from fedloom.experiments.about import machine, versions
from fedloom.experiments.definition import Experiment
from fedloom.experiments.files import only_one, write_whole
from fedloom.experiments.origins import origin
from fedloom.experiments.result import COUNTERS, EVALUATED, Row, federation_columns
from fedloom.experiments.run_directory import ABOUT, CHECKPOINT, CONFIG, LOG, SECONDS
from fedloom.experiments.trained import Trained
from fedloom.experiments.until import has_ended
from fedloom.federation.desk import Transport
from fedloom.federation.engine import Served
from fedloom.federation.evaluating import metrics_of
from fedloom.federation.own import check_experiment, first_model, task_of
from fedloom.federation.showing import Beat
from fedloom.federation.terms import Terms
from fedloom.hyperparameters import brief
from fedloom.metrics.scores import loss
from fedloom.problem import Vector
from fedloom.sinks import sink
from fedloom.tables.preparation import Preparation
from fedloom.tasks import Task

MODEL = "model.safetensors"


def recorded(terms: Terms) -> Experiment:
    """The experiment as the server's directory records it."""
    return dataclasses.replace(terms.experiment, engine="flower", buffer=1)


class Serving:
    """The server of one federation, from where its journal is to its last round."""

    def __init__(
        self,
        terms: Terms,
        directory: pathlib.Path,
        transport: Transport,
        *,
        bound: Mapping[Any, int] | None = None,
        sinks: tuple[str, ...] = (),
        say: Callable[[str], None] = lambda words: None,
    ):
        check_experiment(terms.experiment)
        opened = [sink(name) for name in sinks]
        e = terms.experiment
        self.terms, self.directory, self.say = terms, directory, say
        self.experiment = recorded(terms)
        self.served = Served(
            transport,
            directory,
            terms.agreement,
            terms.clients,
            e.algorithm,
            e.solver,
            lambda desk: first_model(e, desk, terms.waits.patience),
            e.rounds,
            cohort=e.cohort,
            seed=e.seed,
            buffer=terms.buffer,
            weights=e.weights or _weights(terms),
            waits=terms.waits,
            bound=bound,
            say=say,
        )
        task = task_of(e, self.served.preparation)
        assert task is not None
        self.task = task
        self.about, self.journal = about(terms, task, self.served), self.served.journal
        if rows := self.journal.rows():
            self.about |= {key: _those(self.about[key], rows[0]) for key in ("metrics", "bounds")}
        self.sinks = [make("", self.experiment, directory) for make in opened]
        self.rows: list[Row] = []

    def go(self) -> Row:
        """Run to the end; returns the last row."""
        with only_one(self.directory), Beat(self.directory, self.status):
            self._open()
            try:
                self._rounds()
            finally:
                for one in self.sinks:
                    one.close()
        return self.rows[-1]

    def _open(self) -> None:
        """Write what is known; the log is what the journal has of it."""
        write_whole(self.directory / CONFIG, self.experiment.to_toml().encode())
        write_whole(self.directory / ABOUT, json.dumps(self.about, indent=1).encode())
        self.rows = self.journal.rows()
        write_whole(self.directory / LOG, b"".join(json.dumps(row).encode() + b"\n" for row in self.rows))

    def _rounds(self) -> None:
        e, done = self.experiment, {row["round"] for row in self.rows}
        state = self.served.engine.begin()
        if self.rows and "diverged" in self.rows[-1]:
            return
        if state.e == 0 and self._due(state.t) and state.t not in done:  # a server died before it could evaluate
            self._wait_for_somebody()
            self._take(self.served.engine.timed(state.record), state.record.w)
        if has_ended(self.rows, e.rounds, e.until):
            self._wait_for_somebody()  # who was away when it ended is told now
            self.served.farewell()
            return
        try:
            for record in self.served.records():
                if self._due(record.round):
                    self._take(record, record.w)
                if has_ended(self.rows, e.rounds, e.until):
                    break
            self._take_away()
            self.served.farewell()
        except NonFiniteUpdate as error:
            self._add({"round": error.round, "diverged": str(error)})

    def _due(self, t: int) -> bool:
        return t % self.experiment.evaluate_every == 0 or t == self.experiment.rounds

    def _wait_for_somebody(self) -> None:
        """All clients, if they come soon: the metrics of a row are of those who are there."""
        desk, n = self.served.desk, len(self.terms.clients)
        end = time.monotonic() + min(self.terms.waits.deadline, 10.0)
        while len(desk.ready) < n and (time.monotonic() < end or not desk.ready):
            desk.receive()
            if time.monotonic() > end + self.terms.waits.patience:
                return

    def _take(self, record: Record, w: Vector) -> None:
        """Log an evaluated round, and save its model."""
        sums, p = self.served.evaluated(w, record.round), self.served.run.p
        values = {name: value for name, value in metrics_of(sums, p).items() if math.isfinite(value)}
        if not self.rows:  # which metrics there are shows when clients evaluate: none may have test examples
            self.about = {**self.about, **{key: _those(self.about[key], values) for key in ("metrics", "bounds")}}
            write_whole(self.directory / ABOUT, json.dumps(self.about, indent=1).encode())
        if missing := [name for name in self.about["metrics"] if name not in values]:
            words = f"Nobody has measured the {missing[0]} of round {record.round}, which is not in the log."
            self.served.desk.note(words if values else f"Nobody has evaluated round {record.round}.")
            return
        values = {name: values[name] for name in self.about["metrics"]}
        counters = {name: getattr(record.counters, field) for name, field in COUNTERS.items()}
        extra = {} if record.residual is None else {"residual": record.residual}
        share = round(float(sum(p[k] for k in sums)), 12)
        self._add(
            {"round": record.round, **values, **counters, **extra, EVALUATED: share, **federation_columns(record)}
        )
        self._save(record)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self.journal.add_row(row)
        with open(self.directory / LOG, "ab") as file:
            file.write(json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        for one in self.sinks:
            one.row(row)

    def _save(self, record: Record) -> None:
        """The model, for `fedloom export` and `predict`; the journal has the rest."""
        length = (self.directory / LOG).stat().st_size
        seconds = 0.0 if record.clock is None else record.clock.seconds
        write_whole(self.directory / SECONDS, json.dumps({"seconds": seconds}).encode())
        checkpoint.save(self.directory / CHECKPOINT, record, self.experiment.to_toml(), length, self.about["versions"])

    def _take_away(self) -> None:
        """The trained model as a file of its own, with the preparation of tables, for machines that have no data."""
        facts, draft = self.served.desk.facts, self.directory / f"draft-{MODEL}"
        known = [rows for k in sorted(facts) if (rows := facts[k].get("rows"))]
        if self.task.model is None or len(known) < len(self.terms.clients):
            return
        draft.unlink(missing_ok=True)
        shape, dtype = known[0]["y"]
        classes = [rows["classes"] for rows in known]
        preparation = self.served.preparation
        Trained(
            self.task.model,
            np.asarray(self.served.engine.begin().record.w),
            self.task.prepare,
            jax.ShapeDtypeStruct(tuple(shape), dtype),
            None if None in classes else max(classes),
            None if preparation is None else Preparation.from_plain(preparation),
            {"task": self.task.name, "round": self.rows[-1]["round"], "seed": self.experiment.seed},
        ).save(draft)
        os.replace(draft, self.directory / MODEL)

    def status(self) -> dict[str, Any]:
        """What is going on, for those who look."""
        desk, engine = self.served.desk, self.served.engine
        clients = {}
        for k, name in enumerate(self.terms.clients):
            state = "ready" if k in desk.ready else "left out" if k in desk.left_out else "away"
            state = "getting ready" if state == "away" and k in desk.nodes else state
            clients[name] = {"number": k, "state": state, "why": desk.left_out.get(k), "seen": desk.seen.get(k)}
        return {
            "at": time.time(),
            "pid": os.getpid(),
            "life": self.journal.incarnation,
            "rounds": self.experiment.rounds,
            **engine.standing,
            "last row": next((row for row in reversed(self.rows)), None),
            "travelled": [engine.before[1] + desk.down, engine.before[2] + desk.up],
            "clients": clients,
        }


def _those(table: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name in names}


def _weights(terms: Terms) -> str:
    task = None if isinstance(terms.experiment.task, str) and terms.experiment.label else terms.experiment.base_task()
    return task.weights if task is not None and isinstance(task.weights, str) else "examples"


def about(terms: Terms, task: Task, served: Served) -> dict[str, Any]:
    """The federation in figures, as the about.json of any run has them."""
    e, w = recorded(terms), served.run.w
    metrics = {"train loss": loss(task.criterion)}
    if task.model is not None:
        metrics |= {f"test {m.name}": m for m in (loss(task.criterion), *task.metrics)}
    wanted = e.evaluate or ("train", "test")
    chosen = {name: m for name, m in metrics.items() if name in wanted or name.split(" ")[0] in wanted}
    sizes = [served.desk.facts[k]["size"] for k in range(len(terms.clients))]
    return {
        "task": task.name,
        "words": task.about,
        "target": task.target,
        "clients": len(terms.clients),
        "parameters": int(w.size),
        "model bytes": int(w.size * w.dtype.itemsize),
        "names": list(terms.clients)[:100],
        "sizes": sizes[:100],
        "summary": f"{len(sizes)} clients with {sum(sizes):,} training examples, which stay with them",
        "exchanges": len(e.algorithm.exchanges),
        "cohort": brief(e.cohort),
        "room": served.run.cohort_room,
        "setting": None if e.label else origin(e),
        "metrics": {name: m.larger_is_better for name, m in chosen.items()},
        "bounds": {name: [b if math.isfinite(b) else None for b in m.bounds] for name, m in chosen.items()},
        "files": {},
        "versions": versions(() if task.model is None else task.model.packages),
        "machine": machine(),
        "preparation": served.preparation,
    }
