"""Experiments as values, files and changes; what is said about mistakes."""

import dataclasses
import tomllib

import numpy as np
import optax
import pytest
import tomli_w

import fedloom as fl
from fedloom.experiments import Experiment, changed, experiment, from_config, from_toml
from fedloom.experiments.loading import find_task
from fedloom.experiments.plain import from_plain, to_plain
from fedloom.experiments.settings import methods
from fedloom.hyperparameters import OPTIMIZERS, optimizer
from fedloom.systems.availability import observed

EVERY_SETTING = [
    pytest.param(task.name, algorithm, variant, id=f"{task.name}, {variant}, {algorithm}")
    for task in list(fl.tasks.TASKS.values())[::5]
    for variant, table in task.settings.items()
    for algorithm in table
]


@pytest.mark.parametrize(("task", "algorithm", "variant"), EVERY_SETTING)
def test_a_papers_settings_survive_a_file(task, algorithm, variant):
    e = experiment(task, algorithm, variant)
    setting = fl.tasks.TASKS[task].settings[variant][algorithm]
    run = fl.tasks.Setting(e.algorithm, e.solver, e.cohort, e.rounds, e.engine, e.buffer, setting.origin)
    assert run == setting
    assert from_toml(e.to_toml()) == e


VALUES = [
    (fl.FedDR(eta=2.0, alpha=1.5, g=fl.regularizers.l2(0.1, groups=(2, 3))), fl.ALGORITHMS),
    (fl.FedOpt(optimizer("sgd", learning_rate=0.5, momentum=0.7, nesterov=True)), fl.ALGORITHMS),
    (fl.FedAdam(bias_correction="none"), fl.ALGORITHMS),  # the word, not None
    (fl.SGD(fl.schedules.warm_up(fl.schedules.exponential(0.2, 0.9), 5), batch_size=None), fl.solvers.SOLVERS),
    (fl.Optax(optimizer("adam", learning_rate=0.01), epochs=3), fl.solvers.SOLVERS),
    (fl.cohorts.stragglers(of=fl.cohorts.bernoulli(0.2), share=0.9, drop=True), fl.cohorts.COHORTS),
    (fl.cohorts.scheduled(((0, 1), (2,))), fl.cohorts.COHORTS),
    (fl.cohorts.plain(of=fl.cohorts.stragglers(of=fl.cohorts.seeded_by_round(3), share=0.9)), fl.cohorts.COHORTS),
    (fl.FedOpt(optimizer("sgd", learning_rate=0.5, momentum=None)), fl.ALGORITHMS),
]


@pytest.mark.parametrize(("value", "registry"), VALUES, ids=lambda v: repr(v)[:40])
def test_values_survive_plain_data(value, registry):
    plain = to_plain(value, registry)
    read = tomllib.loads(tomli_w.dumps({"value": plain}))["value"]
    assert read == plain
    again = from_plain(read, registry, "value")
    assert again == value
    assert repr(again) == repr(value)


def test_one_number_for_each_client_survives_plain_data():
    for mu in ([0.5, 0.25], [1, 2]):
        plain = to_plain(fl.FedProx(np.array(mu)), fl.ALGORITHMS)
        assert plain["mu"] == mu
        np.testing.assert_array_equal(from_plain(plain, fl.ALGORITHMS, "algorithm").mu, mu)


def test_what_has_no_name_cannot_be_written():
    with pytest.raises(ValueError, match="cannot be written to a file"):
        experiment("digits", fl.FedOpt(optax.adam(0.1))).to_toml()
    with pytest.raises(ValueError, match=r"f = .* cannot be written to a file"):
        to_plain(fl.schedules.function(lambda t: 0.1), fl.schedules.SCHEDULES)


def test_named_optimizers_are_those_of_optax():
    for name in ("adam", "sgd", "yogi", "adagrad"):
        made, own = OPTIMIZERS[name](learning_rate=0.1), getattr(optax, name)(learning_rate=0.1)
        w, g = np.array([1.0, -2.0]), np.array([0.3, 0.1])
        (a, _), (b, _) = made.update(g, made.init(w), w), own.update(g, own.init(w), w)
        np.testing.assert_array_equal(a, b)
    assert optimizer("sgd", learning_rate=0.1) is optimizer("sgd", learning_rate=0.1)  # one compiled program


def test_changes_keep_the_other_fields():
    e = experiment("digits", "feddyn")
    new = changed(e, {"solver.lr": 0.05, "rounds": 7, "cohort": {"m": 3}})
    assert new.solver == dataclasses.replace(e.solver, lr=0.05)
    assert new.cohort == fl.cohorts.uniform(3)
    assert (new.rounds, new.algorithm, new.seed) == (7, e.algorithm, e.seed)
    other = changed(e, {"solver": "gd", "solver.lr": 0.5, "solver.steps": 3})
    assert other.solver == fl.GD(0.5, 3)
    scheduled = changed(e, {"solver.lr": {"name": "exponential", "value": 0.1}, "solver.lr.decay": 0.5})
    assert scheduled.solver.lr == fl.schedules.exponential(0.1, 0.5)
    assert changed(scheduled, {"solver.batch_size": "none"}).solver.batch_size is None
    split = changed(e, {"split": "dirichlet", "split.clients": 50, "split.alpha": 0.1})
    assert split.split == {"name": "dirichlet", "clients": 50, "alpha": 0.1}
    assert changed(split, {"split": {"alpha": 0.5}}).split == {"name": "dirichlet", "clients": 50, "alpha": 0.5}
    assert changed(split, {"split": "none"}).split is None


def test_changes_do_not_depend_on_their_order():
    e = experiment("digits", "feddyn")
    for changes in (
        {"solver": "gd", "solver.lr": 0.5, "solver.steps": 3},
        {"algorithm": fl.FedProx(0.5), "algorithm.mu": 0.25},
        {"solver.lr": "exponential", "solver.lr.decay": 0.5},
        {"system.speeds": 2.0, "system.faults": "random", "system.faults.lost": 0.1},
    ):
        backwards = dict(reversed(list(changes.items())))
        assert changed(e, changes) == changed(e, backwards)
    assert changed(e, {"algorithm.mu": 0.25, "algorithm": fl.FedProx(0.5)}).algorithm == fl.FedProx(0.25)


def test_a_table_and_dotted_names_are_the_same_change():
    """At every depth a table keeps the fields that it does not mention, if it names no other kind of value."""
    e = changed(experiment("digits", "feddyn"), {"solver.lr": fl.schedules.exponential(0.3, 0.9)})
    for changes in (
        {"solver.lr.value": 0.2},
        {"solver": {"lr": {"value": 0.2}}},
        {"solver": {"name": "sgd", "lr": {"name": "exponential", "value": 0.2}}},
    ):
        assert changed(e, changes).solver == dataclasses.replace(e.solver, lr=fl.schedules.exponential(0.2, 0.9))
    other = changed(e, {"solver.lr": {"name": "staircase", "value": 0.2}})
    assert other.solver.lr == fl.schedules.staircase(0.2)
    optimizers = changed(e, {"solver": fl.Optax(optimizer("sgd", learning_rate=0.1, momentum=0.9))})
    again = changed(optimizers, {"solver.optimizer.learning_rate": 0.2})
    assert again.solver.optimizer is optimizer("sgd", learning_rate=0.2, momentum=0.9)


def test_a_trace_is_replaced_and_not_merged():
    """Its keys are clients, not fields."""
    e = experiment("quadratics", "feddyn", system=fl.System(availability=observed({0: [(0, 1)], 1: [(0, 2)]})))
    new = changed(e, {"system.availability.trace": {"1": [[0.0, 3.0]]}})
    assert dict(new.system.availability.trace) == {1: ((0.0, 3.0),)}


def test_every_field_of_an_experiment_has_a_domain_and_a_line_of_help():
    for field in dataclasses.fields(Experiment):
        assert field.metadata["domain"].words, field.name
        assert field.metadata["doc"], field.name


@fl.frozen
class Mine(fl.FedAvg):
    """A method of one's own, which is not registered."""


def test_values_without_a_name_run_in_memory_but_not_in_a_directory(tmp_path):
    for algorithm in (Mine(lr=0.5), fl.FedOpt(optax.adam(0.1))):
        e = experiment("quadratics", algorithm, rounds=1, solver="gd")
        assert fl.run(e).finished
        with pytest.raises(ValueError, match="cannot be written to a file"):
            fl.run(e, tmp_path / "a")
        assert not (tmp_path / "a").exists()
    assert changed(experiment("quadratics", Mine(lr=0.5)), {"algorithm.lr": 0.25}).algorithm == Mine(lr=0.25)
    assert changed(experiment("quadratics", Mine(lr=0.5)), {"algorithm": "feddyn"}).algorithm == fl.FedDyn()


def test_a_changed_copy_of_a_registered_task_needs_its_own_name():
    other = dataclasses.replace(fl.tasks.TASKS["digits"], weights="uniform")
    with pytest.raises(ValueError, match="differs from the registered one named 'digits'"):
        experiment(other, "fedavg").to_toml()


def test_defaults_come_from_the_task():
    own = fl.tasks.TASKS["digits"].setting("feddyn")
    assert from_config({"task": "digits", "algorithm": "feddyn"}).algorithm == own.algorithm
    assert from_config({"task": "digits", "algorithm": {"name": "feddyn"}, "rounds": 500}).evaluate_every == 5
    assert experiment("digits").algorithm == fl.tasks.TASKS["digits"].setting(methods("digits")[0]).algorithm
    first = fl.tasks.TASKS["digits"].setting("fedavg")
    assert experiment("digits", "lookahead").solver == first.solver  # no settings of its own
    assert experiment("digits", "fedpd").cohort == fl.cohorts.everyone()
    assert experiment("synthetic-1-1", "fedpd").cohort == fl.cohorts.everyone()  # where the task does not say
    assert experiment("digits", seed=np.int64(3)) == experiment("digits", seed=3)
    assert experiment("digits", fl.FedDyn(0.7)).algorithm == fl.FedDyn(0.7)


def test_every_part_of_the_task_can_be_replaced():
    split = {"name": "dirichlet", "clients": 30, "alpha": 0.1}
    e = experiment("digits", "fedavg", split=split, model="feddyn-emnist", weights="uniform", seed=4)
    with pytest.raises(ValueError, match=r"takes a batch with \(784,\) numbers per example"):
        e.check()  # a model for images of 784 pixels
    loaded = changed(e, {"model": "none"}).check().loaded
    own = fl.load("digits", seed=4)
    y = np.asarray(own.data.train[1])
    rows = np.sort(own.data.split.order)
    expected = fl.splits.dirichlet(y[rows], 30, 0.1, seed=4)
    np.testing.assert_array_equal(loaded.data.split.order, rows[expected.order])
    np.testing.assert_array_equal(loaded.federation.weights, np.full(30, 1 / 30))
    np.testing.assert_array_equal(loaded.w, own.w)
    natural = experiment("synthetic-1-1", "fedavg", split={"name": "iid", "clients": 7})
    assert fl.load("synthetic-1-1").data.test_split is not None
    assert natural.load().data.test_split is None  # the test examples no longer belong to clients


def test_a_task_of_ones_own(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\nimport fedloom as fl\n"
        "data = fl.by_client(np.arange(12.0)[:, None], np.arange(12) % 2, np.arange(12) % 3, test=0.25)\n"
        "task = fl.Task('mine', data, fl.models.mlp(1, 2))\n"
    )
    monkeypatch.chdir(tmp_path)
    e = experiment("mine.py:task", "fedavg", rounds=2)
    assert e.task == f"{file}:task"  # it can be resumed from elsewhere
    assert from_toml(e.to_toml()) == e
    assert e.check().loaded.federation.clients == 3
    with pytest.raises(ValueError, match=r"mine.py has no task 'tusk'. Did you mean 'task'\?"):
        experiment("mine.py:tusk")
    with pytest.raises(ValueError, match=r"There is no file .*yours.py"):
        find_task("yours.py:task")
    task = find_task("mine.py:task")
    assert experiment(task, "fedavg").to_plain()["task"] == "mine"


MISTAKES = [
    ({"task": "digitz"}, r"There is no task 'digitz'. Did you mean 'digits'\?"),
    ({}, r'An experiment needs a task, such as task = "digits"'),
    ({"task": "digits", "roundz": 3}, r"An experiment has no field 'roundz'. Did you mean 'rounds'\?"),
    ({"task": "digits", "rounds": "ten"}, "rounds must be an integer from 1 to .*, got 'ten'"),
    ({"task": "digits", "rounds": 0}, "rounds must be an integer from 1 to .*, got 0"),
    ({"task": "digits", "seed": -1}, "seed must be an integer from 0 to .*, got -1"),
    ({"task": "digits", "algorithm": "fedavgg"}, r"There is no algorithm 'fedavgg'. Did you mean 'fedavg'\?"),
    (
        {"task": "digits", "algorithm": {"name": "feddyn", "alpa": 1}},
        r"feddyn has no field 'alpa'. Did you mean 'alpha'",
    ),
    (
        {"task": "digits", "algorithm": {"name": "feddyn", "alpha": -1}},
        "FedDyn: alpha must be a positive number, got -1",
    ),
    ({"task": "digits", "solver": {"lr": "fast"}}, "solver: SGD: lr must be a positive number .*, got 'fast'"),
    ({"task": "digits", "solver": {"name": "sdg"}}, r"solver: there is no 'sdg'. Did you mean 'sgd'\?"),
    ({"task": "digits", "solver": {"lr": {"name": "exponentiel"}}}, r"solver.lr: there is no 'exponentiel'"),
    (
        {"task": "digits", "solver": {"batch_size": {"name": "x"}}},
        "solver.batch_size must be a single value, got the table",
    ),
    (
        {"task": "digits", "solver": {"name": "optax", "optimizer": {"name": "adan", "lr": 1}}},
        "adan cannot be made from",
    ),
    ({"task": "digits", "cohort": 10}, r"cohort must be a CohortRule, e.g. uniform\(10\), got 10"),
    ({"task": "digits", "cohort": {"name": "scheduled"}}, "cohort: scheduled needs trace"),
    ({"task": "digits", "model": "2n"}, r"model: there is no '2n'. Did you mean '2nn'\?"),
    ({"task": "digits", "weights": "size"}, "weights must be one of 'examples', 'uniform', or None, got 'size'"),
    (
        {"task": "digits", "split": {"name": "dirchlet"}},
        r"split: there is no split 'dirchlet'.*Did you mean 'dirichlet'\?",
    ),
    ({"task": "digits", "split": 5}, "split must be a name or a table such as .*, got 5"),
    (
        {"task": "digits", "model": ["a"]},
        "model must be a name from `fedloom list models` or FILE.py:NAME, or None, got",
    ),
    ({"task": "digits", "on_nonfinite": "ignore"}, "on_nonfinite must be one of 'raise', 'drop', got 'ignore'"),
    ({"task": "digits", "split": {"name": "iid", "alpha": 1}}, "split: iid has no field 'alpha'"),
]


@pytest.mark.parametrize(("plain", "sentence"), MISTAKES, ids=lambda v: str(v)[:50] if isinstance(v, dict) else "")
def test_mistakes_are_answered_with_a_sentence(plain, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_config(plain)


IMPOSSIBLE = [
    (("digits", "fedpd", {"cohort": "uniform"}), "FedPD needs every client in every round"),
    (("digits", "scaffold", {"solver.momentum": 0.9}), "needs a solver that offers lr_sum"),
    (("digits", "fedavg", {"cohort.m": 101}), "m = 101 is larger than the population of 100 clients"),
    (("quadratics", "feddyn", {"split": {"name": "iid", "clients": 3}}), "'quadratics' have no labels to split by"),
    (("digits", "fedavg", {"split": {"name": "dirichlet", "clients": 10}}), "split: .*alpha"),
]


@pytest.mark.parametrize(("what", "sentence"), IMPOSSIBLE, ids=lambda v: str(v)[:40] if isinstance(v, tuple) else "")
def test_impossible_combinations_are_refused_by_the_check(what, sentence):
    task, algorithm, changes = what
    with pytest.raises(ValueError, match=sentence):
        experiment(task, algorithm, **changes).check()


def test_a_file_that_is_not_toml():
    with pytest.raises(ValueError, match=r"my.toml is not a TOML file"):
        from_toml("task: digits", "my.toml")


def test_an_experiment_is_complete_in_its_file():
    """Every field that has a value is written, so that later defaults cannot change what a file means."""
    e = experiment("digits", "feddr", split={"name": "iid", "clients": 10}, model="2nn", weights="uniform")
    e = dataclasses.replace(e, system=fl.System(), evaluate=("test", "train:100"))
    e = dataclasses.replace(e, loss="cross_entropy", metrics=("mse",), until=("test accuracy >= 0.9",))
    e = dataclasses.replace(e, label="a", client="b", split_column="c", leave_out=("d",), engine="ray", shards=4)
    plain = tomllib.loads(e.to_toml())
    assert set(plain) == {f.name for f in dataclasses.fields(Experiment)}
    for part in ("algorithm", "solver", "cohort", "system"):
        fields = {f.name for f in dataclasses.fields(getattr(e, part))}
        assert set(plain[part]) == fields | {"name"}
