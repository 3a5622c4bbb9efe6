"""The local problem, and solvers against NumPy loops and closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fedloom as fl
from fedloom.problem import Problem
from fedloom.solvers import GD, SGD, Adagrad, Exact, Optax
from tests.local_problems import (
    ADAM,
    ANCHOR,
    CENTER,
    FULL,
    HEAVY,
    LINEAR,
    MU,
    QUADRATIC,
    RAGGED,
    SIZES,
    START,
    WHO,
    D,
    H,
    K,
    X,
    Y,
    every_problem,
    minimiser,
    quadratic_gradient,
    ragged_gradient,
    rows_of,
    solve,
    terms,
    visits,
    with_and_without,
)


@every_problem
@pytest.mark.parametrize("federation", [QUADRATIC, RAGGED], ids=["quadratic", "examples"])
def test_gradient_of_the_local_problem_is_the_derivative_of_its_value(problem, federation):
    objective = federation.objective(K)
    problem = problem.map(jnp.asarray)
    v = jnp.array([0.3, 1.7, -0.9])
    expected = jax.grad(lambda v: problem.value(objective.loss(v), v))(v)
    np.testing.assert_allclose(problem.gradient(objective.grad(v), v), expected, rtol=1e-12, atol=1e-13)


def test_the_local_problem_in_numbers():
    v = jnp.array([0.0, 1.0, 1.0])
    expected = 5.0 + LINEAR @ v + MU / 2 * np.sum((v - ANCHOR) ** 2)
    np.testing.assert_allclose(FULL.value(5.0, v), expected, rtol=1e-15)
    # Without an anchor there is no proximal term, whatever mu says.
    assert Problem(START, mu=9.0).value(5.0, v) == 5.0
    np.testing.assert_array_equal(Problem(START, mu=9.0).gradient(v, v), v)


def test_the_local_problem_on_trees():
    """The gradient in the model's tree is the flat one, unravelled."""
    _, unravel = ravel_pytree({"a": jnp.zeros(()), "b": jnp.zeros((2, 1))})
    v, g = jnp.array([0.3, 1.7, -0.9]), jnp.array([1.0, 2.0, 3.0])
    tree = FULL.map(unravel).gradient(unravel(g), unravel(v))
    assert tree["b"].shape == (2, 1)
    np.testing.assert_allclose(ravel_pytree(tree)[0], FULL.gradient(g, v), rtol=1e-15)


@every_problem
def test_gd_in_numpy(problem):
    v = START
    for _ in range(4):
        v = v - 0.3 * quadratic_gradient(problem, v)
    solution = solve(GD(lr=0.3, steps=4), problem, QUADRATIC, K)
    np.testing.assert_allclose(solution.w, v, rtol=1e-13)
    np.testing.assert_allclose(solution.lr_sum, 4 * 0.3, rtol=1e-15)
    assert solution.gradients == 4


def test_sgd_on_all_examples_at_once_is_gd():
    for k in range(len(SIZES)):
        sgd = solve(SGD(lr=0.2, batch_size=None), FULL, RAGGED, k)
        gd = solve(GD(lr=0.2), FULL, RAGGED, k)
        v = START - 0.2 * (ragged_gradient(k, START) + terms(FULL, START))
        np.testing.assert_allclose(gd.w, v, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(sgd.w, v, rtol=1e-13, atol=1e-14)
        assert sgd.gradients == gd.gradients == SIZES[k]
        np.testing.assert_allclose([sgd.lr_sum, gd.lr_sum], 0.2, rtol=1e-15)


@pytest.mark.parametrize(("problem", "drop_last"), [(Problem(START), False), (FULL, False), (FULL, True)])
def test_sgd_in_numpy(problem, drop_last):
    """On ragged clients, given the batches that the key leads to (who is in them is proven above)."""
    solver = SGD(lr=0.1, batch_size=5, epochs=2, drop_last=drop_last)
    for k in range(len(SIZES)):
        batches, _ = visits(solver, k)
        v = START
        for batch in batches:
            v = v - 0.1 * (ragged_gradient(k, v, batch) + terms(problem, v))
        solution = solve(solver, problem, RAGGED, k)
        np.testing.assert_allclose(solution.w, v, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(solution.lr_sum, 0.1 * len(batches), rtol=1e-14)
        assert solution.gradients == sum(map(len, batches))


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "clip"),
    [(0.9, None, None), (None, 0.2, None), (None, None, 0.5), (0.9, 0.2, None), (0.6, 0.2, 0.5), (None, 0.3, 0.5)],
)
def test_sgd_with_everything_in_numpy(momentum, weight_decay, clip):
    v, m = START, np.zeros(D)
    clipped = 0
    for _ in range(6):
        g = quadratic_gradient(FULL, v)
        norm = np.linalg.norm(g)
        if clip is not None and norm > clip:
            g = g * clip / norm
            clipped += 1
        g = g + (weight_decay or 0) * v  # after clipping: weight decay is not part of what is clipped
        m = (momentum or 0) * m + g
        v = v - 0.3 * m
    solver = SGD(lr=0.3, steps=6, momentum=momentum, weight_decay=weight_decay, clip=clip)
    np.testing.assert_allclose(solve(solver, FULL, QUADRATIC, K).w, v, rtol=1e-12, atol=1e-13)
    assert (clipped > 0) == (clip is not None)


def test_clipping_leaves_short_and_zero_gradients_alone():
    at_rest = Problem(CENTER)
    np.testing.assert_array_equal(solve(SGD(clip=0.5), at_rest, QUADRATIC, K).w, CENTER)
    free, loose = (solve(SGD(clip=c, steps=3), Problem(START), QUADRATIC, K).w for c in (None, 1e6))
    np.testing.assert_allclose(loose, free, rtol=1e-15)


def test_lr_sum_is_offered_where_it_has_a_meaning():
    """With momentum or clipping the move is not lr_sum times a mean of gradients."""
    for solver in (SGD(), SGD(weight_decay=0.1), GD()):
        assert solver.offers == {"work", "lr_sum"}
    assert np.isfinite(solve(SGD(weight_decay=0.1), Problem(START), QUADRATIC, K).lr_sum)
    for solver in (SGD(momentum=0.9), SGD(clip=1.0), SGD(momentum=0.5, clip=1.0), Optax()):
        assert solver.offers == {"work"}
        assert np.isnan(solve(solver, Problem(START), QUADRATIC, K).lr_sum)
    assert Adagrad().offers == {"work", "accumulator"}
    assert Exact().offers == frozenset()


def test_the_move_is_lr_sum_times_a_mean_gradient():
    """What SCAFFOLD's option II relies on; with one step the mean is the gradient itself."""
    solution = solve(SGD(lr=0.2, steps=1), Problem(START), QUADRATIC, K)
    np.testing.assert_allclose((START - solution.w) / solution.lr_sum, H @ (START - CENTER), rtol=1e-12)
    # Row j of WHO has gradient -1 in coordinate j: the mean over n_k full-coverage steps of size one is 1 / n_k.
    solution = solve(SGD(lr=0.2, batch_size=1, epochs=2), Problem(np.zeros(sum(SIZES))), WHO, 0)
    np.testing.assert_allclose(solution.w[rows_of(0)] / solution.lr_sum, np.full(7, 1 / 7), rtol=1e-12)


def test_a_solver_on_a_tree_is_the_solver_on_its_vector():
    """Clipping by the norm of the whole model, momentum and accumulators of every leaf."""
    x, y = X[:20], np.random.default_rng(1).normal(size=(20, 2))
    params = {"b": jnp.zeros(2), "w": jnp.ones((D, 2))}
    w, unravel = ravel_pytree(params)

    def loss(params, rows, key):
        x, y = rows
        return jnp.sum((x @ params["w"] + params["b"][None] - y) ** 2, axis=1)

    def flat(w, rows, key):
        return loss(unravel(w), rows, key)

    on_tree = fl.examples((x, y), [13, 7], loss, unravel)
    on_vector = fl.examples((x, y), [13, 7], flat)
    linear = np.linspace(-1, 1, len(w))
    problem = Problem(np.asarray(w), linear=linear, anchor=2 * linear, mu=0.4)
    for solver in (
        SGD(lr=0.05, batch_size=4, momentum=0.9, weight_decay=0.1, clip=1.0),
        Adagrad(batch_size=4, initial=0.1),
    ):
        tree, vector = (solve(solver, problem, f, 0) for f in (on_tree, on_vector))
        np.testing.assert_allclose(tree.w, vector.w, rtol=1e-12, atol=1e-12)
        if isinstance(solver, Adagrad):
            np.testing.assert_allclose(tree.accumulator, vector.accumulator, rtol=1e-12)


# Optax and Adagrad.


def test_optax_sgd_is_sgd():
    for k in range(len(SIZES)):
        ours = solve(SGD(lr=0.1, momentum=0.8, batch_size=5, epochs=2), FULL, RAGGED, k)
        theirs = solve(Optax(optimizer=HEAVY, batch_size=5, epochs=2), FULL, RAGGED, k)
        np.testing.assert_allclose(theirs.w, ours.w, rtol=1e-13, atol=1e-14)
        assert theirs.gradients == ours.gradients == 2 * SIZES[k]


@with_and_without
def test_optax_adam_in_numpy(problem):
    lr, b1, b2, eps = 0.1, 0.9, 0.999, 1e-8
    v, m, s = START, np.zeros(D), np.zeros(D)
    for i in range(1, 8):
        g = quadratic_gradient(problem, v)
        m, s = b1 * m + (1 - b1) * g, b2 * s + (1 - b2) * g**2
        v = v - lr * (m / (1 - b1**i)) / (np.sqrt(s / (1 - b2**i)) + eps)
    solver = Optax(optimizer=ADAM, steps=7)
    first = solve(solver, problem, QUADRATIC, K)
    np.testing.assert_allclose(first.w, v, rtol=1e-10)
    assert first.gradients == 7


@with_and_without
@pytest.mark.parametrize("initial", [0.0, 0.5])
def test_adagrad_in_numpy(problem, initial):
    v, a = START, np.full(D, initial)
    for _ in range(5):
        g = quadratic_gradient(problem, v)
        a = a + g**2
        v = v - 0.3 * g / (np.sqrt(a) + 0.01)
    solution = solve(Adagrad(lr=0.3, epsilon=0.01, initial=initial, steps=5), problem, QUADRATIC, K)
    np.testing.assert_allclose(solution.w, v, rtol=1e-12)
    np.testing.assert_allclose(solution.accumulator, a, rtol=1e-12)
    assert solution.gradients == 5


def test_adagrad_continues_an_accumulator():
    """Two solves of three steps, the second from the first's model and accumulator, are one of six."""
    half, whole = Adagrad(lr=0.3, initial=0.2, steps=3), Adagrad(lr=0.3, initial=0.2, steps=6)
    first = solve(half, FULL, QUADRATIC, K)
    second = solve(half, FULL._replace(start=first.w, accumulator=first.accumulator), QUADRATIC, K)
    at_once = solve(whole, FULL, QUADRATIC, K)
    np.testing.assert_allclose(second.w, at_once.w, rtol=1e-13)
    np.testing.assert_allclose(second.accumulator, at_once.accumulator, rtol=1e-13)
    # `initial` is for solves that are given none.
    fresh = solve(half, FULL._replace(start=first.w), QUADRATIC, K)
    assert np.all(fresh.accumulator < second.accumulator)


# Exact.


@every_problem
def test_exact_is_the_minimiser_of_a_quadratic(problem):
    solution = solve(Exact(), problem, QUADRATIC, K)
    np.testing.assert_allclose(solution.w, minimiser(problem), rtol=1e-11)
    assert solution.residual < 1e-12
    assert not solution.unsolved


def test_exact_is_the_minimiser_of_least_squares():
    for k in range(len(SIZES)):
        x, y = X[rows_of(k)], Y[rows_of(k)]
        a = x.T @ x / len(x) + MU * np.eye(D)
        expected = np.linalg.solve(a, x.T @ y / len(x) - LINEAR + MU * ANCHOR)
        solution = solve(Exact(), FULL, RAGGED, k)
        np.testing.assert_allclose(solution.w, expected, rtol=1e-11)
        assert solution.residual < 1e-12
        assert solution.gradients == SIZES[k]


def test_exact_confesses_that_a_loss_is_not_quadratic():
    signs = np.sign(Y)

    def logistic(w, rows, key):
        x, y = rows
        return jnp.logaddexp(0.0, -y * (x @ w))

    solution = solve(Exact(), FULL, fl.examples((X, signs), SIZES, logistic), 0)
    x, y = X[rows_of(0)], signs[rows_of(0)]
    v = np.asarray(solution.w)
    g = -(x.T @ (y / (1 + np.exp(y * (x @ v))))) / len(x) + terms(FULL, v)
    assert solution.residual > 1e-3
    np.testing.assert_allclose(solution.residual, np.linalg.norm(g), rtol=1e-9)


def test_sgd_on_sums_makes_smaller_steps_on_smaller_batches():
    """F = mean of (v - y_i)^2 / 2. On sums a batch of m takes v to v - lr (m v - sum y); 7 examples are 4 and 3."""
    y = np.array([1.0, 2, 3, 4, 5, 6, 7])
    federation = fl.examples(y, [7], lambda v, rows, key: (v[0] - rows) ** 2 / 2)
    lr = 0.1
    solution = fl.SGD(lr, batch_size=4, reduction="sum").solve(
        Problem(start=jnp.zeros(1)), federation.objective(0), jax.random.key(0), 0, 1.0
    )
    possible = [(1 - 3 * lr) * lr * sum(first) + lr * (y.sum() - sum(first)) for first in itertools.combinations(y, 4)]
    assert np.min(np.abs(np.array(possible) - float(solution.w[0]))) < 1e-12
    mean = [(1 - lr) * lr * sum(first) / 4 + lr * (y.sum() - sum(first)) / 3 for first in itertools.combinations(y, 4)]
    assert np.min(np.abs(np.array(mean) - float(solution.w[0]))) > 0.1
    assert "lr_sum" not in fl.SGD(lr, reduction="sum").offers
