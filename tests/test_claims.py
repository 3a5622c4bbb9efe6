"""What reproductions measure in runs, and the papers' claims: on figures made by hand."""

import math

import pytest

from fedloom.cli.listing import show
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.reproductions import REPRODUCTIONS, find, outcome
from fedloom.reproductions.reproduction import COUNTS, Claim, Line, Reproduction, comparable, value_of
from fedloom.tasks import TASKS, Measure
from fedloom.tasks.reported import COUNTED

SETS = ("Synthetic-IID", "Synthetic(0, 0)", "Synthetic(0.5, 0.5)", "Synthetic(1, 1)")


# Measures.


def result(name, values, metric="train loss", rounds=None, larger=False, up=1.0, diverged=False):
    """A run with one client and a model of one byte, evaluated every round; `up` vectors sent in each."""
    rows = [
        {"round": t, metric: v, "exchanges": t, "messages": 2 * t, "bytes up": up * t, "bytes down": up * t}
        | {"simulated seconds": 60.0 * t}
        for t, v in enumerate(values)
    ]
    if diverged:
        rows.append({"round": len(values), "diverged": "The training loss is nan."})
    (_, e), *_ = REPRODUCTIONS["speedup-n"].runs([0], rounds or max(1, len(values) - 1))
    return Result(name, e, rows, {"metrics": {metric: larger}, "model bytes": 1})


def test_the_end_is_the_mean_of_the_last_rounds():
    assert value_of(Measure("train loss", last=2), result("a", [9, 8, 4, 1])) == 2.5
    assert value_of(Measure("train loss", last=10), result("a", [9, 4, 1])) == 2.5  # not the initial model
    assert value_of(Measure("test mse", last=1, scale=1000), result("a", [9, 8, 4], "test mse")) == 4000


def test_a_diverged_run_is_the_worst():
    assert value_of(Measure("train loss"), result("a", [9, 8], diverged=True)) == math.inf
    assert (
        value_of(Measure("test accuracy"), result("a", [0, 1], "test accuracy", larger=True, diverged=True))
        == -math.inf
    )


def test_what_is_counted_to_a_target():
    """The loss is 3 in round 2; who sends two vectors in a round has sent four by then."""
    run = result("a", [9, 5, 3, 1], up=2.0)
    assert value_of(Measure("train loss", 3.0, "rounds"), run) == 2
    assert value_of(Measure("train loss", 3.0, "models"), run) == 4
    assert value_of(Measure("train loss", 3.0, "simulated seconds"), run) == 120
    assert value_of(Measure("train loss", 0.5, "models"), run) == math.inf


def test_the_mebibytes_of_table_2_of_the_linear_speedup():
    """2NN has 199,210 weights; three rounds cost 4.56 "MB", down and up, and 9.12 with SCAFFOLD's control variates."""
    measure = Measure("train loss", 3.0, "MiB")
    for vectors, published in ((1, 4.56), (2, 9.12)):
        run = result("a", [9, 8, 7, 3], up=4.0 * 199_210 * vectors)
        assert value_of(measure, run) == pytest.approx(published, abs=0.005)


def test_everything_that_can_be_said_to_be_counted_is():
    assert set(COUNTS) == set(COUNTED)


def test_every_reported_measure_can_be_read_off_a_run_and_said():
    reports = [(task, r) for task in TASKS.values() for r in task.reported]
    assert reports
    for task, r in reports:
        metrics = {"train loss": False} | {f"test {m.name}": m.larger_is_better for m in task.metrics}
        end = 0.25 if r.measure.target is None else r.measure.target
        run = result("a", [0.0 if metrics[r.measure.metric] else 9.0, end], r.measure.metric)
        run.about["metrics"] = metrics
        assert math.isfinite(value_of(r.measure, run))
        assert r.words == f"{r.where}, {r.variant}: {r.measure.words}"


def test_what_a_paper_reports_is_shown_with_the_task():
    lines = show(TASKS["mnist-2nn-iid"]).splitlines()
    i = lines.index("reported in table 2, 10%: models to test accuracy 0.982:")
    assert lines[i + 1] == "  feddyn 100, scaffold 142, fedavg 588, fedprox 362"


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (Measure("train loss", 0.0603, "models"), "models to train loss 0.0603"),
        (Measure("test accuracy", 0.95, "rounds"), "rounds to test accuracy 0.95"),
        (Measure("test accuracy", last=100, scale=100), "100 x test accuracy, mean of the last 100 rounds"),
        (Measure("own train loss"), "own train loss, mean of the last 10 rounds"),
    ],
)
def test_the_words_of_a_measure(measure, words):
    assert measure.words == words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target": 0.5}, "counted must be one of rounds, models, MiB, simulated seconds for a target, got None"),
        ({"target": 0.5, "counted": "bytes"}, "counted must be .* got 'bytes'"),
        ({"counted": "rounds"}, "Counting rounds needs a target for 'train loss'"),
        ({"last": 0}, "last must be a positive number of rounds, got 0"),
    ],
)
def test_a_measure_that_cannot_be_taken_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Measure("train loss", **fields)


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
    assert list(verdicts(made, "fewest").values()) == ["holds", "holds", "does not hold", "undecided"]
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
