"""Several processes, real ones that talk over the loopback interface, are one run: the same records, logs and ends."""

import contextlib
import json
import os
import pathlib
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.cli import main
from fedloom.engines import choose_plan, processes
from fedloom.engines.checks import checked
from fedloom.engines.plan import Plan, check_plan
from tests import conftest, member

ROOT = pathlib.Path(__file__).parent.parent
ENDS_WITHIN = 100.0  # seconds, for all processes of a test on a busy machine
RUN = ["digits", "--algorithm", "scaffold", "--rounds", "40", "--evaluate-every", "1", "--quiet"]
# The command, with a checkpoint at every row.
COMMAND = """
from fedloom.experiments import runs
runs.finish.__kwdefaults__["checkpoint_seconds"] = 0.0
from fedloom.cli import command
command()
"""

pytestmark = pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs Linux")


def environment(**more):
    """With the cache of compiled programs that the tests use, float64, and one device for each process."""
    cache = {name.upper(): str(getattr(jax.config, name)) for name in conftest.CACHE}
    own = {"JAX_ENABLE_X64": "1", "JAX_NUM_CPU_DEVICES": "1", "PYTHONPATH": str(ROOT)}
    return os.environ | cache | own | more


def free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def children(process):
    return [int(i) for i in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(condition, process=None):
    end = time.monotonic() + ENDS_WITHIN
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


@contextlib.contextmanager
def started(*commands):
    """Processes that are gone at the end, with those that they have started."""
    found, others = [], []
    try:
        for command, env in commands:
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            found.append(subprocess.Popen([sys.executable, *command], env=env, text=True, **streams))
        yield found
    finally:
        for process in found:
            with contextlib.suppress(OSError):
                others += children(process)
            process.kill()
            process.wait()
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def said(process):
    """Exit code, standard output and error."""
    out, err = process.communicate(timeout=ENDS_WITHIN)
    return process.returncode, out, err


def fedloom(*arguments):
    return ["-c", COMMAND, *map(str, arguments)], environment()


def rows(directory):
    log = directory / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_two_processes_give_the_records_of_one(tmp_path):
    """To rounding, for all kinds of rounds; the two have equal bits, in memories too, and say what a plan lacks."""
    address = free_address()
    command = ["-m", "tests.member"]
    with started(*(([*command, str(i), "2", address, str(tmp_path / "found")], environment()) for i in (0, 1))) as two:
        for process in two:
            code, _, err = said(process)
            assert code == 0, err
    (first, errors), (second, same_errors) = (pickle.loads((tmp_path / f"found.{i}").read_bytes()) for i in (0, 1))
    assert errors == same_errors
    assert errors[0] == member.errors()[0]
    assert errors[0][0] == "NonFiniteUpdate"
    assert [kind for kind, _ in errors[1:]] == ["ValueError", "ValueError"]
    assert errors[1][1].startswith("plan: there are 2 devices in all processes, not 3; start more processes")
    assert errors[2][1].startswith("The processes do not have the same experiment, data and checkpoint.")
    for name in member.cases():
        whole, resumed, plan = first[name]
        assert second[name][2] == plan
        for mine, other in zip(whole + resumed, second[name][0] + second[name][1], strict=True):
            assert mine[0] == other[0], name
            assert [x.tobytes() for x in mine[1]] == [x.tobytes() for x in other[1]], name
        last, again = whole[-1], resumed[-1]
        assert [x.tobytes() for x in last[1]] == [x.tobytes() for x in again[1]], name
        for mine, alone in zip(whole, member.found(name)[0], strict=True):
            assert mine[0] == alone[0], name
            for x, y in zip(mine[1], alone[1], strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12, err_msg=name)
    assert first["cohorts of any size"][2].endswith("on each of 2 devices")  # the rule chose it
    assert [record[0][2] for record in first["drop"][0]][1:] == [((t, 4, "train"),) for t in range(2, 7)]


def test_a_killed_command_resumes_to_the_same_bits(tmp_path):
    """Kill -9 of a process that the command has started; and nothing but rounding tells the run from one process."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with started(fedloom("run", *RUN, "--out", whole, "--processes", "2", "--json")) as (undisturbed,):
        code, out, err = said(undisturbed)
        assert (code, err) == (0, "")
        assert all(isinstance(json.loads(line), dict) for line in out.splitlines())  # nobody else prints
    alone = fl.run(fl.experiment("digits", "scaffold", rounds=40, evaluate_every=1)).rows
    for row, other in zip(rows(whole), alone, strict=True):
        assert row.keys() == other.keys()
        for name, value in other.items():
            if isinstance(value, int):
                assert row[name] == value
            elif isinstance(value, float):
                assert row[name] == pytest.approx(value, rel=1e-5)
    about = json.loads((whole / "about.json").read_text())
    assert about["plan"]["devices"] == about["machine"]["processes"] == 2

    with started(fedloom("run", *RUN, "--out", killed, "--processes", "2")) as (victim,):
        wait_until(lambda: len(rows(killed)) > 4, victim)
        (other,) = children(victim)
        os.kill(other, signal.SIGKILL)
        code, _, err = said(victim)
    assert code == 1
    assert err.count("fedloom: ") == 1
    assert f"Run `fedloom resume {killed} --processes 2` to continue." in err
    assert 4 < len(rows(killed)) < 41
    with started(fedloom("resume", killed, "--processes", "2", "--quiet")) as (resumed,):
        code, _, err = said(resumed)
        assert (code, err) == (0, "")
    assert (killed / "log.jsonl").read_bytes() == (whole / "log.jsonl").read_bytes()


def test_cpus_and_devices_are_shared_out_evenly(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    devices = [SimpleNamespace(process_index=p, id=10 * p + i) for p in range(3) for i in range(2)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    assert [d.id for d in processes.in_all_processes(6)] == [0, 1, 10, 11, 20, 21]
    assert [d.id for d in processes.in_all_processes(4)] == [0, 1, 10, 20]
    check_plan(Plan(5, 3))
    check_plan(Plan(5))
    with pytest.raises(ValueError, match="plan: each of the 3 processes must have one of the devices, and 2 are too f"):
        check_plan(Plan(5, 2))
    with pytest.raises(ValueError, match="plan: there are 6 devices in all processes, not 7; start more processes"):
        check_plan(Plan(5, 7))
    for clients, shared in ((10, 6), (4, 4), (1, 3)):  # each process has a part of the work, however little that is
        run = checked(fl.FedAvg(), fl.quadratics(clients=10), fl.GD(), np.ones(4), 5, cohorts.uniform(clients))
        assert choose_plan.rule(run, 1.0, 1.0).devices == shared


BAD = {
    "--processes 0": r"--processes must be a positive integer or auto, got '0'\.",
    "--processes two": r"--processes must be a positive integer or auto, got 'two'\.",
    "--processes 2 --engine events": "--processes: the asynchronous engine runs in a single process; leave",
    "--processes 2 --dry-run": "--dry-run tries rounds in a single process; leave --processes out",
}


@pytest.mark.parametrize("options", BAD)
def test_bad_options(options, capsys):
    assert main(["run", "quadratics", *options.split()]) == 2
    assert re.match(f"fedloom: {BAD[options]}", capsys.readouterr().err)
    assert not pathlib.Path("runs").exists()


def test_a_study_is_run_by_one_process(capsys, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study/study.json").write_text("{}")
    assert main(["resume", str(tmp_path / "study"), "--processes", "2"]) == 2
    assert "study has several; leave it out." in capsys.readouterr().err
    for command in ("compare", "sweep"):
        assert main([command, "digits", "--processes", "2"]) == 2
        assert "has no option --processes. Several processes run a single experiment" in capsys.readouterr().err


def slurm(i, port):
    """What SLURM says to process i of 2; JAX's own server listens to this machine only."""
    told = {"JOB_ID": "1", "STEP_NODELIST": "127.0.0.1", "NTASKS": "2", "PROCID": str(i), "LOCALID": str(i)}
    own = {"JAX_COORDINATOR_PORT": port, "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}"}
    return environment(**{f"SLURM_{name}": value for name, value in told.items()}, **own)


@pytest.mark.exhaustive
def test_whoever_ends_it_no_process_is_left_and_any_launcher_resumes_it(tmp_path):
    """Ctrl-C, SIGTERM, and kill -9 of the process that was started; then SLURM."""
    run = ["quadratics", "--algorithm", "scaffold", "--solver", "gd", "--rounds", "150", "--evaluate-every", "1"]
    directory = tmp_path / "run"
    commands = [["run", *run, "--out", directory], ["resume", directory], ["resume", directory]]
    ends = {
        signal.SIGINT: (130, "interrupted."),
        signal.SIGTERM: (130, "interrupted."),
        signal.SIGKILL: (-signal.SIGKILL, "the first process has ended, and a run goes on with all of them only."),
    }
    for command, (number, (code, words)) in zip(commands, ends.items(), strict=True):
        before = len(rows(directory))
        with started(fedloom(*command, "--processes", "2", "--quiet")) as (first,):
            wait_until(lambda before=before: len(rows(directory)) > before + 4, first)
            (other,) = children(first)
            first.send_signal(number)
            found, _, err = said(first)
        assert found == code
        assert f"fedloom: {words} Run `fedloom resume {directory} --processes 2` to continue." in err
        assert err.count("fedloom: ") == 1
        wait_until(lambda other=other: not is_alive(other))
        assert before + 4 < len(rows(directory)) < 151
    port = free_address().rpartition(":")[2]
    resume = ["-c", COMMAND, "resume", str(directory), "--processes", "auto"]
    with started((resume, slurm(0, port)), (resume, slurm(1, port))) as (first, second):
        code, out, err = said(first)
        assert code == 0, err
        assert "scaffold" in out
        assert said(second) == (0, "", "")
    alone = fl.run(fl.experiment("quadratics", "scaffold", solver="gd", rounds=150, evaluate_every=1)).rows
    assert [row["train loss"] for row in rows(directory)] == pytest.approx([row["train loss"] for row in alone])
    with started(
        (["-c", COMMAND, "run", *run, "--out", str(tmp_path / "no"), "--processes", "auto"], environment())
    ) as (no,):
        code, _, err = said(no)
    assert code == 2
    assert err.startswith("fedloom: --processes auto: JAX detects no system, such as SLURM or Kubernetes, that has st")
    assert not (tmp_path / "no").exists()


@pytest.mark.exhaustive
def test_what_is_wrong_is_said_once(tmp_path):
    """By the first process where all are wrong, or by the only one that is."""
    own = tmp_path / "own.py"
    own.write_text(
        "import jax\nfrom fedloom import FedAvg as Mine\n"
        "if jax.process_index() == 1:\n    raise ValueError('It does not work here.')\n"
    )
    words = {
        "quadratics --algorithm nothing": (2, ["fedloom: .*'nothing'"]),
        f"quadratics --algorithm {own}:Mine": (
            1,
            [
                r"fedloom: process 1 of 2: .*It does not work here\.",
                "fedloom: process 1 of 2 has failed with code 2, and",
            ],
        ),
    }
    for arguments, (expected, sentences) in words.items():
        with started(fedloom("run", *arguments.split(), "--out", tmp_path / "no", "--processes", "2")) as (first,):
            code, _, err = said(first)
        assert code == expected, err
        lines = [line for line in err.splitlines() if line]
        assert len(lines) == len(sentences), err
        for line, sentence in zip(lines, sentences, strict=True):
            assert re.match(sentence, line), err
