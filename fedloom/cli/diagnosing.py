"""The command `diagnose`: what theorems say about a task's methods, or how a finished run looks to them."""

import argparse
import json
import os
import pathlib
import sys
from typing import Any

from fedloom.cli.experimenting import from_file
from fedloom.cli.flags import add_fields, changes
from fedloom.cli.output import forget, new_directory
from fedloom.experiments import run_directory
from fedloom.experiments.changes import changed
from fedloom.experiments.loading import find_task
from fedloom.experiments.own_files import is_reference
from fedloom.experiments.table_files import is_table
from fedloom.tasks import TASKS

DIAGNOSE = """\
What do theorems say about a task's methods? Measures the constants they speak of, says which theorem applies and which
assumption fails, puts the step sizes it allows beside those of the settings, and its bound beside short runs.

Of a finished run, DIR shows how gradients and the differences between clients change along its rounds.

examples:
  fedloom diagnose synthetic-1-1
  fedloom diagnose digits --algorithm feddyn,scaffold --rounds 50
  fedloom diagnose runs/run-digits-feddyn-1
"""


def add(commands: Any, complete: bool) -> None:
    """Add the command of this module."""
    d = commands.add_parser(
        "diagnose",
        help="which theorem applies to a task's methods, what it promises, and how far practice is from it",
        description=DIAGNOSE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    d.set_defaults(do=_diagnose)
    tasks = tuple(TASKS) if complete else None
    d.add_argument("task", metavar="TASK", help="a task, a TOML file, or the directory of a run", choices=tasks)
    d.add_argument(
        "--algorithm", metavar="A,B", help="names (default: all that the task has settings for and a theorem is about)"
    )
    d.add_argument("--variant", help="which of the task's settings to use, see `fedloom show TASK`")
    d.add_argument("--seed", type=int, metavar="N", help="of the split, the initial model and the runs (default 0)")
    d.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help="rounds to simulate, whatever it takes (default: 20, or fewer where they would take long); of a run, up "
        "to which",
    )
    d.add_argument("--effort", type=float, default=1.0, metavar="X", help="spend X times as much (default 1)")
    add_fields(d, complete, leave_out=("algorithm", "rounds", "evaluate", "evaluate_every", "until"))
    group = d.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", help="a new directory for the page (default: the next number in runs/)")
    group.add_argument("--quiet", action="store_true", help="do not report progress")
    group.add_argument("--json", action="store_true", help="print the diagnosis as JSON")


def _diagnose(given: argparse.Namespace) -> int:
    from fedloom import diagnosis  # imported late: drawing takes half a second to import
    from fedloom.diagnosis import page

    def say(words: str) -> None:
        if not given.quiet and not given.json:
            print(f"{words} ...", file=sys.stderr, flush=True)

    fields = {name: value for name, value in changes(given).items() if name not in ("algorithm", "rounds")}
    name, place = given.task, new_directory(given, given.task)
    if place.exists():
        run_directory.new_directory(place)  # raises before any work, if it is not empty
    found: Any
    if _is_directory(name):
        asked = [f"--{n}" for n in ("algorithm", "variant", "seed") if getattr(given, n) is not None]
        asked += [f"--{n}" for n in fields] + ["--effort"] * (given.effort != 1)
        if asked:
            raise ValueError(f"{asked[0]}: a run has its own; give a task, or leave it out.")
        found = diagnosis.along(name, rounds=given.rounds, say=say)
        words, plain = diagnosis.along_text(found), diagnosis.along_plain(found)
    else:
        if name.endswith(".toml"):
            fields |= {} if given.seed is None else {"seed": given.seed}
            what: Any = changed(from_file(name), fields)
            fields = {}
        else:
            find_task(name)  # before anything else is said
            what = name
        found = diagnosis.diagnose(
            what,
            given.algorithm,
            variant=given.variant,
            seed=given.seed or 0,
            rounds=given.rounds,
            effort=given.effort,
            say=say,
            **fields,
        )
        words, plain = str(found), diagnosis.plain(found)
    forget()  # there is nothing to resume
    if not given.json:
        print(words, flush=True)
    path = page.write(found, place)
    print(json.dumps({**plain, "report": str(path)}) if given.json else f"\nreport: {path}")
    return 0


def _is_directory(name: str) -> bool:
    """Is it the directory of a run, or meant to be one?"""
    if name in TASKS or is_reference(name) or is_table(name) or name.endswith(".toml"):
        return False
    return pathlib.Path(name).is_dir() or os.sep in name
