"""The runs of a study spread over a cluster: one at a time in each process, with the same bits as here.

Processes write into the runs' directories, which all nodes must share; this one only reads what they log.
"""

import pathlib
from collections.abc import Sequence

from fedloom.engines.choose_plan import LARGE_STEP, step_operations
from fedloom.experiments.definition import Experiment
from fedloom.experiments.result import Result, Row
from fedloom.experiments.run_directory import LOG, is_over, read, read_rows
from fedloom.experiments.side_by_side import batches, run_batch
from fedloom.experiments.study import OpenSink, PlacedRun, Progress, Sink, damaged_result, run_one


def spread_alone(
    runs: Sequence[PlacedRun], progress: Progress | None = None, sinks: Sequence[OpenSink] = ()
) -> list[Result]:
    """The results of all runs, in order, each computed alone."""
    return _spread(runs, [([i], 1) for i in range(len(runs))], progress, sinks)


def spread_batches(
    runs: Sequence[PlacedRun], progress: Progress | None = None, sinks: Sequence[OpenSink] = ()
) -> list[Result]:
    """The results of all runs, in order; those that would share a program here share one there."""
    return _spread(runs, list(batches(runs)), progress, sinks)


def in_shards(experiments: Sequence[Experiment]) -> bool:
    """Is it better to spread the clients of each run than whole runs? With a large model, and fewer runs than CPUs."""
    from fedloom.cluster.connect import cluster_cpus

    return len(experiments) < cluster_cpus()[0] and step_operations(experiments[0].check().run) >= LARGE_STEP


def _unit(runs: Sequence[PlacedRun], room: int) -> None:
    """Some runs, in a process of the cluster. Their directories say what came out."""
    if room == 1:
        run_one(runs[0])
    else:
        run_batch(runs, room)


def _spread(
    runs: Sequence[PlacedRun],
    units: Sequence[tuple[list[int], int]],
    progress: Progress | None,
    sinks: Sequence[OpenSink],
) -> list[Result]:
    from fedloom.cluster.runners import run_calls  # imported late: Ray is an extra

    if any(run.directory is None for run in runs):
        raise ValueError("Runs on a cluster need a directory, which all nodes share.")
    # Relative paths would be others in other processes.
    runs = [r._replace(directory=pathlib.Path(str(r.directory)).absolute(), checked=None) for r in runs]
    if progress is not None:
        progress.begin([(run.name, run.experiment) for run in runs])
    results: dict[int, Result] = {}
    logs = [_Log(run, progress, sinks) for run in runs]
    try:
        for i, run in enumerate(runs):
            if run.damaged is not None or _has_ended(run):
                results[i] = _ended(run, progress)
        left = [(batch, room) for batch, room in units if any(i not in results for i in batch)]
        calls = [([runs[i] for i in batch], room) for batch, room in left]

        def watch(at_work: set[int]) -> None:
            for c in at_work:
                for i in left[c][0]:
                    logs[i].look()

        for c, _ in run_calls(_unit, calls, watch):
            for i in left[c][0]:
                logs[i].look()
                if i not in results:
                    results[i] = _ended(runs[i], progress)
    finally:
        for log in logs:
            log.close()
        if progress is not None:
            progress.close()
    return [results[i] for i in range(len(runs))]


def _has_ended(run: PlacedRun) -> bool:
    assert run.directory is not None
    try:
        return is_over(run.directory, run.experiment)
    except ValueError:
        return True  # it is damaged


def _ended(run: PlacedRun, progress: Progress | None) -> Result:
    assert run.directory is not None
    try:
        result = read(run.directory, run.name, run.experiment)
        words = run.damaged
    except ValueError as error:
        result, words = None, str(error)
    if result is None or words is not None:
        result = damaged_result(run.name, run.experiment, run.directory, str(words))
    if progress is not None:
        progress.end(result)
    return result


class _Log:
    """What another process logs of a run, for the reporter and the sinks of this one."""

    def __init__(self, run: PlacedRun, progress: Progress | None, sinks: Sequence[OpenSink]):
        assert run.directory is not None
        self.run, self.progress, self.path = run, progress, run.directory / LOG
        self.open_sinks = sinks
        self.sinks: list[Sink] | None = None  # opened when the run has begun
        self.length, self.last = -1, max((row["round"] for row in self._rows()), default=-1)

    def _rows(self) -> list[Row]:
        assert self.run.directory is not None
        try:
            return read_rows(self.run.directory)
        except ValueError:  # it is being written, or damaged: who reads it at the end says so
            return []

    def look(self) -> None:
        """Pass on the rows that are new."""
        length = self.path.stat().st_size if self.path.exists() else 0
        if length == self.length:
            return
        self.length = length
        if self.sinks is None:
            of = self.run.name, self.run.experiment, self.run.directory
            self.sinks = [open_sink(*of) for open_sink in self.open_sinks]
        for row in self._rows():
            if row["round"] > self.last:
                self.last = row["round"]
                for sink in self.sinks:
                    sink.row(row)
                if self.progress is not None:
                    self.progress.row(self.run.name, self.run.experiment, row)

    def close(self) -> None:
        for sink in self.sinks or ():
            sink.close()
