"""The command `tune`: search with equal effort for every method, then compare."""

import argparse
from typing import Any

from fedloom import sinks
from fedloom.cli.flags import add_fields, changes
from fedloom.cli.output import conclude, new_directory, outputs, progress
from fedloom.cli.searching import Searching
from fedloom.experiments.tuning import tune
from fedloom.tasks import TASKS

TUNE = """\
Tune methods on a task with equal effort, then compare the best point of each on fresh seeds with all training data.
Every method tries the same number of points, judged by validation data. The best points are written as TOML files,
which `fedloom run` and `fedloom compare` take.

examples:
  fedloom tune digits --algorithms fedavg,feddyn
  fedloom tune digits --engine events --points 32 --seeds 5
  fedloom suggest digits --out start.toml && fedloom tune digits --around start.toml
"""


def add(commands: Any, complete: bool) -> None:
    """Add the command of this module."""
    t = commands.add_parser(
        "tune",
        help="tune methods with equal effort, then compare them",
        description=TUNE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    t.set_defaults(do=_tune)
    tasks = tuple(TASKS) if complete else None
    t.add_argument("task", metavar="TASK", help="a task", choices=tasks)
    t.add_argument(
        "--algorithms", metavar="A,B,C", help="names or FILE.py:NAME (default: all that the task has settings for)"
    )
    t.add_argument("--points", type=int, default=24, metavar="N", help="points that each method tries (default 24)")
    t.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="seeds of each point, and of the comparison (default 3)"
    )
    t.add_argument("--variant", help="the settings at which the searches start, see `fedloom show TASK`")
    t.add_argument(
        "--validation",
        type=float,
        default=0.2,
        metavar="X",
        help="share of the training data to judge by (default 0.2)",
    )
    t.add_argument(
        "--select", metavar="METRIC", help="the metric to judge by (default: that of the task's target, on validation)"
    )
    t.add_argument(
        "--around", metavar="FILE", help="a file of `fedloom suggest`: the searches start at its practical values"
    )
    add_fields(t, complete, leave_out=("algorithm", "validation", "evaluate", "until"))
    outputs(t)


def _tune(given: argparse.Namespace) -> int:
    names = None if given.algorithms is None else [n.strip() for n in given.algorithms.split(",") if n.strip()]
    study = tune(
        given.task,
        names,
        points=given.points,
        seeds=given.seeds,
        variant=given.variant,
        validation=given.validation,
        select=given.select,
        around=given.around,
        directory=new_directory(given, given.task),
        progress=Searching(progress(given)),
        sinks=[sinks.sink(name) for name in given.sink],
        **{name: value for name, value in changes(given).items() if name != "validation"},
    )
    return conclude(study, given)
