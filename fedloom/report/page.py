"""The report's page: one HTML file that opens offline, including its data, its style and Plotly's program.

Everything that users wrote is escaped, and the page's Content-Security-Policy forbids all requests.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from plotly.offline import get_plotlyjs

from fedloom.evidence.targets import target
from fedloom.experiments.definition import Experiment
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.hyperparameters import brief
from fedloom.report import page_tables, tables
from fedloom.report.figures import styles
from fedloom.report.page_data import LABELS, about_task, task_data, to_json
from fedloom.report.series import AXIS_LABELS, BANDWIDTH, EARLY, MOST, axes_of, by_name, by_task, metrics
from fedloom.report.standings import Standing
from fedloom.report.standings import rows as standing_rows
from fedloom.version import __version__

GENERATOR = '<meta name="generator" content="FedLoom'
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)
AXIS_NAMES = {"time": "time at a bandwidth", "clock": "simulated time"}

# A heading, a fragment of HTML, and a figure as plain data for Plotly or None.
Extra = tuple[str, str, Mapping[str, Any] | None]


def page(study: Study, extra: Iterable[Extra] = (), after: Iterable[Extra] = ()) -> str:
    """The page of a study. Fragments before and after its tasks are inserted as they are: escape what users wrote."""
    before = list(extra)
    extra = [*before, *after]
    tasks = by_task(study)
    looks = styles(study)
    of = {task: standing_rows(study, task) for task in tasks}
    data = {
        "tasks": [task_data(study, task, results, of[task], looks) for task, results in tasks.items()],
        "labels": {axis: words.replace("{bandwidth:g}", "{bandwidth}") for axis, words in AXIS_LABELS.items()},
        "most": MOST,
        "early": EARLY,
        "extra": [figure for _, _, figure in extra],
    }
    sections = [_section(i, study, task, tasks[task], of[task], looks) for i, task in enumerate(tasks)]
    added = [
        f"<section><h2>{escape(heading)}</h2>{fragment}"
        + (f'<div class="plot" id="extra-{i}"></div></section>' if figure else "</section>")
        for i, (heading, fragment, figure) in enumerate(extra)
    ]
    title = escape(study.title or "Comparison of federated methods")
    style, program = (resources.files(__package__).joinpath(name).read_text() for name in ("page.css", "page.js"))
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
<p class="quiet">Save one of these to a file to run it again: <code>fedloom run FILE</code>.</p>
{"".join(_configurations(tasks))}</section>
<section><h2>Machine and versions</h2>{"".join(_machines(study.results))}</section>
</main>
<footer>Written by FedLoom {__version__}. This file is self-contained and loads nothing.</footer>
<script type="application/json" id="data">{to_json(data)}</script>
<script>{get_plotlyjs()}</script>
<script>
{program}</script>
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
    rows: Sequence[Standing],
    looks: Mapping[str, tuple[str, str]],
) -> str:
    goal, about = target(study, task), about_task(results)
    parts = [
        f'<section id="task-{i}"><h2>{escape(task)}</h2><p class="quiet">{escape(str(about.get("words", "")))}</p>'
    ]
    if about:
        summary = str(about.get("summary", f"{about['clients']:,} clients")).split("\n")[0]
        parts.append(f'<p class="quiet">{escape(summary)}, {about["parameters"]:,} parameters</p>')
    parts.append(page_tables.cards(study, task, looks, _noun(study)))
    parts.append(
        _controls(list(metrics(results)), goal.metric, list(axes_of(results))) + '<div class="plot curves"></div>'
    )
    parts.append(
        '<p class="quiet">Lines: mean over seeds. Bands: smallest to largest of the seeds. Crosses: where a '
        "run diverged. Click a name to hide it, double-click to see it alone. "
        "The vertical scale ignores the first fifth of the rounds; double-click the plot to see everything."
        + (
            f" Of {len(rows)} {_noun(study)}s, only the first {MOST} of the table are shown at first.</p>"
            if len(rows) > MOST
            else "</p>"
        )
    )
    parts.append(f"<h3>{escape(goal.metric)} at equal cost</h3>{page_tables.standing_table(study, task, looks)}")
    parts.append(_quiet(tables.STANDING_NOTES))
    cost = page_tables.signs(f"Cost to reach {tables.target_words(goal)}")
    parts.append(f"<h3>{cost}</h3>{page_tables.cost_table(study, task, goal, looks)}")
    parts.append(_quiet(tables.cost_notes(study.terms)))
    parts.append(page_tables.settings_table(rows))
    if "sizes" in about:
        parts.append(f'<h3>The split</h3>{_split_words(about)}<div class="plot split"></div>')
    return "".join(parts) + "</section>\n"


def _quiet(lines: Sequence[str]) -> str:
    return f'<p class="quiet">{page_tables.signs(" ".join(lines))}</p>'


def _controls(names: Sequence[str], chosen: str, axes_known: Sequence[str]) -> str:
    options = "".join(f"<option{' selected' if n == chosen else ''}>{escape(n)}</option>" for n in names)
    axes = "".join(
        f'<option value="{axis}"{" selected" if axis == "clock" else ""}>{AXIS_NAMES.get(axis, axis)}</option>'
        for axis in axes_known
    )
    return (
        f'<div class="controls"><label>metric<select name="metric">{options}</select></label>'
        f'<label>against<select name="x">{axes}</select></label>'
        f'<label hidden>bandwidth, MB/s<input name="bandwidth" type="number" min="0" step="any" value="{BANDWIDTH:g}">'
        '</label><label class="check"><input name="log" type="checkbox">logarithmic</label></div>'
    )


def _split_words(about: Mapping[str, Any]) -> str:
    words = []
    if about["clients"] > len(about["sizes"]):
        words.append(f"Only the first {len(about['sizes'])} of {about['clients']:,} clients are shown.")
    classes = len(about["labels"][0]) if "labels" in about else 0
    if classes > LABELS:
        words.append(f"Only the {LABELS} most frequent of {classes:,} labels are shown.")
    return f'<p class="quiet">{" ".join(words)}</p>' if words else ""


def _configurations(tasks: Mapping[str, Sequence[Result]]) -> Iterable[str]:
    for task, results in tasks.items():
        for name, seeds in by_name(results).items():
            texts: dict[str, list[Result]] = {}  # by everything but the seed
            for result in seeds:
                texts.setdefault(_config(result.experiment, seed=False), []).append(result)
            for same in texts.values():
                numbers = ", ".join(str(r.experiment.seed) for r in same)
                which = f"{task}, " if len(tasks) > 1 else ""
                yield (
                    f'<details><summary>{escape(name)} <span class="quiet">{escape(which)}seed{"s" * (len(same) > 1)} '
                    f'{numbers}</span></summary><div><button type="button" class="copy">copy</button>'
                    f"<pre>{escape(_config(same[0].experiment))}</pre></div></details>"
                )


def _config(experiment: Experiment, seed: bool = True) -> str:
    """The experiment as TOML, or as a description if its method is not registered."""
    try:
        text = experiment.to_toml()
    except ValueError:
        text = "\n".join(f"# {key} = {brief(value)}" for key, value in vars(experiment).items()) + "\n"
    return text if seed else "\n".join(line for line in text.split("\n") if not line.lstrip("# ").startswith("seed ="))


def _machines(results: Sequence[Result]) -> Iterable[str]:
    """Each machine and set of versions, with the methods that ran there if there are several."""
    places: dict[str, tuple[Mapping[str, Any], dict[str, None]]] = {}
    for result in results:
        found = {**result.about.get("machine", {}), **result.about.get("versions", {})}
        if found:
            places.setdefault(json.dumps(found), (found, {}))[1][result.name] = None
    for facts, names in places.values():
        who = f'<p class="quiet">{escape(", ".join(names))}</p>' if len(places) > 1 else ""
        pairs = "".join(f"<dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd>" for k, v in facts.items())
        yield f"{who}<dl>{pairs}</dl>"
