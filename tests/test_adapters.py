"""Modules of Flax and Equinox as models: the libraries' own outputs, dropout by key, and a federated round."""

import importlib
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.engines.plan import Plan
from fedloom.models import from_equinox, from_linen, from_nnx

with warnings.catch_warnings():  # what these libraries use of JAX while they are imported is not our concern
    warnings.simplefilter("ignore", DeprecationWarning)
    nn = pytest.importorskip("flax.linen")
    nnx = pytest.importorskip("flax.nnx")
    eqx = pytest.importorskip("equinox")

X = np.random.default_rng(0).normal(size=(6, 4))
Y = np.array([0, 1, 2, 0, 1, 2])
KEYS = jax.random.split(jax.random.key(3), 2)


class Linen(nn.Module):
    norm: bool = False

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.relu(nn.Dense(8)(x))
        if self.norm:
            x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


class Nnx(nnx.Module):
    def __init__(self, norm=False, *, rngs):
        self.first, self.last = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)
        self.drop1, self.drop2 = nnx.Dropout(0.5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.shift = jnp.arange(3.0)  # an array that is not a parameter
        if norm:
            self.norm = nnx.BatchNorm(8, rngs=rngs)

    def __call__(self, x):
        h = self.drop2(self.drop1(nnx.relu(self.first(x))))
        return self.last(h) + jnp.broadcast_to(self.shift, (len(x), 3))


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    last: eqx.nn.Linear
    drop: eqx.nn.Dropout
    order: jax.Array

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(4, 8, key=a), eqx.nn.Linear(8, 3, key=b)
        self.drop = eqx.nn.Dropout(0.5)
        self.order = jnp.array([2, 0, 1])  # integers are not parameters

    def __call__(self, x, key=None):
        return self.last(self.drop(jax.nn.relu(self.first(x)), key=key))[self.order]


MODELS = {
    "linen": lambda: from_linen(Linen(), X, train={"train": True}, evaluate={"train": False}),
    "nnx": lambda: from_nnx(lambda rngs: Nnx(rngs=rngs)),
    "equinox": lambda: from_equinox(Equinox),
}
every = pytest.mark.parametrize("model", [make() for make in MODELS.values()], ids=MODELS)


def own_call(model, key):
    """What the library itself answers outside training, with the parameters of `key`."""
    if model.name == "Linen":
        return Linen().apply(Linen().init(key, X, train=False), X, train=False)
    if model.name == "Nnx":
        module = Nnx(rngs=nnx.Rngs(key))
        module.eval()
        return module(X)
    return jax.vmap(eqx.nn.inference_mode(Equinox(key)))(X)


@every
def test_outputs_are_the_librarys_own(model):
    """For a key other than the one with which the adapter looked at the module."""
    key = jax.random.key(7)
    np.testing.assert_allclose(model.apply(model.init(key), X, None), own_call(model, key), rtol=1e-12)


@every
def test_parameters_are_the_trainable_floats(model):
    assert model.parameters == 4 * 8 + 8 + 8 * 3 + 3
    w = model.flat(seed=7)
    assert w.shape == (model.parameters,)
    np.testing.assert_allclose(
        model.apply(model.unravel(w), X, None), model.apply(model.init(jax.random.key(7)), X, None), rtol=1e-12
    )


@every
def test_dropout_follows_the_key_in_training_and_is_off_in_evaluation(model):
    params = model.init(jax.random.key(0))
    train = jax.jit(model.apply)
    first, second = (train(params, X, key) for key in KEYS)
    np.testing.assert_array_equal(first, train(params, X, KEYS[0]))
    evaluated = model.apply(params, X, None)
    np.testing.assert_array_equal(evaluated, model.apply(params, X, None))
    for a, b in ((first, second), (first, evaluated), (second, evaluated)):
        assert np.max(np.abs(a - b)) > 1e-3
    # Dropout has mean one: over many keys, training averages to evaluation (the last layer is linear).
    outputs = np.asarray(jax.jit(jax.vmap(model.apply, (None, None, 0)))(params, X, jax.random.split(KEYS[0], 4000)))
    error = np.abs(outputs.mean(axis=0) - evaluated)
    assert np.all(error < 5 * outputs.std(axis=0) / np.sqrt(4000) + 1e-6)


@every
def test_rows_are_dropped_out_independently(model):
    same = np.broadcast_to(X[:1], (64, 4))
    rows = model.apply(model.init(jax.random.key(0)), same, KEYS[0])
    assert len(np.unique(np.round(rows, 6), axis=0)) > 1


def cross_entropy(model):
    def loss(params, rows, key):
        x, y = rows
        return -jax.nn.log_softmax(model.apply(params, x, key))[jnp.arange(len(y)), y]

    return loss


@every
def test_gradients_flow_to_every_layer(model):
    params = model.init(jax.random.key(0))
    gradient = jax.jit(jax.grad(lambda p: jnp.mean(cross_entropy(model)(p, (X, Y), KEYS[0]))))(params)
    assert jax.tree.structure(gradient) == jax.tree.structure(params)
    for leaf in jax.tree.leaves(gradient):
        assert np.all(np.isfinite(leaf))
        assert np.any(leaf != 0)


@every
def test_a_federated_run(model):
    federation = fl.examples((X, Y), [4, 2], cross_entropy(model), model.unravel)
    w = model.flat()
    *_, last = fl.simulate(fl.FedAvg(), federation, fl.SGD(lr=0.3, batch_size=2), w, 10, plan=Plan(1))
    assert federation.loss(last.w) < federation.loss(w)


def test_a_module_without_dropout_needs_no_key():
    class Plain(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x):
            return self.layer(x)

    model = from_equinox(lambda key: Plain(eqx.nn.Linear(4, 2, key=key)))
    params = model.init(jax.random.key(0))
    np.testing.assert_array_equal(model.apply(params, X, KEYS[0]), model.apply(params, X, None))
    model = from_linen(nn.Dense(2), X)
    params = model.init(jax.random.key(0))
    np.testing.assert_array_equal(model.apply(params, X, KEYS[0]), model.apply(params, X, None))


def test_batch_statistics_are_refused():
    with pytest.raises(ValueError, match=r"Linen keeps state .*\(batch_stats\).* GroupNorm or LayerNorm"):
        from_linen(Linen(norm=True), X, train={"train": True}, evaluate={"train": False})
    with pytest.raises(ValueError, match=r"Nnx keeps state .*\(BatchStat\).* GroupNorm or LayerNorm"):
        from_nnx(lambda rngs: Nnx(norm=True, rngs=rngs))
    with pytest.raises(ValueError, match=r"BatchNorm keeps state .*\(StateIndex\).* GroupNorm or LayerNorm"):
        from_equinox(lambda key: eqx.nn.BatchNorm(4, "batch", mode="batch"))


def test_integer_parameters_are_refused():
    class Counter(nnx.Module):
        def __init__(self):
            self.count = nnx.Param(jnp.arange(3))

    with pytest.raises(ValueError, match=r"Counter: the parameter \['count'\] has type int"):
        from_nnx(lambda rngs: Counter())


@pytest.mark.parametrize(("adapt", "package"), [(from_nnx, "flax"), (from_equinox, "equinox")])
def test_a_missing_library_is_a_sentence(adapt, package, monkeypatch):
    def missing(name, *args):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=rf"{package} is not installed; run: pip install 'fedloom\[{package}\]'"):
        adapt(lambda _: None)


def test_the_libraries_are_imported_only_when_needed():
    """fedloom works without them."""
    code = "import sys, fedloom.models; print(sorted({'flax', 'equinox'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
