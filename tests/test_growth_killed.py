"""Kill -9 while a study grows: the same command, or a resumption, ends with the logs of a study made at once."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import pytest

from fedloom.experiments import compare, extend, files, read_study, resume_study
from tests import conftest
from tests.test_killed import VICTIM

ADDED = {"seeds": 2, "algorithms": ["feddr"], "rounds": 8}


def logs(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("log.jsonl")}


def study(directory, algorithms, seeds, rounds):
    """Runs of 7 rounds end between two evaluations."""
    changes = {"solver": "gd", "rounds": rounds, "evaluate_every": 3}
    return compare("quadratics", algorithms, seeds=seeds, directory=directory, **changes)


@pytest.fixture
def grown(tmp_path):
    study(tmp_path / "whole", ["feddyn", "scaffold", "feddr"], [0, 1], 8)
    study(tmp_path / "grown", ["feddyn", "scaffold"], [0], 7)
    return tmp_path / "grown"


KILLS = [
    "finish study.json.draft 1",
    "replace study.json 1",
    "fsync directory 1",
    "replace feddyn/seed-0/checkpoint.npz 1",
    "replace feddyn/seed-0/config.toml 1",
    "resume: replace scaffold/seed-0/checkpoint.npz 1",
    "resume: write scaffold/seed-0/config.toml.draft 1",
    "finish scaffold/seed-1/config.toml.draft 1",
    "truncate feddyn/seed-0/log.jsonl 1",
    "resume: finish feddyn/seed-0/log.jsonl 1",
    "write feddyn/seed-1/earlier.npz.draft 1",
    "resume: finish scaffold/seed-0/log.jsonl 1",
    "finish feddr/seed-0/earlier.npz.draft 1",
    "resume: replace feddr/seed-1/checkpoint.npz 1",
    "finish study.json.draft 1",
    "resume: replace study.json 1",
]


def test_a_study_that_is_killed_again_and_again_while_it_grows(tmp_path, grown):
    cache = {name.upper(): str(getattr(jax.config, name)) for name in conftest.CACHE}
    single = {"JAX_ENABLE_X64": "1", "OPENBLAS_NUM_THREADS": "1"}  # the victim forks: NumPy must not start threads
    with subprocess.Popen(
        [sys.executable, str(VICTIM), str(grown), json.dumps(ADDED)],
        env=os.environ | cache | single,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as victim:
        for moment in KILLS:
            victim.stdin.write(moment + "\n")
            assert victim.stdout.readline().strip() == "killed", moment
            assert not [r.damaged for r in read_study(grown).results if r.damaged]
        victim.stdin.write("resume: never\n")
        assert "write study.json.draft" in victim.stdout.readline()  # the look is noted at the end
        victim.stdin.close()
    assert logs(grown) == logs(tmp_path / "whole")
    assert json.loads((grown / "study.json").read_text())["about"]["looks"] == [1, 2]


class Killed(BaseException):
    pass


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("again", "point"),
    [(lambda d: resume_study(d), -1), (lambda d: extend(d, **ADDED), 0)],
    ids=["resume", "extend"],
)
def test_stopped_before_or_after_any_step_of_any_file(tmp_path, grown, again, point):
    """Every moment once: before a step one way of going on, after it the other."""
    steps = 0

    def counted(function):
        def step(*arguments, **keywords):
            nonlocal steps
            steps += 1
            if steps == point:
                raise Killed
            value = function(*arguments, **keywords)
            steps += 1
            if steps == point:
                raise Killed
            return value

        return step

    while True:
        steps, point = 0, point + 2
        directory = tmp_path / f"stopped{point}"
        shutil.copytree(grown, directory)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "fsync"):
                patch.setattr(files.os, name, counted(getattr(os, name)))
            patch.setattr(pathlib.Path, "unlink", counted(pathlib.Path.unlink))
            try:
                extend(directory, **ADDED)
                break
            except Killed:
                pass
        before = json.loads((directory / "study.json").read_text())
        if len(before["runs"]) == 2:  # not even planned
            extend(directory, **ADDED)
        elif all(r.finished for r in read_study(directory).results):
            resume_study(directory)
        else:
            again(directory)
        assert logs(directory) == logs(tmp_path / "whole"), point
        shutil.rmtree(directory)
    assert point > 100
