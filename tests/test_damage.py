"""Files of a run, a study or a tuning that were changed: they are named, and do not stop the rest."""

import io
import json
import re
import shlex
import shutil

import numpy as np
import pytest

from fedloom import cli
from fedloom.experiments import compare, experiment, find_runs, read_study, run
from fedloom.experiments.growth import _seeds_words


def main(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole") / "a"
    compare("quadratics", ["feddyn", "feddr"], seeds=[0], rounds=3, directory=directory)
    return directory


@pytest.fixture
def study(tmp_path, whole):
    return shutil.copytree(whole, tmp_path / "a")


def edit_rows(change):
    def damage(run):
        rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        change(rows)
        (run / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    return damage


def edit_table(file, change):
    def damage(run):
        table = json.loads((run / file).read_text())
        change(table)
        (run / file).write_text(json.dumps(table))

    return damage


def edit_meta(change):
    """Change what a checkpoint says of itself: its text, or with a key, the table."""

    def damage(run):
        with np.load(run / "checkpoint.npz") as arrays:
            found = dict(arrays)
        found["meta"] = np.frombuffer(change(found["meta"].tobytes()), np.uint8)
        content = io.BytesIO()
        np.savez(content, **found)
        (run / "checkpoint.npz").write_bytes(content.getvalue())

    return damage


def without(*keys):
    return lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k not in keys}).encode()


def as_directory(file):
    def damage(run):
        (run / file).unlink()
        (run / file).mkdir()

    return damage


def as_array(run):
    with (run / "checkpoint.npz").open("wb") as file:
        np.save(file, np.arange(3))


def shorten(run):
    lines = (run / "log.jsonl").read_bytes().splitlines(keepends=True)
    (run / "log.jsonl").write_bytes(b"".join(lines[:-1]))


DAMAGES = {
    "a round that is text": ("log.jsonl", edit_rows(lambda rows: rows[1].update(round="x"))),
    "a metric that is text": ("log.jsonl", edit_rows(lambda rows: rows[1].update({"train loss": "low"}))),
    "a metric that is missing": ("log.jsonl", edit_rows(lambda rows: rows[1].pop("train loss"))),
    "rows in another order": ("log.jsonl", edit_rows(lambda rows: rows.reverse())),
    "a row twice": ("log.jsonl", edit_rows(lambda rows: rows.insert(1, rows[1]))),
    "a log without its last row": ("log.jsonl", shorten),
    "a log that is a directory": ("log.jsonl", as_directory("log.jsonl")),
    "about without model bytes": ("about.json", edit_table("about.json", lambda table: table.pop("model bytes"))),
    "about without clients": ("about.json", edit_table("about.json", lambda table: table.pop("clients"))),
    "about without versions": ("about.json", edit_table("about.json", lambda table: table.pop("versions"))),
    "metrics that are a number": ("about.json", edit_table("about.json", lambda table: table.update(metrics=3))),
    "meta that is not JSON": ("checkpoint.npz", edit_meta(lambda text: b"{")),
    "meta that is a list": ("checkpoint.npz", edit_meta(lambda text: b"[]")),
    "meta without arrays": ("checkpoint.npz", edit_meta(without("arrays"))),
    "meta without a round": ("checkpoint.npz", edit_meta(without("round"))),
    "meta without versions": ("checkpoint.npz", edit_meta(without("versions"))),
    "a checkpoint that is a directory": ("checkpoint.npz", as_directory("checkpoint.npz")),
    "a checkpoint that is text": ("checkpoint.npz", lambda run: (run / "checkpoint.npz").write_text("hello")),
    "a checkpoint that is an array": ("checkpoint.npz", as_array),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_run_is_named_and_the_others_go_on(capsys, study, what):
    file, damage = DAMAGES[what]
    damage(study / "feddyn/seed-0")
    for command in ("report", "resume"):
        code, out, err = main(capsys, command, "a", *(["--quiet"] if command == "resume" else []))
        assert code == 2
        assert "report: " in out
        assert err.startswith(f"fedloom: feddyn, seed 0, is damaged: a/feddyn/seed-0/{file} ")
        assert "allow_pickle" not in err
        assert err.endswith(" Run `fedloom resume a --again feddyn/seed-0` to begin it again.\n")
        assert err.count("\n") == 1


@pytest.mark.parametrize("change", [without("clock"), lambda text: text.replace(b'"gradients"', b'"no such"')])
def test_an_unfinished_run_whose_checkpoint_lacks_something(capsys, study, change):
    place = study / "feddyn/seed-0"
    for file in (place / "config.toml", study / "study.json"):  # a longer run, which has its first rounds
        file.write_text(file.read_text().replace("rounds = 3", "rounds = 4"))
    edit_meta(change)(place)
    code, _, err = main(capsys, "resume", "a", "--quiet")
    assert code == 2
    assert "feddyn/seed-0/checkpoint.npz is damaged" in err


@pytest.mark.parametrize("content", ["{}", '{"seconds": null}', '{"seconds": "x"}', "[]", "no", "NaN"])
def test_the_time_spent_is_only_information(capsys, study, content):
    (study / "feddyn/seed-0/seconds.json").write_text(content)
    assert main(capsys, "report", "a")[0] == 0
    assert [r.seconds for r in read_study(study).results if r.name == "feddyn"] == [0.0]


def test_what_cannot_be_read_at_all_is_left_out_of_a_report(capsys, tmp_path, study):
    compare("quadratics", ["fedpd"], seeds=[0], rounds=1, directory=tmp_path / "b")
    run(experiment("quadratics", "feddr", rounds=1), tmp_path / "c")
    (tmp_path / "b/study.json").write_text("{")
    (tmp_path / "c/config.toml").write_text("rounds = [")
    code, out, err = main(capsys, "report", "a", "b", "c")
    assert code == 2
    assert "feddyn" in out
    assert "report: report-1" in out
    assert "fedpd" not in out  # nor are its runs reported as single ones
    assert [line.split(" is ")[0] for line in err.splitlines()] == ["fedloom: b/study.json", "fedloom: c/config.toml"]
    assert len(find_runs([tmp_path]).about["skipped"]) == 2
    code, out, err = main(capsys, "report", "c")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("fedloom: c/config.toml ")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("runs", 3, "runs must be a list"),
        ("runs", [], "runs must be a list"),
        ("runs", [{"name": "feddyn", "run": "feddyn/seed-0"}], "a run must have name, run and config"),
        ("runs", ["feddyn"], "a run must have name, run and config"),
        ("about", None, "about, terms and files must be tables"),
        ("terms", 3, "about, terms and files must be tables"),
        ("files", ["own.py"], "about, terms and files must be tables"),
        ("target", ["train loss"], "target must be a metric and a number"),
    ],
)
@pytest.mark.parametrize("command", ["report", "resume", "extend --seeds 2"])
def test_a_study_file_of_a_wrong_form(capsys, study, key, value, words, command):
    edit_table("study.json", lambda table: table.update({key: value}))(study)
    name, *options = command.split()
    code, out, err = main(capsys, name, "a", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"fedloom: a/study.json is damaged: {words}")


TUNING = '{"bases": {}, "points": 1, "seeds": 1, "validation": 0.2, "metric": "x", "files": {}}'


@pytest.mark.parametrize("content", ["{}", TUNING.replace('"bases": {}', '"bases": 3'), TUNING.replace(" {}}", " 3}")])
def test_a_tuning_file_of_a_wrong_form(capsys, tmp_path, content):
    (tmp_path / "t").mkdir()
    (tmp_path / "t/tuning.json").write_text(content)
    code, out, err = main(capsys, "resume", "t")
    assert (code, out) == (2, "")
    assert err.startswith("fedloom: t/tuning.json is damaged: ")


def test_the_hint_about_a_tuning_can_be_pasted_into_a_shell(capsys, tmp_path):
    (tmp_path / "it's").mkdir()
    (tmp_path / "it's/tuning.json").write_text("{}")
    code, _, err = main(capsys, "tune", "quadratics", "--algorithms", "feddyn", "--out", "it's")
    assert code == 2
    assert shlex.split(re.search("`(.*)`", err)[1]) == ["fedloom", "resume", "it's"]


def test_one_seed_is_not_seeds():
    assert [_seeds_words(n) for n in (1, 2)] == ["1 seed", "2 seeds"]
