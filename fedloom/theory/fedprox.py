"""FedProx (Li et al., MLSys 2020, arXiv:1812.06127), theorem 4. Recalled: the paper's text is not at hand.

    rho = 1/mu - g B/mu - B (1+g) sqrt(2) / (M sqrt(n)) - L B (1+g) / (M mu) - L (1+g)^2 B^2 / (2 M^2)
          - L B^2 (1+g)^2 / (M^2 n) (2 sqrt(2n) + 2) > 0,        M = mu - lambda > 0,  lambda I + Hessian of F_k >= 0

gives E f(w_{t+1}) <= f(w_t) - rho |grad f(w_t)|^2 where n clients are drawn with probabilities p_k, with replacement,
and their models are averaged plainly (the cohort rule `by_weight`). g is the paper's gamma: |gradient of the local
problem at the reply| <= gamma |grad F_k(w)|. Added up, mean over t < T of E |grad f(w_t)|^2 <= gap / (rho T).
With everyone the model is the mean itself and the two terms with n, which bound its deviation, vanish: derived.
The term with sqrt(2/n) is what limits it: rho > 0 needs n > 2 B^2. Its server step is algorithm.lr = 1.
"""

import math

from fedloom.algorithms.fedprox import FedProx
from fedloom.theory.assumptions import (
    DISSIMILAR,
    EQUAL_WEIGHTS,
    INEXACT,
    NO_REGULARIZER,
    SMOOTH,
    SYNCHRONOUS,
    rho_positive,
)
from fedloom.theory.constant import Constants
from fedloom.theory.feddane import best, positive, weights
from fedloom.theory.theorem import Assumption, Check, Left, Range, Setting, Theorem


def rho(mu: float, c: Constants, s: Setting) -> float:
    L, B, M = c.L.value, c.B.value, mu - c.rho.value
    gamma = math.nan if s.inexactness is None else s.inexactness
    if M <= 0 or math.isinf(mu) or math.isinf(L * B):
        return -math.inf
    whole = 1 / mu - gamma * B / mu - L * B * (1 + gamma) / (M * mu) - L * ((1 + gamma) * B) ** 2 / (2 * M**2)
    if s.everyone(c):
        return whole
    n = s.taking_part(c)
    drawn = L * (B * (1 + gamma)) ** 2 / (M**2 * n) * (2 * math.sqrt(2 * n) + 2)
    return whole - B * (1 + gamma) * math.sqrt(2 / n) / M - drawn


def _best(c: Constants, s: Setting) -> float:
    return best(weights(c, c.rho.value), lambda mu: rho(mu, c, s))


def _allowed(c: Constants, s: Setting) -> dict[str, Range]:
    return {"algorithm.mu": positive(weights(c, c.rho.value), lambda mu: rho(mu, c, s)), "algorithm.lr": Range(1, 1)}


def _drawn(c: Constants, s: Setting) -> Check:
    if s.everyone(c):
        return Check("holds", "Everyone takes part.")
    if s.replacement and (s.by_weight or EQUAL_WEIGHTS.check(c, s).status == "holds"):
        return Check("holds", "They are.")
    if s.replacement:
        return Check("fails", "They are drawn uniformly, and weights differ.")
    return Check("fails", "No client is drawn twice.")


DRAWN = Assumption("Clients are drawn by weight, with replacement, and averaged plainly; or everyone.", _drawn)

THEOREM_4 = Theorem(
    name="FedProx, theorem 4",
    citation="Li et al., MLSys 2020, arXiv:1812.06127, theorem 4",
    algorithm=FedProx,
    about="With smooth losses that differ little, every round decreases f by a multiple of |grad f|^2.",
    assumptions=(
        SMOOTH,
        NO_REGULARIZER,
        DISSIMILAR,
        DRAWN,
        INEXACT,
        SYNCHRONOUS,
        rho_positive(lambda c, s: rho(_best(c, s), c, s)),
    ),
    left=Left("mean over t = 0 .. T-1 of E |grad f(w_t)|^2", "gradient", "mean"),
    allowed=_allowed,
    recommended=lambda c, s, rounds: {"algorithm.mu": _best(c, s), "algorithm.lr": 1.0},
    bound=lambda t, c, s, steps: (
        c.gap.value / (rho(steps["algorithm.mu"], c, s) * t) if not rho(steps["algorithm.mu"], c, s) <= 0 else math.inf
    ),
    reading="recalled; with everyone derived",
    silent="clients that differ at the optimum (B is infinite there), small cohorts, stragglers' own gamma",
)

FEDPROX = {"fedprox-4": THEOREM_4}
