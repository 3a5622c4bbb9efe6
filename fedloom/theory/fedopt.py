"""FedOpt (Reddi et al., ICLR 2021, arXiv:2003.00295): theorem 1 (FedAdagrad), theorem 2 (FedAdam), their corollaries.

K local steps of size eta_l (solver.lr), server step eta (algorithm.lr), m clients, n of them in a round, d parameters.
The theorems name orders. The constants are those of their proofs; beta1 = 0 and v starts at tau^2, as there.

    drift = 5 eta_l^3 K^2 L^2 T / (2 tau) S,        S = sum_j (sigma_l,j^2 + 6 K sigma_g,j^2),        b = eta_l K G
    noise = T/tau^2 [x eta_l^2 K / n sum_j sigma_l,j^2 + y eta_l^4 K^3 L^2 S + 6 eta_l^2 K^2 q sum_j sigma_g,j^2]
            (x, y) = (4, 20) with everyone, when q = 0, and (6, 30) with cohorts, when q = (m - n) / (n (m - 1))

FedAdagrad, min_{t < T} E |grad f(w_t)|^2 is at most

    4 (b sqrt(T) + 2 tau) / (eta_l K T) [gap/eta + drift + (b G / tau + eta L / 2) d (1 + log(1 + b^2 T / tau^2))]
    eta_l <= 1/K min(1/(16L), (tau / (120 L^2 G))^(1/3) / T^(1/6))                                      (condition I)

and at most, if (b G / tau + eta L / 2) (6y L^2 eta_l^4 K^4 + 2 eta_l^2 K^2) / tau^2 <= eta_l K / (8 (b sqrt(T) + 2
tau)),

    8 (b sqrt(T) + 2 tau) / (eta_l K T) [gap/eta + drift + (b G / tau + eta L / 2) noise]

FedAdam, with B = sqrt(beta2) max(tau, b) + tau and Q = sqrt(1 - beta2) G + eta L / 2,

    8 B / (eta_l K T) [gap/eta + drift + Q noise]
    eta_l <= 1/(16LK),  60 K^2 L^2 eta_l^2 B <= tau,  Q (6y L^2 eta_l^4 K^4 + 2 eta_l^2 K^2) / tau^2 <= eta_l K / (8 B)

Damages: the displays of theorem 1 are shuffled and one condition of theorem 2 is lost; all was put together again
from the proofs. Three slips of the proofs are mended: v starts at tau^2, so that sqrt(v) <= tau + b sqrt(T), where they
drop tau; and lemmas 4 and 5 drop 2 eta_l^2 K^2 |grad f|^2 of equation 11, which is the second term of the conditions
here, so that they are stricter than the printed condition II, whose powers of T need only the first; and the first
term, 4 eta_l^2 K^2 L^2 times the drift of lemma 3, is 120 eta_l^4 K^4 L^2 |grad f|^2 (180 with cohorts), where they
print 40 (60). In the appendix
on cohorts the factor of sigma_g^2 is unreadable; q is the variance of a mean drawn without replacement. The first
bound of FedAdagrad needs no change with cohorts, for it uses of them only that their mean is unbiased. Left out:
FedYogi, whose proof the paper omits; beta1 > 0, which it calls a direct extension.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fedloom.algorithms.fedopt import FedAdagrad, FedAdam
from fedloom.theory.assumptions import (
    BOUNDED_GRADIENTS,
    BOUNDED_NOISE,
    EQUAL_WEIGHTS,
    INDEPENDENT,
    LOCAL_STEPS,
    NO_REGULARIZER,
    SIMILAR,
    SMOOTH,
    SYNCHRONOUS,
    WITHOUT_REPLACEMENT,
)
from fedloom.theory.constant import Constants, Measured
from fedloom.theory.theorem import Left, Range, Setting, Steps, Theorem

CITATION = "Reddi et al., ICLR 2021, arXiv:2003.00295"
LEFT = Left("min over t = 0 .. T-1 of E |grad f(w_t)|^2", "gradient", "min")
ASSUMPTIONS = (
    SMOOTH,
    NO_REGULARIZER,
    BOUNDED_NOISE,
    SIMILAR,
    BOUNDED_GRADIENTS,
    EQUAL_WEIGHTS,
    LOCAL_STEPS,
    INDEPENDENT,
    WITHOUT_REPLACEMENT,
    SYNCHRONOUS,
)
SILENT = "beta1 > 0, bias correction, unequal weights, losses with unbounded gradients such as squares"


def _squares(each: np.ndarray | None, whole: Measured) -> float:
    return float(np.sum(each**2)) if each is not None else whole.value**2


def _noise(t: int, c: Constants, s: Setting, eta_l: float, tau: float) -> tuple[float, float, float]:
    """drift, noise, and 6y L^2 eta_l^4 K^4 + 2 eta_l^2 K^2, over tau^2."""
    K, L, q, n = s.local_steps or 1, c.L.value, s.spread(c), s.taking_part(c)
    x, y = (4, 20) if s.everyone(c) else (6, 30)
    local, between = _squares(c.sigma_l_j, c.sigma_l), _squares(c.sigma_g_j, c.sigma_g_mean)
    both = local + 6 * K * between
    drift = 2.5 * eta_l**3 * K**2 * L**2 * t / tau * both
    noise = x * eta_l**2 * K / n * local + y * eta_l**4 * K**3 * L**2 * both + 6 * (eta_l * K) ** 2 * q * between
    own = 6 * y * L**2 * (eta_l * K) ** 4 + 2 * (eta_l * K) ** 2
    return drift, noise * t / tau**2, own / tau**2


def _adagrad(t: int, c: Constants, s: Setting, steps: Steps) -> float:
    K, L, G = s.local_steps or 1, c.L.value, c.G.value
    eta, eta_l, tau = steps["algorithm.lr"], steps["solver.lr"], steps["algorithm.tau"]
    if eta_l > _condition_1(t, c, s, tau) * (1 + 1e-12):
        return math.inf
    b = eta_l * K * G
    root, weight = b * math.sqrt(t) + 2 * tau, b * G / tau + eta * L / 2
    drift, noise, own = _noise(t, c, s, eta_l, tau)
    start = c.gap.value / eta + drift
    logs = c.dimension * (1 + math.log1p(b**2 * t / tau**2))
    first = 4 * root / (eta_l * K * t) * (start + weight * logs)
    if weight * own <= eta_l * K / (8 * root):
        return min(first, 8 * root / (eta_l * K * t) * (start + weight * noise))
    return first


def _condition_1(rounds: int, c: Constants, s: Setting, tau: float) -> float:
    K, L, G = s.local_steps or 1, c.L.value, c.G.value
    return min(1 / (16 * L), (tau / (120 * L**2 * G)) ** (1 / 3) / rounds ** (1 / 6)) / K


def _adam(t: int, c: Constants, s: Setting, steps: Steps) -> float:
    K = s.local_steps or 1
    eta, eta_l, tau = steps["algorithm.lr"], steps["solver.lr"], steps["algorithm.tau"]
    root, weight = _adam_parts(c, s, steps)
    if not _adam_permits(c, s, steps):
        return math.inf
    drift, noise, _ = _noise(t, c, s, eta_l, tau)
    return 8 * root / (eta_l * K * t) * (c.gap.value / eta + drift + weight * noise)


def _adam_parts(c: Constants, s: Setting, steps: Steps) -> tuple[float, float]:
    b, beta2 = steps["solver.lr"] * (s.local_steps or 1) * c.G.value, steps["algorithm.beta2"]
    tau = steps["algorithm.tau"]
    root = math.sqrt(beta2) * max(tau, b) + tau
    return root, math.sqrt(1 - beta2) * c.G.value + steps["algorithm.lr"] * c.L.value / 2


def _adam_permits(c: Constants, s: Setting, steps: Steps) -> bool:
    K, L, eta_l, tau = s.local_steps or 1, c.L.value, steps["solver.lr"], steps["algorithm.tau"]
    root, weight = _adam_parts(c, s, steps)
    own = _noise(1, c, s, eta_l, tau)[2]
    return not (
        eta_l > 1 / (16 * L * K) or 60 * (K * L * eta_l) ** 2 * root > tau or weight * own > eta_l * K / (8 * root)
    )


def _recommended(c: Constants, s: Setting, rounds: int) -> dict[str, Any]:
    """The corollaries': eta_l = 1/(K L sqrt(T)), eta = sqrt(K n), tau = G/L, cut to what is allowed."""
    K, n, tau = s.local_steps or 1, s.taking_part(c), c.G.value / c.L.value
    eta_l = min(1 / (K * c.L.value * math.sqrt(rounds)), _condition_1(rounds, c, s, tau))
    return {"algorithm.lr": math.sqrt(K * n), "algorithm.beta1": 0.0, "algorithm.tau": tau, "solver.lr": eta_l}


def _recommended_adam(c: Constants, s: Setting, rounds: int) -> dict[str, Any]:
    steps = {**_recommended(c, s, rounds), "algorithm.beta2": 0.99}
    steps["solver.lr"] = min(steps["solver.lr"], _largest(lambda lr: _adam_permits(c, s, {**steps, "solver.lr": lr})))
    return steps


def _largest(permits: Callable[[float], bool]) -> float:
    """The largest step that is permitted, where smaller ones always are; NaN if constants are not known."""
    low, high = 1e-30, 1e6
    if not permits(low):
        return math.nan
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if permits(middle) else (low, middle)
    return low


def _allowed(c: Constants, s: Setting) -> dict[str, Range]:
    """Of eta_l for a single round with tau = G/L; longer runs allow less (condition I)."""
    return {"solver.lr": Range(0, _condition_1(1, c, s, c.G.value / c.L.value)), "algorithm.beta1": Range(0, 0)}


def _allowed_adam(c: Constants, s: Setting) -> dict[str, Range]:
    steps = {**_recommended(c, s, 1), "algorithm.beta2": 0.99}
    largest = _largest(lambda lr: _adam_permits(c, s, {**steps, "solver.lr": lr}))
    return {"solver.lr": Range(0, largest), "algorithm.beta1": Range(0, 0)}


READING = "recovered: constants from the proof, three slips of it mended"
RATE = (
    "Run for T rounds with the recommended steps. With everyone, gradients vanish like 1/sqrt(m K T); with cohorts of "
    "clients that differ, like sqrt(K/(n T))."
)

THEOREM_1 = Theorem(
    name="FedAdagrad, theorem 1",
    citation=f"{CITATION}, theorem 1 and appendix A.2",
    algorithm=FedAdagrad,
    about="With bounded gradients, FedAdagrad's gradients vanish up to terms that step sizes make small.",
    assumptions=ASSUMPTIONS,
    left=LEFT,
    allowed=_allowed,
    recommended=_recommended,
    bound=_adagrad,
    reading=READING,
    silent=SILENT,
)

COROLLARY_1 = Theorem(
    name="FedAdagrad, corollary 1",
    citation=f"{CITATION}, corollary 1",
    algorithm=FedAdagrad,
    about=RATE,
    assumptions=ASSUMPTIONS,
    left=LEFT,
    allowed=_allowed,
    recommended=_recommended,
    bound=lambda t, c, s, steps: _adagrad(t, c, s, _recommended(c, s, t)),
    reading=READING,
    silent=SILENT,
)

THEOREM_2 = Theorem(
    name="FedAdam, theorem 2",
    citation=f"{CITATION}, theorem 2 and appendix A.3",
    algorithm=FedAdam,
    about="With bounded gradients, FedAdam's gradients vanish up to terms that step sizes make small.",
    assumptions=ASSUMPTIONS,
    left=LEFT,
    allowed=_allowed_adam,
    recommended=_recommended_adam,
    bound=_adam,
    reading=f"{READING}; one condition derived",
    silent=SILENT,
)

COROLLARY_2 = Theorem(
    name="FedAdam, corollary 2",
    citation=f"{CITATION}, corollary 2",
    algorithm=FedAdam,
    about=RATE,
    assumptions=ASSUMPTIONS,
    left=LEFT,
    allowed=_allowed_adam,
    recommended=_recommended_adam,
    bound=lambda t, c, s, steps: _adam(t, c, s, _recommended_adam(c, s, t)),
    reading=f"{READING}; one condition derived",
    silent=SILENT,
)

FEDOPT = {
    "fedadagrad-1": THEOREM_1,
    "fedadagrad-corollary-1": COROLLARY_1,
    "fedadam-2": THEOREM_2,
    "fedadam-corollary-2": COROLLARY_2,
}
