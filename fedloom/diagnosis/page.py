"""A diagnosis as a page that opens offline, in the style of reports, with figures as PNG and SVG."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from importlib import resources

import numpy as np
from matplotlib.figure import Figure

from fedloom.diagnosis.of_run import Along
from fedloom.diagnosis.of_task import Diagnosis
from fedloom.diagnosis.run_text import along_rows
from fedloom.diagnosis.simulated import Simulated
from fedloom.diagnosis.task_text import (
    READING,
    bound_words,
    constant_rows,
    curve_rows,
    headline,
    left_words,
    nothing_promised,
    other_words,
    setting_words,
    step_rows,
)
from fedloom.diagnosis.verdict import FAILS, UNKNOWN
from fedloom.experiments.files import write_whole
from fedloom.experiments.run_directory import new_directory
from fedloom.hyperparameters import brief
from fedloom.report.drawing import Picture, content, words
from fedloom.report.page import GENERATOR, POLICY
from fedloom.report.series import COLOURS, slug
from fedloom.version import __version__

PAGE = "report.html"
LOOKS = {"bound": ("#555555", "--"), "theorem's steps": (COLOURS[0], "-"), "setting's steps": (COLOURS[1], "-")}


def write(found: Diagnosis | Along, directory: pathlib.Path) -> pathlib.Path:
    """Write the page and its figures into a new directory, and return the path of the page."""
    new_directory(directory)
    drawn: dict[str, Callable[[], Figure]] = {}
    if isinstance(found, Diagnosis):
        drawn = {
            m.name: partial(curves, m.simulated, m.name) for m in found.methods if m.simulated and m.simulated.curves
        }
    else:
        drawn = {"dissimilarity": partial(dissimilarity, found)}
    pictures: dict[str, bytes] = {}
    for name, draw in drawn.items():
        figure = draw()
        pictures[name] = content(figure, "svg")
        write_whole(directory / f"{slug(name)}.svg", pictures[name])
        write_whole(directory / f"{slug(name)}.png", content(figure, "png"))
    title, body = _of_task(found, pictures) if isinstance(found, Diagnosis) else _of_run(found, pictures)
    write_whole(directory / PAGE, _page(title, body).encode())
    return directory / PAGE


def curves(s: Simulated, title: str) -> Figure:
    """The bound, and the left-hand side in the runs, over rounds, on logarithmic axes."""
    figure = Picture(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    for curve in s.curves:
        colour, dash = LOOKS[curve.label]
        good = np.isfinite(curve.values) & (curve.values > 0)
        label = bound_words(s) if curve.label == "bound" else curve.label
        axes.plot(curve.rounds[good], curve.values[good], dash, color=colour, marker=".", label=label)
    what = "f - f*" if s.verdict.theorem.left.value == "gap" else "squared gradient of f"
    axes.set(xscale="log", yscale="log", xlabel="T, rounds", ylabel=what)
    axes.set_title(words(f"{title}: {s.verdict.theorem.name}"), loc="left", fontsize=11)
    return _finished(figure)


def dissimilarity(a: Along) -> Figure:
    """B and the gradient's norm along a run."""
    figure = Picture(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    rounds = [p.round for p in a.points]
    for i, (name, label) in enumerate({"B": "dissimilarity B", "gradient": "|grad f|"}.items()):
        axes.plot(rounds, [getattr(p, name) for p in a.points], color=COLOURS[i], marker=".", label=label)
    axes.set(yscale="log", xlabel="rounds")
    axes.set_title(words(a.result.name), loc="left", fontsize=11)
    return _finished(figure)


def _finished(figure: Figure) -> Figure:
    axes = figure.axes[0]
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    return figure


def _of_task(d: Diagnosis, pictures: Mapping[str, bytes]) -> tuple[str, str]:
    c = d.constants
    parts = [
        f'<p class="quiet">{c.clients:,} clients, {c.dimension:,} parameters, seed {d.seed}</p>',
        "<section><h2>Constants at the initial model</h2>",
        _table([("constant", "value", "holds", "what it is"), *constant_rows(c)]),
        _quiet(c.notes),
        "</section>",
    ]
    for m in d.methods:
        e, best = m.experiment, m.verdicts[0]
        parts.append(f'<section><h2>{escape(m.name)}</h2><p class="quiet">{escape(setting_words(e))}</p>')
        parts.append(f"<p><b>{escape(headline(m))}</b></p>")
        why = [f"{status}: {reason}" for status in (FAILS, UNKNOWN) for reason in best.because(status)]
        parts.append("<ul>" + "".join(f"<li>{escape(line)}</li>" for line in [*why, *other_words(m)]) + "</ul>")
        parts.append(f"<h3>Step sizes: {escape(best.theorem.name)}</h3>{_table(step_rows(m.steps))}")
        parts.append(_quiet([f"{best.theorem.citation}; {best.theorem.reading}."]))
        if m.simulated is not None:
            parts.append("<h3>Predicted and simulated</h3>")
            if m.name in pictures:
                parts.append(f"<p>{escape(left_words(m.simulated))}</p>{_picture(pictures[m.name])}")
                parts.append(_table(curve_rows(m.simulated)))
            bounded = any(curve.label == "bound" for curve in m.simulated.curves)
            why = [nothing_promised(m.simulated)] if bounded and not m.simulated.promised else []
            parts.append(_quiet([*why, *m.simulated.notes, READING, *d.notes]))
        parts.append("</section>")
    if d.silent:
        parts.append(f"<p>No theorem is known here about {escape(', '.join(d.silent))}.</p>")
    return f"{d.task}: a diagnosis", "".join(parts)


def _of_run(a: Along, pictures: Mapping[str, bytes]) -> tuple[str, str]:
    e = a.result.experiment
    setting = f"{brief(e.algorithm)}, {brief(e.solver)}, {brief(e.cohort)}, seed {e.seed}"
    parts = [
        f'<p class="quiet">{escape(str(a.result.directory))}: {escape(setting)}</p><section><h2>Along the run</h2>',
        f"<p><b>{escape(a.words)}</b></p>",
        *(_picture(picture) for picture in pictures.values()),
        _table([row[:-1] for row in along_rows(a)]),
        _quiet(a.notes),
        "</section>",
    ]
    return f"{e.base_task().name}, {a.result.name}: a diagnosis", "".join(parts)


def _picture(svg: bytes) -> str:
    """The figure itself, on white also where the page is dark."""
    text = svg.decode()
    return f'<div style="background:white;max-width:760px">{text[text.index("<svg") :]}</div>'


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *lines = rows
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return (
        f'<div class="scroll"><table class="words"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _quiet(lines: Sequence[str]) -> str:
    return "".join(f'<p class="quiet">{escape(line)}</p>' for line in lines)


def _page(title: str, body: str) -> str:
    style = resources.files("fedloom.report").joinpath("page.css").read_text()
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
{GENERATOR} {__version__}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{escape(title)}</h1></header>
<main>
{body}
</main>
<footer>Written by FedLoom {__version__}. This file is self-contained and loads nothing.</footer>
</body>
</html>
"""
