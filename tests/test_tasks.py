"""Tasks: that all are complete and consistent, that those with data at hand run, and that one's own take few lines."""

import dataclasses
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import metrics
from fedloom.data.catalogue import CATALOGUE
from fedloom.engines.plan import Plan
from fedloom.tasks import TASKS, fedopt_tables

FOREIGN = {"shakespeare_roles", "femnist", "sent140", "glove"}  # data that no download step fetches


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda t: t.name)
def test_a_task_is_complete(task):
    assert task.about.endswith(".")
    assert task.settings
    assert set(task.needs) <= CATALOGUE.keys() | FOREIGN
    for settings in task.settings.values():
        for name, setting in settings.items():
            assert type(setting.algorithm) is fl.ALGORITHMS[name]
            assert setting.rounds >= 1
            needed = setting.algorithm.needs | ({"work"} if setting.cohort.partial_work else set())
            assert needed <= setting.solver.offers  # `simulate` would refuse it otherwise
            if setting.algorithm.needs_everyone:
                assert isinstance(setting.cohort, fl.cohorts.everyone)
    for grid in task.tuned_over:
        name = grid.removeprefix("solver.").removeprefix("fedprox.").removeprefix("feddane.").split(".")[0]
        holders = [
            s.solver if grid.startswith("solver.") else s.algorithm for t in task.settings.values() for s in t.values()
        ]
        assert any(name in (f.name for f in dataclasses.fields(h)) for h in holders), grid
    for reported in task.reported:
        assert set(reported.values) <= {name for settings in task.settings.values() for name in settings}


def test_the_tasks_that_the_papers_need_are_there():
    """The names that users know from the papers, one for each of their experiments."""
    wanted = {
        "synthetic-1-1",
        "feddyn-synthetic-type2",
        "digits",
        "mnist-2nn-dir0.3",
        "mnist-lr-digits2",
        "mnist-writers",
        "heart",
        "emnist-cr",
        "emnist-ae",
        "cifar10-lda",
        "cifar100-pam",
        "shakespeare-tff",
        "shakespeare-leaf",
        "stackoverflow-lr",
        "stackoverflow-nwp",
    }
    assert wanted <= TASKS.keys()


# FedOpt's tables, written out once more: log10 of client step size, server step size, and tau.
ADAM = {
    "cifar10-lda": (-1.5, -2, -3),
    "cifar100-pam": (-1.5, 0, -1),
    "emnist-ae": (1, -1.5, -3),
    "emnist-cr": (-1.5, -2.5, -4),
    "shakespeare-tff": (0, -2, -3),
    "stackoverflow-lr": (2, -0.5, -5),
    "stackoverflow-nwp": (-0.5, -2, -5),
}


@pytest.mark.parametrize("name", ADAM)
def test_fedadams_published_step_sizes(name):
    setting = TASKS[name].setting("fedadam")
    client, server, tau = ADAM[name]
    np.testing.assert_allclose(setting.solver.lr, 10**client)
    assert setting.solver.reduction == ("sum" if name == "stackoverflow-lr" else "mean")
    np.testing.assert_allclose([setting.algorithm.lr, setting.algorithm.tau], [10**server, 10.0**tau])
    assert (setting.algorithm.beta1, setting.algorithm.beta2) == (0.9, 0.99)


@pytest.mark.parametrize("name", fedopt_tables.STEP_SIZES)
def test_fedopts_winners_lie_on_the_papers_grids(name):
    task = TASKS[name]
    for setting in task.settings["as run"].values():
        assert np.isclose(task.tuned_over["solver.lr"], setting.solver.lr).any()
        assert np.isclose(task.tuned_over["lr"], setting.algorithm.lr).any()
        if hasattr(setting.algorithm, "tau"):
            assert np.isclose(task.tuned_over["tau"], setting.algorithm.tau).any()


def test_settings_by_variant():
    task = TASKS["emnist-l-dir0.3"]
    alphas = {variant: task.setting("feddyn", variant).algorithm.alpha for variant in task.settings}
    assert alphas == {"10%": 0.01, "100%": 0.005, "1%": 0.005}
    assert task.setting("feddyn").algorithm.alpha == 0.01
    assert TASKS["feddr-synthetic-0-0"].setting("feddr", "l1").rounds == 10
    assert list(TASKS["emnist-ae"].settings) == ["as run", "as printed"]  # ExpDecay was run on EMNIST CR only
    assert TASKS["cifar10-resnet-digits2"].setting("fedavg").solver.epochs == 5  # table 2; the figures have 10
    stragglers = TASKS["synthetic-1-1"].setting("fedprox", "90% stragglers").cohort
    assert stragglers.partial_work
    with pytest.raises(ValueError, match=r"no variant '50% straglers'. Did you mean '50% stragglers'"):
        TASKS["synthetic-1-1"].setting("fedavg", "50% straglers")
    with pytest.raises(ValueError, match=r"no published setting for 'fedynn'. Did you mean 'feddyn'"):
        task.setting("fedynn")


# Running.

DATA = os.environ.get("FEDLOOM_DATA")
ONE = Plan(1)  # client after client: the smallest program, and no other to find out which plan is best


def available(task):
    folders = {"mnist_writers": "mnist", "shakespeare_roles": "shakespeare/shakespeare_roles_moby.json.gz"}
    heavy = {"shakespeare": "shakespeare/shakespeare_train.h5"}
    paths = [(heavy | folders).get(need, need) for need in task.needs]
    return all(DATA and (pathlib.Path(DATA) / path).exists() for path in paths)


SMALL = [t for t in TASKS.values() if not t.needs and t.name != "quadratics"]


@pytest.mark.parametrize("task", SMALL, ids=lambda t: t.name)
def test_fedavg_learns_on_embedded_data(task):
    loaded = task.load(seed=1)
    setting = loaded.setting("fedavg")
    solver = dataclasses.replace(setting.solver, epochs=1)  # fewer than the paper's, to be quick
    *_, record = fl.simulate(setting.algorithm, loaded.federation, solver, loaded.w, 6, chunk=6, plan=ONE)
    before, after = loaded.evaluate(loaded.w), loaded.evaluate(record.w)
    assert after["train loss"] < before["train loss"]
    assert after["test accuracy"] > before["test accuracy"]


def test_the_quadratics_reach_their_optimum():
    loaded = fl.load("quadratics")
    for name in ("feddyn", "feddr", "fedpd"):
        s = loaded.setting(name)
        *_, record = fl.simulate(
            s.algorithm, loaded.federation, s.solver, loaded.w, s.rounds, cohort=s.cohort, chunk=100
        )
        np.testing.assert_allclose(record.w, loaded.federation.optimum(), atol=5e-3)
        assert loaded.evaluate(record.w).keys() == {"train loss"}
    with pytest.raises(ValueError, match="'quadratics' is a function of w"):
        loaded.by_client(loaded.w)


FILES = [t for t in TASKS.values() if t.needs]


@pytest.mark.parametrize("task", FILES, ids=lambda t: t.name)
def test_a_task_without_its_files_says_which_and_where(task, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        task.load()


LIGHT = ["mnist-lr-digits2", "mnist-2nn-dir0.3", "mnist-writers", "heart", "mnist-fedprox"]


@pytest.mark.parametrize("name", LIGHT)
def test_real_data_are_trained_on(name):
    if not available(TASKS[name]):
        pytest.skip(f"FEDLOOM_DATA has no {', '.join(TASKS[name].needs)}")
    loaded = fl.load(name)
    setting = loaded.setting("fedavg")
    solver = dataclasses.replace(setting.solver, epochs=1, lr=0.05)
    cohort = fl.cohorts.uniform(min(4, loaded.federation.clients))
    run = fl.simulate(setting.algorithm, loaded.federation, solver, loaded.w, 4, cohort=cohort, chunk=4, plan=ONE)
    *_, record = run
    assert loaded.scores(record.w)["loss"] < loaded.scores(loaded.w)["loss"]


# Evaluation of a loaded task.


def own_task(**changes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    y = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int)
    data = fl.by_client(x, y, rng.integers(0, 5, 90), test=0.2)
    return fl.Task("mine", **({"data": data, "model": fl.models.mlp(4, 8, 2)} | changes))


def real_targets():
    return fl.by_client(np.ones((6, 4)), np.full(6, 0.5), [0, 0, 0, 1, 1, 1])


def test_ones_own_task_in_a_few_lines():
    loaded = own_task().load()
    *_, record = fl.simulate(fl.FedAvg(), loaded.federation, fl.SGD(0.3), loaded.w, rounds=30, chunk=30, plan=ONE)
    assert loaded.evaluate(record.w)["test accuracy"] > 0.85


def numpy_accuracy(loaded, w, x, y):
    p = loaded.task.model.unravel(w)
    return np.argmax(np.asarray(loaded.task.model.apply(p, jnp.asarray(x), None)), axis=1) == np.asarray(y)


def test_evaluation_of_train_and_test_overall_and_by_client():
    loaded = own_task().load()
    data = loaded.data
    for part, (x, y), split in (("train", data.train, data.split), ("test", data.test, data.test_split)):
        right = numpy_accuracy(loaded, loaded.w, x, y)
        assert loaded.scores(loaded.w, part)["accuracy"] == pytest.approx(right[split.order].mean())
        by_client = loaded.by_client(loaded.w, part)["accuracy"]
        for k in range(data.clients):
            assert by_client.values[k] == pytest.approx(right[split.rows(k)].mean())
    assert loaded.evaluate(loaded.w)["train loss"] == pytest.approx(loaded.scores(loaded.w, "train")["loss"])
    assert not loaded.by_client(loaded.w)["loss"].larger_is_better


def test_uniform_weights_weigh_clients_not_examples():
    loaded = own_task(weights="uniform").load()
    assert loaded.evaluate(loaded.w)["train loss"] == pytest.approx(loaded.by_client(loaded.w, "train")["loss"].mean)


@pytest.mark.parametrize("algorithm", [fl.FedDR(eta=2.0), fl.FedPD(eta=2.0)], ids=["feddr", "fedpd"])
def test_clients_own_models_are_measured_on_their_own_data(algorithm):
    """With exact data separation each client's own model fits its own examples at least as well as the global one."""
    loaded = own_task().load()
    cohort = fl.cohorts.everyone() if algorithm.needs_everyone else fl.cohorts.uniform(3)
    solver = fl.SGD(0.3, epochs=5)
    *_, record = fl.simulate(algorithm, loaded.federation, solver, loaded.w, 4, cohort=cohort, plan=ONE)
    models = loaded.own_models(algorithm, record.clients)
    assert models.shape == (5, loaded.w.size)
    values = loaded.by_own_model(models)["accuracy"].values
    on_train = loaded.by_own_model(models, "train")["accuracy"].values
    x, y = loaded.data.test
    for k in range(5):
        rows = loaded.data.split.rows(k)
        right = numpy_accuracy(loaded, models[k], loaded.data.train[0][rows], loaded.data.train[1][rows])
        assert on_train[k] == pytest.approx(right.mean())
        if k in record.clients:
            np.testing.assert_array_equal(models[k], record.clients[k].x)
        else:
            np.testing.assert_array_equal(models[k], loaded.w)
        rows = loaded.data.test_split.rows(k)
        assert values[k] == pytest.approx(numpy_accuracy(loaded, models[k], x[rows], y[rows]).mean())
    assert metrics.consensus_error(models, loaded.federation.weights) > 0


def test_what_cannot_be_evaluated_is_refused():
    loaded = own_task().load()
    with pytest.raises(ValueError, match="FedAvg does not keep a model for each client"):
        loaded.own_models(fl.FedAvg(), {})
    with pytest.raises(ValueError, match="part must be 'train', 'validation' or 'test', got 'valid'"):
        loaded.scores(loaded.w, "valid")
    whole = dataclasses.replace(own_task(), data=fl.by_client(np.ones((4, 4)), np.zeros(4, int), [0, 0, 1, 1], test=0))
    assert whole.load().evaluate(loaded.w).keys() == {"train loss"}
    with pytest.raises(ValueError, match="'mine' has no test examples"):
        whole.load().scores(loaded.w)
    shared = fl.FederatedData(loaded.data.train, loaded.data.split, loaded.data.test, None, 2)
    with pytest.raises(ValueError, match="have no test examples of their own"):
        dataclasses.replace(own_task(), data=shared).load().by_client(loaded.w)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fl.load("mnist-2nn-dir3"), "There is no task 'mnist-2nn-dir3'. Did you mean 'mnist-2nn-dir0.3'"),
        (lambda: fl.load("digits", seed=-1), "seed must be an integer from 0 to"),
        (lambda: fl.load(3), "There is no task 3"),
        (lambda: dataclasses.replace(own_task(), model=None).load(), "'mine' has data but no model"),
        (lambda: fl.Task("mine", lambda seed: 5, fl.models.mlp(4, 2)).load(), "data must be FederatedData.* got 5"),
        (lambda: fl.Task("mine", (np.ones(3), np.ones(3)), fl.models.mlp(4, 2)).load(), "data must be FederatedData"),
        (
            lambda: own_task(metrics=(metrics.accuracy, metrics.token_accuracy())),
            "every metric needs a different name, got loss, accuracy, accuracy",
        ),
        (lambda: own_task(model=fl.models.mlp(4, 1)).load(), "the model has 1 outputs, but there are 2 classes"),
        (lambda: own_task(data=real_targets()).load(), "cross_entropy needs integer labels y, got float"),
    ],
)
def test_bad_input_raises_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_the_seed_determines_split_and_model():
    a, b, c = (fl.load("digits", seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(a.w, b.w)
    np.testing.assert_array_equal(a.data.split.order, b.data.split.order)
    assert not np.array_equal(a.w, c.w)
    assert not np.array_equal(a.data.split.order, c.data.split.order)


def test_loading_a_task_again_compiles_nothing_new():
    a, b = (fl.load("feddyn-synthetic-type1", seed=s) for s in (0, 1))
    assert a.federation.loss_of is b.federation.loss_of
    assert a.federation.unravel is b.federation.unravel


def test_augmentation_and_dropout_get_different_keys_and_none_outside_training():
    """Evaluation, of the global model and of clients' own, is outside training."""
    seen = []

    def prepare(rows, key):
        seen.append(key)
        return rows

    def apply(params, x, key):
        seen.append(key)
        return x @ params

    model = fl.models.Model("linear", lambda key: jnp.zeros((4, 2)), apply)
    loaded = own_task()
    loaded = dataclasses.replace(loaded, model=model, prepare=prepare).load()
    seen.clear()
    loaded.scores(loaded.w)
    loaded.by_own_model(jnp.zeros((5, 8)))
    assert seen == [None] * len(seen)
    assert len(seen) >= 4
    seen.clear()
    rows = jax.tree.map(lambda a: a[:3], loaded.data.train)
    loaded.federation.loss_of(jnp.zeros((4, 2)), rows, None)
    assert seen == [None, None]
    seen.clear()
    loaded.federation.loss_of(jnp.zeros((4, 2)), rows, jax.random.key(0))
    a, b = (jax.random.key_data(k).tolist() for k in seen)
    assert a != b


def test_evaluation_is_less_than_a_tenth_of_the_work_of_fedopts_tasks():
    """An example's evaluation counts as a third of a gradient. Published: clients, examples, test examples."""
    sizes = {"emnist-cr": (3400, 671_585, 77_483), "emnist-ae": (3400, 671_585, 77_483)}
    sizes |= {"shakespeare-tff": (715, 16_068, 2_356), "shakespeare-roles": (1151, 50_435, 12_856)}
    sizes |= {"cifar10-lda": (500, 50_000, 10_000), "cifar100-tff": (500, 50_000, 10_000)}
    for name, (clients, examples, test) in sizes.items():
        e = fl.experiment(name)
        training = e.evaluate_every * e.cohort.room(clients) * examples / clients * e.solver.epochs
        assert test / 3 < 0.1 * (training + test / 3), name
