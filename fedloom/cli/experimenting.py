"""The commands that run or report experiments: compare, run, sweep, reproduce, resume, report."""

import argparse
import dataclasses
import itertools
import json
import pathlib
import re
import sys
from typing import Any

from fedloom import reproductions, sinks
from fedloom.cli.flags import add_fields, changes, numbers, target
from fedloom.cli.interruption import Interruptible
from fedloom.cli.searching import reporters
from fedloom.experiments.changes import changed
from fedloom.experiments.comparisons import comparison
from fedloom.experiments.definition import FIELDS, Experiment, method_name
from fedloom.experiments.loading import find_task
from fedloom.experiments.points import over
from fedloom.experiments.presets import PRESETS
from fedloom.experiments.progress import Json, Lines, Live
from fedloom.experiments.run_directory import CONFIG
from fedloom.experiments.settings import experiment, from_toml
from fedloom.experiments.study import (
    STUDY,
    Progress,
    Study,
    find_runs,
    read_study,
    resume_alone,
    resume_study,
    run_all,
    run_alone,
)
from fedloom.experiments.sweeps import Select, resume_sweep, sweep, sweep_table
from fedloom.experiments.tuning import COMPARISON, TUNING, resume_tuning
from fedloom.sinks import SINKS
from fedloom.tasks import TASKS

COMPARE = """\
Which method is best on a task, and what does it cost? For each seed, all methods start from the same model, and those
with the same cohort rule see the same clients. The output is a table, and a report that opens in a browser.

TASK is a name from `fedloom list tasks`, FILE.py:NAME for a task of your own, or one or more TOML files of experiments.
"""
RUN = """\
Run one experiment: a task with an algorithm, a solver and a cohort. Fields that are not given come from the task's own
settings, or from a TOML file such as the config.toml of a run.
"""
SWEEP = """\
Run an experiment with several values of some fields. Points with a small model run side by side in one program.

examples:
  fedloom sweep digits --algorithm fedadam --over solver.lr=0.03,0.1,0.3 --over algorithm.lr=0.01,0.03,0.1
  fedloom sweep digits --algorithm feddyn --over algorithm.alpha=0.01..1 --over solver.lr=0.03..1 --random 20
  fedloom sweep digits --algorithm fedadam --preset fedopt --rounds 100
"""


def add(commands: Any, complete: bool) -> None:
    """Add the commands of this module."""
    tasks = tuple(TASKS) if complete else None

    def command(name: str, help: str, words: str, do: Any) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(
            name,
            help=help,
            description=words,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        made.set_defaults(do=do)
        return made

    c = command("compare", "compare methods on one task: a table and a report", COMPARE, _compare)
    c.add_argument("tasks", nargs="*", default=["digits"], metavar="TASK", help="default: digits", choices=tasks)
    c.add_argument("--algorithms", metavar="A,B,C", help="default: all that the task has settings for")
    c.add_argument(
        "--seeds", default="3", metavar="N", help="how many seeds, or a list separated by commas (default 3)"
    )
    c.add_argument("--variant", help="which of the task's settings to use, see `fedloom show TASK`")
    c.add_argument("--target", metavar="X", help="the accuracy to reach, or METRIC=X (default: the task's)")
    add_fields(c, complete, leave_out=("algorithm",))
    _outputs(c)

    r = command("run", "run one experiment", RUN, _run)
    r.add_argument("task", metavar="TASK", help="a task or a TOML file", choices=tasks)
    r.add_argument("--variant", help="which of the task's settings to use, see `fedloom show TASK`")
    r.add_argument("--seed", type=int, metavar="N", help=FIELDS["seed"].metadata["doc"])
    add_fields(r, complete)
    _outputs(r)

    s = command("sweep", "run one experiment with several values of some fields", SWEEP, _sweep)
    s.add_argument("task", metavar="TASK", help="a task or a TOML file", choices=tasks)
    s.add_argument("--over", action="append", default=[], metavar="F=X,Y", help="a field and its values; repeatable")
    s.add_argument("--preset", metavar="P", help=f"a published grid: {', '.join(PRESETS)}")
    s.add_argument("--random", type=int, metavar="N", help="number of random points; --over F=LOW..HIGH gives a range")
    s.add_argument(
        "--select", metavar="METRIC", help="the metric to judge by (default: the validation loss, or else train loss)"
    )
    s.add_argument(
        "--last", type=int, default=100, metavar="N", help="take the mean over the last N rounds (default 100)"
    )
    s.add_argument("--variant", help="which of the task's settings to use, see `fedloom show TASK`")
    s.add_argument("--seed", type=int, metavar="N", help="the seed of all points")
    add_fields(s, complete)
    _outputs(s, sink=False)

    p = command(
        "reproduce",
        "repeat an experiment of a paper",
        "Repeat an experiment of a paper, and compare the results with its own.",
        _reproduce,
    )
    names = tuple(reproductions.REPRODUCTIONS) if complete else None
    p.add_argument("name", metavar="NAME", help="from `fedloom list experiments`", choices=names)
    p.add_argument("--seeds", metavar="N", help="how many seeds, or a list separated by commas")
    p.add_argument("--rounds", type=int, metavar="N", help="number of rounds, if fewer than in the paper will do")
    _outputs(p)

    d = command("resume", "continue what was stopped", "Continue a run, a comparison or a sweep.", _resume)
    d.add_argument("directory", metavar="DIR")
    _outputs(d, out=False)

    e = command(
        "report", "write the report of any set of runs", "Write a report of all runs in the directories.", _report
    )
    e.add_argument("directories", nargs="+", metavar="DIR")
    e.add_argument("--target", metavar="X", help="the accuracy to reach, or METRIC=X")
    e.add_argument(
        "--out", metavar="DIR", help="where to write it (default: the directory itself, or report-N for several)"
    )
    e.add_argument("--json", action="store_true", help="print the table as JSON")


def _outputs(command: argparse.ArgumentParser, out: bool = True, sink: bool = True) -> None:
    group = command.add_argument_group("output")
    if out:
        group.add_argument("--out", metavar="DIR", help="a new directory (default: the next number in runs/)")
    if sink:
        words = f"also send the rows to {', '.join(SINKS)}; repeatable"
        group.add_argument("--sink", action="append", default=[], metavar="S", help=words)
    group.add_argument("--quiet", action="store_true", help="do not report progress")
    group.add_argument("--json", action="store_true", help="print rows and table as lines of JSON")


_directory: list[pathlib.Path] = []  # that of the command, for messages after an interruption


def how_to_resume() -> str:
    """The end of an error message, if there is something to resume."""
    if not _directory or not any((_directory[-1] / file).exists() for file in (CONFIG, STUDY, TUNING)):
        return ""
    return f" Run `fedloom resume {_directory[-1]}` to continue."


def _new_directory(given: argparse.Namespace, name: str) -> pathlib.Path:
    """--out, or the next free number in runs/."""
    if given.out is not None:
        path = pathlib.Path(given.out)
    else:
        stem = f"{given.command}-" + re.sub("[^A-Za-z0-9.=_-]+", "-", pathlib.Path(name).stem)
        taken = (p.name for p in pathlib.Path("runs").glob(f"{stem}-*"))
        numbers = [int(n) for t in taken if (n := t.removeprefix(f"{stem}-")).isdigit()]
        path = pathlib.Path("runs") / f"{stem}-{max(numbers, default=0) + 1}"
    _directory.append(path)
    return path


def _progress(given: argparse.Namespace) -> Progress:
    if given.json:
        return Interruptible(Json())
    if given.quiet:
        return Interruptible(None)
    return Interruptible(Live() if sys.stderr.isatty() else Lines())


def _experiment(given: argparse.Namespace) -> Experiment:
    fields = changes(given)
    if given.seed is not None:
        fields["seed"] = given.seed
    if given.task.endswith(".toml"):
        return changed(_from_file(given.task), fields)
    name = fields.pop("algorithm", None)
    return experiment(given.task, name, given.variant, **fields)


def _from_file(path: str) -> Experiment:
    try:
        text = pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    return from_toml(text, path)


def _compare(given: argparse.Namespace) -> int:
    seeds = numbers(given.seeds, "--seeds")
    tasks, fields = given.tasks, changes(given)
    sink = [sinks.sink(name) for name in given.sink]
    if all(t.endswith(".toml") for t in tasks):
        if given.algorithms or given.variant:
            raise ValueError("--algorithms and --variant require a task; TOML files have algorithms of their own.")
        base = [(pathlib.Path(t).stem, changed(_from_file(t), fields)) for t in tasks]
        runs = [(name, changed(e, {"seed": seed})) for name, e in base for seed in seeds]
        title, own = "a comparison", None
    elif len(tasks) > 1:
        raise ValueError(f"compare takes one task, or TOML files; got {' '.join(tasks)}.")
    else:
        names = None if given.algorithms is None else [n.strip() for n in given.algorithms.split(",") if n.strip()]
        runs = list(comparison(tasks[0], names, seeds=seeds, variant=given.variant, changes=fields))
        title, own = f"{find_task(tasks[0]).name}: a comparison", find_task(tasks[0]).target
    wanted = target(given.target, own[0] if own else "test accuracy") or own
    study = run_all(
        runs,
        _new_directory(given, tasks[0]),
        title=title,
        target=wanted,
        about={"kind": "comparison"},
        progress=_progress(given),
        sinks=sink,
    )
    return _conclude(study, given)


def _run(given: argparse.Namespace) -> int:
    e = _experiment(given)
    opened = [sinks.sink(s) for s in given.sink]
    path = _new_directory(given, f"{e.base_task().name}-{method_name(e.algorithm)}")
    return _conclude(run_alone(e, path, _progress(given), opened), given)


def _sweep(given: argparse.Namespace) -> int:
    e = _experiment(given)
    study = sweep(
        e,
        over(given.over, given.preset, e),
        directory=_new_directory(given, e.base_task().name),
        random=given.random,
        select=Select(given.select, given.last),
        progress=_progress(given),
    )
    return _conclude(study, given)


def _reproduce(given: argparse.Namespace) -> int:
    study = reproductions.reproduce(
        given.name,
        seeds=None if given.seeds is None else numbers(given.seeds, "--seeds"),
        rounds=given.rounds,
        directory=_new_directory(given, given.name),
        progress=_progress(given),
        sinks=[sinks.sink(s) for s in given.sink],
    )
    return _conclude(study, given)


def _resume(given: argparse.Namespace) -> int:
    path = pathlib.Path(given.directory)
    _directory.append(path)
    opened = [sinks.sink(s) for s in given.sink]
    if (path / TUNING).exists():
        return _conclude(resume_tuning(path, **reporters(given, _progress(given)), sinks=opened), given)
    if (path / CONFIG).exists():
        return _conclude(resume_alone(path, _progress(given), opened), given)
    if read_study(path).about.get("kind") == "sweep":
        return _conclude(resume_sweep(path, progress=_progress(given)), given)
    return _conclude(resume_study(path, None, _progress(given), opened), given)


def _report(given: argparse.Namespace) -> int:
    given.directories = [
        d if not (pathlib.Path(d) / TUNING).exists() else f"{d}/{COMPARISON}" for d in given.directories
    ]
    study = find_runs(given.directories)
    if given.target is not None:
        study = dataclasses.replace(study, target=target(given.target, "test accuracy"))
    if given.out is not None:
        place = pathlib.Path(given.out)
    elif len(given.directories) == 1:
        place = pathlib.Path(given.directories[0])
    else:  # not into any of them, which may have a report of its own
        place = next(p for n in itertools.count(1) if not (p := pathlib.Path(f"report-{n}")).exists())
    return _conclude(study, given, place)


def _conclude(study: Study, given: argparse.Namespace, directory: pathlib.Path | None = None) -> int:
    """Write the report; print the table and the path of the report."""
    kind = study.about.get("kind")
    place = directory or study.directory
    assert place is not None
    from fedloom import report  # imported late: it takes half a second, for which no run should wait

    path = report.write(study, place)
    if given.json:
        print(json.dumps({"table": report.plain(study), "report": str(path)}))
    else:
        print({"sweep": sweep_table, "reproduction": reproductions.text}.get(str(kind), report.text)(study))
        if words := report.clock_text(study):
            print(words)
        print(f"\nreport: {path}")
    return 3 if all(r.diverged for r in study.results) else 0
