"""Solving to a tolerance keeps its promise."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import schedules
from fedloom.problem import Problem
from fedloom.solvers import ToTolerance
from tests.local_problems import (
    CENTER,
    FULL,
    QUADRATIC,
    RAGGED,
    SIZES,
    START,
    H,
    K,
    minimiser,
    quadratic_gradient,
    ragged_gradient,
    solve,
    terms,
    with_and_without,
)

CONVEXITY = np.linalg.eigvalsh(H)[0]


def residual(criterion, problem, v, convexity):
    """The residual as the class documents it, at v."""
    size = np.linalg.norm(quadratic_gradient(problem, v))
    first = np.linalg.norm(quadratic_gradient(problem, problem.start))
    m = convexity + (0 if problem.anchor is None else problem.mu)
    if criterion == "gradient":
        return size
    if criterion == "relative-gradient":
        return size / first
    bound = size / m
    if criterion == "distance":
        return bound
    away = np.linalg.norm(v - problem.start) - bound
    return bound / away if away > 0 else np.inf


def truth(criterion, problem, v):
    """What the residual promises to bound, computed with the minimiser that the solver does not know."""
    best = minimiser(problem)
    if criterion == "distance":
        return np.linalg.norm(v - best)
    if criterion == "relative-distance":
        return np.linalg.norm(v - best) / np.linalg.norm(best - problem.start)
    return residual(criterion, problem, v, CONVEXITY)


@with_and_without
@pytest.mark.parametrize("criterion", ["gradient", "relative-gradient", "distance", "relative-distance"])
def test_to_tolerance_keeps_its_promise(criterion, problem):
    for tolerance in (0.5, 1e-2, 1e-8):
        for convexity in (CONVEXITY, CONVEXITY / 10):  # the exact constant, and a cautious one
            solver = ToTolerance(tolerance=tolerance, criterion=criterion, lr=0.5, strong_convexity=convexity)
            solution = solve(solver, problem, QUADRATIC, K)
            # It stops at the first iterate of gradient descent that qualifies.
            v, steps = START, 0
            while residual(criterion, problem, v, convexity) > tolerance:
                v, steps = v - 0.5 * quadratic_gradient(problem, v), steps + 1
            np.testing.assert_allclose(solution.w, v, rtol=1e-10)
            assert solution.gradients == steps + 1
            np.testing.assert_allclose(solution.lr_sum, 0.5 * steps, rtol=1e-15)
            np.testing.assert_allclose(solution.residual, residual(criterion, problem, v, convexity), rtol=1e-5)
            assert not solution.unsolved
            # What is promised is true, of the minimiser itself.
            assert truth(criterion, problem, np.asarray(solution.w)) <= solution.residual * (1 + 1e-6)
            assert solution.residual <= tolerance


def test_to_tolerance_counts_example_gradients():
    """One gradient at the start and one after each step, of n_k examples each."""
    for k in range(len(SIZES)):
        solution = solve(ToTolerance(tolerance=1e-3, lr=0.1), FULL, RAGGED, k)
        steps = np.round(solution.lr_sum / 0.1)
        assert steps > 1
        assert solution.gradients == (steps + 1) * SIZES[k]
        v = np.asarray(solution.w)
        np.testing.assert_allclose(solution.residual, np.linalg.norm(ragged_gradient(k, v) + terms(FULL, v)), rtol=1e-9)


def test_a_schedule_tightens_the_tolerance():
    solver = ToTolerance(tolerance=schedules.inverse(0.2), criterion="distance", lr=0.3)
    spent = []
    for t in range(0, 100, 20):
        solution = solve(solver, FULL, QUADRATIC, K, t=t)
        assert np.linalg.norm(solution.w - minimiser(FULL)) <= solution.residual <= 0.2 / (t + 1)
        spent.append(int(solution.gradients))
    assert spent == sorted(spent)
    assert spent[0] < spent[-1]


@pytest.mark.parametrize("criterion", ["gradient", "relative-gradient", "distance", "relative-distance"])
def test_giving_up_is_flagged(criterion):
    solver = ToTolerance(tolerance=1e-9, criterion=criterion, lr=0.1, max_steps=4)
    solution = solve(solver, FULL, QUADRATIC, K)
    assert solution.unsolved
    assert solution.residual > 1e-9
    assert solution.gradients == 5
    np.testing.assert_allclose(solution.lr_sum, 0.4, rtol=1e-15)
    # With half the time it gives up after half the steps.
    assert solve(solver, FULL, QUADRATIC, K, work=0.5).gradients == 3


@pytest.mark.parametrize("criterion", ["distance", "relative-distance"])
@pytest.mark.parametrize("problem", [Problem(START), Problem(START, mu=9.0)])
def test_no_distance_is_claimed_without_strong_convexity(criterion, problem):
    """mu without an anchor is not in the objective, and so does not make it convex."""
    solution = solve(ToTolerance(tolerance=1.0, criterion=criterion, lr=0.5, max_steps=50), problem, QUADRATIC, K)
    assert solution.residual == np.inf
    assert solution.unsolved


@pytest.mark.parametrize("criterion", ["gradient", "relative-gradient", "distance", "relative-distance"])
def test_a_start_at_the_minimiser_is_solved_at_once(criterion):
    solution = solve(ToTolerance(criterion=criterion, strong_convexity=CONVEXITY), Problem(CENTER), QUADRATIC, K)
    np.testing.assert_array_equal(solution.w, CENTER)
    assert solution.residual == 0
    assert not solution.unsolved
    assert solution.gradients == 1


def test_divergence_is_not_a_solution():
    solution = solve(ToTolerance(lr=1e6), Problem(START), QUADRATIC, K)
    assert not np.all(np.isfinite(solution.w))
    assert solution.unsolved


def test_a_weakly_convex_loss_is_not_certified_by_a_small_gradient():
    """F(w) = cos(3 w) is flat at 0, far from the minimiser; where its convexity -9 is declared, nothing is claimed."""
    wave = fl.examples(np.zeros((1, 1)), [1], lambda w, rows, key: jnp.cos(3 * w[0]) + 0 * rows[:, 0])
    start = np.array([0.001])
    problem = Problem(start, anchor=start, mu=1.0)
    convex = solve(ToTolerance(0.05, "distance"), problem, wave, 0)
    assert not convex.unsolved  # the default presumes convexity
    honest = solve(ToTolerance(0.05, "distance", max_steps=200, strong_convexity=-9.0), problem, wave, 0)
    assert honest.unsolved
    assert abs(honest.w[0] - start[0]) > 0.5  # it went on to the minimiser
