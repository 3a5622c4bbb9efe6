"""Runs wherever they are: everything below some directories, as one study."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from fedloom.experiments.definition import method_name
from fedloom.experiments.result import Result
from fedloom.experiments.run_directory import CONFIG, read, read_config
from fedloom.experiments.study import Study, damaged_result, is_set_aside, read_study
from fedloom.experiments.study_file import STUDY


def find_runs(directories: Sequence[str | os.PathLike[str]]) -> Study:
    """All runs below the given directories, as one study.

    What cannot be read at all is left out; `about["skipped"]` says why.
    """
    paths = [pathlib.Path(d) for d in directories]
    if len(paths) == 1 and (paths[0] / STUDY).exists():
        return read_study(paths[0])
    results: list[Result] = []
    targets: list[tuple[str, float] | None] = []
    looks: list[int] = []
    skipped: list[str] = []  # why, for each study and run of which nothing is known
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"There is no directory {path}.")
        studies: list[Study] = []
        lost: list[pathlib.Path] = []  # directories of studies that cannot be read
        for place in (file.parent for file in sorted(path.rglob(STUDY))):
            try:
                studies.append(read_study(place))
            except ValueError as error:
                skipped.append(str(error))
                lost.append(place)
        inside = {r.directory for study in studies for r in study.results}
        alone: list[Result] = []
        for place in (file.parent for file in sorted(path.rglob(CONFIG))):
            hidden = any(part.startswith(".") for part in place.relative_to(path).parts)
            if place in inside or hidden or is_set_aside(place) or any(p in place.parents for p in lost):
                continue
            try:
                alone.append(_read(place))
            except ValueError as error:
                skipped.append(str(error))
        if not studies and not alone and not skipped:
            raise ValueError(f"There is no run in {path}: no {CONFIG} in it or below it.")
        results += [r for study in studies for r in study.results] + alone
        targets += [study.target for study in studies]
        looks = max([looks, *(study.about.get("looks", []) for study in studies)], key=len)
        targets += [(t[0], t[1]) if (t := r.about.get("target")) else None for r in alone]
    target = targets[0] if targets and all(t == targets[0] for t in targets) else None
    if not results:
        raise ValueError(skipped[0])
    about: dict[str, Any] = {"looks": looks} if looks else {}  # whoever looked at a part has looked
    about |= {"skipped": skipped} if skipped else {}
    return Study(", ".join(str(p) for p in paths), _told_apart(results), target, about)


def _read(path: pathlib.Path) -> Result:
    """A run that is no part of a study."""
    try:
        return read(path)
    except ValueError as error:
        experiment = read_config(path)  # without which nothing is known
        return damaged_result(method_name(experiment.algorithm), experiment, path, str(error))


def _told_apart(results: Sequence[Result]) -> list[Result]:
    """Results with the same name must be seeds of one experiment; otherwise the directory becomes part of the name."""
    kinds: dict[tuple[str, str], dict[str, set[int]]] = {}
    mixed = set()
    for r in results:
        group = (r.experiment.to_plain()["task"], r.name)
        config = dataclasses.replace(r.experiment, seed=0).to_toml()
        seeds = kinds.setdefault(group, {}).setdefault(config, set())
        if len(kinds[group]) > 1 or r.experiment.seed in seeds:
            mixed.add(group)
        seeds.add(r.experiment.seed)

    def named(r: Result) -> Result:
        if (r.experiment.to_plain()["task"], r.name) not in mixed:
            return r
        place = r.directory.parent if r.directory and r.directory.name.startswith("seed-") else r.directory
        return dataclasses.replace(r, name=f"{r.name} ({place})")

    return [named(r) for r in results]
