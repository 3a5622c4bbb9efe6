"""A progress bar for notebooks, which needs nothing but the notebook."""

import html
import sys
import time
from collections.abc import Sequence
from typing import Any

from fedloom.experiments.definition import Experiment
from fedloom.experiments.progress import Pace, damage, duration, values
from fedloom.experiments.result import Result, Row

OFTEN = 0.2  # seconds between two drawings


def in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, which shows HTML."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class Notebook:
    """One bar over the rounds of all runs, with a line about the run at work; drawn anew in the same place."""

    def __init__(self, display: Any = None):
        self.shown = display  # what IPython's display returns with display_id=True; made at the first drawing
        self.drawn, self.said = 0.0, ""

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None:
        """Runs are about to start."""
        self.pace, self.runs, self.ended = Pace(runs), len(runs), 0
        self._draw("compiling", now=True)

    def row(self, name: str, experiment: Experiment, row: Row) -> None:
        """A run has a new row in its log."""
        self.pace.row(name, experiment, row)
        of = f"{name}, seed {experiment.seed}: round {row['round']} of {experiment.rounds}, {values(row)}"
        self._draw(", ".join(w for w in (of, self.pace.left()) if w))

    def end(self, result: Result) -> None:
        """A run has ended."""
        self.ended += 1
        self.pace.end(result)
        if result.damaged is not None:
            self.say(damage(result))

    def say(self, words: str) -> None:
        """A sentence about the study as a whole."""
        self.said = words
        self._draw(words, now=True)

    def close(self) -> None:
        """No more rows will come."""
        spent = duration(time.monotonic() - self.pace.start)
        self._draw(self.said or f"{self.ended} of {self.runs} runs ended, {spent}", now=True)

    def _draw(self, words: str, now: bool = False) -> None:
        if not now and time.monotonic() - self.drawn < OFTEN:
            return
        from IPython.display import HTML, display  # where notebooks are, it is

        done, total = sum(self.pace.done.values()), self.pace.total
        bar = HTML(
            f'<progress value="{done}" max="{total}" style="width:16em"></progress> '
            f"{self.ended}/{self.runs} runs. {html.escape(words)}"
        )
        if self.shown is None:
            self.shown = display(bar, display_id=True)
        else:
            self.shown.update(bar)
        self.drawn = time.monotonic()
