"""The command `fedloom`: what there is, what a task is made of, and the files that tasks read."""

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import Any

import fedloom
from fedloom import cohorts, regularizers, solvers
from fedloom.algorithms import ALGORITHMS
from fedloom.data.catalogue import CATALOGUE
from fedloom.data.download import fetch
from fedloom.data.files import data_directory
from fedloom.data.splits import SPLITS
from fedloom.hyperparameters import brief, nearest
from fedloom.models import MODELS
from fedloom.tasks import TASKS, Task


def _first_line(value: Any) -> str:
    return (value.__doc__ or "").strip().splitlines()[0]


def _tasks() -> Iterable[tuple[str, ...]]:
    for task in TASKS.values():
        yield task.name, ", ".join(task.needs) or "-", task.about


def _algorithms() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(kind)) for name, kind in ALGORITHMS.items())


def _models() -> Iterable[tuple[str, ...]]:
    return ((name, f"{make().parameters:,}") for name, make in MODELS.items())


def _splits() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(function)) for name, function in SPLITS.items())


def _solvers() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(kind)) for name, kind in solvers.SOLVERS.items())


def _cohorts() -> Iterable[tuple[str, ...]]:
    kinds = vars(cohorts).items()
    rules = [(n, k) for n, k in kinds if isinstance(k, type) and issubclass(k, cohorts.CohortRule)]
    return ((name, _first_line(kind)) for name, kind in rules if name != "CohortRule")


def _regularizers() -> Iterable[tuple[str, ...]]:
    return ((name, _first_line(kind)) for name, kind in regularizers.REGULARIZERS.items())


def _downloads() -> Iterable[tuple[str, ...]]:
    directory = data_directory()
    for name, files in CATALOGUE.items():
        paths = [path for file in files for path in (file.unpacked() or (file.path,))]
        there = sum((directory / path).exists() for path in paths)
        yield name, f"{there} of {len(paths)} files here", ", ".join(file.path for file in files)


# What `fedloom list` lists: the head of each column, and the rows.
LISTS: dict[str, tuple[tuple[str, ...], Callable[[], Iterable[tuple[str, ...]]]]] = {
    "tasks": (("task", "data", "about"), _tasks),
    "algorithms": (("algorithm", "about"), _algorithms),
    "models": (("model", "parameters"), _models),
    "splits": (("split", "about"), _splits),
    "solvers": (("solver", "about"), _solvers),
    "cohorts": (("cohort", "about"), _cohorts),
    "regularizers": (("regularizer", "about"), _regularizers),
    "downloads": (("download", "state", "files in the data directory"), _downloads),
}


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Columns as wide as they need to be."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def show(task: Task) -> str:
    """A task in words: what it is made of, and what was run on it."""
    lines = [f"{task.name}: {task.about}"]
    facts = {
        "paper": task.paper,
        "needs": ", ".join(task.needs) or "nothing: drawn or installed here",
        "model": "" if task.model is None else f"{task.model.name}, {task.model.parameters:,} parameters",
        "metrics": ", ".join(m.name for m in task.metrics),
        "weights": "" if task.model is None else str(task.weights),
    }
    lines += [f"  {name:<8} {value}" for name, value in facts.items() if value]
    for variant, settings in task.settings.items():
        rows = ((brief(s.algorithm), brief(s.solver), brief(s.cohort), str(s.rounds)) for s in settings.values())
        lines += [
            "",
            f"settings, {variant}:",
            table(("  algorithm", "solver", "cohort", "rounds"), (("  " + r[0], *r[1:]) for r in rows)),
        ]
    if task.tuned_over:
        lines += ["", "tuned over:"]
        lines += [f"  {name:<15} {', '.join(f'{v:g}' for v in values)}" for name, values in task.tuned_over.items()]
    for reported in task.reported:
        values = ", ".join(f"{name} {value:g}" for name, value in reported.values.items())
        lines += ["", f"reported, {reported.what}:", f"  {values}"]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fedloom", description="Federated optimization: tasks, algorithms and data.")
    parser.add_argument("--version", action="version", version=f"fedloom {fedloom.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    list_ = commands.add_parser("list", help="what there is: tasks, algorithms, models, splits, ...")
    list_.add_argument("what", choices=LISTS, help="one of %(choices)s")
    for name, words in (
        ("show", "what a task is made of, and the papers' settings"),
        ("describe", "load a task's data and describe its clients"),
    ):
        command = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
        command.add_argument("task", help="a name from `fedloom list tasks`")
        if name == "describe":
            command.add_argument("--seed", type=int, default=0, help="of the split (default 0)")
    download = commands.add_parser("download", help="get public data files into the data directory")
    download.add_argument("names", nargs="+", metavar="name", help="names from `fedloom list downloads`")

    given = parser.parse_args(arguments)
    try:
        if given.command == "list":
            print(table(LISTS[given.what][0], LISTS[given.what][1]()))
        elif given.command == "download":
            for name in given.names:
                if name not in CATALOGUE:
                    raise ValueError(f"There is no download {name!r}.{nearest(name, CATALOGUE)}")
            for name in given.names:
                for path in fetch(name):
                    print(path)
        else:
            if given.task not in TASKS:
                raise ValueError(f"There is no task {given.task!r}.{nearest(given.task, TASKS)}")
            task = TASKS[given.task]
            if given.command == "show":
                print(show(task))
            else:
                print(describe(task, given.seed))
    except BrokenPipeError:  # the reader, such as head, has seen enough
        sys.stderr.close()
    except (ValueError, OSError, ImportError) as error:
        print(f"fedloom: {error}", file=sys.stderr)
        return 2
    return 0


def describe(task: Task, seed: int) -> str:
    loaded = task.load(seed)
    if loaded.data is None:
        return f"{loaded.federation.clients} clients, functions of a vector of {loaded.w.size} numbers"
    return str(loaded.data.describe())


if __name__ == "__main__":
    sys.exit(main())
