"""The example of a PyTorch network learns. (tests/test_project.py compares methods on it.)"""

import sys

import pytest

from tests.test_project import ROOT, run

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedloom[torch]'")


def test_it_learns():
    done = run(sys.executable, str(ROOT / "examples/torch_cnn.py"))
    assert done.returncode == 0, done.stderr[-2000:]
    accuracies = [float(line.split("'test accuracy': ")[1].split(",")[0]) for line in done.stdout.splitlines()]
    assert len(accuracies) == 6
    assert accuracies[-1] > 0.7 > accuracies[0]
