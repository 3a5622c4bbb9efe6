"""`fedloom reproduce`: the list, what is recorded, mistakes before long work, and `python -m benchmarks.record`."""

import json
import re
import shutil
import sys

import pytest

import fedloom as fl
from benchmarks import record
from fedloom.data.catalogue import CATALOGUE
from fedloom.experiments import read_study
from fedloom.reproductions.digests import digests
from fedloom.reproductions.overview import place_of
from tests.test_cli import run


def test_reproductions_are_listed(capsys, monkeypatch, tmp_path):
    """With how their data can be had, if they are not there, and what has been recorded."""
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    monkeypatch.setattr("fedloom.reproductions.recording.PLACES", (tmp_path,))
    code, out, _ = run(capsys, "reproduce", "--list")
    assert code == 0
    head, *rows = (re.split(r"  +", line.strip()) for line in out.splitlines())
    assert head == ["name", "data (here unless said)", "published numbers", "recorded", "time of all runs"]
    assert [row[0] for row in rows] == list(fl.reproductions.REPRODUCTIONS)
    rows = {row[0]: row[1:] for row in rows}
    assert rows["feddyn-table6"][:3] == ["-", "16", "-"]  # four methods on four sets
    assert rows["speedup-figures"][:3] == ["mnist (fedloom download mnist)", "0", "-"]
    assert all(re.fullmatch(r"about \d+ (min|h|days)", row[3]) for row in rows.values())
    record = {"name": "speedup-figures", "rounds": 50, "asked rounds": 50, "seconds": 600, "figures": [], "curves": []}
    found = fl.reproductions.find("speedup-figures")
    line = found.lines[0]
    figure = {
        "setting": line.setting,
        "method": line.method,
        "measured": line.measure.words,
        "settings": digests(found, 50)[line.setting, line.method],
        "seeds": {"0": 1.0, "1": 2.0},
    }
    (tmp_path / "speedup-figures.json").write_text(json.dumps(record | {"figures": [figure]}))
    (tmp_path / "mnist").mkdir()
    for file in CATALOGUE["mnist"]:
        (tmp_path / file.path).touch()
    _, out, _ = run(capsys, "reproduce", "--list")
    row = next(line for line in out.splitlines() if line.startswith("speedup-figures "))
    figures = 2 * len(found.lines)
    assert re.split(r"  +", row.strip())[1:] == [
        "mnist",
        "0",
        f"2 seeds, 50 of 100 rounds, 2 of {figures} figures",
        "10 min",
    ]


def test_what_is_recorded_is_shown_without_a_run(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("fedloom.reproductions.recording.PLACES", (tmp_path / "recorded",))
    code, out, _ = run(capsys, "reproduce", "fedprox-stragglers", "--recorded")
    assert (code, out) == (0, "Nothing has been recorded of fedprox-stragglers.\n")
    (tmp_path / "recorded").mkdir()
    found = fl.reproductions.find("fedprox-stragglers")
    figures = [
        {
            "setting": line.setting,
            "method": line.method,
            "measured": line.measure.words,
            "seeds": dict.fromkeys("012", 0.5),
        }
        | {"settings": digests(found)[line.setting, line.method]}
        for line in found.lines
    ]
    record = {"name": "fedprox-stragglers", "rounds": 200, "seconds": 60, "date": "2026-01-02", "commit": "abc"}
    (tmp_path / "recorded/fedprox-stragglers.json").write_text(json.dumps(record | {"figures": figures, "curves": []}))
    code, out, _ = run(capsys, "reproduce", "fedprox-stragglers", "--recorded")
    assert code == 0
    assert out.count("0.5 [0.5, 0.5]") == 9
    assert out.count("does not hold: true in 0 of 3 seeds") == 4  # what is equal is not below
    assert "Recorded on 2026-01-02 at commit abc: 3 seeds, 1 minute of runs in all" in out
    assert "ot run" not in out
    (tmp_path / "recorded/fedprox-stragglers.json").write_text(
        json.dumps(record | {"figures": figures[:1], "curves": []})
    )
    code, out, _ = run(capsys, "reproduce", "fedprox-stragglers", "--recorded")
    assert out.count("0.5 [0.5, 0.5]") == 1
    assert "Not run yet, everywhere or in part: fedprox, mu=0; fedprox; Synthetic(1, 1), 50% stragglers; " in out
    assert out.count("ot run") == 1 + 4  # there are no rows of such figures, but of the four claims
    assert [path.name for path in tmp_path.iterdir()] == ["recorded"]
    assert max(map(len, out[out.index("Recorded on") :].splitlines())) <= 110


def test_data_are_not_here_because_others_are_in_their_directory(monkeypatch, tmp_path):
    """Shakespeare by role is a file in the directory that another form of Shakespeare has, too."""
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare/shakespeare_roles_moby.json.gz").touch()
    assert place_of("shakespeare_roles") == "here"
    assert place_of("shakespeare") == "fedloom download shakespeare"
    for file in CATALOGUE["shakespeare"]:
        (tmp_path / file.path).touch()
    assert place_of("shakespeare") == "here"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"figures": [{}], "curves": []}', '{"figures": 3}'])
def test_a_damaged_record_is_named(capsys, monkeypatch, tmp_path, text):
    monkeypatch.setattr("fedloom.reproductions.recording.PLACES", (tmp_path,))
    (tmp_path / "fedprox-stragglers.json").write_text(text)
    code, out, err = run(capsys, "reproduce", "fedprox-stragglers", "--recorded")
    assert (code, out) == (2, "")
    assert f"{tmp_path / 'fedprox-stragglers.json'} is damaged" in err
    assert "Restore it, or remove it." in err
    code, out, _ = run(capsys, "reproduce", "--list")  # which is about the others, too
    assert code == 0
    damaged = {line.split()[0] for line in out.splitlines() if " damaged " in line}
    assert damaged == {"fedprox-stragglers"}


def test_mistakes_are_said_before_what_is_recorded(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path / "nowhere"))
    code, out, err = run(capsys, "reproduce", "speedup-table2-lr")
    assert (code, out) == (2, "")
    assert "fedloom download mnist" in err
    (tmp_path / "there").mkdir()
    (tmp_path / "there/study.json").write_text("{}")
    code, out, err = run(capsys, "reproduce", "feddr-figure5", "--out", str(tmp_path / "there"))
    assert (code, out) == (2, "")
    assert "already has a study" in err
    assert "only seeds to a reproduction" in err
    code, out, err = run(capsys, "reproduce", "feddr-figure5", "--sink", "nothing")
    assert (code, out) == (2, "")
    assert "nothing" in err
    code, out, err = run(capsys, "reproduce", "feddr-figure5", "--only", "step size 0.005, 5 epoch")
    assert (code, out) == (2, "")
    assert "Did you mean 'step size 0.005, 5 epochs'? Similar: 'step size 0.005, 5 epochs', '" in err


ONE = "step size 0.0025, 5 epochs"


@pytest.fixture
def short(capsys, tmp_path):
    """Two rounds of one of the runs of FedDR's figure 5, and the lines of JSON."""
    out = tmp_path / "short"
    code, printed, _ = run(
        capsys,
        "reproduce",
        "feddr-figure5",
        "--only",
        ONE,
        "--seeds",
        "1",
        "--rounds",
        "2",
        "--out",
        str(out),
        "--json",
    )
    assert code == 0
    return out, [json.loads(line) for line in printed.splitlines()]


def test_json_has_the_findings(short):
    *rows, last = short[1]
    losses = [row["own train loss"] for row in rows if "round" in row]
    figure, *others = (row for row in last["findings"] if not row["verdict"])
    assert (figure["setting"], figure["method"]) == tuple(ONE.split(", "))
    assert float(figure["ours"]) == pytest.approx(losses[-1], rel=1e-3)
    assert {row["ours"] for row in others} == {"not run"}
    assert {row["verdict"] for row in last["findings"]} == {"", "not run"}


def test_a_study_of_no_commit_is_not_recorded(monkeypatch, tmp_path, short):
    """As of an installed package; `--commit` gives it."""
    directory = tmp_path / "copy"
    shutil.copytree(short[0], directory)
    plain = json.loads((directory / "study.json").read_text())
    (directory / "study.json").write_text(json.dumps(plain | {"about": plain["about"] | {"commit": None}}))
    monkeypatch.setattr(record, "PLACE", tmp_path / "records")
    monkeypatch.setattr(sys, "argv", ["record", str(directory)])
    with pytest.raises(SystemExit, match="does not say which commit made it; give it with --commit"):
        record.main()
    assert not (tmp_path / "records").exists()
    monkeypatch.setattr(sys, "argv", ["record", str(directory), "--commit", "abc1234"])
    record.main()
    assert json.loads((tmp_path / "records" / "feddr-figure5.json").read_text())["commit"] == "abc1234"


def test_a_study_is_recorded(capsys, monkeypatch, tmp_path, short):
    """And shown with the command that runs it again, as short as it was."""
    directory, _ = short
    place = tmp_path / "records"
    monkeypatch.setattr(record, "PLACE", place)
    monkeypatch.setattr("fedloom.reproductions.recording.PLACES", (place,))
    arguments = ["record", str(directory), "--commit", "abc1234"]
    monkeypatch.setattr(sys, "argv", arguments)
    record.main()
    assert "1 figures, seeds (0,)" in capsys.readouterr().out
    written = (place / "feddr-figure5.json").read_text()
    assert json.loads(written)["commit"] == (read_study(directory).about["commit"] or "abc1234")
    record.main()  # the same once more changes nothing
    capsys.readouterr()
    again = json.loads((place / "feddr-figure5.json").read_text())
    assert again["figures"] == json.loads(written)["figures"]
    assert "earlier" not in again
    code, out, _ = run(capsys, "reproduce", "feddr-figure5", "--recorded")
    assert code == 0
    assert "These runs have only 2 of 10 rounds" in out
    assert "one seed, less than a minute of runs in all" in out
    assert f"Again: fedloom reproduce 'feddr-figure5' --only '{ONE}' --seeds 0, --rounds 2\n" in out


def test_a_study_without_a_finished_run_is_not_recorded(monkeypatch, tmp_path):
    e = fl.reproductions.find("feddr-figure5").runs([0], 2)[:1]
    about = {"kind": "reproduction", "name": "feddr-figure5", "commit": "abc1234", "rounds": 2}
    fl.experiments.study.create_study(e, tmp_path / "empty", title="", target=None, about=about)
    monkeypatch.setattr(record, "PLACE", tmp_path / "records")
    monkeypatch.setattr(sys, "argv", ["record", str(tmp_path / "empty")])
    with pytest.raises(SystemExit, match="no run has finished, so there is nothing to record"):
        record.main()
    assert not (tmp_path / "records").exists()
