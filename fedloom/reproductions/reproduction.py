"""A reproduction: experiments of a paper, the figures read off them beside the paper's, and its claims with checks."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from fedloom.experiments import Experiment
from fedloom.experiments.result import Result, Row, bytes_of_a_client, models_of_a_reply, turns
from fedloom.experiments.study import Runs, Study
from fedloom.experiments.until import Condition
from fedloom.reproductions.spread import NOT_RUN, Spread, Verdict, over, ratio
from fedloom.tasks.reported import Measure

T = TypeVar("T")
COMPARABLE = 0.1  # papers say "comparable" without a number; here it means within a tenth of the better one

# The figures of one seed, by setting and method: what claims are checked on.
Figures = Mapping[tuple[str, str], float]

# Figures of every seed, by setting and method: {(setting, method): {seed: value}}.
Values = Mapping[tuple[str, str], Mapping[int, float]]


# What had been counted by the time of a row; the names are those of `tasks.reported.COUNTED`. Of models tables count
# whole ones: a number that is sent beside one does not count.
COUNTS: dict[str, Callable[[Result, Row], float]] = {
    "rounds": lambda result, row: float(row["round"]),
    "models": lambda result, row: float(turns(result, row) * round(models_of_a_reply(result, row))),
    "MiB": lambda result, row: bytes_of_a_client(result, row) / 2**20,
    "simulated seconds": lambda result, row: float(row["simulated seconds"]),
}


def value_of(measure: Measure, result: Result) -> float:
    """The measured number of a run; the worst there is if the run diverged or never reached the target."""
    if measure.target is not None and measure.counted is not None:
        row = result.first_reaches(measure.metric, measure.target)
        return math.inf if row is None else COUNTS[measure.counted](result, row)
    if result.diverged is not None:
        return -math.inf if result.larger_is_better(measure.metric) else math.inf
    if measure.best:
        best = max if result.larger_is_better(measure.metric) else min
        return measure.scale * float(best(row[measure.metric] for row in result.evaluated))
    before = max(0, result.experiment.rounds - measure.last)  # round 0 is the initial model, which does not count
    values = [row[measure.metric] for row in result.evaluated if row["round"] > before]
    return measure.scale * float(np.mean(values))


class Grid(NamedTuple):
    """Two hyperparameters, by name, and their values; runs go through those of y for each of x."""

    x: str
    xs: tuple[float, ...]
    y: str
    ys: tuple[float, ...]


class Line(NamedTuple):
    """A figure: what is measured in the runs of one name, and what the paper reports, if it prints a number."""

    setting: str
    method: str
    run: str | tuple[str, ...]  # of several, the best for each seed counts, as where a paper prints a search's winner
    measure: Measure
    reported: float | None = None
    where: str = ""  # the number stands in the paper: "table 2"
    # Of several runs, in their order: what to make of their values, if not the best of them.
    combined: Callable[[Sequence[float]], float] | None = None
    grid: Grid | None = None  # of several runs: over what, if the values of all of them are to be kept
    beside: bool = False  # a variant of ours, next to a number of the paper that another figure has already

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of its runs."""
        return (self.run,) if isinstance(self.run, str) else self.run

    @property
    def failed(self) -> str:
        """What a seed without a finite number is called."""
        return "not defined" if self.combined is not None and self.measure.target is None else self.measure.failed


class Claim(NamedTuple):
    """A sentence of a paper, or of ours, and whether it holds in the figures of one seed; None if it is undecided."""

    words: str
    holds: Callable[[Figures], bool | None]
    setting: str = ""  # the only one that the claim is about
    ratio: Callable[[Figures], float] | None = None  # below 1 where it holds, if it says that one number is smaller
    ours: bool = False  # a question of ours, not a claim of the paper

    @property
    def marked(self) -> str:
        """Its words, and whether they are ours."""
        return f"{self.words} (our question)" if self.ours else self.words


def smaller(words: str, one: Callable[[Figures], float], other: Callable[[Figures], float], setting: str = "") -> Claim:
    """The claim that one number is smaller than the other; undecided if neither is finite, or one is not defined.

    Their ratio says how far apart they are, if neither is negative.
    """

    def holds(f: Figures) -> bool | None:
        a, b = one(f), other(f)
        if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)):
            return None
        return a < b

    def ratio_(f: Figures) -> float:
        a, b = one(f), other(f)
        return over(a, b) if a >= 0 and b >= 0 else math.inf

    return Claim(words, holds, setting, ratio_)


class Finding(NamedTuple):
    """A line of the outcome: a figure beside the paper's, or a claim with its verdict."""

    setting: str
    method: str
    ours: str
    paper: str
    ratio: str  # ours to the first method of the setting; of claims: of what they compare
    paper_ratio: str
    verdict: str  # of claims: "holds in 3 of 3 seeds", ..., or "not run"

    @property
    def there(self) -> bool:
        """Whether anything of it has been run."""
        return NOT_RUN not in (self.ours, self.verdict)


def not_run(findings: Sequence[Finding]) -> str:
    """The figures that were not run, in a sentence: whole settings, then methods that others have; empty if none."""
    figures = [f for f in findings if not f.verdict]
    there = {f.setting for f in figures if f.there}
    lost = [f for f in figures if not f.there]
    words = dict.fromkeys(f.method if f.setting in there else f.setting for f in lost)
    return f"Not run yet, everywhere or in part: {'; '.join(words)}." if words else ""


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
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        keys = [(line.setting, line.method) for line in self.lines]
        if len(set(keys)) < len(keys):
            raise ValueError(f"{self.name}: two figures have the same setting and method.")

    @property
    def rounds(self) -> int:
        """Of the longest run."""
        return max(e.rounds for e in self.experiments.values())

    @property
    def published(self) -> int:
        """How many numbers of the paper ours stand beside."""
        return sum(line.reported is not None and not line.beside for line in self.lines)

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
        if rounds is not None and rounds > self.rounds:
            raise ValueError(f"rounds: the longest run of {self.name} has {self.rounds}, fewer than {rounds}.")
        named = []
        for name, e in self.experiments.items():
            e = dataclasses.replace(e, evaluate=e.evaluate or self._evaluated(name), until=self._until(name))
            if rounds is not None:
                whole = max(1, e.rounds * rounds // self.rounds)
                every = max(1, e.evaluate_every * rounds // self.rounds)  # as often as the others are
                e = dataclasses.replace(e, rounds=whole, evaluate_every=every)
            named += [(name, dataclasses.replace(e, seed=seed)) for seed in chosen]
        return named

    def _evaluated(self, run: str) -> tuple[str, ...]:
        """What is measured, also where it is expensive, and the server's model on test examples."""
        metrics = [line.measure.metric for line in self.lines if run in line.runs]
        return tuple(dict.fromkeys([*(m for m in metrics if not m.startswith("own ")), "test"]))

    def _until(self, run: str) -> tuple[str, ...] | None:
        """The targets of a run that is measured by nothing else: what comes after the last of them does not matter."""
        measures = dict.fromkeys(line.measure for line in self.lines if run in line.runs)
        if any(m.target is None for m in measures):
            return None
        conditions = [Condition(m.metric, m.larger_is_better, m.target) for m in measures if m.target is not None]
        return tuple(dict.fromkeys(map(str, conditions))) or None  # a run may be measured by nothing

    def rounds_of(self, study: Study) -> int:
        """Of the longest run, those of a study being perhaps only some, and shorter than the longest."""
        if (asked := study.about.get("rounds")) is not None:
            return int(asked)
        done = {r.name: r.experiment.rounds for r in study.results}
        if done and all(name in self.experiments and self.experiments[name].rounds == n for name, n in done.items()):
            return self.rounds
        return max(done.values(), default=0)

    def values(self, study: Study) -> Values:
        """What the finished runs of a study measure; a search counts where all its runs of a seed have finished."""
        found: dict[tuple[str, str], dict[int, float]] = {}
        for line in self.lines:
            by_seed: dict[int, dict[str, float]] = {}
            best: Callable[[Sequence[float]], float] = min
            for r in study.results:
                if r.name in line.runs and r.finished:
                    by_seed.setdefault(r.experiment.seed, {})[r.name] = value_of(line.measure, r)
                    if line.measure.target is None and r.larger_is_better(line.measure.metric):
                        best = max
            of = line.combined or best
            whole = {s: of([v[run] for run in line.runs]) for s, v in by_seed.items() if len(v) == len(line.runs)}
            if whole:
                found[line.setting, line.method] = dict(sorted(whole.items()))
        return found

    def outcome(self, values: Values) -> list[Finding]:
        """Our figures beside the paper's, then the claims with their verdicts."""
        rows, first = [], dict[str, Line]()
        seeds = {seed for of in values.values() for seed in of}
        for line in self.lines:
            base = first.setdefault(line.setting, line)
            own = values.get((line.setting, line.method), {})
            beside, printed = "", ""
            if line is not base and line.reported is not None and base.reported:
                beside = ratio(own, values.get((base.setting, base.method), {}))
                finite = math.isfinite(line.reported) and math.isfinite(base.reported)
                printed = f"{line.reported / base.reported:.2g}" if finite else ""
            ours = Spread(tuple(own.values()), line.failed).words if own else NOT_RUN
            ours += f" ({len(own)} of {len(seeds)} seeds)" if 0 < len(own) < len(seeds) else ""
            paper = "" if line.reported is None else _number(line.reported, line.measure)
            rows.append(Finding(line.setting, line.method, ours, paper, beside, printed, ""))
        for claim in self.claims:
            ratio_ = self.ratio(claim, values)
            rows.append(Finding(claim.setting, "", "", claim.marked, ratio_, "", self.verdict(claim, values).words))
        return rows

    def verdict(self, claim: Claim, values: Values) -> Verdict:
        """In how many seeds a claim holds; those count that have all figures that it is about."""
        return Verdict(tuple(of_seeds(partial(_answer, claim), values)), self._ratio(claim, values))

    def ratio(self, claim: Claim, values: Values) -> str:
        """How far apart the two numbers are that a claim compares, over seeds; empty if it does not compare two."""
        found = self._ratio(claim, values)
        return found.words if len(found.finite) else ""

    def _ratio(self, claim: Claim, values: Values) -> Spread:
        return Spread(tuple(of_seeds(claim.ratio, values)) if claim.ratio is not None else (), "none")


class _Read(dict[tuple[str, str], float]):
    """Figures that remember which of them a claim was about."""

    def __init__(self, figures: Figures) -> None:
        super().__init__(figures)
        self.values_read: list[float] = []

    def __getitem__(self, key: tuple[str, str]) -> float:
        value = super().__getitem__(key)
        self.values_read.append(value)
        return value


def _answer(claim: Claim, figures: Figures) -> bool | None:
    """Whether it holds; undecided if none of the figures that it is about has a number."""
    read = _Read(figures)
    holds = claim.holds(read)
    return None if read.values_read and not any(map(math.isfinite, read.values_read)) else holds


def of_seeds(f: Callable[[Figures], T], values: Values) -> list[T]:
    """What it says of the figures of every seed that has those which it is about."""
    found = []
    for seed in sorted({seed for of in values.values() for seed in of}):
        figures = {key: of[seed] for key, of in values.items() if seed in of}
        with contextlib.suppress(KeyError):
            found.append(f(figures))
    return found


def _number(value: float, measure: Measure) -> str:
    return f"{value:.4g}" if math.isfinite(value) else measure.failed


def comparable(a: float, b: float) -> bool:
    """Both are finite, and the larger is at most a tenth above the smaller."""
    return math.isfinite(a) and math.isfinite(b) and max(a, b) <= (1 + COMPARABLE) * min(a, b)
