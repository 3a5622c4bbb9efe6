"""Progress of `tune`: a line for every batch of points; only the runs of the comparison are shown one by one."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from fedloom.cli.interruption import Interruptible
from fedloom.experiments.definition import Experiment
from fedloom.experiments.study import Progress
from fedloom.experiments.trials import FIRST_SEED


class Searching(Interruptible):
    """A progress reporter that does not show the runs of a search."""

    def __init__(self, inner: Progress):
        super().__init__(None)
        self.later = inner

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None:
        self.inner = None if runs[0][1].seed >= FIRST_SEED else self.later
        super().begin(runs)


def reporters(given: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """The arguments of `tune` that report its progress."""
    quiet = given.quiet or given.json
    return {
        "progress": Searching(progress),
        "say": None if quiet else lambda line: print(line, file=sys.stderr, flush=True),
    }
