"""How often the results of a study were seen: statistics correct for that."""

import dataclasses
import re

from fedloom.evidence.statistics import looks
from fedloom.experiments.files import only_one
from fedloom.experiments.study import Study
from fedloom.experiments.study_file import read_study_file, write_study_file


def looked(study: Study) -> Study:
    """The study, with a note of the number of seeds at which its results are seen: statistics correct for that."""
    if is_seen(study):
        return study
    seen = {"looks": [*study.about.get("looks", ()), len(seeds_of(study))], "looked at": _rounds(study)}
    if study.directory is not None:
        with only_one(study.directory):  # and nothing else is changed: the study may have grown meanwhile
            plain = read_study_file(study.directory)
            write_study_file(study.directory, {**plain, "about": {**plain["about"], **seen}})
    return dataclasses.replace(study, about={**study.about, **seen})


def is_seen(study: Study) -> bool:
    """Whether the results of the study as it is have been counted as a look."""
    if study.about.get("kind") != "comparison":
        return True
    same = study.about.get("looked at", _rounds(study)) == _rounds(study)
    return same and study.about.get("looks", ())[-1:] == [len(seeds_of(study))]


def _rounds(study: Study) -> int:
    return max(r.experiment.rounds for r in study.results)


def planned_looks(text: str) -> list[int]:
    """The numbers of seeds at which "3..10" looks at the results."""
    found = re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", text)
    if found is None or not 2 <= int(found[1]) < int(found[2]):
        raise ValueError(f"seeds must go from at least 2 to a larger number, such as 3..10; got {text!r}.")
    return looks(int(found[1]), int(found[2]))


def seeds_of(study: Study) -> list[int]:
    """The seeds of a study."""
    return list(dict.fromkeys(r.experiment.seed for r in study.results))
