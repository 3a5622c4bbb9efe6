"""Tuning: that the search finds what is known to be best, is fair, and goes on after an interruption."""

import dataclasses
import functools
import json
import math
import textwrap

import pytest

import fedloom as fl
from fedloom.cli import main
from fedloom.experiments import Result, experiment, from_toml, origin_of, read_study, resume_tuning, tune
from fedloom.experiments.progress import Lines
from fedloom.experiments.search import LOST, best_place, ends, next_places
from fedloom.experiments.spaces import SPACES, Axis, axes_of
from fedloom.experiments.trials import BATCH, Trials, Tuning
from fedloom.tasks import TASKS

STEP = Axis("solver.lr", start=0.03)
RELAXED = Axis("algorithm.alpha", linear=True, low=0.25, high=2.0, start=1.0)


def search(axes, score, points):
    """The places that are tried when `score` is a function of the values."""
    tried = {}
    while len(tried) < points:
        for place in next_places(axes, tried, min(BATCH, points - len(tried))):
            assert place not in tried
            tried[place] = score(*(axis.value(step) for axis, step in zip(axes, place, strict=True)))
    return tried


def values(axes, place):
    return [axis.value(step) for axis, step in zip(axes, place, strict=True)]


def valley(*best):
    """A score whose best values are known: the squared distance of logarithms."""
    return lambda *v: (sum(math.log10(x / b) ** 2 for x, b in zip(v, best, strict=True)), 0.0)


@pytest.mark.parametrize("best", [(0.9, 0.9), (0.001, 1.0), (0.03, 30.0), (1.0, 0.033)])
def test_the_search_finds_a_best_point_thirty_times_off(best):
    axes = (STEP, Axis("algorithm.lr", start=1.0))
    tried = search(axes, valley(*best), 24)
    assert len(tried) == 24
    found = best_place(tried)
    for value, true in zip(values(axes, found), best, strict=True):
        assert abs(math.log10(value / true)) <= 0.15  # the nearest fine step is at most 1/8 of a decade off
    assert ends(axes, tried, found) == ((), ())


def test_the_search_spends_what_is_left_on_fine_steps():
    tried = search((STEP,), valley(0.053), 12)
    assert values((STEP,), best_place(tried)) == [0.053]  # a quarter of a decade from 0.03
    assert 0.095 in [STEP.value(k) for (k,) in tried]  # half a decade


def test_the_search_leaves_a_region_in_which_everything_diverges():
    axes = (STEP, Axis("algorithm.lr", start=1.0))
    tried = search(axes, lambda lr, server: LOST if lr * server > 1e-3 else valley(1e-3, 0.3)(lr, server), 24)
    assert tried[best_place(tried)] != LOST
    assert tried[(0, 0)] == LOST


def test_a_best_value_at_an_edge_is_seen_and_left_behind():
    axes = (STEP, Axis("algorithm.lr", start=1.0))
    tried = search(axes, valley(1e4, 1.0), 8)
    assert ends(axes, tried, best_place(tried)) == (("solver.lr",), ())
    tried = search(axes, valley(3.0, 1.0), 24)
    assert ends(axes, tried, best_place(tried)) == ((), ())
    alone = search((STEP,), valley(0.03), 1)
    assert ends((STEP,), alone, best_place(alone)) == (("solver.lr",), ())  # a single value is at both ends


def test_an_end_of_the_domain_is_a_limit_and_not_an_edge():
    tried = search((RELAXED,), lambda alpha: (-alpha, 0.0), 7)
    assert values((RELAXED,), best_place(tried)) == [2.0]
    assert ends((RELAXED,), tried, best_place(tried)) == ((), ("algorithm.alpha",))
    mu = Axis("algorithm.mu", low=1e-4, zero=True, start=0.01)
    tried = search((mu,), lambda mu: (mu, 0.0), 12)
    assert values((mu,), best_place(tried)) == [0.0]
    assert ends((mu,), tried, best_place(tried)) == ((), ("algorithm.mu",))


def test_values_of_axes():
    assert [STEP.value(k) for k in (-4, -2, -1, 0, 1, 2, 4)] == [0.003, 0.0095, 0.017, 0.03, 0.053, 0.095, 0.3]
    assert [RELAXED.value(k) for k in (-4, -3, -1, 0, 4, 5)] == [None, 0.25, 0.75, 1.0, 2.0, None]
    share = Axis("algorithm.alpha", high=1.0, start=0.6)
    assert [share.value(k) for k in (0, 1, 2)] == [0.6, 1.0, None]


@pytest.mark.parametrize("name", fl.ALGORITHMS)
def test_every_method_has_fields_to_tune(name):
    """Their starts are the experiment's own values, and what lies beside them can be run."""
    solver = fl.Adagrad() if name == "adaalter" else fl.SGD(0.1)
    base = experiment("digits", name, solver=solver, cohort=fl.cohorts.everyone())
    axes = axes_of(name, base)
    assert [axis.field for axis in axes] == [axis.field for axis in SPACES[name]]
    for axis in axes:
        beside = [value for step in (-1, 0, 1) if (value := axis.value(step)) is not None]
        assert len(beside) >= 2
        for value in beside:
            fl.experiments.changed(base, {axis.field: value})


def test_a_schedule_is_scaled(tmp_path):
    base = experiment("digits", fl.FedAvg(0.7), solver=fl.SGD(fl.schedules.exponential(0.2, 0.99)))
    assert [(a.field, a.start) for a in axes_of("fedavg", base)] == [("solver.lr.value", 0.2), ("algorithm.lr", 0.7)]
    plain = """
        import fedloom as fl

        @fl.frozen
        class Plain(fl.Round):
            def init(self, w): return fl.Server(w)
            def send(self, s): return s.w
            def local(self, w, memory, client): return client.solve(fl.Problem(w)).w, memory
            def receive(self, s, mean, cohort): return fl.Server(mean)
    """
    (tmp_path / "plain.py").write_text(textwrap.dedent(plain))
    with pytest.raises(ValueError, match="leave it out"):
        axes_of("Plain", experiment("quadratics", "plain.py:Plain", solver=fl.Exact()))


# What `tune` makes of it.


def settings(**starts):
    found = {name: fl.tasks.Setting(a, fl.Exact(), fl.cohorts.everyone(), 4) for name, a in starts.items()}
    return {"start": found}


SPHERES = fl.Task(
    "spheres",
    lambda seed: fl.quadratics(5, 3, seed, condition=1.0),  # curvature 1 in all directions
    metrics=(),
    settings=settings(fedsgd=fl.FedSGD(1 / 30), feddyn=fl.FedDyn(1.0)),
)


def test_tune_finds_the_step_size_of_a_quadratic():
    """With curvature 1 the best step size of gradient descent is 1."""
    lines: list[str] = []

    class Told(Lines):
        say = staticmethod(lines.append)

    study = tune(SPHERES, ["fedsgd"], points=12, seeds=2, progress=Told())
    tuned = study.about["tuning"]["fedsgd"]
    assert tuned["values"] == {"algorithm.lr": 1.1}  # 1/30 times 10^1.5, to two digits
    assert tuned["words"] == "tuned here: 12 points x 2 seeds on train loss"
    assert tuned["edges"] == tuned["limits"] == ()
    assert len(tuned["over"]["algorithm.lr"]) == tuned["points"] == 12
    assert [r.experiment.algorithm.lr for r in study.results] == [1.1, 1.1]
    assert [r.experiment.seed for r in study.results] == [0, 1]
    assert lines[-1].startswith("fedsgd: 12 of 12 points, best train loss")


def test_all_methods_get_more_points_while_one_has_its_best_value_at_an_edge():
    alone = tune(SPHERES, ["feddyn"], points=4, seeds=1).about["tuning"]
    assert alone["feddyn"]["points"] == 4
    study = tune(SPHERES, points=4, seeds=1)
    tuned = study.about["tuning"]
    assert {name: t["points"] for name, t in tuned.items()} == {"fedsgd": 8, "feddyn": 8}
    assert {
        name: len(t["over"]["algorithm.lr" if name == "fedsgd" else "algorithm.alpha"]) for name, t in tuned.items()
    } == {
        "fedsgd": 8,
        "feddyn": 8,
    }
    assert tuned["fedsgd"]["edges"] == ()


def test_what_stays_at_an_edge_is_marked():
    far = dataclasses.replace(SPHERES, settings=settings(fedsgd=fl.FedSGD(1e-6)))
    tuned = tune(far, points=3, seeds=1).about["tuning"]["fedsgd"]
    assert tuned["points"] == 6  # twice as many, and not more
    assert tuned["edges"] == ("algorithm.lr",)
    assert tuned["words"].endswith("; best at the edge of the grid: algorithm.lr")


def test_a_point_that_learned_nothing_loses():
    """Of accuracies at the level of chance the largest means nothing."""
    trials = Trials(
        Tuning({"fedavg": experiment("digits", rounds=5)}, 4, 1, 0.2, "validation accuracy"), "fedavg", None
    )

    def score(*accuracies):
        rows = [{"round": i, "validation accuracy": a, "validation loss": 2.0} for i, a in enumerate(accuracies)]
        about = {"metrics": {"validation accuracy": True, "validation loss": False}}
        return trials._score([Result("", trials.tuning.bases["fedavg"], rows, about)])

    assert score(0.12, 0.3, 0.3, 0.3, 0.3, 0.11) == LOST
    assert score(0.12, 0.1, 0.1, 0.1, 0.1, 0.3) == (-0.3, 2.0)
    assert score(0.12, math.nan) == LOST  # it has not reached its last round


def test_a_method_without_a_good_point_is_left_out():
    wild = settings(fedsgd=fl.FedSGD(1e9), feddyn=fl.FedDyn(1.0))
    study = tune(dataclasses.replace(SPHERES, settings=wild), points=2, seeds=1)
    assert {r.name for r in study.results} == {"feddyn"}
    assert study.about["tuning"]["fedsgd"]["score"] is None
    with pytest.raises(ValueError, match="No point of any method is better than the initial model"):
        tune(dataclasses.replace(SPHERES, settings=wild), ["fedsgd"], points=2, seeds=1)


class Killed(Exception):
    pass


class Bomb:
    """A progress reporter that ends the process after some rows."""

    def __init__(self, rows):
        self.rows = rows

    def begin(self, runs):
        pass

    def say(self, words):
        pass

    def row(self, name, experiment, row):
        self.rows -= 1
        if self.rows == 0:
            raise Killed

    def end(self, result):
        pass

    def close(self):
        pass


ARGUMENTS = {"points": 6, "seeds": 2, "rounds": 10}


def contents(path):
    """Every setting, every log and every decision, by place."""
    files = {str(f.relative_to(path)): f for f in sorted(path.rglob("*")) if f.is_file()}
    found = {name: f.read_bytes() for name, f in files.items() if f.suffix in (".toml", ".jsonl")}
    studies = {name: json.loads(f.read_bytes()) for name, f in files.items() if f.name == "study.json"}
    return found | {name: (s["about"].get("tuning"), s["about"].get("points")) for name, s in studies.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "tuning"
    tune("quadratics", ["feddyn", "feddr"], directory=path, **ARGUMENTS)
    return path


@pytest.mark.parametrize("rows", [1, 30, 70, 150])
def test_a_tuning_goes_on_where_it_was_stopped(whole, tmp_path, rows):
    with pytest.raises(Killed):
        tune("quadratics", ["feddyn", "feddr"], directory=tmp_path / "tuning", progress=Bomb(rows), **ARGUMENTS)
    study = resume_tuning(tmp_path / "tuning")
    assert all(result.finished for result in study.results)
    assert contents(tmp_path / "tuning") == contents(whole)


def test_the_directory_of_a_tuning(whole):
    study = read_study(whole / "comparison")
    tuned = study.about["tuning"]
    assert [origin_of(study, r)["words"] for r in study.results[::2]] == [t["words"] for t in tuned.values()]
    assert origin_of(study, study.results[0])["origin"] == "tuned"
    assert {name: t["points"] for name, t in tuned.items()} == {"feddyn": 10, "feddr": 10}
    for result in study.results:
        e = from_toml((whole / "settings" / f"{result.name}.toml").read_text())
        assert dataclasses.replace(result.experiment, seed=0) == e
        plain = e.to_plain()["algorithm"]
        assert {f"algorithm.{k}": v for k, v in plain.items() if f"algorithm.{k}" in tuned[result.name]["values"]} == (
            tuned[result.name]["values"]
        )
    batches = [read_study(p) for p in sorted((whole / "tuning" / "feddyn").iterdir())]
    assert [len(b.about["points"]) for b in batches] == [4, 2, 4]  # six points, and four because of an edge
    assert {r.experiment.seed for b in batches for r in b.results} == {1000, 1001}
    assert {r.experiment.seed for r in study.results} == {0, 1}


def test_the_command(capsys, tmp_path):
    arguments = ["--algorithms", "feddyn", "--points", "3", "--seeds", "1", "--rounds", "4", "--out", "here"]
    assert main(["tune", "quadratics", *arguments]) == 0
    out, err = capsys.readouterr()
    assert "feddyn: 3 of 3 points" in err
    assert [line.split(",")[0] for line in err.splitlines() if line.startswith("[")] == [
        "[1/1] feddyn"
    ]  # the comparison
    assert "report: here/comparison/report.html" in out
    before = contents(tmp_path)
    assert main(["resume", "here", "--quiet"]) == 0
    assert contents(tmp_path) == before
    assert out.splitlines()[0] in capsys.readouterr().out
    assert main(["report", "here"]) == 0
    assert "report: here/comparison/report.html" in capsys.readouterr().out
    assert main(["compare", "here/settings/feddyn.toml", "--quiet"]) == 0
    assert main(["tune", "quadratics", *arguments]) == 2
    assert "run `fedloom resume here` to continue" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"points": 0}, "points must be a positive integer, got 0"),
        ({"validation": 1.0}, r"validation must be a number in \(0, 1\), got 1.0"),
        ({"algorithms": [fl.FedAvg()]}, "algorithms must be names, such as 'fedavg'"),
        ({"seeds": 0}, "seeds must be a positive integer, got 0"),
        ({"select": "test accuracy"}, "must not decide; use 'validation accuracy'"),
        ({"select": "validation acuracy"}, "there is no metric"),
        ({"algorithms": ["fedavgg"]}, "There is no algorithm 'fedavgg'"),
        ({"algorithms": ["feddyn"], "engine": "events"}, "engine"),
    ],
)
def test_what_cannot_be_tuned_is_said_first(arguments, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        tune("digits", directory=tmp_path / "tuning", **arguments)
    assert not (tmp_path / "tuning").exists()


def small_digits(seed, spoil):
    """The digits of few clients; with `spoil`, every test label is wrong."""
    data = TASKS["digits"].data(seed)
    x, y = data.test
    return dataclasses.replace(data, test=(x, (y + 1) % 10) if spoil else (x, y))


def test_test_data_do_not_decide():
    """With all test labels wrong, the same points are tried and the same ones win."""
    found = []
    for spoil in (False, True):
        task = dataclasses.replace(TASKS["digits"], data=functools.partial(small_digits, spoil=spoil))
        study = tune(task, ["fedavg", "fedadam"], points=8, seeds=1, rounds=10)
        found.append((study.about["tuning"], [r.column("test accuracy")[-1] for r in study.results]))
    (tuned, right), (spoiled, wrong) = found
    assert tuned == spoiled
    assert all(a != b for a, b in zip(right, wrong, strict=True))  # the labels are wrong indeed
    assert tuned["fedavg"]["metric"] == "validation accuracy"


def test_runs_of_the_search_hold_data_out_and_evaluate_nothing_else(tmp_path):
    study = tune("digits", ["fedavg"], points=1, seeds=1, rounds=10, directory=tmp_path / "t")
    batches = sorted((tmp_path / "t" / "tuning" / "fedavg").iterdir())
    assert len(batches) == 2  # one point, and one more because of edges
    (run,) = read_study(batches[0]).results
    assert run.metrics == ["validation loss", "validation accuracy"]
    assert not any(key.startswith("test") for row in run.rows for key in row)
    assert run.experiment.validation == 0.2
    assert {r.experiment.validation for r in study.results} == {0.0}  # the comparison has all training data
    assert "test accuracy" in study.results[0].metrics
