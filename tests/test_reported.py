"""What the papers' tables print: that the registry has all of it, attached to settings that can have produced it."""

import collections
import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.schedules import exponential, staircase
from fedloom.tasks import TASKS, feddyn, fedopt, fedopt_tables
from fedloom.tasks.feddyn_tables import METHODS, TABLES

PRINTED = [(TASKS[name], row) for name, rows in TABLES.items() for row in rows]


# FedDyn.


def test_feddyns_tables_are_whole():
    """Rows, and sums of the columns: of the targets, and of the methods where these have a number.

    They were added up from the text of the paper, not from the registry. Tables 1, 2, 4, 5 and 6 have 16, 48, 16, 28
    and 4 rows; 8 of them stand both in table 1 and in table 4.
    """
    printed = {
        "tables 1 and 4": (8, 515.2, (2965, 9192, 3638, 3510)),
        "table 1": (8, 468.2, (5684, 14722, 7149, 6559)),
        "table 2": (48, 3699.3, (5289, 21058, 12642, 8906)),
        "table 4": (8, 529.4, (2678, 9676, 3566, 1779)),
        "table 5": (28, 2027.4, (10021, 31638, 13030, 9789)),
        "table 6": (4, 1.8379, (233, 582, 509, 448)),
    }
    assert sum(rows for rows, _, _ in printed.values()) == 104
    assert {row.where for _, row in PRINTED} == printed.keys()
    for table, (rows, targets, sums) in printed.items():
        of = [row for _, row in PRINTED if row.where == table]
        assert len(of) == rows
        percent = 1 if table == "table 6" else 100
        assert sum(percent * row.measure.target for row in of) == pytest.approx(targets)
        for method, total in zip(("feddyn", "scaffold", "fedavg", "fedprox"), sums, strict=True):
            assert sum(v for row in of if math.isfinite(v := row.values[method])) == total


def test_methods_that_miss_a_target_are_those_that_the_paper_marks_with_a_plus():
    missed = collections.Counter((row.where, m) for _, row in PRINTED for m, v in row.values.items() if math.isinf(v))
    assert missed == {
        ("tables 1 and 4", "fedavg"): 4,
        ("tables 1 and 4", "fedprox"): 4,
        ("table 1", "scaffold"): 2,
        ("table 1", "fedavg"): 4,
        ("table 1", "fedprox"): 4,
        ("table 2", "fedavg"): 9,
        ("table 2", "fedprox"): 16,
        ("table 4", "fedavg"): 4,
        ("table 4", "fedprox"): 6,
        ("table 5", "fedprox"): 4,
    }


def test_every_row_of_feddyn_is_reported_once_by_a_task_with_settings_for_its_four_methods():
    assert {t.name for t in feddyn.TASKS if t.reported} == TABLES.keys()
    keys = [(task.name, row.variant, row.measure.target) for task, row in PRINTED]
    assert len(set(keys)) == len(keys)
    for task, row in PRINTED:
        assert row in task.reported
        assert list(row.values) == list(METHODS) == list(task.settings[row.variant])
        of = "train loss" if row.where == "table 6" else "test accuracy"
        assert (row.measure.metric, row.measure.counted) == (f"last models {of}", "models")


def test_no_printed_number_needs_more_rounds_than_the_setting_has():
    """One model is sent in a round, and two by SCAFFOLD, so that its numbers are even."""
    for task, row in PRINTED:
        for method, models in row.values.items():
            if math.isfinite(models):
                each = 2 if method == "scaffold" else 1
                assert models % each == 0
                assert 1 <= models / each <= task.setting(method, row.variant).rounds, (task.name, row.words, method)


def test_a_higher_target_never_needs_fewer_models():
    pairs = 0
    for name, rows in TABLES.items():
        for _, of in itertools.groupby(rows, key=lambda row: row.variant):
            high, *lower = of
            for low in lower:
                assert low.measure.target < high.measure.target, name
                assert all(low.values[m] <= high.values[m] for m in METHODS), name
                pairs += 1
    assert pairs == 50  # all but table 6 have two targets


def test_the_metric_of_table_6_can_be_evaluated():
    (row,) = TASKS["feddyn-synthetic-type2"].reported
    e = fl.experiment("feddyn-synthetic-type2", "fedavg", rounds=1, evaluate=[row.measure.metric])
    assert fl.run(e).rows[-1][row.measure.metric] > 0


# Appendix A.2 and A.3, typed once more: rounds, FedDyn's alpha and epochs, FedAvg's epochs, SCAFFOLD's steps, decay.
PROTOCOL = {
    ("mnist-2nn-iid", "10%"): (1000, 0.03, 50, 10, 600, 0.998),
    ("mnist-2nn-iid", "1%"): (1000, 0.01, 50, 10, 600, 0.998),
    ("mnist-2nn-iid", "100%"): (500, 0.01, 50, 20, 600, 1),
    ("mnist-2nn-dir0.6", "10%"): (1000, 0.01, 50, 10, 600, 0.998),
    ("mnist-2nn-dir0.3", "1%"): (1000, 0.01, 50, 10, 600, 0.998),
    ("mnist-2nn-dir0.3", "100%"): (500, 0.01, 50, 20, 600, 1),
    ("emnist-l-iid", "10%"): (1000, 0.003, 50, 10, 500, 0.998),
    ("emnist-l-iid", "1%"): (1000, 0.003, 50, 10, 500, 0.998),
    ("emnist-l-iid", "100%"): (500, 0.005, 50, 20, 500, 1),
    ("emnist-l-dir0.6", "10%"): (1000, 0.005, 50, 10, 500, 0.998),
    ("emnist-l-dir0.6", "1%"): (1000, 0.001, 50, 10, 500, 0.998),
    ("emnist-l-dir0.6", "100%"): (500, 0.005, 50, 20, 500, 1),
    ("emnist-l-dir0.3", "10%"): (1000, 0.01, 50, 10, 500, 0.998),
    ("emnist-l-dir0.3", "1%"): (1000, 0.005, 50, 10, 500, 0.998),
    ("emnist-l-dir0.3", "100%"): (500, 0.005, 50, 20, 500, 1),
    ("cifar10-cnn-iid", "10%"): (1000, 0.1, 5, 5, 50, 1),
    ("cifar100-cnn-iid-500", "10%"): (2000, 0.01, 2, 2, 4, 1),
    ("cifar100-cnn-dir0.3-500", "10%"): (2000, 0.01, 2, 2, 4, 1),
    ("cifar100-cnn-iid-unbalanced", "10%"): (1000, 0.1, 2, 2, 20, 1),
    ("cifar100-cnn-dir0.3-unbalanced", "10%"): (1000, 0.1, 2, 2, 20, 1),
    ("shakespeare-leaf", "10%"): (250, 0.015, 5, 5, 100, 1),
    ("shakespeare-leaf", "1%"): (250, 0.001, 5, 5, 100, 0.998),
    ("shakespeare-leaf", "100%"): (150, 0.009, 5, 5, 100, 1),
    ("shakespeare-leaf-iid", "10%"): (250, 0.015, 5, 5, 100, 1),
}


@pytest.mark.parametrize(("name", "variant"), PROTOCOL)
def test_feddyns_published_protocol(name, variant):
    rounds, alpha, epochs, others, k, decay = PROTOCOL[name, variant]
    of = TASKS[name].settings[variant]
    lr = 1.0 if name.startswith("shakespeare") else 0.1
    assert {s.rounds for s in of.values()} == {rounds}
    assert {s.solver.lr for s in of.values()} == {lr if decay == 1 else exponential(lr, decay)}
    assert {s.solver.batch_size for s in of.values()} == {100 if name.startswith("shakespeare") else 50}
    assert {s.solver.weight_decay for s in of.values()} == {1e-3 if name.startswith("cifar") else 1e-4}
    assert (of["feddyn"].algorithm.alpha, of["feddyn"].solver.epochs) == (alpha, epochs)
    assert (of["fedavg"].solver.epochs, of["fedprox"].solver.epochs) == (others, others)
    assert (of["scaffold"].solver.steps, of["fedprox"].algorithm.mu) == (k, 1e-4)


@pytest.mark.parametrize("task", [t for t in feddyn.TASKS if t.tuned_over], ids=lambda t: t.name)
def test_feddyns_settings_lie_on_the_papers_grids(task):
    for of in task.settings.values():
        for name, setting in of.items():
            for field, values in task.tuned_over.items():
                holder = setting.solver if field.startswith("solver.") else setting.algorithm
                value = getattr(holder, field.split(".")[-1], None)
                counts_steps = field == "solver.epochs" and name == "scaffold"
                if field != "solver.lr.decay" and value is not None and not counts_steps:
                    assert np.isclose(values, getattr(value, "value", value)).any(), (name, field)


# FedOpt.

ADAPTIVE = ("fedadagrad", "fedadam", "fedyogi")
SHARED = {"cifar100-tff": "cifar100-pam", "shakespeare-roles": "shakespeare-tff"}  # other data, the same row


def test_fedopts_tables_are_whole():
    """Sums of the columns, added up from the text of the paper; table 11 with the row of centralized training."""
    printed = {"table 1": (357.7, 364.51, 365.18, 334.65, 315.27), "table 10": (91.2, 90.9, 92.2, 71.0, 61.1)}
    for table, sums in printed.items():
        tables = {table, "tables 1 and 11"} if table == "table 1" else {table}
        rows = [r.values for t in fedopt.TASKS if t.name not in SHARED for r in t.reported if r.where in tables]
        assert len(rows) == {"table 1": 7, "table 10": 2}[table]
        assert [sum(row[m] for row in rows) for m in fedopt_tables.METHODS] == pytest.approx(sums)
    eleven = fedopt_tables.TABLE_11
    assert [sum(column) for column in zip(*eleven.values(), strict=True)] == pytest.approx(
        (258.4, 259.7, 259.7, 258.7, 257.8)
    )
    assert eleven["constant"] == fedopt_tables.TABLE_1["emnist-cr"]


def test_what_fedopts_tasks_report():
    def rows(name):
        return [(r.where, r.variant, r.measure.words) for r in TASKS[name].reported]

    over_100 = "100 x test accuracy, mean of the last 100 rounds"
    assert rows("emnist-cr") == [("tables 1 and 11", "as run", over_100), ("table 11", "ExpDecay", over_100)]
    assert rows("emnist-ae") == [("table 1", "as run", "1000 x test mse, mean of the last 100 rounds")]
    assert rows("stackoverflow-lr") == [
        ("table 1", "as run", "100 x test recall@5, mean of the last 100 rounds"),
        ("table 10", "as run", "100 x test recall@5, after the last round"),
    ]
    for task in fedopt.TASKS:
        assert rows(task.name) == rows(SHARED.get(task.name, task.name))
        for r in task.reported:
            assert list(r.values) == list(task.settings[r.variant])
            assert r.measure.metric.removeprefix("test ") in {m.name for m in task.metrics}


@pytest.mark.parametrize("task", fedopt.TASKS, ids=lambda t: t.name)
def test_what_fedopt_ran_and_what_it_prints_differ_in_the_servers_update_only(task):
    first, second, *others = task.settings.items()
    assert (first[0], second[0]) == ("as run", "as printed")
    assert [variant for variant, _ in others] == (["ExpDecay"] if task.name == "emnist-cr" else [])
    for method, run in first[1].items():
        printed = second[1][method]
        assert (run.solver, run.cohort, run.rounds) == (printed.solver, printed.cohort, printed.rounds)
        assert (run.algorithm == printed.algorithm) == (method not in ADAPTIVE)
        assert (printed.origin is None) == (method not in ADAPTIVE)  # nobody tuned the step sizes for it
    for method, decayed in (others[0][1] if others else {}).items():
        run = first[1][method]
        assert decayed.algorithm == run.algorithm
        assert decayed.solver.lr == staircase(run.solver.lr, 0.1, 500)


@pytest.mark.parametrize("method", ADAPTIVE)
def test_server_steps_as_run_and_as_printed(method):
    """For updates that are d again and again, with b1 = 0.9 and b2 = 0.99, or b1 = 0 for FedAdagrad.

    As run, m = (1 - b1^t) d, and v is what the method makes of t times d^2, from 0. The correction is 1 in the first
    step, where sqrt(1 - b2) = 1 - b1, and not in the second. As printed, v begins at tau^2 and squares m.
    """
    d = np.array([2e-4, -0.02, 0.3])

    def steps(variant, rounds):
        a = TASKS["emnist-cr"].setting(method, variant).algorithm
        s = a.init(jnp.zeros(3))
        for _ in range(rounds):
            before, s = s, a.receive(s, jnp.asarray(d), None)
        return np.asarray(s.w - before.w), a.lr, a.tau

    for t in (1, 2):
        found, lr, tau = steps("as run", t)
        v = {"fedadagrad": t, "fedadam": 1 - 0.99**t, "fedyogi": 0.01 * t}[method] * d**2
        corrected = d if method == "fedadagrad" else math.sqrt(1 - 0.99**t) * d  # of m, whose 1 - b1^t cancels
        np.testing.assert_allclose(found, lr * corrected / (np.sqrt(v) + tau), rtol=1e-5)

    found, lr, tau = steps("as printed", 1)
    m = d if method == "fedadagrad" else 0.1 * d
    v = {
        "fedadagrad": tau**2 + m**2,
        "fedadam": 0.99 * tau**2 + 0.01 * m**2,
        "fedyogi": tau**2 - 0.01 * m**2 * np.sign(tau**2 - m**2),
    }[method]
    np.testing.assert_allclose(found, lr * m / (np.sqrt(v) + tau), rtol=1e-5)
