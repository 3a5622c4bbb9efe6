"""Where settings come from: what tasks, runs and the command line say about it, and which settings an engine gets."""

import dataclasses

import pytest

import fedloom as fl
from fedloom.cli import main
from fedloom.cli.listing import show
from fedloom.experiments import compare, experiment, from_config
from fedloom.experiments.comparisons import comparison
from fedloom.experiments.origins import origin
from fedloom.experiments.spaces import SPACES
from fedloom.tasks import TASKS, UNTUNED, Paper, Setting, Tuned

TUNED = Tuned(24, 3, "validation accuracy", {"solver.lr": (0.1, 0.3, 1.0)})


def task(**settings):
    return dataclasses.replace(TASKS["digits"], name="mine", settings=settings)


def setting(algorithm, **fields):
    return Setting(algorithm, fl.SGD(0.3), fl.cohorts.uniform(10), 20, **fields)


MINE = task(
    rounds={"fedavg": setting(fl.FedAvg(), origin=TUNED), "fedprox": setting(fl.FedProx(0.1))},
    late={
        "fedavg": setting(fl.FedAvg(0.5), engine="events", origin=TUNED),
        "fedbuff": setting(fl.FedBuff(), engine="events", buffer=3),
    },
)


@pytest.mark.parametrize(
    ("algorithm", "changes", "kind", "words"),
    [
        ("fedavg", {}, "tuned", "tuned here: 24 points x 3 seeds on validation accuracy"),
        ("fedavg", {"seed": 4}, "tuned", "tuned here: 24 points x 3 seeds on validation accuracy"),
        ("fedavg", {"engine": "events"}, "tuned", "tuned here: 24 points x 3 seeds on validation accuracy"),
        ("fedavg", {"solver.lr": 0.1}, "changed", "tuned here, with solver.lr changed"),
        ("fedavg", {"rounds": 7, "cohort.m": 5}, "changed", "tuned here, with cohort.m, rounds changed"),
        ("fedavg", {"solver": fl.GD(0.1)}, "changed", "tuned here, with solver changed"),
        ("fedavg", {"model": "2nn"}, "changed", "tuned here, with model changed"),
        ("fedprox", {}, "untuned", "untuned: defaults"),
        ("fedprox", {"algorithm.mu": 1.0}, "changed", "defaults, with algorithm.mu changed"),
        ("fedprox", {"engine": "events"}, "changed", "defaults, with engine changed"),
        ("feddyn", {}, "untuned", "untuned: defaults"),
        ("fedpd", {}, "untuned", "untuned: defaults"),
        ("fedpd", {"algorithm.eta": 3.0}, "changed", "defaults, with algorithm.eta changed"),
    ],
)
def test_a_run_knows_where_its_settings_come_from(algorithm, changes, kind, words):
    assert origin(experiment(MINE, algorithm, **changes)) == {"origin": kind, "words": words}


def test_the_nearest_setting_counts():
    """The values of the variant for events, in synchronous rounds: one change, not two."""
    e = experiment(MINE, "fedavg", "late", engine="simulate")
    assert origin(e)["words"] in ("tuned here, with algorithm.lr changed", "tuned here, with engine changed")
    many = {"solver.lr": 1.0, "solver.epochs": 2, "cohort.m": 3, "rounds": 5}
    assert origin(experiment(MINE, "fedavg", **many))["words"] == (
        "tuned here, with solver.epochs, solver.lr, cohort.m, ... changed"
    )


def test_papers_are_cited():
    assert origin(experiment("synthetic-1-1", "fedprox")) == {
        "origin": "paper",
        "words": "paper: FedProx, arXiv:1812.06127; FedDANE, arXiv:2001.01920",
    }
    assert origin(experiment("synthetic-1-1", "fedprox", rounds=3))["words"] == "the paper's, with rounds changed"


def test_an_algorithm_of_ones_own_is_untuned():
    class Mine(fl.FedAvg):
        pass

    assert origin(experiment(MINE, Mine(0.5)))["origin"] == "untuned"


@pytest.mark.parametrize("one", TASKS.values(), ids=lambda t: t.name)
def test_every_setting_has_an_origin(one):
    for table in one.settings.values():
        for s in table.values():
            assert isinstance(one.origin(s), Paper) == bool(one.paper)


def test_a_run_records_it(tmp_path):
    study = compare("quadratics", ["feddyn", "fedprox"], seeds=[0], rounds=2, directory=tmp_path / "study")
    assert [r.about["setting"] for r in study.results] == [
        {"origin": "changed", "words": "defaults, with rounds changed"} for _ in range(2)
    ]


def test_tasks_are_shown_with_it(capsys):
    assert main(["show", "synthetic-1-1"]) == 0
    assert "paper: FedProx, arXiv:1812.06127" in capsys.readouterr().out
    assert main(["show", "heart"]) == 0
    assert "untuned: defaults" in capsys.readouterr().out


def test_a_tuned_setting_is_shown_with_its_grid():
    assert "values tried for fedavg: solver.lr 0.1, 0.3, 1" in show(MINE)


def test_words_about_edges():
    edges = dataclasses.replace(TUNED, edges=("solver.lr",), limits=("algorithm.alpha",))
    assert edges.words.endswith(
        "; best at the edge of the grid: solver.lr; at the limit of its domain: algorithm.alpha"
    )
    assert hash(edges) != hash(TUNED)
    assert UNTUNED.words == "untuned: defaults"


# Settings by engine.


def test_an_engine_gets_its_own_settings():
    assert experiment(MINE, "fedavg").algorithm == fl.FedAvg()
    late = experiment(MINE, "fedavg", engine="events")
    assert (late.algorithm, late.engine, late.buffer) == (fl.FedAvg(0.5), "events", 1)
    assert experiment(MINE, "fedbuff", engine="events").buffer == 3
    assert experiment(MINE, engine="events").algorithm == fl.FedAvg(0.5)
    assert experiment(MINE, "fedbuff", "late").engine == "events"  # a variant that is named keeps its engine
    assert experiment(MINE, "fedprox", engine="events").algorithm == fl.FedProx(0.1)  # a start, for want of others


def test_settings_for_events_are_not_used_for_rounds():
    e = experiment(MINE, "fedbuff")
    assert (e.engine, e.buffer) == ("simulate", 1)
    assert origin(e)["origin"] == "changed"


def test_a_comparison_and_a_file_get_the_settings_of_the_engine():
    assert [name for name, _ in comparison(MINE, seeds=[0], changes={"engine": "events"})] == ["fedavg", "fedbuff"]
    assert [name for name, _ in comparison(MINE, seeds=[0])] == ["fedavg", "fedprox"]
    plain = {"task": "digits", "algorithm": "fedavg", "engine": "events"}
    assert from_config(plain) == experiment("digits", "fedavg", engine="events")


@pytest.mark.parametrize("variant", ["tuned", "tuned events"])
def test_digits_was_tuned_fairly(variant):
    """As many points for each method, and no best value at the end of what was tried, unless nothing lies beyond."""
    table = TASKS["digits"].settings[variant]
    assert {s.engine for s in table.values()} == {"events" if variant == "tuned events" else "simulate"}
    assert {(s.origin.points, s.origin.seeds, s.origin.metric) for s in table.values()} == {
        (40, 3, "validation accuracy")
    }
    for name, s in table.items():
        assert s.origin.edges == ()
        assert set(s.origin.over) == {axis.field for axis in SPACES[name]}
        for field, tried in s.origin.over.items():
            part, _, own = field.partition(".")
            value = getattr(getattr(s, part), own)
            assert value in tried
            assert (min(tried) < value < max(tried)) or (field in s.origin.limits and name == "feddr" and value == 2.0)


def test_methods_of_digits_are_those_that_an_engine_supports():
    assert len(TASKS["digits"].settings["tuned"]) == 11
    stale = [name for name in TASKS["digits"].settings["tuned"] if fl.ALGORITHMS[name].tolerates_staleness]
    assert list(TASKS["digits"].settings["tuned events"]) == stale
    late = experiment("digits", "fedavg", engine="events")
    assert late.rounds == 1000  # as many replies as 100 rounds of 10 clients
    assert origin(late)["origin"] == "tuned"
