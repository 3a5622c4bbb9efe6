"""FedDyn (Acar et al., ICLR 2021, arXiv:2111.04263): theorems 1 to 4, and theorem 5 about FedDynOneGD.

Theorem 1 names orders; theorems 2, 3 and 4 have its parts with constants, for every large enough alpha, and theorem 1
is each of them with the alpha that is recommended here. Theorem 5 names orders for FedDynOneGD; the constants are those
of its proof (equations 18 and 20). m clients, P of them in a round, gamma_t = w_t + h_t / alpha, gamma_0 = w_0:

    2, convex           f(mean gamma) - f* <= 1/T (10 alpha D^2 + 100 m/P S / alpha)                 alpha >= 25 L
    3, strongly convex  f(weighted mean) - f* <= r^-(T-1) (20 alpha D^2 + 400 m/P S / alpha)
                        r = 1 + mu/alpha, weights r^t                              alpha >= max(5 m/P mu, 30 L)
    4, nonconvex        mean |grad f(gamma)|^2 <= 1/T (3 alpha gap + 30 L m/P H / alpha)          alpha >= 20 L m/P
    5, convex           1/T (alpha D^2 + 10 m/P S / alpha)                                           alpha >= 50 L
       strongly convex  1/R (the same), r = 1 + mu/(3 alpha), R = 1 + r + ... + r^(T-1)
                                                                                  alpha >= max(50 m/P mu, 50 L)
       nonconvex        1/T (4 alpha gap + 50 L m/P H / alpha)                                    alpha >= 50 L m/P

    D = |w_0 - w*|,  S = mean_k |grad F_k(w*)|^2,  H = mean_k |grad F_k(w_0)|^2,  all expectations over cohorts

Damages: fractions were flattened (r, beta and the conditions on alpha); they were put together from the proofs, whose
lemmas are added up again in tests/test_theorems.py and give every constant above, with room to spare. Derived: theorem
4 has L^2 mean_k |theta_k^0 - theta^0|^2 for H, where theta_k^0 is a point at which grad F_k is 0, since the memories
start at 0. Lemmas 11 and 12 hold word for word with |g_k - grad F_k(gamma)|^2 in place of L^2 |theta_k - gamma|^2;
what they give, H, is never larger, and needs no theta_k^0 to exist.
"""

import math

from fedloom.algorithms.feddyn import FedDyn, FedDynOneGD
from fedloom.theory.assumptions import (
    CONVEX,
    DIFFERENCES_AT_OPTIMUM,
    EQUAL_WEIGHTS,
    EXACT,
    NO_REGULARIZER,
    SMOOTH,
    STRONGLY_CONVEX,
    SYNCHRONOUS,
    WITHOUT_REPLACEMENT,
    at_optimum,
    at_start,
)
from fedloom.theory.constant import Constants
from fedloom.theory.theorem import Left, Range, Setting, Steps, Theorem

CITATION = "Acar et al., ICLR 2021, arXiv:2111.04263"
COMMON = (SMOOTH, NO_REGULARIZER, EQUAL_WEIGHTS, WITHOUT_REPLACEMENT, SYNCHRONOUS)
SILENT = "minibatches and inexact local solves, unequal weights, the model w itself (the bound is about w + h/alpha)"


def _from(alpha: float) -> dict[str, Range]:
    return {"algorithm.alpha": Range(alpha, math.inf)}


def _ratio(c: Constants, s: Setting, steps: Steps) -> float:
    return 1 + c.mu.value / steps["algorithm.alpha"]


def _ratio_onegd(c: Constants, s: Setting, steps: Steps) -> float:
    return 1 + c.mu.value / (3 * steps["algorithm.alpha"])


def _weights(t: int, r: float) -> float:
    """1 + r + ... + r^(t-1)."""
    return math.expm1(t * math.log(r)) / (r - 1) if r > 1 else t * r  # r > 1 is false for NaN, too


AVERAGE = Left("f(mean of gamma_0 .. gamma_{T-1}) - f*, in expectation", "gap", "average", gamma=True)
GRADIENTS = Left("mean over t = 0 .. T-1 of E |grad f(gamma_t)|^2", "gradient", "mean", gamma=True)
WEIGHTED = "f(mean of gamma_0 .. gamma_{T-1} with weights r^t) - f*, in expectation"


def _sum(c: Constants, s: Setting, steps: Steps, first: float, second: float) -> float:
    alpha = steps["algorithm.alpha"]
    return first * alpha * c.D.value**2 + second * s.scarcity(c) / alpha * at_optimum(c)


def _sum_nonconvex(c: Constants, s: Setting, steps: Steps, first: float, second: float) -> float:
    alpha = steps["algorithm.alpha"]
    return first * alpha * c.gap.value + second * c.L.value * s.scarcity(c) / alpha * at_start(c)


CONVEX_CASE = Theorem(
    name="FedDyn, theorem 2 (convex)",
    citation=f"{CITATION}, theorems 1 and 2",
    algorithm=FedDyn,
    about="With convex losses the mean of the cohorts' models reaches the optimum at the rate 1/T.",
    assumptions=(*COMMON, CONVEX, EXACT, DIFFERENCES_AT_OPTIMUM),
    left=AVERAGE,
    allowed=lambda c, s: _from(25 * c.L.value),
    recommended=lambda c, s, rounds: {"algorithm.alpha": 30 * c.L.value * math.sqrt(s.scarcity(c))},
    bound=lambda t, c, s, steps: _sum(c, s, steps, 10, 100) / t,
    reading="as printed",
    silent=SILENT,
)

STRONGLY_CONVEX_CASE = Theorem(
    name="FedDyn, theorem 3 (strongly convex)",
    citation=f"{CITATION}, theorems 1 and 3",
    algorithm=FedDyn,
    about="With strongly convex losses a weighted mean of the cohorts' models reaches the optimum at a linear rate.",
    assumptions=(*COMMON, STRONGLY_CONVEX, EXACT, DIFFERENCES_AT_OPTIMUM),
    left=Left(WEIGHTED + ", r = 1 + mu/alpha", "gap", "average", gamma=True, ratio=_ratio),
    allowed=lambda c, s: _from(max(5 * s.scarcity(c) * c.mu.value, 30 * c.L.value)),
    recommended=lambda c, s, rounds: {"algorithm.alpha": max(5 * s.scarcity(c) * c.mu.value, 30 * c.L.value)},
    bound=lambda t, c, s, steps: _sum(c, s, steps, 20, 400) / _ratio(c, s, steps) ** (t - 1),
    reading="recovered: fractions",
    silent=SILENT,
)

NONCONVEX_CASE = Theorem(
    name="FedDyn, theorem 4 (nonconvex)",
    citation=f"{CITATION}, theorems 1 and 4",
    algorithm=FedDyn,
    about="With smooth losses the gradients at the means of the cohorts' models vanish at the rate 1/T.",
    assumptions=(*COMMON, EXACT),
    left=GRADIENTS,
    allowed=lambda c, s: _from(20 * c.L.value * s.scarcity(c)),
    recommended=lambda c, s, rounds: {"algorithm.alpha": 30 * c.L.value * s.scarcity(c)},
    bound=lambda t, c, s, steps: _sum_nonconvex(c, s, steps, 3, 30) / t,
    reading="recovered; the second term derived with gradients at w_0 in place of distances to stationary points",
    silent=SILENT,
)

ONEGD_CONVEX = Theorem(
    name="FedDynOneGD, theorem 5 (convex)",
    citation=f"{CITATION}, theorem 5 and its proof, C.2.2",
    algorithm=FedDynOneGD,
    about="One gradient step in place of the local minimisation keeps the rate 1/T.",
    assumptions=(*COMMON, CONVEX, DIFFERENCES_AT_OPTIMUM),
    left=AVERAGE,
    allowed=lambda c, s: _from(50 * c.L.value),
    recommended=lambda c, s, rounds: {"algorithm.alpha": 50 * c.L.value * math.sqrt(s.scarcity(c))},
    bound=lambda t, c, s, steps: _sum(c, s, steps, 1, 10) / t,
    reading="recovered: constants from the proof",
    silent=SILENT,
)

ONEGD_STRONGLY_CONVEX = Theorem(
    name="FedDynOneGD, theorem 5 (strongly convex)",
    citation=f"{CITATION}, theorem 5 and its proof, equation 18",
    algorithm=FedDynOneGD,
    about="One gradient step in place of the local minimisation keeps the linear rate.",
    assumptions=(*COMMON, STRONGLY_CONVEX, DIFFERENCES_AT_OPTIMUM),
    left=Left(WEIGHTED + ", r = 1 + mu/(3 alpha)", "gap", "average", gamma=True, ratio=_ratio_onegd),
    allowed=lambda c, s: _from(50 * max(s.scarcity(c) * c.mu.value, c.L.value)),
    recommended=lambda c, s, rounds: {"algorithm.alpha": 50 * max(s.scarcity(c) * c.mu.value, c.L.value)},
    bound=lambda t, c, s, steps: _sum(c, s, steps, 1, 10) / _weights(t, _ratio_onegd(c, s, steps)),
    reading="recovered: constants from the proof",
    silent=SILENT,
)

ONEGD_NONCONVEX = Theorem(
    name="FedDynOneGD, theorem 5 (nonconvex)",
    citation=f"{CITATION}, theorem 5 and its proof, equation 20",
    algorithm=FedDynOneGD,
    about="One gradient step in place of the local minimisation keeps the rate 1/T of squared gradients.",
    assumptions=COMMON,
    left=GRADIENTS,
    allowed=lambda c, s: _from(50 * c.L.value * s.scarcity(c)),
    recommended=lambda c, s, rounds: {"algorithm.alpha": 50 * c.L.value * s.scarcity(c)},
    bound=lambda t, c, s, steps: _sum_nonconvex(c, s, steps, 4, 50) / t,
    reading="recovered: constants from the proof",
    silent=SILENT,
)

FEDDYN = {
    "feddyn-2": CONVEX_CASE,
    "feddyn-3": STRONGLY_CONVEX_CASE,
    "feddyn-4": NONCONVEX_CASE,
    "feddyn-5-convex": ONEGD_CONVEX,
    "feddyn-5-strongly-convex": ONEGD_STRONGLY_CONVEX,
    "feddyn-5-nonconvex": ONEGD_NONCONVEX,
}
