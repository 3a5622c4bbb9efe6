"""Where a local solve starts: an exact solver hides it, two gradient steps show it. NumPy, partial cohorts."""

import numpy as np
import pytest

import fedloom as fl
from fedloom.cohorts import everyone, scheduled
from tests.federations import FEDERATION, W

A, B, P = FEDERATION.hessians, FEDERATION.centers, FEDERATION.weights
N, LR, ETA, ALPHA, MU = len(P), 0.2, 2.0, 1.3, 0.5
TRACE = [[0, 2, 5], [2, 3], [5, 6, 0], [1, 4], [2, 5, 6]] * 2


def grad(k, v):
    return A[k] @ (v - B[k])


def two_steps(k, start, linear, anchor, mu):
    v = start
    for _ in range(2):
        v = v - LR * (grad(k, v) + linear + mu * (v - anchor))
    return v


def mean(replies):
    return sum(P[k] * r for k, r in replies.items()) / sum(P[k] for k in replies)


def feddr(w):
    x, y = [w] * N, [w] * N
    for cohort in TRACE:
        for k in cohort:
            y[k] = y[k] + ALPHA * (w - x[k])
            x[k] = two_steps(k, x[k], 0, y[k], 1 / ETA)  # from its own x_k
        w = sum(P[k] * (2 * x[k] - y[k]) for k in range(N))
        yield w


def feddyn(w):
    g = np.zeros((N, len(w)))
    for cohort in TRACE:
        replies = {k: two_steps(k, w, -g[k], w, MU) for k in cohort}  # from theta
        for k, v in replies.items():
            g[k] -= MU * (v - w)
        w = mean(replies) - P @ g / MU  # h is the weighted sum of the memories
        yield w


def fedsplit(w):
    z = np.array([w] * N)
    for cohort in TRACE:
        for k in cohort:
            z[k] += 2 * (two_steps(k, w, 0, 2 * w - z[k], 1 / ETA) - w)  # from x, not from the centre
        w = P @ z
        yield w


def feddane(w):
    for cohort in TRACE:
        g = mean({k: grad(k, w) for k in cohort})
        w = mean({k: two_steps(k, w, g - grad(k, w), w, MU) for k in cohort})  # from w
        yield w


def fedpd(w):
    dual = np.zeros((N, len(w)))
    for _ in TRACE:
        x = np.array([two_steps(k, w, dual[k], w, 1 / ETA) for k in range(N)])  # from x0
        dual += (x - w) / ETA
        w = P @ (x + ETA * dual)
        yield w


ORACLES = {
    "feddr": (fl.FedDR(ETA, ALPHA), feddr),
    "feddyn": (fl.FedDyn(MU), feddyn),
    "fedsplit": (fl.FedSplit(ETA), fedsplit),
    "feddane": (fl.FedDANE(MU), feddane),
    "fedpd": (fl.FedPD(ETA), fedpd),
}


@pytest.mark.parametrize(("algorithm", "oracle"), ORACLES.values(), ids=ORACLES.keys())
def test_inexact_solves_start_where_they_should(algorithm, oracle):
    cohort = everyone() if algorithm.needs_everyone else scheduled(TRACE)
    run = fl.simulate(algorithm, FEDERATION, fl.GD(LR, 2), W, len(TRACE), cohort=cohort)
    np.testing.assert_allclose([r.w for r in run], list(oracle(np.asarray(W))), rtol=0, atol=1e-10)
