"""The settings of reproductions, typed from the papers and not read from tasks."""

import dataclasses
import math

import numpy as np
import pytest

from fedloom import schedules
from fedloom.algorithms import FedAvg, FedDANE, FedDR, FedDyn, FedPD, FedProx, FedSplit, Scaffold
from fedloom.cohorts import (
    bernoulli,
    by_weight,
    everyone,
    plain,
    seeded_bernoulli,
    seeded_by_round,
    stragglers,
    uniform,
)
from fedloom.data import splits
from fedloom.regularizers import l1
from fedloom.reproductions import find
from fedloom.solvers import SGD
from fedloom.tasks import TASKS, Measure

SETS = {"Synthetic-IID": "iid", "Synthetic(0, 0)": "0-0", "Synthetic(0.5, 0.5)": "0.5-0.5", "Synthetic(1, 1)": "1-1"}
MUS = [0.0, 0.001, 0.01, 0.1, 1.0]


def each(name):
    return find(name).experiments.items()


def of_setting(name, setting):
    """The experiments of a setting, by method."""
    return {run.removeprefix(f"{setting}, "): e for run, e in each(name) if run.startswith(f"{setting}, ")}


def test_fedprox_stragglers():
    """FedAvg drops the stragglers, FedProx counts what they did."""
    assert len(find("fedprox-stragglers").experiments) == 3 * 3
    for share in (0.0, 0.5, 0.9):
        of = of_setting("fedprox-stragglers", f"Synthetic(1, 1), {share:.0%} stragglers")
        assert list(of) == ["fedavg", "fedprox, mu=0", "fedprox"]
        assert [e.algorithm for e in of.values()] == [FedAvg(), FedProx(0.0), FedProx(1.0)]
        for method, e in of.items():
            assert e.cohort == (
                stragglers(of=uniform(10), share=share, drop=method == "fedavg") if share else uniform(10)
            )
            assert (e.task, e.rounds) == ("synthetic-1-1-authors", 200)
            assert (e.solver.lr, e.solver.batch_size, e.solver.epochs) == (0.01, 10, 20)


# By the words of FedDANE's settings: the cohort for 10 devices and for 30, and the loss.
WAYS = {
    "means by examples": (uniform(10), everyone(), None),
    "plain means": (by_weight(10), plain(everyone()), None),
    "plain means, plain loss": (None, everyone(), "uniform"),
}


@pytest.mark.parametrize(
    ("name", "devices", "epochs", "ways"), [("feddane-figure1", 0, 20, 2), ("feddane-figure3", 1, 1, 3)]
)
def test_feddane_figures_1_and_3(name, devices, epochs, ways):
    """Figure 1: 10 devices, 20 epochs; figure 3: all 30, one epoch. Weights are those of the task, n_k / n, if None."""
    assert len(find(name).experiments) == ways * 4 * (2 + 5)
    assert TASKS["synthetic-1-1-authors"].weights == "examples"
    for way in list(WAYS)[:ways]:
        for setting, kind in SETS.items():
            of = {line.method: find(name).experiments[line.run] for line in lines_of(name, f"{setting}, {way}")}
            assert list(of) == ["fedavg", "fedprox", *(f"feddane, mu={mu:g}" for mu in MUS)]
            assert [e.algorithm for e in of.values()] == [FedAvg(), FedProx(1.0), *map(FedDANE, MUS)]
            for e in of.values():
                assert (e.task, e.rounds) == (f"synthetic-{kind}-authors", 200)
                assert (e.cohort, e.weights) == (WAYS[way][devices], WAYS[way][2])
                assert (e.solver.lr, e.solver.batch_size, e.solver.epochs) == (0.01, 10, epochs)


def lines_of(name, setting):
    return [line for line in find(name).lines if line.setting == setting]


def test_feddane_figure_2():
    """The best mu of the grid for each number of devices; Synthetic(1, 1) is not in the figure."""
    cohorts = {
        "means by examples": (uniform(1), uniform(5), uniform(10), everyone()),
        "plain means": (by_weight(1), by_weight(5), by_weight(10), plain(everyone())),
    }
    r = find("feddane-figure2")
    assert len(r.experiments) == 2 * 3 * 4 * 5
    for way, of in cohorts.items():
        for setting, kind in list(SETS.items())[:3]:
            lines = lines_of(r.name, f"{setting}, {way}")
            assert [line.method for line in lines] == [f"{m} of 30" for m in (1, 5, 10, 30)]
            for line, cohort in zip(lines, of, strict=True):
                runs = [r.experiments[run] for run in line.runs]
                assert [e.algorithm for e in runs] == [FedDANE(mu) for mu in MUS]
                assert {e.cohort for e in runs} == {cohort}
                assert {(e.task, e.rounds, e.solver.epochs) for e in runs} == {(f"synthetic-{kind}-authors", 200, 20)}


def test_feddane_variants():
    r = find("feddane-variants")
    variants = {
        "fedprox": [FedProx(mu) for mu in MUS],
        "feddane": [FedDANE(mu) for mu in MUS],
        "feddane, decay=0.98": [FedDANE(mu, decay=0.98) for mu in MUS],
        "feddane, decay=0.9": [FedDANE(mu, decay=0.9) for mu in MUS],
        "feddane, pipelined": [FedDANE(mu, pipelined=True) for mu in MUS],
    }
    for setting, kind in SETS.items():
        lines = lines_of(r.name, setting)
        assert [line.method for line in lines] == list(variants)
        for line in lines:
            runs = [r.experiments[run] for run in line.runs]
            assert [e.algorithm for e in runs] == variants[line.method]
            assert {(e.task, e.cohort, e.rounds, e.solver.epochs) for e in runs} == {
                (f"synthetic-{kind}-authors", uniform(10), 200, 20)
            }


SCRIPTS = {  # FedProx's mu, FedPD's eta, FedDR's eta
    "Synthetic(0, 0)": (0.1, 10, 100),
    "Synthetic(0.5, 0.5)": (1, 1, 500),
    "Synthetic(1, 1)": (1, 10, 1000),
}


@pytest.mark.parametrize(("figure", "cohort"), [("feddr-figure2", everyone()), ("feddr-figure3", uniform(10))])
def test_feddr_figures(figure, cohort):
    """On the sets that are not iid. In the authors' code FedPD goes on from a user's own model."""
    assert list(dict.fromkeys(line.setting for line in find(figure).lines)) == list(SCRIPTS)
    for setting, (mu, fedpd_eta, eta) in SCRIPTS.items():
        of = of_setting(figure, setting)
        assert list(of) == ["fedavg", "fedprox", "fedpd", "feddr"]
        assert of["fedavg"].algorithm == FedAvg()
        assert of["fedprox"].algorithm == FedProx(mu)
        assert of["fedpd"].algorithm == FedPD(fedpd_eta, start="own")
        assert of["feddr"].algorithm == FedDR(eta, 1.95)
        assert of["fedpd"].cohort == everyone()
        for name, e in of.items():
            assert e.task == f"feddr-synthetic-{SETS[setting]}-authors"
            assert e.cohort == cohort or name == "fedpd"
            assert (e.solver.lr, e.solver.batch_size, e.solver.epochs) == (0.01, 10, 20)
            assert e.rounds == 200 or (figure, name) == ("feddr-figure3", "fedpd")
            assert set(e.evaluate) == {"train loss", "train accuracy", "test"}  # the figures' three metrics


@pytest.mark.parametrize("setting", SCRIPTS)
@pytest.mark.parametrize("figure", ["feddr-figure3", "feddr-figure3-tuned"])
def test_feddr_figure_3_has_equal_bytes(figure, setting):
    """10 users of 30 for R rounds send what 30 users send in R / 3."""
    r = find(figure)
    runs = {line.method: [r.experiments[run] for run in line.runs] for line in lines_of(figure, setting)}
    for e in runs["feddr"]:
        for fedpd in runs["fedpd"]:
            assert (e.cohort, fedpd.cohort) == (uniform(10), everyone())
            assert 0 <= 10 * e.rounds - 30 * fedpd.rounds < 30


@pytest.mark.parametrize("setting", SCRIPTS)
def test_feddr_figure_3_tuned(setting):
    etas = (0.1, 1, 10, 100, 1000)
    grids = {
        "fedavg": [FedAvg()],
        "fedprox": [FedProx(mu) for mu in (0.001, 0.01, 0.1, 1, 10)],
        "fedpd": [FedPD(eta, start="own") for eta in etas],
        "feddr": [FedDR(eta, alpha) for eta in etas for alpha in (1, 1.5, 1.95)],
    }
    r = find("feddr-figure3-tuned")
    lines = lines_of(r.name, setting)
    assert {line.measure for line in lines} == {Measure("train loss")}  # of the server's model
    assert {line.method: [r.experiments[run].algorithm for run in line.runs] for line in lines} == grids
    for line in lines:
        for e in map(r.experiments.get, line.runs):
            assert e.task == f"feddr-synthetic-{SETS[setting]}-authors"
            assert (e.solver.lr, e.solver.batch_size, e.solver.epochs, e.own_models) == (0.01, 10, 20, False)


def test_feddr_figure_5():
    """Of the composite script: ten rounds, the l1 norm with 0.01."""
    cells = [(e.solver.lr, e.solver.epochs) for _, e in each("feddr-figure5")]
    assert cells == [(lr, n) for lr in (0.0025, 0.005, 0.0075, 0.01, 0.025) for n in (5, 10, 15, 20, 30)]
    for _, e in each("feddr-figure5"):
        assert (e.task, e.cohort, e.rounds) == ("feddr-synthetic-0-0-authors", uniform(10), 10)
        assert e.algorithm == FedDR(100, 1.95, l1(0.01))
        assert e.own_models


def test_feddyn_table_6():
    table = {  # the loss, then FedDyn, SCAFFOLD, FedAvg, FedProx
        "homogeneous": (0.0603, 32, 70, 136, 49),
        "type1": (1.5717, 17, 88, 20, 18),
        "type2": (0.1205, 150, 164, 274, 275),
        "type3": (0.0854, 34, 260, 79, 106),
    }
    lines = [line for line in find("feddyn-table6").lines if not line.beside]
    for kind, (loss, *values) in table.items():
        of = [line for line in lines if line.setting.startswith(kind)]
        assert [line.method for line in of] == ["feddyn", "scaffold", "fedavg", "fedprox"]
        assert [line.reported for line in of] == values
        assert {line.measure for line in of} == {Measure("last models train loss", loss, "models")}
    for _, e in each("feddyn-table6"):
        assert e.cohort == bernoulli(0.1)
        assert (e.solver.batch_size, e.solver.weight_decay, e.evaluate_every) == (10, 1e-5, 1)
        assert e.rounds > 275  # the largest number of the table, of a method that sends one model in a round


def test_where_devices_differ_in_size_the_plain_mean_stands_beside_the_weighted_one():
    """As the program measures FedDyn and SCAFFOLD on type 3: the same runs, another metric, the same numbers."""
    r = find("feddyn-table6")
    beside = {line.method: line for line in r.lines if line.beside}
    assert list(beside) == ["feddyn, plain mean", "scaffold, plain mean"]
    (weighted,) = {line.setting for line in beside.values()}
    assert weighted == "type3, loss 0.0854"
    for name, line in beside.items():
        (same,) = (of for of in r.lines if (of.setting, of.method) == (weighted, name.removesuffix(", plain mean")))
        assert (line.reported, line.measure.counted) == (same.reported, "models")
        assert (line.measure.metric, line.measure.target) == ("plain last models train loss", 0.0854)
        for run, other in zip(line.runs, same.runs, strict=True):
            plain = dataclasses.replace(r.experiments[other], evaluate=("plain last models train loss",))
            assert r.experiments[run] == plain


def test_the_homogeneous_set_of_table_6_in_many_draws():
    """The same runs as in the table, and FedProx's once more, with the square of its term lost."""
    table, many = find("feddyn-table6"), find("feddyn-table6-draws")
    there = {line.method: line for line in table.lines if line.setting.startswith("homogeneous")}
    *same, lost = many.lines
    assert [line.method for line in same] == list(there)
    for line in same:
        assert (line.setting, line.measure, line.reported) == there[line.method][0:1] + there[line.method][3:5]
        runs = [table.experiments[run] for run in there[line.method].runs]
        assert [many.experiments[run] for run in line.runs] == runs
    proximal = [many.experiments[run] for run in same[-1].runs]
    linear = [dataclasses.replace(e, algorithm=FedProx(e.algorithm.mu, term="linear")) for e in proximal]
    assert [many.experiments[run] for run in lost.runs] == linear
    assert lost.reported == 49  # what the table has for FedProx


@pytest.mark.parametrize("share", ["", "-100%"])
@pytest.mark.parametrize("split", ["iid", "dir0.6", "dir0.3"])
def test_beside_fedprox_stands_that_of_the_program(split, share):
    """In the rows of 10% and 100% to the lower targets: mu is 1e-4, as the weight decay that the term then undoes."""
    r = find(f"feddyn-mnist-2nn-{split}{share}-lower")
    of = {line.method: line for line in r.lines}
    fedprox, lost = of["fedprox"], of["fedprox, linear term"]
    assert (lost.setting, lost.measure, lost.reported) == (fedprox.setting, fedprox.measure, fedprox.reported)
    e = r.experiments[lost.run]
    assert e.algorithm == FedProx(1e-4, term="linear")
    assert e.solver.weight_decay == 1e-4
    assert dataclasses.replace(e, algorithm=FedProx(1e-4)) == r.experiments[fedprox.run]


@pytest.mark.parametrize("end", ["-lower", "-1%-authors-lower", "-100%-lower"])
@pytest.mark.parametrize("kind", ["iid", "dir0.6", "dir0.3"])
def test_scaffold_as_in_feddyn_s_program(kind, end):
    """Clipped at norm 10, and (w - v) / (600 * 0.1) in every round, although step sizes shrink (not at 100%)."""
    r = find(f"feddyn-mnist-2nn-{kind}{end}")
    paper, program = r.experiments["scaffold"], r.experiments["scaffold, as in the program"]
    solver = dataclasses.replace(paper.solver, clip=10.0)
    assert paper.solver.lr == (0.1 if end.startswith("-100%") else schedules.exponential(0.1, 0.998))
    assert program == dataclasses.replace(paper, algorithm=Scaffold(divisor=60.0), solver=solver)
    beside = {line.method: (line.measure, line.reported) for line in r.lines}
    assert beside["scaffold, as in the program"] == beside["scaffold"]


@pytest.mark.parametrize("p", [2, 10])
def test_clipped_scaffold_in_the_table_of_linear_speedup(p):
    """Every worker takes 45 steps of 0.1, so that (w - v) / 4.5 is a mean of its gradients if nothing is clipped."""
    labels = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])  # of MNIST
    sizes = splits.of_classes(labels, splits.authors_classes(labels, p)).sizes
    e = find("speedup-table2-2nn").experiments[f"digits_{p}, n=10, scaffold, clipped"]
    assert {math.ceil(size / e.solver.batch_size) * e.solver.epochs for size in sizes} == {45}
    assert (e.algorithm, e.solver.lr, e.solver.clip) == (Scaffold(divisor=4.5), 0.1, 60.0)


@pytest.mark.parametrize("kind", ["homogeneous", "type1", "type2", "type3"])
def test_the_search_of_table_6(kind):
    """Appendix A.1.1: learning rates and epochs; alpha of FedDyn, K of SCAFFOLD, mu of FedProx."""
    rates, epochs = (1, 0.1), (1, 10, 50)
    weighting = "alpha" if kind == "type3" else "means"  # of devices that differ in size, as in the authors' code
    search = {
        "feddyn": {(lr, n, FedDyn(a, weighting)) for lr in rates for n in epochs for a in (0.1, 0.01, 0.001)},
        "scaffold": {(lr, k) for lr in rates for k in (20, 200, 1000)},
        "fedavg": {(lr, n, FedAvg()) for lr in rates for n in epochs},
        "fedprox": {(lr, n, FedProx(mu)) for lr in rates for n in epochs for mu in (0.01, 0.0001)},
    }
    assert [len(points) for points in search.values()] == [18, 6, 6, 12]
    r = find("feddyn-table6")
    for line in r.lines:
        if line.setting.startswith(kind):
            runs = [r.experiments[run] for run in line.runs]
            assert {e.task for e in runs} == {f"feddyn-synthetic-{kind}"}
            if line.method.startswith("scaffold"):
                assert {type(e.algorithm) for e in runs} == {Scaffold}
                points = [(e.solver.lr, e.solver.steps) for e in runs]
            else:
                points = [(e.solver.lr, e.solver.epochs, e.algorithm) for e in runs]
            assert set(points) == search[line.method.removesuffix(", plain mean")]
            assert len(points) == len(set(points))


MNIST_ROWS = {  # of tables 2 (10% and 100%) and 5 (1%): the accuracy in %, then FedDyn, SCAFFOLD, FedAvg, FedProx
    "iid": [(98.2, 100, 142, 588, 362), (97.2, 31, 52, 49, 43)],
    "dir0.6": [(98.1, 129, 194, 581, 361), (97.1, 37, 60, 57, 57)],
    "dir0.3": [(98.2, 90, 208, 428, 858), (97.2, 37, 68, 76, 61)],
    "iid-100%": [(98.2, 38, 72, 194, 445), (97.2, 9, 18, 31, 28)],
    "dir0.6-100%": [(98.1, 39, 108, 157, 416), (97.1, 11, 24, 38, 34)],
    "dir0.3-100%": [(98.1, 35, 76, 313, 458), (97.1, 10, 24, 49, 44)],
    "iid-1%": [(98.3, 529, 956, 644, 451), (97.3, 145, 290, 151, 143)],
    "dir0.6-1%": [(98.2, 486, 1502, 863, 754), (97.2, 180, 332, 199, 166)],
    "dir0.3-1%": [(98.2, 521, 954, 951, 974), (97.2, 157, 318, 169, 177)],
}


@pytest.mark.parametrize("row", MNIST_ROWS)
def test_feddyn_s_rows_of_mnist(row):
    """The accuracy is that of the mean of all devices' last models."""
    r = find(f"feddyn-mnist-2nn-{row}")
    methods = ("feddyn", "scaffold", "fedavg", "fedprox")
    wanted = [
        (method, Measure("last models test accuracy", pytest.approx(accuracy / 100), "models"), value)
        for accuracy, *values in MNIST_ROWS[row]
        for method, value in zip(methods, values, strict=True)
    ]
    assert [(line.method, line.measure, line.reported) for line in r.lines] == wanted
    cohort = {"100%": everyone(), "1%": bernoulli(0.01)}.get(row.split("-")[-1], bernoulli(0.1))
    for method, e in r.experiments.items():
        sent = 2 if method == "scaffold" else 1
        assert e.rounds >= max(line.reported for line in r.lines if line.method == method) / sent
        assert e.cohort == cohort
        assert (e.solver.batch_size, e.solver.weight_decay) == (50, 1e-4)


def test_speedup_on_mnist():
    """Figures 1 to 4: 100 workers with p digits each and two hidden layers of 200."""
    cells = {(e.task, e.cohort, e.solver.epochs) for _, e in each("speedup-figures")}
    of_p = {(p, 5) for p in (1, 2, 5, 10)}
    of_k = {(p, k) for p in (1, 2, 5) for k in (1, 5, 10)}
    assert cells == {(f"mnist-2nn-digits{p}", c, k) for p, k in of_p | of_k for c in (uniform(10), everyone())}
    for _, e in each("speedup-figures"):
        assert (e.solver.lr, e.algorithm, e.rounds) == (0.1, FedAvg(1.0), 100)
        assert e.weights is None
        assert TASKS[e.task].weights == "uniform"


def test_table_11_of_fedopt_in_kind():
    """EMNIST CR's step sizes, by hand from tables 8 and 9; with ExpDecay a tenth of the client's after 500 rounds."""
    runs = dict(each("fedopt-table11-mnist-writers"))
    rows = {"fedadagrad": (-1.5, -1, -2), "fedadam": (-1.5, -2.5, -4), "fedavg": (-1, 0, None)}
    for name, (client, server, tau) in rows.items():
        constant, decayed = runs[f"constant step size, {name}"], runs[f"ExpDecay, {name}"]
        assert constant.algorithm == decayed.algorithm
        assert constant.algorithm.lr == pytest.approx(10**server)
        assert tau is None or constant.algorithm.tau == pytest.approx(10**tau)
        for e, later in ((constant, 1), (decayed, 0.1)):
            assert (e.rounds, e.cohort, e.solver.batch_size) == (1500, uniform(10), 20)
            assert [schedules.at(e.solver.lr, t) / 10**client for t in (0, 499, 500)] == pytest.approx([1, 1, later])


TABLE_2 = {  # (rounds, MiB, seconds) of SCAFFOLD and of FedAvg, for digits_10 and digits_2
    "lr": {
        10: (((3, 0.36, 0.32), (3, 0.18, 0.22)), ((14, 1.68, 1.48), (14, 0.84, 1.16))),
        100: (((5, 0.60, 0.53), (5, 0.30, 0.42)), ((7, 0.84, 0.72), (11, 0.66, 0.91))),
    },
    "2nn": {
        10: (((3, 9.12, 0.88), (3, 4.56, 0.56)), ((14, 42.55, 4.23), (14, 21.28, 2.46))),
        100: (((5, 15.20, 1.51), (8, 12.16, 1.49)), ((7, 21.28, 2.11), (17, 25.84, 3.16))),
    },
    "cnn-n=10": {10: (((3, 26.64, 2.23), (3, 13.32, 1.57)), ((14, 124.34, 11.12), (10, 44.41, 4.92)))},
    "cnn-n=100": {100: (((1, 8.88, 0.79), (1, 4.44, 0.50)), ((17, 150.98, 13.50), (7, 31.08, 3.51)))},
}


@pytest.mark.parametrize("name", TABLE_2)
def test_table_2_of_the_linear_speedup(name):
    """The authors' split and cohorts, 5 epochs in batches of 64; both measures in every round."""
    r = find(f"speedup-table2-{name}")
    model = name.split("-")[0]
    evaluated = {run: e.evaluate for run, e in r.runs([0])}
    cells = [(n, p, i) for n in TABLE_2[name] for i, p in enumerate((10, 2))]
    assert len(r.experiments) == 3 * len(cells)
    for n, p, i in cells:
        figures = [line for line in r.lines if line.setting.startswith(f"digits_{p}, n={n}, ")]
        for method, (rounds, mib, seconds) in zip(("scaffold", "fedavg"), TABLE_2[name][n][i], strict=True):
            run = f"digits_{p}, n={n}, {method}"
            own = [line for line in figures if line.method == method]
            assert {line.run for line in own} == {run}
            assert [(line.measure, line.reported) for line in own] == [
                (Measure("last member test accuracy", 0.95, "rounds"), rounds),
                (Measure("last member test accuracy", 0.95, "rounds"), seconds),
                (Measure("last member test accuracy", 0.95, "MiB"), mib),
                (Measure("test accuracy", 0.95, "rounds"), None),
            ]
            assert own[1].combined([rounds]) == pytest.approx(
                seconds, rel=0.12
            )  # a round takes about as long everywhere
            assert math.isinf(own[1].combined([math.inf]))
            e = r.experiments[run]
            assert (e.task, e.cohort) == (f"mnist-{model}-digits{p}-authors", seeded_by_round(n))
            assert e.algorithm == (FedAvg(1.0) if method == "fedavg" else Scaffold(1.0))
            assert (e.solver.lr, e.solver.batch_size, e.solver.epochs) == (0.1, 64, 5)
            assert e.evaluate_every == 1
            assert e.rounds > rounds
            assert {"last member test accuracy", "test accuracy"} <= set(evaluated[run])
        unclipped, clipped = ([line for line in figures if line.method == m] for m in ("scaffold", "scaffold, clipped"))
        beside = [
            line._replace(method="scaffold, clipped", run=f"{line.run}, clipped", beside=line.reported is not None)
            for line in unclipped
        ]
        assert clipped == [line for line in beside if line.combined is None]


def test_figures_of_downloaded_data():
    def values(name):
        return {(line.setting, line.method): line.reported for line in find(name).lines}

    target = "10%, models to last models test accuracy 0.823"
    assert values("feddyn-cifar10-cnn-iid")[target, "fedavg"] == 994
    assert find("feddyn-cifar10-cnn-iid-100%").target is None  # there are two
    assert find("feddyn-mnist-2nn-iid-100%-lower").target == ("last models test accuracy", 0.972)
    assert values("fedopt-emnist-ae")["as run, 1000 x test mse, mean of the last 100 rounds", "fedyogi"] == 0.98
    decay = find("fedopt-emnist-cr-ExpDecay")
    assert {type(e.solver.lr) for e in decay.experiments.values()} == {schedules.staircase}
    assert [line.reported for line in decay.lines] == [85.3, 86.2, 86.2, 85.8, 85.2]
    resnet = find("speedup-cifar10-resnet-digits2")
    assert [line.reported for line in resnet.lines] == [52, 61, 8866.06, 5200.29, 539.50, 358.22]
    assert [line.combined([n]) for line, n in zip(resnet.lines[4:], (52, 61), strict=True)] == pytest.approx(
        [539.50, 358.22], rel=0.01
    )
    assert resnet.target == ("last member test accuracy", 0.75)


def test_feddyn_s_figures_in_kind_differ_in_one_thing_only():
    """Figure 1 in alpha; figure 2 in the method, with FedDyn's proximal term."""
    by_alpha = find("feddyn-figure1-mnist").experiments
    assert [e.algorithm for e in by_alpha.values()] == [FedDyn(a) for a in (1.0, 0.5, 0.1, 0.05, 0.01, 0.001)]
    by_method = find("feddyn-figure2-mnist").experiments
    methods = [FedDyn(0.03), FedSplit(1 / 0.03, "all"), FedSplit(1 / 0.03, "active")]
    assert [e.algorithm for e in by_method.values()] == methods
    (rest,) = {(e.task, str(e.solver), str(e.cohort), e.rounds) for e in [*by_alpha.values(), *by_method.values()]}
    table_2 = find("feddyn-mnist-2nn-iid").experiments["feddyn"]
    assert rest == (table_2.task, str(table_2.solver), str(table_2.cohort), 300)


def test_a_mean_of_the_last_100_rounds_is_one_of_four_evaluations():
    """FedOpt's tasks are evaluated every 120 rounds by default: Shakespeare's test set takes as long as five rounds."""
    e = find("fedopt-shakespeare-roles").experiments["fedadam"]
    assert [t for t in range(1101, 1201) if t % e.evaluate_every == 0 or t == e.rounds] == [1122, 1155, 1188, 1200]


@pytest.mark.parametrize("kind", ["iid", "dir0.6", "dir0.3"])
def test_rows_of_1_percent_with_the_cohorts_of_the_authors_program(kind):
    """The lower target, and nothing but the cohorts is changed."""
    row, other = find(f"feddyn-mnist-2nn-{kind}-1%"), find(f"feddyn-mnist-2nn-{kind}-1%-authors-lower")
    lowest = min(line.measure.target for line in row.lines)
    assert other.lines[:4] == tuple(line for line in row.lines if line.measure.target == lowest)
    for name, e in row.experiments.items():
        assert e.cohort == bernoulli(0.01)
        assert other.experiments[name] == dataclasses.replace(e, cohort=seeded_bernoulli(0.01), rounds=300)
    assert max(line.reported for line in other.lines if "scaffold" not in line.method) < 300


def test_cifar_10_at_1_percent_with_the_cohorts_of_the_authors_program():
    """Table 5's lower row of CIFAR-10 iid: E = 5, 10 steps in an epoch of 500 images, so 50 for SCAFFOLD; no decay."""
    r = find("feddyn-cifar10-cnn-iid-1%-authors-lower")
    solver = SGD(0.1, batch_size=50, epochs=5, weight_decay=1e-3, clip=10.0)
    steps = dataclasses.replace(solver, epochs=1, steps=50)
    assert {name: (e.algorithm, e.solver) for name, e in r.experiments.items()} == {
        "feddyn": (FedDyn(0.01), solver),
        "scaffold": (Scaffold(), dataclasses.replace(steps, clip=None)),
        "fedavg": (FedAvg(), solver),
        "fedprox": (FedProx(1e-4), solver),
        "scaffold, as in the program": (Scaffold(divisor=50 * 0.1), steps),
    }
    assert {(e.cohort, e.rounds, e.evaluate_every) for e in r.experiments.values()} == {
        (seeded_bernoulli(0.01), 1000, 5)
    }
    printed = {line.method: line.reported for line in r.lines if not line.beside}
    assert printed == {"feddyn": 543, "scaffold": 1150, "fedavg": 603, "fedprox": 707}
    assert {line.measure for line in r.lines} == {Measure("last models test accuracy", 0.816, "models")}


@pytest.mark.parametrize(
    ("name", "epochs", "steps", "printed", "highest", "batch"),
    [
        ("mnist", 150, {0: 0.1, 49: 0.1, 50: 0.05, 149: 0.025}, 98.4, 98.3, 50),
        ("emnist-l", 150, {0: 0.1, 49: 0.1, 50: 0.05, 149: 0.025}, 95.0, 94.9, 50),
        ("cifar10", 500, {0: 0.1, 1: 0.0992, 499: 0.1 * 0.992**499}, 85.2, 85.0, 50),
        ("cifar100", 500, {0: 0.1, 1: 0.0992, 499: 0.1 * 0.992**499}, 55.3, 53.0, 50),
        ("shakespeare", 150, {0: 1.0, 49: 1.0, 50: 0.5, 149: 0.25}, 51.2, 47.6, 100),
        ("shakespeare-iid", 150, {0: 1.0, 49: 1.0, 50: 0.5, 149: 0.25}, 50.8, 46.9, 100),
    ],
)
def test_training_at_one_place(name, epochs, steps, printed, highest, batch):
    """Appendix A.2, section 3, and the highest target of the tables with the same data."""
    r = find(f"feddyn-{name}-centralised")
    ((_, e),) = each(r.name)
    assert (e.rounds, e.solver.epochs, e.split) == (epochs, 1, {"name": "iid", "clients": 1})
    assert (e.solver.batch_size, e.solver.clip) == (batch, 10)
    assert [schedules.at(e.solver.lr, t) for t in steps] == pytest.approx(list(steps.values()))
    (line, best), (claim,) = r.lines, r.claims
    assert (line.reported, line.measure) == (printed, Measure("test accuracy", scale=100))
    assert (best.reported, best.measure) == (None, Measure("test accuracy", scale=100, best=True))
    assert f"{highest:g}%" in claim.words
    assert [claim.holds({(best.setting, best.method): x}) for x in (highest, highest - 0.01)] == [True, False]
