"""Step sizes from theory: that they are the theorems', are used, and are where a tuning starts."""

import dataclasses
import json
import math
import pathlib
import shutil
import tomllib

import numpy as np
import pytest

import fedloom as fl
from fedloom.cli import main
from fedloom.diagnosis import PRACTICE, from_theory, suggest
from fedloom.diagnosis.starts import Usual, write_new
from fedloom.experiments import experiment, from_toml, read_study, resume_tuning, tune
from fedloom.theory import UNKNOWN, Constants, Measured

CLIENTS, STEPS, ROUNDS = 8, 5, 60


def federation(seed=0):
    """Equal weights, so that most theorems apply; the largest and the smallest eigenvalue are known."""
    made = fl.quadratics(CLIENTS, 3, seed)
    hessians = np.array(made.hessians) / 2
    hessians[0] = np.diag([4.0, 1.0, 0.25])
    return dataclasses.replace(made, hessians=hessians, weights=np.full(CLIENTS, 1 / CLIENTS))


LARGEST = 4.0
SMALLEST = min(np.linalg.eigvalsh(h)[0] for h in federation().hessians)
EVEN = fl.Task("even", federation, metrics=())


def even(algorithm, cohort=None, solver=None, **changes):
    return experiment(
        EVEN,
        algorithm,
        solver=solver or fl.GD(0.3, steps=STEPS),
        cohort=cohort or fl.cohorts.everyone(),
        rounds=ROUNDS,
        **changes,
    )


def smallest_gap(e):
    rows = fl.run(e).rows
    return rows[-1]["train loss"] - best(), rows[0]["train loss"] - best()


def best():
    problem = federation()
    w = problem.optimum()
    return float(np.mean([(w - c) @ h @ (w - c) / 2 for h, c in zip(problem.hessians, problem.centers, strict=True)]))


HALF = fl.cohorts.uniform(CLIENTS // 2)  # m/P = 2
NUMBERS = {  # by hand from the papers, with L = 4, K = 5, m = 8
    "fedavg": (fl.FedAvg(), None, {"algorithm.lr": math.sqrt(40), "solver.lr": 1 / (8 * 20)}),
    "scaffold": (fl.Scaffold(), None, {"algorithm.lr": math.sqrt(8), "solver.lr": 1 / (81 * 4 * 5 * math.sqrt(8))}),
    "feddyn": (fl.FedDyn(), None, {"algorithm.alpha": 120.0, "solver.lr": 1 / 124}),
    "feddyn, half": (fl.FedDyn(), HALF, {"algorithm.alpha": 120.0, "solver.lr": 1 / 124}),
    "feddyn-onegd": (fl.FedDynOneGD(), None, {"algorithm.alpha": 200.0}),
    "feddr": (fl.FedDR(), None, {"algorithm.alpha": 1.0, "algorithm.eta": 1 / 12, "solver.lr": 1 / 16}),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_the_numbers_are_the_theorems_and_the_run_converges(case):
    algorithm, cohort, expected = NUMBERS[case]
    found = from_theory(even(algorithm, cohort))
    assert found.values == pytest.approx(expected, rel=1e-6)
    for field, value in expected.items():
        part, name = field.split(".")
        assert getattr(getattr(found.experiment, part), name) == pytest.approx(value, rel=1e-6)
    last, first = smallest_gap(found.experiment)
    assert last < 0.9 * first


def test_fedprox_and_feddane_have_the_weight_with_the_largest_decrease():
    """Corollary 4 has a rho for mu = 5 L B^2; the mu of theorem 3 is at least as good, and the solver follows it."""
    c = fl.theory.constants(EVEN)
    for algorithm in (fl.FedDANE(), fl.FedProx()):
        found = from_theory(even(algorithm))
        mu = found.values["algorithm.mu"]
        steps = {"algorithm.lr": 1.0, "algorithm.mu": mu}
        at = [found.theorem.bound(1, c, fl.theory.Setting(), {**steps, "algorithm.mu": k * mu}) for k in (0.5, 1, 2)]
        assert at[1] == min(at)
        assert math.isfinite(at[1])
        assert found.values["solver.lr"] == pytest.approx(1 / (LARGEST + mu), rel=1e-6)


# Which theorem.


def made_up(**known):
    measured = {name: Measured(value) for name, value in {"L": 2.0, "L_f": 1.0, "B": 1.5, "G": 1.0, **known}.items()}
    return Constants(
        np.full(CLIENTS, 1 / CLIENTS), 3, **measured, at_optimum=True, everywhere=frozenset({"L", "mu", "rho"})
    )


@pytest.mark.parametrize(
    ("known", "theorem"),
    [
        ({"mu": 0.1, "rho": 0.0}, "theorem 3 (strongly convex)"),
        ({"mu": 0.0, "rho": 0.0}, "theorem 2 (convex)"),
        ({"mu": 0.0, "rho": 0.5}, "theorem 4 (nonconvex)"),
    ],
)
def test_the_theorem_fits_the_curvature(known, theorem):
    found = from_theory(even(fl.FedDyn()), measured=made_up(**known))
    assert found.theorem.name == f"FedDyn, {theorem}"
    assert ("some F_k is not convex" in found.sentences[0]) == (known["rho"] > 0)
    assert "only exact local solves fail" in found.sentences[0]
    exact = from_theory(even(fl.FedDyn(), solver=fl.Exact()), measured=made_up(**known))
    assert "All that it assumes holds." in exact.sentences[0]
    assert exact.values.keys() == {"algorithm.alpha"}


def test_the_theorem_fits_the_cohorts():
    names = [
        from_theory(even(fl.FedAvg(), cohort), measured=made_up(mu=0.1, rho=0.0)).theorem.name
        for cohort in (fl.cohorts.everyone(), fl.cohorts.uniform(3), fl.cohorts.with_replacement(3))
    ]
    assert names == [
        "generalized FedAvg, theorem 1",
        "generalized FedAvg, theorem 2 (without replacement)",
        "generalized FedAvg, theorem 2 (with replacement)",
    ]


def test_late_replies_have_their_own_theorem():
    e = even(fl.FedDR(), fl.cohorts.uniform(6), engine="events", buffer=2)
    found = from_theory(e, measured=made_up(mu=0.1, rho=0.0))
    assert found.theorem.name == "asyncFedDR, theorem 4.1"
    assert "at most 3 updates" in " ".join(found.sentences)
    assert "Fails: One reply is counted at an update." in " ".join(found.sentences)
    one = from_theory(dataclasses.replace(e, buffer=1), measured=made_up(mu=0.1, rho=0.0))
    assert one.theorem.name == "asyncFedDR, theorem 4.1"
    assert "One reply" not in " ".join(one.sentences)


def test_what_fails_and_what_is_silent_is_said():
    said = " ".join(from_theory(experiment("quadratics", "feddyn", solver=fl.GD(0.1, steps=STEPS))).sentences)
    assert "Fails: All clients have the weight 1/m." in said
    assert "Fails: Local problems are solved exactly. Clients make 5 gradient steps" in said
    assert "It says nothing about minibatches" in said
    assert "1/(L + alpha), so that local steps do not diverge" in said


def test_a_schedule_becomes_a_constant():
    decayed = fl.GD(fl.schedules.exponential(0.3, 0.9), steps=STEPS)
    found = from_theory(even(fl.FedAvg(), solver=decayed))
    assert found.experiment == from_theory(even(fl.FedAvg())).experiment
    assert "in place of the schedule exponential" in " ".join(found.sentences)
    assert "changes from round to round" not in " ".join(found.sentences)


def test_a_sum_of_losses_takes_smaller_steps():
    summed = fl.SGD(0.1, batch_size=10, steps=STEPS, reduction="sum")
    mean = dataclasses.replace(summed, reduction="mean")
    c = made_up(mu=0.1, rho=0.0)
    ten, one = (from_theory(even(fl.FedAvg(), solver=s), measured=c).values for s in (summed, mean))
    assert one["solver.lr"] == pytest.approx(10 * ten["solver.lr"])
    assert from_theory(even(fl.FedDyn(), solver=summed), measured=c).values["solver.lr"] == pytest.approx(1 / (20 + 60))


def test_feddyn_with_weighted_alpha_is_solved_stably_by_the_smallest_client():
    weights = np.array([0.01, 0.99])
    c = dataclasses.replace(made_up(mu=0.1, rho=0.0), weights=weights)
    found = from_theory(even(fl.FedDyn(weighting="alpha")), measured=c)
    assert found.values["solver.lr"] == pytest.approx(1 / (2 + 60 / 0.02))


@pytest.mark.parametrize(
    ("algorithm", "solver", "known", "words"),
    [
        (fl.FedYogi(), None, {}, r"no theorem here about fedyogi; there are theorems about fedavg, fedprox, scaffold"),
        (fl.FedAvg(), fl.Exact(), {}, "gradient steps, which Exact does not make"),
        (fl.FedDyn(), None, {"L": math.nan}, "L is not known"),
        (fl.FedAdam(), None, {"G": math.nan}, "needs constants that are not known"),
        (fl.FedProx(), None, {"B": math.inf}, "FedProx, theorem 4: no step size gives a decrease. rho is at most"),
    ],
)
def test_what_theory_cannot_give_is_refused_in_a_sentence(algorithm, solver, known, words):
    with pytest.raises(ValueError, match=words):
        from_theory(even(algorithm, solver=solver), measured=made_up(**{"mu": 0.1, "rho": 0.0, **known}))


def test_why_there_is_no_step_size_is_not_what_else_fails():
    e = even(fl.FedProx(), fl.cohorts.bernoulli(0.5))  # a departure, too
    with pytest.raises(ValueError, match=r"no step size gives a decrease\. rho is at most"):
        from_theory(e, measured=made_up(mu=0.1, rho=0.0, B=2.0))


# run --theory


def test_theorys_numbers_are_in_the_runs_config(capsys):
    arguments = ["run", "quadratics", "--algorithm", "feddr", "--solver", "gd", "--rounds", "5"]
    assert main([*arguments, "--theory", "--out", "a"]) == 0
    err = capsys.readouterr().err
    found = from_theory(experiment("quadratics", "feddr", solver="gd", rounds=5))
    assert from_toml(pathlib.Path("a/config.toml").read_text()) == found.experiment
    assert [line for line in err.splitlines() if line.startswith("theory: ")] == [
        f"theory: {words}" for words in found.sentences
    ]
    assert main(["run", "a/config.toml", "--out", "b", "--quiet"]) == 0  # an ordinary run
    logs = [pathlib.Path(run, "log.jsonl").read_text() for run in "ab"]
    assert logs[0] == logs[1]
    capsys.readouterr()
    assert main([*arguments, "--theory", "--out", "c", "--quiet"]) == 0
    assert "theory:" not in capsys.readouterr().err


def test_what_is_given_wins_and_the_solver_follows(capsys):
    given = ["--algorithm", "feddyn", "--solver", "gd", "--algorithm.alpha", "3", "--rounds", "2"]
    assert main(["run", "quadratics", *given, "--theory", "--out", "a"]) == 0
    err = capsys.readouterr().err
    made = tomllib.loads(pathlib.Path("a/config.toml").read_text())
    L = max(np.linalg.eigvalsh(h)[-1] for h in fl.load("quadratics").federation.hessians)
    assert made["algorithm"]["alpha"] == 3.0
    assert made["solver"]["lr"] == pytest.approx(1 / (L + 3), rel=1e-6)
    assert "algorithm.alpha = 3 was given, and is kept, although the theorem asks for" in err
    given += ["--solver.lr", "0.25"]
    assert main(["run", "quadratics", *given, "--theory", "--out", "b"]) == 0
    assert tomllib.loads(pathlib.Path("b/config.toml").read_text())["solver"]["lr"] == 0.25
    assert "solver.lr = 0.25 was given, and is kept." in capsys.readouterr().err


def test_only_run_takes_theory(capsys):
    assert main(["compare", "quadratics", "--theory"]) == 2
    assert main(["run", "quadratics", "--algorithm", "fedpd", "--theory"]) == 2
    assert "There is no theorem here about fedpd" in capsys.readouterr().err
    assert not pathlib.Path("runs").exists()


# suggest

METHODS = "feddyn,fedprox,fedpd"


def test_the_file_has_the_table(capsys):
    assert main(["suggest", "quadratics", "--algorithms", METHODS, "--solver", "gd", "--out", "start.toml"]) == 0
    out = capsys.readouterr().out
    found = suggest("quadratics", METHODS, solver="gd")
    assert found.text() in out
    assert "start: start.toml" in out
    text = pathlib.Path("start.toml").read_text()
    plain = tomllib.loads(text)
    assert [*plain] == ["task", *METHODS.split(",")]
    for start in found.starts:
        table = plain[start.method]
        assert _flat(table.get("theory", {})) == start.theory
        assert _flat(table["practice"]) == start.practice
        assert table["theorem"] == start.theorem
        for field in start.practice:
            assert f"{field} = {start.practice[field]!r}  # {start.reasons[field]}" in text
    theory = from_theory(experiment("quadratics", "feddyn", solver="gd"))
    assert _flat(plain["feddyn"]["theory"]) == theory.values
    assert all(f"# {words}" in text for words in theory.sentences[1:])
    assert plain["fedprox"]["theorem"] == plain["fedpd"]["theorem"] == "none"
    assert plain["fedpd"]["practice"]["algorithm"] == {"eta": fl.FedPD().eta}


def _flat(table):
    return {f"{part}.{field}": value for part, fields in table.items() for field, value in fields.items()}


def test_practice_is_the_multiple_of_the_table(monkeypatch):
    """L is 4 here; the client's step knows the proximal weight."""
    rules = (Usual("solver.lr", 0.5, "1/L", "a"), Usual("algorithm.alpha", 3, "L", "b"))
    monkeypatch.setitem(PRACTICE, "feddyn", rules)
    (start,) = suggest(EVEN, ["feddyn"], solver=fl.GD(0.1, steps=2)).starts
    assert start.practice == {"solver.lr": 0.031, "algorithm.alpha": 12.0}  # 0.5 / (4 + 12)
    assert start.reasons == {"solver.lr": "0.5 times 1/(L + alpha): a", "algorithm.alpha": "3 times L: b"}


@pytest.mark.parametrize("name", PRACTICE)
def test_practice_can_be_run_and_learns(name):
    e = even(fl.ALGORITHMS[name]())
    (start,) = suggest(EVEN, [name], solver=e.solver, cohort=e.cohort, rounds=ROUNDS).starts
    assert start.theory
    assert set(start.reasons) == set(start.practice)
    last, first = smallest_gap(fl.experiments.changed(e, start.practice))
    assert last < 0.5 * first


def test_nothing_is_overwritten(capsys, tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text("mine")
    with monkeypatch.context() as patched:  # it is said before anything is measured
        patched.setattr("fedloom.cli.suggesting.suggest", lambda *a, **k: pytest.fail("measured"))
        assert main(["suggest", "quadratics", "--algorithms", "feddyn", "--out", "mine.toml"]) == 2
    assert "mine.toml exists already" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"mine\.toml exists already"):  # made while constants were measured
        write_new("theirs", tmp_path / "mine.toml")
    assert (tmp_path / "mine.toml").read_text() == "mine"
    for _ in range(2):
        assert main(["suggest", "quadratics", "--algorithms", "feddyn", "--quiet"]) == 0
    assert sorted(p.name for p in tmp_path.glob("*.toml")) == [
        "mine.toml",
        "suggest-quadratics-1.toml",
        "suggest-quadratics-2.toml",
    ]
    assert main(["suggest", "quadratics", "--algorithms", "feddyn", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["starts"][0]["theory"].keys() == {"algorithm.alpha"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["quadratics", "--out", "here.txt"], "must be a file that ends in .toml"),
        (["quadratics", "--out", "no/where.toml"], "there is no directory no"),
        (["quadratics", "--algorithms", "fedavgg"], "There is no algorithm 'fedavgg'"),
        (["quadratix"], "quadratix"),
        (["quadratics", "--theory"], "suggest has no option --theory"),
    ],
)
def test_bad_suggestions(arguments, words, capsys, tmp_path):
    assert main(["suggest", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_a_model_outside_jax_has_no_smoothness_to_suggest_from(monkeypatch):
    unknown = dataclasses.replace(made_up(), L=UNKNOWN)
    monkeypatch.setattr("fedloom.diagnosis.starts.constants", lambda *a, **k: unknown)
    with pytest.raises(ValueError, match="Nothing can be suggested: L is not known"):
        suggest("quadratics", "feddyn")


# tune --around

FEW = {"points": 2, "seeds": 1, "rounds": 4}


def test_a_tuning_starts_at_the_practical_values(tmp_path):
    text = 'task = "quadratics"\n[feddyn.practice]\nalgorithm.alpha = 0.77\n[scaffold.practice]\nsolver.lr = 9\n'
    (tmp_path / "start.toml").write_text(text)
    place = tmp_path / "tuning"
    tune("quadratics", "feddyn,feddr", around=tmp_path / "start.toml", directory=place, **FEW)
    own = experiment("quadratics", "feddr").algorithm
    starts = [{"algorithm.alpha": 0.77}, {"algorithm.eta": own.eta, "algorithm.alpha": own.alpha}]

    def first_points():
        studies = [read_study(place / "tuning" / method / "batch-01") for method in ("feddyn", "feddr")]
        return [next(iter(study.about["points"].values())) for study in studies]

    assert first_points() == starts
    (tmp_path / "start.toml").unlink()  # what was recorded has the start
    for made in ("tuning", "settings", "comparison"):
        shutil.rmtree(place / made)
    resume_tuning(place)
    assert first_points() == starts


def test_the_command_takes_the_file_of_suggest(capsys, tmp_path):
    solver = ["--solver", "gd"]
    assert main(["suggest", "quadratics", "--algorithms", "feddyn", *solver, "--out", "start.toml", "--quiet"]) == 0
    practice = _flat(tomllib.loads((tmp_path / "start.toml").read_text())["feddyn"]["practice"])
    arguments = ["--algorithms", "feddyn", "--points", "1", "--seeds", "1", "--rounds", "4", "--quiet", *solver]
    assert main(["tune", "quadratics", *arguments, "--around", "start.toml", "--out", "a"]) == 0
    points = read_study(tmp_path / "a/tuning/feddyn/batch-01").about["points"]
    assert [*points.values()] == [practice]
    given = ["--algorithm.alpha", "0.5"]  # what is given wins
    assert main(["tune", "quadratics", *arguments, *given, "--around", "start.toml", "--out", "b"]) == 0
    points = read_study(tmp_path / "b/tuning/feddyn/batch-01").about["points"]
    assert [*points.values()] == [{**practice, "algorithm.alpha": 0.5}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[feddyn.practice]\nalgorithm.alpha = 1", "task is missing"),
        ('task = "digits"', "task is 'digits', but 'quadratics' is to be tuned"),
        ("task = [", "is not a TOML file"),
        ('task = "quadratics"\n[feddyin.practice]', "there is no algorithm 'feddyin'"),
        ('task = "quadratics"\n[feddyn]\ntheorem = "x"', "feddyn.practice must be a table"),
        ('task = "quadratics"\nfeddyn = 3', "feddyn must be a table"),
        ('task = "quadratics"\n[feddyn]\npractise = 3', "feddyn has no field 'practise'"),
        (
            'task = "quadratics"\n[feddyn.practice]\nalgorithm.alfa = 1',
            "feddyn.practice: algorithm: feddyn has no field",
        ),
        ('task = "quadratics"\n[feddyn.practice]\nalgorithm.alpha = -1', "feddyn.practice: algorithm: .*alpha must be"),
        ('task = "quadratics"\n[feddyn.practice]\nrounds = 3', "feddyn.practice.rounds: a start has fields of"),
        ('task = "quadratics"\n[feddyn.practice]\nsolver.lr = 1', "feddyn.practice: solver: exact has no field 'lr'"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused(text, words, tmp_path):
    if text is not None:
        (tmp_path / "start.toml").write_text(text)
    with pytest.raises(ValueError, match=f"around: .*start.toml.*{words}"):
        tune("quadratics", "feddyn", around=tmp_path / "start.toml", directory=tmp_path / "tuning", **FEW)
    assert not (tmp_path / "tuning").exists()
