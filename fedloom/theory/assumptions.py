"""What several theorems ask: constants as they take them, and assumptions."""

import math
from collections.abc import Callable

import numpy as np

from fedloom.theory.constant import Constants
from fedloom.theory.theorem import FAILS, HOLDS, UNKNOWN, Assumption, Check, Setting

# Constants as theorems take them.


def smoothness(c: Constants) -> float:
    return c.L.value


def own_smoothness(c: Constants) -> float:
    """L of f itself, or of the F_k where that is not known."""
    return c.L_f.value if math.isfinite(c.L_f.value) else c.L.value


def at_optimum(c: Constants) -> float:
    """sum_k p_k |grad F_k(w*)|^2, as sigma_g_mean^2, if constants were measured there (DIFFERENCES_AT_OPTIMUM)."""
    return c.sigma_g_mean.value**2


def at_start(c: Constants) -> float:
    """At least sum_k p_k |grad F_k(w0)|^2, which is sigma_g_mean^2 + |grad f(w0)|^2 there, by |grad f|^2 <= 2 L gap."""
    return c.sigma_g_mean.value**2 + 2 * own_smoothness(c) * c.gap.value


# Assumptions that several theorems make.


def _known(name: str, sentence: str, what: str) -> Assumption:
    """Of a constant that has to be finite for all w."""

    def check(c: Constants, s: Setting) -> Check:
        value = getattr(c, name).value
        if math.isnan(value):
            return Check(UNKNOWN, f"{name} was not measured.")
        if math.isinf(value):
            return Check(FAILS, f"{what} are unbounded.")
        if name in c.everywhere:
            return Check(HOLDS, f"{name} = {value:.3g} for all w.")
        return Check(UNKNOWN, f"{name} = {value:.3g} at the points measured; it may be larger elsewhere.")

    return Assumption(sentence, check)


SMOOTH = _known("L", "Every F_k has an L-Lipschitz gradient.", "second derivatives")
BOUNDED_NOISE = _known("sigma_l", "Minibatch gradients are unbiased with variance at most sigma_l^2.", "variances")
SIMILAR = _known("sigma_g", "Gradients of clients differ from that of f by at most sigma_g.", "differences")
DISSIMILAR = _known("B", "sum_k p_k |grad F_k|^2 <= B^2 |grad f|^2 at every iterate.", "the ratios")
BOUNDED_GRADIENTS = _known("G", "Every entry of every minibatch gradient is at most G.", "gradients")


def _sign(name: str, sentence: str, good: Callable[[float], bool], bad: str) -> Assumption:
    def check(c: Constants, s: Setting) -> Check:
        value = getattr(c, name).value
        if math.isnan(value):
            return Check(UNKNOWN, f"{name} was not measured.")
        if not good(value):
            return Check(FAILS, f"{name} = {value:.3g}: {bad}")
        if name in c.everywhere:
            return Check(HOLDS, f"{name} = {value:.3g} for all w.")
        return Check(UNKNOWN, f"{name} = {value:.3g} at the points measured only.")

    return Assumption(sentence, check)


CONVEX = _sign("rho", "Every F_k is convex.", lambda v: v <= 0, "some F_k is not convex.")
STRONGLY_CONVEX = _sign("mu", "Every F_k is mu-strongly convex.", lambda v: v > 0, "some F_k is not strongly convex.")


def _fact(sentence: str, holds: Callable[[Constants, Setting], bool], yes: str, no: str) -> Assumption:
    return Assumption(sentence, lambda c, s: Check(HOLDS, yes) if holds(c, s) else Check(FAILS, no))


EQUAL_WEIGHTS = _fact(
    "All clients have the weight 1/m.",
    lambda c, s: bool(np.allclose(c.weights, 1 / c.clients, rtol=1e-9)),
    "They have.",
    "Weights differ; the theorem says nothing about weighted means.",
)
EVERYONE = _fact(
    "Everyone takes part in every round.",
    lambda c, s: s.everyone(c),
    "They do.",
    "Cohorts are a part of the clients, which the theorem does not cover.",
)
SYNCHRONOUS = _fact(
    "Replies are to the current model.",
    lambda c, s: s.staleness == 0,
    "They are.",
    "Replies are late, which the theorem does not cover.",
)
NO_REGULARIZER = _fact(
    "The objective is smooth: no kinks, no regularizer at the server.",
    lambda c, s: not s.regularizer,
    "There is none.",
    "There is one; the theorem says nothing about nonsmooth objectives.",
)
WITHOUT_REPLACEMENT = _fact(
    "Cohorts of a fixed size are drawn uniformly, without replacement.",
    lambda c, s: not s.replacement,
    "They are.",
    "Clients may be drawn twice.",
)
LOCAL_STEPS = _fact(
    "Clients make K gradient steps, the same number in every round.",
    lambda c, s: s.local_steps is not None,
    "They do.",
    "Local problems are minimised instead.",
)


INDEPENDENT = _fact(
    "Minibatches of a round are drawn independently.",
    lambda c, s: not s.shuffled,
    "They are.",
    "They are parts of shuffled passes over a client's examples.",
)
ONE_REPLY = _fact(
    "One reply is counted at an update.",
    lambda c, s: (s.cohort if s.replies is None else s.replies) == 1,
    "It is one.",
    "An update waits for several replies, which the theorem does not cover.",
)


def _at_optimum(c: Constants, s: Setting) -> Check:
    if c.at_optimum or "sigma_g_mean" in c.everywhere:
        return Check(HOLDS, "It is.")
    return Check(UNKNOWN, "sigma_g_mean was measured at other points, and may be larger there.")


DIFFERENCES_AT_OPTIMUM = Assumption("How much clients differ is known at w*.", _at_optimum)


def _start(c: Constants, s: Setting) -> Check:
    if s.regularizer:
        return Check(UNKNOWN, "F(w0) - F* with the regularizer is not measured; there is no bound without it.")
    return Check(HOLDS, "It is f(w0) - f*: there is no regularizer.")


KNOWN_START = Assumption("How far F(w0), with the regularizer, is above F* is known.", _start)
ONLY_BOUNDS = (DIFFERENCES_AT_OPTIMUM.sentence, KNOWN_START.sentence)  # step sizes do not need these


def _exact(c: Constants, s: Setting) -> Check:
    if s.local_steps is not None:
        return Check(FAILS, f"Clients make {s.local_steps} gradient steps; inexact solves are not covered.")
    if s.inexactness is None:
        return Check(UNKNOWN, "How exactly they are solved is not known.")
    if s.inexactness > 0:
        return Check(FAILS, f"They are solved up to {s.inexactness:.3g}; inexact solves are not covered.")
    return Check(HOLDS, "They are solved exactly.")


EXACT = Assumption("Local problems are solved exactly.", _exact)


def _inexact(c: Constants, s: Setting) -> Check:
    if s.local_steps is not None or s.inexactness is None:
        return Check(UNKNOWN, "gamma of the local solves is not known.")
    return Check(HOLDS if s.inexactness < 1 else FAILS, f"gamma = {s.inexactness:.3g}.")


INEXACT = Assumption("Local problems are solved up to a known gamma < 1.", _inexact)


def rho_positive(rho: Callable[[Constants, Setting], float]) -> Assumption:
    """That a sufficient decrease is possible at all, with the best step size."""

    def check(c: Constants, s: Setting) -> Check:
        value = rho(c, s)
        if math.isnan(value):
            return Check(UNKNOWN, "It follows from constants that were not measured.")
        return Check(HOLDS if value > 0 else FAILS, f"rho is at most {value:.3g}.")

    return Assumption("Some mu gives a decrease, rho > 0.", check)
