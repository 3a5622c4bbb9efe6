"""Local solvers against NumPy loops and closed forms, minibatches by what they visit, and the schedules."""

from functools import partial
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import fedloom as fl
from fedloom import schedules
from fedloom.problem import Problem
from fedloom.solvers import GD, SGD, SOLVERS, Adagrad, Exact, Optax, ToTolerance
from fedloom.solvers.batches import shuffled

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


# The local problem.


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


# Which examples a minibatch solver visits.


@partial(jax.jit, static_argnames="room")
def _visits(solver, k, work, key, room):
    def step(state, positions, mask, key):
        i, log, keys = state
        row = jnp.where(mask, positions, -1)
        log = jax.lax.dynamic_update_slice(log, row[None].astype(log.dtype), (i, 0))
        return i + 1, log, keys.at[i].set(jax.random.key_data(key))

    state = (0, jnp.full((room, max(SIZES)), -1), jnp.zeros((room, 2), jnp.uint32))
    return solver.fold(step, state, RAGGED.objective(k), key, work)


def visits(solver, k, work=1.0, key=KEY, room=40):
    """The batches of one solve, as lists of local positions, and the key of each; from `fold` itself."""
    steps, log, keys = _visits(solver, k, work, key, room)
    assert steps < room
    return [[int(j) for j in row if j >= 0] for row in log[:steps]], [tuple(map(int, key)) for key in keys[:steps]]


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


def test_shuffles_are_uniform():
    """All 6 orders of 3 examples are equally likely, in an array with room for 5."""
    keys = jax.random.split(jax.random.key(1), 3000)
    orders = np.asarray(jax.vmap(lambda key: shuffled(key, 3, 5))(keys))
    assert np.all(np.sort(orders[:, :3], axis=1) == np.arange(3))
    _, times = np.unique(orders[:, :3] @ [9, 3, 1], return_counts=True)
    assert len(times) == 6
    assert stats.chisquare(times).pvalue > 1e-3


def test_shuffle_of_one_example():
    np.testing.assert_array_equal(shuffled(KEY, 1, 1), [0])


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


# SGD and GD.


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
    for solver in (SGD(), SGD(weight_decay=0.1), GD(), ToTolerance()):
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


# ToTolerance.

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


# All of them side by side.

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


# Schedules.

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
        (lambda: SGD(batch_size=0), "SGD: batch_size must be a whole number, 1 or more, or None, got 0"),
        (lambda: SGD(batch_size=2.0), r"SGD: batch_size must be a whole number, 1 or more, or None, got 2\.0"),
        (lambda: SGD(epochs=0), "SGD: epochs must be a whole number, 1 or more, got 0"),
        (lambda: SGD(epochs=None), "SGD: epochs must be a whole number, 1 or more, got None"),
        (lambda: SGD(steps=0), "SGD: steps must be a whole number, 1 or more, or None, got 0"),
        (lambda: SGD(steps=3, epochs=2), "SGD: give epochs or steps, not both"),
        (lambda: SGD(drop_last=1), "SGD: drop_last must be True or False, got 1"),
        (lambda: SGD(momentum=1.0), r"SGD: momentum must be a number in \[0, 1\), or None, got 1\.0"),
        (lambda: SGD(momentum=-0.1), r"SGD: momentum must be a number in \[0, 1\), or None, got -0\.1"),
        (lambda: SGD(weight_decay=-1), "SGD: weight_decay must be a number that is not negative, or None, got -1"),
        (lambda: SGD(clip=0), "SGD: clip must be a positive number, or None, got 0"),
        (lambda: GD(steps=2.5), r"GD: steps must be a whole number, 1 or more, got 2\.5"),
        (lambda: GD(lr=-0.5), "GD: lr must be a positive number or a schedule"),
        (lambda: Adagrad(epsilon=0.0), r"Adagrad: epsilon must be a positive number, got 0\.0"),
        (lambda: Adagrad(initial=-1.0), r"Adagrad: initial must be a number that is not negative, got -1\.0"),
        (lambda: Adagrad(steps=2, epochs=2), "Adagrad: give epochs or steps, not both"),
        (lambda: Optax(optimizer=0.1), r"Optax: optimizer must be an optax optimizer such as .*, got 0\.1"),
        (lambda: Optax(optimizer=None), "Optax: optimizer must be an optax optimizer such as .*, got None"),
        (lambda: ToTolerance(tolerance=0.0), "ToTolerance: tolerance must be a positive number or a schedule"),
        (lambda: ToTolerance(criterion="exact"), "ToTolerance: criterion must be one of 'gradient', .*, got 'exact'"),
        (lambda: ToTolerance(max_steps=0), "ToTolerance: max_steps must be a whole number, 1 or more, got 0"),
        (lambda: ToTolerance(strong_convexity=-1), "ToTolerance: strong_convexity must be a number that is not neg"),
        (lambda: schedules.constant(0), "constant: value must be a positive number, got 0"),
        (lambda: schedules.exponential(decay=0), "exponential: decay must be a positive number, got 0"),
        (lambda: schedules.exponential(value=-1), "exponential: value must be a positive number, got -1"),
        (lambda: schedules.staircase(every=0), "staircase: every must be a whole number, 1 or more, got 0"),
        (lambda: schedules.staircase(decay=np.nan), "staircase: decay must be a positive number, got nan"),
        (lambda: schedules.inverse(-1), "inverse: value must be a positive number, got -1"),
        (lambda: schedules.inverse_sqrt(0), "inverse_sqrt: value must be a positive number, got 0"),
        (lambda: schedules.warm_up(rounds=0), "warm_up: rounds must be a whole number, 1 or more, got 0"),
        (lambda: schedules.warm_up(then=-1), "warm_up: then must be a positive number or a schedule .*, got -1"),
        (lambda: schedules.function(0.1), r"function: f must be a function of the round, got 0\.1"),
    ],
)
def test_bad_hyperparameters_raise_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
