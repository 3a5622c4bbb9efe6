"""What is evaluated: blocks of the test set, bounds, choices of parts and metrics, samples of the training examples."""

import dataclasses
import json

import numpy as np
import pytest

import fedloom as fl
from fedloom import metrics
from fedloom.experiments import Select, best, experiment, ranking, read, run, run_all, sweep, sweep_table
from fedloom.experiments.about import about, figures
from fedloom.experiments.progress import Json, values
from fedloom.experiments.result import NOT_METRICS
from fedloom.experiments.study import run_alone
from fedloom.metrics import scored
from fedloom.report.extras import first_sections
from fedloom.sinks import numbers
from fedloom.tasks.evaluated import Evaluation, owners_of_tests

# Blocks of the test set.


def test_the_mean_of_the_blocks_is_the_metric_also_with_ragged_denominators():
    rng = np.random.default_rng(1)
    for n in (1, 7, 100, 101, 5000):
        counted = rng.integers(0, 9, n).astype(np.float32)  # tokens: some examples have none
        counted[0] = 3
        right = rng.binomial(counted.astype(int), 0.3).astype(np.float32)
        blocks = scored.blocks(right, counted)
        assert len(blocks) == min(100, n)
        assert np.mean(blocks) == pytest.approx(right.sum() / counted.sum(), abs=1e-5)
        assert blocks == [float(f"{b:.6g}") for b in blocks]


def test_a_block_by_hand():
    """Four examples in four blocks: R = 3/4, and block b has 3/4 + 4 (num - 3/4) / 4 = num."""
    order = np.random.default_rng(0).permutation(4)
    right = np.array([1.0, 0.0, 1.0, 1.0])
    assert scored.blocks(right, np.ones(4)) == right[order].tolist()


def test_examples_are_dealt_round_robin_by_a_fixed_permutation():
    n = 250
    order = np.random.default_rng(0).permutation(n)
    x = np.random.default_rng(2).normal(size=n)
    expected = [x.mean() + 100 * np.sum(x[order[b::100]] - x.mean()) / n for b in range(100)]
    assert scored.blocks(x, np.ones(n)) == pytest.approx(expected, rel=1e-5)


def test_the_variance_of_the_blocks_is_that_of_the_metric():
    """Of an accuracy p (1 - p) / n, on average over many test sets; of a ratio by its linearisation."""
    rng = np.random.default_rng(3)
    n, p, of_accuracy, of_ratio = 3000, 0.8, [], []
    for _ in range(200):
        right = (rng.random(n) < p).astype(float)
        of_accuracy.append(np.var(scored.blocks(right, np.ones(n)), ddof=1) / 100)
        counted = rng.integers(1, 9, n)
        of_ratio.append(np.var(scored.blocks(rng.binomial(counted, p), counted), ddof=1) / 100)
    # 200 estimates with 99 degrees of freedom each: the mean has a relative standard error of 1%.
    assert np.mean(of_accuracy) == pytest.approx(p * (1 - p) / n, rel=0.04)
    assert np.mean(of_ratio) == pytest.approx(p * (1 - p) / (n * 4.5), rel=0.04)


def test_blocks_of_owners_know_that_their_examples_are_alike():
    """100 writers with 20 examples each, all right or all wrong: as good as 100 examples."""
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        owners = rng.permutation(np.repeat(np.arange(100), 20))
        right = (rng.random(100) < 0.7)[owners]
        found.append(np.var(scored.blocks(right, np.ones(2000), owners), ddof=1) / 100)
        assert np.mean(scored.blocks(right, np.ones(2000), owners)) == pytest.approx(right.mean(), abs=1e-5)
    assert np.mean(found) == pytest.approx(0.7 * 0.3 / 100, rel=0.05)


def test_natural_clients_own_their_blocks_if_they_are_many():
    n = 40 * 6
    owner, y = np.repeat(np.arange(40), 6), np.arange(n) % 2
    x = np.random.default_rng(0).normal(size=(n, 2))
    many = fl.Task("many", fl.by_client(x, y, owner, test=0.5), fl.models.mlp(2, 2)).load()
    owners = owners_of_tests(many)
    assert len(np.unique(owners)) == 40
    assert [len(set(owners[rows])) for rows in np.split(many.data.test_split.order, 40)] == [1] * 40
    row = Evaluation(many).of(many.w)
    assert len(row["test blocks"]["test accuracy"]) == 40
    few = fl.Task("few", fl.by_client(x, y, owner % 20, test=0.5), fl.models.mlp(2, 2)).load()
    assert owners_of_tests(few) is None
    assert owners_of_tests(fl.load("digits")) is None


def test_a_metric_without_a_denominator_has_no_blocks_that_mean_anything():
    assert np.isnan(scored.blocks(np.zeros(5), np.zeros(5))).all()


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


# Selection.

BASE = experiment("digits", "fedavg", rounds=2)
POINTS = {"solver.lr": [0.01, 0.3]}


def test_points_are_selected_by_validation_examples_where_there_are_any():
    study = sweep(dataclasses.replace(BASE, validation=0.2), POINTS)
    assert study.about["select"] == {"metric": "validation loss", "last": 100}
    expected = min(study.results, key=lambda r: np.mean([row["validation loss"] for row in r.rows[1:]]))
    assert best(study).name == expected.name
    assert best(study, Select(last=1)).score == pytest.approx(min(r.rows[-1]["validation loss"] for r in study.results))
    assert "TEST" not in sweep_table(study)


def test_points_are_selected_by_the_training_loss_where_there_are_none(monkeypatch):
    assert sweep(BASE, POINTS).about["select"]["metric"] == "train loss"
    monkeypatch.setattr("fedloom.tasks.evaluated.FEW_EXAMPLES", 10)  # it is not evaluated, unless it is needed
    assert BASE.check().evaluation.metrics.keys() == {"test loss", "test accuracy"}
    study = sweep(BASE, {"solver.lr": [0.01, 0.3], "solver.epochs": [1, 2]})
    assert all(r.experiment.evaluate == ("test", "train loss") for r in study.results)
    assert all("train loss" in row for r in study.results for row in r.rows)
    assert ranking(study)[0].score < ranking(study)[-1].score


def test_selecting_by_test_data_works_and_is_marked():
    study = sweep(BASE, POINTS, select=Select("test accuracy", 1))
    assert "test accuracy, mean of the last 1 rounds, selected by TEST data" in sweep_table(study)
    assert sweep_table(study).endswith("\nSelected by TEST data: expect a worse score on new data.")
    assert "selected by TEST data" not in sweep_table(study, Select("train loss"))
    by_loss = sweep(BASE, POINTS, select=Select("train loss", 1))
    (_, marked, _), (_, plain, _) = (first_sections(s)[0] for s in (study, by_loss))
    assert "<b>Selected by TEST data" in marked
    assert "TEST" not in plain
    assert Select("own test accuracy").by_test
    assert not Select("train loss").by_test
    assert not Select().by_test


def test_a_selection_that_cannot_be_evaluated_is_refused():
    with pytest.raises(ValueError, match="select: task 'digits' has no validation examples; hold some out"):
        sweep(BASE, POINTS, select=Select("validation loss"))
    assert sweep(BASE, POINTS, select=Select("train:50 loss", 1)).results[0].experiment.evaluate[-1] == "train:50 loss"


# What is evaluated.


def counted(monkeypatch, loaded):
    """The calls by which metrics are computed."""
    calls = []
    real = type(loaded).examplewise
    monkeypatch.setattr(
        type(loaded),
        "examplewise",
        lambda self, w, part, names=None: calls.append((part, tuple(names))) or real(self, w, part, names),
    )
    loss = type(loaded.federation).loss
    monkeypatch.setattr(type(loaded.federation), "loss", lambda self, w: calls.append("train") or loss(self, w))
    sample = fl.tasks.evaluated.sample_loss
    monkeypatch.setattr(
        fl.tasks.evaluated, "sample_loss", lambda f, rows, w: calls.append(len(rows)) or sample(f, rows, w)
    )
    return calls


@pytest.mark.parametrize(
    ("what", "names", "computed"),
    [
        (["test accuracy"], ["test accuracy"], [("test", ("accuracy",))]),
        (["test"], ["test accuracy", "test loss"], [("test", ("loss", "accuracy"))]),
        (["train"], ["train loss"], ["train"]),
        (["train loss"], ["train loss"], ["train"]),
        (["train:50", "train:50 loss"], ["train:50 loss"], [50]),
        (["validation loss", "train:7"], ["train:7 loss", "validation loss"], [7, ("validation", ("loss",))]),
        (["test loss", "test"], ["test accuracy", "test loss"], [("test", ("loss", "accuracy"))]),
    ],
)
def test_what_is_not_asked_for_is_not_computed(monkeypatch, what, names, computed):
    e = experiment("digits", "fedavg", rounds=1, validation=0.1, evaluate=what)
    loaded, _, evaluation = e.check()
    calls = counted(monkeypatch, loaded)
    values = evaluation.of(loaded.w)
    assert calls == computed
    assert [name for name in values if name != "test blocks"] == names
    assert set(evaluation.metrics) == set(names)
    assert set(values.get("test blocks", {})) == {name for name in names if name.startswith("test ")}
    everything = loaded.evaluate(loaded.w, ["train", "validation", "test"])
    assert all(values[name] == pytest.approx(everything[name], rel=1e-6) for name in names if name in everything)


def test_what_is_evaluated_unless_something_is_asked_for(monkeypatch):
    plain = experiment("digits", "fedavg")
    held = dataclasses.replace(plain, validation=0.1)
    assert plain.check().evaluation.what == ("train", "test")
    assert held.check().evaluation.what == ("train", "validation", "test")
    n = held.load().data.split.sizes.sum()
    monkeypatch.setattr("fedloom.tasks.evaluated.FEW_EXAMPLES", n)
    assert held.check().evaluation.what == ("train", "validation", "test")
    assert plain.check().evaluation.what == ("test",)  # it has more training examples
    assert experiment("quadratics", "fedavg").check().evaluation.what == ("train",)
    task = plain.base_task()
    to_reach = dataclasses.replace(task, name="to reach", target=("train loss", 0.5))
    assert experiment(to_reach, "fedavg").check().evaluation.what == ("test", "train loss")
    no_test = dataclasses.replace(
        task, name="no test", data=dataclasses.replace(plain.load().data, test=None, test_split=None)
    )
    assert experiment(no_test, "fedavg").check().evaluation.what == ("train",)


@pytest.mark.parametrize("weights", ["examples", "uniform"])
def test_a_sample_of_the_training_examples_estimates_the_training_loss(weights):
    """Unbiased, whatever the weights: on average over samples it is f(w)."""
    rng = np.random.default_rng(0)
    sizes = [1, 2, 30, 67]
    data = fl.by_client(rng.normal(size=(100, 3)), rng.integers(0, 2, 100), np.repeat(range(4), sizes), test=0)
    loaded = fl.Task("t", data, fl.models.mlp(3, 2), weights=weights).load()
    losses, _ = loaded.examplewise(loaded.w, "train", ["loss"])["loss"]  # in the order of the rows here
    whole = float(loaded.federation.loss(loaded.w))
    drawn = [fl.tasks.evaluated.sample_rows(loaded, 25, seed) for seed in range(4000)]
    means = np.array([losses[rows].mean() for rows in drawn])
    assert means.mean() == pytest.approx(whole, abs=5 * means.std() / np.sqrt(len(means)))
    counts = np.bincount(np.concatenate(drawn), minlength=100) / len(drawn)
    expected = 25 * np.repeat(np.asarray(loaded.federation.weights) / sizes, sizes)
    np.testing.assert_allclose(counts, expected, atol=5 * np.sqrt(0.25 / 4000))
    value = loaded.evaluate(loaded.w, ["train:25"])["train:25 loss"]
    assert value == pytest.approx(losses[fl.tasks.evaluated.sample_rows(loaded, 25)].mean(), rel=1e-5)
    if weights == "examples":
        assert loaded.evaluate(loaded.w, ["train:100"])["train:100 loss"] == pytest.approx(whole, rel=1e-5)
        assert len(set(drawn[0])) == 25


def test_what_is_evaluated_is_written_to_files_and_read_from_them(tmp_path):
    e = experiment("digits", "fedavg", rounds=1, evaluate="test accuracy, train:50")
    assert e.evaluate == ("test accuracy", "train:50")
    assert 'evaluate = [\n    "test accuracy",\n    "train:50",\n]' in e.to_toml()
    result = run(e, tmp_path / "a")
    again = read(tmp_path / "a")
    assert again.experiment == e
    assert again.rows == result.rows
    assert set(result.metrics) == {"train:50 loss", "test accuracy"} == result.rows[-1].keys() - NOT_METRICS
    side = sweep(e, {"solver.lr": [0.03, 0.1]}, select=Select("test accuracy"))
    assert side.results[0].metrics == result.metrics
    assert side.results[0].rows[0]["train:50 loss"] == pytest.approx(result.rows[0]["train:50 loss"])
    assert side.results[0].rows[-1].keys() == result.rows[-1].keys()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("test acuracy", r"evaluate: there is no metric 'test acuracy'\. Did you mean 'test accuracy'"),
        ("valid", r"evaluate: there is no metric 'valid'"),
        ("validation", r"evaluate: task 'digits' has no validation examples; hold some out with validation = 0\.1"),
        ("train acuracy", "evaluate: there is no metric 'train acuracy'. Did you mean 'train accuracy'"),
        ("gradient nrom", "evaluate: there is no metric 'gradient nrom'. Did you mean 'gradient norm'"),
        ("last models test acuracy", "evaluate: there is no metric 'test acuracy'. Did you mean 'test accuracy'"),
        ("last models validation", "evaluate: task 'digits' has no validation examples"),
        ("last modles", "evaluate: there is no metric 'last modles'. Did you mean 'last models'"),
        ("train:0", r"train:0 must name a number from 1 to \d+"),
        ("train:99999", "train:99999 must name a number from 1"),
        ("train:x", "evaluate: there is no metric 'train:x'"),
        ("test,", "evaluate must be a list such as"),
        ([], "evaluate must be a list such as"),
        ([3], "evaluate must be a list such as"),
        (7, "evaluate must be a list such as"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(what, sentence):
    with pytest.raises(ValueError, match=sentence):
        experiment("digits", "fedavg", evaluate=what).check()


def test_functions_of_w_have_only_their_own_loss():
    with pytest.raises(ValueError, match="'quadratics' has no test examples"):
        experiment("quadratics", "fedavg", evaluate="test").check()
    with pytest.raises(ValueError, match="it has no examples to sample"):
        experiment("quadratics", "fedavg", evaluate="train:5").check()


def test_a_target_that_is_not_evaluated_says_what_to_add():
    runs = [("a", experiment("digits", "fedavg", rounds=1, evaluate="test"))]
    with pytest.raises(ValueError, match="target: 'train loss' is not evaluated; add it: --evaluate 'test,train loss'"):
        run_all(runs, target=("train loss", 0.5))
    with pytest.raises(ValueError, match=r"target: there is no metric 'train los'\. Did you mean 'train loss'"):
        run_all(runs, target=("train los", 0.5))


def test_the_tasks_own_target_is_left_out_where_it_is_not_evaluated(tmp_path):
    e = experiment("digits", "fedavg", rounds=1, evaluate="train")
    assert e.base_task().target[0] == "test accuracy"
    for study in (run_alone(e, tmp_path / "a"), sweep(e, POINTS)):
        assert study.target is None
        assert "train loss" in fl.report.text(study)
    assert run_alone(BASE, tmp_path / "b").target == sweep(BASE, POINTS).target == ("test accuracy", 0.9)


@pytest.mark.parametrize("what", ["train", "train:100", "validation", "test", "test accuracy"])
def test_divergence_is_noticed_by_the_first_loss_there_is(what):
    """The accuracy alone does not tell; NaN would."""
    e = experiment("digits", "fedavg", rounds=3, validation=0.1, evaluate=what, **{"solver.lr": 1e6})
    result = run(e)
    if what == "test accuracy":
        assert result.diverged is None or "loss" not in result.diverged
    else:
        words = "training loss" if what.startswith("train") else f"{what} loss"
        assert result.diverged.startswith(f"The {words} is ")
