"""Regularizers against their definition: every prox is compared with minimisers found by SciPy and by inequalities.

The penalties and the feasible sets are written down again here, in NumPy; the oracles use nothing of the package.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from fedloom import regularizers
from fedloom.regularizers import REGULARIZERS

D = 5
STEPS = [0.1, 1.0, 4.0]
# Far from, near to and at the kinks: zeros, ties and one coordinate that dominates.
POINTS = [
    *np.random.default_rng(0).normal(scale=2.0, size=(4, D)),
    *np.random.default_rng(1).normal(scale=0.2, size=(2, D)),
    np.array([1.5, -1.5, 1.5, 0.0, -0.2]),
    np.array([9.0, 0.1, -0.1, 0.0, 0.3]),
    np.zeros(D),
]


# Oracles: a minimiser of g(x) + |x - v|^2 / (2 step), each for its own kind of g.


def coordinatewise(g: Callable[[float], float]):
    """g is a sum of one function of each coordinate: D searches on a line."""

    def solve(v, step):
        def line(vj):
            # |x| <= |v| for every even g that grows outwards; the margin keeps the ends out of the way.
            reach = abs(vj) + 1
            found = optimize.minimize_scalar(
                lambda x: g(x) + (x - vj) ** 2 / (2 * step),
                bounds=(-reach, reach),
                method="bounded",
                options={"xatol": 1e-12},
            )
            return found.x

        return np.array([line(vj) for vj in v])

    return solve


def _slsqp(f, jac, z, **constraints):
    found = optimize.minimize(f, z, jac=jac, method="SLSQP", options={"ftol": 1e-16, "maxiter": 1000}, **constraints)
    # "Positive directional derivative" (8) is how SLSQP says that it is at the limit of rounding.
    assert found.status in (0, 8), found
    return found.x


def largest_entry(strength):
    """min strength * top + |x - v|^2 / (2 step) subject to -top <= x_j <= top: a smooth problem in (x, top)."""
    above = np.hstack([-np.eye(D), np.ones((D, 1))])
    below = np.hstack([np.eye(D), np.ones((D, 1))])
    a = np.vstack([above, below])

    def solve(v, step):
        z = _slsqp(
            lambda z: strength * z[-1] + np.sum((z[:-1] - v) ** 2) / (2 * step),
            lambda z: np.append((z[:-1] - v) / step, strength),
            np.append(v, np.max(np.abs(v)) + 0.1),
            constraints={"type": "ineq", "fun": lambda z: a @ z, "jac": lambda z: a},
        )
        return z[:-1]

    return solve


def group_norms(strength, groups):
    """Which groups vanish is tried out; where a group does not vanish the objective is smooth."""
    cuts = np.split(np.arange(D), np.cumsum(groups)[:-1])

    def solve(v, step):
        best = (np.inf, np.zeros(D))
        for alive in itertools.product([False, True], repeat=len(cuts)):
            free = np.concatenate([c for c, on in zip(cuts, alive, strict=True) if on] or [np.empty(0, int)])

            def whole(z, free=free):
                x = np.zeros(D)
                x[free] = z
                return x

            def f(z, whole=whole):
                x = whole(z)
                return strength * sum(np.linalg.norm(x[c]) for c in cuts) + np.sum((x - v) ** 2) / (2 * step)

            def jac(z, whole=whole, free=free):
                x = whole(z)
                unit = np.concatenate([x[c] / max(np.linalg.norm(x[c]), 1e-300) for c in cuts])
                return (strength * unit + (x - v) / step)[free]

            z = optimize.minimize(f, v[free], jac=jac, method="BFGS", options={"gtol": 1e-11}).x if len(free) else []
            best = min(best, (f(z), whole(z)), key=lambda pair: pair[0])
        return best[1]

    return solve


def bounded(low, high):
    """Least squares with bounds, by SciPy's active-set method."""
    return lambda v, step: optimize.lsq_linear(np.eye(D), v, bounds=(low, high), method="bvls", tol=1e-14).x


def constrained(**constraint):
    """The nearest point that satisfies a smooth constraint on x."""

    def solve(v, step):
        return _slsqp(
            lambda x: np.sum((x - v) ** 2) / (2 * step), lambda x: (x - v) / step, np.full(D, 1 / D), **constraint
        )

    return solve


def on_simplex(scale):
    ones = np.ones(D)
    total = {"type": "eq", "fun": lambda x: x.sum() - scale, "jac": lambda x: ones}
    return constrained(bounds=[(0, None)] * D, constraints=total)


def in_l1_ball(radius):
    """x = a - b with a, b >= 0 and sum(a + b) <= radius."""
    room = {"type": "ineq", "fun": lambda z: radius - z.sum(), "jac": lambda z: -np.ones(2 * D)}

    def solve(v, step):
        def residual(z):
            return (z[:D] - z[D:] - v) / step

        z = _slsqp(
            lambda z: step * np.sum(residual(z) ** 2) / 2,
            lambda z: np.concatenate([residual(z), -residual(z)]),
            np.full(2 * D, radius / (4 * D)),
            bounds=[(0, None)] * (2 * D),
            constraints=room,
        )
        return z[:D] - z[D:]

    return solve


def in_l2_ball(radius):
    return constrained(constraints={"type": "ineq", "fun": lambda x: radius**2 - x @ x, "jac": lambda x: -2 * x})


# Feasible points, for the sets.


def anywhere(rng, n):
    return rng.normal(scale=3.0, size=(n, D)) * rng.choice([0, 1], size=(n, D))


def between(low, high):
    return lambda rng, n: rng.uniform(low, high, size=(n, D))


def simplex_points(scale):
    return lambda rng, n: scale * rng.dirichlet(np.full(D, 0.3), n)


def l1_points(radius):
    """Signed points of simplices up to the given one."""
    return lambda rng, n: (
        radius * rng.uniform(size=(n, 1)) * rng.dirichlet(np.full(D, 0.3), n) * rng.choice([-1, 1], size=(n, D))
    )


def l2_points(radius):
    def points(rng, n):
        x = rng.normal(size=(n, D))
        return radius * np.sqrt(rng.uniform(size=(n, 1))) * x / np.linalg.norm(x, axis=1, keepdims=True)

    return points


class Case(NamedTuple):
    name: str
    regularizer: Any
    g: Callable[[np.ndarray], float]  # where it is finite
    minimiser: Callable[[np.ndarray, float], np.ndarray]
    feasible: Callable[[np.random.Generator, int], np.ndarray] = anywhere
    outside: np.ndarray | None = None  # for a set, a point that is not in it


def _groups(strength, groups):
    sizes = groups or (D,)
    cuts = np.cumsum(sizes)[:-1]
    return Case(
        "l2",
        regularizers.l2(strength, groups),
        lambda x: strength * sum(np.linalg.norm(part) for part in np.split(x, cuts)),
        group_norms(strength, sizes),
    )


def _l1(s):
    return Case("l1", regularizers.l1(s), lambda x: s * np.abs(x).sum(), coordinatewise(lambda x: s * abs(x)))


def _squared(s):
    g = regularizers.squared_l2(s)
    return Case("squared-l2", g, lambda x: s / 2 * (x @ x), coordinatewise(lambda x: s / 2 * x**2))


def _elastic(a, b):
    return Case(
        "elastic-net",
        regularizers.elastic_net(l1=a, l2=b),
        lambda x: a * np.abs(x).sum() + b / 2 * (x @ x),
        coordinatewise(lambda x: a * abs(x) + b / 2 * x**2),
    )


def _l_inf(s):
    return Case("l-inf", regularizers.l_inf(s), lambda x: s * np.max(np.abs(x)), largest_entry(s))


def _set(name, regularizer, minimiser, feasible, outside):
    return Case(name, regularizer, lambda x: 0.0, minimiser, feasible, np.asarray(outside))


ONES = np.ones(D)
PENALTIES = [
    _l1(0.3),
    _l1(2.0),
    _groups(0.3, ()),
    _groups(2.0, ()),
    _groups(0.7, (2, 3)),
    _groups(1.5, (1, 1, 3)),
    # Groups of one coordinate are absolute values.
    _groups(0.4, (1,) * D)._replace(minimiser=coordinatewise(lambda x: 0.4 * abs(x))),
    _squared(0.3),
    _squared(2.0),
    _elastic(0.3, 2.0),
    _elastic(2.0, 0.3),
    _elastic(0.5, 0.0),
    _elastic(0.0, 0.5),
    _l_inf(0.3),
    _l_inf(2.0),
]
SETS = [
    _set("box", regularizers.box(-1.0, 1.0), bounded(-1.0, 1.0), between(-1, 1), 2 * ONES),
    _set("box", regularizers.box(0.5, 2.5), bounded(0.5, 2.5), between(0.5, 2.5), 0 * ONES),
    _set("nonnegative", regularizers.nonnegative(), bounded(0.0, np.inf), between(0, 9), -1e-3 * ONES),
    _set("simplex", regularizers.simplex(), on_simplex(1.0), simplex_points(1.0), ONES),
    _set("simplex", regularizers.simplex(3.0), on_simplex(3.0), simplex_points(3.0), [4.0, -1.0, 0, 0, 0]),
    _set("l1-ball", regularizers.l1_ball(), in_l1_ball(1.0), l1_points(1.0), 0.21 * ONES),
    _set("l1-ball", regularizers.l1_ball(3.0), in_l1_ball(3.0), l1_points(3.0), -0.61 * ONES),
    _set("l2-ball", regularizers.l2_ball(), in_l2_ball(1.0), l2_points(1.0), 0.45 * ONES),
    _set("l2-ball", regularizers.l2_ball(2.5), in_l2_ball(2.5), l2_points(2.5), -1.12 * ONES),
]
NOTHING = Case("none", regularizers.none(), lambda x: 0.0, lambda v, step: v)
CASES = [NOTHING, *PENALTIES, *SETS]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: str(c.regularizer))
every_set = pytest.mark.parametrize("case", SETS, ids=lambda c: str(c.regularizer))


# Compiled once for each kind of regularizer: its numbers are arguments.
_compiled = jax.jit(lambda regularizer, v, step: regularizer.prox(v, step))


def prox(regularizer, v, step):
    return np.asarray(_compiled(regularizer, jnp.asarray(v), step))


def test_every_registered_regularizer_has_a_case():
    assert {case.name for case in CASES} == set(REGULARIZERS)
    assert all(type(case.regularizer) is REGULARIZERS[case.name] for case in CASES)


@every_case
def test_value_is_the_formula(case):
    for x in case.feasible(np.random.default_rng(2), 10):
        np.testing.assert_allclose(case.regularizer.value(jnp.asarray(x)), case.g(x), rtol=1e-13, atol=1e-15)


@every_case
def test_prox_is_the_minimiser_that_scipy_finds(case):
    for v in POINTS:
        for step in STEPS:
            # A search by values alone places a minimum to about the root of the rounding error.
            expected = case.minimiser(v, step)
            np.testing.assert_allclose(prox(case.regularizer, v, step), expected, rtol=0, atol=2e-6)


@every_case
def test_prox_satisfies_the_variational_inequality(case):
    """p = prox(v) if and only if <v - p, x - p> / step <= g(x) - g(p) for every x: no search, so no search error."""
    rng = np.random.default_rng(3)
    for v in POINTS:
        for step in STEPS:
            p = prox(case.regularizer, v, step)
            # Far and near: steps towards random points stay in a convex set.
            here = case.g(p) + np.sum((p - v) ** 2) / (2 * step)
            for far in case.feasible(rng, 15):
                for x in (far, p + 1e-2 * (far - p)):
                    assert (v - p) @ (x - p) / step <= case.g(x) - case.g(p) + 1e-12
                    # And so, in particular, no such x has a smaller objective.
                    assert here <= case.g(x) + np.sum((x - v) ** 2) / (2 * step) + 1e-12


@every_set
def test_projection_lands_in_the_set_and_the_step_does_not_matter(case):
    for v in POINTS:
        first, *others = [prox(case.regularizer, v, step) for step in STEPS]
        assert case.regularizer.value(jnp.asarray(first)) == 0
        for other in others:
            np.testing.assert_array_equal(other, first)
        # A point of the set is its own projection.
        np.testing.assert_allclose(prox(case.regularizer, first, 1.0), first, rtol=0, atol=1e-14)


@every_set
def test_value_outside_the_set_is_infinite(case):
    assert case.regularizer.value(jnp.asarray(case.outside)) == np.inf
    for x in case.feasible(np.random.default_rng(4), 5):
        assert case.regularizer.value(jnp.asarray(x)) == 0


def _scaled(regularizer, factor):
    """The penalty times a factor."""
    fields = {"l1", "l2", "strength"} & set(vars(regularizer))
    return type(regularizer)(**vars(regularizer) | {f: factor * getattr(regularizer, f) for f in fields})


@pytest.mark.parametrize("case", PENALTIES, ids=lambda c: str(c.regularizer))
def test_step_and_strength_of_a_penalty_are_exchangeable(case):
    """step g is what the prox sees: three times the step is three times the penalty, and both pull further."""
    for v in POINTS:
        short, long = prox(case.regularizer, v, 0.2), prox(case.regularizer, v, 3 * 0.2)
        np.testing.assert_allclose(prox(_scaled(case.regularizer, 3.0), v, 0.2), long, rtol=0, atol=1e-14)
        if np.any(short != 0):
            assert case.g(long) < case.g(short) < case.g(v)
        else:
            np.testing.assert_array_equal(long, 0)


@pytest.mark.parametrize("case", PENALTIES, ids=lambda c: str(c.regularizer))
def test_strength_zero_is_the_identity(case):
    zero = _scaled(case.regularizer, 0.0)
    for v in POINTS:
        np.testing.assert_array_equal(prox(zero, v, 2.0), v)
        assert zero.value(jnp.asarray(v)) == 0


def test_squared_norms_carry_one_half():
    w = jnp.array([3.0, 4.0])
    assert regularizers.squared_l2(2.0).value(w) == 25.0
    assert regularizers.elastic_net(l1=0.0, l2=2.0).value(w) == 25.0
    # x / 1 + (x - v) / 1 = 0 has the root v / 2; without the half it would be v / 3.
    np.testing.assert_array_equal(prox(regularizers.squared_l2(1.0), w, 1.0), w / 2)


def test_closed_forms():
    v = np.array([3.0, -0.5, -4.0])
    np.testing.assert_allclose(prox(regularizers.l1(0.5), v, 2.0), [2, 0, -3])
    np.testing.assert_allclose(prox(regularizers.elastic_net(l1=0.5, l2=1.0), v, 2.0), [2 / 3, 0, -1])
    # The group (3, -4) has norm 5, from which 1 is taken; the group (-0.5) is shorter than 1.
    grouped = regularizers.l2(0.5, (1, 2))
    np.testing.assert_allclose(prox(grouped, np.array([-0.5, 3.0, -4.0]), 2.0), [0, 2.4, -3.2])
    # Both tops are cut until 1 is taken away in all.
    np.testing.assert_allclose(prox(regularizers.l_inf(0.5), v, 2.0), [3.0, -0.5, -3.0])
    np.testing.assert_allclose(prox(regularizers.l_inf(1.0), v, 2.0), [2.5, -0.5, -2.5])


_vectorised = jax.jit(lambda regularizer, vs, steps: jax.vmap(regularizer.prox)(vs, steps))


@every_case
def test_prox_compiles_and_vectorises(case):
    plain = case.regularizer.prox(jnp.asarray(POINTS[0]), 0.7)
    np.testing.assert_allclose(prox(case.regularizer, POINTS[0], 0.7), plain, rtol=0, atol=1e-14)
    steps = np.linspace(0.1, 3.0, len(POINTS))
    batched = _vectorised(case.regularizer, jnp.asarray(np.array(POINTS)), jnp.asarray(steps))
    one_by_one = [prox(case.regularizer, v, step) for v, step in zip(POINTS, steps, strict=True)]
    np.testing.assert_allclose(batched, one_by_one, rtol=0, atol=1e-14)


def test_a_grid_of_strengths_is_a_vmapped_axis():
    v = POINTS[0]
    strengths = jnp.array([0.0, 0.1, 1.0])
    for kind in (regularizers.l1, regularizers.l2, regularizers.squared_l2, regularizers.l_inf):
        grid = jax.jit(jax.vmap(lambda r, v=v: r.prox(jnp.asarray(v), 0.5)))(kind(strengths))
        np.testing.assert_allclose(grid, [prox(kind(float(s)), v, 0.5) for s in strengths], rtol=0, atol=1e-14)


def test_groups_must_cover_the_model():
    with pytest.raises(ValueError, match=r"l2: groups add up to 5 coordinates, but the model has 4\."):
        regularizers.l2(0.1, (2, 3)).prox(jnp.ones(4), 1.0)
    with pytest.raises(ValueError, match=r"l2: groups add up to 5 coordinates, but the model has 4\."):
        regularizers.l2(0.1, (2, 3)).value(jnp.ones(4))


@pytest.mark.parametrize("groups", [(2, 0), (2, -1), (1.5,), [2, 3], 5])
def test_groups_are_whole_sizes(groups):
    with pytest.raises(ValueError, match=r"l2: groups must be a tuple of group sizes, or \(\) for one group, got"):
        regularizers.l2(0.1, groups)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: regularizers.l1(-0.1), r"l1: strength must be a non-negative number, got -0\.1"),
        (lambda: regularizers.l1(np.nan), "l1: strength must be a non-negative number, got nan"),
        (lambda: regularizers.l1("much"), "l1: strength must be a non-negative number, got 'much'"),
        (lambda: regularizers.l2(-1), "l2: strength must be a non-negative number"),
        (lambda: regularizers.squared_l2(np.inf), "squared_l2: strength must be a non-negative number"),
        (lambda: regularizers.elastic_net(l1=-1), "elastic_net: l1 must be a non-negative number"),
        (lambda: regularizers.elastic_net(l2=-1), "elastic_net: l2 must be a non-negative number"),
        (lambda: regularizers.l_inf(-1), "l_inf: strength must be a non-negative number"),
        (lambda: regularizers.box(low=np.nan), "box: low must be a finite number"),
        (lambda: regularizers.box(high=np.inf), "box: high must be a finite number"),
        (lambda: regularizers.box(2.0, 1.0), r"box: low must not be larger than high, got low = 2\.0 and high = 1\.0"),
        (lambda: regularizers.simplex(0), "simplex: scale must be a positive number, got 0"),
        (lambda: regularizers.l1_ball(0), "l1_ball: radius must be a positive number, got 0"),
        (lambda: regularizers.l2_ball(-2.0), r"l2_ball: radius must be a positive number, got -2\.0"),
    ],
)
def test_bad_hyperparameters_raise_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("g", [regularizers.simplex(), regularizers.l1_ball()], ids=["simplex", "l1_ball"])
def test_a_projection_from_far_away_is_feasible_to_rounding(g):
    """The rounding error of a projection grows with the distance; its own value must not become infinite."""
    v = jnp.asarray(np.random.default_rng(0).normal(size=20) * 0.1 + 1e3)
    assert g.value(g.prox(v, 1.0)) == 0


@pytest.mark.parametrize("name", regularizers.REGULARIZERS)
def test_a_float32_model_stays_float32_where_float64_is_enabled(name):
    g = regularizers.REGULARIZERS[name]()
    v = jnp.array([3.0, -1.0, 0.5, 2.0], jnp.float32)
    assert g.prox(v, 0.7).dtype == jnp.float32
    np.testing.assert_allclose(g.prox(v, 0.7), g.prox(v.astype(jnp.float64), 0.7), atol=1e-6)
