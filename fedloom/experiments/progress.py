"""Progress reporters: for a person at a terminal, for a log file, and for programs."""

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from fedloom.experiments.definition import Experiment
from fedloom.experiments.result import NOT_METRICS, Result, Row
from fedloom.tasks.evaluated import TEST_BLOCKS

if TYPE_CHECKING:
    from rich.console import Console

SOON = 20.0  # seconds of the first run after which the length of the study is said, even if that run goes on
EVERY = 10.0  # seconds between the plain lines of one run
EARLY = 0.05  # the share of all rounds before which the time left is not estimated


class Pace:
    """How much of a study is done, in rounds of all runs, and how fast. Runs may be side by side."""

    def __init__(self, runs: Sequence[tuple[str, Experiment]]):
        self.start = time.monotonic()
        self.total, self.runs, self.told = sum(e.rounds for _, e in runs), len(runs), False
        self.done: dict[tuple[str, int], int] = {}  # rounds of each run
        self.first: dict[
            tuple[str, int], tuple[int, float]
        ] = {}  # the first round of a run in this process, and its time

    def row(self, name: str, experiment: Experiment, row: Row) -> None:
        run = (name, experiment.seed)
        self.done[run] = row["round"]
        self.first.setdefault(run, (row["round"], time.monotonic()))

    def end(self, result: Result) -> None:
        self.done[result.name, result.experiment.seed] = result.experiment.rounds  # even if it diverged earlier

    def soon(self, name: str, experiment: Experiment) -> str:
        """The same as `whole`, if the first run takes so long that it is not waited for."""
        (first, since), done = self.first[name, experiment.seed], self.done[name, experiment.seed]
        spent = time.monotonic() - since
        if self.told or self.runs < 2 or spent < SOON or done <= first:
            return ""
        self.told = True
        return how_long(self.runs, spent * self.total / (done - first))

    def whole(self, result: Result) -> str:
        """How many runs there are and about how long they take, once the first that this process ran has ended."""
        run = result.name, result.experiment.seed
        if self.told or self.runs < 2 or run not in self.first or self.done[run] <= self.first[run][0]:
            return ""
        self.told, ran = True, self.done[run] - self.first[run][0]
        left = self.total - sum(self.done.values())
        return how_long(self.runs, (time.monotonic() - self.start) * (left + ran) / ran)

    def left(self) -> str:
        """The time left, once enough is done for an estimate that compilation does not spoil."""
        left = self.total - sum(self.done.values())
        done = sum(self.done[run] - first for run, (first, _) in self.first.items())  # by this process
        if done < EARLY * (done + left):
            return ""
        return duration((time.monotonic() - self.start) * left / done) + " left" if done else ""

    def speed(self, name: str, experiment: Experiment) -> float:
        """Rounds per second of one run."""
        run = (name, experiment.seed)
        first, since = self.first[run]
        spent = time.monotonic() - since
        return (self.done[run] - first) / spent if spent > 0 else 0.0


def how_long(runs: int, seconds: float) -> str:
    """33 runs, about 40 s."""
    return f"{runs} run{'s' * (runs != 1)}, about {duration(seconds)}"


def pace_words(speed: float) -> str:
    """12.3 rounds/s, or 4.5 s/round if that is slow; nothing while it is not known."""
    return f"{speed:.1f} rounds/s" if speed >= 1 else f"{1 / speed:.1f} s/round" if speed > 0 else ""


def duration(seconds: float) -> str:
    """12 s, 3:05, 2:03:05."""
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{s:02}" if hours else f"{minutes}:{s:02}" if minutes else f"{s} s"


def megabytes(row: Row) -> str:
    return f"{(row['bytes down'] + row['bytes up']) / 1e6:.1f} MB"


def values(row: Row) -> str:
    """The metrics of a row as text."""
    if "diverged" in row:
        return "diverged: " + row["diverged"]
    found = [f"{name} {v:.4g}" for name, v in row.items() if name not in NOT_METRICS]
    if "simulated seconds" in row:
        found.append(f"{row['simulated seconds']:.4g} simulated seconds")
    return ", ".join(found)


def _plan(result: Result) -> str:
    """The layout of clients on the machine, if it is known."""
    plan = result.about.get("machine", {}).get("plan")
    return f" ({plan})" if plan else ""


def damage(result: Result) -> str:
    return f"{result.name}, seed {result.experiment.seed}, is damaged: {result.damaged}"


def brief_values(row: Row) -> str:
    """The training loss and one more metric, which fit beside a bar."""
    names = [n for n in row if n not in NOT_METRICS]
    return " ".join(f"{n.split()[-1]} {row[n]:.3f}" for n in names[:2])


class Lines:
    """Plain lines: one when a run ends, and one from time to time before that."""

    def __init__(self, file: TextIO | None = None):
        self.file = sys.stderr if file is None else file
        self.said = 0.0

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None:
        """Runs are about to start."""
        self.pace, self.runs, self.ended = Pace(runs), len(runs), 0
        self.said = time.monotonic()

    def row(self, name: str, experiment: Experiment, row: Row) -> None:
        """A run has a new row in its log."""
        self.pace.row(name, experiment, row)
        if words := self.pace.soon(name, experiment):
            self._say(words)
        if "diverged" not in row and time.monotonic() - self.said >= EVERY:
            speed = self.pace.speed(name, experiment)
            self._say(
                f"{name}, seed {experiment.seed}: round {row['round']} of {experiment.rounds}, {values(row)}, "
                + ", ".join(w for w in (megabytes(row), pace_words(speed), self.pace.left()) if w)
            )

    def end(self, result: Result) -> None:
        """A run has ended."""
        self.ended += 1
        self.pace.end(result)
        if result.damaged is not None:
            self._say(f"[{self.ended}/{self.runs}] {damage(result)}")
            return
        if (result.name, result.experiment.seed) not in self.pace.first:
            return  # it had ended before
        row = result.rows[-1]
        self._say(
            f"[{self.ended}/{self.runs}] {result.name}, seed {result.experiment.seed}: {row['round']} rounds, "
            f"{values(row)}, {duration(result.seconds)}{_plan(result)}"
        )
        if words := self.pace.whole(result):
            self._say(words)

    def say(self, words: str) -> None:
        """A sentence about the study as a whole."""
        self._say(words)

    def close(self) -> None:
        """No more rows will come."""
        pass

    def _say(self, line: str) -> None:
        print(line, file=self.file, flush=True)
        self.said = time.monotonic()


class Live:
    """Two progress bars, for the study and for the run, and a line for every method that is done."""

    def __init__(self, console: "Console | None" = None):
        from rich.console import Console  # imported late: only a terminal needs it
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self.console = console or Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=12)),
            *([BarColumn(bar_width=16)] if self.console.width >= 80 else []),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[words]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=self.console,
            transient=True,
        )

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None:
        """Runs are about to start."""
        self.pace = Pace(runs)
        self.names = [name for name, _ in runs]
        self.results: list[Result] = []
        for task in self.bars.task_ids:  # of the runs before, in a study that grew
            self.bars.remove_task(task)
        self.study = self.bars.add_task("runs", total=len(runs), words="")
        self.run = self.bars.add_task("", total=1, words="compiling")
        self.bars.start()

    def row(self, name: str, experiment: Experiment, row: Row) -> None:
        """A run has a new row in its log."""
        self.pace.row(name, experiment, row)
        if said := self.pace.soon(name, experiment):
            self.say(said)
        speed = self.pace.speed(name, experiment)
        words = values(row)
        if "diverged" not in row:
            words = f"{brief_values(row)} {pace_words(speed) or 'compiling'} {megabytes(row)}"
        self.bars.update(
            self.run,
            description=f"{name} {experiment.seed}",
            total=experiment.rounds,
            completed=row["round"],
            words=words,
        )
        self.bars.update(self.study, words=self.pace.left())

    def end(self, result: Result) -> None:
        """A run has ended."""
        self.results.append(result)
        self.pace.end(result)
        self.bars.update(self.study, completed=len(self.results))
        if result.damaged is not None:
            self.say(damage(result))
            return
        if words := self.pace.whole(result):
            self.say(words)
        same = [r for r in self.results if r.name == result.name]
        if len(same) == self.names.count(result.name):
            seconds = duration(sum(r.seconds for r in same))
            seeds = f"{len(same)} seeds" if len(same) > 1 else f"seed {result.experiment.seed}"
            self.say(f"{result.name}: {seeds}, {seconds}{_plan(result)}; {values(result.rows[-1])}")

    def say(self, words: str) -> None:
        """A sentence about the study as a whole."""
        self.console.print(words, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """No more rows will come."""
        self.bars.stop()


class Json:
    """One line of JSON for every row, on standard output."""

    def begin(self, runs: Sequence[tuple[str, Experiment]]) -> None:
        pass

    def row(self, name: str, experiment: Experiment, row: Row) -> None:
        shown = {column: value for column, value in row.items() if column != TEST_BLOCKS}
        self._say({"name": name, "seed": experiment.seed, **shown})

    def end(self, result: Result) -> None:
        damaged = {} if result.damaged is None else {"damaged": result.damaged}
        self._say({"name": result.name, "seed": result.experiment.seed, "seconds": round(result.seconds, 3), **damaged})

    def say(self, words: str) -> None:
        self._say({"note": words})

    def close(self) -> None:
        pass

    def _say(self, value: dict[str, Any]) -> None:
        print(json.dumps(value), flush=True)
