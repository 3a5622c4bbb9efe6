"""A theorem's bound beside its left-hand side in short runs: with the theorem's step sizes, and with one's own.

Work is counted in examples times parameters, of which a core computes some 10^10 in a second.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedloom import cohorts
from fedloom.client import Federation, Solver
from fedloom.data import Split, examples
from fedloom.data.empirical_risk import Examples
from fedloom.data.quadratic import Quadratics
from fedloom.diagnosis.setting import setting_of
from fedloom.diagnosis.verdict import FAILS, Verdict, factors, number, own_steps
from fedloom.engines import NonFiniteUpdate, asynchronous, synchronous
from fedloom.experiments.definition import Checked, Experiment
from fedloom.hyperparameters import brief
from fedloom.problem import Vector
from fedloom.regularizers import none
from fedloom.solvers import GD, SGD, Exact, ToTolerance
from fedloom.tasks import Loaded
from fedloom.theory import Constants, Setting, Theorem
from fedloom.theory.assumptions import EXACT, INEXACT, LOCAL_STEPS
from fedloom.theory.asyncfeddr import ASYNCFEDDR

ROUNDS = 20  # simulated, unless it is said
WORK = 1.2e11  # of all runs with theorems' steps together, and of all runs with the settings' own
EVALUATION = 2.0**30  # of f and its gradient at one point; larger data are sampled
ALL = 2.0**24  # of f and its gradient, up to which they are computed after every round
POINTS = 8  # rounds at which they are computed else
TOLERANCE = 1e-2  # of local solves that should be exact, relative to the gradient at their start
MOST_STEPS = 20  # of such a solve
BETWEEN = (
    f"f and its gradient are computed after at most {POINTS} of the rounds; between these, curves are straight lines."
)


class Curve(NamedTuple):
    """A quantity after t rounds."""

    label: str
    rounds: np.ndarray
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Simulated:
    """The bound of a theorem, and its left-hand side in one run each with the theorem's and with one's own steps."""

    verdict: Verdict  # about the run with the theorem's steps
    experiment: Experiment | None  # that run; None if there is none
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]

    @property
    def promised(self) -> bool:
        """Whether no assumption is known to fail in the run with the theorem's steps."""
        return self.verdict.status != FAILS


def simulated(
    verdict: Verdict, e: Experiment, c: Constants, measure: "Measure", rounds: int | None, work: float, own: int
) -> Simulated:
    """Run with the theorem's step sizes, as long as the work allows, and for `own` rounds with the experiment's own."""
    t = rounds or min(ROUNDS, e.rounds)
    theorem, loaded = verdict.theorem, measure.loaded
    curves: list[Curve] = []
    notes: list[str] = []
    run, s = None, Setting()
    if verdict.name in ASYNCFEDDR:
        notes.append("No bound is computed: it needs the largest delay, which is not known beforehand.")
    else:
        budget = math.inf if rounds else work
        run, s, steps, words, t = _theorems(theorem, e, c, loaded, t, budget)
        notes += words
        if run is not None:
            verdict = dataclasses.replace(verdict, checks=theorem.check(c, s))
            bound = np.array([theorem.bound(i, c, s, steps) for i in range(1, t + 1)])
            if np.isfinite(bound).any():
                curves.append(Curve("bound", np.arange(1, t + 1), bound))
            else:
                notes.append(_no_bound(theorem, bound))
            curve, words = _run("theorem's steps", theorem, run, c, s, steps, measure)
            chosen = ", ".join(f"{name} {number(float(np.max(v)))}" for name, v in steps.items())
            notes = [f"The theorem's steps for {t} rounds: {chosen}.", *notes, *words]
            curves += curve
    more, words = _own(theorem, e, c, measure, own)
    return Simulated(verdict, run, (*curves, *more), tuple(notes + words))


def _no_bound(theorem: Theorem, bound: np.ndarray) -> str:
    if np.isinf(bound).any():
        return "There is no bound with these steps."
    return theorem.about if "left out" in theorem.reading else "There is no bound: some constant in it is unknown."


def own_rounds(found: list[Experiment], loaded: Loaded, work: float) -> list[int]:
    """How many rounds of each experiment are run: equal shares of the work, and none for those that take too much."""
    costs = [_work_of_a_round(e, setting_of(e, Checked(loaded, None, None)), loaded) for e in found]  # type: ignore[arg-type]
    kept = sorted(range(len(found)), key=lambda i: costs[i])
    while kept and work / len(kept) < 2 * costs[kept[-1]]:
        kept.pop()
    share = work / max(len(kept), 1)
    return [int(min(ROUNDS, e.rounds, share / costs[i])) if i in kept else 0 for i, e in enumerate(found)]


def _theorems(
    theorem: Theorem, e: Experiment, c: Constants, loaded: Loaded, t: int, work: float
) -> tuple[Experiment | None, Setting, dict[str, Any], list[str], int]:
    """The experiment as near to the theorem as it can be: plain steps or solves, uniform cohorts, the theorem's steps.

    Also its setting, its step sizes, what there is to say about it, and its number of rounds.
    """
    s = setting_of(e, Checked(loaded, None, None))  # type: ignore[arg-type] # of which only the data are asked
    cohort = e.cohort if _plain(e.cohort) else cohorts.uniform(min(s.cohort or c.clients, c.clients))
    each = float(np.mean(_sizes(loaded))) * loaded.w.size  # the work of a full gradient of a client
    members = c.clients if isinstance(cohort, cohorts.everyone) else cohort.room(c.clients)
    notes = [] if cohort is e.cohort else [f"The run with the theorem's steps draws its cohorts by {brief(cohort)}."]
    notes += ["The run with the theorem's steps has synchronous rounds."] if e.engine == "events" else []
    minimised = EXACT in theorem.assumptions or INEXACT in theorem.assumptions
    K, batch = s.local_steps or 1, getattr(e.solver, "batch_size", None)
    if LOCAL_STEPS in theorem.assumptions:
        one = float(np.mean(np.minimum(batch or np.inf, _sizes(loaded)))) * loaded.w.size
        most = int(min(K, max(work / (t * members * one), 1)))
        if most < K:
            notes.append(f"The run with the theorem's steps makes {most} local steps in place of {K}, to save time.")
        K = most
    shape = dataclasses.replace(
        s,
        cohort=None if isinstance(cohort, cohorts.everyone) else s.cohort,
        local_steps=None if minimised else K,
        inexactness=0.0 if isinstance(loaded.federation, Quadratics) or not minimised else TOLERANCE,
    )
    steps = theorem.recommended(c, shape, t)
    if any(range_.low > range_.high for range_ in theorem.allowed(c, shape).values()):
        return None, s, {}, ["There is no run with the theorem's steps: it allows none here."], t
    if not all(np.all(np.isfinite(v)) and np.all(np.asarray(v) >= 0) for v in steps.values()):
        return None, s, {}, ["There is no run with the theorem's steps: they depend on constants that are unknown."], t
    if minimised:
        solver, passes = _nearly_exact(steps, c, loaded.federation)
        notes.append(f"Local problems of the run with the theorem's steps are solved by {_short(solver)}.")
        t = int(min(t, max(work / (passes * members * each), 2)))
    else:
        lr = float(steps.get("solver.lr", 0.1))
        solver = GD(lr=lr, steps=K) if batch is None else SGD(lr, batch_size=batch, steps=K)
    algorithm = theorem.configured(steps)
    if hasattr(e.algorithm, "g"):
        algorithm = dataclasses.replace(algorithm, g=e.algorithm.g)  # type: ignore[type-var]
    run = _only_run(dataclasses.replace(e, algorithm=algorithm, solver=solver, cohort=cohort), t)
    run = dataclasses.replace(run, engine="simulate", buffer=1, system=None)
    return run, setting_of(run, Checked(loaded, None, None)), steps, notes, t  # type: ignore[arg-type]


def _short(solver: Solver) -> str:
    if isinstance(solver, ToTolerance):
        return (
            f"gradient steps of size {number(float(solver.lr))} until the gradient is {solver.tolerance:g} of the first"  # type: ignore[arg-type]
        )
    return "Newton's method, exactly"


def _plain(rule: cohorts.CohortRule) -> bool:
    covered = (cohorts.everyone, cohorts.uniform, cohorts.seeded_by_round, cohorts.with_replacement, cohorts.by_weight)
    return isinstance(rule, covered)


def _sizes(loaded: Loaded) -> np.ndarray:
    known = loaded.federation.known_sizes
    return np.ones(1, int) if known is None else np.asarray(known)


def _is_small(loaded: Loaded) -> bool:
    """Whether f and its gradient are computed after every round."""
    return float(_sizes(loaded).sum()) * loaded.w.size <= ALL


def _nearly_exact(steps: dict[str, Any], c: Constants, federation: Federation) -> tuple[Solver, float]:
    """The solver that comes closest to minimising local problems, and about how many gradients it takes."""
    if isinstance(federation, Quadratics):
        return Exact(), 1.0
    prox = next((float(np.max(steps[f"algorithm.{n}"])) for n in ("alpha", "mu") if f"algorithm.{n}" in steps), 0.0)
    if "algorithm.eta" in steps:
        prox = 1 / steps["algorithm.eta"]
    kept = min(max(1 - (prox - c.rho.value) / (prox + c.L.value), 0.01), 0.99)  # of the gradient, in a step
    most = min(math.ceil(math.log(TOLERANCE) / math.log(kept)) + 1, MOST_STEPS)  # rounding or kinks may forbid it
    solver = ToTolerance(TOLERANCE, "relative-gradient", lr=1 / (c.L.value + prox), max_steps=most)
    return solver, most + 1.0


def _only_run(e: Experiment, rounds: int) -> Experiment:
    """Without what is evaluated besides."""
    return dataclasses.replace(e, rounds=rounds, evaluate=None, until=None, own_models=False)


def _own(theorem: Theorem, e: Experiment, c: Constants, measure: "Measure", t: int) -> tuple[list[Curve], list[str]]:
    """The experiment as it is, for t rounds."""
    s = setting_of(e, Checked(measure.loaded, None, None))  # type: ignore[arg-type]
    if t == 0:
        examples = _work_of_a_round(e, s, measure.loaded) / measure.loaded.w.size
        return [], [
            f"The setting's own steps are not run, to save time: a round computes the gradients of {examples:,.0f} "
            "examples. Choose a number of rounds, and they are."
        ]
    needed = theorem.allowed(c, s), theorem.recommended(c, s, t)
    steps = own_steps(e, factors([*needed[0], *needed[1]]))
    if theorem.left.ratio is not None and not all(n in steps for n in factors(needed[1])):
        return [], ["The left-hand side has weights that the setting's own steps do not determine."]
    return _run("setting's steps", theorem, _only_run(e, t), c, s, steps, measure)


def _work_of_a_round(e: Experiment, s: Setting, loaded: Loaded) -> float:
    """About."""
    sizes = _sizes(loaded)
    members = min(s.cohort or loaded.federation.clients, loaded.federation.clients)
    batch = getattr(e.solver, "batch_size", None)
    if isinstance(e.solver, Exact):
        return float(members * np.mean(sizes) * loaded.w.size**2)
    if s.local_steps is None:
        each = float(np.mean(sizes)) * MOST_STEPS
    else:
        number = np.asarray(e.solver.steps_for(sizes, int(sizes.max()), 1.0))  # type: ignore[attr-defined]
        each = float(np.mean(number * np.minimum(batch or np.inf, sizes)))
    return members * each * loaded.w.size


def _run(
    label: str, theorem: Theorem, e: Experiment, c: Constants, s: Setting, steps: dict[str, Any], measure: "Measure"
) -> tuple[list[Curve], list[str]]:
    """The left-hand side along a run."""
    checked = e.check()
    engine = synchronous if checked.run.buffer is None else asynchronous
    points, notes, unsolved, worst = [np.asarray(checked.loaded.w)], [], 0, 0.0
    try:
        for record in engine.run_records(checked.run):
            points.append(theorem.left.points(record, steps))
            unsolved, worst = unsolved + record.unsolved, max(worst, record.residual or 0.0)
    except NonFiniteUpdate as error:
        notes.append(f"With the {label} the run diverged: {error}")
    if unsolved:
        notes.append(f"With the {label}, {unsolved} local solves ended less exact, the worst at {worst:.2g}.")
    if len(points) < 2:
        return [], notes
    value = measure.of(theorem.left.value, e)
    with np.errstate(over="ignore", invalid="ignore"):
        values, _ = theorem.left.curve(np.stack(points)[None], value, c, s, steps)
    return [Curve(label, np.arange(1, len(values) + 1), values)], notes


@dataclasses.dataclass(frozen=True)
class Measure:
    """f - f* and squared gradients at points; on a sample of each client's examples, if there are many."""

    loaded: Loaded
    federation: Federation  # that is evaluated
    gap: float
    notes: tuple[str, ...]

    @classmethod
    def on(cls, loaded: Loaded, c: Constants, seed: int) -> "Measure":
        federation = loaded.federation
        sizes = _sizes(loaded)
        share = EVALUATION / (float(sizes.sum()) * loaded.w.size)
        if not isinstance(federation, Examples) or share >= 1 or federation.on_host or loaded.data is None:
            return cls(loaded, federation, c.gap.value, () if _is_small(loaded) else (BETWEEN,))
        split, rng = loaded.data.split, np.random.default_rng(seed)
        rows = [split.rows(k) for k in range(split.clients)]
        kept = [rng.permutation(own)[: max(1, round(len(own) * share))] for own in rows]
        some = Split(np.concatenate(kept), np.array([len(own) for own in kept]))
        smaller = examples(federation.store, some, federation.loss_of, federation.unravel, federation.weights)
        words = (
            f"f and its gradient are those of {len(some.order):,} of {int(sizes.sum()):,} training examples, some of "
            "each client; squared gradients are larger there, by about the variance of a mean of so many."
        )
        return cls(loaded, smaller, c.gap.value, (words, BETWEEN))

    def of(self, kind: str, e: Experiment) -> Callable[[np.ndarray], np.ndarray]:
        """The function of points [1, T, d] that `Left.curve` takes."""
        first = float(self.federation.loss(self.loaded.w)) if kind == "gap" else 0.0
        at = self._gap(first) if kind == "gap" else self._gradient(e)
        whole = _is_small(self.loaded)

        def value(points: np.ndarray) -> np.ndarray:
            rounds = np.arange(points.shape[1])
            seen = rounds if whole else np.unique(np.round(np.geomspace(1, len(rounds), POINTS)).astype(int)) - 1
            found = [at(jnp.asarray(points[0, t], self.loaded.w.dtype)) for t in seen]
            return np.interp(rounds, seen, found)[None]  # between them, a straight line

        return value

    def _gap(self, first: float) -> Callable[[Vector], float]:
        return lambda w: float(self.federation.loss(w)) - first + self.gap

    def _gradient(self, e: Experiment) -> Callable[[Vector], float]:
        g, eta = getattr(e.algorithm, "g", none()), getattr(e.algorithm, "eta", 1.0)

        def square(w: Vector) -> float:
            gradient = self.federation.grad(w)
            mapping = gradient if g == none() else (w - g.prox(w - eta * gradient, eta)) / eta
            return float(jnp.sum(mapping**2))

        return square
