"""Reproductions made from a task alone: one of its variants, and what it says was reported."""

import dataclasses
import re
from collections.abc import Callable, Mapping

from fedloom.experiments.settings import experiment, methods
from fedloom.reproductions.reproduction import Claim, Line, Measure, Reproduction
from fedloom.tasks import TASKS, Reported

# The claims about the figures of one setting, given what the paper reports by method.
Claims = Callable[[str, Mapping[str, float]], tuple[Claim, ...]]

TO_TARGET = re.compile(
    r"(?P<counted>models|rounds) (?:sent by a device )?to (?:reach )?"
    r"(?:training loss (?P<loss>[\d.]+)|(?P<percent>[\d.]+)% test accuracy)(?:, (?P<variant>.+))?"
)
AT_THE_END = re.compile(
    r"(?:(?P<scale>\d+) x )?(?P<metric>test \S+)(?P<percent> in %)?, "
    r"(?:mean of the last 100 rounds|with (?P<variant>.+))"
)


def measure(reported: Reported) -> tuple[str | None, Measure]:
    """The variant of the task (None: its first), and what is measured, from the words of a report."""
    if match := TO_TARGET.fullmatch(reported.what):
        if match["loss"]:
            return match["variant"], Measure("train loss", float(match["loss"]), match["counted"])
        target = round(float(match["percent"]) / 100, 6)
        return match["variant"], Measure("test accuracy", target, match["counted"])
    if match := AT_THE_END.fullmatch(reported.what):
        scale = 100.0 if match["percent"] else float(match["scale"] or 1)
        return match["variant"], Measure(match["metric"], last=100, scale=scale)
    raise ValueError(f"The report {reported.what!r} does not say what was measured in words that are known here.")


def from_task(
    name: str,
    task_name: str,
    variant: str | None,
    claims: Claims,
    *,
    usual: Measure | None = None,
    notes: str = "",
) -> Reproduction:
    """All methods of a variant, with the settings of the task; `usual` is measured where nothing was reported."""
    task = TASKS[task_name]
    first = next(iter(task.settings))
    chosen = variant or first
    lines: list[Line] = []
    checked: list[Claim] = []
    for reported in task.reported:
        of, measured = measure(reported)
        if (of or first) != chosen:
            continue
        setting = f"{chosen}, {measured.words}"
        lines += [Line(setting, method, method, measured, value) for method, value in reported.values.items()]
        checked += claims(setting, reported.values)
    if not lines:
        measured = usual or Measure("test accuracy")
        lines = [Line(chosen, method, method, measured) for method in methods(task_name, chosen)]
        checked = list(claims(chosen, {}))
    runs = {method: experiment(task_name, method, chosen) for method in methods(task_name, chosen)}
    if any(line.measure.target is not None for line in lines):  # a target is met in some round, not in every tenth
        runs = {method: dataclasses.replace(e, evaluate_every=1) for method, e in runs.items()}
    about = f"{task.about} Setting: {chosen}."
    return Reproduction(name, about, task.paper, runs, tuple(lines), tuple(checked), notes, task.needs)


def variants(task_name: str) -> list[str]:
    """The first variant of a task, and the others that figures are reported of."""
    task = TASKS[task_name]
    of_reports = [measure(reported)[0] for reported in task.reported]
    first = next(iter(task.settings))
    return [first, *(v for v in task.settings if v != first and v in of_reports)]


def name_of(prefix: str, task_name: str, variant: str) -> str:
    """The task's name with the paper's before it, and with the variant after it unless it is the first."""
    first = next(iter(TASKS[task_name].settings))
    return f"{prefix}-{task_name}" + ("" if variant == first else f"-{variant}")
