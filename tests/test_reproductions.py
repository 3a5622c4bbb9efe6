"""Reproductions: the registry, what is compared with what, and a short run."""

import dataclasses
import json

import pytest

from fedloom.experiments import Experiment
from fedloom.experiments.about import commit
from fedloom.experiments.study import Study, read_study
from fedloom.reproductions import REPRODUCTIONS, find, reproduce, text
from fedloom.reproductions.digests import digests
from fedloom.reproductions.recording import PLACES, file_name, from_json, record
from fedloom.tasks import TASKS

EMBEDDED = [name for name, r in REPRODUCTIONS.items() if not r.needs]
DOWNLOADED = [name for name, r in REPRODUCTIONS.items() if r.needs]


# The registry.


def test_what_runs_without_a_download():
    feddane = [f"feddane-{part}" for part in ("figure1", "figure2", "figure3", "variants")]
    feddr = [f"feddr-{part}" for part in ("figure2", "figure3", "figure3-tuned", "figure5")]
    fedopt = ["fedopt-figure2-digits", "fedopt-figure3-digits"]
    assert ["fedprox-stragglers", *feddane, *feddr, "feddyn-table6", "feddyn-table6-draws", *fedopt] == EMBEDDED


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_experiments_can_be_run(name):
    """Data are found and the settings agree with them; one of each kind, since the others share what is checked."""
    kinds = {(e.task, type(e.algorithm), type(e.cohort), e.weights, e.evaluate): e for _, e in find(name).runs([0])}
    for e in kinds.values():
        e.check()


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_figure_has_runs_and_a_metric_that_they_evaluate(name):
    r = find(name)
    runs = dict(r.runs())
    assert {run for line in r.lines for run in line.runs} == set(runs)
    for line in r.lines:
        assert len(set(line.runs)) == len(line.runs) > 0
        for e in map(runs.get, line.runs):
            task, metric = TASKS[e.task], line.measure.metric
            parts = ["train", "test", "last models train", "last models test", "last member test"]
            parts += ["plain last models train"]
            parts += ["own train"] * e.own_models
            named = [f"{part} {m}" for part in parts for m in ("loss", *(m.name for m in task.metrics))]
            assert metric in [*named, "gradient norm"]
            own = e.own_models and metric.startswith("own ")  # which `own_models` asks for
            assert own or metric in e.evaluate or ("test" in e.evaluate and metric.startswith("test "))
            assert r.needs == task.needs


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_a_target_is_looked_for_in_every_round(name):
    """Of asyncFedDR, in which 20 replies are a round of the others: after each of these.

    CIFAR-10 is evaluated every five rounds, where the table's smallest number of rounds is 543.
    """
    r = find(name)
    every = 5 if name == "feddyn-cifar10-cnn-iid-1%-authors-lower" else 1
    for line in r.lines:
        for e in map(r.experiments.get, line.runs):
            if line.measure.target is not None:
                assert e.evaluate_every == (20 if e.engine == "events" else every)


SEEDS = {"fedprox-stragglers": 10, "feddyn-table6": 5, "feddyn-table6-draws": 10, "feddane-variants": 5}
SEEDS |= {f"feddane-figure{i}": 5 for i in (1, 2, 3)}
SEEDS |= {f"speedup-table2-{model}": 5 for model in ("lr", "2nn", "cnn-n=10", "cnn-n=100")}
SEEDS |= {"fedopt-figure2-digits": 10}


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_seeds(name):
    """At least three, from which on there are intervals."""
    assert find(name).seeds == tuple(range(SEEDS.get(name, 3)))
    assert {e.seed for _, e in find(name).runs()} == set(find(name).seeds)
    assert len(find(name).runs()) == len(find(name).seeds) * len(find(name).experiments)


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
    """Every number that a task reports stands beside one of ours, run with the settings of its variant.

    Of a search, these settings are one of the points.
    """
    wanted = [
        (task.name, r.where, r.measure.words, method, value, brief(task.setting(method, r.variant)))
        for task in TASKS.values()
        for r in task.reported
        for method, value in r.values.items()
    ]
    ours = []
    for r in REPRODUCTIONS.values():
        for line in r.lines:
            if line.combined is not None or r.name.endswith(("-lower", "-draws")) or line.beside:
                continue  # seconds, which follow from rounds; rows that are repeated with more seeds; a variant of ours
            if line.where.startswith("table"):
                said = (line.where, line.measure.words, line.method, line.reported)
                points = [(e.task, *said, brief(e)) for e in map(r.experiments.get, line.runs)]
                (point,) = points if len(points) == 1 else [p for p in points if p in wanted]
                ours.append(point)
    assert sorted(ours) == sorted(wanted)


def brief(setting):
    return f"{setting.algorithm}, {setting.solver}, {setting.cohort}"


def test_records_outlive_a_new_field(monkeypatch):
    """A digest leaves a field out that records are older than, if it is what they were run with, and only then."""
    r = find("feddyn-table6-draws")
    now = digests(r)
    with monkeypatch.context() as earlier:
        whole = Experiment.to_toml
        for line in ('term = "proximal"\n', 'divisor = "none"\n'):
            earlier.setattr(Experiment, "to_toml", lambda self, line=line: whole(self).replace(line, ""))
            assert digests(r) == now
    assert len(set(now.values())) == len(r.lines)  # FedProx with another term among them


def test_no_recorded_figure_is_of_other_settings():
    """A setting that changes takes its figures off the pages; they have to be run again, or to leave the record."""
    names = {file_name(name): r for name, r in REPRODUCTIONS.items()}
    lost = []
    paths = list(PLACES[1].glob("*.json"))
    assert len(paths) > 30
    for path in paths:
        kept = from_json(path.read_text(), names[path.name]).values
        figures = json.loads(path.read_text())["figures"]
        lost += [
            (path.name, row["setting"], row["method"]) for row in figures if (row["setting"], row["method"]) not in kept
        ]
    assert lost == []


# Running.


def test_a_short_run_from_its_start_to_its_text(tmp_path, monkeypatch):
    """One of the table's four sets, with two points of FedDyn's search and one of each other, to save time."""
    whole = find("feddyn-table6")
    of = [line for line in whole.lines if line.setting.startswith("type2")]
    of = [line._replace(run=line.run[: 2 if line.method == "feddyn" else 1]) for line in of]
    part = {
        "experiments": {run: dataclasses.replace(whole.experiments[run], plan="1") for line in of for run in line.runs},
        "lines": tuple(of),
        "claims": tuple(claim for claim in whole.claims if claim.setting.startswith("type2")),
    }
    monkeypatch.setitem(REPRODUCTIONS, whole.name, dataclasses.replace(whole, **part))
    made = reproduce("feddyn-table6", seeds=[3], rounds=2, directory=tmp_path / "runs")
    assert made.about == {"kind": "reproduction", "name": "feddyn-table6", "commit": commit(), "rounds": 2}
    assert made.target == ("last models train loss", 0.1205)
    points = ["feddyn 0", "feddyn 1", "scaffold 0", "fedavg 0", "fedprox 0"]
    assert [r.name.removeprefix("type2, loss 0.1205, ") for r in made.results] == points
    assert {(r.experiment.seed, r.experiment.rounds) for r in made.results} == {(3, 2)}
    words = text(made)
    lines = words.splitlines()
    assert lines[0].startswith("feddyn-table6: ")
    row = next(line for line in lines if "fedprox" in line).split()
    assert row[-4:] == ["not", "reached", "275", "1.8"]  # 275 is 1.8 times FedDyn's 150
    assert sum(line.startswith("undecided  type2") for line in lines) == 1  # no method is there after two rounds
    assert "These runs have only 2 of 300 rounds" in words
    assert "gamma" in words
    assert text(read_study(tmp_path / "runs")) == words


def test_rounds_shorten_all_runs_in_proportion():
    r = find("feddr-figure3")
    rounds = {e.rounds for _, e in r.runs(rounds=30)}
    assert rounds == {30, 9}  # 66 of 200 rounds, rounded down
    assert {e.rounds for _, e in r.runs(rounds=200)} == {200, 66}
    assert r.runs(seeds=(4, 5))[1][1].seed == 5


def test_shortened_runs_are_of_so_many_rounds_as_was_asked_for(tmp_path):
    """Also if only some of them were made, which have fewer: FedPD has 66 of 200 rounds, here 1 of 3."""
    made = reproduce("feddr-figure3", seeds=1, rounds=3, only=["Synthetic(0, 0), fedpd"], directory=tmp_path / "a")
    assert {r.experiment.rounds for r in made.results} == {1}
    r = find("feddr-figure3")
    assert r.rounds_of(made) == r.rounds_of(read_study(tmp_path / "a")) == 3
    assert "only 3 of 200 rounds" in text(made)
    found = record(made, r, {"commit": "abc"})
    assert found.rounds == 3
    assert found.command.endswith("--seeds 0, --rounds 3")


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"no experiment 'feddane-figur1' to .* Did you mean 'feddane-figure1'"):
        reproduce("feddane-figur1")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rounds": 0}, "rounds must be a positive integer, got 0"),
        ({"rounds": 301}, "rounds: the longest run of feddyn-table6 has 300, fewer than 301"),
        ({"seeds": []}, "seeds must list at least one seed"),
    ],
)
def test_bad_numbers_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        reproduce("feddyn-table6", **fields)


def test_missing_data_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="Run `fedloom download mnist`"):
        reproduce("speedup-table2-lr", rounds=1)


def test_another_study_has_no_outcome():
    with pytest.raises(ValueError, match="'mine' was not made by `fedloom reproduce`"):
        text(Study("mine", []))
