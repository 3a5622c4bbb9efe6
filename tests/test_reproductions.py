"""Reproductions: the papers' settings typed again here, claims on figures made by hand, and a short run."""

import dataclasses
import math

import pytest

from fedloom import schedules
from fedloom.algorithms import FedDANE, FedDR, FedPD, FedProx
from fedloom.cohorts import bernoulli, everyone, uniform
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study, read_study
from fedloom.reproductions import REPRODUCTIONS, find, outcome, reproduce, text
from fedloom.reproductions.published import measure
from fedloom.reproductions.reproduction import Claim, Line, Measure, Reproduction, comparable
from fedloom.tasks import TASKS, Reported

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
    """Every number in a task's reports stands beside one of ours."""
    wanted = {(t.name, r.what, method): v for t in TASKS.values() for r in t.reported for method, v in r.values.items()}
    ours = [
        (e.task, line.method, line.reported)
        for r in REPRODUCTIONS.values()
        for line in r.lines
        if line.reported is not None
        for e in [r.experiments[line.run]]
    ]
    assert sorted(ours) == sorted((task, method, value) for (task, _, method), value in wanted.items())


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


# Measures.


def result(name, values, metric="train loss", rounds=None, larger=False, up=1.0, diverged=False):
    """A run with one client and a model of one byte, evaluated every round; `up` vectors sent in each."""
    rows = [
        {"round": t, metric: v, "exchanges": t, "messages": 2 * t, "bytes up": up * t, "bytes down": up * t}
        for t, v in enumerate(values)
    ]
    if diverged:
        rows.append({"round": len(values), "diverged": "The training loss is nan."})
    (_, e), *_ = REPRODUCTIONS["speedup-n"].runs([0], rounds or max(1, len(values) - 1))
    return Result(name, e, rows, {"metrics": {metric: larger}, "model bytes": 1})


def test_the_end_is_the_mean_of_the_last_rounds():
    assert Measure("train loss", last=2).of(result("a", [9, 8, 4, 1])) == 2.5
    assert Measure("train loss", last=10).of(result("a", [9, 4, 1])) == 2.5  # not the initial model
    assert Measure("test mse", last=1, scale=1000).of(result("a", [9, 8, 4], "test mse")) == 4000


def test_a_diverged_run_is_the_worst():
    assert Measure("train loss").of(result("a", [9, 8], diverged=True)) == math.inf
    assert Measure("test accuracy").of(result("a", [0, 1], "test accuracy", larger=True, diverged=True)) == -math.inf


def test_models_and_rounds_to_a_target():
    """The loss is 3 in round 2; who sends two vectors in a round has sent four by then."""
    run = result("a", [9, 5, 3, 1], up=2.0)
    assert Measure("train loss", 3.0, "rounds").of(run) == 2
    assert Measure("train loss", 3.0, "models").of(run) == 4
    assert Measure("train loss", 0.5).of(run) == math.inf


@pytest.mark.parametrize(
    ("what", "variant", "measured"),
    [
        ("models sent by a device to reach training loss 0.5", None, Measure("train loss", 0.5, "models")),
        ("models sent by a device to reach 84.5% test accuracy, 1%", "1%", Measure("test accuracy", 0.845, "models")),
        ("rounds to 95% test accuracy, n=10", "n=10", Measure("test accuracy", 0.95, "rounds")),
        ("test accuracy in %, mean of the last 100 rounds", None, Measure("test accuracy", last=100, scale=100)),
        ("1000 x test mse, mean of the last 100 rounds", None, Measure("test mse", last=100, scale=1000)),
        ("test accuracy in %, with ExpDecay", "ExpDecay", Measure("test accuracy", last=100, scale=100)),
    ],
)
def test_the_words_of_a_report_say_what_is_measured(what, variant, measured):
    assert measure(Reported(what, {})) == (variant, measured)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="'seconds to an accuracy' does not say what was measured"):
        measure(Reported("seconds to an accuracy", {}))


def test_comparable():
    assert comparable(1.0, 1.09)
    assert comparable(1.09, 1.0)
    assert not comparable(1.0, 1.11)
    assert not comparable(math.inf, math.inf)


# Claims.


def study(name, values, **fields):
    """A study of one round in which each run ends at the given value, at 8 if none is given."""
    r = find(name)
    made = {line.run: result(line.run, [9, 8], **fields) for line in r.lines}
    for line in r.lines:
        made[line.run].rows[1][line.measure.metric] = values.get((line.setting, line.method), 8)
    return Study("", list(made.values()), about={"kind": "reproduction", "name": name})


def verdicts(made, words):
    return {row.setting: row.verdict for row in outcome(made) if words in row.paper}


def test_feddane_is_worse_only_if_its_best_mu_is():
    losses = {(s, m): 1.0 for s in SETS for m in ("fedavg", "fedprox")}
    losses |= {(s, f"feddane, mu={mu}"): 2.0 for s in SETS for mu in ("0", "0.001", "0.01", "0.1", "1")}
    losses["Synthetic(1, 1)", "feddane, mu=0.01"] = 0.9
    losses["Synthetic(0, 0)", "fedavg"] = 3.0  # worse than one of the two is not worse than both
    found = verdicts(study("feddane-figure1", losses), "ends above both")
    assert found == {
        "Synthetic(0, 0)": "does not hold",
        "Synthetic(0.5, 0.5)": "holds",
        "Synthetic(1, 1)": "does not hold",
    }


@pytest.mark.parametrize(("loss", "verdict"), [(1.05, "holds"), (0.5, "holds"), (1.2, "does not hold")])
def test_feddane_is_comparable_on_iid_data(loss, verdict):
    losses = {
        ("Synthetic-IID", "fedavg"): 1.0,
        ("Synthetic-IID", "fedprox"): 1.5,
        ("Synthetic-IID", "feddane, mu=0"): loss,
    }
    assert verdicts(study("feddane-figure1", losses), "at most 10%") == {"Synthetic-IID": verdict}


def test_participation_in_feddane():
    setting = "Synthetic(0.5, 0.5)"
    losses = {(setting, "1 of 30"): 3.0, (setting, "10 of 30"): 1.0, (setting, "30 of 30"): 2.0}
    assert verdicts(study("feddane-figure2", losses), "low participation hurts")[setting] == "holds"
    assert verdicts(study("feddane-figure2", losses), "do not help")[setting] == "holds"
    losses[setting, "30 of 30"] = 0.5
    assert verdicts(study("feddane-figure2", losses), "do not help")[setting] == "does not hold"
    losses[setting, "1 of 30"] = 0.1
    assert verdicts(study("feddane-figure2", losses), "low participation hurts")[setting] == "does not hold"


def test_feddr_is_best_on_most_sets():
    losses = {(s, m): 1.0 for s in SETS for m in ("fedavg", "fedprox", "fedpd, own")}
    losses |= {(s, "feddr, own"): 0.5 for s in SETS}
    losses["Synthetic-IID", "feddr, own"] = 2.0
    assert verdicts(study("feddr-figure3", losses), "overall") == {"": "holds"}
    losses["Synthetic(1, 1)", "feddr, own"] = 1.0  # a tie is no win
    assert verdicts(study("feddr-figure3", losses), "overall") == {"": "does not hold"}


def test_splitting_methods_against_averages():
    s = "Synthetic(1, 1)"
    losses = {(s, "feddr, own"): 0.5, (s, "fedpd, own"): 0.52, (s, "fedprox"): 0.8, (s, "fedavg"): 0.9}
    made = study("feddr-figure2", losses)
    for words in ("both end below", "comparable", "FedProx ends below FedAvg"):
        assert verdicts(made, words)[s] == "holds"
    made = study("feddr-figure2", losses | {(s, "fedpd, own"): 0.85, (s, "fedavg"): 0.7})
    for words in ("both end below", "comparable", "FedProx ends below FedAvg"):
        assert verdicts(made, words)[s] == "does not hold"


def test_sampled_methods_against_fedavg_and_fedpd():
    s = "Synthetic(1, 1)"
    losses = {(s, "feddr, own"): 0.5, (s, "fedpd, own"): 0.7, (s, "fedprox"): 0.8, (s, "fedavg"): 0.9}
    made = study("feddr-figure3", losses)
    assert verdicts(made, "end below FedAvg")[s] == "holds"
    assert verdicts(made, "FedProx is behind FedPD")[s] == "holds"
    made = study("feddr-figure3", losses | {(s, "fedpd, own"): 0.95})  # one that ends above is enough
    assert verdicts(made, "end below FedAvg")[s] == "does not hold"
    assert verdicts(made, "FedProx is behind FedPD")[s] == "does not hold"


def test_the_claims_about_feddr_are_on_what_the_authors_code_measures():
    """FedDR and FedPD keep a model of each user, whose own loss is logged beside the server's."""
    for name in ("feddr-figure2", "feddr-figure3"):
        for run, e in find(name).experiments.items():
            assert e.own_models == run.endswith(("feddr", "fedpd"))
    s = "Synthetic(1, 1)"
    losses = {(s, "feddr, own"): 0.5, (s, "fedpd, own"): 0.5, (s, "fedprox"): 0.8, (s, "fedavg"): 0.9}
    for server in (0.1, 8.0):  # the server's models change nothing
        made = study("feddr-figure2", losses | {(s, "feddr"): server, (s, "fedpd"): server})
        assert verdicts(made, "both end below")[s] == "holds"


@pytest.mark.parametrize("name", ["feddr-femnist", "feddane-femnist", "feddane-shakespeare", "feddane-sent140"])
def test_one_method_against_all_others_on_downloaded_data(name):
    """FedDR is claimed to end below all others, FedDANE above."""
    r = find(name)
    method, sign = ("feddr", -1) if name.startswith("feddr") else ("feddane", 1)
    (claim,) = r.claims
    losses = {(line.setting, line.method): 2.0 + 0.1 * i for i, line in enumerate(r.lines)}
    setting = r.lines[0].setting
    for loss, verdict in ((2.0 + sign, "holds"), (2.05, "does not hold")):
        made = study(name, losses | {(setting, method): loss})
        assert verdicts(made, claim.words) == {setting: verdict}


def test_feddyn_sends_the_fewest_models():
    """One round against two, of which SCAFFOLD's cost double; in type 2 a tie; type 3's target is never reached."""
    r = find("feddyn-table6")
    loss = {"homogeneous": 0.05, "type1": 1.0, "type2": 0.1}
    results = []
    for line in r.lines:
        end = loss.get(line.setting.split(",")[0], 5.0)
        curve = [9, end] if line.method == "feddyn" and end != 0.1 else [9, 9, end]
        results.append(result(line.run, curve, up=2.0 if line.method == "scaffold" else 1.0))
    made = Study("", results, about={"kind": "reproduction", "name": r.name})
    assert list(verdicts(made, "fewest").values()) == ["holds", "holds", "does not hold", "cannot be said"]
    rows = {(row.setting.split(",")[0], row.method): row for row in outcome(made)}
    assert (rows["type1", "scaffold"].ours, rows["type1", "scaffold"].paper) == ("4", "88")
    assert rows["type3", "feddyn"].ours == "not reached"


def test_workers_and_classes():
    losses = {(f"digits_{p}", f"n={n}"): 1 / p + 1 / (n * p) for p in (1, 2, 5, 10) for n in (10, 50, 100)}
    made = study("speedup-n", losses)
    assert set(verdicts(made, "more slowly").values()) == {"holds"}
    assert verdicts(made, "more prominent") == {"": "holds"}
    assert verdicts(made, "n=10: the fewer") == {"": "holds"}
    assert verdicts(made, "n=10: 5 digits") == {"": "does not hold"}  # 0.2 and 0.1 are not comparable
    turned = {key: -value for key, value in losses.items()}
    made = study("speedup-n", turned)
    for words in ("more slowly", "more prominent", "n=100: the fewer"):
        assert set(verdicts(made, words).values()) == {"does not hold"}


def test_local_steps():
    def losses(of_k, of_n, of_p):
        return {
            (f"digits_{p}, n={n}", f"K={k}"): 10 - of_k * k - of_n * n - of_p * p
            for p in (1, 2, 5)
            for n in (10, 100)
            for k in (1, 5, 10)
        }

    made = study("speedup-K", losses(0.01, 0.01, 1))
    assert set(verdicts(made, "local steps help").values()) == {"holds"}
    assert verdicts(made, "slight") == {"": "holds"}
    worse = {("digits_5, n=10", "K=10"): 20.0}  # 5 epochs help, but 10 do not
    made = study("speedup-K", losses(0.01, 0.01, 1) | worse)
    assert verdicts(made, "local steps help")["digits_5, n=10"] == "does not hold"
    made = study("speedup-K", losses(-0.2, 0.01, 1))
    assert set(verdicts(made, "local steps help").values()) == {"does not hold"}
    assert verdicts(made, "slight") == {"": "does not hold"}


def test_adaptive_methods_are_better_in_accuracy_and_in_error():
    for name, best in (("fedopt-emnist-cr", 0.9), ("fedopt-emnist-ae", 0.1)):
        metric = find(name).lines[0].measure.metric
        values = {(line.setting, line.method): 0.5 for line in find(name).lines}
        setting = find(name).lines[0].setting
        for methods, verdict in ((("fedadam", "fedyogi"), "holds"), (("fedadam",), "does not hold")):
            made = study(name, values | {(setting, m): best for m in methods}, metric=metric)
            assert verdicts(made, "FedAdam and FedYogi") == {setting: verdict}


def test_scaffold_counts_twice():
    name = "speedup-mnist-lr-digits2"
    for fedavg_rounds, verdict in ((3, "holds"), (4, "does not hold")):  # 2 rounds of SCAFFOLD cost 4
        made = Study(
            "",
            [
                result("scaffold", [0, 0, 1], "test accuracy", larger=True),
                result("fedavg", [0] * fedavg_rounds + [1], "test accuracy", larger=True),
            ],
            about={"kind": "reproduction", "name": name},
        )
        assert list(verdicts(made, "communicates less").values()) == [verdict]


# What is printed.


def small(**fields):
    (_, e), *_ = find("speedup-n").runs([0], 1)
    lines = (Line("s", "a", "a", Measure("train loss"), 0.25), Line("s", "b", "b", Measure("train loss")))
    claims = (Claim("b ends below a", lambda f: f["s", "b"] < f["s", "a"], "s"),)
    return Reproduction("small", "A small one.", "A paper", {"a": e, "b": e}, lines, claims, **fields)


def test_mean_and_standard_deviation_over_seeds():
    made = Study("", [result("a", [9, 1]), result("a", [9, 2]), result("a", [9, 3]), result("b", [9, 0.5])])
    a, b, claim = small().outcome(made)
    assert a == ("s", "a", "2 +- 1", "0.25", "")
    assert b == ("s", "b", "0.5", "", "")
    assert claim == ("s", "", "", "b ends below a", "holds")


def test_a_seed_that_diverged_is_said_and_counts_as_the_worst():
    made = Study("", [result("a", [9, 1]), result("b", [9, 0.5]), result("b", [9, 0.5], diverged=True)])
    _, b, claim = small().outcome(made)
    assert b.ours == "0.5, diverged 1x"
    assert claim.verdict == "does not hold"


def test_runs_that_are_not_over_are_not_compared():
    made = Study("", [result("a", [9, 1]), result("b", [9, 0.5], rounds=50)])
    _, b, claim = small().outcome(made)
    assert (b.ours, claim.verdict) == ("not run", "not run")


def test_a_figure_needs_a_name_of_its_own():
    line = Line("s", "a", "a", Measure("train loss"))
    with pytest.raises(ValueError, match="two figures have the same setting and method"):
        Reproduction("twice", "", "", {}, (line, line), ())


# Running.


def test_a_short_run_from_its_start_to_its_text(tmp_path, monkeypatch):
    """One of the table's four sets, to save time."""
    whole = find("feddyn-table6")
    of = [line for line in whole.lines if line.setting.startswith("type2")]
    part = {
        "experiments": {line.run: whole.experiments[line.run] for line in of},
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
    assert sum(line.startswith("cannot be said  type2") for line in lines) == 1  # nobody is there after two rounds
    assert "These runs have 2 rounds of 300" in words
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


@pytest.mark.parametrize(("fields", "words"), [({"rounds": 0}, "rounds must be"), ({"seeds": []}, "seeds must have")])
def test_bad_numbers_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        reproduce("feddyn-table6", **fields)


def test_missing_data_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="Run `fedloom download mnist`"):
        reproduce("speedup-mnist-lr-digits2", rounds=1)


def test_another_study_has_no_outcome():
    with pytest.raises(ValueError, match="'mine' is not one that `fedloom reproduce` made"):
        text(Study("mine", []))
