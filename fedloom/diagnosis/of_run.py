"""Diagnosing a finished run: how gradients and differences between clients change along it.

A run's directory has its log and its last model. If the log has the metrics "gradient norm" and "dissimilarity" they
are used; else the run is repeated, since the same experiment gives the same models, and measured at a few rounds.
"""

import dataclasses
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.diagnosis.simulated import ALL, EVALUATION
from fedloom.engines import NonFiniteUpdate, asynchronous, synchronous
from fedloom.engines.plan import Plan
from fedloom.experiments.definition import Checked
from fedloom.experiments.result import Result
from fedloom.experiments.run_directory import CONFIG, read
from fedloom.experiments.study_file import STUDY
from fedloom.hyperparameters import count
from fedloom.native.build import left_out
from fedloom.theory.curvature import spectrum
from fedloom.theory.gradients import differences, sizes_of

POINTS = 8  # rounds that are measured
LOGGED = ("gradient norm", "dissimilarity")
EXPLODES = 10.0  # times the dissimilarity at the start
MUCH = 3.0  # times smaller: a gradient of which it is worth saying that it has vanished


@dataclasses.dataclass(frozen=True)
class Point:
    """What was measured after a round; NaN if it was not."""

    round: int
    gradient: float  # |grad f|
    B: float
    sigma_g: float = math.nan  # the farthest client's gradient from that of f
    sigma_g_mean: float = math.nan
    L: float = math.nan
    loss: float = math.nan  # f


@dataclasses.dataclass(frozen=True)
class Along:
    """How a run looks to theorems, along its rounds."""

    result: Result
    points: tuple[Point, ...]
    source: str  # "log" or "repeated"
    notes: tuple[str, ...]

    @property
    def largest(self) -> Point:
        """Where the dissimilarity is largest."""
        return max(self.points, key=lambda p: -math.inf if math.isnan(p.B) else p.B)

    @property
    def words(self) -> str:
        """Where the dissimilarity is largest or explodes, and why."""
        first, top = self.points[0], self.largest
        if math.isnan(top.B):
            return "The dissimilarity B is not known at any round."
        if top.round == first.round:
            return f"The dissimilarity B is largest at the start, {top.B:.3g}, of all rounds measured."
        growth, found = top.B / first.B, f"The dissimilarity B is largest after round {top.round}: {top.B:.3g}"
        found += f", {growth:.3g} times that at the start."
        if growth >= EXPLODES:
            at = next(i for i, p in enumerate(self.points) if p.B >= EXPLODES * first.B)
            before, after = self.points[at - 1].round, self.points[at].round
            found = f"The dissimilarity explodes between rounds {before} and {after}. {found}"
        return f"{found} {self._why(first, top)}".rstrip()

    def _why(self, first: Point, top: Point) -> str:
        """B^2 = 1 + sigma_g_mean^2 / |grad f|^2."""
        shrunk, apart = first.gradient / top.gradient if top.gradient > 0 else math.inf, _apart(top) / _apart(first)
        if math.isnan(apart):
            return ""
        if apart > max(shrunk, 1.0):
            return f"Clients' gradients differ {apart:.3g} times as much there, and |grad f| has changed less."
        if shrunk < MUCH:
            return ""
        kept = "as much as" if 0.8 < apart < 1.25 else f"{apart:.3g} times as much as"
        return (
            f"There |grad f| is {shrunk:.3g} times smaller, while clients differ {kept} at the start: near an optimum "
            "of f, those that differ still pull apart."
        )


def _apart(p: Point) -> float:
    """sqrt(sum_k p_k |grad F_k - grad f|^2)."""
    return p.gradient * math.sqrt(max(p.B**2 - 1, 0.0)) if math.isnan(p.sigma_g_mean) else p.sigma_g_mean


def along(
    directory: str | os.PathLike[str], *, rounds: int | None = None, say: Callable[[str], None] = lambda words: None
) -> Along:
    """How gradients and the differences between clients change along the run of a directory.

    Args:
        directory: of one run.
        rounds: up to which it is repeated; by default to its last.
        say: is told what is being done.
    """
    if rounds is not None and not count.holds(rounds):
        raise ValueError(f"rounds must be {count.words}, got {rounds!r}.")
    path = pathlib.Path(directory)
    result = _read(path)
    logged = all(name in result.about["metrics"] for name in LOGGED)
    evaluated = result.evaluated
    if rounds is not None:
        evaluated = [row for row in evaluated if row["round"] <= rounds]
    if not evaluated:
        raise ValueError(f"{path} has no evaluated round yet; run `fedloom resume {path}` first.")
    notes = [f"The run diverged: {result.diverged}"] if result.diverged else []
    if logged:
        points = [Point(row["round"], row[LOGGED[0]], row[LOGGED[1]]) for row in evaluated]
        shown = [points[i] for i in _spaced(len(points), 2 * POINTS)]
        top = max(points, key=lambda p: p.B)
        shown = sorted({p.round: p for p in [*shown, top]}.values(), key=lambda p: p.round)
        return Along(result, tuple(shown), "log", ("From the metrics in the run's log; nothing was repeated.", *notes))
    points, more = _repeated(result, [row["round"] for row in evaluated], say)
    return Along(result, tuple(points), "repeated", (*more, *notes))


def _read(path: pathlib.Path) -> Result:
    if (path / STUDY).exists():
        inside = sorted(str(file.parent) for file in path.rglob(CONFIG))
        such = f", such as {inside[0]}" if inside else ""
        raise ValueError(f"{path} is a study of several runs; choose one run inside it{such}.")
    result = read(path)
    if result.experiment.lost:
        raise ValueError(result.experiment.lost)
    return result


def _spaced(n: int, most: int) -> list[int]:
    """Places among n, the first and the last too, denser at the start."""
    return sorted({0, *(int(i) - 1 for i in np.unique(np.round(np.geomspace(1, n, min(most, n)))))})


def _repeated(result: Result, rounds: list[int], say: Callable[[str], None]) -> tuple[list[Point], list[str]]:
    e = result.experiment
    wanted = {rounds[i] for i in _spaced(len(rounds), POINTS)}
    checked = e.check()
    plan, same = _plan(result)
    run = checked.run._replace(plan=plan)
    seconds = f", which took {result.seconds:.0f} s" if result.seconds else ""
    say(f"repeating {result.name}, seed {e.seed}{seconds}")
    engine = synchronous if run.buffer is None else asynchronous
    points, notes = [_point(checked, 0, checked.loaded.w, e.seed)], []
    last = None
    try:
        for record in engine.run_records(run, min(e.evaluate_every, e.rounds)):
            if record.round in wanted:
                points.append(_point(checked, record.round, record.w, e.seed))
                last = record
            if record.round >= rounds[-1]:
                break
    except NonFiniteUpdate as error:
        notes.append(str(error))
    words = f"The log has no gradients, so the run was repeated and measured after {len(points) - 1} of its rounds."
    notes.insert(0, words)
    if result.w is not None and last is not None and last.round == result.rows[-1]["round"]:
        old, new = np.asarray(result.w), np.asarray(last.w)
        if np.array_equal(old, new):
            notes.append("It ended with the very model of the run's checkpoint.")
        else:
            off = float(np.linalg.norm(old - new)) / max(float(np.linalg.norm(old)), 1e-300)
            why = "" if same else " This machine has another number of devices than the run had."
            notes.append(f"It ended near the model of the run's checkpoint, {off:.1e} of its norm away.{why}")
    if checked.loaded.federation.on_host:
        notes.append("L is unknown: a model outside JAX has no second derivatives here.")
    elif math.isnan(points[0].L):
        notes.append("L was left out: it would take too long for this task at so many points.")
    return points, notes


def _plan(result: Result) -> tuple[Plan | None, bool]:
    """The plan of the run, if this machine can have it: the same bits need the same plan."""
    noted: Any = result.about.get("plan")
    if not isinstance(noted, dict) or noted.get("devices", 1) > jax.local_device_count():
        return None, noted is None
    return Plan(**noted), True


def _point(checked: Checked, t: int, w: Any, seed: int) -> Point:
    federation = checked.loaded.federation
    p = np.asarray(federation.weights, float)
    w = jnp.asarray(w, checked.loaded.w.dtype)
    with left_out():  # kernels in C++ have no second derivatives
        of = differences(federation, p, w)
        apart = math.sqrt(float(np.sum(of.squares)))
        B = math.sqrt(1 + (apart / of.norm) ** 2) if of.norm > 0 else (math.inf if apart > 0 else 1.0)
        work = float(sizes_of(federation).sum()) * w.size
        L = math.nan
        if not federation.on_host and work <= EVALUATION:
            effort = 1.0 if work <= ALL else 0.2
            L = float(np.max(spectrum(federation, p, w, of.distance, seed, effort).largest))
        loss = float(federation.loss(w))
    return Point(t, of.norm, B, float(of.distance.max()), apart, L, loss)
