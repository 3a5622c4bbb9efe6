"""What a recorded figure depends on, as a few letters: what was run, and how the figure follows from that."""

import dataclasses
import hashlib
from functools import partial

from fedloom.experiments.definition import Experiment
from fedloom.reproductions.reproduction import Line, Reproduction


def settings(e: Experiment) -> str:
    """What figures depend on: a run that ends at its targets has those of the whole one."""
    return dataclasses.replace(e, until=None).to_toml()


# Lines of settings that are newer than some records: what the field is without which these were run.
NEWER = ('term = "proximal"\n', 'divisor = "none"\n')


def digests(reproduction: Reproduction, rounds: int | None = None) -> dict[tuple[str, str], str]:
    """What is run and computed for each figure, as a few letters: a record of another is not taken for one of these."""
    config = {name: settings(e) for name, e in reproduction.runs((0,), rounds)}
    for line in NEWER:
        config = {name: text.replace(line, "") for name, text in config.items()}
    texts = {line: "".join(config[run] for run in line.runs) + _computed(line) for line in reproduction.lines}
    return {(line.setting, line.method): hashlib.sha256(text.encode()).hexdigest()[:12] for line, text in texts.items()}


def _computed(line: Line) -> str:
    """How its figure follows from those of its runs, if it is not the best of them."""
    if line.combined is None:
        return ""
    given = line.combined.keywords if isinstance(line.combined, partial) else {}
    name = getattr(line.combined, "func", line.combined).__name__
    return f"{name} {sorted(given.items())}"
