"""Compare methods on one task: with several seeds, and the same clients, initial model and cohorts for all."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.algorithm import Algorithm
from fedloom.experiments.arguments import Names, Seeds, name_list, reporter, seed_list
from fedloom.experiments.definition import Experiment
from fedloom.experiments.growth import decided
from fedloom.experiments.loading import find_task
from fedloom.experiments.looking import planned_looks
from fedloom.experiments.recipe import method_names, recipe
from fedloom.experiments.settings import experiment, methods
from fedloom.experiments.study import TERMS, OpenSink, Progress, Runs, Study, run_all
from fedloom.experiments.terms import Terms
from fedloom.experiments.until import refuse_until
from fedloom.tasks import Task

SEEDS = (0, 1, 2, 3, 4)  # three leave Student's t so wide that hardly anything can be told apart


def compare(
    task: str | Task = "digits",
    algorithms: Names | None = None,
    *,
    seeds: Seeds = SEEDS,
    variant: str | None = None,
    target: tuple[str, float] | None = None,
    terms: Terms = TERMS,
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | bool | None = None,
    sinks: Sequence[OpenSink] = (),
    **changes: Any,
) -> Study:
    """Which method is best on a task, and what does it cost?

    Args:
        task: the name of a task, FILE.py:NAME, or a task.
        algorithms: names, also as "fedavg,scaffold", which get the task's own settings, FILE.py:NAME, or algorithms;
            None: all that the task has settings for.
        seeds: one run of each method for each seed: a number of seeds or a list. "3..10" starts with three seeds and
            adds more until one method is separated from all others, or there are ten.
        variant: which of the task's settings to use; the first if None.
        target: a metric and the value to reach; the task's own if None.
        terms: at what cost methods are compared, and what it means to reach the target.
        directory: a new directory for the runs; None keeps everything in memory.
        progress: True for a bar in a notebook or at a terminal, or a progress reporter.
        sinks: destinations for the rows, besides the logs.
        changes: fields to change in all experiments: rounds=50, or **{"solver.lr": 0.1}.
    """
    found = task if isinstance(task, Task) else find_task(task)
    progress = reporter(progress)
    looks = {"planned": planned_looks(seeds)} if isinstance(seeds, str) and ".." in seeds else {}
    first = seed_list(looks["planned"][0] if looks else seeds)
    names = None if algorithms is None else name_list(algorithms)
    runs = comparison(task, names, seeds=first, variant=variant, changes=changes)
    study = run_all(
        runs,
        directory,
        title=f"{found.name}: a comparison",
        target=target or own_target(found, runs),
        terms=terms,
        about={"kind": "comparison", **recipe(task, variant, changes), **looks},
        progress=progress,
        sinks=sinks,
    )
    return decided(study, progress, sinks)


def own_target(task: Task, runs: Runs) -> tuple[str, float] | None:
    """The task's own target, if its metric is evaluated."""
    evaluated = runs[0][1].check().evaluation.metrics
    return task.target if task.target is not None and task.target[0] in evaluated else None


def comparison(
    task: str | Task,
    algorithms: Sequence[str | Algorithm] | None = None,
    *,
    seeds: Sequence[int] = SEEDS,
    variant: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Runs:
    """The experiments of a comparison, by name."""
    if len(seeds) == 0:
        raise ValueError("seeds must list at least one seed.")
    refuse_until((changes or {}).get("until"))
    chosen = methods(task, variant, (changes or {}).get("engine")) if algorithms is None else list(algorithms)
    if not chosen:
        raise ValueError("algorithms must name at least one; `fedloom list algorithms` lists them.")
    runs: list[tuple[str, Experiment]] = []
    for name, algorithm in zip(method_names(chosen), chosen, strict=True):
        runs += [(name, experiment(task, algorithm, variant, seed=seed, **(changes or {}))) for seed in seeds]
    return runs
