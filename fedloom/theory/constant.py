"""The constants that theorems speak of: smoothness, convexity, noise, heterogeneity, each with its error."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Measured(NamedTuple):
    """A number, and what it may be off by: a standard error where it was sampled, a bound where it was iterated."""

    value: float
    error: float = 0.0  # 0: exact up to rounding


UNKNOWN = Measured(math.nan, math.inf)


@dataclasses.dataclass(frozen=True)
class Constants:
    """Of f(w) = sum_k p_k F_k(w), at a point or as the worst over several: what was measured, and UNKNOWN for the rest.

    Theorems ask for suprema over all w. What is measured on a set of points is a lower bound of them; `everywhere`
    names those that hold for all w, as all of a quadratic's second derivatives do.
    """

    weights: np.ndarray  # p_k
    dimension: int  # d
    L: Measured = UNKNOWN  # the largest L_k: every F_k is L-smooth
    L_k: np.ndarray | None = None  # of each client; nan for those that were not looked at
    L_f: Measured = UNKNOWN  # smoothness of f itself
    mu: Measured = UNKNOWN  # every F_k is mu-strongly convex; 0 if one is only convex or not convex
    rho: Measured = UNKNOWN  # every F_k + rho/2 |w|^2 is convex; 0 if all are convex
    sigma_l: Measured = UNKNOWN  # the largest over k of sqrt(E |minibatch gradient - grad F_k|^2)
    sigma_g: Measured = UNKNOWN  # the largest over k of |grad F_k - grad f|
    sigma_g_mean: Measured = UNKNOWN  # sqrt(sum_k p_k |grad F_k - grad f|^2)
    sigma_l_j: np.ndarray | None = None  # of each coordinate, as FedOpt has it: sqrt(sum_k p_k variance of it)
    sigma_g_j: np.ndarray | None = None  # of each coordinate: sqrt(sum_k p_k (grad_j F_k - grad_j f)^2)
    B: Measured = UNKNOWN  # sqrt(sum_k p_k |grad F_k|^2) / |grad f|, FedDANE's and FedProx's dissimilarity
    G: Measured = UNKNOWN  # the largest entry of any minibatch gradient, FedOpt's bound
    D: Measured = UNKNOWN  # |w0 - w*|
    gap: Measured = UNKNOWN  # f(w0) - f*
    at_optimum: bool = False  # whether sigma_g_mean is that at w*, too
    everywhere: frozenset[str] = frozenset()  # names of those that hold for all w
    notes: tuple[str, ...] = ()  # what was sampled, bounded or left out, in sentences

    @property
    def clients(self) -> int:
        """n."""
        return len(self.weights)


WORST_IS_LARGEST = ("L", "L_f", "rho", "sigma_l", "sigma_g", "sigma_g_mean", "B", "G")
WORST_OF_EACH = ("L_k", "sigma_l_j", "sigma_g_j")


def worst(found: Sequence[Constants]) -> Constants:
    """The worst over several points: the smallest mu, and the largest of everything else. D and gap are the first's."""
    together: dict[str, Measured | np.ndarray | None] = {
        name: _largest([getattr(one, name) for one in found]) for name in WORST_IS_LARGEST
    }
    for name in WORST_OF_EACH:
        arrays = [getattr(one, name) for one in found]
        together[name] = None if any(a is None for a in arrays) else np.max(arrays, axis=0)
    opposite = _largest([Measured(-one.mu.value, one.mu.error) for one in found])
    together["mu"] = Measured(abs(opposite.value), opposite.error)  # it is never negative, but -0 might be
    everywhere = frozenset.intersection(*(one.everywhere for one in found))
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    there = any(one.at_optimum for one in found)
    return dataclasses.replace(found[0], **together, at_optimum=there, everywhere=everywhere, notes=notes)  # type: ignore[arg-type]


def _largest(values: Sequence[Measured]) -> Measured:
    """The largest value; one that is smaller but less certain may exceed it, which counts as error."""
    if any(math.isnan(v.value) for v in values):
        return UNKNOWN
    value = max(v.value for v in values)
    if math.isinf(value):
        return Measured(value)
    return Measured(value, max(v.value + v.error for v in values) - value)
