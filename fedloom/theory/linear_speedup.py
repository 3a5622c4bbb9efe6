"""Generalized FedAvg (Yang, Fang and Liu, ICLR 2021, arXiv:2101.11203): theorems 1 and 2, corollaries 1 and 2.

m clients, n of them in a round, K local steps of size eta_l (solver.lr), server step eta (algorithm.lr). With q = 0 if
everyone takes part, 1/n with replacement (strategy 1), (m - n) / (n (m - 1)) without (strategy 2), a = K L eta_l, and
r = 1/n, but 1/n + (n - 1)/(n m) with replacement:

    min_{t < T} E |grad f(w_t)|^2 <= (f(w_0) - f*) / (c eta eta_l K T) + Phi
    Phi = 1/c [L eta eta_l r sigma_l^2 / 2 + 3 K q/2 L eta eta_l sigma_g^2
               + (5/2 K eta_l^2 L^2 + 15/2 K^2 q eta eta_l^3 L^3) (sigma_l^2 + 6 K sigma_g^2)]
    c   = 1/2 - 15 a^2 - K q/2 L eta eta_l (90 a^2 + 3) > 0,     eta_l <= 1/(8LK),     (1 - q) eta eta_l K L <= 1

Theorem 1 (q = 0) is as printed. Theorem 2 is not: the printed Phi has 3q/2 where 3Kq/2 stands above, and 15 K/2 where
15 K^2/2, because its proof bounds |sum of K gradients|^2 by the sum of their squares without the factor K
(Cauchy-Schwarz; the line "sum_i |t_i|^2 <= ..."). The drawing of clients alone contributes K L eta eta_l q sigma_g^2
/ 2, and with K = 20 a run exceeds the printed bound: tests/test_bounds.py. So with cohorts the rate of corollary 2 is
sqrt(K / (n T)), with its steps, in the term of sigma_g, and 1 / sqrt(n K T) only in that of sigma_l. Both printed
conditions for c > 0 have a minus where the proof needs a plus. The printed condition of strategy 1, eta eta_l K L <
(n-1)/n, is stricter than what its proof needs, which is above; strategy 2's is the same. r is ours: with replacement
the paper has 1/n, as if a client that is drawn twice worked twice; here (cohorts.with_replacement) it works once and
counts twice, so that its two replies have the same noise.

The corollaries are the theorems with eta_l = 1/(sqrt(T) K L) and eta = sqrt(K n), as long as these are allowed (T >=
n K or so); for shorter runs both are cut to what is. The proofs drop the correlation of a step's noise with later
gradients of the same client. It is negative where F_k is convex, and of higher order in eta_l elsewhere.
"""

import math
from typing import Any

from fedloom.algorithms.fedavg import FedAvg
from fedloom.theory.assumptions import (
    BOUNDED_NOISE,
    EQUAL_WEIGHTS,
    EVERYONE,
    INDEPENDENT,
    LOCAL_STEPS,
    NO_REGULARIZER,
    SIMILAR,
    SMOOTH,
    SYNCHRONOUS,
    WITHOUT_REPLACEMENT,
)
from fedloom.theory.constant import Constants
from fedloom.theory.theorem import Assumption, Check, Left, Range, Setting, Steps, Theorem

CITATION = "Yang, Fang and Liu, ICLR 2021, arXiv:2101.11203"
LEFT = Left("min over t = 0 .. T-1 of E |grad f(w_t)|^2", "gradient", "min")
COMMON = (SMOOTH, NO_REGULARIZER, BOUNDED_NOISE, SIMILAR, EQUAL_WEIGHTS, LOCAL_STEPS, INDEPENDENT, SYNCHRONOUS)
SILENT = "unequal weights, minibatches that are drawn without replacement in epochs (not independent), staleness"
WITH_REPLACEMENT = Assumption(
    "Cohorts of a fixed size are drawn uniformly, with replacement.",
    lambda c, s: Check("holds", "They are.") if s.replacement else Check("fails", "No client is drawn twice."),
)


def _parts(c: Constants, s: Setting, steps: Steps, factor: int | None = None) -> tuple[float, float, float]:
    """c, Phi, and eta eta_l K; `factor` is K in the terms of the cohorts, or 1 as printed."""
    K, L, q, n = s.local_steps or 1, c.L.value, s.spread(c), s.taking_part(c)
    k = K if factor is None else factor
    eta, eta_l = steps["algorithm.lr"], steps["solver.lr"]
    a, step = K * L * eta_l, L * eta * eta_l
    room = 0.5 - 15 * a**2 - k * q / 2 * step * (90 * a**2 + 3)
    noise, apart = c.sigma_l.value**2, c.sigma_g.value**2
    drift = (2.5 * K * (L * eta_l) ** 2 + 7.5 * k * K * q * step * (L * eta_l) ** 2) * (noise + 6 * K * apart)
    alone = 1 / n + (n - 1) / (n * c.clients) if s.replacement and factor is None else 1 / n
    return room, step * noise / 2 * alone + 1.5 * k * q * step * apart + drift, eta * eta_l * K


def _bound(t: int, c: Constants, s: Setting, steps: Steps, factor: int | None = None) -> float:
    room, phi, step = _parts(c, s, steps, factor)
    return (c.gap.value / (step * t) + phi) / room if not room <= 0 else math.inf


def as_printed(t: int, c: Constants, s: Setting, steps: Steps) -> float:
    """Theorem 2's right-hand side without the missing factor K: too small, for comparison only."""
    return _bound(t, c, s, steps, factor=1)


def _limits(c: Constants, s: Setting) -> tuple[float, float]:
    """The largest eta_l, and the largest eta eta_l with which c stays above 1/20 or so for it."""
    K, L, q = s.local_steps or 1, c.L.value, s.spread(c)
    products = [1 / (K * L * (1 - q))] if q < 1 else []
    if q > 0:
        a = 1 / 8
        products.append((0.5 - 15 * a**2) * 0.8 / (K * q / 2 * L * (90 * a**2 + 3)))
    return 1 / (8 * L * K), min(products)


def _allowed(c: Constants, s: Setting) -> dict[str, Range]:
    eta_l, product = _limits(c, s)
    return {"solver.lr": Range(0, eta_l), "algorithm.lr * solver.lr": Range(0, product)}


def _recommended(c: Constants, s: Setting, rounds: int) -> dict[str, Any]:
    K, n = s.local_steps or 1, s.taking_part(c)
    most, product = _limits(c, s)
    eta_l = min(1 / (math.sqrt(rounds) * K * c.L.value), most)
    return {"algorithm.lr": min(math.sqrt(K * n), product / eta_l), "solver.lr": eta_l}


def _theorem(
    name: str, part: str, about: str, assumptions: tuple[Assumption, ...], reading: str, horizon: bool
) -> Theorem:
    def bound(t: int, c: Constants, s: Setting, steps: Steps) -> float:
        return _bound(t, c, s, _recommended(c, s, t) if horizon else steps)

    return Theorem(
        name=f"generalized FedAvg, {name}",
        citation=f"{CITATION}, {part}",
        algorithm=FedAvg,
        about=about,
        assumptions=(*COMMON, *assumptions),
        left=LEFT,
        allowed=_allowed,
        recommended=_recommended,
        bound=bound,
        reading=reading,
        silent=SILENT,
    )


ALL = "With everyone, gradients vanish up to a term that step sizes make small."
SOME = "With uniform cohorts, gradients vanish up to a term that step sizes make small."
RATE = "Run for T rounds with the recommended steps, gradients vanish like 1/sqrt(m K T): linear speedup."
RATE_SOME = "Run for T rounds with the recommended steps, gradients vanish like sqrt(K/(n T))."
MENDED = "derived: the printed bound lacks a factor K in the terms of sampling, and is false"

LINEAR_SPEEDUP = {
    "fedavg-1": _theorem("theorem 1", "theorem 1", ALL, (EVERYONE,), "as printed, c from the proof", False),
    "fedavg-2-with-replacement": _theorem(
        "theorem 2 (with replacement)", "theorem 2, strategy 1", SOME, (WITH_REPLACEMENT,), MENDED, False
    ),
    "fedavg-2-without-replacement": _theorem(
        "theorem 2 (without replacement)", "theorem 2, strategy 2", SOME, (WITHOUT_REPLACEMENT,), MENDED, False
    ),
    "fedavg-corollary-1": _theorem(
        "corollary 1", "corollary 1", RATE, (EVERYONE,), "as printed, with theorem 1's constants", True
    ),
    "fedavg-corollary-2-with-replacement": _theorem(
        "corollary 2 (with replacement)", "corollary 2, strategy 1", RATE_SOME, (WITH_REPLACEMENT,), MENDED, True
    ),
    "fedavg-corollary-2-without-replacement": _theorem(
        "corollary 2 (without replacement)",
        "corollary 2, strategy 2",
        RATE_SOME,
        (WITHOUT_REPLACEMENT,),
        MENDED,
        True,
    ),
}
