"""What is distributed works without the repository: the wheel is installed into an empty environment and used there."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

import fedloom as fl
from tests.test_project import ROOT

OFFLINE = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeoutError|Temporary failure in name resolution")


def install(*command, **where):
    """Run something that installs packages; skip the test if none can be reached."""
    done = subprocess.run(command, capture_output=True, text=True, **where)
    said = done.stdout + done.stderr
    if done.returncode and OFFLINE.search(said):
        pytest.skip("packages cannot be installed: there is no network")
    assert done.returncode == 0, said[-3000:]


@pytest.mark.exhaustive
def test_the_wheel_runs_in_an_empty_environment(tmp_path):
    install(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    packed = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in packed} == {"fedloom", f"fedloom-{fl.__version__}.dist-info"}
    recorded = {f"fedloom/reproductions/recorded/{p.name}" for p in (ROOT / "benchmarks/reproductions").iterdir()}
    assert recorded
    assert recorded <= set(packed)
    with tarfile.open(source) as archive:
        assert f"fedloom-{fl.__version__}/fedloom/py.typed" in archive.getnames()

    venv.create(tmp_path / "env", with_pip=True)
    bin = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    install(bin / "python", "-m", "pip", "install", wheel, cwd=tmp_path, env=clean)

    def fedloom(*words):
        done = subprocess.run([bin / "fedloom", *words], capture_output=True, text=True, cwd=tmp_path, env=clean)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    assert fedloom("--version").strip() == f"fedloom {fl.__version__}"
    table = fedloom("run", "digits", "--algorithm", "fedavg", "--rounds", "2", "--out", "study")
    assert "test accuracy" in table
    assert (tmp_path / "study/report.html").exists()
