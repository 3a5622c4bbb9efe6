"""Recorded results of reproductions: small files of figures and thinned curves, with what they were made with.

In a checkout they are in benchmarks/reproductions, in an installed package beside this file.
"""

import dataclasses
import json
import math
import pathlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.reproductions.digests import digests, settings
from fedloom.reproductions.reproduction import Line, Reproduction, Values, value_of

HERE = pathlib.Path(__file__).parent
PLACES = (HERE / "recorded", HERE.parents[1] / "benchmarks" / "reproductions")
POINTS = 25  # of a curve


@dataclasses.dataclass(frozen=True)
class Curve:
    """A metric in the course of the runs of one name: the mean over some of the seeds."""

    rounds: tuple[int, ...]
    values: tuple[float, ...]
    seeds: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Points:
    """The figures of all runs of a grid, in their order: the means over some of the seeds, nan where one failed."""

    values: tuple[float, ...]
    seeds: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What a reproduction gave, and how it was run."""

    name: str
    values: Values
    curves: Mapping[str, Mapping[str, Curve]]  # {run: {metric: curve}}
    rounds: int  # of the longest run
    seconds: float  # of all runs together
    made: Mapping[str, Any]  # commit, versions, processor, date; "earlier" has those of seeds that were run before
    points: Mapping[tuple[str, str], Points] = dataclasses.field(default_factory=dict)  # of figures that have a grid
    # The runs of all figures that the reproduction has, recorded or not.
    runs: Mapping[tuple[str, str], tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds of which there is a figure."""
        return tuple(sorted({seed for of in self.values.values() for seed in of}))

    @property
    def seeds_of_runs(self) -> dict[str, tuple[int, ...]]:
        """The seeds of every run of which there is a figure; none of a run of which nothing is recorded."""
        found: dict[str, set[int]] = {}
        for key, runs in self.runs.items():
            for run in runs:
                found.setdefault(run, set()).update(self.values.get(key, ()))
        return {run: tuple(sorted(seeds)) for run, seeds in found.items()}

    @property
    def command(self) -> str:
        """What runs it again: a line for all runs, or one for those of the same seeds."""
        alike: dict[tuple[int, ...], list[str]] = {}
        for run, seeds in self.seeds_of_runs.items():
            alike.setdefault(seeds, []).append(run)
        shorter = f" --rounds {self.made['asked rounds']}" if self.made.get("asked rounds") else ""
        lines = []
        for seeds, runs in alike.items():
            only = "".join(f" --only {shlex.quote(run)}" for run in runs) if len(alike) > 1 else ""
            listed = ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")  # a number alone is how many
            lines += [f"fedloom reproduce '{self.name}'{only} --seeds {listed}{shorter}"] if seeds else []
        return "\n".join(lines)

    @property
    def parts(self) -> list[dict[str, Any]]:
        """When and with what its seeds were run, the newest part first; a seed may be in several, with other runs."""
        own = {key: self.made.get(key) for key in ("date", "commit", "processor", "versions")}
        return [{"seeds": self.made.get("newest seeds", list(self.seeds)), **own}, *self.made.get("earlier", ())]

    @property
    def how(self) -> str:
        """Seeds, time and versions, in a sentence."""
        seeds = "one seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        made = {"date": "an unknown day", "commit": "unknown", "processor": "unknown processor", **self.made}
        versions = ", ".join(f"{name} {version}" for name, version in made.get("versions", {}).items())
        parts_of = Counter(seed for part in self.parts for seed in part["seeds"])
        earlier = "".join(
            f" {_which(part['seeds'])} {'in part ' if any(parts_of[s] > 1 for s in part['seeds']) else ''}recorded on "
            f"{part['date']} at commit {part['commit']} ({part['processor']}{_other(part, made)})."
            for part in self.parts[1:]
        )
        diverged = "; ".join(f"{run} ({self._diverged(run, of)})" for run, of in made.get("diverged", {}).items())
        minutes = round(self.seconds / 60)
        took = {0: "less than a minute", 1: "1 minute"}.get(minutes, f"{minutes} minutes")
        return (
            f"Recorded on {made['date']} at commit {made['commit']}: {seeds}, {took} of runs in all "
            f"({made['processor']}; {versions}).{earlier}" + (f" Diverged: {diverged}." if diverged else "")
        )

    def _diverged(self, run: str, seeds: Sequence[int]) -> str:
        """In words, with those apart that count as they reached a target before."""
        own = [self.values.get(key, {}) for key, runs in self.runs.items() if runs == (run,)]
        reached = [seed for seed in seeds if any(math.isfinite(of.get(seed, math.nan)) for of in own)]
        lost = [seed for seed in seeds if seed not in reached]
        words = [_listed(lost)] if lost else []
        return "; ".join([*words, f"{_listed(reached)} after reaching a target"] if reached else words)

    def to_json(self, reproduction: Reproduction) -> str:
        """A few kilobytes of text; a figure without a number is null."""
        of_now = digests(reproduction, self.made.get("asked rounds"))
        figures = [
            {
                "setting": line.setting,
                "method": line.method,
                "measured": line.measure.words,
                "settings": of_now[line.setting, line.method],
                "seeds": {str(seed): _plain(v) for seed, v in self.values[line.setting, line.method].items()},
                **self._points(line),
            }
            for line in reproduction.lines
            if (line.setting, line.method) in self.values
        ]
        curves = {
            run: {
                metric: {"rounds": c.rounds, "values": [_plain(v) for v in c.values], "seeds": c.seeds}
                for metric, c in of.items()
            }
            for run, of in self.curves.items()
        }
        head = {"name": self.name, "rounds": self.rounds, "seconds": round(self.seconds), **self.made}
        parts = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
        for key, rows in (("figures", figures), ("curves", [{run: of} for run, of in curves.items()])):
            parts.append(f'"{key}": [\n ' + ",\n ".join(json.dumps(row) for row in rows) + "\n]")
        return "{" + ",\n".join(parts) + "}\n"

    def _points(self, line: Line) -> dict[str, Any]:
        found = self.points.get((line.setting, line.method))
        return {} if found is None else {"points": [*map(_plain, found.values)], "points of seeds": found.seeds}


def from_json(text: str, reproduction: Reproduction) -> Recorded:
    """Read what `to_json` wrote; figures that the reproduction does not have any more, or not so, are left out."""
    found = json.loads(text)
    lines = {(line.setting, line.method): line for line in reproduction.lines}
    values, points = {}, {}
    of_now = digests(reproduction, found.get("asked rounds"))
    for row in found.pop("figures"):
        key = row["setting"], row["method"]
        if key in lines and (lines[key].measure.words, of_now.get(key)) == (row["measured"], row.get("settings")):
            worst = _worst(lines[key])
            values[key] = {int(seed): worst if v is None else float(v) for seed, v in row["seeds"].items()}
            if "points" in row:
                points[key] = Points(tuple(map(_number, row["points"])), tuple(row["points of seeds"]))
    kept = {(run, lines[key].measure.metric) for key in values for run in lines[key].runs}
    curves: dict[str, dict[str, Curve]] = {}
    for row in found.pop("curves"):
        for run, of in row.items():
            for m, c in of.items():
                if (run, m) in kept:
                    curve = Curve(tuple(c["rounds"]), tuple(map(_number, c["values"])), tuple(c["seeds"]))
                    curves.setdefault(run, {})[m] = curve
    name, rounds, seconds = (found.pop(key) for key in ("name", "rounds", "seconds"))
    return Recorded(name, values, curves, rounds, seconds, found, points, _runs_of(reproduction))


def recorded(reproduction: Reproduction) -> Recorded | None:
    """What has been recorded of a reproduction, if anything."""
    for place in PLACES:
        path = place / file_name(reproduction.name)
        if path.exists():
            try:
                found = from_json(path.read_text(), reproduction)
            except (ValueError, KeyError, TypeError, AttributeError) as error:  # whatever is not what `to_json` writes
                raise ValueError(f"{path} is damaged ({error!r}). Restore it, or remove it.") from error
            return found if found.values else None  # of other settings than there are now
    return None


def file_name(name: str) -> str:
    return name.replace("%", "") + ".json"


def record(study: Study, reproduction: Reproduction, made: Mapping[str, Any]) -> Recorded:
    """The figures and curves of a study's finished runs."""
    finished = [r for r in study.results if r.finished]
    if not finished:
        raise ValueError(f"{reproduction.name}: no run has finished, so there is nothing to record.")
    measured: dict[str, list[str]] = {}
    for line in reproduction.lines:
        for run in line.runs:
            measured.setdefault(run, []).append(line.measure.metric)
    curves: dict[str, dict[str, Curve]] = {}
    if all(len(line.runs) == 1 for line in reproduction.lines):  # the curves of a search would fill pages
        for run, metrics in measured.items():
            of = [r for r in finished if r.name == run and r.diverged is None]
            if of:
                curves[run] = {metric: mean_curve(of, metric) for metric in dict.fromkeys(metrics)}
    seconds = sum(r.seconds for r in finished)
    rounds = reproduction.rounds_of(study)
    if rounds < reproduction.rounds:
        made = {**made, "asked rounds": rounds}
    expected = {(n, e.seed): settings(e) for n, e in reproduction.runs(_seeds(study), made.get("asked rounds"))}
    for r in finished:
        if expected.get((r.name, r.experiment.seed)) != settings(r.experiment):
            raise ValueError(
                f"{reproduction.name}: the run {r.name!r} has other settings than the reproduction has now."
            )
    alone = {run for line in reproduction.lines for run in line.runs if len(line.runs) == 1}
    if diverged := _diverged([r for r in finished if r.name in alone]):  # not of searches, in which many points may
        made = {**made, "diverged": diverged}
    values = reproduction.values(study)
    points = {}
    for line in reproduction.lines:
        if line.grid is not None and (seeds := tuple(values.get((line.setting, line.method), ()))):
            points[line.setting, line.method] = _points_of(line, finished, seeds)
    return Recorded(reproduction.name, values, curves, rounds, seconds, made, points, _runs_of(reproduction))


def _runs_of(reproduction: Reproduction) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(line.setting, line.method): line.runs for line in reproduction.lines}


def _diverged(results: Sequence[Result]) -> dict[str, list[int]]:
    """The seeds in which runs diverged, by run."""
    found: dict[str, list[int]] = {}
    for r in results:
        if r.diverged is not None:
            found.setdefault(r.name, []).append(r.experiment.seed)
    return found


def _points_of(line: Line, results: Sequence[Result], seeds: tuple[int, ...]) -> Points:
    found = {(r.name, r.experiment.seed): value_of(line.measure, r) for r in results if r.name in line.runs}
    means = (np.mean([found[run, seed] for seed in seeds]) for run in line.runs)
    return Points(tuple(float(f"{mean:.4g}") if np.isfinite(mean) else math.nan for mean in means), seeds)


def _other(part: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """The versions with which a part was made, if they were others."""
    own, now = part.get("versions") or {}, made.get("versions") or {}
    other = [f"{name} {version}" for name, version in own.items() if now.get(name) != version]
    return f"; {', '.join(other)}" if other else ""


def _which(seeds: Sequence[int]) -> str:
    return f"{_listed(seeds).capitalize()} {'was' if len(seeds) == 1 else 'were'}"


def _listed(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _seeds(study: Study) -> list[int]:
    return sorted({r.experiment.seed for r in study.results})


def mean_curve(results: Sequence[Result], metric: str) -> Curve:
    """At up to POINTS evaluated rounds that all of them have, more of them early where curves bend."""
    tables = [{row["round"]: row[metric] for row in r.evaluated if metric in row} for r in results]
    shared = sorted(set.intersection(*(set(t) for t in tables)))
    last = len(shared) - 1
    chosen = sorted({round(last * (i / (POINTS - 1)) ** 2) for i in range(POINTS)})
    rounds = tuple(int(shared[i]) for i in chosen)
    values = tuple(float(f"{np.mean([t[r] for t in tables]):.4g}") for r in rounds)
    return Curve(rounds, values, tuple(r.experiment.seed for r in results))


def _plain(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _worst(line: Line) -> float:
    """The value of a run without a number."""
    if line.failed == "not defined":
        return math.nan
    return -math.inf if line.measure.target is None and line.measure.larger_is_better else math.inf
