"""How far practice is from theory: the longest step that does not diverge, by the longest that a theorem allows.

Not to diverge is less than to converge: a run counts if f - f* ends below its start and does not grow. Steps that
theorems allow are so short that a short run with a few times as much would not come near the optimum, so more cannot
be asked. It says little about methods that normalise their steps, FedAdagrad and FedAdam: they stay near the start
whatever the clients' step size is, and what is found for them depends on the details of this rule.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedloom import cohorts
from fedloom.algorithms.fedavg import FedAvg
from fedloom.algorithms.feddane import FedDANE
from fedloom.algorithms.feddr import FedDR
from fedloom.algorithms.feddyn import FedDyn, FedDynOneGD
from fedloom.algorithms.fedopt import FedAdagrad, FedAdam
from fedloom.algorithms.fedprox import FedProx
from fedloom.algorithms.scaffold import Scaffold
from fedloom.client import Solver
from fedloom.cohorts import CohortRule
from fedloom.data.quadratic import Quadratics, quadratics
from fedloom.engines import events, simulate
from fedloom.engines.records import NonFiniteUpdate
from fedloom.solvers import GD, Exact
from fedloom.systems import Delays
from fedloom.theory.constant import Constants, Measured
from fedloom.theory.theorem import HOLDS, Setting, Steps, Theorem

# What is the step size of a method, and whether a larger number is a larger step.
STEP: dict[type, tuple[str, int]] = {
    FedDyn: ("algorithm.alpha", -1),
    FedDynOneGD: ("algorithm.alpha", -1),
    FedDANE: ("algorithm.mu", -1),
    FedProx: ("algorithm.mu", -1),
    FedDR: ("algorithm.eta", 1),
    FedAvg: ("solver.lr", 1),
    Scaffold: ("solver.lr", 1),
    FedAdagrad: ("solver.lr", 1),
    FedAdam: ("solver.lr", 1),
}
MOST = 1e4  # no longer steps than so many times the allowed one are tried


class Slack(NamedTuple):
    """Two values of the hyperparameter `name`; `ratio` is that of the steps, MOST if none diverges."""

    name: str
    allowed: float
    largest: float
    ratio: float


def scaled(theorem: Theorem, steps: Steps, factor: float) -> dict[str, Any]:
    """With a step `factor` times as long."""
    name, sign = STEP[theorem.algorithm]
    return {**steps, name: steps[name] * factor**sign}


def slack(
    theorem: Theorem, c: Constants, s: Setting, rounds: int, converges: Callable[[Steps], bool], precision: float = 1.1
) -> Slack:
    """The slack of a theorem's step size.

    Args:
        theorem, c, s, rounds: where its step sizes are asked for.
        converges: whether a run with these step sizes does. Steps between one that does and one that does not are
            tried until they are known to a factor of `precision`.
    """
    steps = theorem.recommended(c, s, rounds)
    # Bounds of some theorems depend on the number of rounds, and so does then what they allow.
    permits = _permits(theorem, c, s, rounds)
    allowed = _edge(lambda x: permits(scaled(theorem, steps, x)), 1.0, 1.001)
    largest = _edge(lambda x: converges(scaled(theorem, steps, x)), allowed, precision)
    name, _ = STEP[theorem.algorithm]
    ends = [float(np.mean(scaled(theorem, steps, x)[name])) for x in (allowed, largest)]
    return Slack(name, ends[0], ends[1], largest / allowed)


def _permits(theorem: Theorem, c: Constants, s: Setting, rounds: int) -> Callable[[Steps], bool]:
    def permits(steps: Steps) -> bool:
        return theorem.permits(c, s, steps) and not math.isinf(theorem.bound(rounds, c, s, steps))

    return permits


def _edge(good: Callable[[float], bool], start: float, precision: float) -> float:
    """The largest x >= start with good(x), found by quadrupling and halving; `start` itself is taken to be good."""
    low, high = start, start * 4
    while high < MOST * start and good(high):
        low, high = high, high * 4
    if high >= MOST * start:
        return MOST * start
    while high / low > precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def converging(
    theorem: Theorem,
    federation: Quadratics,
    w: np.ndarray,
    solver: Callable[[Steps], Solver],
    rounds: int,
    cohort: CohortRule | None = None,
    tau: int | None = None,
) -> Callable[[Steps], bool]:
    """Whether f - f* is below its start in all of the last quarter of a run, and not ten times what it was before."""

    def converges(steps: Steps) -> bool:
        problem = (theorem.configured(steps), federation, solver(steps), w, rounds)
        if tau is None:
            run = simulate(*problem, cohort=cohort, chunk=rounds // 20)
        else:
            run = events(*problem, system=Delays(tau=tau), chunk=rounds // 20)
        try:
            losses = [float(federation.loss(record.w)) for record in run]
        except NonFiniteUpdate:
            return False
        best, start = float(federation.loss(jnp.asarray(federation.optimum()))), float(federation.loss(jnp.asarray(w)))
        gaps = (np.array(losses) - best) / (start - best)
        late = gaps[-5:].max()
        return bool(np.all(np.isfinite(gaps)) and late < 1 and (late < 1e-9 or late <= 10 * gaps[5:-5].max()))

    return converges


def quadratic_constants(federation: Quadratics, w: np.ndarray) -> Constants:
    """Of quadratics, in closed form: all that exist for all w. sigma_g_mean is the larger of that at w and at w*."""
    p, a, b = (np.asarray(x, float) for x in (federation.weights, federation.hessians, federation.centers))
    star, mean = federation.optimum(), np.einsum("k,kij->ij", p, a)
    eigenvalues, own = np.linalg.eigvalsh(a), np.linalg.eigvalsh(mean)

    def spread(x: np.ndarray) -> float:
        each = np.einsum("kij,kj->ki", a, x - b)
        return float(np.sqrt(p @ np.sum((each - p @ each) ** 2, 1)))

    inverse, squares = np.linalg.inv(mean), np.einsum("k,kij,kjl->il", p, a, a)
    differ = spread(star) > 1e-9
    low = float(eigenvalues.min())
    return Constants(
        weights=p,
        dimension=b.shape[1],
        L=Measured(float(np.abs(eigenvalues).max())),
        L_k=np.abs(eigenvalues).max(1),
        L_f=Measured(float(np.abs(own).max())),
        mu=Measured(max(low, 0.0)),
        rho=Measured(max(-low, 0.0)),
        sigma_l=Measured(0.0),
        sigma_g=Measured(math.inf),  # gradients of quadratics with different Hessians differ without bound
        sigma_g_mean=Measured(max(spread(star), spread(w))),
        B=Measured(math.inf if differ else float(np.sqrt(np.linalg.eigvalsh(inverse @ squares @ inverse)[-1]))),
        D=Measured(float(np.linalg.norm(w - star))),
        gap=Measured(float((w - star) @ mean @ (w - star) / 2)),
        at_optimum=True,
        everywhere=frozenset({"L", "L_f", "mu", "rho", "sigma_l", "sigma_g", "B", "D", "gap"}),
    )


class Row(NamedTuple):
    """One line of the table."""

    theorem: str
    losses: str
    cohort: str
    slack: Slack


def table(theorems: dict[str, Theorem], rounds: int = 120, clients: int = 8, drawn: int = 3) -> Iterator[Row]:
    """The slack of every theorem on small quadratics, with everyone and with cohorts, where it applies.

    Losses are convex where the theorem asks for it, else saddles with a convex mean; their minima differ, or they have
    one minimum where the theorem needs a bounded dissimilarity B. Gradients are exact. Where a theorem bounds
    differences or gradients for all w, its constants are those of the ball around w* in which the run starts.
    """
    for name, theorem in theorems.items():
        if "corollary" in theorem.name:  # the same with special steps
            continue
        federation, kind = _losses(theorem, clients)
        w = federation.optimum() + np.linspace(-1.5, 1.5, 4)
        c = _in_ball(quadratic_constants(federation, w), federation, w)
        k = 5 if STEP[theorem.algorithm][0] == "solver.lr" else None

        def solver(steps: Steps, k: int | None = k) -> Solver:
            return Exact() if k is None else GD(lr=float(steps["solver.lr"]), steps=k)

        for label, s, rule in _cohorts(theorem, clients, drawn, k):
            tau = s.staleness or None
            if theorem.applies(c, s) == HOLDS:
                long = 3 * rounds if tau else rounds  # an update by one client is less than a round
                converges = converging(theorem, federation, w, solver, long, rule, tau)
                yield Row(name, kind, label, slack(theorem, c, s, long, converges))


def _cohorts(theorem: Theorem, clients: int, drawn: int, k: int | None) -> list[tuple[str, Setting, CohortRule | None]]:
    if "async" in theorem.name:
        return [(f"one, {tau} late", Setting(1, staleness=tau), None) for tau in (2, 6)]
    some: tuple[str, Setting, CohortRule | None]
    everyone = ("everyone", Setting(local_steps=k), None)
    label = f"{drawn} of {clients}"
    if "(with replacement)" in theorem.name or theorem.algorithm is FedProx:
        some = (label, Setting(drawn, replacement=True, local_steps=k), cohorts.with_replacement(drawn))
    else:
        some = (label, Setting(drawn, local_steps=k), cohorts.uniform(drawn))
    return [some] if "replacement)" in theorem.name else [everyone, some]


def _losses(theorem: Theorem, clients: int) -> tuple[Quadratics, str]:
    asked = {a.sentence for a in theorem.assumptions}
    made = quadratics(clients=clients, dimension=4, seed=1, condition=3.0)
    hessians, centers = np.asarray(made.hessians), np.asarray(made.centers)
    kind = "strongly convex" if any("strongly convex" in x for x in asked) else "convex"
    if not any("convex" in x for x in asked):
        directions = np.random.default_rng(0).normal(size=(clients, 4))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        saddle = np.einsum("ki,kj->kij", directions, directions)
        hessians, kind = hessians - 0.6 * saddle, "saddles"
    if any("B^2" in x for x in asked):
        centers = np.broadcast_to(centers[:1], centers.shape)
        hessians = 0.8 * np.eye(4) + 0.2 * np.asarray(made.hessians)
        if kind == "saddles" and theorem.algorithm is not FedProx:  # whose cohorts would have to be larger
            hessians -= saddle
        kind = "one minimum" if kind == "convex" or theorem.algorithm is FedProx else "saddles, one minimum"
    return Quadratics(hessians, centers, np.full(clients, 1 / clients)), kind


def _in_ball(c: Constants, federation: Quadratics, w: np.ndarray) -> Constants:
    """With sigma_g and G as the largest in the ball around w* with w on its surface."""
    a, b, star = np.asarray(federation.hessians), np.asarray(federation.centers), federation.optimum()
    each, radius = np.einsum("kij,kj->ki", a, star - b), float(np.linalg.norm(w - star))
    apart = np.linalg.norm(each, axis=1) + np.linalg.norm(a - a.mean(0), ord=2, axis=(1, 2)) * radius
    largest = np.abs(each).max() + np.linalg.norm(a, axis=2).max() * radius
    return dataclasses.replace(
        c,
        sigma_g=Measured(float(apart.max())),
        sigma_g_mean=Measured(float(np.sqrt(np.mean(apart**2)))),
        G=Measured(float(largest)),
        everywhere=c.everywhere | {"sigma_g", "G"},
    )
