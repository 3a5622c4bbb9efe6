"""Writes a page for each paper, docs/paper-*.md, and its pictures, from the registry and the recorded results.

`make docs`, or `python -m docs.papers`.
"""

import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from docs.causes.why import beside, why
from docs.pictures import picture
from fedloom.data.catalogue import CATALOGUE
from fedloom.reproductions import (
    MEANS,
    RATIOS,
    VERDICTS,
    Reproduction,
    feddane,
    feddr,
    feddyn,
    fedopt,
    fedprox,
    linear_speedup,
)
from fedloom.reproductions.overview import entry
from fedloom.reproductions.recording import Recorded, recorded
from fedloom.reproductions.reproduction import Finding, Values, not_run
from fedloom.reproductions.spread import NOT_RUN

DOCS = pathlib.Path(__file__).parent
PICTURES = "assets/papers"  # in docs
MANY = 6  # methods; more are rows of a table, not columns
FEW = 3  # experiments; more are counted, not named


class Paper(NamedTuple):
    """What has a page."""

    slug: str
    title: str
    words: str  # which paper it is, and what of it is here
    arxiv: str
    reproductions: tuple[Reproduction, ...]

    @property
    def page(self) -> str:
        """The name of its file."""
        return f"paper-{self.slug}.md"


PAPERS = (
    Paper(
        "feddyn",
        "FedDyn",
        'Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021. Its tables count the models '
        "that a device sends until a target is reached.",
        "2111.04263",
        feddyn.REPRODUCTIONS,
    ),
    Paper(
        "linear-speedup",
        "Linear speedup",
        'Yang, Fang and Liu, "Achieving Linear Speedup with Partial Worker Participation in Non-IID Federated '
        'Learning", ICLR 2021. FedAvg with two step sizes: the effects of workers, of their classes and of local '
        "epochs, and table 2.",
        "2101.11203",
        linear_speedup.REPRODUCTIONS,
    ),
    Paper(
        "feddane",
        "FedDANE",
        'Li et al., "FedDANE: A Federated Newton-Type Method", Asilomar 2019. The paper reports that its own method '
        "underperforms; it prints curves and no numbers.",
        "2001.01920",
        feddane.REPRODUCTIONS,
    ),
    Paper(
        "feddr",
        "FedDR",
        "Tran-Dinh et al., NeurIPS 2021: FedDR and asyncFedDR. The paper prints curves and no numbers.",
        "2103.03452",
        feddr.REPRODUCTIONS,
    ),
    Paper(
        "fedopt",
        "FedOpt",
        'Reddi et al., "Adaptive Federated Optimization", ICLR 2021. Table 1 has the means of the last 100 rounds.',
        "2003.00295",
        fedopt.REPRODUCTIONS,
    ),
    Paper(
        "fedprox",
        "FedProx",
        'Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020: a baseline of the other papers. It '
        "prints curves and no numbers.",
        "1812.06127",
        fedprox.REPRODUCTIONS,
    ),
)


def page(paper: Paper) -> str:
    """The whole page."""
    kept = {r.name: found for r in paper.reproductions if (found := recorded(r)) is not None}
    missing = [r for r in paper.reproductions if r.name not in kept]
    lines = [
        f"# {paper.title}",
        "",
        f"{paper.words} [arXiv:{paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})",
        "",
        f"This page is written by `make docs` from the registry and from recorded results: {len(kept)} of "
        f"{len(paper.reproductions)} experiments have been recorded, the others are [missing](#missing). How they are "
        "run and judged: [Reproductions](reproductions.md)."
        if missing
        else "This page is written by `make docs` from the registry and from recorded results. How experiments are run "
        "and judged: [Reproductions](reproductions.md).",
        "",
        "## Claims",
        "",
        "What is checked, and in how many seeds it came out so:",
        "",
        *_claims(paper, kept, ours=False),
        *_questions(paper, kept),
        "",
        f"How to read the tables below. {MEANS[0].upper()}{MEANS[1:]} {RATIOS} {VERDICTS}",
    ]
    for r in paper.reproductions:
        if r.name in kept:
            lines += ["", *_section(r, kept[r.name], [name for name in _lower(r) if name in kept])]
    if missing:
        lines += ["", *_missing(missing)]
    return "\n".join(lines) + "\n"


def pictures(paper: Paper) -> dict[str, str]:
    """The pictures of what has been recorded, by file name."""
    found = {r: recorded(r) for r in paper.reproductions}
    return {picture_name(r): picture(r, kept) for r, kept in found.items() if kept is not None and kept.values}


def picture_name(r: Reproduction) -> str:
    return r.name.replace("%", "") + ".svg"


def anchor(heading: str) -> str:
    """What links to a heading, here and where the repository is read."""
    return re.sub(r"[^\w-]", "", heading).lower()


def _questions(paper: Paper, kept: dict[str, Recorded]) -> list[str]:
    """What is checked, too, and is not the paper's."""
    if not any(claim.ours for r in paper.reproductions for claim in r.claims):
        return []
    return ["", "Questions of ours, which are not claims of the paper:", "", *_claims(paper, kept, ours=True)]


def _claims(paper: Paper, kept: dict[str, Recorded], ours: bool) -> list[str]:
    """Every claim once for each experiment whose record is about it, and once for all others."""
    every = dict.fromkeys(claim.words for r in paper.reproductions for claim in r.claims if claim.ours is ours)
    rows = []
    for words in every:
        having = [r for r in paper.reproductions if any(c.words == words for c in r.claims)]
        verdicts = {r: verdicts_of(r, words, kept[r.name].values) for r in having if r.name in kept}
        found = {r: of for r, of in verdicts.items() if not all(verdict.startswith(NOT_RUN) for verdict in of)}
        rows += [(words, f"[`{r.name}`](#{anchor(r.name)})", "<br>".join(of)) for r, of in found.items()]
        others = [r for r in having if r not in found]
        if others:
            names = [f"[`{r.name}`](#{anchor(r.name if r in verdicts else 'Missing')})" for r in others]
            few = "<br>".join(names) if len(names) <= FEW else f"{len(names)} experiments, [missing](#missing)"
            rows.append((words, few, "not run yet"))
    return _table(("question" if ours else "claim", "experiment", "verdict"), rows)


def verdicts_of(r: Reproduction, words: str, values: Values) -> list[str]:
    """The verdicts of a claim, each with the settings that have it."""
    claims = [claim for claim in r.claims if claim.words == words]
    settings: dict[str, list[str]] = {}
    for claim in claims:
        settings.setdefault(r.verdict(claim, values).words, []).append(claim.setting)
    if len(settings) == 1:
        (verdict,) = settings
        return [verdict if len(claims) == 1 else f"{verdict} (in each of {len(claims)} settings)"]
    return [f"{verdict} ({'; '.join(of)})" for verdict, of in settings.items()]


def _lower(r: Reproduction) -> list[str]:
    """Experiments, if there are such, that have only the lower target of this one, in other seeds or cohorts."""
    return [f"{r.name}-lower", f"{r.name}-authors-lower"]


def _section(r: Reproduction, kept: Recorded, lower: Sequence[str]) -> list[str]:
    """What came out of one; `lower` are those recorded ones that have its lower target only."""
    findings = r.outcome(kept.values)
    lines = [f"## `{r.name}`", "", r.about, *(["", r.notes] if r.notes else [])]
    if lower:
        lines += ["", f"The lower target once more: {', '.join(f'[`{name}`](#{anchor(name)})' for name in lower)}."]
    if kept.rounds < r.rounds:
        lines += ["", f"These runs have only {kept.rounds} of {r.rounds} rounds: the verdicts are not about full runs."]
    lines += ["", kept.how, "", "```sh", kept.command, "```"]
    if kept.values:
        lines += ["", f"![What was recorded of {r.name}]({PICTURES}/{picture_name(r)})"]
    measured = "; ".join(dict.fromkeys(line.measure.words for line in r.lines))
    lines += ["", f"Figures: {measured}. {_evaluated(r)}", "", *_figures(r, findings)]
    lines += ["", distances] if (distances := beside(r, kept.values)) else []
    if r.claims:
        rows = [(f.paper, f.setting, f.verdict, f.ratio) for f in findings if f.verdict and f.there]
        lines += ["", *_table(("claim", "setting", "verdict", "ratio"), rows)] if rows else []
    return lines + why(r, kept.values)


def _evaluated(r: Reproduction) -> str:
    """How often: a mean over the last rounds is one of the evaluations among them."""
    every = sorted({e.evaluate_every for e in r.experiments.values()})
    return "Evaluated every round." if every == [1] else f"Evaluated every {' or '.join(map(str, every))} rounds."


def _figures(r: Reproduction, findings: list[Finding]) -> list[str]:
    """Our figures beside the paper's; if it prints none, a row for each setting and a column for each method.

    Or the other way round, if there are many methods.
    """
    figures = [f for f in findings if not f.verdict and f.there]
    lost = not_run(findings)
    missing = ["", lost] if lost else []
    if any(line.reported is not None for line in r.lines):
        head = ("setting", "method", "ours", "paper", "ratio", "paper's ratio")
        return _table(head, [f[:6] for f in figures]) + missing
    ours = {(f.setting, f.method): f.ours for f in figures}
    settings, methods = (list(dict.fromkeys(f[i] for f in figures)) for i in (0, 1))
    if len(methods) > max(MANY, len(settings)):
        rows = [(m, *(ours.get((s, m), "") for s in settings)) for m in methods]
        return _table(("method", *settings), rows) + missing
    rows = [(s, *(ours.get((s, m), "") for m in methods)) for s in settings]
    return _table(("setting", *methods), rows) + missing


def _missing(some: list[Reproduction]) -> list[str]:
    rows = []
    for r in some:
        rows.append((f"`{r.name}`", r.about, data_of(r), str(r.published or ""), entry(r).time))
    return [
        "## Missing",
        "",
        "Nothing has been recorded of these. `fedloom reproduce NAME` runs them; times are estimates for all runs "
        "together, on one core each. Data: [Tasks and data](data.md).",
        "",
        *_table(("experiment", "", "data", "published numbers", "time"), rows),
    ]


def data_of(r: Reproduction) -> str:
    """Which data it needs, and how they can be had."""
    return ", ".join(f"`{n}`" if n in CATALOGUE else f"`{n}` (by hand)" for n in r.needs) or "none"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Markdown; columns without any entry are left out."""
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line[i].replace("|", r"\|") for i in kept) + " |" for line in lines]


def main() -> None:
    place = DOCS / PICTURES
    place.mkdir(parents=True, exist_ok=True)
    drawn: set[str] = set()
    for paper in PAPERS:
        (DOCS / paper.page).write_text(page(paper))
        for name, text in pictures(paper).items():
            (place / name).write_text(text)
            drawn.add(name)
    for path in place.glob("*.svg"):
        if path.name not in drawn:
            path.unlink()


if __name__ == "__main__":
    main()
