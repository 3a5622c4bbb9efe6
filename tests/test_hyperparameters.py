"""Algorithms as values: what JAX may and may not confuse."""

import dataclasses
import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts, regularizers, schedules, solvers

VALUES = [
    *(cls() for cls in fl.ALGORITHMS.values()),
    *(cls() for cls in solvers.SOLVERS.values()),
    *(cls() for cls in regularizers.REGULARIZERS.values()),
    schedules.constant(),
    schedules.exponential(),
    schedules.staircase(),
    schedules.inverse_sqrt(),
    schedules.inverse(),
    schedules.warm_up(),
    cohorts.uniform(),
    cohorts.cyclic(),
    cohorts.by_weight(),
]


def test_structures_of_different_classes_differ():
    """FedSGD(lr), FedAvg(lr) and Lookahead(lr) have equal fields; taken for each other, jit runs the wrong method."""
    for a, b in itertools.combinations(VALUES, 2):
        assert jax.tree.structure(a) != jax.tree.structure(b), (a, b)


def test_methods_with_equal_fields_do_not_share_programs():
    """The consequence, end to end, with the lengths of run and cohort that once showed it."""
    federation, w = fl.quadratics(), jnp.ones(4)
    got = {}
    for algorithm in (fl.FedSGD(0.5), fl.FedAvg(0.5), fl.Lookahead(0.5), fl.FedSGD(0.5)):
        run = fl.simulate(algorithm, federation, fl.GD(0.1, 3), w, 5, chunk=5)
        got.setdefault(type(algorithm), []).append(np.asarray(list(run)[-1].w))
    assert np.array_equal(*got[fl.FedSGD])
    np.testing.assert_allclose(got[fl.FedAvg][0], got[fl.Lookahead][0], rtol=1e-12)
    assert np.abs(got[fl.FedAvg][0] - got[fl.FedSGD][0]).max() > 1e-2


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_values_survive(value):
    leaves, tree = jax.tree.flatten(value)
    assert jax.tree.unflatten(tree, leaves) == value
    assert dataclasses.replace(value) == value
    if not any(f.name == "optimizer" for f in dataclasses.fields(value)):  # optax optimizers are closures
        assert pickle.loads(pickle.dumps(value)) == value


def test_values_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        fl.FedAvg().lr = 2.0


def test_a_grid_of_hyperparameters_is_a_vmapped_axis():
    """One program for a grid of step sizes: the leaves carry an axis."""
    rates = jnp.array([0.1, 0.5, 0.9])
    w = jnp.ones(4)

    def step(algorithm):
        return algorithm.receive(algorithm.init(w), -w, None).w

    together = jax.vmap(step)(fl.FedAvg(lr=rates))
    np.testing.assert_allclose(together, jnp.stack([step(fl.FedAvg(lr=float(r))) for r in rates]), rtol=1e-12)


def test_paths_name_the_fields():
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(fl.FedDyn(0.3))]
    assert paths == [".alpha"]


def test_a_hyperparameter_says_what_it_is():
    field = {f.name: f for f in dataclasses.fields(fl.FedDR)}["alpha"]
    assert field.metadata["doc"] == "relaxation"
    assert field.metadata["domain"].words == "a number in (0, 2]"
    assert field.default == 1.0
