"""The directory of a run: how it is made, and how it is read.

It has
* config.toml: the experiment, with every field;
* about.json: the federation in figures, versions, machine;
* log.jsonl: a row for each evaluated round; equal experiments have equal logs, byte for byte;
* checkpoint.npz: the last checkpoint; rows that were logged after it are cut off and written again;
* seconds.json: the time spent, which is not part of the log.
"""

import json
import os
import pathlib
from typing import Any

from fedloom.experiments import checkpoint
from fedloom.experiments.definition import Experiment, method_name
from fedloom.experiments.files import DRAFT, write_whole
from fedloom.experiments.result import Result, Row
from fedloom.experiments.settings import from_toml

CONFIG, ABOUT, LOG, CHECKPOINT, SECONDS = "config.toml", "about.json", "log.jsonl", "checkpoint.npz", "seconds.json"


def create_run(experiment: Experiment, directory: str | os.PathLike[str]) -> None:
    """Make the directory of a run that has not started."""
    path = pathlib.Path(directory)
    text = experiment.to_toml().encode()
    if (path / CONFIG).exists():
        raise ValueError(
            f"{path} already has a run; run `fedloom resume {path}` to continue, or choose another directory."
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
        raise ValueError(f"{path / ABOUT} is missing; the run cannot be read without it.")
    facts = read_json(path / ABOUT) if rows else {"metrics": {}}
    saved = path / CHECKPOINT
    model = None
    if saved.exists():
        checkpoint.check_config(saved, experiment.to_toml())
        model = checkpoint.read_model(saved) if not (rows and "diverged" in rows[-1]) else None
    return Result(name or method_name(experiment.algorithm), experiment, rows, facts, read_seconds(path), path, model)


def is_over(path: pathlib.Path, experiment: Experiment) -> bool:
    """Has the run of a directory reached its last round, or diverged?"""
    rows = read_rows(path)
    if rows and "diverged" in rows[-1]:
        return True
    if not (path / CHECKPOINT).exists():
        return False
    checkpoint.check_config(path / CHECKPOINT, experiment.to_toml())
    done = checkpoint.read_meta(path / CHECKPOINT)["round"] == experiment.rounds
    return done and bool(rows) and rows[-1]["round"] == experiment.rounds


def read_config(path: pathlib.Path) -> Experiment:
    """The experiment of a run's directory."""
    if not path.is_dir():
        raise ValueError(f"There is no directory {path}.")
    if not (path / CONFIG).is_file():
        raise ValueError(f"{path} is not the directory of a run: it has no {CONFIG}.")
    return from_toml((path / CONFIG).read_text(), str(path / CONFIG))


def read_rows(path: pathlib.Path) -> list[Row]:
    """The rows of the log. A last line without its end was being written when the run was killed."""
    if not (path / LOG).exists():
        return []
    try:
        return [json.loads(line) for line in (path / LOG).read_bytes().split(b"\n")[:-1]]
    except ValueError as error:
        raise ValueError(f"{path / LOG} is damaged: {error}.") from error


def read_seconds(path: pathlib.Path) -> float:
    """The time spent on the run until its last checkpoint."""
    return float(read_json(path / SECONDS)["seconds"]) if (path / SECONDS).exists() else 0.0


def read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
