"""The report's page: one HTML file that opens offline, including its data, its style and Plotly's program.

Everything that users wrote is escaped, and the page's Content-Security-Policy forbids all requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from plotly.offline import get_plotlyjs

from fedloom.evidence.targets import target
from fedloom.evidence.verdicts import verdict
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.report import page_tables, tables
from fedloom.report.controls import controls, name_buttons, reading
from fedloom.report.figures import ordered, styles
from fedloom.report.page_data import LABELS, about_task, task_data, to_json
from fedloom.report.provenance import configurations, machines
from fedloom.report.series import AXIS_LABELS, BEST, EARLY, by_name, by_task, labels, quantile
from fedloom.report.standings import Standing
from fedloom.report.standings import rows as standing_rows
from fedloom.version import __version__

GENERATOR = '<meta name="generator" content="FedLoom'
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)

FOREST = (
    "Thick: 95% interval. Thin: corrected for all pairs of methods and for looking several times; a method whose thin",
    "interval includes 0 is tied with the best.",
)

# A heading, a fragment of HTML, and a figure as plain data for Plotly or None.
Extra = tuple[str, str, Mapping[str, Any] | None]


def page(study: Study, extra: Iterable[Extra] = (), after: Iterable[Extra] = ()) -> str:
    """The page of a study. Fragments before and after its tasks are inserted as they are: escape what users wrote."""
    before = list(extra)
    extra = [*before, *after]
    tasks = by_task(study)
    looks = styles(study)
    of = {task: standing_rows(study, task) for task in tasks}
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
        ("unfinished", sum(not r.finished and not r.damaged for r in study.results)),
        ("damaged", sum(r.damaged is not None for r in study.results)),
    ):
        if count:
            words.append(f'<span class="note">{count} {what}</span>')
    return " · ".join(words)


def _section(
    i: int,
    study: Study,
    task: str,
    results: Sequence[Result],
    rows: Sequence[Standing],
    looks: Mapping[str, tuple[str, str]],
    names: Sequence[str],
) -> str:
    goal, about = target(study, task), about_task(results)
    parts = [
        f'<section id="task-{i}"><h2>{escape(task)}</h2><p class="quiet">{escape(str(about.get("words", "")))}</p>'
    ]
    if about:
        summary = str(about.get("summary", f"{about['clients']:,} clients")).split("\n")[0]
        parts.append(f'<p class="quiet">{escape(summary)}, {about["parameters"]:,} parameters</p>')
    parts.append(page_tables.cards(study, task, looks, _noun(study)))
    parts.append(controls(results, goal.metric) + name_buttons(names, labels(study), looks))
    parts.append('<div class="plot curves"></div><p class="outside quiet" role="status" hidden></p>')
    parts.append(f'<p class="quiet">{reading(len(names), results, _noun(study))}</p>')
    parts.append(f"<h3>{escape(goal.metric)} at equal cost</h3>{page_tables.standing_table(study, task, looks)}")
    parts.append(_quiet(tables.STANDING_NOTES))
    if verdict(study, task).against:
        parts.append('<h3>Differences to the best</h3><div class="plot forest"></div>')
        parts.append(_quiet(FOREST))
    cost = page_tables.signs(f"Cost to reach {tables.target_words(goal)}")
    parts.append(f"<h3>{cost}</h3>{page_tables.cost_table(study, task, goal, looks)}")
    parts.append(_quiet(tables.cost_notes(study.terms)))
    parts.append(page_tables.settings_table(rows))
    if "sizes" in about:
        parts.append(f'<h3>The split</h3>{_split_words(about)}<div class="plot split"></div>')
    return "".join(parts) + "</section>\n"


def _quiet(lines: Sequence[str]) -> str:
    return f'<p class="quiet">{page_tables.signs(" ".join(lines))}</p>'


def _split_words(about: Mapping[str, Any]) -> str:
    words = []
    if about["clients"] > len(about["sizes"]):
        words.append(f"Only the first {len(about['sizes'])} of {about['clients']:,} clients are shown.")
    classes = len(about["labels"][0]) if "labels" in about else 0
    if classes > LABELS:
        words.append(f"Only the {LABELS} most frequent of {classes:,} labels are shown.")
    return f'<p class="quiet">{" ".join(words)}</p>' if words else ""
