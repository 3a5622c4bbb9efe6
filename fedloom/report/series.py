"""What curves show: the seeds of each method combined, for the page and the figures alike."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedloom.experiments.result import Result
from fedloom.experiments.study import Study

# What a curve can be drawn against, and the column of a result that has it. Time is bytes of a client / bandwidth; the
# clock is that of the simulated system, if there is one.
AXES = {
    "rounds": "round",
    "exchanges": "exchanges",
    "models": "models",
    "bytes": "bytes",
    "time": "bytes of a client",
    "clock": "simulated seconds",
}
AXIS_LABELS = {
    "rounds": "rounds",
    "exchanges": "exchanges",
    "models": "models transmitted",
    "bytes": "bytes, all clients, both directions",
    "time": "seconds of transmission at {bandwidth:g} MB/s",
    "clock": "simulated seconds",
}
BANDWIDTH = 20.0  # MB/s

# Okabe and Ito's colours, without black and yellow, which are hard to see on a dark or a light background.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8A8A8A")
DASHES = ("solid", "dash", "dot")  # the next seven methods are dashed, the next ones dotted
EARLY = 0.2  # of the rounds, which the vertical scale ignores: all methods start at the same value
MOST = len(COLOURS) * len(DASHES)  # curves that can be told apart


@dataclasses.dataclass(frozen=True, eq=False)
class Band:
    """A metric over the rounds of a series: mean, smallest and largest of the seeds."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """The seeds of one method on one task."""

    name: str
    seeds: int  # that have an evaluated round
    axes: Mapping[str, np.ndarray]  # by name in AXES; where seeds differ, as in bytes, their mean
    metrics: Mapping[str, Band]
    diverged: Sequence[Mapping[str, float]]  # the last evaluation of each such seed: all axes and metrics


def by_task(study: Study) -> dict[str, list[Result]]:
    """The results of each task, in the order of the study."""
    found: dict[str, list[Result]] = {}
    for result in study.results:
        found.setdefault(result.experiment.base_task().name, []).append(result)
    return found


def by_name(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The seeds of each method."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.name, []).append(result)
    return found


def metrics(results: Iterable[Result]) -> dict[str, bool]:
    """The metrics that any of the results has, and whether larger is better."""
    return {metric: result.larger_is_better(metric) for result in results for metric in result.metrics}


def has_clock(results: Iterable[Result]) -> bool:
    """Whether all of them have simulated time."""
    begun = [result for result in results if result.evaluated]
    return bool(begun) and all(AXES["clock"] in row for result in begun for row in result.evaluated)


def axes_of(results: Sequence[Result]) -> dict[str, str]:
    """The axes that these results can be drawn against."""
    return {axis: key for axis, key in AXES.items() if axis != "clock" or has_clock(results)}


def series(name: str, results: Sequence[Result]) -> Series:
    """Combine the seeds of a method.

    A round is used if every seed that got that far was evaluated in it. So the mean is over all seeds that got there:
    where one diverged or is unfinished, the others continue.
    """
    begun = [result for result in results if result.evaluated]
    places = [{row["round"]: i for i, row in enumerate(result.evaluated)} for result in begun]
    last = [max(place) for place in places]
    every = sorted(set().union(*places))
    rounds = [t for t in every if all(t in place or t > end for place, end in zip(places, last, strict=True))]

    def gathered(columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        pairs = list(zip(places, columns, strict=True))
        return [np.array([column[place[t]] for place, column in pairs if t in place]) for t in rounds]

    shared = [m for m in metrics(begun) if all(m in row for result in begun for row in result.evaluated)]
    known = axes_of(begun)
    columns = {key: [result.column(key) for result in begun] for key in (*known.values(), *shared)}
    axes = {axis: np.array([v.mean() for v in gathered(columns[key])]) for axis, key in known.items()}
    bands = {}
    for metric in shared:
        values = gathered(columns[metric])
        with np.errstate(invalid="ignore"):  # the mean of inf and -inf
            bands[metric] = Band(*(np.array([f(v) for v in values]) for f in (np.mean, np.min, np.max)))
    marks = [
        {axis: float(columns[key][i][-1]) for axis, key in known.items()}
        | {m: float(columns[m][i][-1]) for m in shared}
        for i, result in enumerate(begun)
        if result.diverged is not None
    ]
    return Series(name, len(begun), axes, bands, marks)


def slug(words: str) -> str:
    """The text as part of a file name."""
    return re.sub("[^A-Za-z0-9.]+", "-", words).strip("-.") or "unnamed"
