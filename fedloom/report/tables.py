"""The to-target table: what each method costs until a metric reaches its target."""

import csv as comma_separated
import dataclasses
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.hyperparameters import nearest
from fedloom.report.series import by_name, by_task, metrics

FOOTNOTE = (
    "rounds, models and bytes: until an evaluation first reaches the target; mean over the seeds that reach it.",
    "models: sent by a client that takes part in every exchange; a control variate counts as one (FedDyn's measure).",
    "bytes: of all clients, down and up.  +-: standard deviation over seeds.  seconds: per run, with compilation.",
    "clients: mean number per exchange; some methods need every client in every round.",
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A metric, the value to reach, and where the value comes from."""

    metric: str
    value: float  # nan if nothing has been evaluated yet
    larger_is_better: bool
    rule: str

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"{self.metric}: none, because no run has finished"
        return f"{self.metric} {'>=' if self.larger_is_better else '<='} {self.value:.4g}"


@dataclasses.dataclass(frozen=True)
class Standing:
    """One row of the table: a method on a task. Values that were not reached, or are unknown, are None."""

    task: str
    name: str
    seeds: int
    reached: int  # seeds that reach the target; rounds, models and bytes are means over these
    rounds: float | None
    models: float | None
    bytes: float | None
    final: float | None  # the metric at the end, mean over the seeds that did not diverge
    spread: float | None  # its standard deviation over seeds, n - 1 in the denominator
    seconds: float | None
    diverged: tuple[int, ...]  # the round of each seed that diverged
    unfinished: int  # seeds
    clients: float | None  # per exchange, on average

    @property
    def lost(self) -> bool:
        """Whether all seeds diverged."""
        return len(self.diverged) == self.seeds


def target(study: Study, task: str) -> Target:
    """The target of a task: the study's, or the task's own, or one relative to the best method."""
    results = by_task(study)[task]
    known, everywhere = metrics(results), metrics(study.results)
    own = next((r.about["target"] for r in results if r.about.get("target")), None)
    if study.target is not None and everywhere and study.target[0] not in everywhere:
        raise ValueError(f"target: there is no metric {study.target[0]!r}.{nearest(study.target[0], everywhere)}")
    goal = study.target if study.target is not None and study.target[0] in known else own
    if goal is not None and goal[0] in known:
        rule = "the task's own" if own is not None and tuple(goal) == tuple(own) else "given"
        return Target(goal[0], goal[1], known[goal[0]], rule)
    scores = [metric for metric, larger in known.items() if larger and metric.startswith("test ")]
    if scores:
        best = max(_finals(results, scores[0]), default=math.nan)
        return Target(scores[0], best - 0.02 * abs(best), True, "98% of the best final mean")
    losses = _finals(results, "train loss")
    best = min(losses, default=math.nan)
    first = _mean([r.evaluated[0]["train loss"] for r in results if r.evaluated])
    value = math.nan if first is None else best + 0.1 * (first - best)
    return Target("train loss", value, False, "best final mean + 10% of the way from it to the start")


def rows(study: Study) -> list[Standing]:
    """The rows of the table: methods that reach the target by rounds, others by final value, diverged ones last.

    Where only some seeds reach it, the mean is over the lucky ones, so such a row comes after those where all do.
    """
    found = []
    for task, results in by_task(study).items():
        goal = target(study, task)
        of_task = [_row(task, name, seeds, goal) for name, seeds in by_name(results).items()]
        found += sorted(of_task, key=lambda row: _rank(row, goal.larger_is_better))
    return found


def _rank(row: Standing, larger: bool) -> tuple[bool, float, float]:
    if row.rounds is not None:
        return row.lost, 0 if row.reached == row.seeds else 1, row.rounds
    final = math.inf if row.final is None or math.isnan(row.final) else (-row.final if larger else row.final)
    return row.lost, 2, final


def _row(task: str, name: str, seeds: Sequence[Result], goal: Target) -> Standing:
    hits = [(r, r.reaches(goal.metric, goal.value)) for r in seeds if _has(r, goal.metric)]
    reached = [(r, [row["round"] for row in r.evaluated].index(hit["round"])) for r, hit in hits if hit is not None]
    ends = _ends(seeds, goal.metric)
    return Standing(
        task,
        name,
        seeds=len(seeds),
        reached=len(reached),
        rounds=_mean([r.column("round")[i] for r, i in reached]),
        models=_mean([r.column("models")[i] for r, i in reached]),
        bytes=_mean([r.column("bytes")[i] for r, i in reached]),
        final=_mean(ends),
        spread=_spread(ends),
        seconds=_mean([r.seconds for r in seeds if r.rows]),
        diverged=tuple(r.rows[-1]["round"] for r in seeds if r.diverged is not None),
        unfinished=sum(not r.finished for r in seeds),
        clients=_mean(
            [row["messages"] / 2 / row["exchanges"] for r in seeds for row in r.evaluated[-1:] if row["exchanges"]]
        ),
    )


def _has(result: Result, metric: str) -> bool:
    return bool(result.evaluated) and all(metric in row for row in result.evaluated) and metric in result.metrics


def _ends(seeds: Sequence[Result], metric: str) -> list[float]:
    return [float(r.column(metric)[-1]) for r in seeds if r.diverged is None and _has(r, metric)]


def _finals(results: Sequence[Result], metric: str) -> list[float]:
    """The final mean of each method that has one."""
    means = [_mean(_ends(seeds, metric)) for seeds in by_name(results).values()]
    return [value for value in means if value is not None and math.isfinite(value)]


def _mean(values: Sequence[float]) -> float | None:
    with np.errstate(invalid="ignore"):  # of inf and -inf
        return float(np.mean(values)) if values else None


def _spread(values: Sequence[float]) -> float | None:
    with np.errstate(invalid="ignore"):
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


def number(value: float | None, like: float | None = None) -> str:
    """Four significant digits, or as many decimals as `like` has then."""
    if value is None:
        return "-"
    reference = value if like is None else like
    if not math.isfinite(value) or not math.isfinite(reference) or reference == 0:
        return f"{value:.3g}"
    if not 1e-3 <= abs(reference) < 1e6:
        return f"{value:.3g}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(reference))))}f}"


def byte_words(value: float) -> str:
    """Bytes with a decimal unit, three digits: 5.78 MB."""
    power = min(int(math.log10(value)) // 3, 5) if value >= 1 else 0
    return f"{float(f'{value / 1000**power:.3g}'):g} {('B', 'kB', 'MB', 'GB', 'TB', 'PB')[power]}"


def cells(row: Standing, plus_minus: str = "+-") -> list[str]:
    """The cells of a row as text: name, rounds, models, bytes, final, seconds, seeds, clients."""
    some = f" ({row.reached} of {row.seeds})" if 0 < row.reached < row.seeds else ""
    never = "not yet" if row.unfinished else "not reached"
    costs = [never, "-", "-"]
    if row.rounds is not None and row.models is not None and row.bytes is not None:
        rounds, models = (f"{value:.1f}".removesuffix(".0") for value in (row.rounds, row.models))
        costs = [rounds + some, models, byte_words(row.bytes)]
    final = number(row.final)
    if row.spread is not None:
        final += f" {plus_minus} {number(row.spread, like=row.final)}"
    seconds = "-" if row.seconds is None else f"{row.seconds:.1f}"
    if words := notes(row):
        final = words if row.final is None else f"{final}, {words}"
    clients = "-" if row.clients is None else f"{row.clients:.1f}".removesuffix(".0")
    return [row.name, *costs, final, seconds, str(row.seeds), clients]


def notes(row: Standing) -> str:
    """A note on seeds that diverged or are unfinished."""
    words = []
    if row.diverged:
        which = "" if row.lost else f"{len(row.diverged)} of {row.seeds} "
        listed = ", ".join(str(t) for t in sorted(set(row.diverged)))
        words.append(f"{which}diverged (round{'s' if len(set(row.diverged)) > 1 else ''} {listed})")
    if row.unfinished:
        words.append("unfinished" if row.unfinished == row.seeds else f"{row.unfinished} of {row.seeds} unfinished")
    return ", ".join(words)


def heads(metric: str) -> list[str]:
    return ["method", "rounds", "models", "bytes", f"final {metric}", "seconds", "seeds", "clients"]


def text(study: Study) -> str:
    """The table for a terminal."""
    lines = [study.title] if study.title else []
    found = rows(study)
    for task in by_task(study):
        goal = target(study, task)
        table = [heads(goal.metric), *(cells(row) for row in found if row.task == task)]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        table.insert(1, ["-" * width for width in widths])
        lines += ["", f"{task}: target {goal} ({goal.rule})", ""]
        for line in table:
            padded = [
                c.ljust(w) if i in (0, 4) else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            ]
            lines.append("  ".join(padded).rstrip())
    return "\n".join([*lines, "", *FOOTNOTE]).lstrip("\n")


def plain(study: Study) -> list[dict[str, Any]]:
    """The rows as plain data, with their target. Values that JSON lacks, such as nan, are None."""
    found, goals = [], {task: target(study, task) for task in by_task(study)}
    for row in rows(study):
        goal = goals[row.task]
        facts = {"task": row.task, "name": row.name, "metric": goal.metric, "target": goal.value, "rule": goal.rule}
        facts |= {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(row).items()}
        found.append({k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in facts.items()})
    return found


def csv(study: Study) -> str:
    """The rows in full precision. Fields not reached are empty; rounds of divergence are separated by spaces."""
    file = io.StringIO()
    found = plain(study)
    fields = list(found[0]) if found else [f.name for f in dataclasses.fields(Standing)]
    writer = comma_separated.DictWriter(file, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**facts, "diverged": " ".join(map(str, facts["diverged"]))} for facts in found)
    return file.getvalue()


LATEX = {c: "\\" + c for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def escaped(words: str) -> str:
    return "".join(LATEX.get(c, c) for c in words)


def latex(study: Study) -> str:
    """A table for each task; it needs the LaTeX package booktabs."""
    parts, found = [], rows(study)
    for task in by_task(study):
        goal = target(study, task)
        comment = " ".join(f"{study.title} {task}: target {goal} ({goal.rule})".split())
        lines = [f"% {comment}", r"\begin{tabular}{lrrrlrrr}", r"\toprule"]
        lines += [" & ".join(escaped(c) for c in heads(goal.metric)) + r" \\", r"\midrule"]
        for row in (row for row in found if row.task == task):
            words = [escaped(c) for c in cells(row, "±")]
            lines.append(" & ".join(words).replace("±", r"$\pm$") + r" \\")
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n")
    return "\n".join(parts)
