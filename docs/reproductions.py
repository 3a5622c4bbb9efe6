"""Writes docs/reproductions.md from the registry: `make docs`."""

import pathlib

from fedloom.reproductions import REPRODUCTIONS, Reproduction


def page() -> str:
    lines = [
        "# Reproductions",
        "",
        "This page is written by `make docs` from the registry. `fedloom reproduce NAME` runs an experiment of a paper",
        "and prints our figures beside the paper's, then its claims, each with a verdict: holds, does not hold,",
        "or cannot be said (if no method reaches the target). `fedloom list experiments` lists the names. In Python:",
        "",
        "```text",
        "from fedloom.reproductions import reproduce, text",
        'study = reproduce("feddyn-table6", seeds=(0, 1, 2))  # rounds=50 for a first look',
        "print(text(study))",
        "```",
        "",
        "A claim is checked on the mean over the seeds. Curves are compared by the mean of the last 10 rounds; where a",
        'paper says "comparable", it means within a tenth. What came out with the defaults is in',
        "[benchmarks/reproductions.md](../benchmarks/reproductions.md).",
        "",
        "asyncFedDR (FedDR's figure 6) is missing: it needs an asynchronous engine.",
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
        "Settings and the papers' figures are those of the tasks (`fedloom show TASK`); where a task has no figures,",
        "the methods are run without something to compare with. One seed. These take hours or days on a CPU.",
        "",
        "| experiment | | data | figures by | claims |",
        "|---|---|---|---|---|",
    ]
    for r in REPRODUCTIONS.values():
        if r.needs:
            needs = ", ".join(f"`{n}`" for n in r.needs)
            paper = r.paper if any(line.reported is not None for line in r.lines) else "-"
            claims = "; ".join(dict.fromkeys(claim.words for claim in r.claims)) or "-"
            lines.append(f"| `{r.name}` | {r.about} | {needs} | {paper} | {claims} |")
    return "\n".join(lines) + "\n"


def _section(r: Reproduction) -> list[str]:
    measures = list(dict.fromkeys(line.measure.words for line in r.lines))
    seeds = "one seed" if len(r.seeds) == 1 else f"{len(r.seeds)} seeds"
    claims = [f"- {claim.setting + ': ' if claim.setting else ''}{claim.words}." for claim in r.claims]
    return [
        f"### `{r.name}`",
        "",
        f"{r.about} {r.paper}. {len(r.experiments)} experiments of up to {r.rounds} rounds, {seeds}.",
        "",
        f"Measured: {'; '.join(measures)}.",
        "",
        r.notes,
        "",
        "Claims:",
        "",
        *claims,
    ]


if __name__ == "__main__":
    pathlib.Path(__file__).with_suffix(".md").write_text(page())
