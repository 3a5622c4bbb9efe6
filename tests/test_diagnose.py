"""Diagnosis: theorems, step sizes and bounds beside runs, of a task and along a run."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import diagnosis
from fedloom.cli import main
from fedloom.diagnosis import diagnose
from fedloom.diagnosis.simulated import Measure
from fedloom.diagnosis.task_text import bars
from fedloom.diagnosis.verdict import StepSize, verdicts
from fedloom.tasks import Setting
from fedloom.theory import Range

CLIENTS = 6


def problem(clients=CLIENTS):
    """Quadratics with equal weights, with which theorems about everyone hold."""
    federation = dataclasses.replace(fl.quadratics(clients, 4, seed=1), weights=np.full(clients, 1 / clients))
    solver, everyone = fl.Exact(), fl.cohorts.everyone()
    table = {
        "feddyn": Setting(fl.FedDyn(alpha=1.0), solver, everyone, 30),
        "feddr": Setting(fl.FedDR(eta=1.0, alpha=1.0), solver, everyone, 30),
        "fedavg": Setting(fl.FedAvg(), fl.GD(lr=0.1, steps=5), everyone, 30),
        "scaffold": Setting(fl.Scaffold(), fl.GD(lr=0.1, steps=5), everyone, 30),
        "fedpd": Setting(fl.FedPD(), solver, everyone, 30),
    }
    return fl.Task("equal-quadratics", federation, settings={"own": table})


@pytest.fixture(scope="module")
def found():
    with jax.enable_x64(True):
        return diagnose(problem(), "feddyn,feddr,scaffold")


def method(d, name):
    return next(m for m in d.methods if m.name == name)


def curve(m, label):
    return next(c for c in m.simulated.curves if c.label == label)


@pytest.mark.parametrize("name", ["feddyn", "feddr"])
def test_where_all_assumptions_hold_the_bound_holds_in_every_round(found, name):
    m = method(found, name)
    assert m.verdicts[0].status == "holds"
    assert m.simulated.verdict.status == "holds"
    assert m.simulated.promised
    bound, run = curve(m, "bound"), curve(m, "theorem's steps")
    assert len(bound.values) == len(run.values) == 20
    assert np.all(run.values <= bound.values)
    assert np.all(run.values >= 0)
    assert run.values[-1] < run.values[0]


def test_the_left_hand_side_is_that_of_an_independent_loop(found):
    """FedDyn with the theorem's alpha, written here with NumPy: f at the weighted mean of gamma_t = w_t + h_t/alpha."""
    m = method(found, "feddyn")
    assert m.verdicts[0].name in ("feddyn-2", "feddyn-3")
    federation = problem().data
    H, b = np.asarray(federation.hessians), np.asarray(federation.centers)
    L = max(np.linalg.eigvalsh(h).max() for h in H)
    alpha = m.simulated.experiment.algorithm.alpha
    assert alpha == pytest.approx(30 * L)  # both theorems recommend it with everyone
    mu = min(np.linalg.eigvalsh(h).min() for h in H)
    ratio = 1 + mu / alpha if m.verdicts[0].name == "feddyn-3" else 1.0
    best = np.linalg.solve(H.mean(0), np.einsum("kij,kj->i", H, b) / CLIENTS)

    def f(w):
        return np.mean([(w - c) @ h @ (w - c) / 2 for h, c in zip(H, b, strict=True)])

    w, g, h = np.zeros(4), np.zeros((CLIENTS, 4)), np.zeros(4)
    gammas, values = [], []
    for t in range(20):
        gammas.append(w + h / alpha)
        weights = ratio ** np.arange(t + 1)
        values.append(f(np.average(gammas, axis=0, weights=weights)) - f(best))
        theta = np.stack([np.linalg.solve(H[k] + alpha * np.eye(4), H[k] @ b[k] + g[k] + alpha * w) for k in range(6)])
        g = g - alpha * (theta - w)
        h = h - alpha * (theta - w).mean(0)
        w = theta.mean(0) - h / alpha
    np.testing.assert_allclose(curve(m, "theorem's steps").values, values, rtol=1e-8)


def test_step_sizes_are_the_theorems_and_tell_how_far_the_setting_is_beyond(found):
    L = max(np.linalg.eigvalsh(h).max() for h in np.asarray(problem().data.hessians))
    (alpha,) = method(found, "feddyn").steps
    assert alpha.allowed.low == pytest.approx((25 if "2" in method(found, "feddyn").verdicts[0].name else 30) * L)
    assert alpha.own == 1.0
    assert alpha.inside is False
    assert alpha.factor == pytest.approx(alpha.allowed.low)
    assert alpha.words.endswith("times too small")
    eta = next(s for s in method(found, "feddr").steps if s.name == "algorithm.eta")
    assert eta.recommended == pytest.approx(1 / (3 * L))
    assert eta.words.endswith("times too large")
    product = next(s for s in method(found, "scaffold").steps if " * " in s.name)
    assert product.own == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("step", "words", "factor"),
    [
        (StepSize("x", Range(0, 2), 1.0, 2.0), "allowed", 1),
        (StepSize("x", Range(0, 2), 1.0, 5.0), "2.5 times too large", 2.5),
        (StepSize("x", Range(3, math.inf), 3.0, 1.0), "3 times too small", 3),
        (StepSize("x", Range(math.inf, 0), None, 1.0), "no value is allowed", math.inf),
        (StepSize("x", Range(math.nan, math.nan), math.nan, 1.0), "cannot be told", math.nan),
        (StepSize("x", Range(0, 0), 0.0, 0.9), "too large", math.inf),
        (StepSize("x", Range(0, 1), 1.0, None), "", math.nan),
    ],
)
def test_a_step_size_in_words(step, words, factor):
    assert step.words == words
    assert step.factor == pytest.approx(factor, nan_ok=True)


def test_the_constants_are_measured_and_the_table_says_where_they_hold(found):
    H = np.asarray(problem().data.hessians)
    assert found.constants.L.value == pytest.approx(max(np.linalg.eigvalsh(h).max() for h in H), rel=1e-6)
    line = next(line for line in str(found).splitlines() if line.split()[:1] == ["L"])
    assert "for all w" in line
    assert f"{found.constants.L.value:.3g}" in line


def test_a_theorem_may_apply_and_yet_forbid_the_steps(found):
    words = " ".join(str(found).split())
    assert "FedDR, theorem 3.1 applies: " in words
    assert "own step sizes are outside of what it allows" in words
    inside = diagnose(problem(), "feddr", simulate=False, **{"algorithm.eta": 0.1})
    assert "outside" not in str(inside)


def test_methods_without_a_theorem_are_named_and_may_not_be_asked_for():
    d = diagnose(problem(), simulate=False)
    assert d.silent == ("fedpd",)
    assert [m.name for m in d.methods] == ["feddyn", "feddr", "fedavg", "scaffold"]
    assert "No theorem is known here about fedpd." in str(d)
    with pytest.raises(ValueError, match=r"no theorem about 'fedpd'.*feddyn"):
        diagnose(problem(), "fedpd")


def test_a_step_that_diverges_is_said():
    d = diagnose(problem(), "fedavg", **{"solver.lr": 1e12, "solver.steps": 30})
    assert any("diverged" in note for note in d.methods[0].simulated.notes)
    assert curve(d.methods[0], "theorem's steps").values[-1] < 1e3


@pytest.fixture(scope="module")
def logistic():
    """Logistic regression on clients of different sizes, with cohorts and minibatches."""
    rng = np.random.default_rng(0)
    x, owner = rng.normal(size=(90, 3)), np.repeat([0, 1, 2], [15, 30, 45])
    data = fl.by_client(x, (x.sum(1) + owner > 1).astype(int), owner, test=0.1)
    solver, cohort = fl.SGD(0.1, batch_size=5, epochs=2), fl.cohorts.uniform(2)
    table = {"fedavg": Setting(fl.FedAvg(), solver, cohort, 9), "fedprox": Setting(fl.FedProx(), solver, cohort, 9)}
    return diagnose(fl.Task("small", data, fl.models.logistic(3, 2), settings={"own": table}), rounds=3)


def test_the_assumptions_that_fail_are_named(logistic):
    m = method(logistic, "fedavg")
    assert m.verdicts[0].name == "fedavg-2-without-replacement"
    assert m.verdicts[0].status == "fails"
    why = " ".join(m.verdicts[0].because("fails"))
    assert "Weights differ" in why
    assert "Clients make from 6 to 16 local steps." in why
    assert not m.simulated.promised
    assert isinstance(m.simulated.experiment.solver, fl.SGD)
    assert m.simulated.experiment.solver.steps == 16  # the same for all, as the theorem wants
    words = str(logistic)
    for part in ("No theorem says anything about this.", "bound's formula", "one seed", "for all w"):
        assert part in words


def test_on_synthetic_1_1_the_paper_has_cohorts_and_weights_that_fedprox_theorem_does_not_cover():
    e = fl.experiment("synthetic-1-1", "fedprox")
    loaded, L = e.load(), fl.theory.Measured(264.0)
    c = fl.theory.Constants(np.asarray(loaded.federation.weights), 610, L=L, B=fl.theory.Measured(4.0))
    c = dataclasses.replace(c, rho=fl.theory.Measured(0.0), gap=fl.theory.Measured(3.6))
    (v,) = verdicts(e, c, diagnosis.setting_of(e, e.check()))
    why = " ".join(v.because("fails"))
    assert "No client is drawn twice." in why
    assert "Clients make from" in why


def test_the_cohorts_of_fedprox_theorem_and_of_asynchronous_runs():
    e = fl.experiment("quadratics", "fedprox", cohort=fl.cohorts.by_weight(5))
    s = diagnosis.setting_of(e, e.check())
    c = fl.theory.constants(e.load().federation, np.zeros(10))
    (v,) = verdicts(e, c, s)
    assert not any("drawn" in words for words in v.because("fails"))
    late = fl.experiment("quadratics", "feddr", engine="events", system=fl.System(speeds=2.0))
    first, *others = verdicts(late, c, diagnosis.setting_of(late, late.check()))
    assert first.name == "asyncfeddr-4.1"
    assert all(v.status == "fails" for v in (first, *others))  # for which a delay has to be given
    here = fl.experiment("quadratics", "feddr")
    assert "asyncfeddr-4.1" not in [v.name for v in verdicts(here, c, diagnosis.setting_of(here, here.check()))]


def test_what_theorems_are_not_about_is_said():
    for algorithm, solver, word in (
        (fl.FedDANE(pipelined=True), None, "pipelined"),
        (fl.FedAdam(initial_v=0.0), None, "tau^2"),
        (fl.Scaffold(option="I"), None, "option"),
        (fl.Scaffold(first_contact="c"), None, "first_contact"),
        (fl.FedAvg(), fl.SGD(0.1, steps=2, reduction="sum"), "add up"),
        (fl.FedAvg(), fl.SGD(0.1, steps=2, continued=True), "go on"),
    ):
        e = fl.experiment("quadratics", algorithm, solver=solver or fl.GD(0.1, steps=2), cohort=fl.cohorts.everyone())
        said = diagnosis.setting_of(e, e.check()).departures
        assert any(word in words for words in said), (word, said)
    usual = fl.FedAdam(tau=0.1, initial_v=0.1**2)
    e = fl.experiment("quadratics", usual, solver=fl.GD(0.1, steps=2), cohort=fl.cohorts.everyone())
    assert not diagnosis.setting_of(e, e.check()).departures


def test_each_gamma_is_for_its_own_theorem():
    for criterion, algorithm, known in (
        ("relative-gradient", fl.FedProx(), 0.3),
        ("relative-gradient", fl.FedDANE(), None),
        ("relative-distance", fl.FedDANE(), 0.3),
        ("relative-distance", fl.FedProx(), None),
    ):
        e = fl.experiment("quadratics", algorithm, solver=fl.ToTolerance(0.3, criterion))
        assert diagnosis.setting_of(e, e.check()).inexactness == known


def test_minibatches_of_a_pass_are_not_independent(logistic):
    e, sentence = method(logistic, "fedavg").experiment, "Minibatches of a round are drawn independently."
    for solver, status in (
        (fl.SGD(0.1, batch_size=5, steps=2), "fails"),
        (fl.SGD(0.1, batch_size=5, steps=1), "holds"),
        (fl.SGD(0.1, batch_size=None, steps=2), "holds"),
        (fl.GD(0.1, steps=2), "holds"),
    ):
        own = dataclasses.replace(e, solver=solver)
        s = diagnosis.setting_of(own, own.check())
        for name in ("fedavg-1", "fedadam-2", "scaffold-convex"):
            assert fl.theory.THEOREMS[name].check(logistic.constants, s)[sentence].status == status


def test_draws_by_weight_and_replies_are_recorded():
    e = fl.experiment("quadratics", "fedprox", cohort=fl.cohorts.by_weight(5))
    assert diagnosis.setting_of(e, e.check()).by_weight
    e = fl.experiment("quadratics", "fedprox", cohort=fl.cohorts.with_replacement(5))
    assert not diagnosis.setting_of(e, e.check()).by_weight
    late = fl.experiment("quadratics", "feddr", engine="events", buffer=2, system=fl.System(speeds=2.0))
    assert diagnosis.setting_of(late, late.check()).replies == 2


def test_where_no_step_is_allowed_none_is_run(logistic):
    m = method(logistic, "fedprox")
    assert m.simulated.experiment is None
    assert [c.label for c in m.simulated.curves] == ["setting's steps"]
    assert m.steps[0].recommended is None
    assert m.steps[0].words == "no value is allowed"
    assert any("it allows none" in note for note in m.simulated.notes)


def test_relus_are_no_smooth_functions():
    e = fl.experiment("digits", "fedavg")
    s = diagnosis.setting_of(e, e.check())
    assert any("ReLU" in words for words in s.departures)
    e = fl.experiment("synthetic-1-1", "fedavg")
    assert not any("ReLU" in words for words in diagnosis.setting_of(e, e.check()).departures)


def test_large_data_are_evaluated_on_some_examples_of_each_client(monkeypatch):
    loaded = fl.load("digits")
    monkeypatch.setattr("fedloom.diagnosis.simulated.EVALUATION", 0.5 * 2410 * len(loaded.data.split.order))
    measure = Measure.on(loaded, fl.theory.Constants(np.ones(1), 1), 0)
    sizes = np.asarray(measure.federation.known_sizes)
    assert np.all(np.abs(sizes - np.asarray(loaded.data.split.sizes) / 2) <= 0.5)
    assert "some of each client" in measure.notes[0]
    g, own = np.asarray(loaded.federation.grad(loaded.w)), np.asarray(measure.federation.grad(loaded.w))
    assert 0 < np.linalg.norm(g - own) < 0.3 * np.linalg.norm(g)


def test_bars_are_logarithmic():
    found = bars(diagnosis.Curve("x", np.arange(1, 5), np.array([1e-4, 1e-2, 1.0, np.inf])), np.array([1e-4, 1.0]))
    assert found == "▁▅█^"


def run_directory(tmp_path, *more):
    assert (
        main(["run", "quadratics", "--algorithm", "feddyn", "--rounds", "12", "--quiet", "--out", str(tmp_path), *more])
        == 0
    )


def test_along_a_run_the_measured_values_are_those_of_its_models(tmp_path):
    run_directory(tmp_path / "run")
    a = diagnosis.along(tmp_path / "run")
    assert a.source == "repeated"
    assert [p.round for p in a.points][:2] == [0, 1]
    assert a.points[-1].round == 12
    assert any("the very model" in note for note in a.notes)
    result = fl.experiments.read(tmp_path / "run")
    federation = result.experiment.load().federation
    w = jnp.asarray(result.w)
    assert pytest.approx(fl.metrics.dissimilarity(federation, w), rel=1e-3) == a.points[-1].B
    assert a.points[-1].gradient == pytest.approx(fl.metrics.gradient_norm(federation, w), rel=1e-3)
    assert max(p.B for p in a.points) == a.largest.B
    assert "largest after round" in a.words
    assert "still pull apart" in a.words


def test_metrics_in_the_log_are_used(tmp_path):
    run_directory(tmp_path / "run", "--evaluate", "gradient norm,dissimilarity")
    a = diagnosis.along(tmp_path / "run")
    assert a.source == "log"
    assert "nothing was repeated" in a.notes[0]
    rows = {row["round"]: row for row in fl.experiments.read(tmp_path / "run").rows}
    assert all(rows[p.round]["dissimilarity"] == p.B for p in a.points)


def test_a_study_is_not_a_run(tmp_path):
    arguments = ["compare", "quadratics", "--algorithms", "feddyn,feddr", "--rounds", "2", "--seeds", "1", "--quiet"]
    assert main([*arguments, "--out", str(tmp_path / "study")]) == 0
    with pytest.raises(ValueError, match=r"choose one run inside it, such as .*study/fed"):
        diagnosis.along(tmp_path / "study")


def test_the_command_prints_json_and_writes_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose", "quadratics", "--algorithm", "feddyn", "--rounds", "4", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["constants"]["L"]["for all w"] is True
    assert plain["constants"]["sigma_l"]["value"] == 0
    (m,) = plain["methods"]
    assert {t["status"] for t in m["theorems"]} == {"fails"}
    assert m["simulated"]["seeds"] == 1
    assert m["simulated"]["curves"]["theorem's steps"]["rounds"] == [1, 2, 3, 4]
    page = tmp_path / "runs/diagnose-quadratics-1/report.html"
    assert plain["report"] == str(page.relative_to(tmp_path))
    text = page.read_text()
    assert "<svg" in text
    assert "FedDyn, theorem" in text
    assert "http-equiv" in text
    assert {p.name for p in page.parent.iterdir()} == {"report.html", "feddyn.svg", "feddyn.png"}


def test_the_command_follows_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_directory(tmp_path / "run")
    capsys.readouterr()
    assert main(["diagnose", "run", "--quiet"]) == 0
    words = capsys.readouterr().out
    assert "The dissimilarity" in words
    assert "runs/diagnose-run-1/report.html" in words
    assert main(["diagnose", "run", "--json", "--out", "there"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["source"] == "repeated"
    assert (tmp_path / "there/dissimilarity.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "There is no task 'nosuch'"),
        (["runs/nosuch"], "There is no directory runs/nosuch"),
        (["."], "is not the directory of a run"),
        (["digits", "--algorithm", "fedynn"], "Did you mean 'feddyn'?"),
        (["digits", "--algorithm", "fedpd"], "no theorem about 'fedpd' is known here; choose from fedadagrad"),
        (["digits", "--variant", "x"], "has no variant 'x'"),
        (["digits", "--rounds", "0"], "rounds must be a positive integer"),
        (["digits", "--effort", "0", "--algorithm", "fedavg"], "effort must be a positive number"),
        (["digits", "--algorithm.alfa", "1", "--algorithm", "feddyn"], "'alfa'"),
        (["digits", "--out", "taken"], "taken already exists and is not empty"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").touch()
    assert main(["diagnose", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_run_has_its_own_fields(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    assert main(["diagnose", "run", "--algorithm", "feddyn"]) == 2
    assert "--algorithm: a run has its own" in capsys.readouterr().err


def test_an_experiment_has_its_own_algorithm():
    with pytest.raises(ValueError, match="an experiment has its own"):
        diagnose(fl.experiment(problem(), "feddyn"), "feddyn")
