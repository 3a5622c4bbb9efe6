"""Writes docs/reproductions.md from the registry: `make docs`, or `python -m docs.reproductions`."""

import pathlib

from docs.papers import PAPERS, data_of
from fedloom.reproductions import MEANS, RATIOS, VERDICTS, Reproduction
from fedloom.reproductions.overview import entry
from fedloom.reproductions.recording import recorded
from fedloom.reproductions.reproduction import COMPARABLE


def page() -> str:
    pages = ", ".join(f"[{paper.title}]({paper.page})" for paper in PAPERS)
    lines = [
        "# Reproductions",
        "",
        "This page is written by `make docs` from the registry. What came out, with pictures, verdicts and what is",
        f"missing, has a page for each paper: {pages}.",
        "",
        "```sh",
        "fedloom reproduce --list                       # names, data, published numbers, what is recorded, time",
        "fedloom reproduce feddyn-table6 --recorded     # what has been recorded, without running anything",
        "fedloom reproduce feddyn-table6 --seeds 3      # run it: our figures beside the paper's, then its claims",
        "fedloom reproduce feddyn-table6 --rounds 50    # a first look; --dry-run says how long it would take",
        "fedloom reproduce feddyn-table6 --json         # for programs: rows as they come, then all findings",
        "```",
        "",
        "In Python:",
        "",
        "```text",
        "from fedloom.reproductions import reproduce, text",
        'study = reproduce("feddyn-table6", seeds=(0, 1, 2))  # rounds=50 for a first look',
        "print(text(study))",
        "```",
        "",
        f"Each figure is measured for every seed. {MEANS[0].upper()}{MEANS[1:]} {RATIOS}",
        "",
        f"A claim is checked in each seed by itself. {VERDICTS} It is",
        "*undecided* where the figures do not decide it (no method reaches the target). Where a paper prints curves,",
        'they are compared by the mean of the last rounds; where it says "comparable", that means within '
        f"{COMPARABLE:.0%} here.",
        "A run that is measured only by when it reaches its targets ends at the last of them, and points of a grid",
        "with a small model run side by side. Their rounding depends on how many do, and on the processor: where",
        "training is unstable, as FedDANE's with a small mu, the same seed may end a few percent elsewhere, and after",
        "1,500 rounds of `fedopt-table11-mnist-writers` it ended up to 0.4 points of accuracy elsewhere on another",
        "processor, while shorter runs had the same figures. How results are recorded:",
        "[benchmarks/reproductions.md](../benchmarks/reproductions.md).",
    ]
    for paper in PAPERS:
        lines += ["", f"## {paper.title}", "", f"What came out: [{paper.title}]({paper.page})."]
        for r in paper.reproductions:
            if not r.needs:
                lines += ["", *_section(r)]
        downloaded = [r for r in paper.reproductions if r.needs]
        if downloaded:
            lines += ["", f"### With downloaded data: {paper.title}", "", *_downloaded(downloaded)]
    return "\n".join(lines) + "\n"


def _section(r: Reproduction) -> list[str]:
    return [
        f"### `{r.name}`",
        "",
        f"{r.about} {_size(r)}; {_recorded(r)}.",
        "",
        f"Measured: {_measured(r)}.",
        "",
        r.notes,
        "",
        "Checked:",
        "",
        *claims(r),
    ]


def claims(r: Reproduction) -> list[str]:
    """Each claim once, with the settings that it is about."""
    settings: dict[str, list[str]] = {}
    for claim in r.claims:
        settings.setdefault(claim.marked, []).append(claim.setting)
    every = list(dict.fromkeys(line.setting for line in r.lines))
    lines = []
    for words, of in settings.items():
        where = "in every setting" if of == every and len(every) > 1 else "; ".join(of)
        lines.append(f"- {words} ({where})." if where else f"- {words}.")
    return lines


def _downloaded(some: list[Reproduction]) -> list[str]:
    lines = [
        "Settings and the paper's numbers are those of the tasks (`fedloom show TASK`). Where the paper prints no",
        "number for a variant, there is nothing to compare our figures with.",
        "",
        "| experiment | | data | runs | measured | the paper's numbers | recorded | checked |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in some:
        checked = "; ".join(dict.fromkeys(claim.marked for claim in r.claims)) or "-"
        cells = (f"`{r.name}`", r.about, data_of(r), _size(r), _measured(r), _printed(r), _recorded(r), checked)
        lines.append(f"| {' | '.join(cells)} |")
    differing = dict.fromkeys(r.notes for r in some if r.notes)
    if differing:
        lines += ["", "What differs from the paper, besides what [tasks.md](tasks.md) says:", ""]
    for notes in differing:
        of = [r for r in some if r.notes == notes]
        names = "all" if of == some else ", ".join(f"`{r.name}`" for r in of)
        lines.append(f"- {names}: {notes}")
    return lines


def _recorded(r: Reproduction) -> str:
    found = entry(r)
    return f"not recorded, takes {found.time}" if recorded(r) is None else f"recorded: {found.recorded}, {found.time}"


def _measured(r: Reproduction) -> str:
    return "; ".join(dict.fromkeys(line.measure.words for line in r.lines))


def _printed(r: Reproduction) -> str:
    """Where the paper prints numbers."""
    where = dict.fromkeys(line.where for line in r.lines if line.reported is not None)
    return " and ".join(where) or "-"


def _size(r: Reproduction) -> str:
    seeds = "one seed" if len(r.seeds) == 1 else f"{len(r.seeds)} seeds"
    return f"{len(r.experiments)} experiments of up to {r.rounds} rounds, {seeds}"


if __name__ == "__main__":
    pathlib.Path(__file__).with_suffix(".md").write_text(page())
