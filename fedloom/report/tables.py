"""The tables of a report: methods at equal cost, and what each needs to reach the target. Text, CSV and LaTeX."""

import csv as comma_separated
import dataclasses
import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedloom.evidence.budgets import amount_words, byte_words
from fedloom.evidence.groups import by_task
from fedloom.evidence.statistics import LEVEL
from fedloom.evidence.targets import Target, target
from fedloom.evidence.verdicts import Verdict, verdict, words
from fedloom.experiments.study import Study
from fedloom.experiments.terms import Terms
from fedloom.report.standings import Level, Standing, columns_of_cost, rows

STANDING_NOTES = (
    "at: the last evaluation that a run could afford, mean +- standard deviation over seeds.  behind: the mean paired",
    "difference to the best, with a 95% interval for seeds and test examples.  worse: p is at most "
    f"{LEVEL:g} after Holm's",
    "correction for all pairs of methods, and for looking several times; otherwise tied.  (everyone), (2 exchanges): a",
    "method whose rounds cost more than those of the others, so that it can afford fewer.",
)


def cost_notes(terms: Terms) -> tuple[str, ...]:
    """What the columns of the second table mean under the study's terms."""
    reaching = "until an evaluation first reaches the target"
    if terms.crossing == "stay":
        reaching = f"until the mean of {terms.window} evaluations crosses the target, if it does not end short of it"
    return (
        f"rounds, models, bytes, gradients: {reaching};",
        "mean over the seeds that reach it.  models: sent by a client that takes part in every exchange; a control",
        "variate counts as one (FedDyn's measure).  bytes: of all clients, down and up.  seconds: per run, with",
        "compilation.  clients: mean number per exchange.",
    )


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: its heading, the text of a cell, and the value by which rows are sorted."""

    head: str
    text: Callable[[Standing], str]
    value: Callable[[Standing], Any]
    number: bool = False  # whether cells are single numbers, which are aligned at the right


def standing_columns(study: Study, task: str) -> list[Column]:
    """Methods at equal cost."""
    found = [Column("method", lambda row: row.label, lambda row: row.label)]
    for i, (cost, limit) in enumerate(columns_of_cost(study, task).items()):
        found.append(_at_cost(cost, limit))
        if i == 0 and verdict(study, task).against:
            found.append(Column("behind the best by", _behind_words, lambda row: row.behind))
            found.append(Column("verdict", _verdict_words, lambda row: row.p))
    found.append(Column("at the end", _final_words, lambda row: _mean_of(row.final)))
    return found


def _at_cost(cost: str, limit: float) -> Column:
    return Column(
        f"at {amount_words(cost, limit)}",
        lambda row: level_words(row.at.get(cost)),
        lambda row: _mean_of(row.at.get(cost)),
    )


def cost_columns(goal: Target) -> list[Column]:
    """What each method needs to reach the target."""
    return [
        Column("method", lambda row: row.label, lambda row: row.label),
        Column("rounds", lambda row: _rounds_words(row, goal), lambda row: row.rounds),
        Column("models", lambda row: _plain_number(row.models), lambda row: row.models, True),
        Column("bytes", lambda row: "-" if row.bytes is None else byte_words(row.bytes), lambda row: row.bytes, True),
        Column("gradients", lambda row: _gradient_words(row.gradients), lambda row: row.gradients, True),
        Column(
            "seconds", lambda row: "-" if row.seconds is None else f"{row.seconds:.1f}", lambda row: row.seconds, True
        ),
        Column("seeds", lambda row: str(row.seeds), lambda row: row.seeds, True),
        Column("clients", lambda row: _plain_number(row.clients), lambda row: row.clients, True),
    ]


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


def _plain_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}".removesuffix(".0")


def _gradient_words(value: float | None) -> str:
    return "-" if value is None else amount_words("gradients", value).removesuffix(" gradients")


def _mean_of(level: Level | None) -> float | None:
    return None if level is None else level.mean


def level_words(level: Level | None) -> str:
    """The mean and its spread."""
    if level is None:
        return "-"
    spread = "" if level.spread is None else f" +- {number(level.spread, like=level.mean)}"
    return number(level.mean) + spread


def _final_words(row: Standing) -> str:
    if found := notes(row):
        return found if row.final is None else f"{level_words(row.final)}, {found}"
    return level_words(row.final)


def _behind_words(row: Standing) -> str:
    if row.behind is None or row.interval is None:
        return "-"
    low, high = row.interval
    room = (high - low) / 2
    digits = min(max(1 - math.floor(math.log10(room)), 0), 9) if room > 0 else 4  # two of the half-width
    return f"{row.behind:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _verdict_words(row: Standing) -> str:
    if row.p is None:
        return row.verdict
    if row.p < 0.001:
        return f"{row.verdict}, p < 0.001"
    two = f"{row.p:.2g}"
    return f"{row.verdict}, p = {two if (float(two) <= LEVEL) == (row.p <= LEVEL) else f'{row.p:.4g}'}"


def _rounds_words(row: Standing, goal: Target) -> str:
    if row.rounds is None:
        return missed_words(row, goal)
    some = f" ({row.reached} of {row.seeds})" if row.reached < row.seeds else ""
    return _plain_number(row.rounds) + some


def missed_words(row: Standing, goal: Target) -> str:
    """Why a method has no cost to the target: no seed reaches it."""
    if math.isnan(goal.value):
        return "no target"
    if row.unfinished:
        return "not yet"
    if not row.touched:
        return "not reached"
    touched = f"touched at {_plain_number(sum(row.touched) / len(row.touched))}"
    if row.diverged:
        return f"{touched}, diverged"
    if row.arrived == len(row.touched):
        return f"{touched}, not yet kept"
    return f"{touched}, ended {'below' if goal.larger_is_better else 'above'}"


def notes(row: Standing) -> str:
    """A note on seeds that diverged, are unfinished or are damaged."""
    found = []
    if row.diverged:
        which = "" if row.lost else f"{len(row.diverged)} of {row.seeds} "
        listed = ", ".join(str(t) for t in sorted(set(row.diverged)))
        found.append(f"{which}diverged (round{'s' if len(set(row.diverged)) > 1 else ''} {listed})")
    for what, count in (("unfinished", row.unfinished), ("damaged", row.damaged)):
        if count:
            found.append(what if count == row.seeds else f"{count} of {row.seeds} {what}")
    return ", ".join(found)


def target_words(goal: Target) -> str:
    """The target, where it comes from, and a warning if it means nothing."""
    warning = "; the initial model meets it already, so reaching it says nothing" if goal.met_at_start else ""
    return str(goal) if math.isnan(goal.value) else f"{goal} ({goal.rule}{warning})"


def text(study: Study) -> str:
    """The tables for a terminal."""
    lines = [study.title] if study.title else []
    for task in by_task(study):
        found, goal, judged = rows(study, task), target(study, task), verdict(study, task)
        lines += ["", f"{task}: {goal.metric}{_at(judged)}", "", *_aligned(standing_columns(study, task), found)]
        for sentence in words(judged, {row.name: row.label for row in found}):
            lines += ["", *textwrap.wrap(sentence, 118, break_on_hyphens=False)]
        lines += ["", f"{task}: cost to reach {target_words(goal)}", "", *_aligned(cost_columns(goal), found)]
        lines += [f"settings: {line}" for line in _settings(found)]
    return "\n".join([*lines, "", *STANDING_NOTES, *cost_notes(study.terms)]).lstrip("\n")


def _at(judged: Verdict) -> str:
    return "" if judged.amount is None else f" at equal cost, {judged.at}"


def _settings(found: Sequence[Standing]) -> Iterator[str]:
    """Where the hyperparameters come from, methods with the same origin together."""
    origins: dict[str, list[str]] = {}
    for row in found:
        if row.setting:
            origins.setdefault(row.setting, []).append(row.name)
    for i, (origin, names) in enumerate(origins.items()):
        yield f"{origin} ({', '.join(names) if len(origins) > 1 else 'all methods'})"
        if i == 4 and len(origins) > 6:
            yield f"{len(origins) - 5} more, in the report"
            return


def _aligned(columns: Sequence[Column], found: Sequence[Standing]) -> Iterator[str]:
    table = [[c.head for c in columns], *([c.text(row) for c in columns] for row in found)]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    table.insert(1, ["-" * width for width in widths])
    for line in table:
        padded = (c.rjust(w) if of.number else c.ljust(w) for c, w, of in zip(line, widths, columns, strict=True))
        yield "  ".join(padded).rstrip()


def plain(study: Study) -> list[dict[str, Any]]:
    """The rows as plain data, with their target. Values that JSON lacks, such as nan, are None."""
    found = []
    for task in by_task(study):
        goal, limits = target(study, task), columns_of_cost(study, task)
        for row in rows(study, task):
            facts: dict[str, Any] = {"task": task, "name": row.name, "metric": goal.metric}
            facts |= {"target": goal.value, "rule": goal.rule, "budget": study.terms.budget.cost}
            for cost in ("bytes", "gradients", "rounds", "seconds"):
                level = row.at.get(cost)
                facts |= {f"amount of {cost}": limits.get(cost), f"at equal {cost}": _mean_of(level)}
            facts |= {"final": _mean_of(row.final), "spread": row.final.spread if row.final else None}
            facts |= {"low": row.interval[0], "high": row.interval[1]} if row.interval else {"low": None, "high": None}
            kept = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
            facts |= {k: list(v) if isinstance(v, tuple) else v for k, v in kept.items() if k not in _NESTED}
            found.append({k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in facts.items()})
    return found


_NESTED = ("at", "final", "interval")


def csv(study: Study) -> str:
    """The rows in full precision. Fields not reached are empty; several rounds are separated by spaces."""
    file, found = io.StringIO(), plain(study)
    writer = comma_separated.DictWriter(file, list(found[0]) if found else [], lineterminator="\n")
    writer.writeheader()
    for facts in found:
        writer.writerow({k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in facts.items()})
    return file.getvalue()


LATEX = {c: "\\" + c for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def escaped(words: str) -> str:
    return "".join(LATEX.get(c, c) for c in words).replace("+-", r"$\pm$")


def latex(study: Study) -> str:
    """Two tables for each task; they need the LaTeX package booktabs."""
    parts = []
    for task in by_task(study):
        goal, judged, found = target(study, task), verdict(study, task), rows(study, task)
        shown = {row.name: row.label for row in found}
        for columns, comment in (
            (standing_columns(study, task), f"{goal.metric}{_at(judged)}. {' '.join(words(judged, shown))}"),
            (cost_columns(goal), f"cost to reach {target_words(goal)}"),
        ):
            lines = [
                "% " + " ".join(f"{study.title} {task}: {comment}".split()),
                rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
                r"\toprule",
                " & ".join(escaped(c.head) for c in columns) + r" \\",
                r"\midrule",
                *(" & ".join(escaped(c.text(row)) for c in columns) + r" \\" for row in found),
            ]
            parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n")
    return "\n".join(parts)
