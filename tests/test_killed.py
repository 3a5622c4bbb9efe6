"""Kill -9 at random moments, also while a checkpoint is being written: the run ends with the same bits."""

import os
import random
import signal
import subprocess
import sys

import jax
import numpy as np
from fedloom.experiments.experiment import experiment
from fedloom.experiments.run import LOG, plan, read, run

from tests import conftest

KILLS = 20

# A checkpoint after every row, so that much of the time goes into writing them; the clock of the kill starts with the
# first round of this process, or for a few before it.
VICTIM = """
import os, signal, sys, threading
from fedloom.experiments.run import resume
directory, delay, early = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "early"
started = []
def start(row={"round": 1}):
    if row["round"] and not started:  # the program is compiled by then
        started.append(threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)))
        started[0].daemon = True
        started[0].start()
if early:
    start()
resume(directory, watch=[start], checkpoint_seconds=0)
print("finished")
"""


def test_twenty_kills(tmp_path):
    random.seed(1)
    e = experiment("digits", "scaffold", rounds=150, evaluate_every=1, **{"solver.epochs": 1})
    whole = run(e, tmp_path / "whole")
    log = (tmp_path / "whole" / LOG).read_bytes()
    cache = {name.upper(): str(getattr(jax.config, name)) for name in conftest.CACHE}
    environment = os.environ | cache | {"JAX_ENABLE_X64": "1"}
    kills, part, rounds_at_death = 0, 0, []
    while kills < KILLS:
        part += 1
        directory = tmp_path / f"killed{part}"
        plan(e, directory)
        over = False
        while not over:
            early = random.random() < 0.15
            delay = random.uniform(0, 0.05 if early else 0.5) if kills < KILLS else 1e3
            command = [sys.executable, "-c", VICTIM, str(directory), str(delay), "early" if early else "late"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            over = done.stdout == "finished\n"
            if not over:
                assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
                kills += 1
                rounds_at_death.append(len(read(directory).rows))
        assert (directory / LOG).read_bytes() == log
        np.testing.assert_array_equal(read(directory).w, whole.w)
    assert len(set(rounds_at_death)) > 8  # the kills came at different places
