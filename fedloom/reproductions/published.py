"""Reproductions made from a task alone: one of its variants, and what it says was reported."""

import dataclasses
import sys
from collections.abc import Callable

from fedloom.algorithms import Scaffold
from fedloom.experiments import Experiment
from fedloom.experiments.settings import experiment, methods
from fedloom.reproductions.reproduction import Claim, Line, Reproduction
from fedloom.schedules import at
from fedloom.solvers import SGD
from fedloom.tasks import TASKS, Measure, Reported

ACCURACY = Measure("test accuracy")

# The claims about the figures of one setting, given what the paper reports for it, if anything.
Claims = Callable[[str, Reported | None], tuple[Claim, ...]]


def from_task(
    name: str,
    task_name: str,
    variant: str,
    claims: Claims,
    *,
    usual: Measure = ACCURACY,
    notes: str = "",
) -> Reproduction:
    """All methods of a variant, with the settings of the task; `usual` is measured where nothing was reported."""
    task = TASKS[task_name]
    lines: list[Line] = []
    checked: list[Claim] = []
    for reported in task.reported:
        if reported.variant == variant:
            setting = f"{variant}, {reported.measure.words}"
            lines += [
                Line(setting, method, method, reported.measure, value, reported.where)
                for method, value in reported.values.items()
            ]
            checked += claims(setting, reported)
    if not lines:
        lines = [Line(variant, method, method, usual) for method in methods(task_name, variant)]
        checked = list(claims(variant, None))
    runs = {method: experiment(task_name, method, variant) for method in methods(task_name, variant)}
    often = min(_between(line.measure) for line in lines)
    runs = {m: dataclasses.replace(e, evaluate_every=min(e.evaluate_every, often)) for m, e in runs.items()}
    about = f"{task.about} Setting: {variant}."
    return Reproduction(name, about, task.paper, runs, tuple(lines), tuple(checked), notes, task.needs)


def _between(measure: Measure) -> int:
    """Rounds between evaluations, at most: a target is met in any round, and a mean of the last is one of several."""
    if measure.target is not None:
        return 1
    return max(1, measure.last // 3) if measure.last > 1 else sys.maxsize  # and the last round is always evaluated


def variants(task_name: str) -> list[str]:
    """The first variant of a task, and the others for which figures are reported."""
    task = TASKS[task_name]
    reported = {r.variant for r in task.reported}
    first, *others = task.settings
    return [first, *(v for v in others if v in reported)]


def name_of(prefix: str, task_name: str, variant: str) -> str:
    """The task's name with the paper's before it, and with the variant after it unless it is the first."""
    first = next(iter(TASKS[task_name].settings))
    return f"{prefix}-{task_name}" + ("" if variant == first else f"-{variant}")


def clipped(scaffold: Experiment, fedavg: Experiment, steps: int) -> Experiment:
    """SCAFFOLD with steps that are clipped as FedAvg's, and w - v divided by their number times the first round's."""
    assert isinstance(scaffold.algorithm, Scaffold)
    assert isinstance(scaffold.solver, SGD)
    assert isinstance(fedavg.solver, SGD)
    return dataclasses.replace(
        scaffold,
        algorithm=dataclasses.replace(scaffold.algorithm, divisor=float(steps * at(scaffold.solver.lr, 0))),
        solver=dataclasses.replace(scaffold.solver, clip=fedavg.solver.clip),
    )
