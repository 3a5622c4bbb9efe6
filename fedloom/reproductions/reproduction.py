"""A reproduction: experiments of a paper, the figures read off them beside the paper's, and its claims with checks."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedloom.experiments import Experiment
from fedloom.experiments.result import Result, Row, bytes_of_a_client, models_sent
from fedloom.experiments.study import Runs, Study
from fedloom.tasks.reported import Measure

COMPARABLE = 0.1  # papers say "comparable" without a number; here it means within a tenth of the better one

VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}

# The mean over seeds of every figure, by setting and method: what claims are checked on.
Figures = Mapping[tuple[str, str], float]


# What had been counted by the time of a row; the names are those of `tasks.reported.COUNTED`.
COUNTS: dict[str, Callable[[Result, Row], float]] = {
    "rounds": lambda result, row: float(row["round"]),
    "models": models_sent,
    "MiB": lambda result, row: bytes_of_a_client(result, row) / 2**20,
    "simulated seconds": lambda result, row: float(row["simulated seconds"]),
}


def value_of(measure: Measure, result: Result) -> float:
    """The measured number of a run; the worst there is if the run diverged or never reached the target."""
    if measure.target is not None and measure.counted is not None:
        row = result.reaches(measure.metric, measure.target)
        return math.inf if row is None else COUNTS[measure.counted](result, row)
    if result.diverged is not None:
        return -math.inf if result.larger_is_better(measure.metric) else math.inf
    before = max(0, result.experiment.rounds - measure.last)  # round 0 is the initial model, which does not count
    values = [row[measure.metric] for row in result.evaluated if row["round"] > before]
    return measure.scale * float(np.mean(values))


class Line(NamedTuple):
    """A figure: what is measured in the runs of one name, and what the paper reports, if it prints a number."""

    setting: str
    method: str
    run: str
    measure: Measure
    reported: float | None = None
    where: str = ""  # the number stands in the paper: "table 2"


class Claim(NamedTuple):
    """A sentence of a paper, and whether it holds in the given figures; None if they do not decide it."""

    words: str
    holds: Callable[[Figures], bool | None]
    setting: str = ""  # the only one that the claim is about


class Finding(NamedTuple):
    """A line of the outcome: a figure beside the paper's, or a claim with its verdict."""

    setting: str
    method: str
    ours: str
    paper: str
    verdict: str  # of claims: "holds", "does not hold", "undecided" or "not run"


@dataclasses.dataclass(frozen=True, eq=False)
class Reproduction:
    """Experiments of a paper, what is measured in them, and what the paper claims."""

    name: str
    about: str
    paper: str
    experiments: Mapping[str, Experiment]  # by the name of the run; seeds and shorter runs are made from them
    lines: tuple[Line, ...]
    claims: tuple[Claim, ...]
    notes: str = ""  # what differs from the paper
    needs: tuple[str, ...] = ()  # what must be in the data directory
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        keys = [(line.setting, line.method) for line in self.lines]
        if len(set(keys)) < len(keys):
            raise ValueError(f"{self.name}: two figures have the same setting and method.")

    @property
    def rounds(self) -> int:
        """Of the longest run."""
        return max(e.rounds for e in self.experiments.values())

    @property
    def target(self) -> tuple[str, float] | None:
        """The metric and value that all runs are to reach, if that is what the paper counts."""
        targets = {(line.measure.metric, line.measure.target) for line in self.lines}
        metric, target = targets.pop()
        return None if targets or target is None else (metric, target)

    def runs(self, seeds: Sequence[int] | None = None, rounds: int | None = None) -> Runs:
        """The experiments by name; with `rounds` the longest has so many, and the others in proportion."""
        chosen = self.seeds if seeds is None else tuple(seeds)
        if not chosen:
            raise ValueError("seeds must contain at least one seed.")
        if rounds is not None and (not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1):
            raise ValueError(f"rounds must be a positive integer, got {rounds!r}.")
        named = []
        for name, e in self.experiments.items():
            if any(line.run == name and line.measure.metric == "train loss" for line in self.lines):
                e = dataclasses.replace(e, evaluate=("train", "test"))  # also where it is expensive
            if rounds is not None:
                whole = max(1, e.rounds * rounds // self.rounds)
                every = max(1, e.evaluate_every * rounds // self.rounds)  # as often as the others are
                e = dataclasses.replace(e, rounds=whole, evaluate_every=every)
            named += [(name, dataclasses.replace(e, seed=seed)) for seed in chosen]
        return named

    def figures(self, study: Study) -> dict[tuple[str, str], list[float]]:
        """What the finished runs of a study measure, one number for each seed."""
        values = {}
        for line in self.lines:
            finished = [r for r in study.results if r.name == line.run and r.finished]
            if finished:
                values[line.setting, line.method] = [value_of(line.measure, r) for r in finished]
        return values

    def outcome(self, study: Study) -> list[Finding]:
        """Our figures beside the paper's, then the claims with their verdicts."""
        figures = self.figures(study)
        means = {key: float(np.mean(values)) for key, values in figures.items()}
        rows = []
        for line in self.lines:
            ours = _shown(figures.get((line.setting, line.method), []), line.measure)
            rows.append(Finding(line.setting, line.method, ours, _number(line.reported, line.measure), ""))
        for claim in self.claims:
            try:
                verdict = VERDICTS[claim.holds(means)]
            except KeyError:  # a figure that the claim is about
                verdict = "not run"
            rows.append(Finding(claim.setting, "", "", claim.words, verdict))
        return rows


def _number(value: float | None, measure: Measure) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if math.isfinite(value) else measure.failed


def _shown(values: Sequence[float], measure: Measure) -> str:
    """Mean and standard deviation over the seeds that have a number, and how many have none."""
    finite = [v for v in values if math.isfinite(v)]
    if not values:
        return "not run"
    if not finite:
        return measure.failed
    words = f"{np.mean(finite):.4g}" + (f" +- {np.std(finite, ddof=1):.2g}" if len(finite) > 1 else "")
    return words + (f", {measure.failed} {len(values) - len(finite)}x" if len(finite) < len(values) else "")


def comparable(a: float, b: float) -> bool:
    """Both are finite, and the larger is at most a tenth above the smaller."""
    return math.isfinite(a) and math.isfinite(b) and max(a, b) <= (1 + COMPARABLE) * min(a, b)
