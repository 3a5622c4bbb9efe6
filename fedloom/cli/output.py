"""What the commands that run or report experiments share: where they write, what they show, and how they end."""

import argparse
import json
import pathlib
import re
import shlex
import sys
from typing import Any

import fedloom
from fedloom.cli.interruption import Interruptible
from fedloom.experiments.definition import Experiment
from fedloom.experiments.estimate import seconds_of
from fedloom.experiments.loading import find_task
from fedloom.experiments.progress import Json, Lines, Live, how_long
from fedloom.experiments.result import Result
from fedloom.experiments.run_directory import CONFIG
from fedloom.experiments.study import Progress, Study, check_runs
from fedloom.experiments.study_file import STUDY, Runs
from fedloom.experiments.table_files import is_table
from fedloom.experiments.tuning import TUNING
from fedloom.sinks import SINKS
from fedloom.tables import notes


def outputs(command: argparse.ArgumentParser, out: bool = True, sink: bool = True, dry: bool = False) -> None:
    """Add the options about output."""
    group = command.add_argument_group("output")
    if dry:
        words = "only try a few rounds of each method, and say how many runs there are and about how long they take"
        group.add_argument("--dry-run", action="store_true", help=words)
    if out:
        group.add_argument("--out", metavar="DIR", help="a new directory (default: the next number in runs/)")
    if sink:
        words = f"also send the rows to {', '.join(SINKS)}; repeatable"
        group.add_argument("--sink", action="append", default=[], metavar="S", help=words)
    group.add_argument("--quiet", action="store_true", help="do not report progress")
    group.add_argument("--json", action="store_true", help="print rows and table as lines of JSON")


_directory: list[pathlib.Path] = []  # that of the command, for messages after an interruption
_options: list[str] = []  # with which it is resumed


def works_in(path: pathlib.Path) -> None:
    """Remember the directory of the command."""
    _directory.append(path)


def resumes_with(option: str) -> None:
    """Remember an option that resuming needs, too."""
    _options.append(option)


def forget() -> None:
    """A new command begins."""
    _directory.clear()
    _options.clear()


def how_to_resume() -> str:
    """The end of an error message, if there is something to resume."""
    try:
        if not _directory or not any((_directory[-1] / file).exists() for file in (CONFIG, STUDY, TUNING)):
            return ""
    except OSError:  # the name of the directory is not one that can exist
        return ""
    return f" Run `{' '.join(['fedloom resume', shlex.quote(str(_directory[-1])), *_options])}` to continue."


def out_directory(text: str) -> pathlib.Path:
    """--out."""
    if not text:
        raise ValueError("--out must be a directory, got ''.")
    return pathlib.Path(text)


def new_directory(given: argparse.Namespace, name: str) -> pathlib.Path:
    """--out, or the next free number in runs/."""
    if given.out is not None:
        path = out_directory(given.out)
    else:
        word = re.sub(r"\.toml$|\.py:[^/]*$", "", pathlib.Path(name).name)
        word = find_task(name).name if is_table(name) else word
        stem = f"{given.command}-" + re.sub("[^A-Za-z0-9.=_-]+", "-", word)
        taken = (p.name for p in pathlib.Path("runs").glob(f"{stem}-*"))
        numbers = [int(n) for t in taken if (n := t.removeprefix(f"{stem}-")).isdigit()]
        path = pathlib.Path("runs") / f"{stem}-{max(numbers, default=0) + 1}"
    works_in(path)
    return path


def say_how_long(runs: Runs, of: str = "", target: tuple[str, float] | None = None) -> int:
    """What --dry-run says, after the checks of the command itself."""
    check_runs(runs, target)
    print(how_long(len(runs), seconds_of(runs)) + of)
    return 0


def say_notes(experiment: Experiment, given: argparse.Namespace) -> None:
    """What is worth knowing about a table before anything is run."""
    data = experiment.load().data
    if data is None or data.preparation is None or given.quiet or given.json:
        return
    for words in (experiment.base_task().about, *notes(data)):
        print(f"{experiment.base_task().name}: {words}", file=sys.stderr)


def progress(given: argparse.Namespace) -> Progress:
    """The reporter that the options ask for."""
    if given.json:
        return Interruptible(Json())
    if given.quiet:
        return Interruptible(None)
    return Interruptible(Live() if sys.stderr.isatty() else Lines())


def conclude(study: Study, given: argparse.Namespace, directory: pathlib.Path | None = None) -> int:
    """Print the table, write the report, and print its path."""
    place = directory or study.directory
    assert place is not None
    from fedloom import report  # imported late: no run should wait for it

    report.make_room(study, place)  # a report that cannot be written is said before anything else
    try:
        if not given.json:
            print(_table(study), flush=True)  # first: the report takes a second to draw
    finally:  # also if nobody reads the table
        path = report.write(study, place)
        forget()  # there is nothing left to resume if the output cannot be written
    if given.json:
        print(json.dumps({**_plain(study), "report": str(path)}))
    else:
        print(f"\nreport: {path}")
    damaged = [r for r in study.results if r.damaged is not None]
    lost = [_again(study, r) for r in damaged] + [
        f"{words} It is left out." for words in study.about.get("skipped", ())
    ]
    for words in lost:
        print(f"fedloom: {words}", file=sys.stderr)
    if lost:
        return 2
    return 3 if all(r.diverged for r in study.results) else 0


def _plain(study: Study) -> dict[str, Any]:
    """What came out, as JSON."""
    table = {"table": fedloom.report.plain(study)}
    if study.about.get("kind") != "reproduction":
        return table
    return table | {"findings": [finding._asdict() for finding in fedloom.reproductions.outcome(study)]}


def _table(study: Study) -> str:
    """What came out, as text."""
    kind, report = study.about.get("kind"), fedloom.report
    if kind == "reproduction":
        found = fedloom.reproductions.text(study)
    else:
        found = report.sweep_text(study) if kind == "sweep" else report.text(study)
    clock = report.clock_text(study)
    return f"{found}\n{clock}" if clock else found


def _again(study: Study, result: Result) -> str:
    """Which run is damaged, and how to begin it again."""
    words = f"{result.name}, seed {result.experiment.seed}, is damaged: {result.damaged}"
    if study.directory is None or result.directory is None:
        return words
    where, run = shlex.quote(str(study.directory)), result.directory.relative_to(study.directory)
    return f"{words} Run `fedloom resume {where} --again {shlex.quote(str(run))}` to begin it again."
