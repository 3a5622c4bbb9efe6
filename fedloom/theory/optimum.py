"""How far the start of a run is from the optimum: D = |w0 - w*| and gap = f(w0) - f*."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy  # which imports its parts when they are used

from fedloom.client import Federation
from fedloom.data.quadratic import Quadratics
from fedloom.problem import Vector
from fedloom.theory.constant import UNKNOWN, Measured
from fedloom.theory.gradients import sizes_of

WORK = 2**35  # examples times parameters, over all evaluations of f and its gradient
MOST = 500  # evaluations
LEAST = 50  # with fewer there is no use in it


class Start(NamedTuple):
    """D and gap, and how they were found."""

    D: Measured
    gap: Measured
    note: str | None = None


def of_quadratics(federation: Quadratics, w0: Vector) -> Start:
    """In closed form; without a minimum there is neither."""
    p, a, b = (np.asarray(x, float) for x in (federation.weights, federation.hessians, federation.centers))
    eigenvalues = np.linalg.eigvalsh(np.einsum("k,kij->ij", p, a))
    if eigenvalues[0] <= np.finfo(float).eps * len(eigenvalues) * np.abs(eigenvalues).max():
        return Start(UNKNOWN, UNKNOWN, "D and gap: unknown, since f has no unique minimum.")
    w, best = np.asarray(w0, float), federation.optimum()
    f_w, f_best = (np.einsum("k,ki,kij,kj->", p, v - b, a, v - b) / 2 for v in (w, best))
    return Start(Measured(float(np.linalg.norm(w - best))), Measured(float(f_w - f_best)))


def of_convex(federation: Federation, w0: Vector, mu: float, effort: float) -> Start | None:
    """By L-BFGS on f, if that is not too much work.

    If f is mu-strongly convex, f(w) - f* <= |grad f(w)|^2 / (2 mu) and |w - w*| <= |grad f(w)| / mu. If it is only
    convex, f(w) - f* <= |grad f(w)| |w - w*|, in which the unknown |w - w*| is replaced by |w - w0|.
    """
    most = min(MOST, int(WORK * effort / (2 * float(sizes_of(federation).sum()) * w0.size)))
    if most < LEAST:
        return None

    def value_and_gradient(v: np.ndarray) -> tuple[float, np.ndarray]:
        w = jnp.asarray(v, w0.dtype)
        return float(federation.loss(w)), np.asarray(federation.grad(w), float)

    w = np.asarray(w0, float)
    options: dict[str, Any] = {"maxfun": most, "maxiter": most, "maxcor": 30, "ftol": 0, "gtol": 1e-10}
    found = scipy.optimize.minimize(value_and_gradient, w, jac=True, method="L-BFGS-B", options=options)
    D, slope = float(np.linalg.norm(found.x - w)), float(np.linalg.norm(found.jac))
    gap = value_and_gradient(w)[0] - float(found.fun)
    how = f"D and gap: from {found.nfev} evaluations of L-BFGS, which end at |grad f| = {slope:.1e}"
    if mu > 0:
        return Start(Measured(D, slope / mu), Measured(gap, slope**2 / (2 * mu)), f"{how}; errors as for this mu.")
    note = f"{how}; f may have several minimisers or none, so that there is no error of D, and an estimated one of gap."
    return Start(Measured(D, math.inf), Measured(gap, slope * D), note)


def of_nonnegative(federation: Federation, w0: Vector, points: list[Vector]) -> Start:
    """A loss that is never negative: 0 <= f* <= the smallest f(w) seen."""
    start = float(federation.loss(w0))
    least = min([start, *(float(federation.loss(w)) for w in points)])
    return Start(UNKNOWN, Measured(start, least), "gap: at most its value, f(w0), since losses are not negative.")
