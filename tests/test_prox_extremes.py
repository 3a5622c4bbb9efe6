"""Every prox at extreme ratios of radius and |v|, in both float types, against exact rational arithmetic.

The definitions are written down again in fractions. A correct implementation commits a known number of roundings, each
at most eps/2 of the number that is rounded; the bound of each case counts them and allows twice as much, which covers
products of errors. Where a norm or a level is subtracted, the unit is what was subtracted, since that is what the
rounding of the radius alone would change. XLA flushes subnormal numbers to zero, hence the smallest normal number.
"""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedloom import regularizers
from fedloom.regularizers import REGULARIZERS

STEP = 0.5  # a power of two: step * strength is exact
SIZES = {"float32": (-30, -8, -3, 0, 3, 8, 30), "float64": (-300, -30, -17, -3, 0, 3, 17, 30, 300)}
SHAPES = [
    [1, 0.5, -0.25, 0.1, 0, 0.3],
    [-0.7, 0.7, 0.7, -0.7, 0.7, 0.7],  # ties
    [0.9, -0.9000001, 0.8999999, 0.9, -0.9, 0.90001],  # nearly ties
    [1, 1e-7, -1e-7, 3e-8, 1e-12, 0],  # one coordinate dominates
    [-1, -2, -3, -0.5, -0.1, -4],
    *np.random.default_rng(0).normal(size=(3, 6)).tolist(),
]
GROUPS = (2, 3, 1)
Exact = list[Fraction]


# The mathematics.


def level(heights: Exact, volume: Fraction) -> Fraction:
    """theta with sum_i max(heights_i - theta, 0) = volume: the sum is linear between neighbouring heights."""

    def above(theta: Fraction) -> Fraction:
        return sum((max(h - theta, Fraction(0)) for h in heights), Fraction(0))

    marks = sorted(set(heights), reverse=True)
    for high, low in itertools.pairwise(marks):
        if above(low) >= volume:
            return high - (volume - above(high)) * (high - low) / (above(low) - above(high))
    return marks[-1] - (volume - above(marks[-1])) / len(heights)


def sign(a: Fraction) -> int:
    return (a > 0) - (a < 0)


def root(a: Fraction) -> Fraction:
    """The square root to 300 bits."""
    shift = 2 * (300 + max(a.denominator.bit_length() - a.numerator.bit_length(), 0))
    return Fraction(math.isqrt((a.numerator << shift) // a.denominator), 1 << (shift // 2))


def norm(v: Exact) -> Fraction:
    return root(sum((a * a for a in v), Fraction(0)))


def length(v: Exact) -> Fraction:
    return sum((abs(a) for a in v), Fraction(0))


def soft(v: Exact, t: Fraction) -> Exact:
    return [sign(a) * max(abs(a) - t, Fraction(0)) for a in v]


def shrunk_groups(v: Exact, t: Fraction) -> Exact:
    """Each group loses t of its norm."""
    out, start = [], 0
    for size in GROUPS:
        part = v[start : start + size]
        size_of = norm(part)
        out += [a * (1 - t / size_of) if size_of > t else Fraction(0) for a in part]
        start += size
    return out


def capped(v: Exact, t: Fraction) -> Exact:
    """The largest absolute values are cut until t is taken away in all."""
    if length(v) <= t:
        return [Fraction(0)] * len(v)
    cap = level([abs(a) for a in v], t)
    return [sign(a) * min(abs(a), cap) for a in v]


def in_simplex(v: Exact, r: Fraction) -> Exact:
    theta = level(v, r)
    return [max(a - theta, Fraction(0)) for a in v]


def in_l1_ball(v: Exact, r: Fraction) -> Exact:
    if length(v) <= r:
        return v
    return [sign(a) * x for a, x in zip(v, in_simplex([abs(a) for a in v], r), strict=True)]


def in_l2_ball(v: Exact, r: Fraction) -> Exact:
    size = norm(v)
    return v if size <= r else [a * r / size for a in v]


# Bounds, in units of eps: of each coordinate x_j of the result.

Bound = Callable[[Exact, Fraction, Exact], Exact]


def of_result(roundings: int) -> Bound:
    return lambda v, r, x: [roundings * abs(a) for a in x]


def of_input(roundings: int) -> Bound:
    return lambda v, r, x: [roundings * abs(a) for a in v]


def of_radius(v: Exact, r: Fraction, x: Exact) -> Exact:
    """Difference and quotient of each coordinate, the sum of n, the level, the last product; a radius beyond |v|_1
    does not act."""
    return [(len(v) + 4) * min(r, length(v)) + abs(a) for a in x]


def of_scale(v: Exact, r: Fraction, x: Exact) -> Exact:
    return [(len(v) + 4) * r] * len(v)


def of_result_in_ball(v: Exact, r: Fraction, x: Exact) -> Exact:
    """n squares, their sum, the root, the quotient, the product; a coordinate below 2^-100 of the radius may vanish."""
    return [(len(v) + 4) * abs(a) + r / 2**80 for a in x]


class Case(NamedTuple):
    name: str
    make: Callable[[Any], Any]  # from the radius, or the strength, as the prox sees it after the step
    exact: Callable[[Exact, Fraction], Exact]
    bound: Bound
    total: Callable[[Exact, Fraction], Fraction | None] = lambda x, r: None  # what the coordinates must add up to


N = len(SHAPES[0])
CASES = [
    Case("none", lambda r: regularizers.none(), lambda v, r: v, of_result(0)),
    # |v| - t
    Case("l1", lambda r: regularizers.l1(r / STEP), soft, of_result(1)),
    # n squares, their sum, the root (relative errors of the norm), the difference, the quotient, the product
    Case("l2", lambda r: regularizers.l2(r / STEP, GROUPS), shrunk_groups, of_input(N + 4)),
    # 1 + c, the quotient
    Case(
        "squared-l2",
        lambda r: regularizers.squared_l2(r / STEP),
        lambda v, r: [a / (1 + r) for a in v],
        of_result(2),
    ),
    # The same after |v| - t; with l2 = 2 l1
    Case(
        "elastic-net",
        lambda r: regularizers.elastic_net(l1=r / STEP, l2=2 * r / STEP),
        lambda v, r: [a / (1 + 2 * r) for a in soft(v, r)],
        of_result(3),
    ),
    Case("l-inf", lambda r: regularizers.l_inf(r / STEP), capped, of_radius),
    Case(
        "box",
        lambda r: regularizers.box(-r, r),
        lambda v, r: [min(max(a, -r), r) for a in v],
        of_result(0),
    ),
    Case(
        "nonnegative", lambda r: regularizers.nonnegative(), lambda v, r: [max(a, Fraction(0)) for a in v], of_result(0)
    ),
    Case("simplex", regularizers.simplex, in_simplex, of_scale, lambda v, r: r),
    Case("l1-ball", regularizers.l1_ball, in_l1_ball, of_radius, lambda v, r: r if length(v) > r else None),
    Case("l2-ball", regularizers.l2_ball, in_l2_ball, of_result_in_ball),
]

_prox = jax.jit(lambda regularizer, v: regularizer.prox(v, STEP))
_value = jax.jit(lambda regularizer, v: regularizer.value(v))


def settings(dtype: str) -> list[tuple[np.ndarray, Any]]:
    """Points and radii of all sizes, and points whose coordinates are of different sizes."""
    kind = np.dtype(dtype).type
    radii = [kind(0.7 * 10.0**size) for size in SIZES[dtype]]
    points = [np.array(shape) * 10.0**size for shape in SHAPES for size in SIZES[dtype]]
    low, high = 10.0 ** min(SIZES[dtype]), 10.0 ** max(SIZES[dtype])
    points += [np.array([low, -low / 2, high, 1, -high, 3]), np.zeros(N)]
    return [(point.astype(kind), radius) for point in points for radius in radii]


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_prox_is_exact_to_rounding(case, dtype):
    eps, tiny = (Fraction(float(getattr(np.finfo(dtype), name))) for name in ("eps", "tiny"))
    for point, radius in settings(dtype):
        v, r = [Fraction(float(a)) for a in point], Fraction(float(radius))
        regularizer = case.make(float(radius))
        result = _prox(regularizer, jnp.asarray(point))
        assert result.dtype == dtype
        assert np.all(np.isfinite(result)), (point, radius, result)
        got, expected = [Fraction(float(a)) for a in result], case.exact(v, r)
        for a, x, room in zip(got, expected, case.bound(v, r, expected), strict=True):
            assert abs(a - x) <= eps * room + tiny, (point, radius, result, [float(e) for e in expected])
        total = case.total(v, r)
        if total is not None:  # to rounding of the radius, however large v is
            assert abs(length(got) - total) <= (N + 4) * eps * total + tiny, (point, radius, result)
        if case.name in ("box", "nonnegative", "simplex", "l1-ball", "l2-ball"):
            assert _value(regularizer, result) == 0, (point, radius, result)


def test_every_regularizer_is_tested():
    assert [case.name for case in CASES] == list(REGULARIZERS)


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("kind", [regularizers.l_inf, regularizers.simplex, regularizers.l1_ball, regularizers.l2_ball])
def test_a_batch_of_extreme_radii_is_as_exact_as_one(kind, dtype):
    points, radii = zip(*settings(dtype), strict=True)
    batch = jax.jit(jax.vmap(lambda r, v: kind(r).prox(v, STEP)))(np.array(radii), np.array(points))
    single = [_prox(kind(radius), jnp.asarray(point)) for point, radius in zip(points, radii, strict=True)]
    # Sums may be taken in another order: the bound above, twice.
    size = np.minimum(np.abs(np.array(points)).sum(axis=1, dtype=float), np.array(radii).astype(float))
    room = 2 * (N + 4) * np.finfo(dtype).eps * (size[:, None] + np.abs(np.array(single)))
    if kind is regularizers.simplex:
        room = 2 * (N + 4) * np.finfo(dtype).eps * np.array(radii)[:, None]
    assert np.all(np.abs(np.array(batch, float) - np.array(single, float)) <= room + np.finfo(dtype).tiny)


def test_many_small_coordinates_sum_to_the_radius():
    """If the level were off by one rounding of the radius, the sum would be off by one for each positive coordinate."""
    n, eps = 1_000_000, np.finfo(np.float32).eps
    v = 1e-4 * np.random.default_rng(1).random(n, np.float32)
    v[0] = 1
    result = np.asarray(_prox(regularizers.simplex(1.0), jnp.asarray(v)), np.float64)
    exact = v.astype(np.float64)
    order = np.sort(exact)[::-1]
    candidates = (np.cumsum(order) - 1) / np.arange(1, n + 1)
    theta = candidates[np.flatnonzero(order > candidates)[-1]]
    np.testing.assert_allclose(result, np.maximum(exact - theta, 0), rtol=0, atol=4 * eps)
    positive = np.sum(exact > theta)
    assert positive > 1000
    # Each addition rounds by at most eps/2, up or down alike, so that the errors of so many grow as their root.
    assert abs(result.sum() - 1) < 2 * np.sqrt(positive) * eps


def test_a_strength_below_the_smallest_number_changes_nothing():
    v = jnp.array([1, 0.5, -0.25, 0.1], jnp.float32)
    for strength in (1e-39, 1e-44, 1e-200):
        np.testing.assert_array_equal(_prox(regularizers.l_inf(strength), v), v)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_subnormal_points_are_as_good_as_zero(case):
    v = np.array([1e-39, -3e-40, 2e-44, 0, -1e-39, 5e-40], np.float32)
    zero = _prox(case.make(0.5), jnp.zeros(N, jnp.float32))
    np.testing.assert_allclose(_prox(case.make(0.5), jnp.asarray(v)), zero, rtol=0, atol=2e-39)
