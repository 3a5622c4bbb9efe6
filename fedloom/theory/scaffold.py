"""SCAFFOLD (Karimireddy et al., ICML 2020, arXiv:1910.06378), theorem III. Recalled: the paper's text is not at hand.

N clients, S of them in a round, K local steps of size eta_l (solver.lr), server step eta_g >= 1 (algorithm.lr). The
theorem names orders; with e = K eta_g eta_l it asks for

    convex           e <= 1/(81 L)
    strongly convex  e <= min(1/(81 L), S/(15 mu N))
    nonconvex        e <= (S/N)^(2/3) / (24 L)

The bounds of the first two are from its lemma on the progress of one round, which for memories c_k = 0 at the start is

    E |w+ - w*|^2 + 9 N e^2/S C+ <= (1 - mu e/2) (|w - w*|^2 + 9 N e^2/S C) - e (f(w) - f*)
                                    + 12 e^2/(K S) (1 + S/eta_g^2) sigma_l^2,            C_0 = mean_k |grad F_k(w*)|^2

so that at the mean of w_0, ..., w_{T-1}, with weights x^-(t+1) for x = 1 - mu e/2 (equal ones if mu = 0), f - f* is
at most

    (|w_0 - w*|^2 + 9 N e^2/S C_0) / (e W) + 12 e/(K S) (1 + S/eta_g^2) sigma_l^2,         W the sum of the weights

which was added up here. They hold in every test; the constants 81, 15, 24, 9 and 12 are from memory, and the steps that
are suggested for SCAFFOLD and its rows in the table of slacks depend on them. The nonconvex bound is left out (NaN):
its proof rests on lemma 17, on the lag of the control variates, which FedDyn's appendix C.3 disputes.
"""

import math
from typing import Any

from fedloom.algorithms.scaffold import Scaffold
from fedloom.theory.assumptions import (
    BOUNDED_NOISE,
    CONVEX,
    DIFFERENCES_AT_OPTIMUM,
    EQUAL_WEIGHTS,
    INDEPENDENT,
    LOCAL_STEPS,
    NO_REGULARIZER,
    SMOOTH,
    STRONGLY_CONVEX,
    SYNCHRONOUS,
    WITHOUT_REPLACEMENT,
    at_optimum,
)
from fedloom.theory.constant import Constants
from fedloom.theory.theorem import Left, Range, Setting, Steps, Theorem

CITATION = "Karimireddy et al., ICML 2020, arXiv:1910.06378"
COMMON = (
    SMOOTH,
    NO_REGULARIZER,
    BOUNDED_NOISE,
    EQUAL_WEIGHTS,
    LOCAL_STEPS,
    INDEPENDENT,
    WITHOUT_REPLACEMENT,
    SYNCHRONOUS,
)
SILENT = "unequal weights, different numbers of local steps, minibatches that are drawn in epochs"


def _step(s: Setting, steps: Steps) -> float:
    return (s.local_steps or 1) * steps["algorithm.lr"] * steps["solver.lr"]


def _most(c: Constants, s: Setting, kind: str) -> float:
    """Of K eta_g eta_l."""
    convex = 1 / (81 * c.L.value)
    if kind == "convex":
        return convex
    if kind == "strongly convex":
        return min(convex, 1 / (15 * c.mu.value * s.scarcity(c))) if c.mu.value else convex
    return s.scarcity(c) ** (-2 / 3) / (24 * c.L.value)


def _allowed(c: Constants, s: Setting, kind: str) -> dict[str, Range]:
    product = _most(c, s, kind) / (s.local_steps or 1)
    return {"algorithm.lr": Range(1, math.inf), "algorithm.lr * solver.lr": Range(0, product)}


def _recommended(c: Constants, s: Setting, kind: str) -> dict[str, Any]:
    """eta_g = sqrt(S), which balances the noise's two terms, and the largest eta_l."""
    eta = math.sqrt(s.taking_part(c))
    return {"algorithm.lr": eta, "solver.lr": _most(c, s, kind) / ((s.local_steps or 1) * eta)}


def _start(c: Constants, s: Setting, e: float) -> float:
    return c.D.value**2 + 9 * s.scarcity(c) * e**2 * at_optimum(c)


def _noise(c: Constants, s: Setting, steps: Steps, e: float) -> float:
    n = s.taking_part(c)
    return 12 * e / ((s.local_steps or 1) * n) * (1 + n / steps["algorithm.lr"] ** 2) * c.sigma_l.value**2


def _bound_convex(t: int, c: Constants, s: Setting, steps: Steps) -> float:
    e = _step(s, steps)
    return _start(c, s, e) / (e * t) + _noise(c, s, steps, e)


def _bound_strongly_convex(t: int, c: Constants, s: Setting, steps: Steps) -> float:
    e = _step(s, steps)
    keep = 1 - c.mu.value * e / 2
    weights = (keep**-t - 1) / (1 - keep)  # the sum of keep^-(i+1) for i < t
    return _start(c, s, e) / (e * weights) + _noise(c, s, steps, e)


def _ratio(c: Constants, s: Setting, steps: Steps) -> float:
    return 1 / (1 - c.mu.value * _step(s, steps) / 2)


MEAN = Left("f(mean of w_0 .. w_{T-1}) - f*, in expectation", "gap", "average")

CONVEX_CASE = Theorem(
    name="SCAFFOLD, theorem III (convex)",
    citation=f"{CITATION}, theorem III",
    algorithm=Scaffold,
    about="With convex losses the mean model reaches the optimum at the rate 1/T, up to a term of the minibatches.",
    assumptions=(*COMMON, CONVEX, DIFFERENCES_AT_OPTIMUM),
    left=MEAN,
    allowed=lambda c, s: _allowed(c, s, "convex"),
    recommended=lambda c, s, rounds: _recommended(c, s, "convex"),
    bound=_bound_convex,
    reading="recalled",
    silent=SILENT,
)

STRONGLY_CONVEX_CASE = Theorem(
    name="SCAFFOLD, theorem III (strongly convex)",
    citation=f"{CITATION}, theorem III",
    algorithm=Scaffold,
    about="With strongly convex losses a weighted mean of models converges linearly, up to a term of the minibatches.",
    assumptions=(*COMMON, STRONGLY_CONVEX, DIFFERENCES_AT_OPTIMUM),
    left=Left(
        "f(mean of w_0 .. w_{T-1} with weights (1 - mu e/2)^-t) - f*, in expectation", "gap", "average", ratio=_ratio
    ),
    allowed=lambda c, s: _allowed(c, s, "strongly convex"),
    recommended=lambda c, s, rounds: _recommended(c, s, "strongly convex"),
    bound=_bound_strongly_convex,
    reading="recalled",
    silent=SILENT,
)

NONCONVEX_CASE = Theorem(
    name="SCAFFOLD, theorem III (nonconvex)",
    citation=f"{CITATION}, theorem III",
    algorithm=Scaffold,
    about="With smooth losses gradients vanish; the proof is disputed, and there is no bound here.",
    assumptions=COMMON,
    left=Left("mean over t = 0 .. T-1 of E |grad f(w_t)|^2", "gradient", "mean"),
    allowed=lambda c, s: _allowed(c, s, "nonconvex"),
    recommended=lambda c, s, rounds: _recommended(c, s, "nonconvex"),
    bound=lambda t, c, s, steps: math.nan,
    reading="recalled; the bound is left out",
    silent=SILENT,
)

SCAFFOLD = {
    "scaffold-convex": CONVEX_CASE,
    "scaffold-strongly-convex": STRONGLY_CONVEX_CASE,
    "scaffold-nonconvex": NONCONVEX_CASE,
}
