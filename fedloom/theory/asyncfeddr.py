"""Step sizes of asyncFedDR (Tran-Dinh et al., NeurIPS 2021, arXiv:2103.03452), theorem 4.1."""

import math

import numpy as np


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
