"""Reproductions: the registry, the papers' settings typed again here, and a short run."""

import dataclasses

import pytest

from fedloom import schedules
from fedloom.algorithms import FedDANE, FedDR, FedPD, FedProx
from fedloom.cohorts import bernoulli, everyone, uniform
from fedloom.experiments.study import Study, read_study
from fedloom.reproductions import REPRODUCTIONS, find, reproduce, text
from fedloom.tasks import TASKS, Measure

EMBEDDED = [name for name, r in REPRODUCTIONS.items() if not r.needs]
DOWNLOADED = [name for name, r in REPRODUCTIONS.items() if r.needs]
SETS = {"Synthetic-IID": "iid", "Synthetic(0, 0)": "0-0", "Synthetic(0.5, 0.5)": "0.5-0.5", "Synthetic(1, 1)": "1-1"}


# The registry.


def test_what_runs_without_a_download():
    figures = ["feddane-figure1", "feddane-figure2", "feddane-figure3", "feddr-figure2", "feddr-figure3"]
    assert ["fedprox-stragglers", *figures, "feddyn-table6", "speedup-n", "speedup-K"] == EMBEDDED


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_experiments_can_be_run(name):
    """Data are found and the settings agree with them; one for each task and split, since the others share them."""
    kinds = {(e.task, str(e.split)): e for _, e in find(name).runs(seeds=[0])}
    for e in kinds.values():
        e.check()


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_figure_has_a_run_and_a_metric_that_the_task_has(name):
    r = find(name)
    runs = dict(r.runs())
    assert {line.run for line in r.lines} == set(runs)
    for line in r.lines:
        task = TASKS[runs[line.run].task]
        own = ["own train loss"] if runs[line.run].own_models else []
        assert line.measure.metric in ["train loss", "test loss", *(f"test {m.name}" for m in task.metrics), *own]
        assert r.needs == task.needs
        if line.measure.metric == "train loss":  # which is not evaluated on many examples unless it is asked for
            assert runs[line.run].evaluate == ("train", "test")


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_claim_is_about_figures_that_there_are(name):
    """A misspelt setting or method would be a claim that is never checked."""
    r = find(name)
    figures = {(line.setting, line.method): float(i + 1) for i, line in enumerate(r.lines)}
    for claim in r.claims:
        assert isinstance(claim.holds(figures), bool)
        assert claim.setting in {"", *(line.setting for line in r.lines)}


@pytest.mark.parametrize("paper", ["feddane", "feddr", "feddyn", "speedup", "fedopt"])
def test_every_paper_has_experiments_on_downloaded_data(paper):
    assert [name for name in DOWNLOADED if name.startswith(paper)]


def test_all_that_tasks_report_is_compared_with():
    """Every number that a task reports stands beside one of ours, run with the settings of its variant."""
    wanted = [
        (task.name, r.where, r.measure.words, method, value, brief(task.setting(method, r.variant)))
        for task in TASKS.values()
        for r in task.reported
        for method, value in r.values.items()
    ]
    ours = [
        (e.task, line.where, line.measure.words, line.method, line.reported, brief(e))
        for r in REPRODUCTIONS.values()
        for line in r.lines
        if line.reported is not None
        for e in [r.experiments[line.run]]
    ]
    assert sorted(ours) == sorted(wanted)


def brief(setting):
    return f"{setting.algorithm}, {setting.solver}, {setting.cohort}"


# Settings, typed from the papers and not read from tasks.


def each(name):
    return find(name).experiments.items()


def test_feddane_figure_1():
    assert len(find("feddane-figure1").experiments) == 4 * (2 + 5)
    for run, e in each("feddane-figure1"):
        setting = next(s for s in SETS if run.startswith(s))
        assert e.task == f"synthetic-{SETS[setting]}"
        assert e.cohort == uniform(10)
        assert (e.solver.lr, e.solver.batch_size, e.solver.epochs) == (0.01, 10, 20)
    mus = [e.algorithm.mu for _, e in each("feddane-figure1") if isinstance(e.algorithm, FedDANE)]
    assert mus == 4 * [0.0, 0.001, 0.01, 0.1, 1.0]
    assert {e.algorithm.mu for _, e in each("feddane-figure1") if isinstance(e.algorithm, FedProx)} == {1.0}


def test_feddane_figure_2():
    cohorts = [e.cohort for _, e in each("feddane-figure2")]
    assert cohorts == 4 * [uniform(1), uniform(5), uniform(10), everyone()]
    assert {e.solver.epochs for _, e in each("feddane-figure2")} == {20}


def test_feddane_figure_3():
    assert {e.cohort for _, e in each("feddane-figure3")} == {everyone()}
    assert {e.solver.epochs for _, e in each("feddane-figure3")} == {1}


@pytest.mark.parametrize(("figure", "cohort"), [("feddr-figure2", everyone()), ("feddr-figure3", uniform(10))])
def test_feddr_figures(figure, cohort):
    scripts = {  # FedProx's mu, FedPD's eta, FedDR's eta
        "Synthetic-IID": (0.1, 10, 100),
        "Synthetic(0, 0)": (0.1, 10, 100),
        "Synthetic(0.5, 0.5)": (1, 1, 500),
        "Synthetic(1, 1)": (1, 10, 1000),
    }
    for setting, (mu, fedpd_eta, eta) in scripts.items():
        of = {run.removeprefix(setting + ", "): e for run, e in each(figure) if run.startswith(setting)}
        assert list(of) == ["fedavg", "fedprox", "fedpd", "feddr"]
        assert of["fedprox"].algorithm == FedProx(mu)
        assert of["fedpd"].algorithm == FedPD(fedpd_eta)
        assert of["feddr"].algorithm == FedDR(eta, 1.95)
        assert of["fedpd"].cohort == everyone()
        for name, e in of.items():
            assert e.cohort == cohort or name == "fedpd"
            assert (e.solver.lr, e.solver.batch_size, e.solver.epochs) == (0.01, 10, 20)


def test_feddr_figure_3_has_equal_bytes():
    """10 users of 30 for R rounds send what 30 users send in R / 3."""
    for setting in SETS:
        rounds = {m: find("feddr-figure3").experiments[f"{setting}, {m}"].rounds for m in ("feddr", "fedpd")}
        assert 0 <= 10 * rounds["feddr"] - 30 * rounds["fedpd"] < 30


def test_feddyn_table_6():
    table = {  # the loss, then FedDyn, SCAFFOLD, FedAvg, FedProx
        "homogeneous": (0.0603, 32, 70, 136, 49),
        "type1": (1.5717, 17, 88, 20, 18),
        "type2": (0.1205, 150, 164, 274, 275),
        "type3": (0.0854, 34, 260, 79, 106),
    }
    lines = find("feddyn-table6").lines
    for kind, (loss, *values) in table.items():
        of = [line for line in lines if line.setting.startswith(kind)]
        assert [line.method for line in of] == ["feddyn", "scaffold", "fedavg", "fedprox"]
        assert [line.reported for line in of] == values
        assert {line.measure for line in of} == {Measure("train loss", loss, "models")}
    for _, e in each("feddyn-table6"):
        assert e.cohort == bernoulli(0.1)
        assert (e.solver.batch_size, e.solver.weight_decay, e.evaluate_every) == (10, 1e-5, 1)


def test_speedup_on_digits():
    cells = [(e.split["p"], e.cohort, e.solver.epochs) for _, e in each("speedup-n")]
    cohorts = (uniform(10), uniform(50), everyone())
    assert cells == [(p, cohort, 5) for p in (1, 2, 5, 10) for cohort in cohorts]
    cells = [(e.split["p"], e.cohort, e.solver.epochs) for _, e in each("speedup-K")]
    assert cells == [(p, cohort, k) for p in (1, 2, 5) for cohort in (uniform(10), everyone()) for k in (1, 5, 10)]
    for _, e in [*each("speedup-n"), *each("speedup-K")]:
        assert (e.solver.lr, e.algorithm.lr, e.weights, e.split["clients"]) == (0.1, 1.0, "uniform", 100)


def test_figures_of_downloaded_data():
    def values(name):
        return {(line.setting, line.method): line.reported for line in find(name).lines}

    target = "10%, models to test accuracy 0.823"
    assert values("feddyn-cifar10-cnn-iid")[target, "fedavg"] == 994
    assert find("feddyn-cifar10-cnn-iid-100%").target == ("test accuracy", 0.85)
    assert values("fedopt-emnist-ae")["paper, 1000 x test mse, mean of the last 100 rounds", "fedyogi"] == 0.98
    decay = find("fedopt-emnist-cr-ExpDecay")
    assert {type(e.solver.lr) for e in decay.experiments.values()} == {schedules.staircase}
    assert [line.reported for line in decay.lines] == [85.3, 86.2, 86.2, 85.8, 85.2]
    assert [line.reported for line in find("speedup-mnist-2nn-digits2-n=100").lines] == [7, 17]
    assert find("speedup-mnist-2nn-digits2-n=100").target == ("test accuracy", 0.95)
    for name in ("feddyn-cifar10-cnn-iid", "speedup-cifar10-resnet-digits2"):  # a target is met in any round
        assert {e.evaluate_every for e in find(name).experiments.values()} == {1}


# Running.


def test_a_short_run_from_its_start_to_its_text(tmp_path, monkeypatch):
    """One of the table's four sets, to save time."""
    whole = find("feddyn-table6")
    of = [line for line in whole.lines if line.setting.startswith("type2")]
    part = {
        "experiments": {line.run: dataclasses.replace(whole.experiments[line.run], plan="1") for line in of},
        "lines": tuple(of),
        "claims": tuple(claim for claim in whole.claims if claim.setting.startswith("type2")),
    }
    monkeypatch.setitem(REPRODUCTIONS, whole.name, dataclasses.replace(whole, **part))
    made = reproduce("feddyn-table6", seeds=[3], rounds=2, directory=tmp_path / "runs")
    assert made.about == {"kind": "reproduction", "name": "feddyn-table6"}
    assert made.target == ("train loss", 0.1205)
    assert [r.name.split()[-1] for r in made.results] == ["feddyn", "scaffold", "fedavg", "fedprox"]
    assert {(r.experiment.seed, r.experiment.rounds) for r in made.results} == {(3, 2)}
    words = text(made)
    lines = words.splitlines()
    assert lines[0].startswith("feddyn-table6: ")
    assert next(line for line in lines if "fedprox" in line).split()[-1] == "275"
    assert sum(line.startswith("undecided  type2") for line in lines) == 1  # no method is there after two rounds
    assert "These runs have only 2 of 300 rounds" in words
    assert "gamma" in words
    assert text(read_study(tmp_path / "runs")) == words


def test_rounds_shorten_all_runs_in_proportion():
    r = find("feddr-figure3")
    rounds = {e.rounds for _, e in r.runs(rounds=30)}
    assert rounds == {30, 9}  # 33 of 100 rounds, rounded down
    assert {e.rounds for _, e in r.runs(rounds=200)} == {200, 66}
    assert r.runs(seeds=(4, 5))[1][1].seed == 5


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"no experiment 'feddane-figur1' to .* Did you mean 'feddane-figure1'"):
        reproduce("feddane-figur1")


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"rounds": 0}, "rounds must be a positive integer, got 0"), ({"seeds": []}, "seeds must list at least one seed")],
)
def test_bad_numbers_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        reproduce("feddyn-table6", **fields)


def test_missing_data_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="Run `fedloom download mnist`"):
        reproduce("speedup-mnist-lr-digits2", rounds=1)


def test_another_study_has_no_outcome():
    with pytest.raises(ValueError, match="'mine' was not made by `fedloom reproduce`"):
        text(Study("mine", []))
