"""Kill -9 before each kind of thing that a run does to its files: the run ends with the same bits."""

import os
import pathlib
import subprocess
import sys

import jax
import numpy as np

from fedloom.experiments import experiment, read, run
from tests import conftest

VICTIM = pathlib.Path(__file__).with_name("victim.py")

# One kill after another, of one run: what is about to happen, to which file, and for which time in that process.
KILLS = [
    "replace about.json 1",
    "write log.jsonl 1",
    "finish log.jsonl 1",
    "finish about.json.draft 2",
    "fsync directory 2",
    "continue after a row 1",
    "continue after a row 2",
    "write about.json.draft 1",
    "write checkpoint.npz.draft 1",
    "finish checkpoint.npz.draft 2",
    "truncate log.jsonl 1",
    "replace checkpoint.npz 3",
    "fsync log.jsonl 1",
    "finish log.jsonl 4",
    "fsync about.json.draft 1",
    "finish seconds.json.draft 3",
    "fsync checkpoint.npz.draft 2",
    "write seconds.json.draft 1",
    "fsync seconds.json.draft 3",
    "replace seconds.json 2",
    "fsync directory 5",
]


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(tmp_path):
    e = experiment("quadratics", "scaffold", solver="gd", rounds=40, evaluate_every=1)
    whole = run(e, tmp_path / "whole")
    log = (tmp_path / "whole/log.jsonl").read_bytes()
    directory = tmp_path / "killed"
    directory.mkdir()
    (directory / "config.toml").write_text(e.to_toml())
    cache = {name.upper(): str(getattr(jax.config, name)) for name in conftest.CACHE}
    single = {"JAX_ENABLE_X64": "1", "OPENBLAS_NUM_THREADS": "1"}  # the victim forks: NumPy must not start threads
    with subprocess.Popen(
        [sys.executable, str(VICTIM), str(directory)],
        env=os.environ | cache | single,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as victim:

        def answer(moment):
            victim.stdin.write(moment + "\n")
            return victim.stdout.readline().strip()

        for moment in KILLS:
            assert answer(moment) == "killed", moment
            rows = read(directory).rows  # a killed run can be read
            assert rows == whole.rows[: len(rows)]
        passed = answer("never")
        victim.stdin.close()
    assert (directory / "log.jsonl").read_bytes() == log
    np.testing.assert_array_equal(read(directory).w, whole.w)
    # No kind of moment has been forgotten; the name of each comes without the number of times.
    assert set(passed.split(", ")) == {moment.rpartition(" ")[0] for moment in KILLS}
