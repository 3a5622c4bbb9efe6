"""The commands that go on with what is there: resume and extend."""

import argparse
import pathlib
import shlex
from typing import Any

from fedloom import sinks
from fedloom.cli.clusters import add_address, check_address, connect, spread
from fedloom.cli.output import conclude, outputs, progress, works_in
from fedloom.cli.processes import add_processes, check_engine, joined
from fedloom.cli.searching import Searching
from fedloom.experiments.arguments import seed_list
from fedloom.experiments.growth import extend, resume_study
from fedloom.experiments.run_directory import CONFIG, read_config
from fedloom.experiments.side_by_side import run_side_by_side
from fedloom.experiments.study import RunEach, begin_again, resume_alone
from fedloom.experiments.study_file import STUDY, listed_experiment, read_study_file
from fedloom.experiments.sweeps import resume_sweep
from fedloom.experiments.tuning import COMPARISON, TUNING, resume_tuning

RESUME = """\
Continue a run, a comparison or a sweep after an interruption, bit-identical to an uninterrupted run.
"""
EXTEND = """\
Add seeds, methods or rounds to a comparison, seeds to a reproduction, or rounds to a single run. Finished runs are not
repeated, and the logs are those of a study that was made so at once.

examples:
  fedloom extend runs/compare-digits-1 --seeds 5
  fedloom extend runs/compare-digits-1 --algorithms +feddyn,+feddr --rounds 200
"""


def add(commands: Any) -> None:
    """Add the commands of this module."""
    raw = argparse.RawDescriptionHelpFormatter
    d = commands.add_parser(
        "resume", help="continue what was stopped", description=RESUME, formatter_class=raw, allow_abbrev=False
    )
    d.add_argument("directory", metavar="DIR")
    d.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="RUN",
        help="begin this run of a study again, such as fedavg/seed-1; its files are put aside; repeatable",
    )
    add_address(d, "run what is left on a cluster", "")
    add_processes(d)
    outputs(d, out=False)
    d.set_defaults(do=_resume)
    e = commands.add_parser(
        "extend",
        help="add seeds, methods or rounds to what is there",
        description=EXTEND,
        formatter_class=raw,
        allow_abbrev=False,
    )
    e.add_argument("directory", metavar="DIR")
    e.add_argument("--seeds", metavar="N", help="how many seeds in total, or all of them separated by commas")
    e.add_argument("--algorithms", metavar="+A,+B", help="methods to add, by name or as FILE.py:NAME")
    e.add_argument("--rounds", metavar="N", help="how many rounds in total")
    add_address(e, "run what is new on a cluster", "")
    outputs(e, out=False)
    e.set_defaults(do=_extend)


def _resume(given: argparse.Namespace) -> int:
    path = pathlib.Path(given.directory)
    works_in(path)
    if given.processes is not None and ((path / STUDY).exists() or (path / TUNING).exists()):
        raise ValueError(f"--processes is for a single run, and {path} has several; leave it out.")
    is_sweep = (path / STUDY).exists() and read_study_file(path)["about"].get("kind") == "sweep"
    if is_sweep and given.sink:
        raise ValueError(f"--sink: {path} is a sweep, and the rows of a sweep cannot be sent to sinks.")
    opened = [sinks.sink(s) for s in given.sink]
    if (path / TUNING).exists():
        if given.again:
            command = f"fedloom resume {_comparison(path)} --again {shlex.quote(given.again[0])}"
            raise ValueError(f"--again names a run of a study, but {path} is a tuning; run `{command}`.")
        return conclude(resume_tuning(path, progress=Searching(progress(given)), sinks=opened), given)
    if (path / CONFIG).exists() and not (path / STUDY).exists():
        if given.again:
            raise ValueError(f"--again names a run of a study, but {path} is a single run.")
        with joined(given) as first:
            if given.processes is not None:
                check_engine(read_config(path).engine)
            check_address(given, read_config(path).engine)
            study = resume_alone(path, progress(given), opened if first else [])
        return conclude(study, given) if first else 0
    begin_again(path, *dict.fromkeys(run.strip("/") for run in given.again))
    each = _each(path, given)
    if is_sweep:
        return conclude(resume_sweep(path, progress=progress(given), each=each or run_side_by_side), given)
    return conclude(resume_study(path, None, progress(given), opened, each), given)


def _each(path: pathlib.Path, given: argparse.Namespace) -> RunEach | None:
    """How the runs of a study are run: on a cluster if one is named, its clients in shards if they were before."""
    plain = read_study_file(path)
    if any(listed_experiment(path, run).engine == "ray" for run in plain["runs"]):
        connect(given)
        return None
    return spread(given, batches=plain["about"].get("kind") in ("sweep", "reproduction"))


def _comparison(path: pathlib.Path) -> str:
    """The study of a tuning, as a shell needs it."""
    return shlex.quote(str(path / COMPARISON))


def _extend(given: argparse.Namespace) -> int:
    path = pathlib.Path(given.directory)
    works_in(path)
    if (path / TUNING).exists():
        raise ValueError(f"{path} is a tuning; extend its comparison with `fedloom extend {_comparison(path)}`.")
    names = [] if given.algorithms is None else [n.strip().removeprefix("+") for n in given.algorithms.split(",")]
    if not all(names):
        raise ValueError(f"--algorithms must be a list of methods such as +feddyn,+feddr; got {given.algorithms!r}.")
    if given.rounds is not None and not given.rounds.isdecimal():
        raise ValueError(f"--rounds must be a positive integer, got {given.rounds!r}.")
    study = extend(
        path,
        seeds=None if given.seeds is None else seed_list(given.seeds, "--seeds"),
        algorithms=names,
        rounds=None if given.rounds is None else int(given.rounds),
        progress=progress(given),
        sinks=[sinks.sink(s) for s in given.sink],
        each=_each(path, given) if (path / STUDY).exists() else None,
    )
    return conclude(study, given)
