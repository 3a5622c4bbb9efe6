"""Every field of an experiment is an option: --rounds 50, --algorithm feddyn, and with a dot --algorithm.alpha 0.3."""

import argparse
import dataclasses
from typing import Any

from fedloom.evidence import check_target
from fedloom.experiments.definition import FIELDS, PARTS
from fedloom.experiments.plain import parse
from fedloom.experiments.table_files import COLUMNS
from fedloom.experiments.terms import COSTS, Budget, Terms
from fedloom.hyperparameters import flag, nearest

# The help of each option: --seed and the task have options of their own.
HELP = {name: field.metadata["doc"] for name, field in FIELDS.items() if name not in ("task", "seed")}
HELP["speeds"] = "short for --system.speeds: how many times faster the fastest client is than the slowest"


def _choices(field: str) -> tuple[str, ...]:
    """The names that a field can have, for completion."""
    domain = FIELDS[field].metadata["domain"]
    return ("true", "false") if domain is flag else (*domain.registry, *domain.choices)


def add_fields(command: argparse.ArgumentParser, complete: bool, leave_out: tuple[str, ...] = ()) -> None:
    """Add options for the fields of an experiment; those with a dot are taken out before: see `take_dotted`."""
    group = command.add_argument_group("fields of the experiment")
    for name, words in HELP.items():
        if name not in leave_out:
            choices = (_choices(name) or None) if complete and name in FIELDS else None
            group.add_argument(option(name), dest=name, metavar="X", help=words, choices=choices)
    if complete:
        for part, registry in PARTS.items():
            fields = {f.name for kind in registry.values() for f in dataclasses.fields(kind)}
            for field in sorted(fields):
                command.add_argument(f"--{part}.{field}", metavar="X")
    command.set_defaults(fields=True)


def option(field: str) -> str:
    return "--" + field.replace("_", "-")


# Fields that are text whatever it looks like: TOML would read the plan 0x2, or a column called 1, as a number.
TEXTS = {"plan", *COLUMNS}


def changes(given: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given, with and without a dot, as `changed` takes them."""
    found = {name: parse(getattr(given, name)) for name in HELP if getattr(given, name, None) is not None}
    for name in TEXTS & found.keys():
        found[name] = getattr(given, name)
    if "speeds" in found:
        found["system.speeds"] = found.pop("speeds")
    return found | {name: parse(text) for name, text in given.dotted.items()}


def take_dotted(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Separate the options with a dot, which depend on the algorithm, from those that argparse knows."""
    plain, dotted, rest = [], {}, list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, text = argument.partition("=")
        if not (name.startswith("--") and "." in name):
            plain.append(argument)
            continue
        if not equals:
            if not rest:
                raise ValueError(f"{name} needs a value, such as {name} 0.1.")
            text = rest.pop(0)
        dotted[name[2:].replace("-", "_")] = text
    return plain, dotted


# What a namespace has besides options: positional arguments, and what the commands set themselves.
NOT_OPTIONS = {
    *("arguments", "command", "do", "dotted", "fields"),
    *("directories", "directory", "file", "name", "names", "shell", "task", "tasks", "what"),
}


def nearest_option(text: str, given: argparse.Namespace) -> str:
    """The error message for an unknown argument."""
    if not text.startswith("-"):
        return f"{given.command} does not take the argument {text!r}; see `fedloom {given.command} --help`."
    known = [option(name) for name in vars(given) if name not in NOT_OPTIONS]
    name = text.partition("=")[0]
    hint = ""
    if name == "--processes":
        hint = "Several processes run a single experiment: `fedloom run` and `fedloom resume` have it."
    elif given.command == "resume" and name in ("--seeds", "--algorithms", "--rounds"):
        hint = "`fedloom extend` adds seeds, methods and rounds."
    return f"{given.command} has no option {name}. {hint or nearest(name, known).strip()}"


def target(text: str | None, default_metric: str) -> tuple[str, float] | None:
    """--target: a value of the default metric, or METRIC=VALUE."""
    if text is None:
        return None
    metric, _, number = text.rpartition("=")
    try:
        found = metric.strip() or default_metric, float(number)
    except ValueError:
        raise ValueError(
            f"--target must be a number or METRIC=NUMBER, such as 'train loss=0.3'; got {text!r}."
        ) from None
    check_target(*found)
    return found


def add_terms(command: argparse.ArgumentParser) -> None:
    """Add the options that say how a study judges its methods."""
    group = command.add_argument_group("how methods are judged")
    group.add_argument("--target", metavar="X", help="the accuracy to reach, or METRIC=X (default: the task's)")
    costs = ", ".join(COSTS)
    group.add_argument(
        "--budget", metavar="B", help=f"the cost at which methods are compared, such as bytes=20MB: {costs} "
        "(default: bytes, the smallest total among the methods)",
    )  # fmt: skip
    group.add_argument("--window", metavar="N", help="evaluations in the mean that must reach the target (default 5)")
    group.add_argument(
        "--crossing", metavar="C", help="stay: reaching a target means not to end below it (default); first: the "
        "first evaluation that reaches it, as in papers",
    )  # fmt: skip


def terms(given: argparse.Namespace, before: Terms | None = None) -> Terms:
    """The terms that were given; others as before, or the default."""
    found: dict[str, Any] = {}
    if given.budget is not None:
        found["budget"] = Budget.from_text(given.budget)
    if given.window is not None:
        found["window"] = parse(given.window)
    if given.crossing is not None:
        found["crossing"] = given.crossing
    return dataclasses.replace(before or Terms(), **found)
