"""The command: what a person sees, and what it says about mistakes."""

import contextlib
import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import fedloom as fl
from fedloom import cli
from fedloom.data.catalogue import CATALOGUE


def run(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("what", cli.LISTS)
def test_lists(capsys, what):
    code, out, _ = run(capsys, "list", what)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) > 3
    assert all(line.strip() for line in lines)


def test_every_task_and_algorithm_is_listed(capsys):
    _, out, _ = run(capsys, "list", "tasks")
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(fl.tasks.TASKS)
    _, out, _ = run(capsys, "list", "algorithms")
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(fl.ALGORITHMS)


@pytest.mark.parametrize("name", fl.tasks.TASKS)
def test_every_task_can_be_shown(capsys, name):
    code, out, _ = run(capsys, "show", name)
    assert code == 0
    task = fl.tasks.TASKS[name]
    assert task.about in out
    for variant in task.settings:
        assert f"settings, {variant}:" in out


def test_settings_are_shown_with_their_numbers(capsys):
    _, out, _ = run(capsys, "show", "emnist-cr")
    assert "FedAdam(lr=0.003162, beta1=0.9, tau=0.0001, beta2=0.99)" in out
    assert "SGD(batch_size=20, epochs=1, lr=0.03162)" in out
    assert "uniform(m=10)" in out
    assert "fedadam 85.6" in out


def test_describe(capsys):
    code, out, _ = run(capsys, "describe", "synthetic-1-1", "--seed", "3")
    assert code == 0
    sizes = fl.load("synthetic-1-1", seed=3).data.split.sizes
    assert f"30 clients, {np.sum(sizes):,} training examples" in out
    assert "20 clients with functions of a vector of 10 numbers" in run(capsys, "describe", "quadratics")[1]


def test_mistakes_are_answered_with_a_sentence(capsys, monkeypatch, tmp_path):
    code, out, err = run(capsys, "show", "mnist-2n")
    assert (code, out) == (2, "")
    assert "There is no task, algorithm, solver or cohort 'mnist-2n'. Did you mean" in err
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    code, _, err = run(capsys, "describe", "mnist-2nn-iid")
    assert code == 2
    assert "fedloom download mnist" in err
    assert str(tmp_path) in err
    code, _, err = run(capsys, "download", "mnits")
    assert code == 2
    assert "mnist" in err


def test_download_counts_what_is_there(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    (tmp_path / CATALOGUE["mnist"][0].path).write_bytes(b"")
    _, out, _ = run(capsys, "list", "downloads")
    assert "1 of 4 files present" in out


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs go below the current directory."""
    monkeypatch.chdir(tmp_path)


QUADRATICS = ("quadratics", "--rounds", "3")


def test_compare_ends_with_a_table_and_a_report(capsys, tmp_path):
    code, out, err = run(capsys, "compare", *QUADRATICS, "--algorithms", "feddyn,fedprox", "--seeds", "2")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert {"feddyn", "fedprox"} <= {row[0] for row in rows if row}
    assert out.rstrip().endswith("report: runs/compare-quadratics-1/report.html")
    assert "[4/4] fedprox, seed 1: 3 rounds" in err
    assert (tmp_path / "runs/compare-quadratics-1/report.html").exists()
    logs = sorted(str(p.relative_to(tmp_path / "runs")) for p in tmp_path.rglob("log.jsonl"))
    assert logs == [f"compare-quadratics-1/{a}/seed-{s}/log.jsonl" for a in ("feddyn", "fedprox") for s in (0, 1)]
    _, out, err = run(capsys, "compare", *QUADRATICS, "--algorithms", "feddyn", "--seeds", "5,", "--quiet")
    assert err == ""
    assert "runs/compare-quadratics-2/report.html" in out  # nothing is overwritten
    assert (tmp_path / "runs/compare-quadratics-2/feddyn/seed-5").exists()


def test_run_has_everything_in_its_directory(capsys, tmp_path):
    code, _, _ = run(capsys, "run", *QUADRATICS, "--algorithm", "feddyn", "--algorithm.alpha", "2.5", "--seed", "3")
    assert code == 0
    directory = tmp_path / "runs/run-quadratics-feddyn-1"
    assert {p.name for p in directory.iterdir()} >= {
        "config.toml",
        "about.json",
        "log.jsonl",
        "checkpoint.npz",
        "report.html",
    }
    e = fl.experiments.read(directory).experiment
    assert (e.algorithm, e.seed, e.rounds) == (fl.FedDyn(2.5), 3, 3)
    code, _, _ = run(capsys, "run", str(directory / "config.toml"), "--out", "again")
    assert code == 0
    assert (tmp_path / "again/log.jsonl").read_bytes() == (directory / "log.jsonl").read_bytes()
    assert run(capsys, "run", str(directory / "config.toml"), "--solver.jitter=1e-9", "--out", "x")[0] == 2


def test_files_of_experiments_can_be_compared(capsys, tmp_path):
    for name, alpha in (("weak", 0.5), ("strong", 2.0)):
        text = fl.experiment("quadratics", fl.FedDyn(alpha), rounds=2).to_toml()
        (tmp_path / f"{name}.toml").write_text(text)
    code, _, _ = run(capsys, "compare", "weak.toml", "strong.toml", "--seeds", "1", "--rounds", "3")
    assert code == 0
    study = fl.experiments.find_runs(["runs/compare-weak-1"])
    assert [(r.name, r.experiment.algorithm.alpha, r.experiment.rounds) for r in study.results] == [
        ("weak", 0.5, 3),
        ("strong", 2.0, 3),
    ]


def test_json(capsys):
    code, out, err = run(capsys, "compare", *QUADRATICS, "--algorithms", "feddyn", "--seeds", "1", "--json")
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["round"] for line in lines[:4]] == [0, 1, 2, 3]
    assert lines[-1]["table"][0]["name"] == "feddyn"
    assert lines[-1]["report"] == "runs/compare-quadratics-1/report.html"


def test_an_interruption_says_how_to_continue(capsys, monkeypatch, tmp_path):
    rows = []

    def stop(self, name, experiment, row):
        rows.append(row)
        if len(rows) == 6:
            raise KeyboardInterrupt

    arguments = ("compare", *QUADRATICS, "--algorithms", "feddyn,feddr", "--seeds", "1")
    with monkeypatch.context() as patch:
        patch.setattr("fedloom.experiments.progress.Lines.row", stop)
        code, _, err = run(capsys, *arguments)
    assert code == 130
    assert err.endswith("fedloom: interrupted. Run `fedloom resume runs/compare-quadratics-1` to continue.\n")
    code, _, _ = run(capsys, "resume", "runs/compare-quadratics-1")
    assert code == 0
    run(capsys, *arguments)
    for a in ("feddyn", "feddr"):
        logs = [(tmp_path / f"runs/compare-quadratics-{n}/{a}/seed-0/log.jsonl").read_bytes() for n in (1, 2)]
        assert logs[0] == logs[1]
    with monkeypatch.context() as patch:
        patch.setattr("fedloom.experiments.progress.Lines.row", stop)
        rows.clear()
        code, _, err = run(capsys, "run", "quadratics", "--rounds", "9", "--out", "alone")
    assert "Run `fedloom resume alone` to continue." in err
    assert run(capsys, "resume", "alone")[0] == 0
    assert fl.experiments.read("alone").finished


def test_an_interruption_that_python_drops_is_heeded(capsys, monkeypatch):
    """As when the signal comes while a callback of the garbage collector runs."""
    from fedloom.cli import interruption

    def dropped(self, name, experiment, row):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    try:
        monkeypatch.setattr("fedloom.experiments.progress.Lines.row", dropped)
        assert run(capsys, "run", "quadratics", "--rounds", "9", "--out", "a")[0] == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert [row["round"] for row in fl.experiments.read("a").rows] == [0, 1]
    assert interruption.listen() is None  # what was asked is forgotten
    monkeypatch.undo()
    signal.signal(signal.SIGINT, before)


def test_the_examples_of_the_documentation(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    split = ("--split", "dirichlet", "--split.clients", "50", "--split.alpha", "0.1")
    regularizer = ("--algorithm", "feddr", "--algorithm.g", "l1", "--algorithm.g.strength", "0.01")
    assert run(capsys, "run", "digits", *split, *regularizer, "--rounds", "1", "--out", "a", "--quiet")[0] == 0
    e = fl.experiments.read("a").experiment
    assert e.split == {"name": "dirichlet", "clients": 50, "alpha": 0.1}
    assert e.algorithm.g == fl.regularizers.l1(0.01)


def test_a_machine_that_fails_is_another_exit_code(capsys, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedloom.experiments.checkpoint.save", full)
    code, _, err = run(capsys, "run", *QUADRATICS)
    assert code == 1
    assert "No space left on device" in err
    assert "No space left on device. Run `fedloom resume runs/run-quadratics-feddyn-1` to continue." in err


def test_divergence_is_shown_and_has_an_exit_code(capsys):
    bad = ("--algorithm", "fedsgd", "--algorithm.lr", "1e5", "--rounds", "50")
    code, out, err = run(capsys, "run", "quadratics", *bad)
    assert code == 3
    assert "diverged" in out
    assert "diverged: The training loss is" in err


def test_reports_are_made_again_from_any_runs(capsys, tmp_path):
    for a in ("feddyn", "feddr"):
        run(capsys, "run", *QUADRATICS, "--algorithm", a, "--out", a)
    code, out, _ = run(capsys, "report", "feddyn", "feddr", "--out", "both", "--target", "train loss=1e9")
    assert code == 0
    assert {"feddyn", "feddr"} <= {line.split()[0] for line in out.splitlines() if line}
    assert "1e+09" in out or "1000000000" in out
    assert (tmp_path / "both/report.html").exists()
    own = (tmp_path / "feddyn/report.html").read_bytes()
    for n in (1, 2):
        assert run(capsys, "report", "feddyn", "feddr")[1].rstrip().endswith(f"report: report-{n}/report.html")
    assert (tmp_path / "feddyn/report.html").read_bytes() == own


def test_sweep(capsys, tmp_path):
    grid = ("--over", "algorithm.alpha=0.5,1,2", "--over", "cohort.m=2,5")
    code, out, _ = run(capsys, "sweep", *QUADRATICS, "--algorithm", "feddyn", *grid)
    assert code == 0
    assert "algorithm.alpha" in out
    assert "cohort.m" in out
    assert len(list((tmp_path / "runs/sweep-quadratics-1").rglob("log.jsonl"))) == 6
    before = {p: p.read_bytes() for p in tmp_path.rglob("log.jsonl")}
    assert run(capsys, "resume", "runs/sweep-quadratics-1")[0] == 0
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("log.jsonl")}


MISTAKES = [
    (("compare", "digitz"), "There is no task 'digitz'. Did you mean 'digits'?"),
    (("compare", "quadratics", "--algorithms", "fedynn"), "There is no algorithm 'fedynn'. Did you mean 'feddyn'?"),
    (("compare", "quadratics", "--seeds", "two"), "--seeds must be a number of seeds"),
    (("compare", "quadratics", "--seeds", "0"), "--seeds must be at least 1, got 0"),
    (("compare", "quadratics", "--target", "high"), "--target must be a number or METRIC=NUMBER"),
    (("compare", "quadratics", "--round", "3"), "compare has no option --round. Did you mean '--rounds'?"),
    (("compare", "quadratics", "digits"), "compare takes one task, or TOML files"),
    (("compare", "quadratics", "--variant", "exakt"), "has no variant 'exakt'. Did you mean 'exact'?"),
    (("compare", "quadratics", "--sink", "tensorbord"), "Did you mean 'tensorboard'?"),
    (("run", "quadratics", "--rounds", "many"), "rounds must be an integer from 1 to 2^32 - 1, got 'many'"),
    (("run", "quadratics", "--algorithm.alpa", "1"), "has no field 'alpa'"),
    (("run", "quadratics", "--algorithm.alpha"), "--algorithm.alpha needs a value"),
    (("run", "quadratics", "--algorithm", "fedpd", "--cohort", "uniform"), "FedPD needs every client in every round"),
    (("run", "nowhere.toml"), "nowhere.toml"),
    (
        ("run", "quadratics", "--out", "/dev/null/x"),
        "/dev/null/x cannot be written to: Not a directory. Choose another directory.",
    ),
    (("run",), "required: TASK"),
    (("list", "tsks"), "There is no 'tsks'. Did you mean 'tasks'?"),
    (("compar",), "There is no 'compar'. Did you mean 'compare'?"),
    (("show", "fedavgg"), "Did you mean 'fedavg'?"),
    (("compare", "quadratics", "--seeds", ""), "--seeds must be a number of seeds"),
    (("compare", "quadratics", "--seeds", "1,1"), "--seeds lists 1 twice"),
    (
        ("compare", "quadratics", "--target", "tran loss=0.9"),
        "there is no metric 'tran loss'. Did you mean 'train loss'?",
    ),
    (("compare", "a.toml", "--algorithms", "fedavg"), "--algorithms and --variant require a task"),
    (("run", "quadratics", "--rounds", "99999999999"), "rounds must be an integer from 1 to 2^32 - 1"),
    (("run", "quadratics", "--cohort", "everyone", "--cohort.m", "5"), "everyone has no field 'm'. There are none."),
    (("run", "quadratics", "--model", "2nn"), "'quadratics' is given by functions of w"),
    (("run", "/dev.toml"), "/dev.toml cannot be read: No such file"),
    (("describe", "digits", "--picture", "x.foo"), "--picture must be a file name that ends with .png, .svg, .pdf"),
    (("describe", "quadratics", "--picture", "x.png"), "'quadratics' has no examples to draw"),
    (
        ("resume", "nowhere", "--rounds", "3"),
        "resume has no option --rounds. `fedloom extend` adds seeds, methods and rounds.",
    ),
    (("list", "tasks", "--solver.lr", "1"), "list has no option --solver.lr"),
    (("resume", "nowhere"), "There is no directory nowhere"),
    (("report", "nowhere"), "There is no directory nowhere"),
    (("reproduce", "feddane-figure"), "Did you mean 'feddane-figure"),
    (("sweep", "quadratics"), "There is nothing to sweep"),
    (("sweep", "quadratics", "--over", "algorithm.alpa=1,2"), "alpa"),
]


@pytest.mark.parametrize(
    ("arguments", "sentence"), MISTAKES, ids=lambda v: " ".join(v)[:50] if isinstance(v, tuple) else ""
)
def test_mistakes_end_with_code_2_and_leave_nothing(capsys, tmp_path, arguments, sentence):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("fedloom: ")
    assert sentence in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


COMMANDS = {
    "compare": [],
    "run": ["digits"],
    "sweep": ["digits"],
    "reproduce": ["x"],
    "resume": ["x"],
    "extend": ["x"],
    "report": ["x"],
    "list": ["tasks"],
    "show": ["digits"],
    "describe": ["digits"],
    "download": ["x"],
    "completion": ["bash"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_only_options_that_exist_are_suggested(capsys, command):
    code, _, err = run(capsys, command, *COMMANDS[command], "--zzzzzz")
    assert code == 2
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    options = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert set(re.findall(r"--[a-z-]+", err)) - {"--zzzzzz"} <= options
    assert not options or "Known: --" in err or "Similar: --" in err


def test_values_are_shown_with_their_fields(capsys):
    _, out, _ = run(capsys, "show", "feddyn")
    assert "arXiv:2111.04263" in out
    assert "weight of the dynamic regularizer" in out
    assert "a positive number" in out
    assert "clients in a round" in run(capsys, "show", "uniform")[1]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(capsys, tmp_path, shell):
    code, out, _ = run(capsys, "completion", shell)
    assert code == 0
    for word in ("compare", "reproduce", "synthetic-1-1", "scaffold", "--algorithm.alpha", "--evaluate-every"):
        assert word in out, word
    if shell == "bash":
        (tmp_path / "script").write_text(out)
        assert subprocess.run(["bash", "-n", "script"]).returncode == 0


@pytest.mark.parametrize(
    "command", ["compare", "run", "sweep", "reproduce", "resume", "extend", "report", "list", "describe"]
)
def test_every_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as done:
        cli.main([command, "--help"])
    assert done.value.code == 0
    assert command in capsys.readouterr().out


def test_the_picture_of_a_split(capsys, tmp_path):
    code, out, _ = run(capsys, "describe", "digits", "--picture", "split.png")
    assert code == 0
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")
    assert len(out.splitlines()) > 15


def test_a_reader_that_stops_reading_is_no_error():
    """As `fedloom list tasks | head -1` does: standard output is closed before all of it is written."""
    command = [sys.executable, "-m", "fedloom.cli", "list", "tasks"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
