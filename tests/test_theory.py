"""Step sizes of theorems against the formulas as printed, and against what they are for."""

import math

import numpy as np
import pytest

from fedloom.theory import asyncfeddr_alpha, asyncfeddr_eta, asyncfeddr_rho, asyncfeddr_steps

SETTINGS = [(20, 0, 1.0), (20, 3, 2.5), (8, 2, 1.0), (8, 10, 0.7), (100, 60, 3.0)]


def printed_rho(alpha, eta, L, n, tau):
    """Formula 9, both branches, as in the paper."""
    inner = 2 * (1 - alpha) - (2 + alpha) * L**2 * eta**2 - L * alpha * eta
    if 2 * tau**2 <= n:
        return inner / (alpha * eta * n)
    return (n**2 * inner - alpha * (1 + eta**2 * L**2) * (2 * tau**2 - n)) / (alpha * eta * n**3)


@pytest.mark.parametrize(("n", "tau", "L"), SETTINGS)
def test_rho_is_formula_9(n, tau, L):
    for alpha, eta in ((0.1, 0.05), (0.5, 0.2), (0.9, 0.4)):
        assert asyncfeddr_rho(alpha, eta, L, n, tau) == pytest.approx(printed_rho(alpha, eta, L, n, tau), rel=1e-12)


@pytest.mark.parametrize(("n", "tau", "L"), SETTINGS)
def test_rho_is_positive_below_the_bounds_and_not_beyond(n, tau, L):
    for part in (0.2, 0.6, 0.95):
        alpha = part * asyncfeddr_alpha(n, tau)
        eta = asyncfeddr_eta(alpha, L, n, tau)
        assert printed_rho(alpha, 0.999 * eta, L, n, tau) > 0
        assert printed_rho(alpha, 1.001 * eta, L, n, tau) < 0
    beyond = 1.001 * asyncfeddr_alpha(n, tau)
    assert all(printed_rho(beyond, eta, L, n, tau) < 0 for eta in np.geomspace(1e-9, 1, 30) / L)


def test_with_short_delays_eta_is_formula_8():
    for alpha in (0.2, 0.7):
        printed = (math.sqrt(16 - 8 * alpha - 7 * alpha**2) - alpha) / (2 * 3.0 * (2 + alpha))
        assert asyncfeddr_eta(alpha, 3.0, 50, 5) == pytest.approx(printed, rel=1e-12)


@pytest.mark.parametrize(("n", "tau", "L"), SETTINGS)
def test_suggested_steps_are_within_the_theorem(n, tau, L):
    alpha, eta = asyncfeddr_steps(L, n, tau)
    assert printed_rho(alpha, eta, L, n, tau) > 0


def test_bad_constants_are_refused():
    with pytest.raises(ValueError, match="smoothness and clients must be positive"):
        asyncfeddr_steps(float("nan"), 10, 2)
    with pytest.raises(ValueError, match="alpha must be between 0 and"):
        asyncfeddr_eta(1.0, 1.0, 10, 20)
