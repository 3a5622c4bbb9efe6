"""Local problems that the tests of solvers share, and their gradients in NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedloom as fl
from fedloom.problem import Problem

KEY = jax.random.key(3)
D = 3

QUADRATIC = fl.quadratics(clients=4, dimension=D, seed=5)
K = 2  # the client of QUADRATIC that most tests look at
H, CENTER = np.asarray(QUADRATIC.hessians[K]), np.asarray(QUADRATIC.centers[K])

# Ragged least squares: client sizes that are one, smaller than, equal to and not divisible by the batch sizes below.
SIZES = [7, 1, 12, 3, 20]
OFFSETS = np.cumsum(SIZES) - SIZES
_rng = np.random.default_rng(0)
X, Y = _rng.normal(size=(sum(SIZES), D)), _rng.normal(size=sum(SIZES))


def squared_error(w, rows, key):
    x, y = rows
    return (x @ w - y) ** 2 / 2


RAGGED = fl.examples((X, Y), SIZES, squared_error)

# Row j's loss is -w_j, so every step moves w_j by lr / (batch size) for each j in the batch: w tells who was used.
WHO = fl.examples(np.arange(sum(SIZES)), SIZES, lambda w, rows, key: -w[rows])

START = np.array([1.0, -2.0, 0.5])
LINEAR = np.array([0.3, 0.1, -0.4])
ANCHOR = np.array([-1.0, 0.5, 2.0])
MU = 0.7
FULL = Problem(START, linear=LINEAR, anchor=ANCHOR, mu=MU)
PROBLEMS = {
    "plain": Problem(START),
    "linear": Problem(START, linear=LINEAR),
    "proximal": Problem(START, anchor=ANCHOR, mu=MU),
    "both": FULL,
}
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
# Which terms a problem has is settled before a solver sees a gradient, so without and with all of them will do.
with_and_without = pytest.mark.parametrize("problem", [Problem(START), FULL], ids=["plain", "both"])

# Optimizers are compiled in: one object each.
HEAVY, ADAM = optax.sgd(0.1, momentum=0.8), optax.adam(0.1)


@jax.jit
def solve(solver, problem, federation, k, key=KEY, t=0, work=1.0):
    """One compilation for each kind of solver and problem; all the numbers are arguments."""
    problem = problem.map(jnp.asarray)
    return solver.solve(problem, federation.objective(k), key, t, work)


def terms(problem, v):
    """What a problem adds to the gradient of F."""
    g = np.zeros_like(v)
    if problem.linear is not None:
        g = g + problem.linear
    if problem.anchor is not None:
        g = g + problem.mu * (v - problem.anchor)
    return g


def quadratic_gradient(problem, v):
    return H @ (v - CENTER) + terms(problem, v)


def minimiser(problem):
    """v* of the quadratic client, from the normal equations."""
    mu = 0.0 if problem.anchor is None else problem.mu
    right = H @ CENTER
    right = right - (0 if problem.linear is None else problem.linear)
    right = right + (0 if problem.anchor is None else mu * problem.anchor)
    return np.linalg.solve(H + mu * np.eye(D), right)


def rows_of(k):
    return slice(OFFSETS[k], OFFSETS[k] + SIZES[k])


def ragged_gradient(k, v, positions=slice(None)):
    x, y = X[rows_of(k)][positions], Y[rows_of(k)][positions]
    return x.T @ (x @ v - y) / len(x)


@partial(jax.jit, static_argnames="room")
def _visits(solver, k, work, key, room):
    objective = RAGGED.objective(k)

    def step(s, logs):
        log, keys = logs
        positions, mask, step_key = solver.batch(s, objective, key, solver.first(0))
        row = jnp.where(mask, positions, -1)
        log = log.at[s, : len(row)].set(row.astype(log.dtype))
        return log, keys.at[s].set(jax.random.key_data(step_key))

    steps = solver.steps_for(objective.size, objective.capacity, work)
    logs = (jnp.full((room, max(SIZES)), -1), jnp.zeros((room, 2), jnp.uint32))
    return steps, *jax.lax.fori_loop(0, steps, step, logs)


def visits(solver, k, work=1.0, key=KEY, room=40):
    """The batches of one solve, as lists of local positions, and the key of each; from the solver itself."""
    steps, log, keys = _visits(solver, k, work, key, room)
    assert steps < room
    return [[int(j) for j in row if j >= 0] for row in log[:steps]], [tuple(map(int, key)) for key in keys[:steps]]
