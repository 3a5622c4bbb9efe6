"""`continued`: the steps of a round go on in a client's pass over its examples where the round before ended."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.cohorts import cyclic, uniform
from fedloom.engines.plan import Plan

SIZES = [12, 7, 5]
N, BATCH = sum(SIZES), 3
SOLVERS = {
    "sgd": fl.SGD(1.0, batch_size=BATCH, steps=2, continued=True),
    "optax": fl.Optax(fl.optimizer("sgd", learning_rate=1.0), batch_size=BATCH, steps=2, continued=True),
}


def linear(w, rows, key):
    """Its gradient is the row, whatever w is: with one-hot rows a step of length 1 counts visits, over the batch."""
    return rows @ w


FEDERATION = fl.examples(np.eye(N), SIZES, linear, weights="uniform")


def records(run, solver, rounds, **more):
    return list(run(fl.FedAvg(), FEDERATION, solver, jnp.zeros(N), rounds, **more))


def visits(run, solver, rounds, **more):
    """[rounds, N]: how much of each example's gradient the clients' steps of each round followed."""
    models = np.array([np.zeros(N), *(np.asarray(r.w) for r in records(run, solver, rounds, **more))])
    return -np.diff(models, axis=0) * len(SIZES)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("run", [fl.reference, fl.simulate])
def test_a_pass_over_several_rounds_visits_every_example_once(run, name):
    """12 examples in batches of 3 are two rounds of two steps; 5 examples are one round, with a batch of 2."""
    seen = visits(run, SOLVERS[name], 4)
    np.testing.assert_allclose(seen[:2, :12].sum(axis=0), 1 / 3)
    np.testing.assert_allclose(seen[2:, :12].sum(axis=0), 1 / 3)
    assert not np.array_equal(seen[0, :12], seen[2, :12])  # the second pass has an order of its own
    for t in range(4):
        np.testing.assert_allclose(np.sort(seen[t, 19:]), [1 / 3] * 3 + [1 / 2] * 2)
    # 7 examples are 3 batches, of 3, 3 and 1: three rounds of two steps are two passes.
    twice = seen[:3, 12:19].sum(axis=0)
    assert set(np.round(twice * 3).astype(int)) <= {2, 4, 6}  # in a full batch, or alone, in each pass
    np.testing.assert_allclose(twice.sum(), 6.0)


def test_without_it_every_round_begins_a_new_pass():
    begun = visits(fl.simulate, fl.SGD(1.0, batch_size=BATCH, steps=2), 2)
    assert np.any(begun[:, :12].sum(axis=0) > 0.4)  # an example of both rounds


@pytest.mark.parametrize("rule", [uniform(2), cyclic(2)])
@pytest.mark.parametrize("plan", [Plan(1), Plan(2), Plan(3), Plan(1, 2)])
def test_engines_agree(rule, plan):
    solver = SOLVERS["sgd"]
    oracle = records(fl.reference, solver, 5, cohort=rule, seed=3)
    found = records(fl.simulate, solver, 5, cohort=rule, seed=3, chunk=2, plan=plan)
    np.testing.assert_allclose(found[-1].w, oracle[-1].w, atol=1e-12)
    early = records(fl.simulate, solver, 2, cohort=rule, seed=3, plan=plan)[-1]
    again = records(fl.simulate, solver, 5, cohort=rule, seed=3, resume=early)
    np.testing.assert_array_equal(again[-1].w, found[-1].w)


def test_who_takes_part_now_and_then_is_where_everyone_would_be():
    """A round's batches are a function of seed, round and client, so that no memory is needed."""
    everyone = visits(fl.simulate, SOLVERS["sgd"], 4)
    some = records(fl.simulate, SOLVERS["sgd"], 4, cohort=cyclic(1))
    models = np.array([np.zeros(N), *(np.asarray(r.w) for r in some)])
    for t, record in enumerate(some):
        (k,) = record.cohort[0]
        own = slice(sum(SIZES[:k]), sum(SIZES[: k + 1]))
        np.testing.assert_allclose(-(models[t + 1] - models[t])[own], everyone[t][own], atol=1e-12)


def test_seeds_have_orders_of_their_own():
    one, other = (visits(fl.simulate, SOLVERS["sgd"], 1, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one, other)


def test_the_randomness_of_steps_is_their_own():
    """Dropout must not repeat from round to round although the order's key is the same."""
    drawn = fl.examples(np.ones((6, 1)), [6], lambda w, rows, key: _noise(rows, key) * w[0])
    solver = fl.SGD(1.0, batch_size=3, steps=1, continued=True)
    models = [0.0, *(float(r.w[0]) for r in fl.simulate(fl.FedAvg(), drawn, solver, jnp.zeros(1), 6))]
    assert len(set(np.round(np.diff(models), 12))) == 6


def _noise(rows, key):
    return jnp.zeros(len(rows)) if key is None else jax.random.normal(key, (len(rows),))


def test_it_needs_steps_and_rounds():
    with pytest.raises(ValueError, match="SGD: continued needs steps"):
        fl.SGD(continued=True)
    with pytest.raises(ValueError, match="an asynchronous run has no rounds; leave continued out"):
        fl.events(fl.FedAvg(), FEDERATION, SOLVERS["sgd"], jnp.zeros(N), 2)


def test_it_survives_a_file():
    e = fl.experiment("digits", "fedavg", **{"solver.epochs": 1, "solver.steps": 3, "solver.continued": True})
    assert fl.experiments.from_toml(e.to_toml()).solver == e.solver
    assert e.solver.continued
