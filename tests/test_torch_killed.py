"""A PyTorch run that is killed and resumed ends with the same bits; with other versions it is not resumed."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from fedloom.experiments import about, experiment, read, resume, run
from tests import conftest
from tests.test_killed import VICTIM

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedloom[torch]'")

TASK = """
import numpy as np
import torch
import fedloom as fl

rng = np.random.default_rng(0)
x, y, owner = rng.normal(size=(90, 4)), rng.integers(0, 3, 90), rng.integers(0, 6, 90)


def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3)).double()


task = fl.Task("torch", fl.by_client(x, y, owner), fl.models.from_torch(make, x[:2], compile=False))
"""
KILLS = ["continue after a row 2", "finish checkpoint.npz.draft 2"]


@pytest.fixture
def e(tmp_path):
    (tmp_path / "torch_task.py").write_text(TASK)
    options = {"solver": "sgd", "cohort": "uniform", "cohort.m": 3, "rounds": 6, "evaluate_every": 1}
    return experiment(f"{tmp_path}/torch_task.py:task", "scaffold", seed=2, **options)


def test_a_killed_run_ends_with_the_same_bits(tmp_path, e):
    whole = run(e, tmp_path / "whole")
    assert np.ptp(whole.column("train loss")) > 1e-3
    assert whole.about["how"] == "PyTorch by callbacks"
    assert "torch" in whole.about["versions"]
    directory = tmp_path / "killed"
    directory.mkdir()
    (directory / "config.toml").write_text(e.to_toml())
    cache = {name.upper(): str(getattr(jax.config, name)) for name in conftest.CACHE}
    single = {"JAX_ENABLE_X64": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(VICTIM), str(directory)],
        env=os.environ | cache | single,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as victim:
        for moment in (*KILLS, "never"):
            victim.stdin.write(moment + "\n")
            assert (victim.stdout.readline().strip() == "killed") == (moment != "never"), moment
            rows = read(directory).rows
            assert rows == whole.rows[: len(rows)]
        victim.stdin.close()
    assert (directory / "log.jsonl").read_bytes() == (tmp_path / "whole/log.jsonl").read_bytes()
    np.testing.assert_array_equal(read(directory).w, whole.w)


def test_another_version_of_torch_is_not_resumed(tmp_path, e, monkeypatch):
    class Stopped(Exception):
        pass

    def stop(row):
        if row["round"] == 3:
            raise Stopped

    with pytest.raises(Stopped):
        run(e, tmp_path / "run", watch=[stop], checkpoint_seconds=0)
    now = about.metadata.version
    monkeypatch.setattr(about.metadata, "version", lambda name: "1.0" if name == "torch" else now(name))
    with pytest.raises(ValueError, match=rf"was written with torch {now('torch').split('+')[0]}.* \(here 1\.0\)"):
        resume(tmp_path / "run")
    monkeypatch.setattr(about.metadata, "version", now)
    assert resume(tmp_path / "run").rows[-1]["round"] == 6
    assert json.loads((tmp_path / "run/about.json").read_text())["versions"]["torch"] == now("torch")


def test_a_run_that_would_now_be_compiled_is_not_resumed():
    """The packages that a model uses must be the same, not only their versions."""
    old, new = {"jax": "1", "torch": "2"}, {"jax": "1", "torch": "2", "torchax": "3"}
    assert about.other_versions(old, new) == ["torchax not used (here 3)"]
    assert about.other_versions(new, old) == ["torchax 3 (here not used)"]
    assert about.other_versions(new, dict(new)) == []
