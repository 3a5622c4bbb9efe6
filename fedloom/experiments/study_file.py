"""The file study.json: what a study consists of. It is replaced as a whole, before what it lists is run.

It has the title, the target, the terms, what the study's kind needs later, for each run its name, its directory
inside the study and its experiment, and the digests of the files that experiments name.
"""

import contextlib
import hashlib
import json
import pathlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedloom.experiments.about import with_commit
from fedloom.experiments.definition import Experiment
from fedloom.experiments.files import Damaged, write_whole
from fedloom.experiments.run_directory import is_over, read_json
from fedloom.experiments.settings import from_toml
from fedloom.experiments.used_files import files_of, refuse_changed

STUDY = "study.json"

Runs = Sequence[tuple[str, Experiment]]


def read_study_file(path: pathlib.Path) -> dict[str, Any]:
    """The table of a study's directory."""
    if not path.is_dir():
        raise ValueError(f"There is no directory {path}.")
    if not (path / STUDY).is_file():
        raise ValueError(f"{path} is not the directory of a study: it has no {STUDY}.")
    table = read_json(path / STUDY, "title", "target", "about", "runs")
    if words := _wrong(table):
        raise Damaged(f"{path / STUDY} is damaged: {words}.")
    return table


def _wrong(table: Mapping[str, Any]) -> str:
    """What is wrong with the form of the table, if anything is."""
    runs, target = table["runs"], table["target"]
    if not isinstance(runs, list) or not runs:
        return "runs must be a list of runs"
    for run in runs:
        if not isinstance(run, dict) or not all(isinstance(run.get(key), str) for key in ("name", "run", "config")):
            return f"a run must have name, run and config, got {run!r:.100}"
    if not all(isinstance(part, dict) for part in (table["about"], table.get("terms", {}), table.get("files", {}))):
        return "about, terms and files must be tables"
    if target is not None and not (isinstance(target, list) and list(map(type, target)) in ([str, float], [str, int])):
        return f"target must be a metric and a number, got {target!r:.100}"
    return ""


def write_study_file(path: pathlib.Path, plain: Mapping[str, Any]) -> None:
    """Replace the table of a study's directory in one step."""
    write_whole(path / STUDY, json.dumps(plain, indent=1).encode())


def listed(runs: Runs, places: Sequence[str]) -> list[dict[str, str]]:
    """The runs as the file has them."""
    return [
        {"name": name, "run": place, "config": experiment.to_toml()}
        for place, (name, experiment) in zip(places, runs, strict=True)
    ]


def listed_experiment(path: pathlib.Path, run: Mapping[str, str]) -> Experiment:
    """The experiment of a run as the file has it."""
    return from_toml(run["config"], str(path / STUDY), recorded=True)


def check_study_files(plain: Mapping[str, Any], runs: Iterable[tuple[str, Experiment, pathlib.Path]]) -> None:
    """Raise a ValueError if a file that some run still needs has changed since the study began."""
    for experiment in _left(runs):
        refuse_changed(plain.get("files", {}), files_of(experiment))


def at_this_commit(
    path: pathlib.Path, plain: dict[str, Any], runs: Iterable[tuple[str, Experiment, pathlib.Path]]
) -> dict[str, Any]:
    """The table, with the commit that runs what is left, if it is another than before."""
    about = with_commit(plain["about"])
    if about != plain["about"] and any(True for _ in _left(runs)):
        plain = plain | {"about": about}
        write_study_file(path, plain)
    return plain


def _left(runs: Iterable[tuple[str, Experiment, pathlib.Path]]) -> Iterator[Experiment]:
    """What is not over; damaged runs, for which the others do not have to wait, are left out."""
    for _, experiment, directory in runs:
        with contextlib.suppress(Damaged):
            if not is_over(directory, experiment):
                yield experiment


def places(runs: Runs, known: Mapping[str, str] | None = None) -> list[str]:
    """The directory of each run inside the study: its name, and below it the seed.

    `known` are the directories of names that have one already.
    """
    if len({(name, e.seed) for name, e in runs}) < len(runs):
        names = [(name, e.seed) for name, e in runs]
        name, seed = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"Two experiments have the name {name!r} and the seed {seed}; give them different names.")
    known = known or {}
    words = {name: directory_name(name) for name, _ in runs if name not in known}
    if len({*words.values(), *known.values()}) < len(words) + len(known):  # distinct names that would share a directory
        words = {name: f"{word}-{_short_hash(name)}" for name, word in words.items()}
    words |= known
    return [f"{words[name]}/seed-{e.seed}" for name, e in runs]


def directory_name(name: str) -> str:
    """The name of a directory: without anything that leads elsewhere, and not too long."""
    word = re.sub(r"[^\w.=,+-]+", "-", name).strip("-.") or "run"
    return word if len(word.encode()) <= 100 else f"{word[:30]}-{_short_hash(name)}"


def _short_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def refuse_study(path: pathlib.Path) -> None:
    """Raise a ValueError if there is a study already."""
    if (path / STUDY).exists():
        there = shlex.quote(str(path))
        raise ValueError(
            f"{path} already has a study; run `fedloom resume {there}` to continue, `fedloom extend {there}` to add "
            "seeds, methods or rounds (only seeds to a reproduction), or choose another directory."
        )
