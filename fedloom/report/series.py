"""What curves show: the seeds of each method combined, for the page and the figures alike."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import scipy  # which imports its parts when they are used: some take a second

from fedloom.evidence.groups import by_name as by_name
from fedloom.evidence.groups import by_task as by_task
from fedloom.evidence.groups import labels as labels_of
from fedloom.evidence.groups import metrics as metrics
from fedloom.evidence.statistics import INTERVAL
from fedloom.experiments.points import short
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study

# What a curve can be drawn against, and the column of a result that has it. Time is bytes of a client / bandwidth; the
# clock is that of the simulated system, if there is one.
AXES = {
    "rounds": "round",
    "exchanges": "exchanges",
    "models": "models",
    "bytes": "bytes",
    "gradients": "gradients",
    "time": "bytes of a client",
    "clock": "simulated seconds",
}
AXIS_LABELS = {
    "rounds": "rounds",
    "exchanges": "exchanges",
    "models": "models transmitted",
    "bytes": "bytes, all clients, both directions",
    "gradients": "gradients of single examples, all clients",
    "time": "seconds of transmission at {bandwidth:g} MB/s",
    "clock": "simulated seconds",
}
BANDWIDTH = 20.0  # MB/s

# Found by search: distinct with full colour vision and with each of the three colour-vision deficiencies, and visible
# on the page's light and dark backgrounds. A test computes both.
COLOURS = ("#0099EE", "#AA4411", "#118866", "#6655BB", "#BB8811", "#FF4488")
DASHES = ("solid", "dash", "dot")  # the next six methods are dashed, the next ones dotted
MOST = len(COLOURS) * len(DASHES)  # curves that can be told apart
BEST = 5  # curves in colour and with a label, unless the reader chooses others
EARLY = 0.2  # of the rounds, which the vertical scale ignores: all methods start at the same value
FEW = 3  # seeds, from which on an interval of the mean is drawn; fewer are drawn one by one


@dataclasses.dataclass(frozen=True, eq=False)
class Band:
    """A metric over the rounds of a series. A seed that stopped early has fewer values than there are rounds."""

    seeds: Sequence[np.ndarray]

    def over_seeds(self, f: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """A function of the seeds that got there, for each round: of [seeds, rounds] to [rounds]."""
        ends = sorted({0, *map(len, self.seeds)})
        with np.errstate(invalid="ignore"):  # the mean of inf and -inf
            parts = [
                f(np.stack([values[start:end] for values in self.seeds if len(values) >= end]))
                for start, end in itertools.pairwise(ends)
            ]
        return np.concatenate(parts) if parts else np.array([])

    @property
    def mean(self) -> np.ndarray:
        return self.over_seeds(lambda v: np.mean(v, 0))

    @property
    def low(self) -> np.ndarray:
        return self.over_seeds(lambda v: np.min(v, 0))

    @property
    def high(self) -> np.ndarray:
        return self.over_seeds(lambda v: np.max(v, 0))

    @property
    def interval(self) -> np.ndarray:
        """Half the width of the 95% interval of the mean, by Student's t; nan where there is one seed."""
        return self.over_seeds(
            lambda v: (
                quantile(len(v)) * np.std(v, 0, ddof=1) / np.sqrt(len(v)) if len(v) > 1 else np.full(v.shape[1], np.nan)
            )
        )


def quantile(seeds: int) -> float:
    """Student's t for the interval of a mean over so many seeds."""
    return -float(scipy.special.stdtrit(seeds - 1, INTERVAL / 2))


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """The seeds of one method on one task."""

    name: str
    seeds: int  # that have an evaluated round
    axes: Mapping[str, np.ndarray]  # by name in AXES; where seeds differ, as in bytes, their mean
    metrics: Mapping[str, Band]
    diverged: Sequence[Mapping[str, float]]  # the last evaluation of each such seed: all axes and metrics


def labels(study: Study) -> dict[str, str]:
    """What each method is called where it is shown; its name stays what identifies it.

    The points of a sweep are called by the last words of their fields, lr=0.1 for solver.lr=0.1, if these are distinct.
    """
    found = {name: label for results in by_task(study).values() for name, label in labels_of(results).items()}
    if study.about.get("kind") == "sweep":
        points: Mapping[str, Mapping[str, object]] = study.about["points"]
        last = {field: field.rsplit(".", 1)[-1] for values in points.values() for field in values}
        if len(set(last.values())) == len(last):
            found |= {
                name: ", ".join(f"{last[field]}={short(value)}" for field, value in values.items()) or name
                for name, values in points.items()
                if name in found
            }
    return found


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
    where one diverged or is unfinished, the others continue. Where one ended because it had met what it was to run
    until, all end: the others are the slow ones.
    """
    begun = [result for result in results if result.evaluated]
    places = [{row["round"]: i for i, row in enumerate(result.evaluated)} for result in begun]
    last = [max(place) for place in places]
    every = sorted(set().union(*places))
    ended = [end for r, end in zip(begun, last, strict=True) if r.experiment.until and r.finished and not r.diverged]
    every = [t for t in every if t <= min(ended, default=math.inf)]
    rounds = [t for t in every if all(t in place or t > end for place, end in zip(places, last, strict=True))]

    def gathered(columns: Sequence[np.ndarray]) -> Band:
        pairs = zip(places, columns, strict=True)
        return Band([np.array([column[place[t]] for t in rounds if t in place]) for place, column in pairs])

    shared = [m for m in metrics(begun) if all(m in row for result in begun for row in result.evaluated)]
    known = axes_of(begun)
    columns = {key: [result.column(key) for result in begun] for key in (*known.values(), *shared)}
    axes = {axis: gathered(columns[key]).mean if begun else np.array([]) for axis, key in known.items()}
    bands = {metric: gathered(columns[metric]) for metric in shared}
    marks = [
        {axis: float(columns[key][i][-1]) for axis, key in known.items()}
        | {m: float(columns[m][i][-1]) for m in shared}
        for i, result in enumerate(begun)
        if result.diverged is not None
    ]
    return Series(name, len(begun), axes, bands, marks)


def outside(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], end: float, log: bool = False) -> list[str]:
    """The methods, given with the best first, that would stretch the vertical axis: without them, it is half as long.

    At most a quarter of them, and none of the better half.

    Args:
        curves: rounds (or seconds) and values of each.
        end: the last round of all.
        log: whether the axis is logarithmic.
    """
    ends = {}
    for name, (at, values) in curves.items():
        shown = values[(at >= EARLY * end) & np.isfinite(values) & ((values > 0) | (not log))]
        if len(shown):
            ends[name] = np.log(shown).min() if log else shown.min(), np.log(shown).max() if log else shown.max()
    candidates = list(ends)[(len(ends) + 1) // 2 :]

    def length(left_out: Iterable[str]) -> float:
        kept = [pair for name, pair in ends.items() if name not in left_out]
        return float(max(high for _, high in kept) - min(low for low, _ in kept))

    order: list[str] = []
    found: list[str] = []
    while len(order) < len(ends) // 4:
        order.append(min((n for n in candidates if n not in order), key=lambda n: length([*order, n])))
        if length(order) < length(found) / 2:
            found = list(order)
    return found


def slug(words: str) -> str:
    """The text as part of a file name."""
    return re.sub("[^A-Za-z0-9.]+", "-", words).strip("-.") or "unnamed"
