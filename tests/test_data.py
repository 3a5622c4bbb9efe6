"""Federations: their losses and gradients against NumPy, their weights, and what they refuse."""

import importlib
import itertools
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fedloom as fl
from fedloom.data import examples, quadratics

D = 3
W = np.array([0.4, -1.2, 0.7])

# One example, fewer and more than a chunk of a full pass, exactly one and two chunks, and off by one.
SIZES = [3, 1, 600, 256, 257, 512, 255]
CHUNK = 256
ROWS = [slice(end - n, end) for n, end in zip(SIZES, np.cumsum(SIZES), strict=True)]
_rng = np.random.default_rng(0)
X = _rng.normal(size=(sum(SIZES), D))
Y = np.sign(_rng.normal(size=sum(SIZES)))


def logistic(w, rows, key):
    """Not quadratic, so that a gradient at the wrong point shows."""
    x, y = rows
    return jnp.logaddexp(0.0, -y * (x @ w))


def numpy_loss(rows, w):
    return np.mean(np.log1p(np.exp(-Y[rows] * (X[rows] @ w))))


def numpy_grad(rows, w):
    x, y = X[rows], Y[rows]
    return -(x.T @ (y / (1 + np.exp(y * (x @ w))))) / len(x)


FEDERATION = examples((X, Y), SIZES, logistic)


@jax.jit
def loss_and_grad(federation, k, w):
    objective = federation.objective(k)
    return objective.loss(w), objective.grad(w)


# Clients with examples.


@pytest.mark.parametrize("k", range(len(SIZES)))
def test_loss_and_gradient_of_a_client(k):
    loss, grad = loss_and_grad(FEDERATION, k, W)
    np.testing.assert_allclose(loss, numpy_loss(ROWS[k], W), rtol=1e-13)
    np.testing.assert_allclose(grad, numpy_grad(ROWS[k], W), rtol=1e-11, atol=1e-14)
    assert FEDERATION.objective(k).size == SIZES[k]
    assert FEDERATION.objective(k).capacity == max(SIZES)


def test_clients_are_computed_side_by_side_as_alone():
    together = jax.vmap(loss_and_grad, in_axes=(None, 0, None))(FEDERATION, jnp.arange(len(SIZES)), W)
    np.testing.assert_allclose(together[0], [numpy_loss(rows, W) for rows in ROWS], rtol=1e-13)
    np.testing.assert_allclose(together[1], [numpy_grad(rows, W) for rows in ROWS], rtol=1e-11, atol=1e-14)


def test_a_full_pass_takes_a_bounded_number_of_examples_at_a_time():
    """And gives the loss no key: keys are for training steps."""
    seen = []

    def spy(w, rows, key):
        seen.append((len(rows[0]), key))
        return logistic(w, rows, key)

    objective = examples((X, Y), SIZES, spy).objective(2)
    objective.loss(jnp.asarray(W))
    objective.grad(jnp.asarray(W))
    assert seen
    assert all(rows <= CHUNK and key is None for rows, key in seen)


def test_a_small_federation_is_not_padded_to_a_chunk():
    seen = []

    def spy(w, rows, key):
        seen.append(len(rows[0]))
        return logistic(w, rows, key)

    examples((X[:8], Y[:8]), [5, 3], spy).objective(1).loss(jnp.asarray(W))
    assert set(seen) == {5}


def test_clients_do_not_see_the_examples_of_others():
    """Padding must come from the client itself: one NaN next door would otherwise end up in its gradient."""
    x = X[:9].copy()
    x[:3] = x[5:] = np.nan
    federation = examples((x, Y[:9]), [3, 2, 4], logistic)
    loss, grad = loss_and_grad(federation, 1, W)
    np.testing.assert_allclose(loss, numpy_loss(slice(3, 5), W), rtol=1e-13)
    np.testing.assert_allclose(grad, numpy_grad(slice(3, 5), W), rtol=1e-12)
    mask = jnp.array([True, False, True])
    batch = federation.objective(1).batch_grad(W, jnp.array([1, 3, 0]), mask, jax.random.key(0))
    np.testing.assert_allclose(batch, numpy_grad(slice(3, 5), W), rtol=1e-12)


@pytest.mark.parametrize("k", [0, 4])
def test_gradient_of_a_batch(k):
    """Positions are local, and the mean is over those that the mask keeps."""
    objective = FEDERATION.objective(k)
    positions, mask = np.array([2, 0, 1, 0, 0]), np.array([True, True, False, False, False])
    expected = numpy_grad(ROWS[k].start + positions[mask], W)
    key = jax.random.key(0)
    np.testing.assert_allclose(objective.batch_grad(W, positions, mask, key), expected, rtol=1e-12)
    # Where the mask is False the position may be anything.
    positions[2:] = [10**6, -5, 599]
    np.testing.assert_allclose(objective.batch_grad(W, positions, mask, key), expected, rtol=1e-12)
    # An empty batch has no gradient, rather than 0 / 0.
    np.testing.assert_array_equal(objective.batch_grad(W, positions, np.zeros(5, bool), key), np.zeros(D))


def test_training_steps_hand_their_key_to_the_loss():
    def noisy(w, rows, key):
        noise = 0.0 if key is None else jax.random.normal(key)
        return rows[0] @ w * noise

    objective = examples((X, Y), SIZES, noisy).objective(0)
    key = jax.random.key(7)
    got = objective.batch_grad(W, np.arange(3), np.ones(3, bool), key)
    np.testing.assert_allclose(got, X[:3].mean(axis=0) * float(jax.random.normal(key)), rtol=1e-12)
    np.testing.assert_array_equal(objective.grad(jnp.asarray(W)), np.zeros(D))


def test_parameters_may_be_a_tree():
    """Two layers: the gradient is compared with that of the flat loss by finite differences of NumPy."""
    params = {"b": jnp.zeros(()), "first": jnp.ones((D, 2)) * 0.3, "second": jnp.array([1.0, -2.0])}
    w, unravel = ravel_pytree(params)
    w = np.asarray(w) + np.linspace(-0.3, 0.4, len(w))
    x, y, sizes = X[:12], Y[:12], [5, 7]

    def loss(params, rows, key):
        x, y = rows
        return (jnp.tanh(x @ params["first"]) @ params["second"] + params["b"] - y) ** 2

    def numpy_version(w, rows):
        first, second = w[1:7].reshape(D, 2), w[7:]  # ravel_pytree goes by the sorted names
        return np.mean((np.tanh(x[rows] @ first) @ second + w[0] - y[rows]) ** 2)

    federation = examples((x, y), sizes, loss, unravel)
    for k, rows in enumerate([slice(0, 5), slice(5, 12)]):
        got_loss, got_grad = loss_and_grad(federation, k, w)
        np.testing.assert_allclose(got_loss, numpy_version(w, rows), rtol=1e-13)
        steps = 1e-6 * np.eye(len(w))
        slopes = [(numpy_version(w + h, rows) - numpy_version(w - h, rows)) / 2e-6 for h in steps]
        np.testing.assert_allclose(got_grad, slopes, rtol=1e-7, atol=1e-8)
        assert got_grad.shape == w.shape
    batch = federation.objective(0).batch_grad(unravel(jnp.asarray(w)), np.arange(5), np.ones(5, bool), None)
    assert jax.tree.structure(batch) == jax.tree.structure(params)
    np.testing.assert_allclose(ravel_pytree(batch)[0], loss_and_grad(federation, 0, w)[1], rtol=1e-12)


def test_the_store_may_be_any_tree():
    named = examples({"x": X, "y": Y}, SIZES, lambda w, rows, key: logistic(w, (rows["x"], rows["y"]), key))
    np.testing.assert_allclose(loss_and_grad(named, 0, W)[0], numpy_loss(ROWS[0], W), rtol=1e-13)


# The population.

GIVEN = np.array([1.0, 2.0, 0.0, 4.0, 5.0, 6.0, 7.0])


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("examples", np.array(SIZES) / sum(SIZES)),
        ("uniform", np.full(len(SIZES), 1 / len(SIZES))),
        (GIVEN, GIVEN / 25),
        (list(GIVEN.astype(int)), GIVEN / 25),
        (1e-9 * GIVEN, GIVEN / 25),
    ],
    ids=["examples", "uniform", "array", "list", "small"],
)
def test_weights_are_normalised_and_weigh_the_sums(weights, expected):
    federation = examples((X, Y), SIZES, logistic, weights=weights)
    np.testing.assert_allclose(federation.weights, expected, rtol=1e-14)
    assert federation.clients == len(SIZES)
    loss, grad = jax.jit(lambda f, w: (f.loss(w), f.grad(w)))(federation, W)
    np.testing.assert_allclose(loss, sum(p * numpy_loss(r, W) for p, r in zip(expected, ROWS, strict=True)), rtol=1e-12)
    total = sum(p * numpy_grad(r, W) for p, r in zip(expected, ROWS, strict=True))
    np.testing.assert_allclose(grad, total, rtol=1e-10, atol=1e-14)


def test_weights_in_proportion_to_examples_make_the_pooled_loss():
    np.testing.assert_allclose(examples((X, Y), SIZES, logistic).loss(jnp.asarray(W)), numpy_loss(slice(None), W))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": [3, 4]}, r"sizes add up to 7 examples, but the arrays of the store have \[8\] rows\."),
        ({"store": (X[:8], Y[:7])}, r"sizes add up to 8 examples, but the arrays of the store have \[7, 8\] rows\."),
        ({"sizes": [8, 0]}, r"sizes: client 1 has 0 examples; leave out clients that have none\."),
        ({"sizes": [-1, 9]}, r"sizes: client 0 has -1 examples; leave out clients that have none\."),
        ({"sizes": [4.0, 4.0]}, "sizes must be a one-dimensional array of integers, one for each client"),
        ({"sizes": [[4, 4]]}, "sizes must be a one-dimensional array of integers, one for each client"),
        ({"sizes": 8}, "sizes must be a one-dimensional array of integers, one for each client"),
        ({"sizes": []}, "sizes must be a one-dimensional array of integers, one for each client"),
        ({"weights": "size"}, "weights must be 'examples', 'uniform' or an array, got 'size'"),
        ({"weights": [1.0, -1.0]}, "weights must be finite, non-negative and not all zero"),
        ({"weights": [1.0, np.nan]}, "weights must be finite, non-negative and not all zero"),
        ({"weights": [1.0, np.inf]}, "weights must be finite, non-negative and not all zero"),
        ({"weights": [0.0, 0.0]}, "weights must be finite, non-negative and not all zero"),
        ({"weights": [1.0]}, r"weights must have one entry for each of 2 clients, got shape \(1,\)"),
        ({"weights": [[0.5, 0.5]]}, r"weights must have one entry for each of 2 clients, got shape \(1, 2\)"),
    ],
)
def test_bad_federations_raise_a_sentence(change, message):
    right = {"store": (X[:8], Y[:8]), "sizes": [5, 3], "loss": logistic, "weights": "uniform"}
    assert examples(**right).clients == 2
    with pytest.raises(ValueError, match=message):
        examples(**right | change)


# Quadratic clients.


@pytest.mark.parametrize(("clients", "dimension", "condition", "seed"), [(7, 4, 10.0, 0), (3, 2, 100.0, 5)])
def test_quadratic_clients_are_what_they_say(clients, dimension, condition, seed):
    federation = quadratics(clients, dimension, seed, condition)
    hessians, centers, p = federation.hessians, federation.centers, federation.weights
    assert federation.clients == clients
    assert hessians.shape == (clients, dimension, dimension)
    assert centers.shape == (clients, dimension)
    for a in hessians:
        np.testing.assert_allclose(a, a.T, atol=1e-15)
        eigenvalues = np.linalg.eigvalsh(a)
        assert eigenvalues[0] >= 1 / condition - 1e-12
        assert eigenvalues[-1] <= 1 + 1e-12
    # Nothing that would hide an error: no two clients commute, agree or weigh the same.
    for i, j in itertools.combinations(range(clients), 2):
        a, b = hessians[i], hessians[j]
        assert np.linalg.norm(a @ b - b @ a) > 1e-2 * np.linalg.norm(a) * np.linalg.norm(b)
        assert np.linalg.norm(centers[i] - centers[j]) > 1e-2
        assert abs(p[i] - p[j]) > 1e-5
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-14)
    assert np.all(p > 0)


def test_quadratic_loss_and_gradient():
    federation = quadratics(clients=5, dimension=3, seed=1)
    w = jnp.array([0.3, -2.0, 1.1])
    losses, grads = [], []
    for k in range(5):
        objective = federation.objective(k)
        off = np.asarray(w) - federation.centers[k]
        losses.append(off @ federation.hessians[k] @ off / 2)
        grads.append(federation.hessians[k] @ off)
        np.testing.assert_allclose(objective.loss(w), losses[-1], rtol=1e-13)
        np.testing.assert_allclose(objective.grad(w), grads[-1], rtol=1e-12)
        np.testing.assert_allclose(jax.grad(objective.loss)(w), grads[-1], rtol=1e-12)
        # One example: a batch is all there is.
        assert objective.size == objective.capacity == 1
        np.testing.assert_array_equal(objective.unravel(w), w)
        one = jnp.zeros(1, int), jnp.ones(1, bool)
        np.testing.assert_allclose(objective.batch_grad(w, *one, jax.random.key(0)), grads[-1], rtol=1e-12)
    np.testing.assert_allclose(federation.loss(w), federation.weights @ losses, rtol=1e-13)
    np.testing.assert_allclose(federation.grad(w), federation.weights @ np.array(grads), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_has_no_gradient(seed):
    federation = quadratics(seed=seed)
    best = federation.optimum()
    np.testing.assert_allclose(federation.grad(jnp.asarray(best)), np.zeros(4), atol=1e-13)
    # It is a minimum, away from the origin and from every client's own: the clients disagree.
    assert federation.loss(jnp.asarray(best)) < federation.loss(jnp.asarray(best + 0.01))
    assert np.linalg.norm(best) > 0.1
    assert np.all(np.linalg.norm(federation.centers - best, axis=1) > 0.1)
    # Weights matter to it: the clients weighed alike have another one.
    p = np.full(7, 1 / 7)
    assert np.linalg.norm(fl.data.Quadratics(federation.hessians, federation.centers, p).optimum() - best) > 1e-3


def test_quadratics_are_determined_by_their_seed():
    first, again, other = (quadratics(seed=s) for s in (4, 4, 5))
    for a, b, c in zip(*(jax.tree.leaves(f) for f in (first, again, other)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.all(a != c)


@pytest.mark.parametrize(
    "loss",
    [
        lambda w, rows, key: (rows[0] @ w[:, None] - rows[1][:, None]) ** 2,
        lambda w, rows, key: jnp.mean((rows[0] @ w - rows[1]) ** 2),
    ],
    ids=["column", "mean"],
)
def test_a_loss_of_the_wrong_shape_is_refused(loss):
    """Broadcast or averaged over padding rows it would give wrong gradients in silence."""
    federation = examples((X[:8], Y[:8]), [5, 3], loss)
    with pytest.raises(ValueError, match="loss must return one number for each row"):
        federation.objective(0).grad(jnp.zeros(X.shape[1]))
    with pytest.raises(ValueError, match="loss must return one number for each row"):
        fl.simulate(fl.FedAvg(), federation, fl.GD(), jnp.zeros(X.shape[1]), 1)


def test_a_float32_model_on_float64_examples():
    federation = examples((X[:8], Y[:8]), [5, 3], logistic)
    w = jnp.ones(X.shape[1], jnp.float32)
    assert federation.objective(0).loss(w).dtype == jnp.float32
    assert federation.objective(0).grad(w).dtype == jnp.float32


@pytest.mark.parametrize("package", [fl.data, fl.data.sources, fl.splits, fl.solvers, fl.systems, fl.theory])
def test_no_function_hides_a_module_of_its_name(package):
    """`import fedloom.data.x as m` gives the attribute x of the package, which must be the module."""
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        assert getattr(package, found.name.rpartition(".")[2]) is module
