"""Losses that couple the rows of a batch: Cox's partial likelihood against its transcription in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.data import empirical_risk
from fedloom.engines.plan import Plan

SIZES = [9, 4, 14]
N, D = sum(SIZES), 3
RNG = np.random.default_rng(5)
X, TIMES, SEEN = RNG.normal(size=(N, D)), RNG.permutation(N).astype(float), RNG.random(N) < 0.7
SEEN[[0, 9, 13]] = True  # every client has an event
OWN = np.split(np.arange(N), np.cumsum(SIZES)[:-1])
W = RNG.normal(size=D)
WEIGHTS = np.array([0.5, 0.2, 0.3])


def cox_numpy(w, rows):
    """-1/D sum over events i of (x_i w - log sum over j at risk at t_i of exp(x_j w)), and its gradient."""
    value, gradient, events = 0.0, np.zeros(D), [i for i in rows if SEEN[i]]
    for i in events:
        risk = [j for j in rows if TIMES[j] >= TIMES[i]]
        scores = np.exp(X[risk] @ w)
        value -= X[i] @ w - np.log(scores.sum())
        gradient -= X[i] - scores @ X[risk] / scores.sum()
    return value / max(len(events), 1), gradient / max(len(events), 1)


def cox(outputs, y, mask):
    """The same in JAX: y has times and whether the event was seen."""
    times, seen = y[:, 0], (y[:, 1] > 0) & mask
    at_risk = (times[None, :] >= times[:, None]) & mask[None, :]
    scores = jnp.where(at_risk, outputs[None, :], -jnp.inf)
    each = jnp.where(seen, outputs - jax.nn.logsumexp(scores, axis=1, where=at_risk), 0)
    return -jnp.sum(each) / jnp.maximum(jnp.sum(seen), 1)


def of_batch(w, rows, mask, key):
    x, y = rows
    return cox(x @ w, y, mask)


Y = np.stack([TIMES, SEEN.astype(float)], axis=1)
FEDERATION = fl.examples((X, Y), SIZES, fl.Coupled(of_batch), weights=WEIGHTS)


@pytest.mark.parametrize("k", range(3))
def test_a_clients_loss_and_gradient_are_those_of_its_rows(k):
    value, gradient = cox_numpy(W, OWN[k])
    risk = FEDERATION.objective(k)
    np.testing.assert_allclose(risk.loss(jnp.asarray(W)), value, atol=1e-12)
    np.testing.assert_allclose(risk.grad(jnp.asarray(W)), gradient, atol=1e-12)


@pytest.mark.parametrize(("k", "rows"), [(0, [3, 5, 0]), (1, [2]), (2, [13, 1, 4, 7])])
def test_a_batch_has_no_rows_but_its_own(k, rows):
    """Five places, of which the last are filled up."""
    positions, mask = np.zeros(5, int), np.arange(5) < len(rows)
    positions[: len(rows)] = rows
    found = FEDERATION.objective(k).batch_grad(jnp.asarray(W), jnp.asarray(positions), jnp.asarray(mask), None)
    np.testing.assert_allclose(found, cox_numpy(W, OWN[k][rows])[1], atol=1e-12)


def test_clients_do_not_mix_in_the_loss_of_the_population():
    each = [cox_numpy(W, rows) for rows in OWN]
    np.testing.assert_allclose(FEDERATION.loss(jnp.asarray(W)), WEIGHTS @ [v for v, _ in each], atol=1e-12)
    np.testing.assert_allclose(FEDERATION.grad(jnp.asarray(W)), WEIGHTS @ [g for _, g in each], atol=1e-12)


@pytest.mark.parametrize("plan", [Plan(1), Plan(3), Plan(2, 2)])
def test_rounds_of_full_batches_are_those_of_a_loop(plan):
    """Three rounds of FedProx with two local steps, whose clients are padded to the largest."""
    w, mu, lr = W.copy(), 0.3, 0.2
    for _ in range(3):
        ends = []
        for rows in OWN:
            v = w.copy()
            for _ in range(2):
                v = v - lr * (cox_numpy(v, rows)[1] + mu * (v - w))
            ends.append(v)
        w = WEIGHTS @ ends
    for solver in (fl.SGD(lr, batch_size=None, epochs=2), fl.GD(lr, steps=2)):
        run = fl.simulate(fl.FedProx(mu=mu), FEDERATION, solver, jnp.asarray(W), 3, plan=plan)
        np.testing.assert_allclose(list(run)[-1].w, w, atol=1e-12)


@pytest.mark.parametrize("algorithm", [fl.Scaffold(), fl.FedDANE(mu=0.1)], ids=["scaffold", "feddane"])
def test_engines_agree_on_minibatches(algorithm):
    arguments = (algorithm, FEDERATION, fl.SGD(0.1, batch_size=4), jnp.asarray(W), 2)
    oracle = list(fl.reference(*arguments, seed=2))[-1]
    found = list(fl.simulate(*arguments, seed=2))[-1]
    np.testing.assert_allclose(found.w, oracle.w, atol=1e-12)
    assert found.counters == oracle.counters


def test_the_criterion_of_a_task_may_couple_rows():
    """Also its loss of the test set, which is that of all test rows together."""
    linear = fl.models.Model("linear", lambda key: jnp.asarray(W), lambda w, x, key: x @ w)
    data = fl.data.FederatedData((X, Y), fl.Split(np.arange(N), SIZES), (X[3:12], Y[3:12]))
    task = fl.Task("cox", data, linear, criterion=fl.Coupled(cox), metrics=(), weights="uniform").load()
    found = task.evaluate(task.w)
    np.testing.assert_allclose(found["train loss"], np.mean([cox_numpy(W, rows)[0] for rows in OWN]), atol=1e-12)
    np.testing.assert_allclose(found["test loss"], cox_numpy(W, np.arange(3, 12))[0], atol=1e-12)
    with pytest.raises(ValueError, match="couples rows"):
        task.evaluate(task.w, ["train:5"])


# What is not stated is refused.

REFUSED = {
    "the issue's": lambda w, r, key: w[0] * jnp.full(r.shape[0], r.mean()),
    "centred on the batch": lambda w, r, key: (r[:, 0] - r[:, 0].mean()) ** 2 * w[0],
    "in training only": lambda w, r, key: r[:, 0] * w[0] if key is None else r[:, 0] * w[0] / jnp.std(r),
    "softmax over the batch": lambda w, r, key: -jax.nn.log_softmax(r @ w),
    "ranks": lambda w, r, key: w[0] * jnp.argsort(jnp.argsort(r[:, 0])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_loss_that_couples_rows_without_saying_so_is_refused(name):
    federation = fl.examples(X, SIZES, REFUSED[name])
    for engine in (fl.simulate, fl.reference, fl.events):
        with pytest.raises(ValueError, match=r"depends on the other rows of its batch.*fl\.Coupled"):
            engine(fl.FedAvg(), federation, fl.SGD(0.1), jnp.zeros(D), 1)


ACCEPTED = {
    "one row each": lambda w, r, key: (r @ w) ** 2,
    "dropout": lambda w, r, key: r @ w if key is None else jnp.where(jax.random.bernoulli(key, 0.5, r.shape), r, 0) @ w,
    "a constant": lambda w, r, key: jnp.zeros(len(r)),
    "not finite nearby": lambda w, r, key: jnp.log(r @ w - 1e9),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_loss_of_single_rows_is_accepted(name):
    empirical_risk.check_rows_apart(fl.examples(X, SIZES, ACCEPTED[name]), jnp.zeros(D))


def test_a_loss_is_tried_once(monkeypatch):
    tries = []
    federation = fl.examples(X, SIZES, lambda w, r, key: tries.append(1) or r @ w)
    for _ in range(3):
        federation.check(jnp.zeros(D))
    assert len(tries) == 1


def test_a_coupled_loss_gives_one_number():
    federation = fl.examples(X, SIZES, fl.Coupled(lambda w, r, mask, key: r @ w))
    with pytest.raises(ValueError, match=r"one number for all rows, but returns shape \(14,\)"):
        fl.simulate(fl.FedAvg(), federation, fl.SGD(0.1), jnp.zeros(D), 1)
