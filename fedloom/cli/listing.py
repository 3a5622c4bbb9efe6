"""The commands that inform and download: list, show, describe, download."""

import argparse
import dataclasses
import inspect
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from fedloom import cohorts, regularizers, solvers, systems
from fedloom.algorithms import ALGORITHMS
from fedloom.cli.flags import option
from fedloom.data.catalogue import CATALOGUE
from fedloom.data.download import fetch
from fedloom.data.splits import SPLITS
from fedloom.experiments.about import figures
from fedloom.experiments.arguments import name_list
from fedloom.experiments.definition import FIELDS
from fedloom.experiments.loading import TASK, find_task
from fedloom.experiments.own_files import Kind, find, is_reference
from fedloom.experiments.plain import OWN_KINDS
from fedloom.experiments.table_files import COLUMNS, check_columns, is_table, table_task, whole_path
from fedloom.experiments.text import columns
from fedloom.hyperparameters import brief, nearest
from fedloom.metrics import LOSSES, METRICS
from fedloom.models import MODELS
from fedloom.places import data_directory
from fedloom.tables import notes
from fedloom.tasks import TASKS, Task, Tuned


def _first_line(value: Any) -> str:
    return (value.__doc__ or "").strip().splitlines()[0]


def _tasks() -> Iterable[tuple[str, ...]]:
    for task in TASKS.values():
        yield task.name, ", ".join(task.needs) or "-", task.about


def _algorithms() -> Iterable[tuple[str, ...]]:
    return ((name, kind.about or _first_line(kind)) for name, kind in ALGORITHMS.items())


def _models() -> Iterable[tuple[str, ...]]:
    return ((name, f"{make().parameters:,}") for name, make in MODELS.items())


def _splits() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(function)) for name, function in SPLITS.items())


def _solvers() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(kind)) for name, kind in solvers.SOLVERS.items())


def _cohorts() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(kind)) for name, kind in cohorts.COHORTS.items())


def _experiments() -> Iterable[tuple[str, ...]]:
    from fedloom.reproductions import REPRODUCTIONS  # imported late: no run should wait for them

    return ((r.name, ", ".join(r.needs) or "-", r.about) for r in REPRODUCTIONS.values())


def _losses() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(function)) for name, function in LOSSES.items())


def _metrics() -> Iterable[tuple[str, ...]]:
    return ((name, f"{'larger' if m.larger_is_better else 'smaller'} is better") for name, m in METRICS.items())


def _regularizers() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(kind)) for name, kind in regularizers.REGULARIZERS.items())


def _systems() -> Iterable[tuple[str, ...]]:
    for part, registry in systems.PARTS.items():
        yield from ((f"--system.{part}", name, _first_line(kind)) for name, kind in registry.items())


def _downloads() -> Iterable[tuple[str, ...]]:
    directory = data_directory()
    for name, files in CATALOGUE.items():
        paths = [path for file in files for path in (file.unpacked() or (file.path,))]
        there = sum((directory / path).exists() for path in paths)
        yield name, f"{there} of {len(paths)} files present", ", ".join(file.path for file in files)


# What `fedloom list` lists: the headings of the columns, and the rows.
LISTS: dict[str, tuple[tuple[str, ...], Callable[[], Iterable[tuple[str, ...]]]]] = {
    "tasks": (("task", "data", "about"), _tasks),
    "algorithms": (("algorithm", "about"), _algorithms),
    "experiments": (("experiment", "data", "about"), _experiments),
    "models": (("model", "parameters"), _models),
    "losses": (("loss", "about"), _losses),
    "metrics": (("metric", "about"), _metrics),
    "splits": (("split", "about"), _splits),
    "solvers": (("solver", "about"), _solvers),
    "cohorts": (("cohort", "about"), _cohorts),
    "regularizers": (("regularizer", "about"), _regularizers),
    "systems": (("part", "model", "about"), _systems),
    "downloads": (("download", "state", "files in the data directory"), _downloads),
}


PICTURES = (".png", ".svg", ".pdf")


def show(task: Task) -> str:
    """A description of a task: what it is made of, and what was run on it."""
    lines = [f"{task.name}: {task.about}"]
    facts = {
        "paper": task.paper,
        "needs": ", ".join(task.needs) or "nothing: the data are generated or installed",
        "model": "" if task.model is None else f"{task.model.name}, {task.model.parameters:,} parameters",
        "metrics": ", ".join(m.name for m in task.metrics),
        "target": "" if task.target is None else f"{task.target[0]} {task.target[1]:g}",
        "weights": "" if task.model is None else str(task.weights),
    }
    lines += [f"  {name:<8} {value}" for name, value in facts.items() if value]
    for variant, settings in task.settings.items():
        rows = (
            (brief(s.algorithm), brief(s.solver), brief(s.cohort), str(s.rounds), task.origin(s).words)
            for s in settings.values()
        )
        lines += [
            "",
            f"settings, {variant}:",
            columns([("  algorithm", "solver", "cohort", "rounds", "origin"), *(("  " + r[0], *r[1:]) for r in rows)]),
        ]
        lines += [
            f"  values tried for {name}: {s.origin.grid}" for name, s in settings.items() if isinstance(s.origin, Tuned)
        ]
    if task.tuned_over:
        lines += ["", "tuned over:"]
        lines += [f"  {name:<15} {', '.join(f'{v:g}' for v in values)}" for name, values in task.tuned_over.items()]
    for reported in task.reported:
        values = ", ".join(f"{name} {value:g}" for name, value in reported.values.items())
        lines += ["", f"reported in {reported.words}:", f"  {values}"]
    return "\n".join(lines)


def add(commands: Any, complete: bool) -> None:
    """Add the commands of this module."""
    list_ = commands.add_parser("list", help="list tasks, algorithms, experiments, models, splits, ...")
    list_.add_argument("what", choices=tuple(LISTS), help="one of %(choices)s")
    list_.set_defaults(do=_list)
    tasks = "a name from `fedloom list tasks`"
    parts = "a name from `fedloom list tasks`, algorithms, solvers or cohorts"
    made_of = "show what a task, an algorithm, a solver or a cohort is made of, and the papers' settings"
    for name, words, names, do in (
        ("show", made_of, parts, _show),
        ("describe", "load a task's data and describe its clients, with a picture", tasks, _describe),
    ):
        command = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
        choices = tuple(TASKS) if complete else None
        command.add_argument("task", help=f"{names}, or FILE.py:NAME", choices=choices, metavar="name")
        command.set_defaults(do=do)
        if name == "describe":
            for column in COLUMNS:
                command.add_argument(option(column), metavar="X", help=FIELDS[column].metadata["doc"])
            command.add_argument("--seed", type=int, default=0, help="the seed of the split (default 0)")
            command.add_argument("--picture", metavar="FILE", help="also draw a picture to a PNG, SVG or PDF file")
    download = commands.add_parser("download", help="download public data files to the data directory")
    choices = tuple(CATALOGUE) if complete else None
    words = "names from `fedloom list downloads`"
    download.add_argument("names", nargs="+", metavar="name", help=words, choices=choices)
    download.set_defaults(do=_download)


def _list(given: argparse.Namespace) -> int:
    head, rows = LISTS[given.what]
    print(columns([head, *rows()]))
    return 0


def _download(given: argparse.Namespace) -> int:
    for name in given.names:
        if name not in CATALOGUE:
            raise ValueError(f"There is no download {name!r}.{nearest(name, CATALOGUE)}")
    for name in given.names:
        for path in fetch(name):
            print(path)
    return 0


KINDS = (TASK, *(kind for _, kind in OWN_KINDS))
SHOWN = Kind(
    "task, algorithm, solver or cohort rule",
    "a Task, nor a subclass of Algorithm, Solver or CohortRule that is made with frozen",
    lambda value: any(kind.holds(value) for kind in KINDS),
)


def _show(given: argparse.Namespace) -> int:
    if is_reference(given.task):
        found = find(given.task, SHOWN)
        print(show(found) if isinstance(found, Task) else show_value(found.__name__, found))
        return 0
    for registry in (ALGORITHMS, solvers.SOLVERS, cohorts.COHORTS):
        if given.task in registry and given.task not in TASKS:
            print(show_value(given.task, registry[given.task]))
            return 0
    known = [*TASKS, *ALGORITHMS, *solvers.SOLVERS, *cohorts.COHORTS]
    if given.task not in TASKS:
        raise ValueError(f"There is no task, algorithm, solver or cohort {given.task!r}.{nearest(given.task, known)}")
    print(show(find_task(given.task)))
    return 0


def _describe(given: argparse.Namespace) -> int:
    roles = {name: getattr(given, name) for name in COLUMNS}
    if roles["leave_out"]:
        roles["leave_out"] = tuple(name_list(roles["leave_out"]))
    check_columns(given.task, roles, split={})  # rows can be described before they are divided
    if not is_table(given.task):
        print(describe(find_task(given.task), given.seed, given.picture))
        return 0
    task = table_task(whole_path(given.task), roles, None)
    print(f"{task.name}: {task.about}\n")
    print(describe(task, given.seed, given.picture))
    data = task.load(given.seed).data
    assert data is not None
    for words in notes(data):
        print(f"\n{words}")
    return 0


def show_value(name: str, kind: Any) -> str:
    """The documentation and the fields of an algorithm, a solver or a cohort."""
    rows = [
        (f"  {f.name}", brief(f.default), f.metadata.get("doc", ""), f.metadata["domain"].words)
        for f in dataclasses.fields(kind)
        if "domain" in f.metadata
    ]
    fields = columns([("  field", "default", "", "must be"), *rows]) if rows else "It has no fields."
    return f"{name}: {inspect.cleandoc(kind.__doc__)}\n\n{fields}"


def describe(task: Task, seed: int, picture: str | None = None) -> str:
    if picture is not None and pathlib.Path(picture).suffix not in PICTURES:
        raise ValueError(f"--picture must be a file name that ends with {', '.join(PICTURES)}; got {picture!r}.")
    if picture is not None and pathlib.Path(picture).exists():
        raise ValueError(f"--picture: {picture} already exists; choose another name.")
    loaded = task.load(seed)
    if loaded.data is None:
        if picture is not None:
            raise ValueError(f"--picture: task {task.name!r} has no examples to draw.")
        return f"{loaded.federation.clients} clients with functions of a vector of {loaded.w.size} numbers"
    from fedloom import report  # imported late: it takes half a second, for which no other command should wait

    facts = figures(loaded)
    if picture is not None:
        report.split_picture(facts).savefig(picture)
    return f"{facts['summary']}\n\n{report.split_text(facts)}"
