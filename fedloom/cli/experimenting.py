"""The commands that start or report experiments: compare, run, sweep, reproduce, report."""

import argparse
import dataclasses
import itertools
import pathlib
from typing import Any

import fedloom
from fedloom import sinks
from fedloom.cli.clusters import add_address, check_address, here, whole_runs
from fedloom.cli.flags import add_fields, add_terms, changes, target, terms
from fedloom.cli.output import conclude, new_directory, out_directory, outputs, progress, say_how_long, say_notes
from fedloom.cli.processes import add_processes, check_engine, joined, path_of_first
from fedloom.cli.suggesting import with_theory
from fedloom.experiments.arguments import seed_list
from fedloom.experiments.changes import changed
from fedloom.experiments.comparisons import SEEDS, comparison, own_target
from fedloom.experiments.definition import FIELDS, Experiment, method_name
from fedloom.experiments.finding import find_runs
from fedloom.experiments.growth import decided
from fedloom.experiments.loading import find_task
from fedloom.experiments.looking import planned_looks
from fedloom.experiments.points import over
from fedloom.experiments.presets import PRESETS
from fedloom.experiments.recipe import recipe
from fedloom.experiments.settings import experiment, from_toml
from fedloom.experiments.side_by_side import run_side_by_side
from fedloom.experiments.spread import spread_alone, spread_batches
from fedloom.experiments.study import RunEach, check_runs, run_all, run_alone
from fedloom.experiments.study_file import refuse_study
from fedloom.experiments.sweeps import Select, sweep
from fedloom.experiments.text import columns
from fedloom.experiments.tuning import COMPARISON, TUNING
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
    c.add_argument(
        "--algorithms", metavar="A,B,C", help="names or FILE.py:NAME (default: all that the task has settings for)"
    )
    c.add_argument(
        "--seeds",
        default=str(len(SEEDS)),
        metavar="N",
        help="how many seeds, a list separated by commas, or 3..10: from 3 to 10, until a method is separated "
        f"(default {len(SEEDS)})",
    )
    c.add_argument("--variant", help="which of the task's settings to use, see `fedloom show TASK`")
    add_terms(c)
    add_fields(c, complete, leave_out=("algorithm", "until"))
    add_address(c)
    outputs(c, dry=True)

    r = command("run", "run one experiment", RUN, _run)
    r.add_argument("task", metavar="TASK", help="a task or a TOML file", choices=tasks)
    r.add_argument("--variant", help="which of the task's settings to use, see `fedloom show TASK`")
    r.add_argument("--seed", type=int, metavar="N", help=FIELDS["seed"].metadata["doc"])
    r.add_argument(
        "--theory", action="store_true", help="use the step sizes that a theorem recommends, and say what it assumes"
    )
    add_processes(r)
    add_fields(r, complete)
    add_address(r)
    outputs(r, dry=True)

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
    add_fields(s, complete, leave_out=("until",))
    add_address(s)
    outputs(s, sink=False)

    p = command(
        "reproduce",
        "repeat an experiment of a paper",
        "Repeat an experiment of a paper, and compare the results with its own. What has been recorded is shown first.",
        _reproduce,
    )
    names = tuple(fedloom.reproductions.REPRODUCTIONS) if complete else None
    p.add_argument("name", metavar="NAME", nargs="?", help="from `fedloom reproduce --list`", choices=names)
    p.add_argument("--list", action="store_true", help="list all, with data, time and what has been recorded")
    p.add_argument("--recorded", action="store_true", help="only show what has been recorded, and run nothing")
    p.add_argument("--seeds", metavar="N", help="how many seeds, or a list separated by commas")
    p.add_argument("--rounds", type=int, metavar="N", help="number of rounds, if fewer than in the paper will do")
    p.add_argument("--missing", action="store_true", help="only the runs that are not recorded for their seed")
    p.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="RUN",
        help="only runs of this name, or of a pattern such as 'fedadam*'; repeatable",
    )
    outputs(p, dry=True)

    e = command(
        "report", "write the report of any set of runs", "Write a report of all runs in the directories.", _report
    )
    e.add_argument("directories", nargs="+", metavar="DIR")
    add_terms(e)
    e.add_argument(
        "--out", metavar="DIR", help="where to write it (default: the directory itself, or report-N for several)"
    )
    e.add_argument("--json", action="store_true", help="print the table as JSON")


def _experiment(given: argparse.Namespace) -> Experiment:
    fields = changes(given)
    if given.seed is not None:
        fields["seed"] = given.seed
    if given.task.endswith(".toml"):
        if given.variant is not None:
            raise ValueError("--variant requires a task; a TOML file has settings of its own.")
        return changed(from_file(given.task), fields)
    name = fields.pop("algorithm", None)
    return experiment(given.task, name, given.variant, **fields)


def from_file(path: str) -> Experiment:
    """The experiment of a TOML file."""
    try:
        text = pathlib.Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    return from_toml(text, path)


def _compare(given: argparse.Namespace) -> int:
    made: dict[str, Any]
    looks = {"planned": planned_looks(given.seeds)} if ".." in given.seeds else {}
    seeds = seed_list(str(looks["planned"][0]) if looks else given.seeds, "--seeds")
    tasks, fields = given.tasks, changes(given)
    sink = [sinks.sink(name) for name in given.sink]
    check_address(given, fields.get("engine"))
    if all(t.endswith(".toml") for t in tasks):
        if given.algorithms or given.variant:
            raise ValueError("--algorithms and --variant require a task; TOML files have algorithms of their own.")
        base = [(pathlib.Path(t).stem, changed(from_file(t), fields)) for t in tasks]
        runs = [(name, changed(e, {"seed": seed})) for name, e in base for seed in seeds]
        title, own, made = (
            "a comparison",
            None,
            {"no recipe": "it was made from TOML files, which have methods of their own"},
        )
    elif len(tasks) > 1:
        raise ValueError(f"compare takes one task, or TOML files; got {' '.join(tasks)}.")
    else:
        names = None if given.algorithms is None else [n.strip() for n in given.algorithms.split(",") if n.strip()]
        runs = list(comparison(tasks[0], names, seeds=seeds, variant=given.variant, changes=fields))
        task = find_task(tasks[0])
        title, own = f"{task.name}: a comparison", own_target(task, runs)
        made = recipe(tasks[0], given.variant, fields)
    wanted = target(given.target, own[0] if own else "test accuracy") or own
    judged = terms(given)
    if given.dry_run:
        return say_how_long(runs, " until the first look" if looks else "", wanted)
    shown, each = progress(given), None
    if whole_runs(fields, [e for _, e in runs]):
        runs, each = [(name, here(e)) for name, e in runs], spread_alone
        if "recipe" in made:  # what is added later is the same without a cluster
            made["recipe"]["changes"].pop("engine")
    say_notes(runs[0][1], given)
    study = run_all(
        runs,
        new_directory(given, tasks[0]),
        title=title,
        target=wanted,
        terms=judged,
        about={"kind": "comparison", **made, **looks},
        progress=shown,
        sinks=sink,
        each=each,
    )
    return conclude(decided(study, shown, sink, each), given)


def _run(given: argparse.Namespace) -> int:
    if given.processes is not None and given.dry_run:
        raise ValueError("--dry-run tries rounds in a single process; leave --processes out.")
    if given.processes is not None:
        check_engine(given.engine)
    with joined(given) as first:
        e = _experiment(given)
        if given.processes is not None:
            check_engine(e.engine)
        check_address(given, e.engine)
        if given.theory:
            e = with_theory(e, given)
        opened = [sinks.sink(s) for s in given.sink]
        if given.dry_run:
            return say_how_long([(method_name(e.algorithm), e)])
        path = path_of_first(new_directory(given, f"{e.base_task().name}-{method_name(e.algorithm)}"))
        say_notes(e, given)
        study = run_alone(e, path, progress(given), opened)
    return conclude(study, given) if first else 0


def _sweep(given: argparse.Namespace) -> int:
    e = _experiment(given)
    check_address(given, e.engine)
    each: RunEach = run_side_by_side
    if e.engine == "ray" and e.shards is None:
        e, each = here(e), spread_batches
    study = sweep(
        e,
        over(given.over, given.preset, e),
        each=each,
        directory=new_directory(given, e.base_task().name),
        random=given.random,
        select=Select(given.select, given.last),
        progress=progress(given),
    )
    return conclude(study, given)


def _list_reproductions() -> int:
    from fedloom.reproductions.overview import entry  # imported late, as all of them

    head = ("name", "data (here unless said)", "published numbers", "recorded", "time of all runs")
    rows = [entry(r) for r in fedloom.reproductions.REPRODUCTIONS.values()]
    print(columns([head, *(tuple(map(str, row)) for row in rows)]))
    return 0


def _reproduce(given: argparse.Namespace) -> int:
    if given.list:
        return _list_reproductions()
    if given.name is None:
        raise ValueError("Which experiment is to be repeated? `fedloom reproduce --list` lists their names.")
    seeds = None if given.seeds is None else seed_list(given.seeds, "--seeds")
    known = fedloom.reproductions.recorded_text(given.name)
    if given.recorded:
        print(known or f"Nothing has been recorded of {given.name}.")
        return 0
    # Mistakes show before anything is printed.
    runs = fedloom.reproductions.planned(given.name, seeds, given.rounds, given.missing, given.only)
    if given.dry_run:
        return say_how_long(runs)
    opened, directory = [sinks.sink(s) for s in given.sink], new_directory(given, given.name)
    refuse_study(directory)
    check_runs(runs[:1], None)  # all are checked before the first is run; this one needs the data
    if known and not given.json and not given.quiet:
        print(f"{known}\n\nNow the runs:\n", flush=True)
    study = fedloom.reproductions.reproduce(
        given.name,
        seeds=seeds,
        rounds=given.rounds,
        missing=given.missing,
        only=given.only,
        directory=directory,
        progress=progress(given),
        sinks=opened,
    )
    return conclude(study, given)


def _report(given: argparse.Namespace) -> int:
    given.directories = [  # the result of a tuning is its comparison
        d if not (pathlib.Path(d) / TUNING).exists() else f"{d}/{COMPARISON}" for d in given.directories
    ]
    study = find_runs(given.directories)
    study = dataclasses.replace(study, terms=terms(given, study.terms))
    if given.target is not None:
        study = dataclasses.replace(study, target=target(given.target, "test accuracy"))
    if given.out is not None:
        place = out_directory(given.out)
    elif len(given.directories) == 1:
        place = pathlib.Path(given.directories[0])
    else:  # not into any of them, which may have a report of its own
        place = next(p for n in itertools.count(1) if not (p := pathlib.Path(f"report-{n}")).exists())
    return conclude(study, given, place)
