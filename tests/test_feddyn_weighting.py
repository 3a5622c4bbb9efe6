"""FedDyn's weighting = "alpha": devices of unequal sizes as in the authors' code, written out once more in NumPy."""

import dataclasses
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.algorithms.last_models import LastModels
from fedloom.engines.plan import Plan
from fedloom.experiments import experiment, from_config, resume, run, sweep
from fedloom.testing import relative_difference, stacked
from tests import transcriptions as numpy_version
from tests.federations import FEDERATION, W, bits, last, least_squares

SIZES = np.array([2, 40, 7, 1, 12, 3, 25])
UNEQUAL = dataclasses.replace(FEDERATION, weights=SIZES / SIZES.sum())
EQUAL = dataclasses.replace(FEDERATION, weights=np.full(7, 1 / 7))
HESSIANS, CENTERS = (np.asarray(x) for x in (FEDERATION.hessians, FEDERATION.centers))
engines = pytest.mark.parametrize("engine", [fl.simulate, fl.reference], ids=["simulate", "reference"])


def minimiser(sizes):
    """Of sum_k n_k F_k."""
    a = np.einsum("k,kij->ij", sizes, HESSIANS)
    return np.linalg.solve(a, np.einsum("k,kij,kj->i", sizes, HESSIANS, CENTERS))


def test_with_partial_cohorts_the_limit_is_the_minimiser_of_the_loss_weighted_by_sizes():
    args = UNEQUAL, fl.Exact(), W, 6000
    record = last(fl.simulate, fl.FedDyn(0.3, "alpha"), *args, cohort=cohorts.bernoulli(0.5), seed=1, chunk=6000)
    assert np.linalg.norm(record.w - minimiser(SIZES)) < 1e-8
    assert np.linalg.norm(minimiser(SIZES) - minimiser(np.ones(7))) > 0.1  # another loss has another minimiser


def authors_code(x, y, sizes, w, trace, alpha, lr, steps):
    """Devices with rows x, y and loss (x @ v - y)^2 / 2 + 0.05 |v|^2; `steps` full steps each.

    Yields the cloud's model and all h_k: the sums of (device's model - cloud's) over the rounds it was active in.
    """
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    h, cloud = np.zeros((len(sizes), len(w))), np.array(w)
    for active in trace:
        models = []
        for k in active:
            rows, labels = x[bounds[k] : bounds[k + 1]], y[bounds[k] : bounds[k + 1]]
            alpha_k = alpha / (sizes[k] / np.mean(sizes))
            v = cloud
            for _ in range(steps):
                loss = rows.T @ (rows @ v - labels) / sizes[k] + 0.1 * v
                linear = alpha_k * (h[k] - cloud)
                decay = alpha_k * v
                v = v - lr * (loss + linear + decay)
            models.append(v)
        for k, v in zip(active, models, strict=True):
            h[k] = h[k] + v - cloud
        cloud = sum(models) / len(models) + sum(h) / len(h)
        yield cloud, h.copy()


@engines
def test_rounds_are_those_of_the_authors_code(engine):
    """From rows of data: sizes are counted, not given. Cohorts are a binomial number of devices."""
    sizes, alpha = (3, 9, 1, 6, 5), 0.4
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 4)), rng.normal(size=24)  # as in least_squares
    federation, algorithm = least_squares(sizes, seed=0), fl.FedDyn(alpha, "alpha")
    rounds = 4 if engine is fl.reference else 15
    records = list(engine(algorithm, federation, fl.GD(0.1, 3), W, rounds, cohort=cohorts.bernoulli(0.4), seed=3))
    trace = [r.cohort[0].tolist() for r in records]
    assert len({len(active) for active in trace}) > 1
    alpha_k = alpha / (np.array(sizes) / np.mean(sizes))
    expected = list(authors_code(x, y, sizes, W, trace, alpha, 0.1, 3))
    for record, (cloud, _) in zip(records, expected, strict=True):
        np.testing.assert_allclose(record.w, cloud, rtol=0, atol=1e-12)
    g = np.asarray(stacked(records[-1], algorithm, W, 5))
    np.testing.assert_allclose(-g / alpha_k[:, None], expected[-1][1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(-records[-1].server.h / alpha, expected[-1][1].mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", [cohorts.uniform(3), cohorts.bernoulli(0.4), cohorts.everyone()], ids=repr)
def test_with_equal_sizes_it_is_the_default(rule):
    args = EQUAL, fl.GD(0.2, 3), W, 10
    for a, b in zip(*(fl.simulate(fl.FedDyn(0.3, w), *args, cohort=rule) for w in ("means", "alpha")), strict=True):
        assert relative_difference(a.server, b.server) < 1e-13
    sent = a.counters.messages // 2  # a message goes down, a reply comes up
    assert b.counters == a.counters._replace(bytes_up=a.counters.bytes_up + 8 * sent)  # a number beside the model


def test_with_unequal_sizes_it_is_not_the_default():
    a, b = (last(fl.simulate, fl.FedDyn(0.3, w), UNEQUAL, fl.Exact(), W, 3) for w in ("means", "alpha"))
    assert np.abs(a.w - b.w).max() > 0.01


@engines
def test_a_client_that_is_drawn_twice_counts_twice_in_the_plain_mean_and_once_in_h(engine):
    """Client 4 of cohort (4, 4, 1): the mean of three models, but its h_k grows by one difference."""
    record = last(engine, fl.FedDyn(0.3, "alpha"), UNEQUAL, fl.Exact(), W, 1, cohort=cohorts.scheduled([[4, 4, 1]]))
    clients = numpy_version.Federation(HESSIANS, CENTERS, SIZES / SIZES.sum())
    alpha_k = 0.3 / (SIZES / SIZES.mean())
    model = {k: numpy_version.argmin(clients, k, 0.0, alpha_k[k], np.asarray(W)) for k in (1, 4)}
    h = (model[1] - W + model[4] - W) / 7
    np.testing.assert_allclose(record.w, (2 * model[4] + model[1]) / 3 + h, rtol=0, atol=1e-12)


@engines
def test_clients_without_weight_do_not_count(engine):
    """Client 0 has p_0 = 0: alpha_0 would be infinite. It is one of the m clients, but changes nothing."""
    weights = np.array([0, 40, 7, 1, 12, 3, 25]) / 88
    federation = dataclasses.replace(FEDERATION, weights=weights)
    rule = cohorts.scheduled([[0, 1], [0, 2, 6], [0], [1, 3]])
    clients = numpy_version.Federation(HESSIANS, CENTERS, weights)
    expected = numpy_version.feddyn_code(clients, np.asarray(W), [[1], [2, 6], [1, 3]], alpha=0.3)
    models = [np.asarray(r.w) for r in engine(fl.FedDyn(0.3, "alpha"), federation, fl.Exact(), W, 4, cohort=rule)]
    np.testing.assert_array_equal(models[1], models[2])
    np.testing.assert_allclose([models[i] for i in (0, 1, 3)], expected, rtol=0, atol=1e-12)


def test_replies_are_of_the_models_type():
    """Weights of double precision do not turn a model of single precision into one of double."""
    federation = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), UNEQUAL)
    federation = dataclasses.replace(federation, weights=UNEQUAL.weights)
    for engine in (fl.simulate, fl.reference):
        record = last(engine, fl.FedDyn(0.3, "alpha"), federation, fl.GD(0.1), W.astype(jnp.float32), 2)
        assert record.w.dtype == record.server.h.dtype == jnp.float32
        assert record.counters.bytes_up == 2 * 7 * (4 * 4 + 4)


@pytest.mark.parametrize("plan", [Plan(2), Plan(2, 2)], ids=str)
def test_ragged_clients_that_hand_over_lanes_keep_their_weights(plan):
    args = fl.FedDyn(0.3, "alpha"), least_squares(), fl.SGD(0.1, batch_size=2), W, 3
    slow = last(fl.reference, *args, cohort=cohorts.uniform(4), seed=1)
    fast = last(fl.simulate, *args, cohort=cohorts.uniform(4), seed=1, plan=plan)
    assert relative_difference(fast.server, slow.server) < 1e-12
    assert fast.counters == slow.counters
    for k in slow.clients:
        assert relative_difference(fast.clients[k], slow.clients[k]) < 1e-12


def test_it_may_not_be_late():
    with pytest.raises(ValueError, match="FedDyn cannot run asynchronously: its server subtracts its own model"):
        fl.events(fl.FedDyn(0.3, "alpha"), UNEQUAL, fl.Exact(), W, 1)


def test_an_unknown_word_is_refused():
    with pytest.raises(ValueError, match="FedDyn: weighting must be one of 'means', 'alpha', got 'sizes'"):
        fl.FedDyn(weighting="sizes")


def test_last_models_are_those_of_the_weighted_solves():
    args = UNEQUAL, fl.Exact(), W, 3
    plain, wrapped = (
        last(fl.simulate, a, *args, cohort=cohorts.uniform(3), seed=2)
        for a in (fl.FedDyn(0.3, "alpha"), LastModels(fl.FedDyn(0.3, "alpha")))
    )
    assert relative_difference(plain.server, wrapped.server) < 1e-13
    assert plain.counters == wrapped.counters


# In experiments.

E = experiment("quadratics", fl.FedDyn(0.3, "alpha"), rounds=6, evaluate_every=2)


def test_a_config_keeps_the_number_and_the_word(tmp_path):
    config = tomllib.loads(E.to_toml())["algorithm"]
    assert config == {"name": "feddyn", "alpha": 0.3, "weighting": "alpha"}
    assert from_config(E.to_plain()) == E


def test_it_is_resumed_to_the_same_bits(tmp_path):
    e = experiment("digits", fl.FedDyn(0.3, "alpha"), rounds=4, evaluate_every=1, evaluate="last models")
    whole = run(e, tmp_path / "whole")

    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(e, tmp_path / "stopped", watch=[stop], checkpoint_seconds=0)
    assert bits(resume(tmp_path / "stopped").w) == bits(whole.w)


def test_the_points_of_a_sweep_are_runs(tmp_path):
    """alpha is an axis of one program; every point is what it is alone, where clients are unequal."""
    weights = np.asarray(E.load().federation.weights)
    assert weights.max() > 1.5 * weights.min()
    study = sweep(E, {"algorithm.alpha": [0.1, 0.3]}, directory=tmp_path / "s")
    for result in study.results:
        for row, other in zip(result.rows, run(result.experiment).rows, strict=True):
            assert row["train loss"] == pytest.approx(other["train loss"], rel=1e-10)
            assert row["bytes up"] == other["bytes up"]
