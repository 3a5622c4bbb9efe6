"""Figures of the population, training metrics and last models by name: their values, and how they are asked for."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts, evidence, metrics, schedules
from fedloom.cli import main
from fedloom.experiments import Select, compare, experiment, run, run_all, sweep
from fedloom.experiments.definition import FIELDS
from fedloom.metrics import population
from fedloom.systems import Delays, System
from fedloom.tasks.evaluated import ENTRIES, Evaluation, known_metrics, on_test_examples, usual
from fedloom.tasks.figures import FIGURES
from tests.test_project import ROOT

ALL = tuple(FIGURES)


def quadratics(method="fedavg", **changes):
    given = {"rounds": 3, "evaluate_every": 1, "evaluate": ALL, "solver": fl.GD(schedules.exponential(0.2, 0.5), 2)}
    return experiment("quadratics", method, **(given | changes))


def at(e, w):
    """Closed forms at w: the gradients of the clients, and their weights."""
    f = e.load().federation
    h, c, p = (np.asarray(a) for a in (f.hessians, f.centers, f.weights))
    return h, c, p, np.einsum("kij,kj->ki", h, w - c)


def test_figures_in_a_log_against_numpy():
    """Of the initial model and of the last; the drift with the step size of the round that would be next."""
    e = quadratics()
    result = run(e)
    for row, w in ((result.rows[0], np.asarray(e.load().w)), (result.rows[-1], np.asarray(result.w))):
        h, c, p, g = at(e, w)
        norm = np.linalg.norm(p @ g)
        assert row["gradient norm"] == row["gradient mapping norm"] == pytest.approx(norm, rel=1e-10)
        assert row["dissimilarity"] == pytest.approx(np.sqrt(p @ np.sum(g**2, 1)) / norm, rel=1e-10)
        lr, v = 0.2 * 0.5 ** row["round"], np.tile(w, (len(p), 1))
        for _ in range(2):
            v = v - lr * np.einsum("kij,kj->ki", h, v - c)
        assert row["drift"] == pytest.approx(np.sqrt(p @ np.sum((v - w) ** 2, 1)), rel=1e-10)
    assert row["round"] == 3


def test_the_gradient_mapping_is_that_of_the_methods_own_regularizer():
    e = quadratics(fl.FedDR(eta=0.7, g=fl.regularizers.l2_ball(0.5)))
    result = run(e)
    row, w = result.rows[-1], np.asarray(result.w)
    _, _, p, g = at(e, w)

    def mapping(eta):
        step = w - eta * (p @ g)
        return np.linalg.norm(w - step * min(1, 0.5 / np.linalg.norm(step))) / eta

    assert row["gradient mapping norm"] == pytest.approx(mapping(0.7), rel=1e-10)
    assert row["gradient norm"] == pytest.approx(np.linalg.norm(p @ g), rel=1e-10)
    assert min(abs(mapping(0.7) - other) for other in (mapping(1.0), row["gradient norm"])) > 1e-3
    fedpd = run(quadratics("fedpd", cohort="everyone")).rows[-1]  # it has an eta, but no regularizer
    assert fedpd["gradient mapping norm"] == fedpd["gradient norm"]


@pytest.mark.parametrize(
    ("more", "clients"),
    [
        ({"cohort": cohorts.uniform(4), "buffer": 3, "system": System(speeds=3.0)}, 4),
        ({"cohort": "everyone", "system": Delays(tau=2)}, 20),
    ],
)
def test_the_drift_of_an_asynchronous_run_has_the_step_size_of_its_next_job(more, clients):
    """There, schedules count rounds' worth of replies."""
    e = quadratics("scaffold", engine="events", rounds=30, evaluate_every=5, evaluate="drift", **more)
    assert e.load().federation.clients == 20
    result = run(e)
    for row in result.rows:
        assert row["replies"] == row["round"] * e.buffer
    h, c, p, _ = at(e, w := np.asarray(result.w))
    lr, v = 0.2 * 0.5 ** (30 * e.buffer // clients), np.tile(w, (20, 1))
    for _ in range(2):
        v = v - lr * np.einsum("kij,kj->ki", h, v - c)
    assert result.rows[-1]["drift"] == pytest.approx(np.sqrt(p @ np.sum((v - w) ** 2, 1)), rel=1e-8)


# Training examples.

SIZES = [2, 10, 28]


def sequences(weights):
    """Sentences of four tokens, of which 0 does not count; client 0 has no token that counts."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, (40, 4))
    y[:2] = 0
    x, owner = rng.normal(size=(40, 4, 3)), np.repeat(range(3), SIZES)
    model = fl.models.Model("tokens", lambda key: jnp.eye(3), lambda a, x, key: x @ a)
    area = metrics.Metric.of_all(lambda y, outputs: float(np.sum(y * outputs[..., 1])), "area")
    data = fl.by_client(x, y, owner, test=0)
    return fl.Task("tokens", data, model, metrics=(metrics.token_accuracy(0), area), weights=weights).load()


@pytest.mark.parametrize("weights", ["examples", "uniform"])
def test_training_metrics_are_averaged_as_the_objective_is(weights):
    loaded = sequences(weights)
    x, y = (np.asarray(a) for a in loaded.data.train)
    w = jnp.asarray(np.random.default_rng(1).normal(size=9))
    outputs, p = x @ np.asarray(w).reshape(3, 3), np.asarray(loaded.federation.weights)
    of_clients = [
        np.sum((outputs.argmax(-1) == y)[rows] & (y[rows] > 0)) / np.sum(y[rows] > 0)
        for rows in map(loaded.data.split.rows, (1, 2))
    ]
    found = loaded.evaluate(w, ["train accuracy", "train area", "train"])
    assert found["train accuracy"] == pytest.approx(p[1:] @ of_clients / p[1:].sum(), rel=1e-12)
    assert found["train area"] == pytest.approx(np.sum(y * outputs[..., 1]), rel=1e-10)  # of all examples at once
    assert found["train loss"] == pytest.approx(float(loaded.federation.loss(w)))
    assert list(found) == ["train loss", "train accuracy", "train area"]


def test_train_alone_is_the_objective():
    loaded = fl.load("digits")
    assert list(Evaluation(loaded, ["train"]).metrics) == ["train loss"]
    assert list(Evaluation(loaded, ["train accuracy"]).metrics) == ["train accuracy"]


def test_training_metrics_of_points_side_by_side():
    e = experiment("digits", "fedavg", rounds=1, evaluate="train accuracy,gradient norm,dissimilarity,train")
    study = sweep(e, {"solver.lr": [0.03, 0.1]})
    for result in study.results:
        assert list(result.rows[-1]) == list(run(result.experiment).rows[-1])
        assert result.rows[-1] == pytest.approx(run(result.experiment).rows[-1], rel=1e-5)


def test_points_of_metrics_that_are_the_methods_own_run_alone():
    """Each point has its own solver, with which it drifts."""
    study = sweep(quadratics(evaluate="train,drift", solver=fl.GD(0.1)), {"solver.lr": [0.1, 0.2]})
    small, large = (result.rows[0]["drift"] for result in study.results)
    assert large == pytest.approx(2 * small, rel=1e-10)


# What is asked for.


def test_what_is_not_asked_for_is_not_computed(monkeypatch):
    called = []
    for name in ("gradient_norm", "gradient_mapping_norm", "dissimilarity", "drift"):
        monkeypatch.setattr(population, name, lambda *args, name=name, **more: called.append(name) or 1.0)
    for entry, names in (
        ("train", []),
        ("gradient norm", ["gradient_norm"]),
        ("gradient mapping norm", ["gradient_norm"]),
        ("dissimilarity", ["dissimilarity"]),
        ("drift", ["drift"]),
    ):
        loaded, ran, evaluation = quadratics(evaluate=entry).check()
        evaluation.of(loaded.w)
        assert called == names
        assert list(evaluation.metrics) == [entry if names else "train loss"]
        assert ran.algorithm == fl.FedAvg()  # clients remember nothing
        called.clear()


def test_entries_may_be_repeated_and_overlap():
    what = ["drift", "test", "last models", "test accuracy", "drift", "last models test accuracy", "last models train"]
    evaluation = experiment("digits", "feddyn", evaluate=what).check().evaluation
    assert list(evaluation.metrics) == [
        *("test loss", "test accuracy", "drift"),
        *("last models train loss", "last models test loss", "last models test accuracy"),
    ]
    values = evaluation.of(evaluation.loaded.w)
    assert values.keys() - {"test blocks"} == evaluation.metrics.keys()
    many = experiment("digits", "feddyn", evaluate="last models train:50,last models gradient norm").check().evaluation
    assert list(many.metrics) == ["last models train:50 loss", "last models gradient norm"]


@pytest.mark.parametrize("entry", [*(name for name in ALL if FIGURES[name].of_method), "last models"])
def test_a_model_alone_has_no_method(entry):
    loaded = fl.load("quadratics")
    with pytest.raises(ValueError, match=f"evaluate: '{entry}' belongs to a method; evaluate it in an experiment"):
        loaded.evaluate(loaded.w, [entry])


def test_a_model_alone_has_the_other_figures():
    loaded = fl.load("quadratics")
    found = loaded.evaluate(loaded.w, ["gradient norm", "dissimilarity"])
    assert found["gradient norm"] == metrics.gradient_norm(loaded.federation, loaded.w)
    assert found["dissimilarity"] == metrics.dissimilarity(loaded.federation, loaded.w)


@pytest.mark.parametrize("method", ["fedsgd", "feddyn-onegd"])
@pytest.mark.parametrize("entry", ["last models test accuracy", "consensus error"])
def test_clients_that_never_train_have_no_last_models(tmp_path, method, entry):
    e = experiment("digits", method, rounds=1, evaluate=entry)
    words = (
        f"evaluate: '{entry.removesuffix(' test accuracy')}' is of models that clients have trained, but the clients of"
    )
    with pytest.raises(ValueError, match=words):
        run(e, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_targets(tmp_path):
    start = run(quadratics(evaluate="gradient norm", rounds=1)).rows[0]["gradient norm"]
    study = compare(
        "quadratics", ["fedavg", "fedprox"], seeds=[0, 1], rounds=3, evaluate="train,gradient norm",
        target=("gradient norm", 0.9 * start),
    )  # fmt: skip
    assert "gradient norm at equal cost" in fl.report.text(study)
    found = evidence.verdict(study, "quadratics")
    assert found.metric == "gradient norm"
    assert not found.larger_is_better
    assert found.examples is None
    assert not found.why_not  # it has no test examples to be lucky with
    runs = [("a", quadratics(evaluate="train"))]
    with pytest.raises(ValueError, match="'drift' is not evaluated; add it: --evaluate 'train,drift'"):
        run_all(runs, target=("drift", 0.1))
    with pytest.raises(ValueError, match=r"there is no metric 'gradient nrom'\. Did you mean 'gradient norm'"):
        run_all(runs, target=("gradient nrom", 0.1))
    with pytest.raises(ValueError, match="target"):
        run_all([("a", quadratics())], target=("dissimilarity", 0.5))  # it is at least 1


@pytest.mark.parametrize(
    ("target", "there", "of_model"),
    [
        ("train accuracy", "train accuracy", True),
        ("gradient norm", "gradient norm", True),
        ("drift", "drift", False),
        ("last models test accuracy", "last models test accuracy", False),
        ("test accuracy", None, None),
        ("train loss", None, None),
    ],
)
def test_a_tasks_own_target_is_evaluated(target, there, of_model):
    """Unless it is already, or needs a method where there is none."""
    own = dataclasses.replace(fl.tasks.TASKS["digits"], name="own", target=(target, 0.5))
    loaded = own.load()
    plain = ("train", "test")
    assert usual(loaded, of_method=True) == plain + ((there,) if there else ())
    assert usual(loaded) == plain + ((there,) if of_model else ())
    assert target in experiment(own, "fedavg", rounds=1).check().evaluation.metrics
    loaded.evaluate(loaded.w)
    last = experiment(own, "fedavg", rounds=1, evaluate="last models").check().evaluation.metrics
    assert {"last models train loss", "last models test accuracy"} <= last.keys()


def test_points_can_be_selected_by_them():
    e = quadratics(evaluate="train", solver=fl.GD(0.1))
    study = sweep(e, {"solver.lr": [0.01, 0.2]}, select=Select("gradient norm", 1))
    assert all(r.experiment.evaluate == ("train", "gradient norm") for r in study.results)
    best = min(study.results, key=lambda r: r.rows[-1]["gradient norm"])
    assert fl.experiments.best(study).name == best.name
    with pytest.raises(ValueError, match="select: 'consensus error' is of models that clients have trained, but"):
        sweep(quadratics("fedsgd", evaluate="train"), {"algorithm.lr": [0.1]}, select=Select("consensus error"))


def test_which_metrics_are_of_test_examples():
    """They may not decide, and their luck is known from blocks."""
    for name in ("test accuracy", "own test loss", "last models test auc", "last member test accuracy"):
        assert on_test_examples(name)
        assert Select(name).by_test
    for name in ("train accuracy", "validation loss", "gradient norm", "last models train loss", "last models"):
        assert not on_test_examples(name)


def test_a_comparison_by_last_models_knows_the_test_set():
    study = compare(
        "digits", ["fedavg", "feddyn"], seeds=[0, 1], rounds=1, evaluate="test,last models test loss",
        target=("last models test loss", 0.1),
    )  # fmt: skip
    found = evidence.verdict(study, "digits")
    assert found.examples == study.results[0].about["test"]["examples"]
    assert not found.why_not
    for result in study.results:
        for row in result.rows:
            del row["test blocks"]["last models test loss"]
    evidence.verdict.cache_clear()
    assert "the logs do not say how last models test loss is spread" in evidence.verdict(study, "digits").why_not


# On the command line and in the documentation.


def test_the_command_line(capsys):
    given = ["compare", "quadratics", "--algorithms", "fedavg,fedprox", "--rounds", "2", "--seeds", "1", "--quiet"]
    assert main([*given, "--evaluate", "train,gradient norm,drift", "--target", "gradient norm=0.1"]) == 0
    assert "quadratics: gradient norm at equal cost" in capsys.readouterr().out
    assert main([*given, "--evaluate", "train,gradient nrom"]) == 2
    assert "Did you mean 'gradient norm'?" in capsys.readouterr().err


def test_the_help_names_all_entries():
    assert all(entry in FIELDS["evaluate"].metadata["doc"] for entry in ENTRIES)


def test_the_documentation_says_what_each_entry_means():
    page = (ROOT / "docs/experiments.md").read_text()
    table = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", page, re.MULTILINE))
    assert {entry: table.get(entry) for entry in ENTRIES} == ENTRIES


def test_every_entry_can_be_evaluated():
    e = experiment("synthetic-0-0", "feddyn", rounds=1, validation=0.2)
    for entry in ENTRIES:
        name = entry.replace("5000", "50")
        evaluation = dataclasses.replace(e, evaluate=(name,)).check().evaluation
        assert evaluation.metrics
        values = evaluation.of(evaluation.loaded.w)
        assert values.keys() - {"test blocks"} == evaluation.metrics.keys()
        assert set(evaluation.metrics) - {"train:50 loss"} <= set(known_metrics(evaluation.loaded))
