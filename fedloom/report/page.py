"""The report's page: one HTML file that opens offline, including its data, its style and Plotly's program.

Everything that users wrote is escaped, and the page's Content-Security-Policy forbids all requests.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from plotly.offline import get_plotlyjs

from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.report import tables
from fedloom.report.controls import controls, name_buttons, reading
from fedloom.report.figures import ordered, styles
from fedloom.report.page_data import LABELS, about_task, task_data, to_json
from fedloom.report.provenance import configurations, machines
from fedloom.report.series import AXIS_LABELS, BEST, EARLY, by_name, by_task, labels, quantile
from fedloom.version import __version__

GENERATOR = '<meta name="generator" content="FedLoom'
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)

# A heading, a fragment of HTML, and a figure as plain data for Plotly or None.
Extra = tuple[str, str, Mapping[str, Any] | None]


def page(study: Study, extra: Iterable[Extra] = (), after: Iterable[Extra] = ()) -> str:
    """The page of a study. Fragments before and after its tasks are inserted as they are: escape what users wrote."""
    before = list(extra)
    extra = [*before, *after]
    tasks = by_task(study)
    looks = styles(study)
    found = tables.rows(study)
    of = {task: [row for row in found if row.task == task] for task in tasks}
    names = {task: ordered(study, task) for task in tasks}
    most = max((len(seeds) for results in tasks.values() for seeds in by_name(results).values()), default=0)
    data = {
        "tasks": [task_data(study, task, results, names[task], looks) for task, results in tasks.items()],
        "labels": {axis: words.replace("{bandwidth:g}", "{bandwidth}") for axis, words in AXIS_LABELS.items()},
        "best": BEST,
        "early": EARLY,
        "quantiles": {seeds: quantile(seeds) for seeds in range(2, most + 1)},
        "extra": [figure for _, _, figure in extra],
    }
    sections = [_section(i, study, task, tasks[task], of[task], looks, names[task]) for i, task in enumerate(tasks)]
    added = [
        f"<section><h2>{escape(heading)}</h2>{fragment}"
        + (f'<div class="plot" id="extra-{i}"></div></section>' if figure else "</section>")
        for i, (heading, fragment, figure) in enumerate(extra)
    ]
    title = escape(study.title or "Comparison of federated methods")
    parts = ("page.css", "page_curves.js", "page.js")
    style, *program = (resources.files(__package__).joinpath(name).read_text() for name in parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
{GENERATOR} {__version__}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{title}</h1><p class="quiet">{_summary(study)}</p></header>
<main>
{"".join(added[: len(before)])}
{"".join(sections)}
{"".join(added[len(before) :])}
<section><h2>Configurations</h2>
{"".join(configurations(study, tasks))}</section>
<section><h2>Machine and versions</h2>{"".join(machines(study.results))}</section>
</main>
<footer>Written by FedLoom {__version__}. This file is self-contained and loads nothing.</footer>
<script type="application/json" id="data">{to_json(data)}</script>
<script>{get_plotlyjs()}</script>
<script>
{"".join(program)}</script>
</body>
</html>
"""


def _noun(study: Study) -> str:
    return "point" if study.about.get("kind") == "sweep" else "method"


def _summary(study: Study) -> str:
    names, runs = len(by_name(study.results)), len(study.results)
    words = [f"{names} {_noun(study)}{'s' * (names != 1)}", f"{runs} run{'s' * (runs != 1)}"]
    for what, count in (
        ("diverged", sum(r.diverged is not None for r in study.results)),
        ("unfinished", sum(not r.finished for r in study.results)),
    ):
        if count:
            words.append(f'<span class="note">{count} {what}</span>')
    return " · ".join(words)


def _section(
    i: int,
    study: Study,
    task: str,
    results: Sequence[Result],
    rows: Sequence[tables.Standing],
    looks: Mapping[str, tuple[str, str]],
    names: Sequence[str],
) -> str:
    goal, about = tables.target(study, task), about_task(results)
    parts = [
        f'<section id="task-{i}"><h2>{escape(task)}</h2><p class="quiet">{escape(str(about.get("words", "")))}</p>'
    ]
    if about:
        summary = str(about.get("summary", f"{about['clients']:,} clients")).split("\n")[0]
        parts.append(f'<p class="quiet">{escape(summary)}, {about["parameters"]:,} parameters</p>')
    parts.append(f'<div class="cards">{"".join(_cards(rows, goal, looks, _noun(study)))}</div>')
    parts.append(controls(results, goal.metric) + name_buttons(names, labels(study), looks))
    parts.append('<div class="plot curves"></div><p class="outside quiet" role="status" hidden></p>')
    parts.append(f'<p class="quiet">{reading(len(names), results, _noun(study))}</p>')
    heading = "Cost" if math.isnan(goal.value) else f"Cost to reach {_signs(goal)}"
    parts.append(f"<h3>{heading} <span class='quiet'>({escape(goal.rule)})</span></h3>")
    parts.append(_table(rows, goal, looks))
    parts.append("".join(f'<p class="quiet">{escape(line.replace("+-", "±"))}</p>' for line in tables.FOOTNOTE))
    if "sizes" in about:
        parts.append(f'<h3>The split</h3>{_split_words(about)}<div class="plot split"></div>')
    return "".join(parts) + "</section>\n"


def _cards(
    rows: Sequence[tables.Standing], goal: tables.Target, looks: Mapping[str, tuple[str, str]], noun: str
) -> Iterable[str]:
    """The answers in brief. Cost is compared among methods that reach the target with every seed."""
    sure = [row for row in rows if row.reached == row.seeds and not row.diverged]
    whole = [row for row in rows if row.final is not None and math.isfinite(row.final) and not row.diverged]
    cards = []
    if sure:
        fast = min(sure, key=lambda row: row.rounds or 0)
        cheap = min(sure, key=lambda row: row.bytes or 0)
        cards.append(("Fewest rounds to the target", fast.name, f"{tables.cells(fast)[1]} rounds", looks[fast.name][0]))
        cards.append(("Fewest bytes to the target", cheap.name, tables.cells(cheap)[3], looks[cheap.name][0]))
    if whole:
        best = (max if goal.larger_is_better else min)(whole, key=lambda row: row.final or 0)
        cards.append((f"Best final {goal.metric}", best.name, tables.cells(best, "±")[4], looks[best.name][0]))
    reached = f"reached by {sum(row.reached > 0 for row in rows)} of {len(rows)} {noun}s"
    if not math.isnan(goal.value):
        yield _card("Target", _signs(goal), reached)
    for what, who, much, colour in cards:
        yield _card(what, f'<i style="background:{colour}"></i>{escape(who)}', much)


def _signs(goal: tables.Target) -> str:
    return escape(str(goal).replace(">=", "≥").replace("<=", "≤"))


def _card(what: str, who: str, much: str) -> str:
    return (
        f'<div class="card"><div class="what">{escape(what)}</div><div class="who">{who}</div>'
        f'<div class="much">{escape(much)}</div></div>'
    )


def _table(rows: Sequence[tables.Standing], goal: tables.Target, looks: Mapping[str, tuple[str, str]]) -> str:
    heads = "".join(f'<th><button type="button">{escape(head)}</button></th>' for head in tables.heads(goal.metric))
    lines = []
    for row in rows:
        raw = [row.name, row.rounds, row.models, row.bytes, row.final, row.seconds, row.seeds, row.clients]
        colour, dash = looks[row.name]
        css = {"solid": "solid", "dash": "dashed", "dot": "dotted"}[dash]
        cells = []
        for i, (words, value) in enumerate(zip(tables.cells(row, "±"), raw, strict=True)):
            known = value is not None and not (isinstance(value, float) and math.isnan(value))
            swatch = f'<i style="border-top:3px {css} {colour}"></i>' if i == 0 else ""
            kind = "" if known else ' class="never"'
            if i == 4 and tables.notes(row):
                kind = ' class="note"'
            cells.append(f'<td{kind} data-value="{escape(str(value)) if known else ""}">{swatch}{escape(words)}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _split_words(about: Mapping[str, Any]) -> str:
    words = []
    if about["clients"] > len(about["sizes"]):
        words.append(f"Only the first {len(about['sizes'])} of {about['clients']:,} clients are shown.")
    classes = len(about["labels"][0]) if "labels" in about else 0
    if classes > LABELS:
        words.append(f"Only the {LABELS} most frequent of {classes:,} labels are shown.")
    return f'<p class="quiet">{" ".join(words)}</p>' if words else ""
