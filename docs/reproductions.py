"""Writes docs/reproductions.md from the registry: `make docs`."""

import pathlib

from fedloom.reproductions import REPRODUCTIONS, Reproduction
from fedloom.reproductions.reproduction import COMPARABLE


def page() -> str:
    lines = [
        "# Reproductions",
        "",
        "This page is written by `make docs` from the registry. `fedloom reproduce NAME` runs an experiment of a paper",
        "and prints our figures beside the paper's, then its claims, each with a verdict: holds, does not hold,",
        "undecided (if no method reaches the target), or not run. `fedloom list experiments` lists the names.",
        "In Python:",
        "",
        "```text",
        "from fedloom.reproductions import reproduce, text",
        'study = reproduce("feddyn-table6", seeds=(0, 1, 2))  # rounds=50 for a first look',
        "print(text(study))",
        "```",
        "",
        "A claim is checked on the mean over the seeds. Where a paper prints curves, they are compared by the mean of",
        f'the last 10 rounds; where it says "comparable", that means within {COMPARABLE:.0%} here. What came out with',
        "the defaults is in [benchmarks/reproductions.md](../benchmarks/reproductions.md).",
        "",
        "## Without download",
    ]
    for r in REPRODUCTIONS.values():
        if not r.needs:
            lines += ["", *_section(r)]
    lines += [
        "",
        "## With downloaded data",
        "",
        "Settings and the papers' figures are those of the tasks (`fedloom show TASK`). Where the paper prints no",
        "number for a variant, there is nothing to compare our figures with. Logistic regression on MNIST takes",
        "minutes on a CPU, a ResNet-18 takes days.",
        "",
        "| experiment | | data | runs | measured | the paper's figures | claims |",
        "|---|---|---|---|---|---|---|",
    ]
    downloaded = [r for r in REPRODUCTIONS.values() if r.needs]
    for r in downloaded:
        needs = ", ".join(f"`{n}`" for n in r.needs)
        claims = "; ".join(dict.fromkeys(claim.words for claim in r.claims)) or "-"
        cells = (f"`{r.name}`", r.about, needs, _size(r), _measured(r), _printed(r), claims)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "What differs from the papers, besides what [tasks.md](tasks.md) says:", ""]
    for notes in dict.fromkeys(r.notes for r in downloaded if r.notes):
        lines.append(f"- {_names([r for r in downloaded if r.notes == notes], downloaded)}: {notes}")
    return "\n".join(lines) + "\n"


def _names(some: list[Reproduction], of: list[Reproduction]) -> str:
    """All names, or only how they begin if they are all those of a paper."""
    paper = some[0].name.split("-")[0]
    if len(some) > 1 and some == [r for r in of if r.name.startswith(paper)]:
        return f"`{paper}-*`"
    return ", ".join(f"`{r.name}`" for r in some)


def _measured(r: Reproduction) -> str:
    return "; ".join(dict.fromkeys(line.measure.words for line in r.lines))


def _printed(r: Reproduction) -> str:
    """Where the paper prints numbers."""
    where = dict.fromkeys(line.where for line in r.lines if line.reported is not None)
    return f"{r.paper}, {' and '.join(where)}" if where else "-"


def _size(r: Reproduction) -> str:
    seeds = "one seed" if len(r.seeds) == 1 else f"{len(r.seeds)} seeds"
    return f"{len(r.experiments)} experiments of up to {r.rounds} rounds, {seeds}"


def _section(r: Reproduction) -> list[str]:
    claims = [f"- {claim.setting + ': ' if claim.setting else ''}{claim.words}." for claim in r.claims]
    return [
        f"### `{r.name}`",
        "",
        f"{r.about} {r.paper}. {_size(r)}.",
        "",
        f"Measured: {_measured(r)}.",
        "",
        r.notes,
        "",
        "Claims:",
        "",
        *claims,
    ]


if __name__ == "__main__":
    pathlib.Path(__file__).with_suffix(".md").write_text(page())
