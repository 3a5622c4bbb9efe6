"""Studies that grow: every way of adding to a study ends with the logs of one that was made so at once."""

import json
import shutil
import types

import pytest

import fedloom as fl
from fedloom.experiments import compare, experiment, extend, growth, looking, read, read_study, resume_study, run, sweep


def logs(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("log.jsonl")}


def study(directory, algorithms=("feddyn", "scaffold"), seeds=(0,), rounds=4, **changes):
    fields = {"evaluate_every": 2, "solver": "gd", "rounds": rounds} | changes
    return compare("quadratics", list(algorithms), seeds=seeds, directory=directory, **fields)


def stamps(directory):
    return {p: p.stat().st_mtime_ns for p in directory.rglob("log.jsonl")}


ADDED = {
    "seeds": {"seeds": 3},
    "a list of seeds": {"seeds": [5, 0, 2]},
    "methods": {"algorithms": ["feddr", fl.FedProx(0.5)]},
    "rounds": {"rounds": 9},
    "everything": {"seeds": 2, "algorithms": ["fedavg"], "rounds": 8},
}


def at_once(directory, added, **changes):
    seeds = added.get("seeds", [0])
    return study(
        directory,
        ["feddyn", "scaffold", *added.get("algorithms", ())],
        range(seeds) if isinstance(seeds, int) else seeds,
        added.get("rounds", 4),
        **changes,
    )


@pytest.mark.parametrize("added", ADDED.values(), ids=ADDED)
def test_a_study_that_grew_has_the_logs_of_one_made_at_once(tmp_path, added):
    whole = at_once(tmp_path / "whole", added)
    study(tmp_path / "grown")
    before = stamps(tmp_path / "grown")
    grown = extend(tmp_path / "grown", **added)
    assert logs(tmp_path / "grown") == logs(tmp_path / "whole")
    assert [(r.name, r.experiment) for r in grown.results] == [(r.name, r.experiment) for r in whole.results]
    assert [r.rows for r in grown.results] == [r.rows for r in whole.results]
    if "rounds" not in added:
        after = stamps(tmp_path / "grown")
        assert {p: after[p] for p in before} == before  # finished runs are not touched
    with pytest.raises(ValueError, match="already has all of this: there is nothing to add"):
        extend(tmp_path / "grown", **added)


SYSTEMS = {
    "clock": {"system": fl.System(speeds=3.0)},
    "faults": {"system.faults.lost": 0.2},
    "cohorts of several sizes": {"cohort": fl.cohorts.bernoulli(0.3)},
    "tolerance": {"solver": fl.ToTolerance(tolerance=1e-3, lr=0.05)},
}


def longer(tmp_path, e, first, rounds, every):
    """A run of `first` rounds that gets more, and one that has them from the start."""
    name = f"{first}-{rounds}-{every}"
    fields = {"evaluate_every": every}
    whole = run(fl.experiments.changed(e, {"rounds": rounds, **fields}), tmp_path / f"whole-{name}")
    run(fl.experiments.changed(e, {"rounds": first, **fields}), tmp_path / f"short-{name}")
    study = extend(tmp_path / f"short-{name}", rounds=rounds)
    assert logs(tmp_path / f"short-{name}") == logs(tmp_path / f"whole-{name}")
    assert study.results[0].rows == whole.rows
    again = read(tmp_path / f"short-{name}")
    assert again.experiment == whole.experiment
    return again


# Rounds, more rounds, and rounds between evaluations: at a multiple, between two, and before the first.
LENGTHS = [(4, 8, 2), (7, 9, 3), (7, 8, 3), (2, 7, 5), (5, 6, 1)]


@pytest.mark.parametrize(("first", "rounds", "every"), LENGTHS)
def test_a_run_can_get_more_rounds(tmp_path, first, rounds, every):
    longer(tmp_path, experiment("quadratics", "scaffold", solver="gd"), first, rounds, every)


@pytest.mark.parametrize("changes", SYSTEMS.values(), ids=SYSTEMS)
def test_clocks_faults_cohorts_and_residuals_go_on(tmp_path, changes):
    longer(tmp_path, experiment("quadratics", "feddyn", **changes), 7, 11, 3)


@pytest.mark.parametrize("algorithm", ["feddr", "scaffold", "fedbuff"])
def test_jobs_in_flight_go_on(tmp_path, algorithm):
    changes = {"engine": "events", "buffer": 2, "solver": "gd", "system.speeds": 5.0}
    longer(tmp_path, experiment("quadratics", algorithm, **changes), 7, 11, 3)


METHODS = ["fedavg", "feddyn", "scaffold", "feddr", "fedadam", "fedpd", "feddane"]
EVERY = [(method, (5, 9, 3)) for method in METHODS] + [("scaffold", lengths) for lengths in LENGTHS]


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["simulate", "events"])
@pytest.mark.parametrize(("algorithm", "lengths"), EVERY)
def test_every_method_and_every_length(tmp_path, engine, algorithm, lengths):
    first, rounds, every = lengths
    if engine == "events" and not fl.ALGORITHMS[algorithm].tolerates_staleness:
        pytest.skip("it does not run asynchronously")
    changes = {"system.speeds": 3.0} | ({"engine": "events", "buffer": 2} if engine == "events" else {})
    longer(tmp_path, experiment("digits", algorithm, **changes), first, rounds, every)


def test_a_run_between_two_evaluations_is_not_begun_again(tmp_path, monkeypatch):
    """Only the rounds after the last evaluation that both have are run again."""
    started = []
    e = experiment("quadratics", "feddyn", rounds=7, evaluate_every=3)
    run(e, tmp_path / "a")
    from fedloom.engines import synchronous

    original = synchronous.run_records
    monkeypatch.setattr(
        synchronous, "run_records", lambda r, chunk: started.append(r.start.round) or original(r, chunk)
    )
    extend(tmp_path / "a", rounds=9)
    extend(tmp_path / "a", rounds=12)
    assert started == [6, 9]


def diverging(rounds, every, lr=100.0):
    changes = {"rounds": rounds, "evaluate_every": every, "algorithm.lr": lr, "cohort": "everyone"}
    return experiment("quadratics", "fedsgd", **changes)


@pytest.mark.parametrize(
    ("first", "rounds", "every", "again"),
    [(20, 30, 1, False), (20, 30, 4, False), (3, 30, 4, True), (7, 30, 4, True)],
)
def test_a_run_that_diverged_stays_if_the_longer_one_notices_it_there(tmp_path, first, rounds, every, again):
    whole = run(diverging(rounds, every), tmp_path / "whole")
    short = run(diverging(first, every), tmp_path / "short")
    assert short.diverged
    before = stamps(tmp_path / "short")
    extend(tmp_path / "short", rounds=rounds)
    assert logs(tmp_path / "short") == logs(tmp_path / "whole")
    assert read(tmp_path / "short").diverged == whole.diverged
    if not again:
        assert stamps(tmp_path / "short") == before


def test_a_divergence_that_the_longer_run_does_not_see(tmp_path, monkeypatch):
    """The loss is high after 7 rounds, where only the short run looks."""
    bound = fl.experiments.running.EXPLODED
    e = experiment("quadratics", "feddyn", rounds=12, evaluate_every=3)
    whole = run(e, tmp_path / "whole")
    monkeypatch.setattr("fedloom.experiments.running.EXPLODED", -10.0)
    short = run(fl.experiments.changed(e, {"rounds": 2}), tmp_path / "short")
    assert (short.rows[-1]["round"], bool(short.diverged)) == (2, True)
    monkeypatch.setattr("fedloom.experiments.running.EXPLODED", bound)
    assert extend(tmp_path / "short", rounds=12).results[0].rows == whole.rows


@pytest.mark.parametrize("rounds", [6, 8])
def test_a_config_that_was_changed_by_hand_is_not_taken_for_a_longer_run(tmp_path, rounds):
    """After 7 rounds a longer run has no evaluation, and a shorter one has ended."""
    e = experiment("quadratics", "feddyn", rounds=7, evaluate_every=3)
    run(e, tmp_path / "a")
    (tmp_path / "a/config.toml").write_text(fl.experiments.changed(e, {"rounds": rounds}).to_toml())
    with pytest.raises(ValueError, match=r"belongs to another experiment: .*config.toml was changed"):
        fl.experiments.resume(tmp_path / "a")


def test_an_unfinished_study_is_simply_continued(tmp_path):
    at_once(tmp_path / "whole", ADDED["everything"])
    study(tmp_path / "grown")
    for file in ("log.jsonl", "checkpoint.npz", "config.toml", "about.json", "seconds.json", "lock"):
        (tmp_path / "grown/scaffold/seed-0" / file).unlink()
    (tmp_path / "grown/scaffold/seed-0").rmdir()
    extend(tmp_path / "grown", **ADDED["everything"])
    assert logs(tmp_path / "grown") == logs(tmp_path / "whole")


def test_a_study_can_grow_again_and_again(tmp_path):
    """A method that comes later gets the rounds of the others, and is evaluated as often."""
    at_once(tmp_path / "whole", {"seeds": 3, "algorithms": ["feddr"], "rounds": 7})
    study(tmp_path / "grown")
    for added in ({"rounds": 5}, {"seeds": 2}, {"rounds": 7}, {"algorithms": ["feddr"]}, {"seeds": [0, 1, 2]}):
        extend(tmp_path / "grown", **added)
    assert logs(tmp_path / "grown") == logs(tmp_path / "whole")
    assert json.loads((tmp_path / "grown/study.json").read_text())["about"]["looks"] == [
        1,
        1,
        2,
        2,
        3,
    ]  # more rounds are a look, too


def test_what_cannot_be_added_is_refused_with_a_reason(tmp_path):
    small = study(tmp_path / "a", ["feddyn"], seeds=[0, 1], rounds=2)
    before = (tmp_path / "a/study.json").read_bytes()
    for added, sentence in (
        ({}, "There is nothing to add: give seeds, algorithms or rounds"),
        ({"seeds": 1}, "already has 2 seeds, among them 1; seeds cannot be removed"),
        ({"seeds": [1, 2]}, "already has 2 seeds, among them 0"),
        ({"seeds": [0, 1, 1]}, "seeds lists 1 twice"),
        ({"seeds": 0}, "seeds must be a number of seeds or a list"),
        ({"seeds": [0, 1, -2]}, "seed must be an integer from 0"),
        ({"rounds": 1}, "feddyn, seed 0, already has 2 rounds, more than 1; none is removed"),
        ({"rounds": 0}, "rounds must be a positive integer"),
        ({"algorithms": ["fedynn"]}, "There is no algorithm 'fedynn'. Did you mean 'feddyn'"),
        ({"algorithms": ["fedpd"], "seeds": 3, "rounds": 2**32}, "rounds must be an integer from 1 to"),
        ({"seeds": 2, "rounds": 2, "algorithms": ["feddyn"]}, "there is nothing to add"),
    ):
        with pytest.raises(ValueError, match=sentence):
            extend(tmp_path / "a", **added)
        assert (tmp_path / "a/study.json").read_bytes() == before
    sweep(small.results[0].experiment, {"algorithm.alpha": [0.1, 1.0]}, directory=tmp_path / "sweep")
    with pytest.raises(ValueError, match="is a sweep, which cannot be extended: its points ran side by side"):
        extend(tmp_path / "sweep", seeds=2)
    run(small.results[0].experiment, tmp_path / "run")
    with pytest.raises(ValueError, match="is a single run, which can only get more rounds"):
        extend(tmp_path / "run", seeds=2)
    with pytest.raises(ValueError, match="run already has 2 rounds, more than 1"):
        extend(tmp_path / "run", rounds=1)
    with pytest.raises(ValueError, match="There is no directory"):
        extend(tmp_path / "nowhere", seeds=2)


def test_where_there_is_no_recipe_for_methods(tmp_path):
    data = fl.by_client([[float(i)] for i in range(12)], [i % 2 for i in range(12)], [i % 3 for i in range(12)], test=0)
    compare(fl.Task("mine", data, fl.models.mlp(1, 2)), ["fedavg"], seeds=[0], rounds=1, directory=tmp_path / "object")
    with pytest.raises(ValueError, match=r"its task was given as an object.*Seeds and rounds can"):
        extend(tmp_path / "object", algorithms=["feddyn"])
    study(tmp_path / "lr", ["feddyn"], **{"solver.lr": fl.schedules.exponential(0.1, 0.9)})
    with pytest.raises(ValueError, match=r"made with a value of solver.lr that cannot be written"):
        extend(tmp_path / "lr", algorithms=["feddr"])
    study(tmp_path / "old", ["feddyn"])
    plain = json.loads((tmp_path / "old/study.json").read_text())
    plain["about"] = {"kind": "comparison"}
    (tmp_path / "old/study.json").write_text(json.dumps(plain))
    with pytest.raises(ValueError, match="it was not made by a comparison of this version of FedLoom"):
        extend(tmp_path / "old", algorithms=["feddr"])
    assert extend(tmp_path / "old", seeds=2).about["looks"] == [1, 2]


def test_other_versions_do_not_mix(tmp_path, monkeypatch):
    study(tmp_path / "a", ["feddyn"])
    monkeypatch.setattr("fedloom.experiments.about.__version__", "99.0")
    for added in ({"seeds": 2}, {"rounds": 9}):
        with pytest.raises(ValueError, match=rf"was run with fedloom {fl.__version__} \(here 99.0\)"):
            extend(tmp_path / "a", **added)


def test_a_reproduction_can_get_seeds_only(tmp_path, monkeypatch):
    """Which it notes if they are run at another commit."""
    monkeypatch.setattr("fedloom.reproductions.commit", lambda: "c1")
    monkeypatch.setattr("fedloom.experiments.about.commit", lambda: "c2")
    fl.reproductions.reproduce("fedprox-stragglers", seeds=1, rounds=1, directory=tmp_path / "a")
    with pytest.raises(ValueError, match="only seeds can be added"):
        extend(tmp_path / "a", rounds=2)
    before = logs(tmp_path / "a")
    grown = extend(tmp_path / "a", seeds=2)
    assert len(grown.results) == 2 * len(before)
    assert before.items() <= logs(tmp_path / "a").items()
    assert grown.about["commit"] == read_study(tmp_path / "a").about["commit"] == "c1 and c2"
    assert extend(tmp_path / "a", seeds=3).about["commit"] == "c1 and c2"


def test_what_is_resumed_at_another_commit_says_so(tmp_path, monkeypatch):
    """If anything is left to do: otherwise nothing is of that commit."""
    monkeypatch.setattr("fedloom.reproductions.commit", lambda: "c1")
    fl.reproductions.reproduce(
        "feddr-figure5", seeds=2, rounds=1, only=("step size 0.0025, 5 epochs",), directory=tmp_path / "a"
    )
    monkeypatch.setattr("fedloom.experiments.about.commit", lambda: "c2")
    assert resume_study(tmp_path / "a").about["commit"] == "c1"
    second = next((tmp_path / "a").glob("*/seed-1"))
    shutil.rmtree(second)
    assert resume_study(tmp_path / "a").about["commit"] == read_study(tmp_path / "a").about["commit"] == "c1 and c2"


# Seeds that are added until the results decide.


@pytest.fixture
def evidence(monkeypatch):
    """Separated from so many seeds on."""
    stub = types.SimpleNamespace(enough=5)
    tied = types.SimpleNamespace(tied=("feddyn", "feddr"), separated=False)
    monkeypatch.setattr(
        growth, "separated", lambda study: len({r.experiment.seed for r in study.results}) >= stub.enough
    )
    monkeypatch.setattr(growth, "verdict", lambda study, task: tied)
    return stub


class Sayings:
    def __init__(self):
        self.said = []

    def say(self, words):
        self.said.append(words)

    def begin(self, runs): ...
    def row(self, name, experiment, row): ...
    def end(self, result): ...
    def close(self): ...


@pytest.mark.parametrize(("enough", "looks"), [(3, [3]), (5, [3, 5]), (99, [3, 5, 7, 10])])
def test_seeds_are_added_until_the_results_decide(tmp_path, evidence, enough, looks):
    evidence.enough, progress = enough, Sayings()
    changes = {"rounds": 2, "progress": progress}
    done = compare("quadratics", ["feddyn", "feddr"], seeds="3..10", directory=tmp_path / "a", **changes)
    assert (done.about["planned"], done.about["looks"]) == ([3, 5, 7, 10], looks)
    assert len(progress.said) == len(looks)
    if len(looks) > 1:
        assert progress.said[0] == "3 seeds: feddyn, feddr are still tied; adding 2 seeds."
    compare("quadratics", ["feddyn", "feddr"], seeds=range(looks[-1]), directory=tmp_path / "b", rounds=2)
    assert logs(tmp_path / "a") == logs(tmp_path / "b")
    in_memory = compare("quadratics", ["feddyn", "feddr"], seeds="3..10", rounds=2)
    assert [r.rows for r in in_memory.results] == [r.rows for r in read_study(tmp_path / "b").results]
    assert in_memory.about["looks"] == looks
    assert resume_study(tmp_path / "a").about["looks"] == looks


@pytest.mark.parametrize("stop_at", range(1, 11))
def test_a_sequence_that_was_stopped_decides_the_same(tmp_path, evidence, stop_at):
    class Stop(Sayings):
        ended = 0

        def end(self, result):
            self.ended += 1
            if self.ended == stop_at:
                raise KeyboardInterrupt

        def say(self, words):
            self.end(None)

    with pytest.raises(KeyboardInterrupt):
        compare("quadratics", ["feddr"], seeds="3..10", rounds=1, directory=tmp_path / "a", progress=Stop())
    resumed = resume_study(tmp_path / "a")
    assert resumed.about["looks"] == [3, 5]
    assert len(resumed.results) == 5


@pytest.mark.parametrize("seeds", ["3..", "..3", "5..3", "3..3", "1..4", "a..b", "three", ""])
def test_ranges_of_seeds_that_are_none(seeds):
    with pytest.raises(ValueError, match=r"seeds must go from at least 2 to a larger number, such as 3..10"):
        looking.planned_looks(seeds)


def test_a_study_with_a_plan_can_be_copied_and_resumed_elsewhere(tmp_path, evidence):
    compare("quadratics", ["feddr"], seeds="3..10", rounds=1, directory=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert resume_study(tmp_path / "b").about == read_study(tmp_path / "a").about
