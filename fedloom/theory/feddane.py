"""FedDANE (Li et al., Asilomar 2019, arXiv:2001.01920): theorems 3 and 5, corollary 4, theorem 7 (and 6).

Each is a sufficient decrease, E f(w_t) <= f(w_{t-1}) - rho |grad f(w_{t-1})|^2. Added up over rounds it is a bound,

    mean over t < T of E |grad f(w_t)|^2 <= (f(w_0) - f*) / (rho T)                                     (theorem 6)

    3, convex     rho = (2 - 3g)/(2 mu) - (2L(1+g)^2 + 3L)/(2 mu^2) - (B^2 - 1) ((L(1+g)^2 + L)/mu^2 + g/mu)
    4             mu = 5 L B^2 and g = 0: rho = (3 - 1/(2 B^2)) / (25 L B^2)
    5, nonconvex  with M = mu - lambda > 0, where lambda I + Hessian of F_k >= 0:
                  rho = 1/mu - 3g/(2M) - L(1+g)^2/M^2 - 3L/(2 mu M) - (B^2 - 1) (L(1+g)^2/M^2 + L/(mu M) + g/M)
    7, own mu_k   rho = mean_k [1/mu_k - 3g/(2 mu_k) - l(1+g)^2/mu_k^2 - 3 L_k/(2 mu_k^2)
                                - (B^2 - 1) (l(1+g)^2/mu_k^2 + L_k/mu_k^2 + g/mu_k)]

g is gamma, |w_k - exact solution| <= gamma |exact solution - w|. Theorems 3 and 5 are as printed; corollary 4 has rho
= 3/(25 L B^2) for large B, which is rounded here to what holds for all. Theorem 7 is mended in two places: its proof
uses L_k as the smoothness of f, where l = L_f is needed, and it takes 1/mu_k out of an expectation over cohorts on
which g_t depends too, which needs everyone (or equal mu_k, then it is theorem 3). With clients that differ at w* the
dissimilarity B grows without bound as w comes near it, and the theorems end to apply.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fedloom.algorithms.feddane import FedDANE
from fedloom.theory.assumptions import (
    CONVEX,
    DISSIMILAR,
    EQUAL_WEIGHTS,
    EVERYONE,
    EXACT,
    INEXACT,
    NO_REGULARIZER,
    SMOOTH,
    SYNCHRONOUS,
    own_smoothness,
    rho_positive,
)
from fedloom.theory.constant import Constants
from fedloom.theory.theorem import Assumption, Check, Left, Range, Setting, Steps, Theorem

CITATION = "Li et al., Asilomar 2019, arXiv:2001.01920"
LEFT = Left("mean over t = 0 .. T-1 of E |grad f(w_t)|^2", "gradient", "mean")
SILENT = "clients that differ at the optimum (B is infinite there), the decayed and the pipelined variant"


def _weights(c: Constants, s: Setting) -> Check:
    return Check("holds", "Everyone takes part.") if s.everyone(c) else EQUAL_WEIGHTS.check(c, s)


UNBIASED = Assumption("The cohort's mean gradient is unbiased: everyone, or equal weights.", _weights)
COMMON = (SMOOTH, NO_REGULARIZER, DISSIMILAR, UNBIASED, SYNCHRONOUS)


def rho_nonconvex(mu: float, c: Constants, gamma: float, weak: float) -> float:
    """rho of theorem 5; with weak = lambda = 0 that of theorem 3."""
    L, B2, M, g = c.L.value, c.B.value**2, mu - weak, (1 + gamma) ** 2
    if M <= 0 or math.isinf(mu) or math.isinf(L * B2):
        return -math.inf
    own = 1 / mu - 1.5 * gamma / M - L * g / M**2 - 1.5 * L / (mu * M)
    return own - (B2 - 1) * (L * g / M**2 + L / (mu * M) + gamma / M)


def rho_own(mu: np.ndarray, c: Constants, gamma: float) -> float:
    """rho of theorem 7, with one mu for each client."""
    L_f, L, B2, g = own_smoothness(c), _each(c), c.B.value**2, (1 + gamma) ** 2
    own = 1 / mu - 1.5 * gamma / mu - L_f * g / mu**2 - 1.5 * L / mu**2
    return float(np.mean(own - (B2 - 1) * (L_f * g / mu**2 + L / mu**2 + gamma / mu)))


def _each(c: Constants) -> np.ndarray:
    return np.full(c.clients, c.L.value) if c.L_k is None else np.asarray(c.L_k)


def _gamma(s: Setting) -> float:
    return math.nan if s.inexactness is None else s.inexactness


def weights(c: Constants, weak: float) -> np.ndarray:
    """Candidates for mu, around L B^2; none if that is infinite."""
    scale = c.L.value * c.B.value**2
    return np.empty(0) if math.isinf(scale) else weak + np.geomspace(1e-3, 1e3, 4001) * scale


def best(mus: np.ndarray, rho: Callable[[float], float]) -> float:
    """The mu with the largest decrease; infinity if there is none, NaN if constants are not known."""
    rhos = np.array([rho(float(mu)) for mu in mus])
    if not len(mus) or np.isneginf(rhos).all():
        return math.inf
    return math.nan if np.isnan(rhos).all() else float(mus[int(np.argmax(rhos))])


def positive(mus: np.ndarray, rho: Callable[[float], float]) -> Range:
    """Where rho > 0; from infinity to 0, which is nowhere, if it is not."""
    good = [float(mu) for mu in mus if rho(float(mu)) > 0]
    if not good:
        return Range(math.inf, 0)
    return Range(good[0], math.inf if good[-1] == mus[-1] else good[-1])


def _range(c: Constants, s: Setting, weak: float) -> dict[str, Range]:
    return {"algorithm.mu": positive(weights(c, weak), lambda mu: rho_nonconvex(mu, c, _gamma(s), weak))}


def _best(c: Constants, s: Setting, weak: float) -> float:
    return best(weights(c, weak), lambda mu: rho_nonconvex(mu, c, _gamma(s), weak))


def _decrease(t: int, c: Constants, rho: float) -> float:
    return c.gap.value / (rho * t) if not rho <= 0 else math.inf


def _weak(c: Constants) -> float:
    return c.rho.value


THEOREM_3 = Theorem(
    name="FedDANE, theorem 3 (convex)",
    citation=f"{CITATION}, theorems 3 and 6",
    algorithm=FedDANE,
    about="With convex losses that differ little, every round decreases f by a multiple of |grad f|^2.",
    assumptions=(
        *COMMON,
        CONVEX,
        INEXACT,
        rho_positive(lambda c, s: rho_nonconvex(_best(c, s, 0.0), c, _gamma(s), 0.0)),
    ),
    left=LEFT,
    allowed=lambda c, s: _range(c, s, 0.0),
    recommended=lambda c, s, rounds: {"algorithm.mu": _best(c, s, 0.0)},
    bound=lambda t, c, s, steps: _decrease(t, c, rho_nonconvex(steps["algorithm.mu"], c, _gamma(s), 0.0)),
    reading="as printed",
    silent=SILENT,
)

COROLLARY_4 = Theorem(
    name="FedDANE, corollary 4 (convex, exact)",
    citation=f"{CITATION}, corollary 4",
    algorithm=FedDANE,
    about="Theorem 3 with mu = 5 L B^2 and exact solves.",
    assumptions=(*COMMON, CONVEX, EXACT),
    left=LEFT,
    allowed=lambda c, s: {"algorithm.mu": Range(5 * c.L.value * c.B.value**2, 5 * c.L.value * c.B.value**2)},
    recommended=lambda c, s, rounds: {"algorithm.mu": 5 * c.L.value * c.B.value**2},
    bound=lambda t, c, s, steps: _decrease(t, c, (3 - 0.5 / c.B.value**2) / (25 * c.L.value * c.B.value**2)),
    reading="as printed, with the term that it neglects for large B",
    silent=SILENT,
)

THEOREM_5 = Theorem(
    name="FedDANE, theorem 5 (nonconvex)",
    citation=f"{CITATION}, theorems 5 and 6",
    algorithm=FedDANE,
    about="With smooth losses that differ little, every round decreases f by a multiple of |grad f|^2.",
    assumptions=(
        *COMMON,
        INEXACT,
        rho_positive(lambda c, s: rho_nonconvex(_best(c, s, _weak(c)), c, _gamma(s), _weak(c))),
    ),
    left=LEFT,
    allowed=lambda c, s: _range(c, s, _weak(c)),
    recommended=lambda c, s, rounds: {"algorithm.mu": _best(c, s, _weak(c))},
    bound=lambda t, c, s, steps: _decrease(t, c, rho_nonconvex(steps["algorithm.mu"], c, _gamma(s), _weak(c))),
    reading="as printed",
    silent=SILENT,
)


def _own(c: Constants, s: Setting, rounds: int) -> dict[str, Any]:
    """mu_k = 5 max(L_f, L_k) B^2, as corollary 4 has it for one mu."""
    return {"algorithm.mu": 5 * np.maximum(own_smoothness(c), _each(c)) * c.B.value**2}


def _bound_own(t: int, c: Constants, s: Setting, steps: Steps) -> float:
    mu = np.broadcast_to(np.asarray(steps["algorithm.mu"], float), (c.clients,))
    return _decrease(t, c, rho_own(mu, c, _gamma(s)))


THEOREM_7 = Theorem(
    name="FedDANE, theorem 7 (a mu for each client)",
    citation=f"{CITATION}, theorem 7",
    algorithm=FedDANE,
    about="Theorem 3 with a proximal weight for each client, by its own smoothness.",
    assumptions=(*COMMON, CONVEX, INEXACT, EVERYONE, EQUAL_WEIGHTS),
    left=LEFT,
    allowed=lambda c, s: {"algorithm.mu": Range(2.5 * c.L.value * c.B.value**2, math.inf)},
    recommended=_own,
    bound=_bound_own,
    reading="derived: the smoothness of f where the proof has L_k, and only with everyone",
    silent=SILENT,
)

FEDDANE = {
    "feddane-3": THEOREM_3,
    "feddane-corollary-4": COROLLARY_4,
    "feddane-5": THEOREM_5,
    "feddane-7": THEOREM_7,
}
