"""Progress of `tune`: a line for every batch of points; only the runs of the comparison are shown one by one."""

from collections.abc import Sequence

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

    def say(self, words: str) -> None:
        self.later.say(words)
