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
        shared = (e.task, e.seed, e.split, e.model, e.weights, e.cohort, e.rounds, e.evaluate_every)
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
    left = []
    for i, (name, experiment, directory) in enumerate(runs):
        if directory is not None and is_over(directory, experiment):
            results[i] = read(directory, name)
            if progress is not None:
                progress.end(results[i])
        elif directory is not None and (directory / CHECKPOINT).exists():  # it was alone: it goes on from there
            results[i] = run_one(name, experiment, directory, progress, ())
        else:
            left.append(i)
    for members in alike([runs[i][1] for i in left]):
        group = [left[m] for m in members]
        first = runs[group[0]][1]
        loaded = first.check()
        most = points_at_once(first.algorithm, loaded.federation, loaded.w, first.cohort)
        for part in np.array_split(group, math.ceil(len(group) / most)):  # of one size, or nearly: fewer programs
            batch = part.tolist()
            if len(batch) == 1:
                name, experiment, directory = runs[batch[0]]
                results[batch[0]] = run_one(name, experiment, directory, progress, ())
            else:
                results |= dict(zip(batch, _together([runs[i] for i in batch], loaded, progress), strict=True))
    return [results[i] for i in range(len(runs))]


def _together(runs: Sequence[Planned], loaded: Loaded, progress: Progress | None) -> list[Result]:
    """Runs that are alike, in one program, from their beginning."""
    results: dict[int, Result] = {}
    with contextlib.ExitStack() as opened:
        logs = [_opened(run, loaded, progress, len(runs), opened) for run in runs]
        e = logs[0].experiment  # of all that they share
        first = loaded.evaluate(loaded.w)
        for log in logs:
            log.begin(first)
        algorithms, solvers = ([getattr(log.experiment, part) for log in logs] for part in ("algorithm", "solver"))
        for record in simulate_grid(
            algorithms,
            loaded.federation,
            solvers,
            loaded.w,
            e.rounds,
            cohort=e.cohort,
            seed=e.seed,
            chunk=e.evaluate_every,
        ):
            record = record._replace(servers=jax.device_get(record.servers))
            for i, log in enumerate(logs):
                if i in results:
                    continue
                diverged, going = record.diverged[i], False
                if diverged is not None:
                    log.give_up(log.rows[-1]["round"], diverged.words)
                else:
                    going = log.take(record.point(i), loaded.evaluate(record.w[i]))
                if not going or record.round == e.rounds:
                    results[i] = log.result(record.w[i] if going else None)
                    if progress is not None:
                        progress.end(results[i])
            if len(results) == len(runs):
                break
    return [results[i] for i in range(len(runs))]


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
