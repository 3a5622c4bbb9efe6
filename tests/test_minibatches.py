"""Which examples a minibatch solver visits."""

import math
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from fedloom.client import portion
from fedloom.problem import Problem
from fedloom.solvers import GD, SGD, Optax, ToTolerance
from fedloom.solvers.batches import shuffled
from tests.local_problems import (
    KEY,
    RAGGED,
    SIZES,
    START,
    WHO,
    rows_of,
    solve,
    visits,
)


def joined(batches):
    return list(chain.from_iterable(batches))


@pytest.mark.parametrize("k", range(len(SIZES)))
def test_every_epoch_visits_every_example_once_in_a_new_order(k):
    n, epochs = SIZES[k], 2
    batches, keys = visits(SGD(batch_size=5, epochs=epochs), k)
    per_epoch = -(-n // 5)
    assert len(batches) == epochs * per_epoch
    orders = [joined(batches[e * per_epoch : (e + 1) * per_epoch]) for e in range(epochs)]
    for order in orders:
        assert sorted(order) == list(range(n))
    # All batches but the last of an epoch are full.
    assert [len(b) for b in batches] == ([5] * (n // 5) + [n % 5] * (n % 5 > 0)) * epochs
    if n > 5:  # with 3 examples or fewer two epochs may well agree
        assert orders[0] != orders[1]
    # Each batch has randomness of its own.
    assert len(set(keys)) == len(keys)


def test_the_order_depends_on_the_key_alone():
    solver = SGD(batch_size=5, epochs=2)
    assert visits(solver, 4) == visits(solver, 4)
    assert visits(solver, 4)[0] != visits(solver, 4, key=jax.random.key(4))[0]


def orders(n, capacity, times, over="keys"):
    """Whole random orders of n, [times, n]: by different keys, or in the epochs of one."""
    order = jax.vmap(lambda key, epoch: shuffled(key, epoch, jnp.arange(n), n, capacity))
    if over == "keys":
        return np.asarray(order(jax.random.split(jax.random.key(1), times), jnp.zeros(times, int)))
    return np.asarray(order(jnp.repeat(KEY[None], times), jnp.arange(times)))


@pytest.mark.parametrize("over", ["keys", "epochs"])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_shuffles_are_uniform(n, over):
    """All n! orders are equally likely, whatever there is room for."""
    found = orders(n, 2 * n, 400 * math.factorial(n), over)
    assert np.all(np.sort(found, axis=1) == np.arange(n))
    _, times = np.unique(found @ n ** np.arange(n), return_counts=True)
    assert len(times) == math.factorial(n)
    assert stats.chisquare(times).pvalue > 1e-3


@pytest.mark.parametrize("over", ["keys", "epochs"])
def test_shuffles_of_many_examples(over):
    """Permutations; every example equally likely at every place; neighbours as far apart as in a random order."""
    n, times = 101, 20_000
    found = orders(n, 128, times, over)
    assert np.all(np.sort(found[:100], axis=1) == np.arange(n))
    for place in (0, 1, 50, 100):
        assert stats.chisquare(np.bincount(found[:, place], minlength=n)).pvalue > 1e-3
    for one, other in ((0, 1), (0, 100), (33, 34), (10, 90)):  # pairs of places, in 10 x 10 cells
        cells, *_ = np.histogram2d(found[:, one], found[:, other], bins=np.linspace(-0.5, n - 0.5, 11))
        pairs = np.histogram2d(*np.nonzero(~np.eye(n, dtype=bool)), bins=np.linspace(-0.5, n - 0.5, 11))[0]
        assert stats.chisquare(cells.ravel(), (pairs / pairs.sum() * times).ravel()).pvalue > 1e-3
    # Cycles: a random permutation has H_n of them on average, with variance H_n - sum of 1 / i^2.
    harmonic = sum(1 / i for i in range(1, n + 1))
    cycles = np.array([_cycles(order) for order in found[:2000]])
    spread = np.sqrt((harmonic - sum(1 / i**2 for i in range(1, n + 1))) / len(cycles))
    assert abs(cycles.mean() - harmonic) < 4 * spread


def _cycles(order):
    seen, cycles = np.zeros(len(order), bool), 0
    for start in range(len(order)):
        cycles += not seen[start]
        while not seen[start]:
            seen[start], start = True, order[start]
    return cycles


def test_shuffle_of_one_example():
    np.testing.assert_array_equal(shuffled(KEY, 3, jnp.arange(1), 1, 1), [0])


@pytest.mark.parametrize("k", range(len(SIZES)))
def test_drop_last_leaves_out_the_partial_batch(k):
    n = SIZES[k]
    batches, _ = visits(SGD(batch_size=5, epochs=2, drop_last=True), k)
    # A client that has no full batch at all keeps its partial one.
    assert [len(b) for b in batches] == ([5] * (n // 5) or [n]) * 2
    for epoch in np.split(np.arange(len(batches)), 2):
        seen = joined(batches[i] for i in epoch)
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(range(n))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("steps", [2, 8])
def test_steps_are_counted_across_epochs(steps, drop_last):
    batches, keys = visits(SGD(batch_size=3, steps=steps, drop_last=drop_last), 0)
    epoch = [3, 3] if drop_last else [3, 3, 1]
    assert [len(b) for b in batches] == (epoch * steps)[:steps]
    for i in range(0, steps, len(epoch)):
        seen = joined(batches[i : i + len(epoch)])
        assert len(set(seen)) == len(seen)
    assert len(set(keys)) == steps


def test_a_batch_may_be_larger_than_the_largest_client():
    for k, n in enumerate(SIZES):
        batches, _ = visits(SGD(batch_size=1000), k)
        assert [sorted(b) for b in batches] == [list(range(n))]


@pytest.mark.parametrize(
    ("work", "epochs"), [(1e-6, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.74, 3), (0.76, 4), (1.0, 4)]
)
def test_part_of_the_work_is_rounded_up(work, epochs):
    """To whole epochs where epochs are counted, to whole steps where steps are."""
    n = SIZES[0]
    spent = {  # example gradients, and steps
        SGD(batch_size=3, epochs=4): (epochs * n, epochs * 3),
        SGD(batch_size=1, steps=4): (epochs, epochs),
        GD(steps=4): (epochs * n, epochs),
        ToTolerance(tolerance=1e-300, max_steps=4): ((epochs + 1) * n, epochs),
    }
    for solver, (gradients, steps) in spent.items():
        solution = solve(solver, Problem(START), RAGGED, 0, work=work)
        assert solution.gradients == gradients
        np.testing.assert_allclose(solution.lr_sum, solver.lr * steps, rtol=1e-14)


def test_movement_reveals_who_was_used():
    """End to end through SGD: each own example once an epoch, with weight 1 / (size of its batch); nobody else's."""
    start = Problem(np.zeros(sum(SIZES)))
    for k, n in enumerate(SIZES):
        solution = solve(SGD(lr=1.0, batch_size=1, epochs=3), start, WHO, k)
        expected = np.zeros(sum(SIZES))
        expected[rows_of(k)] = 3
        np.testing.assert_array_equal(solution.w, expected)
        assert solution.gradients == 3 * n
    # Client 0 has 7 examples: two batches of 3, and one example alone, or left out.
    moved = np.asarray(solve(SGD(lr=1.0, batch_size=3), start, WHO, 0).w)
    np.testing.assert_allclose(np.sort(moved[:7]), [1 / 3] * 6 + [1])
    kept = solve(SGD(lr=1.0, batch_size=3, drop_last=True), start, WHO, 0)
    np.testing.assert_allclose(np.sort(kept.w[:7]), [0] + [1 / 3] * 6)
    assert kept.gradients == 6


def test_movement_reveals_the_order():
    """Step c has size 2^c, so the binary digits of w_j are the steps at which example j came up."""
    solver = Optax(optimizer=optax.sgd(lambda c: 2.0**c), batch_size=1, epochs=3)
    moved = np.asarray(solve(solver, Problem(np.zeros(sum(SIZES))), WHO, 2).w)[rows_of(2)].astype(int)
    orders = np.array([[int(np.argmax(moved >> c & 1)) for c in range(12 * e, 12 * e + 12)] for e in range(3)])
    assert np.all(np.sort(orders, axis=1) == np.arange(12))
    assert moved.sum() == 2**36 - 1  # one example in each of the 36 steps
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[1], orders[2])


@pytest.mark.parametrize(
    ("work", "whole", "part"), [(1.0, 20, 20), (0.07, 100, 7), (7 / 25, 25, 7), (1e-9, 20, 1), (0.051, 20, 2)]
)
def test_a_part_of_the_work_is_rounded_up_but_not_by_rounding_errors(work, whole, part):
    assert portion(work, whole) == part
    assert portion(jnp.float32(work), whole) == part
