"""The answers of the report's page: cards, and tables: methods at equal cost, cost to the target, settings."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from fedloom.evidence.budgets import byte_words
from fedloom.evidence.targets import Target, target
from fedloom.evidence.verdicts import verdict, words
from fedloom.experiments.study import Study
from fedloom.report import tables
from fedloom.report.standings import Standing, rows

Looks = Mapping[str, tuple[str, str]]  # colour and dash of each method

NAMED = 4  # methods that a card names


def signs(text: str) -> str:
    """Escaped, with the signs that a terminal may lack."""
    return escape(text.replace(">=", "≥").replace("<=", "≤").replace("+-", "±"))


def cards(study: Study, task: str, looks: Looks, noun: str) -> str:
    """The answers in brief. A method is named alone only if it differs from all others by more than luck."""
    goal, judged, found = target(study, task), verdict(study, task), rows(study, task)
    shown = {row.name: row.label for row in found}
    made = []
    if judged.best is not None and judged.amount is not None and study.about.get("kind") != "sweep":
        best = next(row for row in found if row.name == judged.best)
        level = tables.level_words(best.at.get(judged.cost))
        if judged.separated:
            made.append(_card(f"Best {goal.metric} at {judged.at}", [judged.best], shown, looks, level))
        elif judged.against:
            much = f"of {len(judged.means)} {noun}s; the best mean is {level}"
            made.append(_card(f"Tied for the best {goal.metric} at {judged.at}", judged.tied, shown, looks, much))
        else:
            what = f"{'Highest' if goal.larger_is_better else 'Lowest'} mean {goal.metric} at {judged.at}"
            made.append(_card(what, [judged.best], shown, looks, f"{level}; no verdict"))
    if not math.isnan(goal.value):
        sure = sorted((row for row in found if row.reached == row.seeds), key=lambda row: row.bytes or 0)
        verb = "touched" if study.terms.crossing == "first" else "reached and kept"
        much = f"{verb} with every seed by {len(sure)} of {len(found)} {noun}s"
        if goal.met_at_start:
            much = "met by the initial model already: it says nothing"
        made.append(_plain_card("Target", signs(str(goal)), escape(much)))
        if sure and not goal.met_at_start:
            costs = [f"{row.label} after {byte_words(row.bytes or 0)}" for row in sure[:NAMED]]
            what = f"{verb[0].upper() + verb[1:]} with every seed"
            made.append(_card(what, [row.name for row in sure], shown, looks, ", ".join(costs)))
    lines = words(judged, shown)
    more = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<div class="cards">{"".join(made)}</div><div class="verdict">{more}</div>'


def _card(what: str, who: Sequence[str], shown: Mapping[str, str], looks: Looks, much: str) -> str:
    named = [f'<span><i style="background:{looks[name][0]}"></i>{escape(shown[name])}</span>' for name in who[:NAMED]]
    if len(who) > NAMED:
        named.append(f"<span>and {len(who) - NAMED} more</span>")
    return _plain_card(what, ", ".join(named), signs(much))


def _plain_card(what: str, who: str, much: str) -> str:
    return (
        f'<div class="card"><div class="what">{escape(what)}</div><div class="who">{who}</div>'
        f'<div class="much">{much}</div></div>'
    )


def standing_table(study: Study, task: str, looks: Looks) -> str:
    """Methods at equal cost."""
    return _table(tables.standing_columns(study, task), rows(study, task), looks)


def cost_table(study: Study, task: str, goal: Target, looks: Looks) -> str:
    """What each method needs to reach the target."""
    return _table(tables.cost_columns(goal), rows(study, task), looks)


def _table(columns: Sequence[tables.Column], found: Sequence[Standing], looks: Looks) -> str:
    heads = "".join(f'<th><button type="button">{escape(c.head)}</button></th>' for c in columns)
    lines = []
    for row in found:
        colour, dash = looks[row.name]
        css = {"solid": "solid", "dash": "dashed", "dot": "dotted"}[dash]
        cells = []
        for i, column in enumerate(columns):
            value: Any = column.value(row)
            known = value is not None and not (isinstance(value, float) and math.isnan(value))
            swatch = f'<i style="border-top:3px {css} {colour}"></i>' if i == 0 else ""
            kind = "" if known or column.text(row) not in ("-", "not reached", "not yet") else "never"
            if column.head == "at the end" and tables.notes(row):
                kind = "note"
            if column.head == "verdict":
                kind = row.verdict
            of = f' class="{kind}"' if kind else ""
            cells.append(
                f'<td{of} data-head="{escape(column.head)}" data-value="{escape(str(value)) if known else ""}">'
                f"{swatch}{signs(column.text(row))}</td>"
            )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def settings_table(found: Iterable[Standing]) -> str:
    """Where the hyperparameters of each method come from."""
    lines = [f"<tr><td>{escape(row.label)}</td><td>{escape(row.setting)}</td></tr>" for row in found if row.setting]
    if not lines:
        return ""
    return (
        "<h3>Where the settings come from</h3>"
        '<div class="scroll"><table class="words"><thead><tr><th>method</th><th>hyperparameters</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
