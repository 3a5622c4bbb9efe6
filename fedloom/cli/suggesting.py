"""Step sizes from theory: the command `suggest`, and the option --theory of `run`."""

import argparse
import dataclasses
import itertools
import json
import pathlib
import re
import sys
from typing import Any

from fedloom.cli.flags import add_fields, changes
from fedloom.diagnosis.starts import suggest, write_new
from fedloom.diagnosis.suggestion import from_theory
from fedloom.experiments.definition import Experiment
from fedloom.tasks import TASKS

SUGGEST = """\
Where to start with each method on a task, from constants that are measured: the step sizes of a theorem, and beside
them the usual practical ones. Both are written to a TOML file, with reasons, for `fedloom tune TASK --around FILE`.

examples:
  fedloom suggest digits --algorithms fedavg,scaffold,feddyn --out start.toml
  fedloom tune digits --around start.toml
  fedloom run digits --algorithm feddyn --theory
"""


def add(commands: Any, complete: bool) -> None:
    """Add the command of this module."""
    s = commands.add_parser(
        "suggest",
        help="suggest where to start with each method: theory's step sizes, and the practical ones",
        description=SUGGEST,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    s.set_defaults(do=_suggest)
    s.add_argument("task", metavar="TASK", help="a task", choices=tuple(TASKS) if complete else None)
    s.add_argument(
        "--algorithms", metavar="A,B,C", help="names or FILE.py:NAME (default: all that the task has settings for)"
    )
    s.add_argument("--variant", help="which of the task's settings to use, see `fedloom show TASK`")
    add_fields(s, complete, leave_out=("algorithm",))
    group = s.add_argument_group("output")
    group.add_argument("--out", metavar="FILE", help="a new file (default: the next number, suggest-TASK-N.toml)")
    group.add_argument("--quiet", action="store_true", help="do not print the table")
    group.add_argument("--json", action="store_true", help="print the table as JSON")


def _suggest(given: argparse.Namespace) -> int:
    path = _new_file(given)
    if not (given.quiet or given.json):
        print(f"{given.task}: measuring its constants ...", file=sys.stderr)
    found = suggest(given.task, given.algorithms, given.variant, **changes(given))
    write_new(found.to_toml(), path)
    if given.json:
        starts = [dataclasses.asdict(start) for start in found.starts]
        print(json.dumps({"task": found.task, "L": found.constants.L.value, "starts": starts, "file": str(path)}))
    elif not given.quiet:
        print(found.text())
        print(f"\nstart: {path}")
    return 0


def _new_file(given: argparse.Namespace) -> pathlib.Path:
    """--out, or the next number; said before anything is measured if it cannot be written."""
    if given.out is None:
        word = re.sub(r"\.toml$|\.py:[^/]*$", "", pathlib.Path(given.task).name)
        stem = "suggest-" + re.sub("[^A-Za-z0-9.=_-]+", "-", word)
        return next(p for n in itertools.count(1) if not (p := pathlib.Path(f"{stem}-{n}.toml")).exists())
    path = pathlib.Path(given.out)
    if path.suffix != ".toml":
        raise ValueError(f"--out must be a file that ends in .toml, got {given.out!r}.")
    if path.exists():
        raise ValueError(f"{path} exists already, and is not overwritten; choose another name with --out.")
    if not path.parent.is_dir():
        raise ValueError(f"--out: there is no directory {path.parent}.")
    return path


def with_theory(e: Experiment, given: argparse.Namespace) -> Experiment:
    """The experiment of `run --theory`; what was chosen and what is assumed goes to standard error."""
    found = from_theory(e, keep=changes(given).keys())
    if not (given.quiet or given.json):
        for words in found.sentences:
            print(f"theory: {words}", file=sys.stderr)
    return found.experiment
