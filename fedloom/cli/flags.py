"""Every field of an experiment is an option: --rounds 50, --algorithm feddyn, and with a dot --algorithm.alpha 0.3."""

import argparse
import dataclasses
import tomllib
from typing import Any

from fedloom.experiments.experiment import ENGINES, PARTS
from fedloom.experiments.loading import RESPLIT
from fedloom.hyperparameters import nearest
from fedloom.models import MODELS

FIELDS = {
    "algorithm": "a name from `fedloom list algorithms`; --algorithm.FIELD sets its hyperparameters",
    "solver": "how clients minimise, from `fedloom list solvers`; --solver.lr 0.1 sets a field",
    "cohort": "who takes part, from `fedloom list cohorts`; --cohort.m 20 sets a field",
    "rounds": "how many",
    "evaluate_every": "rounds from one evaluation to the next (default: 100 evaluations in all)",
    "split": "divide the data anew: --split dirichlet --split.clients 50 --split.alpha 0.1",
    "model": "another model, from `fedloom list models`",
    "weights": "population weights: examples or uniform",
    "own_models": "true: also evaluate the clients' own models, which FedDR and FedPD keep",
    "on_nonfinite": "a client that returns NaN ends the run (raise) or is left out (drop)",
    "plan": "clients side by side and devices, such as 5x2 (default: auto, which chooses)",
    "engine": "simulate (synchronous rounds, the default) or events (asynchronous, on a virtual clock)",
    "buffer": "with events: replies that make an update of the server (default 1)",
    "system": "simulated devices and links, see `fedloom list systems`; --system.faults.lost 0.1 sets a field",
    "speeds": "short for --system.speeds: how many times the fastest client is faster than the slowest",
}
CHOICES: dict[str, Any] = {
    **PARTS,
    "split": RESPLIT,
    "model": MODELS,
    "weights": ("examples", "uniform"),
    "on_nonfinite": ("raise", "drop"),
    "own_models": ("true", "false"),
    "engine": ENGINES,
}


def add_fields(command: argparse.ArgumentParser, complete: bool, leave_out: tuple[str, ...] = ()) -> None:
    """Options for the fields of an experiment; those with a dot are parted off before: see `take_dotted`."""
    group = command.add_argument_group("fields of the experiment")
    for name, words in FIELDS.items():
        if name not in leave_out:
            choices = tuple(CHOICES[name]) if complete and name in CHOICES else None
            group.add_argument(option(name), dest=name, metavar="X", help=words, choices=choices)
    if complete:
        for part, registry in PARTS.items():
            fields = {f.name for kind in registry.values() for f in dataclasses.fields(kind)}
            for field in sorted(fields):
                command.add_argument(f"--{part}.{field}", metavar="X")
    command.set_defaults(fields=True)


def option(field: str) -> str:
    return "--" + field.replace("_", "-")


def changes(given: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given, with and without a dot, as `experiment.changed` takes them."""
    found = {name: value(getattr(given, name)) for name in FIELDS if getattr(given, name, None) is not None}
    if "plan" in found:
        found["plan"] = given.plan  # 0x2 is not a number here
    if "speeds" in found:
        found["system.speeds"] = found.pop("speeds")
    return found | {name: value(text) for name, text in given.dotted.items()}


def take_dotted(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Part the options with a dot, which depend on the algorithm, from those that argparse knows."""
    plain, dotted, rest = [], {}, list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, text = argument.partition("=")
        if not (name.startswith("--") and "." in name):
            plain.append(argument)
            continue
        if not equals:
            if not rest:
                raise ValueError(f"{name} needs a value, as in {name} 0.1.")
            text = rest.pop(0)
        dotted[name[2:].replace("-", "_")] = text
    return plain, dotted


def value(text: str) -> Any:
    """A number, a list or a table as in TOML; any other text is a name."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


NOT_OPTIONS = (
    "command",
    "do",
    "dotted",
    "fields",
    "task",
    "tasks",
    "directory",
    "directories",
    "name",
    "names",
    "what",
)


def nearest_option(text: str, given: argparse.Namespace) -> str:
    """What to say about an argument that nobody asked for."""
    if not text.startswith("-"):
        return f"{given.command} takes no further argument {text!r}; see `fedloom {given.command} --help`."
    known = [
        option(n) for n in vars(given) if n not in ("command", "do", "dotted", "fields", "task", "tasks", "directories")
    ]
    return f"{given.command} has no option {text.partition('=')[0]}.{nearest(text.partition('=')[0], known)}"


def numbers(text: str, option: str) -> list[int]:
    """--seeds: how many, or which, separated by commas."""
    try:
        found = [int(n) for n in text.split(",") if n.strip()]
    except ValueError:
        found = []
    if not found:
        raise ValueError(f"{option} must be a number of seeds, or seeds separated by commas; got {text!r}.")
    if twice := [seed for seed in found if found.count(seed) > 1]:
        raise ValueError(f"{option} has {twice[0]} twice.")
    if "," not in text:
        if found[0] < 1:
            raise ValueError(f"{option} must be 1 or more, got {text}.")
        return list(range(found[0]))
    return found


def target(text: str | None, default_metric: str) -> tuple[str, float] | None:
    """--target: a value of the task's usual metric, or METRIC=VALUE."""
    if text is None:
        return None
    metric, _, number = text.rpartition("=")
    try:
        return metric.strip() or default_metric, float(number)
    except ValueError:
        raise ValueError(f"--target must be a number or METRIC=NUMBER, as in 'train loss=0.3'; got {text!r}.") from None
