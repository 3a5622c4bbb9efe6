"""Schedules, hyperparameters of solvers, and all solvers side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedloom import schedules
from fedloom.problem import Problem
from fedloom.solvers import GD, SGD, SOLVERS, Adagrad, Exact, Optax, ToTolerance
from tests.local_problems import (
    ADAM,
    FULL,
    KEY,
    QUADRATIC,
    RAGGED,
    SIZES,
    START,
    K,
    solve,
)

SIDE_BY_SIDE = [
    SGD(batch_size=5, epochs=2),
    SGD(batch_size=4, steps=5, momentum=0.9, weight_decay=0.1, clip=1.0, drop_last=True),
    GD(steps=4),
    Optax(optimizer=ADAM, batch_size=5, epochs=2),
    Adagrad(batch_size=5, epochs=2),
    Exact(),
    ToTolerance(tolerance=1e-3, criterion="relative-distance"),
]


def test_every_registered_solver_is_compared():
    assert {type(s) for s in SIDE_BY_SIDE} == set(SOLVERS.values())


@pytest.mark.parametrize("solver", SIDE_BY_SIDE, ids=lambda s: type(s).__name__)
def test_clients_side_by_side_are_clients_one_at_a_time(solver):
    """Lanes of different sizes, starts and shares of the work in one program."""
    ids = jnp.array([4, 0, 1, 3, 2])
    work = jnp.array([1.0, 0.3, 0.6, 1.0, 0.5])
    keys = jax.random.split(KEY, len(ids))
    starts = jnp.asarray(START)[None] * jnp.arange(1.0, 6.0)[:, None]

    def one(start, k, key, work):
        return solve(solver, FULL._replace(start=start), RAGGED, k, key, 0, work)

    together = jax.jit(jax.vmap(one))(starts, ids, keys, work)
    for i in range(len(ids)):
        alone = one(starts[i], ids[i], keys[i], work[i])
        np.testing.assert_allclose(together.w[i], alone.w, rtol=1e-11, atol=1e-12)
        assert together.gradients[i] == alone.gradients
        if getattr(solver, "epochs", None) == 2:
            assert alone.gradients == (1 if work[i] <= 0.5 else 2) * SIZES[ids[i]]
        assert together.unsolved[i] == alone.unsolved
        np.testing.assert_allclose(together.lr_sum[i], alone.lr_sum, rtol=1e-14)
        np.testing.assert_allclose(together.residual[i], alone.residual, rtol=1e-6, atol=1e-12)
        if alone.accumulator is not None:
            np.testing.assert_allclose(together.accumulator[i], alone.accumulator, rtol=1e-11)


def test_a_grid_of_hyperparameters_is_a_vmapped_axis():
    rates = jnp.array([0.1, 0.2, 0.4])
    grid = jax.jit(jax.vmap(lambda s: solve(s, FULL, QUADRATIC, K).w))(SGD(lr=rates, steps=3, momentum=rates))
    singles = [solve(SGD(lr=float(r), steps=3, momentum=float(r)), FULL, QUADRATIC, K).w for r in rates]
    np.testing.assert_allclose(grid, singles, rtol=1e-13)


def test_numbers_do_not_compile_again():
    traces = []

    @jax.jit
    def run(solver):
        traces.append(solver)
        return solver.solve(Problem(jnp.asarray(START)), QUADRATIC.objective(K), KEY, 0, 1.0).w

    first, second = (run(SGD(lr=lr, weight_decay=lr)) for lr in (0.1, 0.2))
    assert len(traces) == 1
    assert np.any(first != second)


ROUNDS = [0, 1, 2, 7, 9, 10, 11, 100]


FORMULAS = {
    "constant": (schedules.constant(0.3), lambda t: 0.3),
    "exponential": (schedules.exponential(0.3, 0.9), lambda t: 0.3 * 0.9**t),
    "growing": (schedules.exponential(0.3, 1.1), lambda t: 0.3 * 1.1**t),
    "staircase": (schedules.staircase(0.3, 0.5, every=10), lambda t: 0.3 * 0.5 ** int(t / 10)),
    "inverse-sqrt": (schedules.inverse_sqrt(0.3), lambda t: 0.3 / np.sqrt(t + 1)),
    "inverse": (schedules.inverse(0.3), lambda t: 0.3 / (t + 1)),
    "warm-up": (schedules.warm_up(0.3, rounds=10), lambda t: 0.3 * (t + 1) / 10 if t < 10 else 0.3),
    "no-warm-up": (schedules.warm_up(0.3, rounds=1), lambda t: 0.3),
    "warm-up-into-decay": (
        schedules.warm_up(schedules.exponential(0.3, 0.9), rounds=10),
        lambda t: 0.3 * 0.9**t * ((t + 1) / 10 if t < 10 else 1),
    ),
    "function": (schedules.function(lambda t: 0.3 / (2.0 + t)), lambda t: 0.3 / (2 + t)),
    "optax": (schedules.function(optax.linear_schedule(0.3, 0.1, 10)), lambda t: max(0.1, 0.3 - 0.02 * t)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_schedules_are_their_formulas(name):
    schedule, formula = FORMULAS[name]
    rtol = 1e-6 if name == "optax" else 1e-12  # optax gives float32 for an int32 round
    compiled = jax.jit(schedules.at)
    for t in ROUNDS:
        np.testing.assert_allclose(schedule(t), formula(t), rtol=rtol)
        np.testing.assert_allclose(compiled(schedule, jnp.asarray(t, jnp.int32)), formula(t), rtol=rtol)


def test_a_number_is_the_same_in_every_round():
    assert [schedules.at(0.3, t) for t in ROUNDS] == [0.3] * len(ROUNDS)


@pytest.mark.parametrize(
    "make",
    [
        lambda lr: GD(lr=lr, steps=2),
        lambda lr: SGD(lr=lr, steps=2),
        lambda lr: Adagrad(lr=lr, steps=2),
        lambda lr: ToTolerance(lr=lr, max_steps=2),
    ],
    ids=["GD", "SGD", "Adagrad", "ToTolerance"],
)
def test_solvers_follow_a_schedule_by_round(make):
    """The step size of round t, for all the steps of that round."""
    solver = make(schedules.inverse(0.4))
    for t in (0, 3):
        scheduled, plain = (solve(s, FULL, QUADRATIC, K, t=t) for s in (solver, make(0.4 / (t + 1))))
        np.testing.assert_allclose(scheduled.w, plain.w, rtol=1e-13)
        np.testing.assert_allclose(scheduled.lr_sum, plain.lr_sum, rtol=1e-14)


def test_a_plain_function_is_to_be_wrapped():
    def decay(t):
        return 0.1 / (t + 1.0)

    for make in (SGD, GD, Adagrad, ToTolerance):
        name = make.__name__
        with pytest.raises(
            ValueError, match=rf"{name}: lr must be .* \(wrap a plain function f\(t\) as schedules\.func"
        ):
            make(lr=decay)
    wrapped = solve(GD(lr=schedules.function(decay)), FULL, QUADRATIC, K, t=4)
    np.testing.assert_allclose(wrapped.lr_sum, 0.02, rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(lr=-1), "SGD: lr must be a positive number or a schedule .*, got -1"),
        (lambda: SGD(lr=0.0), r"SGD: lr must be a positive number or a schedule .*, got 0\.0"),
        (lambda: SGD(lr=float("nan")), "SGD: lr must be a positive number or a schedule .*, got nan"),
        (lambda: SGD(lr=float("inf")), "SGD: lr must be a positive number or a schedule .*, got inf"),
        (lambda: SGD(lr="fast"), "SGD: lr must be a positive number or a schedule .*, got 'fast'"),
        (lambda: SGD(lr=None), "SGD: lr must be a positive number or a schedule .*, got None"),
        (lambda: SGD(lr=np.array([0.1, -0.1])), "SGD: lr must be a positive number or a schedule"),
        (lambda: SGD(batch_size=0), "SGD: batch_size must be a positive integer, or None, got 0"),
        (lambda: SGD(batch_size=2.0), r"SGD: batch_size must be a positive integer, or None, got 2\.0"),
        (lambda: SGD(epochs=0), "SGD: epochs must be a positive integer, got 0"),
        (lambda: SGD(epochs=None), "SGD: epochs must be a positive integer, got None"),
        (lambda: SGD(steps=0), "SGD: steps must be a positive integer, or None, got 0"),
        (lambda: SGD(steps=3, epochs=2), "SGD: give epochs or steps, not both"),
        (lambda: SGD(drop_last=1), "SGD: drop_last must be True or False, got 1"),
        (lambda: SGD(momentum=1.0), r"SGD: momentum must be a number in \[0, 1\), or None, got 1\.0"),
        (lambda: SGD(momentum=-0.1), r"SGD: momentum must be a number in \[0, 1\), or None, got -0\.1"),
        (lambda: SGD(weight_decay=-1), "SGD: weight_decay must be a non-negative number, or None, got -1"),
        (lambda: SGD(clip=0), "SGD: clip must be a positive number, or None, got 0"),
        (lambda: GD(steps=2.5), r"GD: steps must be a positive integer, got 2\.5"),
        (lambda: GD(lr=-0.5), "GD: lr must be a positive number or a schedule"),
        (lambda: Adagrad(epsilon=0.0), r"Adagrad: epsilon must be a positive number, got 0\.0"),
        (lambda: Adagrad(initial=-1.0), r"Adagrad: initial must be a non-negative number, got -1\.0"),
        (lambda: Adagrad(steps=2, epochs=2), "Adagrad: give epochs or steps, not both"),
        (lambda: Optax(optimizer=0.1), r"Optax: optimizer must be an optax optimizer such as .*, got 0\.1"),
        (lambda: Optax(optimizer=None), "Optax: optimizer must be an optax optimizer such as .*, got None"),
        (lambda: ToTolerance(tolerance=0.0), "ToTolerance: tolerance must be a positive number or a schedule"),
        (lambda: ToTolerance(criterion="exact"), "ToTolerance: criterion must be one of 'gradient', .*, got 'exact'"),
        (lambda: ToTolerance(max_steps=0), "ToTolerance: max_steps must be a positive integer, got 0"),
        (
            lambda: ToTolerance(strong_convexity=np.inf),
            "ToTolerance: strong_convexity must be a finite number",
        ),
        (lambda: schedules.constant(0), "constant: value must be a positive number, got 0"),
        (lambda: schedules.exponential(decay=0), "exponential: decay must be a positive number, got 0"),
        (lambda: schedules.exponential(value=-1), "exponential: value must be a positive number, got -1"),
        (lambda: schedules.staircase(every=0), "staircase: every must be a positive integer, got 0"),
        (lambda: schedules.staircase(decay=np.nan), "staircase: decay must be a positive number, got nan"),
        (lambda: schedules.inverse(-1), "inverse: value must be a positive number, got -1"),
        (lambda: schedules.inverse_sqrt(0), "inverse_sqrt: value must be a positive number, got 0"),
        (lambda: schedules.warm_up(rounds=0), "warm_up: rounds must be a positive integer, got 0"),
        (lambda: schedules.warm_up(then=-1), "warm_up: then must be a positive number or a schedule .*, got -1"),
        (lambda: schedules.function(0.1), r"function: f must be a function of the round, got 0\.1"),
    ],
)
def test_bad_hyperparameters_raise_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
