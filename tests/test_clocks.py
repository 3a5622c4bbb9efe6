"""Experiments with simulated time: files, logs, resuming, the report, the command."""

import json
import re
import tomllib

import numpy as np
import pytest

import fedloom as fl
from fedloom import cli, report
from fedloom.experiments import Study, changed, experiment, from_config, from_toml, resume, run
from fedloom.experiments.comparisons import comparison
from fedloom.experiments.running import Running
from fedloom.reproductions import REPRODUCTIONS
from fedloom.systems import Delays, System
from fedloom.systems.availability import diurnal, markov, observed
from fedloom.systems.compute import exponential, lognormal, proportional, recorded
from fedloom.systems.faults import random
from fedloom.systems.network import links

ROUGH = System(
    compute=exponential(of=proportional(0.5)),
    speeds=2.0,
    network=links(up=1e3, latency=0.1, sigma=0.3),
    availability=markov(30.0, 5.0),
    faults=random(lost=0.1, crash=0.05, duplicate=0.1),
)


def small(algorithm="feddr", **changes):
    return experiment("quadratics", algorithm, **({"rounds": 12, "evaluate_every": 2} | changes))


@pytest.mark.parametrize(
    "system",
    [
        None,
        System(),
        ROUGH,
        System(speeds=(1.0, 2.0, 3.0), compute=lognormal(), availability=diurnal(), deadline=3.0, late="partial"),
        System(enough=2, network=links(up=(1.0, 2.0), down=3.0), compute=recorded("times.csv")),
        System(availability=observed({0: [(0, 1), (2.5, 3)], 2: []}, repeat=4.0), compute=recorded([[1.0], [2, 3.0]])),
        System(speeds=np.array([1.0, 2.0]), network=links(up=[1.0, 2.0])),
        Delays(3, users=(1.0, 2.0), delays=((1.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0))),
    ],
    ids=lambda s: repr(s)[:40],
)
def test_systems_survive_a_file(system):
    engine = "events" if isinstance(system, Delays) else "simulate"
    e = small(system=system, engine=engine)
    again = from_toml(e.to_toml())
    assert again == e
    assert again.system == system


def test_fields_of_a_system_are_changed_by_name():
    e = small()
    assert e.system is None
    assert changed(e, {"system.speeds": 2.0}).system == System(speeds=2.0)
    assert changed(e, {"system.faults.lost": 0.1}).system == System(faults=random(lost=0.1))
    assert changed(e, {"system": {"speeds": 2.0}}).system == System(speeds=2.0)
    e = changed(e, {"system.compute": "exponential", "system.compute.of": {"name": "constant", "seconds": 3.0}})
    assert e.system.compute == exponential(of=fl.systems.compute.constant(3.0))
    assert changed(e, {"system.speeds": 2.0}).system.compute == e.system.compute
    assert changed(e, {"system": "none"}).system is None
    assert changed(e, {"system": {"speeds": 2.0}}).system.compute == e.system.compute
    assert changed(e, {"system": "delays", "system.tau": 2, "engine": "events"}).system == Delays(2)


@pytest.mark.parametrize("full", [True, False], ids=["a full file", "a short file"])
def test_a_file_need_not_name_the_simulated_system(full):
    plain = tomllib.loads(small().to_toml()) if full else {"task": "quadratics", "algorithm": "feddr"}
    assert from_config(plain | {"system": {"speeds": 2.0}}).system == System(speeds=2.0)
    assert from_config(plain | {"system": {"faults": {"name": "random", "lost": 0.1}}}).system.faults.lost == 0.1
    assert from_config(plain | {"system": "none"}).system is None


def test_costs_of_a_client_do_not_depend_on_who_waits():
    """Models and time at a bandwidth: as many replies of equally many clients, synchronous and not, cost the same."""
    waits = run(small(rounds=4, cohort="everyone"))
    clients = waits.about["clients"]
    does_not = run(small(rounds=4 * clients, evaluate_every=clients, cohort="everyone", engine="events"))
    assert waits.column("models").tolist() == [0, 2, 4]
    assert does_not.column("models")[-1] == pytest.approx(4, rel=0.3)  # those who are under way have got a message
    assert does_not.column("bytes of a client")[-1] == pytest.approx(waits.column("bytes of a client")[-1], rel=0.3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "async"}, "engine must be one of 'simulate', 'events'"),
        ({"buffer": 2}, "buffer = 2 requires the asynchronous engine"),
        ({"engine": "events", "buffer": 0}, "buffer must be an integer from 1"),
        ({"system.speeds": -1.0}, "speeds must be"),
        ({"system.speed": 2.0}, "speeds"),
        ({"system.faults.loss": 0.1}, "has no field 'loss'"),
        ({"system": 3}, "system must be"),
        ({"system.compute": {"name": "recorded", "trace": [1.0, 2.0]}}, "client 0 must have a list of seconds"),
        (
            {"system.availability": {"name": "observed", "trace": {"0": ["ab"]}}},
            "a row of client 0 must be from and to",
        ),
        ({"system.availability": {"name": "observed", "trace": ""}}, "trace must be"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(changes, words):
    with pytest.raises(ValueError, match=words):
        small(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "feddyn", "engine": "events"}, "FedDyn cannot run asynchronously: its server subtracts"),
        ({"algorithm": "feddane", "engine": "events"}, "2 exchanges"),
        ({"engine": "events", "buffer": 50}, "buffer must be an integer from 1 to"),
        ({"system": Delays(2)}, "engine = 'events' in an experiment"),
        ({"system": Delays(2), "engine": "events", "cohort": "uniform"}, "Delays draw the clients themselves"),
        ({"system": System(speeds=(1.0, 2.0))}, "speeds has 2 entries"),
        ({"engine": "events", "system": System(deadline=1.0)}, "waits for nobody"),
    ],
)
def test_impossible_combinations_are_refused_by_the_check(changes, words):
    with pytest.raises(ValueError, match=words):
        small(**changes).check()


@pytest.mark.parametrize("engine", ["simulate", "events"])
def test_a_log_has_the_clock_of_the_records(tmp_path, engine):
    e = small(engine=engine, system=ROUGH)
    result = run(e, tmp_path / "a")
    loaded = e.load()
    engine = getattr(fl, engine)
    arguments = e.algorithm, loaded.federation, e.solver, loaded.w, e.rounds
    records = list(engine(*arguments, cohort=e.cohort, chunk=2, system=ROUGH))
    assert result.rows[0]["simulated seconds"] == 0
    for row, record in zip(result.rows[1:], records, strict=True):
        assert row["train loss"] == float(loaded.federation.loss(record.w))
        assert row["simulated seconds"] == record.clock.seconds
        assert row["staleness"] == list(record.clock.staleness)
        assert row["jobs lost"] == record.clock.lost
        assert row["bytes up"] == record.counters.bytes_up
    seconds = result.column("simulated seconds")
    assert np.all(np.diff(seconds) > 0)


@pytest.mark.parametrize("engine", ["simulate", "events"])
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, monkeypatch, engine):
    e = small(engine=engine, system=ROUGH)
    whole = run(e, tmp_path / "whole")

    class Stopped(Exception):
        pass

    kept = Running._add

    def add(self, record, values):
        if record.round == 8:
            raise Stopped
        kept(self, record, values)

    monkeypatch.setattr(Running, "_add", add)
    with pytest.raises(Stopped):
        run(e, tmp_path / "stopped", checkpoint_seconds=0)
    monkeypatch.setattr(Running, "_add", kept)
    again = resume(tmp_path / "stopped")
    assert (tmp_path / "stopped" / "log.jsonl").read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()
    np.testing.assert_array_equal(again.w, whole.w)


def study():
    runs = {
        "feddr": small(rounds=10, evaluate_every=1, system=System(speeds=2.0)),
        "asyncfeddr": small(rounds=100, evaluate_every=10, engine="events", system=System(speeds=2.0)),
    }
    results = [run(e, name=name) for name, e in runs.items()]
    return Study("on a clock", results)


def test_the_report_shows_the_clock(tmp_path):
    found = study()
    page = report.write(found, tmp_path / "report").read_text()
    assert '<option value="clock" selected>simulated time</option>' in page
    assert "Simulated time" in page
    assert "staleness, in server updates" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    series = {s["name"]: s for s in data["tasks"][0]["series"]}
    for result in found.results:
        assert series[result.name]["axes"]["clock"] == result.column("simulated seconds").tolist()
    assert (tmp_path / "report" / "clock-train-loss.png").stat().st_size > 5000
    words = report.clock_text(found)
    assert re.search(r"feddr +\S+.* 0\.00 +0\n", words)  # never stale
    stale = found.results[1].rows[-1]["staleness"]
    mean = sum(i * n for i, n in enumerate(stale)) / sum(stale)
    assert f"{mean:.2f}" in words


def test_runs_without_a_clock_have_no_such_axis(tmp_path):
    result = run(small(rounds=2))
    plain = Study("", [result])
    page = report.write(plain, tmp_path / "report").read_text()
    assert '<option value="clock"' not in page
    assert "Simulated time" not in page
    assert report.clock_text(plain) == ""
    with pytest.raises(ValueError, match="no simulated time"):
        report.curves(plain, x="clock")


def test_compare_takes_the_methods_that_can():
    names = {name for name, _ in comparison("digits", changes={"engine": "events"})}
    assert {"feddr", "scaffold", "fedadam"} <= names
    assert not names & {"feddyn", "feddane", "fedpd"}
    assert {"feddyn"} <= {name for name, _ in comparison("digits")}


def test_the_command_shows_the_clock(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = ["quadratics", "--algorithms", "feddr", "--seeds", "1"]
    code = cli.main(["compare", *where, "--engine", "events", "--speeds", "2", "--rounds", "5", "--quiet"])
    out = capsys.readouterr().out
    assert code == 0
    assert "quadratics, on the simulated clock" in out
    assert cli.main(["list", "systems"]) == 0
    assert "--system.availability  markov" in capsys.readouterr().out
    alone = ["--system.availability", "observed", "--system.availability.trace", "[[[0, 2]]]"]
    assert cli.main(["run", "quadratics", "--algorithm", "feddr", "--engine", "events", *alone, "--quiet"]) == 2
    assert "nobody else can start" in capsys.readouterr().err


def test_figure_6_of_feddr_is_an_experiment_on_a_clock():
    figure = REPRODUCTIONS["feddr-figure6"]
    runs = figure.experiments
    assert runs["feddr"].system == runs["asyncfeddr"].system
    # As much of the clock: 20 users, 1 to 2 times as fast as the slowest, whose reply takes a round's time.
    assert 20 * runs["feddr"].rounds < runs["asyncfeddr"].rounds < 2 * 20 * runs["feddr"].rounds
    assert (runs["feddr"].engine, runs["asyncfeddr"].engine) == ("simulate", "events")
    claim = figure.claims[0]
    setting = figure.lines[0].setting
    assert claim.holds({(setting, "feddr"): 2.0, (setting, "asyncfeddr"): 1.0})
    assert not claim.holds({(setting, "feddr"): 1.0, (setting, "asyncfeddr"): 2.0})
