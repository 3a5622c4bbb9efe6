"""The files that an experiment is made of: a run remembers their digests, and is not resumed with other ones."""

from collections.abc import Iterable, Mapping

from fedloom.experiments.definition import NAMED, PARTS, Experiment
from fedloom.experiments.own_files import digest, path_of, references_in
from fedloom.experiments.plain import to_plain
from fedloom.experiments.table_files import is_table, table_digest


def files_of(experiment: Experiment) -> list[str]:
    """The absolute paths of the files that the experiment names. What these import is not among them."""
    found = list(references_in([getattr(experiment, name) for name in ("task", *NAMED)]))
    for name, registry in PARTS.items():
        if (value := getattr(experiment, name)) is not None:
            try:
                found += references_in(to_plain(value, registry))
            except ValueError:  # it cannot be written, so that the run is in memory only
                continue
    return list(dict.fromkeys([*map(path_of, found), *([str(experiment.task)] if is_table(experiment.task) else [])]))


def digests(experiments: Iterable[Experiment]) -> dict[str, str]:
    """The SHA-256 of each file that the experiments are made of, as they were read."""
    paths = dict.fromkeys(path for experiment in experiments for path in files_of(experiment))
    return {path: found for path in paths if (found := _digest(path)) is not None}


def _digest(path: str) -> str | None:
    return table_digest(path) if is_table(path) else digest(path)


def refuse_changed(recorded: Mapping[str, str], paths: Iterable[str]) -> None:
    """Raise a ValueError if one of the files is not as it was recorded."""
    for path in paths:
        if path in recorded and (now := _digest(path)) != recorded[path]:
            raise ValueError(
                f"{path} {'is missing' if now is None else 'has changed since the run began'}; put the old file back, "
                "or run the experiment again in another directory."
            )
