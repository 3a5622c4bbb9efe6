"""Runs side by side: those that differ in numbers only, and have a small model, share one compiled program.

Every run is an ordinary one: a directory with config, log and final checkpoint (which leaves out the memories of
clients: nobody goes on from it). What was under way when the process was killed begins again. Logs are those of
single runs up to rounding, which depends on how many runs were side by side.
"""

import contextlib
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedloom.engines.grid import points_at_once, simulate_grid, structure
from fedloom.experiments.experiment import Experiment
from fedloom.experiments.files import only_one
from fedloom.experiments.result import Result
from fedloom.experiments.run import CHECKPOINT, Running, Watch, is_over, read
from fedloom.experiments.study import Progress, run_one
from fedloom.tasks import Loaded

Planned = tuple[str, Experiment, pathlib.Path | None]  # a name, what to run, and its directory, which is there


def run_side_by_side(runs: Sequence[Planned], progress: Progress | None = None) -> list[Result]:
    """The results of all runs, in their order; those that are over are read from their directories."""
    if progress is None:
        return _run(runs, None)
    progress.begin([(name, experiment) for name, experiment, _ in runs])
    try:
        return _run(runs, progress)
    finally:
        progress.close()


def alike(experiments: Sequence[Experiment]) -> list[list[int]]:
    """The experiments, by their places, that can run side by side: all but numbers is equal."""
    groups: list[tuple[Any, list[int]]] = []
    for i, e in enumerate(experiments):
        shared = (
            e.task,
            e.seed,
            e.split,
            e.model,
            e.weights,
            e.cohort,
            e.rounds,
            e.evaluate_every,
            e.on_nonfinite,
            e.own_models,
            e.plan,
            e.engine,
            e.buffer,
            e.system,
        )
        key = (shared, structure((e.algorithm, e.solver)))
        for other, members in groups:
            if other == key:
                members.append(i)
                break
        else:
            groups.append((key, [i]))
    return [members for _, members in groups]


def _run(runs: Sequence[Planned], progress: Progress | None) -> list[Result]:
    results: dict[int, Result] = {}
    for i, (name, experiment, directory) in enumerate(runs):
        if directory is not None and is_over(directory, experiment):
            results[i] = read(directory, name, experiment)
            if progress is not None:
                progress.end(results[i])
        elif directory is not None and (directory / CHECKPOINT).exists():  # it was alone: it goes on from there
            results[i] = run_one(name, experiment, directory, progress, ())
    # Rounding depends on who is beside whom, so batches are those of a sweep that was never stopped.
    for group in alike([experiment for _, experiment, _ in runs]):
        if all(i in results for i in group):
            continue
        first = runs[group[0]][1]
        loaded = first.check()
        most = points_at_once(first.algorithm, loaded.federation, loaded.w, first.cohort)
        others = first.engine != "simulate" or first.system is not None
        if first.on_nonfinite == "drop" or first.own_models or first.plan != "auto" or others:
            most = 1  # the grid does not do these
        for part in np.array_split(group, math.ceil(len(group) / most)):  # of one size, or nearly: fewer programs
            batch = part.tolist()
            left = [i for i in batch if i not in results]
            if len(batch) == 1 and left:
                name, experiment, directory = runs[batch[0]]
                results[batch[0]] = run_one(name, experiment, directory, progress, ())
            elif left:
                results |= _together(runs, batch, left, loaded, progress)
    return [results[i] for i in range(len(runs))]


def _together(
    runs: Sequence[Planned], batch: list[int], left: list[int], loaded: Loaded, progress: Progress | None
) -> dict[int, Result]:
    """The runs of a batch in one program, from their beginning; only those that are left are logged."""
    results: dict[int, Result] = {}
    e = runs[batch[0]][1]  # of all that they share
    with contextlib.ExitStack() as opened:
        logs = {i: _opened(runs[i], loaded, progress, len(left), opened) for i in left}
        first = loaded.evaluate(loaded.w)
        for log in logs.values():
            log.begin(first)
        algorithms, solvers = ([getattr(runs[i][1], part) for i in batch] for part in ("algorithm", "solver"))
        for record in simulate_grid(
            algorithms,
            loaded.federation,
            solvers,
            loaded.w,
            e.rounds,
            cohort=e.cohort,
            seed=e.seed,
            chunk=min(e.evaluate_every, e.rounds),
        ):
            values = loaded.evaluate_all(record.w)
            record = record._replace(servers=jax.device_get(record.servers))
            for place, i in enumerate(batch):
                if i in results or i not in logs:
                    continue
                log, diverged, going = logs[i], record.diverged[place], False
                if diverged is not None:
                    log.give_up(diverged.round, diverged.words)
                else:
                    going = log.take(record.point(place), values[place])
                if not going or record.round == e.rounds:
                    results[i] = log.result(record.w[place] if going else None)
                    if progress is not None:
                        progress.end(results[i])
            if len(results) == len(left):
                break
    return results


def _opened(
    run: Planned, loaded: Loaded, progress: Progress | None, beside: int, opened: contextlib.ExitStack
) -> Running:
    name, experiment, directory = run
    if directory is not None:
        opened.enter_context(only_one(directory))
    watch: list[Watch] = []
    if progress is not None:
        watch.append(lambda row: progress.row(name, experiment, row))
    log = Running(experiment, loaded, directory, name, tuple(watch), math.inf)  # one checkpoint, at the end
    log.share = 1 / beside
    log.open()
    opened.callback(log.close)
    return log
