"""The example of a PyTorch network: it is compared from the command line, and it learns."""

import json
import sys

import pytest

from tests.test_project import ROOT, run

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedloom[torch]'")


def test_it_can_be_compared(tmp_path):
    command = [sys.executable, "-m", "fedloom.cli", "compare", "examples/torch_cnn.py:task", "--rounds", "2"]
    done = run(*command, "--algorithms", "fedavg,scaffold", "--seeds", "1", "--out", str(tmp_path / "study"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert {line.split()[0] for line in done.stdout.splitlines() if line} >= {"fedavg", "scaffold"}
    about = json.loads((tmp_path / "study/scaffold/seed-0/about.json").read_text())
    assert about["how"] == "PyTorch by callbacks"
    assert "torch" in about["versions"]


def test_it_learns():
    done = run(sys.executable, str(ROOT / "examples/torch_cnn.py"))
    assert done.returncode == 0, done.stderr[-2000:]
    accuracies = [float(line.split("'test accuracy': ")[1].split(",")[0]) for line in done.stdout.splitlines()]
    assert len(accuracies) == 6
    assert accuracies[-1] > 0.7 > accuracies[0]
