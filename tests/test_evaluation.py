"""What is evaluated: blocks of the test set, bounds, choices of parts and metrics, samples of the training examples."""

import dataclasses
import json

import numpy as np
import pytest

import fedloom as fl
from fedloom import metrics
from fedloom.experiments import experiment, read, run, sweep
from fedloom.experiments.about import about, figures
from fedloom.experiments.progress import Json, values
from fedloom.experiments.result import NOT_METRICS
from fedloom.metrics import evaluation
from fedloom.sinks import numbers

# Blocks of the test set.


def test_the_mean_of_the_blocks_is_the_metric_also_with_ragged_denominators():
    rng = np.random.default_rng(1)
    for n in (1, 7, 100, 101, 5000):
        counted = rng.integers(0, 9, n).astype(np.float32)  # tokens: some examples have none
        counted[0] = 3
        right = rng.binomial(counted.astype(int), 0.3).astype(np.float32)
        blocks = evaluation.blocks(right, counted)
        assert len(blocks) == min(100, n)
        assert np.mean(blocks) == pytest.approx(right.sum() / counted.sum(), abs=1e-5)
        assert blocks == [float(f"{b:.6g}") for b in blocks]


def test_a_block_by_hand():
    """Four examples in four blocks: R = 3/4, and block b has 3/4 + 4 (num - 3/4) / 4 = num."""
    order = np.random.default_rng(0).permutation(4)
    right = np.array([1.0, 0.0, 1.0, 1.0])
    assert evaluation.blocks(right, np.ones(4)) == right[order].tolist()


def test_examples_are_dealt_round_robin_by_a_fixed_permutation():
    n = 250
    order = np.random.default_rng(0).permutation(n)
    x = np.random.default_rng(2).normal(size=n)
    expected = [x.mean() + 100 * np.sum(x[order[b::100]] - x.mean()) / n for b in range(100)]
    assert evaluation.blocks(x, np.ones(n)) == pytest.approx(expected, rel=1e-5)


def test_the_variance_of_the_blocks_is_that_of_the_metric():
    """Of an accuracy p (1 - p) / n, on average over many test sets; of a ratio by its linearisation."""
    rng = np.random.default_rng(3)
    n, p, of_accuracy, of_ratio = 3000, 0.8, [], []
    for _ in range(200):
        right = (rng.random(n) < p).astype(float)
        of_accuracy.append(np.var(evaluation.blocks(right, np.ones(n)), ddof=1) / 100)
        counted = rng.integers(1, 9, n)
        of_ratio.append(np.var(evaluation.blocks(rng.binomial(counted, p), counted), ddof=1) / 100)
    # 200 estimates with 99 degrees of freedom each: the mean has a relative standard error of 1%.
    assert np.mean(of_accuracy) == pytest.approx(p * (1 - p) / n, rel=0.04)
    assert np.mean(of_ratio) == pytest.approx(p * (1 - p) / (n * 4.5), rel=0.04)


def test_a_metric_without_a_denominator_has_no_blocks_that_mean_anything():
    assert np.isnan(evaluation.blocks(np.zeros(5), np.zeros(5))).all()


def test_blocks_are_in_the_log_and_shown_nowhere(tmp_path, capsys):
    e = experiment("digits", "fedavg", rounds=2)
    result = run(e, tmp_path / "a")
    assert "test blocks" in NOT_METRICS
    for row in result.rows:
        assert row["test blocks"].keys() == {"test loss", "test accuracy"}
        for name, blocks in row["test blocks"].items():
            assert len(blocks) == 100
            assert np.mean(blocks) == pytest.approx(row[name], abs=1e-5 * max(1, row[name]))
    assert read(tmp_path / "a").rows == result.rows
    assert "test blocks" not in result.metrics
    row = result.rows[-1]
    assert "block" not in values(row)
    assert not any("block" in name for name in numbers(row))
    Json().row("a", e, row)
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == {"name", "seed", *row} - {"test blocks"}


def test_points_side_by_side_have_the_blocks_of_single_runs():
    base = experiment("digits", "fedavg", rounds=2)
    study = sweep(base, {"solver.lr": [0.03, 0.1]})
    alone = run(study.results[1].experiment)
    for row, single in zip(study.results[1].rows, alone.rows, strict=True):
        for name, blocks in single["test blocks"].items():
            np.testing.assert_allclose(row["test blocks"][name], blocks, rtol=1e-4, atol=1e-4)


# Facts about a run.


def test_the_facts_that_comparisons_need():
    e = experiment("digits", "feddane", rounds=1)
    facts = about(e, e.check())
    assert facts["bounds"] == {"train loss": [0.0, None], "test loss": [0.0, None], "test accuracy": [0.0, 1.0]}
    assert facts["exchanges"] == 2
    assert facts["cohort"] == "uniform(m=10)"
    assert facts["test"]["examples"] == len(e.load().data.test[1])
    e = experiment("quadratics", "fedavg", rounds=1, cohort="everyone")
    facts = about(e, e.check())
    assert facts["bounds"] == {"train loss": [None, None]}
    assert facts["exchanges"] == 1
    assert facts["cohort"] == "everyone()"
    assert "test" not in facts
    assert json.loads(json.dumps(facts)) == facts


def test_the_digest_is_that_of_the_test_set():
    x, y, owner = np.arange(40.0).reshape(20, 2), np.arange(20) % 2, np.arange(20) % 4

    def digest(test, seed=0):
        data = fl.by_client(x, y, owner, test=0)
        task = fl.Task("t", dataclasses.replace(data, test=test), fl.models.mlp(2, 2))
        return figures(task.load(seed))["test"]["digest"]

    first = digest((x[:4], y[:4]))
    assert digest((x[:4].copy(), y[:4]), seed=1) == first
    assert digest((x[1:5], y[1:5])) != first
    assert digest((x[:4], 1 - y[:4])) != first
    assert digest((x[:5], y[:5])) != first


def test_clients_have_their_names():
    data = fl.by_client(np.ones((6, 2)), np.arange(6) % 2, ["Zurich", "Basel", "Basel"] * 2, test=0)
    assert figures(fl.Task("t", data, fl.models.mlp(2, 2)).load())["names"] == ["Basel", "Zurich"]


def test_bounds_of_metrics():
    inf = np.inf
    assert metrics.accuracy.bounds == metrics.binary_accuracy.bounds == metrics.token_accuracy(0).bounds == (0, 1)
    assert metrics.recall_at(5).bounds == (0, 1)
    assert metrics.mse.bounds == (0, inf)
    for criterion in (metrics.cross_entropy, metrics.binary_cross_entropy, metrics.squared_error):
        assert metrics.loss(criterion).bounds == (0, inf)
    assert metrics.loss(lambda outputs, y: -outputs[:, 0]).bounds == (-inf, inf)
    assert metrics.Metric("own", lambda outputs, y: (y, y)).bounds == (-inf, inf)
