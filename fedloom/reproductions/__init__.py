"""The papers' experiments by name: what they report, what they claim, and whether it holds in our runs."""

import fnmatch
import os
import textwrap
from collections.abc import Sequence

from fedloom.experiments.about import commit
from fedloom.experiments.arguments import Seeds, reporter, seed_list
from fedloom.experiments.side_by_side import run_side_by_side
from fedloom.experiments.study import OpenSink, Progress, Runs, Study, run_all
from fedloom.experiments.terms import Terms
from fedloom.experiments.text import columns
from fedloom.hyperparameters import nearest
from fedloom.reproductions import feddane, feddr, feddyn, fedopt, fedprox, linear_speedup
from fedloom.reproductions.recording import recorded
from fedloom.reproductions.reproduction import Finding as Finding
from fedloom.reproductions.reproduction import Reproduction as Reproduction
from fedloom.reproductions.reproduction import Values, not_run

REPRODUCTIONS: dict[str, Reproduction] = {
    r.name: r for part in (fedprox, feddane, feddr, feddyn, linear_speedup, fedopt) for r in part.REPRODUCTIONS
}

MEANS = (
    "ours: the mean of the seeds that have a number, the geometric one where all are positive, with a 95% interval "
    "if at least three seeds all have one (Student's, for logarithms then), or from the smallest to the largest value."
)
RATIOS = (
    "ratio: to the first method of the setting, seed by seed; beside a claim that one number is smaller than another, "
    "the ratio of these two, which is below 1 where the claim holds."
)
VERDICTS = (
    "Verdicts: a claim holds, or does not hold, if so many seeds agree that a fair coin would give as many at most "
    "once in 20 times. Three to five seeds are too few for that: they must all agree, and the interval of the ratio, "
    "if there is one, must not have 1 in it. Else, and with fewer than three seeds, it cannot be said."
)


def explained(r: Reproduction) -> str:
    """How to read the figures and verdicts that a reproduction has."""
    ratios = any(line.reported is not None for line in r.lines) or any(claim.ratio for claim in r.claims)
    return " ".join([MEANS, *([RATIOS] if ratios else []), *([VERDICTS] if r.claims else [])])


def find(name: str) -> Reproduction:
    """The registered reproduction of that name."""
    if name not in REPRODUCTIONS:  # or if it is not a string
        raise ValueError(f"There is no experiment {name!r} to reproduce.{nearest(str(name), REPRODUCTIONS)}")
    return REPRODUCTIONS[name]


def planned(
    name: str,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    missing: bool = False,
    only: Sequence[str] = (),
) -> Runs:
    """The runs of a reproduction, or those that match a pattern in `only`.

    With `missing` only those with a figure that is not recorded for their seed.
    """
    found = find(name)
    chosen = set() if only else set(found.experiments)
    for pattern in only:
        matching = {run for run in found.experiments if fnmatch.fnmatchcase(run, pattern)}
        if not matching:
            raise ValueError(f"{name} has no run {pattern!r}.{nearest(pattern, found.experiments)}")
        chosen |= matching
    every = found.runs(seeds, rounds)
    runs = [(run, e) for run, e in every if run in chosen]
    kept = recorded(found) if missing else None
    if kept is None or kept.rounds != max(e.rounds for _, e in every):
        return runs

    def known(run: str, seed: int) -> bool:
        lines = [line for line in found.lines if run in line.runs]
        return all(seed in kept.values.get((line.setting, line.method), {}) for line in lines)

    left = [(run, e) for run, e in runs if not known(run, e.seed)]
    if not left:
        asked = f"All runs of {name}" if not only else f"The runs {', '.join(only)} of {name}"
        raise ValueError(f"{asked} are recorded for these seeds; ask for other seeds, or for all runs.")
    return left


def reproduce(
    name: str,
    *,
    seeds: Seeds | None = None,
    rounds: int | None = None,
    missing: bool = False,
    only: Sequence[str] = (),
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | bool | None = None,
    sinks: Sequence[OpenSink] = (),
) -> Study:
    """Run an experiment of a paper; `text` of the study says what came out.

    Args:
        name: one of REPRODUCTIONS.
        seeds: one run of each method for each seed, a number of seeds or a list; the reproduction's own if None.
        rounds: of the longest run, the others in proportion; shorter runs check the claims too early.
        missing: only the runs of which nothing is recorded for their seed.
        only: names of runs, or patterns such as "fedadam*"; all runs if there are none.
        directory: a new directory for the runs; None keeps everything in memory.
        progress: True for a bar in a notebook or at a terminal, or a progress reporter.
        sinks: where rows go in addition to the logs.
    """
    found = find(name)
    return run_all(
        planned(name, None if seeds is None else seed_list(seeds), rounds, missing, only),
        directory,
        title=f"{name}: {found.about}",
        target=found.target,
        terms=Terms(crossing="first"),  # what papers count
        about={"kind": "reproduction", "name": name, "commit": commit(), "rounds": rounds},
        progress=reporter(progress),
        sinks=sinks,
        each=run_side_by_side,  # many experiments are grids of small models
    )


def of_study(study: Study) -> Reproduction:
    """The reproduction that a study ran."""
    if study.about.get("kind") != "reproduction":
        raise ValueError(f"The study {study.title!r} was not made by `fedloom reproduce`.")
    return find(study.about["name"])


def outcome(study: Study) -> list[Finding]:
    """Our figures beside the paper's, then the claims with their verdicts, and questions of ours."""
    found = of_study(study)
    return found.outcome(found.values(study))


def text(study: Study) -> str:
    """The outcome as tables, with what differs from the paper."""
    found = of_study(study)
    return _text(found, found.values(study), found.rounds_of(study))


def recorded_text(name: str) -> str:
    """What has been recorded of a reproduction, as tables; empty if nothing has."""
    found = find(name)
    kept = recorded(found)
    if kept is None:
        return ""
    how = "\n".join(textwrap.wrap(kept.how, 110))
    again = textwrap.indent(kept.command, " " * len("Again: ")).lstrip()
    return f"{_text(found, kept.values, kept.rounds)}\n\n{how}\nAgain: {again}"


def _text(found: Reproduction, values: Values, rounds: int) -> str:
    rows = found.outcome(values)
    lines = [f"{found.name}: {found.about}", f"{found.paper}.", ""]
    measures = list(dict.fromkeys(line.measure.words for line in found.lines))
    lines += [*textwrap.wrap(f"Figures: {'; '.join(measures)}.", 110), ""]
    figures = [row for row in rows if not row.verdict and row.there]
    head = ("setting", "method", "ours", "paper", "ratio", "paper's")
    lines += _table(head, [row[:6] for row in figures])
    if lost := not_run(rows):
        lines += ["", *textwrap.wrap(lost, 110)]
    lines += ["", *textwrap.wrap(explained(found), 110)]
    claims = [row for row in rows if row.verdict]
    if claims:
        judged = [(r.verdict, r.ratio, r.setting, r.paper) for r in claims]
        lines += ["", *_table(("verdict", "ratio", "setting", "claim"), judged)]
    notes = [found.notes] if found.notes else []
    if rounds < found.rounds:
        notes.insert(
            0, f"These runs have only {rounds} of {found.rounds} rounds, so the verdicts are not about full runs."
        )
    if notes:
        lines += ["", *textwrap.wrap(" ".join(notes), 110)]
    return "\n".join(lines)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as they need to be; columns without any entry are left out."""
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    return columns([[line[i] for i in kept] for line in (head, *rows)]).split("\n")
