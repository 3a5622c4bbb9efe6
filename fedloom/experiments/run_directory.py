"""The directory of a run: how it is made, and how it is read.

It has
* config.toml: the experiment, with every field;
* about.json: the federation in figures, files of one's own with their digests, versions, machine;
* log.jsonl: a row for each evaluated round; equal experiments have equal logs, byte for byte;
* checkpoint.npz: the last checkpoint; rows that were logged after it are cut off and written again;
* earlier.npz: only of a run that ends between two evaluations: the checkpoint at the first of them, from which a longer
  run can go on;
* seconds.json: the time spent, which is not part of the log.
"""

import itertools
import json
import os
import pathlib
import shlex
from typing import Any

from fedloom.experiments import checkpoint
from fedloom.experiments.checkpoint import CHECKPOINT as CHECKPOINT
from fedloom.experiments.definition import Experiment, method_name
from fedloom.experiments.files import DRAFT, Damaged, only_one, reading, write_whole
from fedloom.experiments.result import Result, Row
from fedloom.experiments.settings import from_toml
from fedloom.experiments.until import has_ended
from fedloom.tasks.evaluated import TEST_BLOCKS

CONFIG, ABOUT, LOG, SECONDS = "config.toml", "about.json", "log.jsonl", "seconds.json"
EARLIER = "earlier.npz"
# The columns of a log that are not numbers.
KINDS: dict[str, type] = {"round": int, "diverged": str, "staleness": list, TEST_BLOCKS: dict}


def create_run(experiment: Experiment, directory: str | os.PathLike[str]) -> None:
    """Make the directory of a run that has not started."""
    path = pathlib.Path(directory)
    text = experiment.to_toml().encode()
    if (path / CONFIG).exists():
        there = shlex.quote(str(path))
        raise ValueError(
            f"{path} already has a run; run `fedloom resume {there}` to continue, `fedloom extend {there} --rounds N` "
            "to give it more rounds, or choose another directory."
        )
    new_directory(path)
    write_whole(path / CONFIG, text)


def new_directory(path: pathlib.Path) -> None:
    """Make a directory, or accept an empty one: nothing that exists is ever overwritten."""
    try:
        if path.exists() and (not path.is_dir() or any(p.suffix != DRAFT for p in path.iterdir())):
            what = "is not empty" if path.is_dir() else "is not a directory"
            raise ValueError(f"{path} already exists and {what}; choose another directory.")
        path.mkdir(parents=True, exist_ok=True)
        (path / f"try{DRAFT}").touch()
        (path / f"try{DRAFT}").unlink()
    except OSError as error:
        raise ValueError(f"{path} cannot be written to: {error.strerror}. Choose another directory.") from error


def read(directory: str | os.PathLike[str], name: str = "", experiment: Experiment | None = None) -> Result:
    """The result of a run, finished or not, from its directory."""
    path = pathlib.Path(directory)
    experiment = experiment or read_config(path)
    rows = read_rows(path)
    if rows and not (path / ABOUT).exists():
        raise Damaged(f"{path / ABOUT} is missing; the run cannot be read without it.")
    facts = _read_about(path) if rows else {"metrics": {}}
    if missing := [name for row in rows if "diverged" not in row for name in facts["metrics"] if name not in row]:
        raise Damaged(f"{path / LOG} is damaged: a row has no {missing[0]}.")
    saved = path / CHECKPOINT
    model = None
    if saved.exists():
        checkpoint.check_config(saved, experiment.to_toml())
        check_log(path, checkpoint.read_meta(saved)["log bytes"])
        model = checkpoint.read_model(saved) if not (rows and "diverged" in rows[-1]) else None
    return Result(name or method_name(experiment.algorithm), experiment, rows, facts, read_seconds(path), path, model)


def is_over(path: pathlib.Path, experiment: Experiment) -> bool:
    """Has the run of a directory reached its last round, or what it was to run until, or diverged?"""
    rows = read_rows(path)
    if rows and "diverged" in rows[-1]:
        return True
    if not (path / CHECKPOINT).exists():
        return False
    checkpoint.check_config(path / CHECKPOINT, experiment.to_toml())
    if not rows or checkpoint.read_meta(path / CHECKPOINT)["round"] != rows[-1]["round"]:
        return False
    return has_ended(rows, experiment.rounds, experiment.until)


def read_config(path: pathlib.Path) -> Experiment:
    """The experiment of a run's directory."""
    if not path.is_dir():
        raise ValueError(f"There is no directory {path}.")
    if not (path / CONFIG).is_file():
        raise ValueError(f"{path} is not the directory of a run: it has no {CONFIG}.")
    try:
        with reading(path / CONFIG):
            text = (path / CONFIG).read_text("utf-8-sig")
        return from_toml(text, str(path / CONFIG), recorded=True)
    except UnicodeDecodeError as error:
        raise Damaged(f"{path / CONFIG} is damaged: {error}.") from error
    except ValueError as error:
        raise Damaged(str(error)) from error


def lengthen(path: pathlib.Path, experiment: Experiment) -> None:
    """Give a run more rounds: the experiment is its own but for `rounds`.

    The run will go on from the last checkpoint that the longer run passes through too. The last row of a run that ends
    between two evaluations is not in the longer run's log; nor is a divergence that was noticed there.
    """
    with only_one(path):
        old = read_config(path)
        end = whole_rounds(old)
        saved, earlier, rows = path / CHECKPOINT, path / EARLIER, read_rows(path)
        if saved.exists():
            check_log(path, checkpoint.read_meta(saved)["log bytes"])
        if saved.exists() and checkpoint.read_meta(saved)["round"] > end:
            if earlier.exists() and checkpoint.read_meta(earlier)["round"] == end:
                os.replace(earlier, saved)
            else:
                saved.unlink()
        elif rows and "diverged" in rows[-1] and rows[-1]["round"] > end:
            lines = (path / LOG).read_bytes().split(b"\n")[:-1]
            write_whole(path / LOG, b"".join(line + b"\n" for line in lines[:-1]))
        write_whole(path / CONFIG, experiment.to_toml().encode())


def check_log(path: pathlib.Path, length: int) -> None:
    """Raise a sentence if the log lacks what the checkpoint knows of."""
    if length and (not (path / LOG).exists() or (path / LOG).stat().st_size < length):
        raise Damaged(f"{path / LOG} has fewer rows than its checkpoint recorded.")


def whole_rounds(experiment: Experiment) -> int:
    """The last round that is evaluated however many rounds there are."""
    return experiment.rounds // experiment.evaluate_every * experiment.evaluate_every


def read_rows(path: pathlib.Path) -> list[Row]:
    """The rows of the log. A last line without its end was being written when the run was killed."""
    if not (path / LOG).exists():
        return []
    try:
        with reading(path / LOG):
            rows = [json.loads(line) for line in (path / LOG).read_bytes().split(b"\n")[:-1]]
    except Damaged:
        raise
    except ValueError as error:
        raise Damaged(f"{path / LOG} is damaged: {error}.") from error
    for row in rows:
        if not isinstance(row, dict) or "round" not in row:
            raise Damaged(f"{path / LOG} is damaged: a line is not a row of a log.")
        if wrong := [name for name, value in row.items() if not isinstance(value, KINDS.get(name, int | float))]:
            raise Damaged(f"{path / LOG} is damaged: {wrong[0]} cannot be {row[wrong[0]]!r:.100}.")
    if any(one["round"] >= next_one["round"] for one, next_one in itertools.pairwise(rows)):
        raise Damaged(f"{path / LOG} is damaged: its rounds are not in order.")
    return rows


def read_seconds(path: pathlib.Path) -> float:
    """The time spent on the run until its last checkpoint; 0 if it cannot be read, because nothing depends on it."""
    try:
        return float(read_json(path / SECONDS, "seconds")["seconds"])
    except (TypeError, ValueError):
        return 0.0


def _read_about(path: pathlib.Path) -> dict[str, Any]:
    facts = read_json(path / ABOUT, "metrics", "model bytes", "clients", "versions")
    tables, numbers = (facts["metrics"], facts["versions"]), (facts["model bytes"], facts["clients"])
    if not all(isinstance(x, dict) for x in tables) or not all(isinstance(x, int) for x in numbers):
        raise Damaged(f"{path / ABOUT} is damaged: it does not describe a run.")
    return facts


def read_json(path: pathlib.Path, *keys: str) -> dict[str, Any]:
    """The table of a JSON file, which must have these keys."""
    try:
        with reading(path):
            table = json.loads(path.read_bytes())
    except Damaged:
        raise
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}.") from error
    if not isinstance(table, dict) or not all(key in table for key in keys):
        raise Damaged(f"{path} is damaged: it is not a table with {', '.join(keys) or 'keys'}.")
    return table
