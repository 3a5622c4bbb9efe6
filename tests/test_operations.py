"""What a command does when something goes wrong around it: damaged files, signals, full disks, users' own errors."""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import fedloom as fl
from fedloom import cli
from fedloom.cli.output import new_directory
from fedloom.experiments import compare, experiment, extend, find_runs, read_study, run, sweep
from fedloom.experiments.progress import Pace, how_long, pace_words


def main(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def logs(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("log.jsonl")}


def study(directory, **changes):
    fields = {"rounds": 3, "seeds": [0, 1]} | changes
    return compare("quadratics", ["feddyn", "feddr"], directory=directory, **fields)


# Each damages one run: a file, and what it then contains; None: it is gone.
DAMAGES = [
    ("config.toml", b"rounds = ["),
    ("config.toml", b"\xff\xfe"),
    ("config.toml", None),
    ("log.jsonl", b'{"round": 0, "train lo\n{}\n'),
    ("log.jsonl", b"3\n"),
    ("log.jsonl", b""),
    ("log.jsonl", None),
    ("about.json", b""),
    ("about.json", b"[]"),
    ("about.json", None),
    ("checkpoint.npz", b"PK"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return study(tmp_path_factory.mktemp("made") / "study").directory


@pytest.mark.parametrize(("file", "content"), DAMAGES, ids=[f"{f} {c}"[:30] for f, c in DAMAGES])
def test_a_damaged_run_does_not_block_the_others(capsys, tmp_path, made, file, content):
    shutil.copytree(made, tmp_path / "a b")
    whole = logs(tmp_path / "a b")
    place = tmp_path / "a b/feddyn/seed-1"
    if content is None:
        (place / file).unlink()
    else:
        (place / file).write_bytes(content)
    for other in (tmp_path / "a b/feddr/seed-0").iterdir():  # another one is left to be run
        other.unlink()
    assert main(capsys, "report", "a b")[0] == 2
    damaged = {(r.name, r.experiment.seed): r.damaged for r in find_runs(["a b"]).results if r.damaged}
    assert list(damaged) == [("feddyn", 1)]
    assert str(place / file) in damaged["feddyn", 1].replace("a b", str(tmp_path / "a b"), 1)
    assert all(not r.rows for r in find_runs(["a b"]).results if r.damaged)
    code, out, err = main(capsys, "resume", "a b")
    assert code == 2
    assert "report: " in out
    assert [r.finished for r in read_study("a b").results if r.name == "feddr"] == [True, True]
    assert err.splitlines()[-1].startswith("fedloom: feddyn, seed 1, is damaged: ")
    command = re.search(r"Run `fedloom (resume .*)` to begin it again\.$", err.splitlines()[-1])[1]
    assert shlex.split(command) == ["resume", "a b", "--again", "feddyn/seed-1"]
    old = {p.name: p.read_bytes() for p in place.iterdir()}
    assert main(capsys, *shlex.split(command))[0] == 0
    kept = tmp_path / "a b/feddyn/seed-1.damaged-1"
    assert {p.name: p.read_bytes() for p in kept.iterdir()} == old  # nothing is lost
    assert {k: v for k, v in logs(tmp_path / "a b").items() if "damaged" not in k} == whole
    assert len(find_runs([tmp_path]).results) == 4  # what was put aside is no run
    assert main(capsys, "resume", "a b", "--again", "feddyn/seed-1")[0] == 0
    assert (tmp_path / "a b/feddyn/seed-1.damaged-2").is_dir()


def test_a_damaged_point_of_a_sweep_does_not_block_the_others(capsys, tmp_path):
    sweep(experiment("quadratics", "feddyn", rounds=2), {"algorithm.alpha": [0.5, 1.0]}, directory=tmp_path / "s")
    before = logs(tmp_path / "s")
    (tmp_path / "s/algorithm.alpha=0.5/seed-0/checkpoint.npz").write_bytes(b"no")
    code, _, err = main(capsys, "resume", "s")
    assert code == 2
    assert "--again algorithm.alpha=0.5/seed-0` to begin it again." in err
    assert main(capsys, "resume", "s", "--again", "algorithm.alpha=0.5/seed-0")[0] == 0
    assert {k: v for k, v in logs(tmp_path / "s").items() if "damaged" not in k} == before


def test_a_damaged_run_does_not_stop_growth(capsys, tmp_path):
    study(tmp_path / "a", seeds=[0])
    (tmp_path / "a/feddyn/seed-0/checkpoint.npz").write_bytes(b"no")
    code, _, err = main(capsys, "extend", "a", "--rounds", "5", "--seeds", "2")
    assert code == 2
    assert "--again feddyn/seed-0" in err
    assert main(capsys, "resume", "a", "--again", "feddyn/seed-0")[0] == 0
    study(tmp_path / "b", rounds=5, evaluate_every=1)
    assert {k: v for k, v in logs(tmp_path / "a").items() if "damaged" not in k} == logs(tmp_path / "b")


def test_a_single_run_that_is_damaged_does_not_block_a_report_of_others(capsys, tmp_path):
    for name in ("feddyn", "feddr"):
        run(experiment("quadratics", name, rounds=2), tmp_path / name)
    (tmp_path / "feddyn/about.json").write_bytes(b"no")
    code, out, err = main(capsys, "report", "feddyn", "feddr")
    assert code == 2
    assert "feddr" in out
    assert err.startswith("fedloom: feddyn, seed 0, is damaged: feddyn/about.json is damaged")
    assert main(capsys, "report", "feddyn")[0] == 2


def test_a_study_can_be_reported_even_if_nothing_of_it_can_be_read(capsys, tmp_path):
    compare("quadratics", ["feddyn"], seeds=[0], rounds=1, directory=tmp_path / "a")
    (tmp_path / "a/feddyn/seed-0/config.toml").write_bytes(b"no")
    code, _, err = main(capsys, "report", "a")
    assert (code, err.count("\n")) == (2, 1)
    assert "`fedloom resume a --again feddyn/seed-0`" in err


def test_arrays_in_an_experiment_do_not_stop_growth(tmp_path):
    method = fl.FedProx(mu=np.linspace(0.1, 1.0, 20))
    compare("quadratics", [method], seeds=[0], rounds=1, directory=tmp_path / "a")
    assert len(extend(tmp_path / "a", seeds=2).results) == 2
    with pytest.raises(ValueError, match="nothing to add"):
        extend(tmp_path / "a", seeds=2)


def test_extend_on_the_command_line(capsys, tmp_path):
    compare("quadratics", ["feddyn"], seeds=[0], rounds=2, directory=tmp_path / "a")
    code, out, _ = main(capsys, "extend", "a", "--seeds", "2", "--algorithms", "+feddr", "--rounds", "3")
    assert code == 0
    assert "feddr" in out
    study(tmp_path / "b", evaluate_every=1)
    assert logs(tmp_path / "a") == logs(tmp_path / "b")
    assert json.loads((tmp_path / "a/study.json").read_text())["about"]["looks"] == [1, 2]


def test_every_path_in_a_hint_can_be_pasted_into_a_shell(capsys, monkeypatch, tmp_path):
    def stop(self, name, experiment, row):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fedloom.experiments.progress.Lines.row", stop)
        code, _, err = main(capsys, "run", "quadratics", "--rounds", "2", "--out", "it's here")
    assert code == 130
    commands = [shlex.split(c) for c in re.findall(r"`fedloom ([^`]*)`", err)]
    assert commands == [["resume", "it's here"]]
    for kind, sentence in (("run", "already has a run"), ("compare", "already has")):
        code, _, err = main(capsys, kind, "quadratics", "--rounds", "2", "--out", "it's here")
        assert (code, sentence in err or "not empty" in err) == (2, True)
        for command in re.findall(r"`fedloom ([^`]*)`", err):
            assert shlex.split(command)[1] == "it's here"


TERMINATED = """
import os, signal, sys
from fedloom.cli import command
from fedloom.experiments.progress import Lines
rows = []
def row(self, name, experiment, row):
    rows.append(row)
    if len(rows) == 3:
        os.kill(os.getpid(), signal.SIGTERM)
Lines.row = row
sys.argv = ["fedloom", "run", "quadratics", "--rounds", "9", "--out", "a"]
command()
"""


def test_sigterm_ends_like_ctrl_c(tmp_path):
    done = subprocess.run([sys.executable, "-c", TERMINATED], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "\nfedloom: interrupted. Run `fedloom resume a` to continue.\n"


@pytest.fixture(autouse=True)
def keep_signals():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


SMALL_DISK = """
import resource, signal, sys
from fedloom import cli
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("limit", "file"), [(1000, "log.jsonl"), (1500, "checkpoint.npz"), (100_000, "report.html")], ids=lambda v: str(v)
)
def test_a_full_disk_names_the_file(tmp_path, limit, file):
    rounds = ["--rounds", "2" if file == "report.html" else "40" if file == "log.jsonl" else "3"]
    arguments = ["run", "quadratics", *rounds, "--algorithm", "scaffold", "--solver", "gd", "--out", "a", "--quiet"]
    command = [sys.executable, "-c", SMALL_DISK, str(limit), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"JAX_ENABLE_X64": "1"})
    assert done.returncode == 1, done.stderr
    assert done.stderr == f"fedloom: a/{file}: File too large. Run `fedloom resume a` to continue.\n"


def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fedloom.cli", "list", "cohorts"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "fedloom: standard output: No space left on device.\n")


def test_a_reader_that_stops_early_is_no_error():
    """A short list fits into the pipe's buffer, and fails only where it is flushed."""
    command = [sys.executable, "-m", "fedloom.cli", "list", "cohorts"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_reader_that_stops_early_leaves_a_study_to_resume():
    arguments = ["compare", "quadratics", "--algorithms", "feddyn,feddr", "--rounds", "9", "--json", "--out", "it's"]
    command = [sys.executable, "-m", "fedloom.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 1
    assert err.startswith("fedloom: stopped, because nobody reads the output. Run `fedloom resume ")
    assert shlex.split(re.search("`(.*)`", err)[1]) == ["fedloom", "resume", "it's"]


OWN = """
import numpy as np, fedloom as fl
def data(seed):
    return fl.by_client(np.ones((4, 1)), np.arange(4) % 2, np.arange(4), test=0)
def apply(params, x, key):
    raise TypeError("two\\nlines")
model = fl.models.mlp(1, 2)
import dataclasses
task = fl.Task("mine", data, dataclasses.replace(model, apply=apply))
short = fl.Task("short", lambda seed: fl.by_client(np.ones((4, 1)), np.arange(3), np.arange(4)), model)
"""


def test_an_error_in_a_users_file_is_shown_with_its_line(capsys, tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    code, _, err = main(capsys, "compare", f"{file}:task", "--algorithms", "fedavg", "--rounds", "1")
    assert (code, err) == (2, f"fedloom: {file}, line 6: TypeError: two lines\n")
    code, _, err = main(capsys, "run", f"{file}:short", "--rounds", "1")
    assert code == 2
    assert err.startswith(f"fedloom: {file}, line 10: ")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["own.py"]


def test_a_byte_order_mark_in_a_file_is_no_mistake(capsys, tmp_path):
    (tmp_path / "e.toml").write_bytes(b'\xef\xbb\xbftask = "quadratics"\nrounds = 1\n')
    assert main(capsys, "run", "e.toml", "--quiet", "--out", "a")[0] == 0
    config = tmp_path / "a/config.toml"
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    assert main(capsys, "report", "a")[0] == 0


def test_a_new_directory_has_the_whole_name(monkeypatch):
    given = argparse.Namespace(command="compare", out=None)
    names = {
        "mnist-2nn-dir0.6": "mnist-2nn-dir0.6",
        "here/e.1.toml": "e.1",
        "/there/own.py:task": "own",
        "digits": "digits",
    }
    for name, word in names.items():
        assert str(new_directory(given, name)) == f"runs/compare-{word}-1"


def test_our_own_faults_keep_their_traceback(monkeypatch):
    monkeypatch.setattr("fedloom.cli.listing.columns", lambda rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["list", "tasks"])


def test_a_dry_run_says_how_long_and_leaves_nothing(capsys, tmp_path):
    arguments = ("compare", "quadratics", "--algorithms", "feddyn,feddr", "--seeds", "3", "--rounds", "20")
    code, out, err = main(capsys, *arguments, "--dry-run")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"6 runs, about (\d+ s|\d+:\d\d)\n", out)
    assert not list(tmp_path.iterdir())
    assert re.match("1 run, about ", main(capsys, "run", "quadratics", "--dry-run")[1])


def test_an_estimate_counts_rounds_seeds_and_evaluations(monkeypatch):
    """A second for each round, two for each evaluation, four for compiling."""
    from fedloom.experiments import estimate

    now = 0.0

    def finish(tried, directory, watch, checked):
        nonlocal now
        for round, seconds in ((0, 2), (1, 7), (2, 3), (3, 3)):
            now += seconds
            watch[0]({"round": round})

    def evaluate(self, w, clients=None):
        nonlocal now
        now += 2

    monkeypatch.setattr(estimate.time, "monotonic", lambda: now)
    monkeypatch.setattr(estimate, "finish", finish)
    monkeypatch.setattr("fedloom.tasks.evaluated.Evaluation.of", evaluate)
    e = experiment("quadratics", "feddyn", rounds=20, evaluate_every=5)
    one = 20 * 1 + 4 * 2
    assert estimate.seconds_of([("a", e)]) == pytest.approx(3 + one)
    assert estimate.seconds_of([("a", e), ("a", fl.experiments.changed(e, {"seed": 1}))]) == pytest.approx(3 + 2 * one)


def test_a_long_first_run_is_not_waited_for(monkeypatch):
    from fedloom.experiments import progress

    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    e = experiment("quadratics", "feddyn", rounds=100)
    pace = progress.Pace([("a", e), ("b", e)])
    said = []
    for round in range(30):
        pace.row("a", e, {"round": round})
        said.append(pace.soon("a", e))
        now += 2.0
    assert [words for words in said if words] == ["2 runs, about 6:40"]
    assert said[10] == "2 runs, about 6:40"  # 20 s for 10 of 200 rounds


def test_the_length_of_a_study_is_said_after_its_first_run(monkeypatch):
    now = 100.0
    monkeypatch.setattr("fedloom.experiments.progress.time.monotonic", lambda: now)
    e = experiment("quadratics", "feddyn", rounds=10)
    runs = [(name, e) for name in "abcd"]
    pace = Pace(runs)
    old = fl.experiments.Result("a", e, [{"round": 10}], {})
    pace.end(old)
    assert pace.whole(old) == ""  # it was there before
    for t in (0, 10):
        now += 3.0
        pace.row("b", e, {"round": t})
    result = fl.experiments.Result("b", e, [{"round": 10}], {})
    pace.end(result)
    assert pace.whole(result) == "4 runs, about 18 s"  # 6 s for each of the three that are run
    assert pace.whole(result) == ""
    assert how_long(1, 70) == "1 run, about 1:10"
    assert [pace_words(s) for s in (12.34, 1.0, 0.25, 0.0)] == ["12.3 rounds/s", "1.0 rounds/s", "4.0 s/round", ""]
