"""The measure of linear speedup's code, the last member's own test examples, and what table 2 of the paper says."""

import dataclasses
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.cli import main
from fedloom.cohorts import seeded_by_round
from fedloom.experiments import experiment, resume, run, sweep
from fedloom.reproductions.reproduction import value_of
from fedloom.systems import System
from fedloom.tasks import TASKS, Measure
from fedloom.tasks.evaluated import Evaluation, known_metrics, usual
from fedloom.tasks.linear_speedup import TABLE_2

ACCURACY = "last member test accuracy"
# 30 clients with 5 to more than 100 test examples of their own.
SOLVER = fl.SGD(0.03, batch_size=10, steps=5)


def small(method="fedavg", **changes):
    given = {"rounds": 4, "evaluate_every": 1, "evaluate": ACCURACY, "solver": SOLVER, "cohort": seeded_by_round(4)}
    return experiment("synthetic-0-0", method, **(given | changes))


def models(e):
    """The server's model and the cohorts, after each round; before the first there is no cohort."""
    loaded = e.load()
    yield loaded.w, None
    for record in fl.simulate(
        e.algorithm, loaded.federation, e.solver, loaded.w, e.rounds, cohort=e.cohort, seed=e.seed
    ):
        yield record.w, record.cohort


def by_hand(loaded, w, k):
    """Accuracy and loss of logistic regression on the test examples of client k, in NumPy."""
    rows = loaded.data.test_split.rows(k)
    x, y = (np.asarray(a, float if a.ndim == 2 else int)[rows] for a in loaded.data.test)
    scores = np.asarray(
        loaded.task.model.apply(loaded.task.model.unravel(jnp.asarray(w)), jnp.asarray(x, w.dtype), None)
    )
    shifted = scores - scores.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]
    return np.mean(scores.argmax(1) == y), losses.mean()


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("m", [4, 30])
def test_the_last_of_the_cohort_in_the_papers_order(seed, m):
    """Cohorts are numpy's with the round as seed; before the first round it is the first cohort."""
    e = small(evaluate="last member test", cohort=seeded_by_round(m), seed=seed)
    loaded = e.load()
    for row, (w, _) in zip(run(e).rows, models(e), strict=True):
        member = np.random.RandomState(max(row["round"] - 1, 0)).choice(30, m, replace=False)[-1]
        accuracy, loss = by_hand(loaded, w, member)
        assert row[ACCURACY] == pytest.approx(accuracy)
        assert row["last member test loss"] == pytest.approx(loss, rel=1e-4)


def test_it_is_not_the_accuracy_on_all_test_examples():
    row = run(small(evaluate=("test accuracy", ACCURACY))).rows[-1]
    assert list(row)[:3] == ["round", "test accuracy", ACCURACY]
    assert abs(row["test accuracy"] - row[ACCURACY]) > 1e-3
    assert row["test blocks"].keys() == {"test accuracy"}


@pytest.mark.parametrize(("method", "cohort"), [("fedavg", cohorts.uniform(4)), ("feddane", cohorts.bernoulli(0.2))])
def test_other_cohorts_have_a_random_last_member(method, cohort):
    """One of the round's last cohort; which one, the seed and the round determine."""
    algorithm = fl.FedDANE(mu=1.0, fresh=True) if method == "feddane" else fl.FedAvg()
    first, again, other = (small(algorithm, cohort=cohort, rounds=6, seed=seed) for seed in (1, 1, 2))
    assert run(first).rows == run(again).rows
    loaded, places = first.load(), []
    last_member = first.check().evaluation.last_member
    for row, (w, cohort_of_round) in zip(run(first).rows, models(first), strict=True):
        member = last_member(row["round"])
        assert row[ACCURACY] == pytest.approx(by_hand(loaded, w, member)[0])
        if cohort_of_round is not None:
            places.append(cohort_of_round[-1].tolist().index(member) / len(cohort_of_round[-1]))
    assert len(set(places)) > 2
    assert last_member(0) == last_member(1)
    assert [other.check().evaluation.last_member(t) for t in range(1, 7)] != [last_member(t) for t in range(1, 7)]


def test_the_draw_of_the_last_member_is_not_that_of_the_cohort():
    """Over many rounds every place in the cohort comes up, whoever is in the cohort.

    From the cohort's own random numbers, the first of four places would come up only with a client below 7.
    """
    after = small(cohort=cohorts.uniform(4), rounds=200).check()
    ids = [after.run.cohorts(t)[0].ids for t in range(200)]
    places = np.array([own.tolist().index(after.evaluation.last_member(t + 1)) for t, own in enumerate(ids)])
    assert min(np.bincount(places, minlength=4)) > 30  # of 200, 50 each are expected; 3.3 standard deviations
    low = np.array([own.min() < 7 for own in ids])  # in 68% of all cohorts
    assert 0.45 < low[places == 0].mean() < 0.9


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path):
    e = small(cohort=cohorts.uniform(3))
    run(e, tmp_path / "whole")

    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(e, tmp_path / "stopped", watch=[stop], checkpoint_seconds=0)
    resume(tmp_path / "stopped")
    logs = [(pathlib.Path(tmp_path) / name / "log.jsonl").read_bytes() for name in ("whole", "stopped")]
    assert logs[0] == logs[1]


def test_points_of_a_sweep_have_it_too():
    study = sweep(small(rounds=2), {"solver.lr": [0.01, 0.1]})
    for result in study.results:
        assert result.rows == run(result.experiment).rows


def test_a_reproduction_can_count_to_it():
    """Rounds, MiB and, with a system that loses nobody, simulated seconds: of computing and of two messages a round."""
    system = System(compute=fl.systems.compute.constant(0.08), network=fl.systems.network.links(up=20e6, down=20e6))
    result = run(small(system=system, rounds=30, evaluate="test,last member test accuracy"))
    assert result.larger_is_better(ACCURACY)
    assert result.about["bounds"][ACCURACY] == [0, 1]
    rows = result.rows
    target = max(row[ACCURACY] for row in rows[1:])
    first = next(row["round"] for row in rows if row[ACCURACY] >= target)
    assert result.first_reaches(ACCURACY, target)["round"] == first
    one = result.about["model bytes"]
    assert first > 0
    assert value_of(Measure(ACCURACY, target, "rounds"), result) == first
    assert value_of(Measure(ACCURACY, target, "MiB"), result) == pytest.approx(first * 2 * one / 2**20)
    seconds = value_of(Measure(ACCURACY, target, "simulated seconds"), result)
    assert seconds == pytest.approx(first * (0.08 + 2 * one / 20e6))


# What is refused, and what is known.


@pytest.mark.parametrize(
    ("task", "changes", "words"),
    [
        ("digits", {}, "evaluate: task 'digits' has no test examples of every single client"),
        ("quadratics", {}, "evaluate: task 'quadratics' has no test examples of every single client"),
        ("synthetic-0-0", {"engine": "events"}, "known only in synchronous rounds"),
        (
            "synthetic-0-0",
            {"system": System(faults=fl.systems.faults.random(lost=0.1))},
            "everybody who is drawn replies",
        ),
        ("synthetic-0-0", {"system": System(deadline=9.0)}, "without faults, absences and deadlines"),
        (
            "synthetic-0-0",
            {"evaluate": "last member test acuracy"},
            f"no metric 'last member test acuracy'. Did you mean '{ACCURACY}'",
        ),
        ("synthetic-0-0", {"evaluate": "last member train loss"}, "there is no metric 'last member train loss'"),
    ],
)
def test_where_there_is_no_last_member(task, changes, words):
    e = experiment(task, "fedavg", **({"rounds": 1, "evaluate": ACCURACY} | changes))
    with pytest.raises(ValueError, match=words):
        run(e)


def test_a_model_alone_has_no_cohort():
    loaded = fl.load("synthetic-0-0")
    with pytest.raises(ValueError, match=f"'{ACCURACY}' belongs to a method; evaluate it in an experiment"):
        loaded.evaluate(loaded.w, [ACCURACY])


def test_clients_without_test_examples():
    """One is enough: it may be the last member, and a log has no nan."""
    loaded = fl.load("synthetic-0-0")
    data, split = loaded.data, loaded.data.test_split
    sizes = split.sizes.copy()
    sizes[-1] = 0
    fewer = fl.data.Split(split.order[: sizes.sum()], sizes)
    own = dataclasses.replace(TASKS["synthetic-0-0"], name="own", data=dataclasses.replace(data, test_split=fewer))
    assert ACCURACY in known_metrics(loaded)
    assert ACCURACY not in known_metrics(own.load())
    assert np.isnan(own.load().of_client(loaded.w, 29)["accuracy"])
    with pytest.raises(ValueError, match="task 'own' has no test examples of every single client"):
        experiment(own, "fedavg", evaluate=ACCURACY).check()


def test_of_client_is_what_by_client_has():
    loaded = fl.load("synthetic-1-1", seed=2)
    for part in ("test", "train"):
        every = loaded.by_client(loaded.w, part)
        for k in (0, 7, 29):
            own = loaded.of_client(loaded.w, k, part)
            assert own == pytest.approx({name: metric.values[k] for name, metric in every.items()}, rel=1e-5)


def test_nothing_of_it_is_evaluated_unless_it_is_asked_for():
    """But a task's own target is."""
    loaded = fl.load("synthetic-0-0")
    assert usual(loaded, of_method=True) == ("train", "test")
    assert not any("member" in name for name in Evaluation(loaded).metrics)
    own = dataclasses.replace(TASKS["synthetic-0-0"], name="own", target=(ACCURACY, 0.5))
    assert ACCURACY in experiment(own, "fedavg", rounds=1).check().evaluation.metrics
    assert usual(own.load()) == ("train", "test")


def test_the_command_line(capsys):
    given = ["compare", "synthetic-0-0", "--algorithms", "fedavg,fedprox", "--rounds", "2", "--seeds", "1", "--quiet"]
    more = ["--cohort", "seeded-by-round", "--cohort.m", "3", "--solver.epochs", "1"]
    assert main([*given, *more, "--evaluate", f"test,{ACCURACY}", "--target", f"{ACCURACY}=0.3"]) == 0
    assert f"{ACCURACY} at equal cost" in capsys.readouterr().out
    plain = ["--cohort", '{ name = "plain", of = "everyone" }', "--solver.epochs", "1"]
    assert main([*given, *plain]) == 0


# Table 2.

MODELS = {"lr": 7_850, "2nn": 199_210, "cnn": 582_026, "resnet": 11_173_962}


def cells():
    for name, rows in TABLE_2.items():
        for n, methods in rows.items():
            for method, published in zip(("scaffold", "fedavg"), methods, strict=True):
                yield name, n, method, published


@pytest.mark.parametrize(("name", "n", "method", "published"), list(cells()))
def test_the_tables_mebibytes_are_those_of_its_rounds(name, n, method, published):
    """One worker's model down and its update up in each round, 4 bytes a number; SCAFFOLD sends twice as much."""
    parameters = MODELS[name.split("-")[1]]
    each = (2 if method == "scaffold" else 1) * 2 * 4 * parameters / 2**20
    assert published.mib == pytest.approx(published.rounds * each, abs=0.006, rel=3e-6)


def test_the_tables_seconds_are_computing_and_20_mebibytes_a_second():
    """What is left for a round's computations is nearly the same in all rows of a model and method."""
    left = {}
    for name, _, method, published in cells():
        computing = (published.seconds - published.mib / 20) / published.rounds
        left.setdefault((name.split("-")[1], method), []).append(computing)
    assert len(left) == 8
    for values in left.values():
        assert 0 < max(values) < 1.2 * min(values)


def test_the_table_is_reported_with_the_codes_measure():
    for name, rows in TABLE_2.items():
        task = TASKS[name]
        target = 0.75 if name.startswith("cifar") else 0.95
        assert task.target == ("test accuracy", target)  # methods are compared on all test images
        of = TASKS[f"{name}-authors"] if name.startswith("mnist") else task  # with the split that decides the rows
        assert of is task or not task.reported
        found = {(r.variant, r.measure.counted): r for r in of.reported}
        assert found.keys() == {(n, counted) for n in rows for counted in ("rounds", "MiB")}
        for (n, counted), r in found.items():
            scaffold, fedavg = rows[n]
            field = {"rounds": "rounds", "MiB": "mib"}[counted]
            assert r.measure == Measure(ACCURACY, target, counted)
            assert r.values == {"scaffold": getattr(scaffold, field), "fedavg": getattr(fedavg, field)}
    assert not TASKS["mnist-lr-digits5"].reported


def test_the_authors_cohorts_change_nothing_else():
    for model in ("lr", "2nn", "cnn"):
        for p in (1, 2, 5, 10):
            ours, theirs = TASKS[f"mnist-{model}-digits{p}"], TASKS[f"mnist-{model}-digits{p}-authors"]
            assert list(theirs.settings) == ["n=10", "n=100"]
            for n in (10, 100):
                settings = ours.settings[f"n={n}, authors' cohorts"]
                assert settings == theirs.settings[f"n={n}"]
                for method, setting in settings.items():
                    usual = ours.settings[f"n={n}"][method]
                    assert setting == dataclasses.replace(usual, cohort=seeded_by_round(n))


def test_the_authors_tasks_have_their_split(monkeypatch):
    """On a set with MNIST's class sizes: the same for all seeds, and each worker has test images of its own digits."""
    from fedloom.data.dataset import Dataset
    from fedloom.tasks import linear_speedup
    from tests.test_splits_classes import MNIST_TEST, MNIST_TRAIN

    x, test_x = (np.zeros((len(y), 1), np.uint8) for y in (MNIST_TRAIN, MNIST_TEST))
    data = Dataset(x, MNIST_TRAIN, test_x, MNIST_TEST, classes=10)
    a, b = (linear_speedup._authors(lambda: data, 2, seed) for seed in (0, 1))
    assert a.split.order.tolist() == b.split.order.tolist()
    worker = np.random.RandomState(13).choice(100, 10, replace=False)[-1]
    for labels, split, each in ((MNIST_TRAIN, a.split, 271), (MNIST_TEST, a.test_split, 44)):
        assert np.bincount(labels[split.rows(worker)], minlength=10).tolist() == [0] * 4 + [each, each] + [0] * 4
    ours = [linear_speedup._ours(lambda: data, 2, seed).split.order.tolist() for seed in (0, 1)]
    assert ours[0] != ours[1]
