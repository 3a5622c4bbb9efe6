"""asyncFedDR (Tran-Dinh et al., NeurIPS 2021, arXiv:2103.03452), theorem 4.1: FedDR with one late reply at a time.

One client replies at each update, to a model that is at most tau updates old; from any update on, every client has a
probability of at least p to be the one that replies in one of the next T + 1 updates. Step sizes are
derived, and stricter than formulas 8 and 9.

The constants D and C of the bound are damaged beyond reading, and like theorem 3.1 it has F(w_0) where the memories at
the start count too, so they are derived here as in fedloom/theory/feddr.py, whose V, u, v, a and H are used. With e the
change of the model since the client received it, u + eta v = alpha (a - e), and by |<e, eta v - u>| <= |e|^2 +
|eta v - u|^2 / 4, |e|^2 <= tau sum of the last tau |change of w|^2, |change of w| <= |u - eta v| / n, and the decrease
|change of w|^2 / (2 eta) of V by its strong convexity, an update changes V at most by -rho/2 |u|^2,

    rho = (2 (1 - s^2) - alpha (1 + s) - alpha (1 + s^2) (1 + 2c)) / (alpha eta n),        c = max(2 tau^2 - n, 0) / n^2

which is formula 9 but for 2c where it has c. The printed one follows with |u - eta v|^2 <= (1 + s^2) |u|^2, which is
true for convex F_k; without convexity it is 2 (1 + s^2) |u|^2. At a client's first visit v is a gradient, not a
change of one: s^2 becomes 2 s^2 in rho, call it rho', and V gains 2 Q eta^2 |grad F_k(w_0)|^2 / n, Q = (1/alpha + 1/2
+ c) / eta. So

    U = sum E |u|^2                <= 2/rho' (F(w_0) - F* + 2 Q eta^2 H)                     (for L eta <= 1/2)
    X = sum E |change of w|^2      <= ((2 + 4 s^2) U + 4 eta^2 n H) / n^2
    sum_t mean_k E |a_k|^2         <= 3 (max(tau, T) (tau + T) X + T^2 U / n
                                         + (T + 1) / (p alpha^2) ((2 + 4 s^2) U / n + 4 eta^2 H))
    sum_t E |G(w_t)|^2             <= 2 (1 + s)^2 / eta^2 times that + 2 (T + 1) H / p

the third by a_k at t = (w_t - w') + (w' - x_k) + (x_k - x_k at t), taken where client k has its chance, w' being the
model that it then has. These replace D and C; the rate 1/K is the paper's.
"""

import math

import numpy as np

from fedloom.algorithms.feddr import FedDR
from fedloom.theory.assumptions import EQUAL_WEIGHTS, EXACT, KNOWN_START, ONE_REPLY, SMOOTH, at_start
from fedloom.theory.constant import Constants
from fedloom.theory.feddr import CITATION, GRADIENTS
from fedloom.theory.theorem import Range, Setting, Steps, Theorem


def asyncfeddr_rho(alpha: float, eta: float, smoothness: float, clients: int, tau: int) -> float:
    """The constant rho of asyncFedDR's theorem 4.1, formula 9: it converges if rho > 0.

    Args:
        alpha: relaxation.
        eta: step size.
        smoothness: L, the Lipschitz constant of the gradients of all F_k.
        clients: n, all of weight 1/n.
        tau: the largest delay, in server updates.
    """
    n, c = clients, max(2 * tau**2 - clients, 0) / clients**2
    s = smoothness * eta
    return (2 * (1 - alpha) - (2 + alpha) * s**2 - alpha * s - c * alpha * (1 + s**2)) / (alpha * eta * n)


def asyncfeddr_alpha(clients: int, tau: int) -> float:
    """alpha_bar of formula 8: relaxations below it converge with a small enough step size."""
    return 1.0 if 2 * tau**2 <= clients else 2 / (2 + (2 * tau**2 - clients) / clients**2)


def asyncfeddr_eta(alpha: float, smoothness: float, clients: int, tau: int) -> float:
    """eta_bar of formula 8: with relaxation alpha, smaller step sizes converge.

    It is the step size at which rho is 0, which we solve for: the formula as printed has 4c where this gives 12c.
    """
    if not 0 < alpha < (bound := asyncfeddr_alpha(clients, tau)):
        raise ValueError(
            f"alpha must be between 0 and {bound:.4g} for {clients} clients and delays to {tau}, got {alpha!r}."
        )
    c = max(2 * tau**2 - clients, 0) / clients**2
    a = 2 + alpha * (1 + c)  # rho > 0 is  a s^2 + alpha s - b < 0  for s = L eta
    b = 2 * (1 - alpha) - c * alpha
    return (math.sqrt(alpha**2 + 4 * a * b) - alpha) / (2 * a) / smoothness


def asyncfeddr_steps(smoothness: float, clients: int, tau: int) -> tuple[float, float]:
    """alpha and eta within the bounds of asyncFedDR's theorem: half of alpha_bar, nine tenths of the eta_bar for it."""
    if not (np.isfinite(smoothness) and smoothness > 0 and clients >= 1 and tau >= 0):
        raise ValueError(
            f"smoothness and clients must be positive and tau non-negative; got {smoothness!r}, {clients!r}, {tau!r}."
        )
    alpha = asyncfeddr_alpha(clients, tau) / 2
    return alpha, 0.9 * asyncfeddr_eta(alpha, smoothness, clients, tau)


def _delays(c: Constants, s: Setting) -> float:
    return max(2 * s.staleness**2 - c.clients, 0) / c.clients**2


def _rho(c: Constants, s: Setting, alpha: float, eta: float) -> float:
    """rho' of the module's docstring."""
    r2, r, late = 2 * (c.L.value * eta) ** 2, c.L.value * eta, _delays(c, s)
    return (2 * (1 - r2) - alpha * (1 + r) - alpha * (1 + r2) * (1 + 2 * late)) / (alpha * eta * c.clients)


def _largest_eta(c: Constants, s: Setting, alpha: float) -> float:
    """Where rho' is 0: a quadratic in r = L eta; 0 if no step size will do."""
    late = alpha * (1 + 2 * _delays(c, s))
    a, b, free = 4 + 2 * late, alpha, 2 - alpha - late
    return min((math.sqrt(b**2 + 4 * a * free) - b) / (2 * a), 0.5) / c.L.value if free > 0 else 0.0


def _bound(t: int, c: Constants, s: Setting, steps: Steps) -> float:
    if s.regularizer:
        return math.nan  # F(w_0) - F* is not known
    alpha, eta = steps["algorithm.alpha"], steps["algorithm.eta"]
    n, tau, period = c.clients, s.staleness, s.period
    p = 1 / n if s.probability is None else s.probability
    r, h, rho = c.L.value * eta, at_start(c), _rho(c, s, alpha, eta)
    if not (rho > 0 and r <= 0.5):
        return math.nan if math.isnan(rho) else math.inf
    q = (1 / alpha + 0.5 + _delays(c, s)) / eta
    u = 2 / rho * (c.gap.value + 2 * q * eta**2 * h)
    x = ((2 + 4 * r**2) * u + 4 * eta**2 * n * h) / n**2
    visits = (period + 1) / (p * alpha**2) * ((2 + 4 * r**2) * u / n + 4 * eta**2 * h)
    apart = 3 * (max(tau, period) * (tau + period) * x + period**2 * u / n + visits)
    return (2 * (1 + r) ** 2 / eta**2 * apart + 2 * (period + 1) * h / p) / t


def _alpha(c: Constants, s: Setting) -> float:
    return 1 / (1 + _delays(c, s))


def _recommended(c: Constants, s: Setting, rounds: int) -> dict[str, float]:
    alpha = _alpha(c, s) / 2
    return {"algorithm.alpha": alpha, "algorithm.eta": 0.9 * _largest_eta(c, s, alpha)}


THEOREM_4_1 = Theorem(
    name="asyncFedDR, theorem 4.1",
    citation=f"{CITATION}, theorem 4.1",
    algorithm=FedDR,
    about="With replies that are at most tau updates late the gradients at the models vanish at the rate 1/K.",
    assumptions=(SMOOTH, EQUAL_WEIGHTS, EXACT, ONE_REPLY, KNOWN_START),
    left=GRADIENTS,
    allowed=lambda c, s: {
        "algorithm.alpha": Range(0, _alpha(c, s)),
        "algorithm.eta": Range(0, _largest_eta(c, s, _alpha(c, s) / 2)),
    },
    recommended=_recommended,
    bound=_bound,
    reading="derived: step sizes (stricter than formulas 8 and 9: 2c for c, as F_k need not be convex), D and C",
    silent="inexact local solves, several replies in one update, unequal weights",
)

ASYNCFEDDR = {"asyncfeddr-4.1": THEOREM_4_1}
