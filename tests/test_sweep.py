"""Sweeps: their points, how these run, and which is best."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom.engines import grid
from fedloom.experiments import (
    Range,
    Result,
    Select,
    Study,
    best,
    changed,
    experiment,
    find_runs,
    heat_map,
    ranking,
    read_study,
    resume,
    resume_sweep,
    run,
    sweep,
    sweep_table,
)
from fedloom.experiments.points import over, parse_over, points_of
from fedloom.experiments.presets import PRESETS, preset
from fedloom.experiments.run_directory import LOG
from fedloom.experiments.side_by_side import alike
from fedloom.experiments.study import create_study
from fedloom.tasks import TASKS

GRADIENT_DESCENT = experiment("quadratics", "fedsgd", cohort="everyone", rounds=4)
SCAFFOLD = experiment("quadratics", "scaffold", rounds=6, evaluate_every=3, solver=fl.GD(0.1))


def descent(lr, rounds, seed=0):
    """f along gradient descent on the population objective, without any of the engines."""
    q = fl.load("quadratics", seed).federation
    p, a, b = (np.asarray(x) for x in (q.weights, q.hessians, q.centers))
    w, values = np.zeros(b.shape[1]), []
    for _ in range(rounds):
        w = w - lr * np.einsum("k,kij,kj->i", p, a, w - b)
        values.append(np.einsum("k,ki,kij,kj->", p, w - b, a, w - b) / 2)
    return values


def values_of(result):
    return [{k: v for k, v in row.items() if k != "diverged"} for row in result.rows]


def assert_same_log(one, other):
    assert len(one.rows) == len(other.rows)
    for a, b in zip(values_of(one), values_of(other), strict=True):
        assert list(a) == list(b)
        for metric, blocks in a.pop("test blocks", {}).items():  # to six digits
            assert blocks == pytest.approx(b["test blocks"][metric], rel=2e-5)
        for key in a:
            assert a[key] == pytest.approx(b[key], rel=1e-8, abs=1e-10), key


# What is best.


def test_the_best_step_size_of_gradient_descent_is_the_one_that_a_plain_loop_finds():
    lrs = [0.03, 0.3, 1.0, 2.0, 3.0, 4.0, 30.0]
    study = sweep(GRADIENT_DESCENT, {"algorithm.lr": lrs}, select=Select(last=2))
    expected = {lr: np.mean(descent(lr, 4)[-2:]) for lr in lrs[:-1]}
    found = {point.values["algorithm.lr"]: point for point in ranking(study)}
    for lr, score in expected.items():
        assert found[lr].score == pytest.approx(score, rel=1e-9)
    winner = min(expected, key=expected.get)
    assert winner not in (lrs[0], lrs[-2])  # the optimum lies inside
    assert best(study).values == {"algorithm.lr": winner}
    assert best(study).results[0].experiment == changed(GRADIENT_DESCENT, {"algorithm.lr": winner})
    # 30 is far beyond 2 / L: it is given up in the same round, and with the same words, as when it runs alone.
    assert ranking(study)[-1].values == {"algorithm.lr": 30.0}
    assert math.isnan(found[30.0].score)
    assert found[30.0].results[0].rows[-1] == run(found[30.0].results[0].experiment).rows[-1]
    lines = sweep_table(study).splitlines()
    assert lines[0].split("  ")[0] == "algorithm.lr"
    assert lines[1].split() == [f"{winner:.4g}", f"{expected[winner]:.5g}"]
    assert lines[len(lrs)].split() == ["30", "diverged"]
    assert lines[-1] == f"best: algorithm.lr={winner:g}"


def test_seeds_are_repetitions_whose_scores_are_averaged():
    study = sweep(GRADIENT_DESCENT, {"seed": [3, 4], "algorithm.lr": [0.5, 1.0]}, select=Select(last=1))
    assert [(r.name, r.experiment.seed) for r in study.results] == [
        (f"algorithm.lr={lr}", seed) for lr in ("0.5", "1") for seed in (3, 4)
    ]
    for point in ranking(study):
        expected = [descent(point.values["algorithm.lr"], 4, seed)[-1] for seed in (3, 4)]
        assert point.score == pytest.approx(np.mean(expected), rel=1e-9)


def made(name, rows, rounds=4, larger=True):
    about = {"metrics": {"train loss": False, "test accuracy": larger}}
    return Result(name, dataclasses.replace(GRADIENT_DESCENT, rounds=rounds), rows, about)


def hand_made():
    def rows(*accuracies):
        return [{"round": t, "train loss": 1 - a, "test accuracy": a} for t, a in enumerate(accuracies)]

    results = [
        made("a", rows(0.9, 0.1, 0.2, 0.3, 0.4)),
        made("b", rows(0.9, 0.1, 0.2, 0.6, 0.3)),
        made("c", [*rows(0.9, 0.9), {"round": 1, "diverged": "The training loss is nan."}]),
        made("d", rows(0.9, 0.8, 0.8)),
        made("e", []),
    ]
    values = {"a": (1, 2, "p"), "b": (1, 2, "q"), "c": (1, 3, "p"), "d": (0.5, 2, "p"), "e": (0.5, 3, "p")}
    points = {name: dict(zip(("x", "y", "z"), v, strict=True)) for name, v in values.items()}
    facts = {"kind": "sweep", "select": {"metric": "test accuracy", "last": 2}, "points": points}
    return Study("made", results, None, facts)


def test_scores_are_means_over_the_last_rounds_in_the_better_direction():
    study = hand_made()
    assert [p.name for p in ranking(study)][:2] == ["b", "a"]
    assert [p.score for p in ranking(study)][:2] == pytest.approx([0.45, 0.35])
    assert [p.words for p in ranking(study)][2:] == ["diverged", "unfinished", "unfinished"]
    assert best(study, Select("test accuracy", 1)).name == "a"
    assert best(study, Select("train loss", 1)).score == pytest.approx(0.6)
    # The initial model never counts, however many rounds are asked for.
    assert best(study, Select("test accuracy", 100)).score == pytest.approx((0.1 + 0.2 + 0.6 + 0.3) / 4)
    with pytest.raises(ValueError, match="No point of made has a score"):
        best(dataclasses.replace(study, results=study.results[2:], about={**study.about, "points": {"c": {}}}))


def test_a_heat_map_has_the_best_over_the_other_fields():
    xs, ys, scores = heat_map(hand_made(), "x", "y")
    assert (xs, ys) == ([0.5, 1], [2, 3])
    np.testing.assert_allclose(scores, [[np.nan, 0.45], [np.nan, np.nan]])
    with pytest.raises(ValueError, match=r"not over 'algorithm\.lr'"):
        heat_map(hand_made(), "x", "algorithm.lr")


def test_bad_rules_and_other_studies(tmp_path):
    with pytest.raises(ValueError, match="last must be a positive integer, got 0"):
        Select(last=0)
    with pytest.raises(ValueError, match="made is not a sweep"):
        ranking(Study("made", [], None, {}))
    create_study([("a", GRADIENT_DESCENT)], tmp_path / "other", title="x", target=None, about={})
    with pytest.raises(ValueError, match="other is not a sweep"):
        resume_sweep(tmp_path / "other")


# How points run.


class Watching:
    """Notes what it is told; interrupts the sweep at the given row."""

    def __init__(self, stop_at=None):
        self.stop_at, self.begun, self.rows, self.ended, self.closed = stop_at, None, [], [], 0

    def begin(self, runs):
        assert self.begun is None
        self.begun = [name for name, _ in runs]

    def row(self, name, experiment, row):
        self.rows.append((name, row["round"]))
        if len(self.rows) == self.stop_at:
            raise KeyboardInterrupt

    def plain_row(self, row):
        self.row("", None, row)

    def end(self, result):
        assert result.finished
        self.ended.append(result.name)

    def close(self):
        self.closed += 1


OVER = {"solver.lr": [0.1, 0.02], "solver.steps": [1, 2], "algorithm.lr": [1.0, 0.5]}


def test_points_are_ordinary_runs_and_a_sweep_that_was_stopped_goes_on(tmp_path):
    stopped = Watching(stop_at=4 * 3 + 4 + 2)  # four points of one structure are done, two of the others have moved
    with pytest.raises(KeyboardInterrupt):
        sweep(SCAFFOLD, OVER, directory=tmp_path / "sweep", progress=stopped)
    assert stopped.closed == 1
    halfway = read_study(tmp_path / "sweep")
    done = [r.name for r in halfway.results if r.finished]
    assert sorted(done) == sorted(stopped.ended)
    assert len(done) == 4
    assert {name.split(",")[1] for name in done} == {"solver.steps=1"}
    before = {r.name: (r.directory / LOG).stat().st_mtime_ns for r in halfway.results if r.finished}

    watching = Watching()
    study = resume_sweep(tmp_path / "sweep", progress=watching)
    assert watching.begun == stopped.begun == [r.name for r in study.results]
    assert sorted(watching.ended) == sorted(watching.begun)
    assert {name for name, _ in watching.rows} == set(watching.begun) - set(done)
    assert before == {name: (_run_of(study, name).directory / LOG).stat().st_mtime_ns for name in done}
    assert len(study.results) == 8
    for result in study.results:
        assert [row["round"] for row in result.rows] == [0, 3, 6]
        alone = run(result.experiment)
        assert_same_log(result, alone)
        np.testing.assert_allclose(result.w, alone.w, rtol=0, atol=1e-10)
    again = find_runs([tmp_path / "sweep"])
    assert [r.rows for r in again.results] == [r.rows for r in study.results]
    assert sweep_table(again) == sweep_table(study)
    assert again.about == json.loads(json.dumps(study.about))


def test_points_of_a_task_with_examples_have_the_rows_of_single_runs():
    rng = np.random.default_rng(0)
    x, y, owner = rng.normal(size=(60, 3)), rng.integers(0, 2, 60), np.arange(60) // 15
    task = fl.Task("mine", fl.by_client(x, y, owner), fl.models.mlp(3, 2))
    base = experiment(task, "fedavg", rounds=2, solver=fl.ToTolerance(1e-2, lr=0.5))
    study = sweep(base, {"solver.tolerance": [0.05, 1e-3]}, select=Select("test accuracy", 1))
    for result in study.results:
        alone = run(result.experiment)
        assert {"test accuracy", "residual", "gradients"} <= result.rows[-1].keys()
        assert_same_log(result, alone)
    assert study.results[0].rows[-1]["gradients"] < study.results[1].rows[-1]["gradients"]
    assert best(study).score == max(r.rows[-1]["test accuracy"] for r in study.results)


def _run_of(study, name):
    return next(r for r in study.results if r.name == name)


def test_only_experiments_that_differ_in_numbers_are_alike():
    numbers = {"solver.lr": 0.5, "algorithm.lr": 0.5}
    others = {
        "cohort": "uniform",
        "rounds": 5,
        "evaluate_every": 2,
        "seed": 1,
        "solver.steps": 2,
        "algorithm": "fedavg",
    }
    base = changed(SCAFFOLD, {"cohort": "everyone"})
    experiments = [base, *(changed(base, {field: value}) for field, value in (numbers | others).items())]
    assert alike(experiments) == [[0, 1, 2], [3], [4], [5], [6], [7], [8]]
    digits = experiment("digits", "scaffold")
    for field, value in (("split", "iid"), ("model", "2nn"), ("weights", "uniform")):
        assert alike([digits, changed(digits, {field: value}), digits]) == [[0, 2], [1]]
    assert alike([base, changed(digits, {"algorithm": base.algorithm})]) == [[0], [1]]


def test_points_of_large_models_run_alone_and_bit_by_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "SMALL_MODEL", 5)
    watching = Watching()
    study = sweep(GRADIENT_DESCENT, {"algorithm.lr": [0.5, 1.0]}, directory=tmp_path / "s", progress=watching)
    for result in study.results:
        assert result.rows == run(result.experiment).rows
    rounds = list(range(5))
    assert watching.rows == [(name, t) for name in watching.begun for t in rounds]  # one after the other


def test_a_stopped_sweep_ends_with_the_bits_of_one_that_was_not(tmp_path, monkeypatch):
    """Rounding depends on how many points are side by side, so those that are over are computed again beside them."""
    base = experiment("digits", "fedavg", rounds=4, evaluate_every=2)
    over = {"solver.lr": [0.1, 0.2, 0.05, 1e6]}
    whole = sweep(base, over, directory=tmp_path / "whole")
    assert whole.results[3].diverged

    class Stop(Watching):
        def end(self, result):
            super().end(result)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(base, over, directory=tmp_path / "stopped", progress=Stop())
    assert sum(r.finished for r in read_study(tmp_path / "stopped").results) == 1
    beside, records = [], grid.run_records

    def counted(run, algorithms, *arguments):
        beside.append(len(algorithms))
        return records(run, algorithms, *arguments)

    monkeypatch.setattr(grid, "run_records", counted)
    study = resume_sweep(tmp_path / "stopped")
    assert [r.rows for r in study.results] == [r.rows for r in whole.results]
    assert beside == [
        4
    ]  # the program of the whole sweep; whether a smaller one rounds otherwise depends on the machine


def test_a_point_that_was_stopped_alone_goes_on_from_its_checkpoint(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        sweep(GRADIENT_DESCENT, {"algorithm.lr": [0.5, 1.0]}, directory=tmp_path / "s", progress=Watching(stop_at=1))
    place = read_study(tmp_path / "s").results[1].directory
    with pytest.raises(KeyboardInterrupt):
        resume(place, watch=[Watching(stop_at=4).plain_row], checkpoint_seconds=0.0)
    watching = Watching()
    study = resume_sweep(tmp_path / "s", progress=watching)
    assert [t for name, t in watching.rows if name == "algorithm.lr=1"] == [3, 4]
    assert study.results[1].rows == run(study.results[1].experiment).rows  # it was alone, so bit by bit
    losses = [
        [row["train loss"] for row in rows] for rows in (study.results[0].rows, run(study.results[0].experiment).rows)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_nan_within_a_chunk_is_logged_as_in_a_single_run():
    base = changed(GRADIENT_DESCENT, {"evaluate_every": 2})
    good, bad = sweep(base, {"algorithm.lr": [1.0, 1e200]}).results
    assert "NaN or infinity" in bad.diverged or "not finite" in bad.diverged
    assert bad.rows == run(bad.experiment).rows
    assert good.rows[-1]["train loss"] == pytest.approx(descent(1.0, 4)[-1], rel=1e-9)


def test_more_points_than_fit_run_in_batches(monkeypatch):
    monkeypatch.setattr(grid, "MOST_POINTS", 2)
    watching = Watching()
    base = changed(GRADIENT_DESCENT, {"rounds": 2})
    study = sweep(base, {"algorithm.lr": [0.1, 0.2, 0.3, 0.4]}, progress=watching)
    names = watching.begun
    assert watching.rows == [(n, t) for pair in (names[:2], names[2:]) for t in range(3) for n in pair]
    for result, lr in zip(study.results, (0.1, 0.2, 0.3, 0.4), strict=True):
        assert result.rows[-1]["train loss"] == pytest.approx(descent(lr, 2)[-1], rel=1e-9)
        assert result.seconds > 0


def test_a_sweep_compiles_its_rounds_and_its_evaluation_once(monkeypatch):
    """Several calls, batches of 7, 7 and 6 on three devices, and another seed: all share the same two programs."""
    monkeypatch.setattr(grid, "MOST_POINTS", 7)
    compiled = []

    def listen(name, _, **about):
        if name.endswith("backend_compile_duration"):
            compiled.append(about["fun_name"])

    base = experiment("quadratics", "fedavgm", cohort=fl.cohorts.uniform(3), rounds=3, solver=fl.GD(0.1, steps=2))
    jax.clear_caches()  # of tests before this one
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        sweep(base, {"algorithm.lr": np.linspace(0.1, 1, 20).tolist(), "seed": [0, 1]})
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled.count("jit(run_rounds)") == 1
    assert compiled.count("jit(losses)") == 1


# Points.


def test_a_grid_is_the_product_and_whole_parts_come_before_their_fields():
    points = points_of(GRADIENT_DESCENT, {"algorithm.lr": [0.5, 2], "algorithm": ["fedavg", "scaffold"]}, None)
    assert list(points) == [f"algorithm.lr={lr},algorithm={a}" for lr in ("0.5", "2") for a in ("fedavg", "scaffold")]
    assert [e.algorithm for _, e in points.values()] == [
        kind(lr=lr) for lr in (0.5, 2) for kind in (fl.FedAvg, fl.Scaffold)
    ]
    close = points_of(GRADIENT_DESCENT, {"algorithm.lr": np.array([0.1, 0.100000001])}, None)
    assert list(close) == ["algorithm.lr=0.1", "algorithm.lr=0.100000001"]


def test_random_points_are_distinct_repeatable_and_log_uniform():
    space = {"algorithm.lr": Range(1e-4, 1.0), "rounds": Range(1, 8), "algorithm": ["fedsgd", "fedavg"]}
    points = [values for values, _ in points_of(GRADIENT_DESCENT, space, 300).values()]
    assert len({tuple(p.values()) for p in points}) == 300
    again = [values for values, _ in points_of(GRADIENT_DESCENT, space, 40).values()]
    assert again == points[:40]
    other = points_of(dataclasses.replace(GRADIENT_DESCENT, seed=1), space, 40)
    assert [values for values, _ in other.values()] != again
    lrs = np.array([p["algorithm.lr"] for p in points])
    assert np.all((lrs >= 1e-4) & (lrs <= 1))
    rounds = [p["rounds"] for p in points]
    assert {type(r) for r in rounds} == {int}
    assert set(rounds) == set(range(1, 9))
    assert rounds.count(1) > 3 * rounds.count(8)  # log 3 / log 17 of them against log(17/15) / log 17
    assert {p["algorithm"] for p in points} == {"fedsgd", "fedavg"}


def test_every_decade_of_a_range_is_drawn_alike():
    rng = np.random.default_rng(0)
    exponents = np.log10([Range(1e-4, 1.0).draw(rng) for _ in range(4000)])
    counts, _ = np.histogram(exponents, [-4, -3, -2, -1, 0])
    assert np.all(np.abs(counts - 1000) < 110)  # four standard deviations
    assert all(0.111111 <= Range(0.111111, 0.111122).draw(rng) <= 0.111122 for _ in range(9))


@pytest.mark.parametrize(
    ("space", "random", "says"),
    [
        ({}, None, "nothing to sweep"),
        ({"algorithm.lr": []}, None, "algorithm.lr has no values"),
        ({"algorithm.lr": 0.1}, None, "algorithm.lr needs a list of values, got 0.1"),
        ({"algorithm.lr": "0.1"}, None, "algorithm.lr needs a list of values, got '0.1'"),
        ({"algorithm.lr": [0.1, 0.2, 0.1]}, None, "algorithm.lr lists 0.1 twice"),
        ({"algorithm.lr": Range(0.1, 1)}, None, "range 0.1..1, which only random search can use"),
        ({"algorithm.lr": [0.1], "seed": Range(1, 9)}, 2, "seed needs a list of values, not a range"),
        ({"algorithm.lr": [0.1, 0.2]}, 3, "only 2 distinct points"),
        ({"algorithm.lr": [0.1]}, 0, "random must be a positive integer, got 0"),
        ({"algorithm.lr": [0.1, -0.2]}, None, r"algorithm.lr=-0.2: algorithm: FedSGD: lr must be a positive number"),
        ({"algorithm.l": [0.1]}, None, r"fedsgd has no field 'l'. Did you mean 'lr'"),
        ({"algoritm.lr": [0.1]}, None, r"no field 'algoritm'. Did you mean 'algorithm'"),
        ({"rounds": [5, 0]}, None, "rounds=0: Experiment: rounds must be an integer from 1"),
        ({"cohort": ["uniform"], "cohort.m": [3, 50]}, None, r"cohort.m=50: uniform: m = 50 is larger"),
        ({"algorithm": ["fedpd"], "cohort": ["uniform"]}, None, "algorithm=fedpd,cohort=uniform: .*every client"),
    ],
)
def test_bad_sweeps(space, random, says, monkeypatch, tmp_path):
    monkeypatch.setattr(grid, "_program", None)  # nothing is run
    with pytest.raises(ValueError, match=says):
        sweep(GRADIENT_DESCENT, space, random=random, directory=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_unknown_metric_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match=r"no metric 'train los'\. Did you mean 'train loss'"):
        sweep(SCAFFOLD, {"solver.lr": [0.1]}, select=Select("train los"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("solver.lr=0.001,0.01", ("solver.lr", [0.001, 0.01])),
        ("solver.lr = 1e-3, 1", ("solver.lr", [0.001, 1])),
        ("solver.lr=0.001..1", ("solver.lr", Range(0.001, 1))),
        ("cohort.m=2..20", ("cohort.m", Range(2, 20))),
        ("algorithm=fedavg,fedprox", ("algorithm", ["fedavg", "fedprox"])),
        ("solver.clip=none,1", ("solver.clip", ["none", 1])),
        ("algorithm.regularizer={name='l1',weight=0.1},none", ("algorithm.regularizer", None)),
        ("algorithm={name='fedprox',mu=1}", ("algorithm", [{"name": "fedprox", "mu": 1}])),
        ("solver.drop_last=true,false", ("solver.drop_last", [True, False])),
    ],
)
def test_over_is_read(text, expected):
    field, values = parse_over(text)
    assert field == expected[0]
    assert expected[1] is None or values == expected[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("solver.lr", "FIELD=VALUE,VALUE"),
        ("=1,2", "FIELD=VALUE,VALUE"),
        ("solver.lr=", "FIELD=VALUE,VALUE"),
        ("solver.lr=1..0.1", "from a positive number to a larger one"),
        ("solver.lr=0..1", "from a positive number to a larger one"),
        ("solver.lr=low..high", "from a positive number to a larger one"),
    ],
)
def test_bad_over(text, says):
    with pytest.raises(ValueError, match=says):
        parse_over(text)


# Published grids.

DYN = experiment("cifar10-cnn-iid", "feddyn")


def test_the_presets_have_the_grids_of_the_papers():
    adam = experiment("digits", "fedadam")
    exponents = {  # FedOpt, appendix D.2: client and server, in half decades
        "fedopt": ((-3, 0.5), (-3, 1)),
        "fedopt-autoencoder": ((-1.5, 2), (-2, 1)),
        "fedopt-tags": ((-1, 3), (-2, 1.5)),
    }
    for name, (client, server) in exponents.items():
        found = preset(name, adam)
        assert list(found) == ["solver.lr", "algorithm.lr"]
        for values, (low, high) in zip(found.values(), (client, server), strict=True):
            np.testing.assert_allclose(np.log10(values), np.arange(low, high + 0.1, 0.5), atol=1e-12)
    np.testing.assert_allclose(preset("fedopt-tau", adam)["algorithm.tau"], [1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
    assert preset("paper", experiment("synthetic-1-1", "fedprox")) == {"algorithm.mu": (0.001, 0.01, 0.1, 0.5, 1.0)}
    assert preset("paper", experiment("synthetic-1-1", "feddane"))["algorithm.mu"][0] == 0.0
    with pytest.raises(ValueError, match="no grid for fedavg was published for task 'synthetic-1-1'"):
        preset("paper", experiment("synthetic-1-1", "fedavg"))
    with pytest.raises(ValueError, match=r"no preset 'fedop'\. Did you mean 'fedopt'"):
        preset("fedop", adam)
    # FedDyn's search: SCAFFOLD counts steps, the others epochs; alpha is FedDyn's; the step size decays.
    feddyn = preset("paper", experiment("cifar10-cnn-iid", "feddyn"))
    assert set(feddyn) == {"solver.lr", "algorithm.alpha"}
    decays = [changed(DYN, {"solver.lr": lr}).solver.lr for lr in feddyn["solver.lr"]]
    assert decays == [fl.schedules.exponential(0.1, d) for d in (0.992, 0.998, 1.0)]
    assert set(preset("paper", experiment("cifar10-cnn-iid", "feddr"))) == {"solver.lr"}
    assert "solver.lr.value" in preset("fedopt", changed(DYN, {"solver.lr": feddyn["solver.lr"][0]}))
    for name, counted in (("feddyn", "epochs"), ("scaffold", "steps")):
        found = preset("paper", experiment("cifar100-cnn-iid-500", name))
        assert [f for f in found if f.startswith("solver.")] == [f"solver.{counted}"]


def test_every_published_grid_makes_experiments():
    made = 0
    for task in TASKS.values():
        keys = " ".join(task.tuned_over)
        for name in {n for settings in task.settings.values() for n in settings}:
            if not ("solver." in keys or f"{name}." in keys):
                continue
            base = experiment(task, name)
            for field, values in preset("paper", base).items():
                for value in values:
                    assert changed(base, {field: value}).rounds == base.rounds
                    made += 1
    assert made > 1000
    assert all(p.about for p in PRESETS.values())


def test_a_preset_can_be_changed_on_the_command_line():
    found = over(["algorithm.lr=0.1,1", "rounds=5"], "fedopt", experiment("digits", "fedavg"))
    assert list(found) == ["solver.lr", "algorithm.lr", "rounds"]
    assert found["algorithm.lr"] == [0.1, 1]
    assert len(found["solver.lr"]) == 8
    assert over([], None, SCAFFOLD) == {}
