"""Studies and results as notebooks show them: small tables without scripts."""

from html import escape

from fedloom.evidence.targets import target
from fedloom.experiments.progress import duration
from fedloom.experiments.result import NOT_METRICS, Result
from fedloom.experiments.study import Study
from fedloom.report.page_tables import signs
from fedloom.report.series import by_task
from fedloom.report.standings import rows
from fedloom.report.tables import number, standing_columns, target_words


def study_html(study: Study) -> str:
    """Methods at equal cost, with what can be told apart; the same table as `text` begins with."""
    parts = [f"<b>{escape(study.title)}</b>"]
    for task in by_task(study):
        columns = standing_columns(study, task)
        heads = "".join(f"<th>{signs(c.head)}</th>" for c in columns)
        lines = [
            "<tr>" + "".join(f"<td>{signs(c.text(row))}</td>" for c in columns) + "</tr>" for row in rows(study, task)
        ]
        parts.append(f"<table><tr>{heads}</tr>{''.join(lines)}</table>")
        parts.append(f"<div>target: {signs(target_words(target(study, task)))}</div>")
    if study.directory is not None:
        parts.append(f"<div>runs: {escape(str(study.directory))}</div>")
    return "".join(parts)


def result_html(result: Result) -> str:
    """A run: what it is, how far it came, and its last metrics."""
    e = result.experiment
    task = e.task if isinstance(e.task, str) else e.task.name
    title = f"{result.name} on {task}, seed {e.seed}"
    if result.damaged is not None:
        return f"<b>{escape(title)}</b><div>damaged: {escape(result.damaged)}</div>"
    if not result.rows:
        return f"<b>{escape(title)}</b><div>not begun</div>"
    last = result.rows[-1]
    state = f"round {last['round']} of {e.rounds}, {duration(result.seconds)}"
    if result.diverged is not None:
        return f"<b>{escape(title)}</b><div>diverged, {escape(state)}: {escape(result.diverged)}</div>"
    shown = {name: value for name, value in last.items() if name not in NOT_METRICS}
    shown["bytes"] = last["bytes down"] + last["bytes up"]
    heads = "".join(f"<th>{escape(name)}</th>" for name in shown)
    cells = "".join(f"<td>{number(value)}</td>" for value in shown.values())
    return f"<b>{escape(title)}</b><div>{escape(state)}</div><table><tr>{heads}</tr><tr>{cells}</tr></table>"
