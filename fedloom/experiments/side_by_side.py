"""Runs side by side: those with a small model that differ only in numbers share one compiled program.

Every run is an ordinary one: a directory with config, log and final checkpoint (without the clients' memories, because
no run continues from it). Runs that were in progress when the process was killed start again. Logs are those of single
runs up to rounding, which depends on how many runs are side by side.
"""

import contextlib
import math
import time
from collections.abc import Container, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from fedloom.engines import grid
from fedloom.engines.grid import points_at_once, structure
from fedloom.experiments.definition import FIELDS, Checked, Experiment
from fedloom.experiments.files import Damaged, only_one
from fedloom.experiments.result import Result
from fedloom.experiments.run_directory import CHECKPOINT, is_over, read
from fedloom.experiments.running import Running, Watch
from fedloom.experiments.study import OpenSink, PlacedRun, Progress, run_one


def run_side_by_side(
    runs: Sequence[PlacedRun], progress: Progress | None = None, sinks: Sequence[OpenSink] = ()
) -> list[Result]:
    """The results of all runs, in order; those that are over are read from their directories."""
    if progress is None:
        return _run(runs, None, sinks)
    progress.begin([(name, experiment) for name, experiment, *_ in runs])
    try:
        return _run(runs, progress, sinks)
    finally:
        progress.close()


def alike(experiments: Sequence[Experiment]) -> list[list[int]]:
    """Groups of experiments, by index, that can run side by side: they differ only in numbers."""
    groups: list[tuple[Any, list[int]]] = []
    for i, e in enumerate(experiments):
        shared = [getattr(e, name) for name in FIELDS if name not in ("algorithm", "solver")]
        key = (shared, structure((e.algorithm, e.solver)))
        for other, members in groups:
            if other == key:
                members.append(i)
                break
        else:
            groups.append((key, [i]))
    return [members for _, members in groups]


def _run(runs: Sequence[PlacedRun], progress: Progress | None, sinks: Sequence[OpenSink]) -> list[Result]:
    results: dict[int, Result] = {}
    for i, (name, experiment, directory, *_) in enumerate(runs):
        if directory is None:
            continue
        try:
            over = runs[i].damaged is None and is_over(directory, experiment)
            done = read(directory, name, experiment) if over else None
        except Damaged as error:
            results[i] = run_one(runs[i]._replace(damaged=str(error)), progress, sinks)
            continue
        if done is not None:
            results[i] = done
            if progress is not None:
                progress.end(done)
        elif runs[i].damaged or (directory / CHECKPOINT).exists():  # a checkpoint: it ran alone, so it can continue
            results[i] = run_one(runs[i], progress, sinks)
    for batch, room in batches(runs, leave_out=set(results)):
        left = [i for i in batch if i not in results]
        if room == 1 and left:
            results[batch[0]] = run_one(runs[batch[0]], progress, sinks)
        elif left:
            checked = runs[batch[0]].experiment.check()
            results |= _together(runs, batch, left, checked, progress, sinks, room)
    return [results[i] for i in range(len(runs))]


def batches(runs: Sequence[PlacedRun], leave_out: Container[int] = ()) -> Iterator[tuple[list[int], int]]:
    """Which runs share a program, and how many it has room for; but for groups of which all are left out.

    Rounding depends on both, so they are those of a sweep that was never stopped.
    """
    for group in alike([experiment for _, experiment, *_ in runs]):
        if all(i in leave_out for i in group):
            continue
        first = runs[group[0]][1]
        checked = first.check()
        most = points_at_once(checked.run)
        others = first.engine != "simulate" or first.system is not None
        if first.on_nonfinite == "drop" or checked.evaluation.of_method or first.plan != "auto" or others:
            most = 1  # the grid engine does not support these
        parts = np.array_split(group, math.ceil(len(group) / most))  # of nearly equal sizes, the largest first
        for part in parts:
            yield part.tolist(), len(parts[0])


def run_batch(runs: Sequence[PlacedRun], room: int) -> None:
    """The runs of one batch, those that are not over; what came out is in their directories."""
    left = []
    for i, run in enumerate(runs):
        if run.directory is not None and (run.directory / CHECKPOINT).exists():
            run_one(run)  # it ran alone, or is over
        else:
            left.append(i)
    _together(runs, list(range(len(runs))), left, runs[0].experiment.check(), None, (), room)


def _together(
    runs: Sequence[PlacedRun],
    batch: list[int],
    left: list[int],
    checked: Checked,
    progress: Progress | None,
    sinks: Sequence[OpenSink],
    room: int,
) -> dict[int, Result]:
    """The runs of a batch in one program, from their start; only those that are left are logged.

    Batches with room for equally many runs share the program: the last run fills the room that is left.
    """
    results: dict[int, Result] = {}
    e, loaded = runs[batch[0]].experiment, checked.loaded  # which they share, but for numbers
    with contextlib.ExitStack() as opened:
        logs = {i: _opened(runs[i], checked, progress, sinks, opened) for i in left}
        first = checked.evaluation.of(loaded.w)
        for log in logs.values():
            log.begin(first)
        full = batch + batch[-1:] * (room - len(batch))
        algorithms, solvers = ([getattr(runs[i][1], part) for i in full] for part in ("algorithm", "solver"))
        before = time.monotonic()
        for record in grid.run_records(checked.run, algorithms, solvers, min(e.evaluate_every, e.rounds)):
            values = checked.evaluation.of_each(record.w)
            now = time.monotonic()
            for i in set(logs) - set(results):  # those that have not ended share the time
                logs[i].spent += (now - before) / (len(logs) - len(results))
            before = now
            record = record._replace(servers=jax.device_get(record.servers))
            for place, i in enumerate(batch):
                if i in results or i not in logs:
                    continue
                log, diverged, healthy = logs[i], record.diverged[place], False
                if diverged is not None:
                    log.give_up(diverged.round, diverged.words)
                else:
                    healthy = log.take(record.point(place), values[place])
                if not healthy or log.over:
                    results[i] = log.result(record.w[place] if healthy else None)
                    if progress is not None:
                        progress.end(results[i])
            if len(results) == len(left):
                break
    return results


def _opened(
    run: PlacedRun,
    checked: Checked,
    progress: Progress | None,
    sinks: Sequence[OpenSink],
    opened: contextlib.ExitStack,
) -> Running:
    name, experiment, directory, *_ = run
    if directory is not None:
        opened.enter_context(only_one(directory))
    watch: list[Watch] = []
    for open_sink in sinks:
        sink = open_sink(name, experiment, directory)
        opened.callback(sink.close)
        watch.append(sink.row)
    if progress is not None:
        watch.append(lambda row: progress.row(name, experiment, row))
    log = Running(experiment, checked, directory, name, tuple(watch), math.inf)  # one checkpoint, at the end
    log.share = 0.0  # of the time since it was opened: `_together` counts it
    log.open()
    opened.callback(log.close)
    return log
