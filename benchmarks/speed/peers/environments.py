"""Virtual environments for the peers, one each, with pinned packages.

python -m benchmarks.speed.peers.environments [DIRECTORY]

An environment that is there and holds the pinned packages is kept. pip takes the index it is configured with. PyTorch
from PyPI brings gigabytes of CUDA on Linux: where the index has a CPU build of the pinned version (2.13.0+cpu), pip
prefers it by itself. (The build with CUDA does not import without its CUDA packages, so --no-deps is no way out.)
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

DEFAULT = Path(__file__).parents[3] / ".venv-peers"

_TORCH = ("torch==2.13.0", "numpy==2.4.6")

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "torch": _TORCH,
    "flower": ("flwr[simulation]==1.41.0", "ray==2.55.1", *_TORCH),
    "pfl": ("pfl[pytorch]==0.6.0", *_TORCH),
    # FedJAX 0.0.17, the last, calls jax.tree_map, which later versions of JAX do not have.
    "fedjax": (
        "fedjax==0.0.17",
        "jax==0.5.3",
        "jaxlib==0.5.3",
        "dm-haiku==0.0.14",
        "optax==0.2.4",
        "numpy==2.2.6",
    ),
    "blazefl": ("blazefl==2.0.3", *_TORCH),
}
LEAST_PYTHON = {"blazefl": (3, 12)}  # others: that of this process


def make(peer: str, directory: Path = DEFAULT) -> Path:
    """The environment's Python, after making the environment if it is not there as pinned."""
    place = directory / peer
    python = place / "bin" / "python"
    pinned = "\n".join(REQUIREMENTS[peer])
    done = place / "pinned.txt"
    if not (done.exists() and done.read_text() == pinned):
        if place.exists() and not (place / "pyvenv.cfg").exists():
            raise RuntimeError(f"{place} is there and is no virtual environment; give another directory.")
        shutil.rmtree(place, ignore_errors=True)
        interpreter = _interpreter(LEAST_PYTHON.get(peer, (3, 0)))
        if interpreter is None:
            least = ".".join(str(n) for n in LEAST_PYTHON[peer])
            raise RuntimeError(f"{peer} needs Python {least} or newer, and there is none on PATH or in pyenv.")
        _run([interpreter, "-m", "venv", str(place)], f"the environment of {peer} could not be made")
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*command, *REQUIREMENTS[peer]], f"pip could not install {peer}'s packages")
        done.write_text(pinned)
    return python


def _run(command: list[str], failed: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{failed}:\n" + "\n".join(done.stderr.splitlines()[-25:]))


def _interpreter(least: tuple[int, int]) -> str | None:
    """This Python if it is new enough, else the oldest one that is, on PATH or among pyenv's."""
    if sys.version_info[:2] >= least:
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(least[1], least[1] + 10):
        name = f"python{least[0]}.{minor}"
        found = [shutil.which(name), *sorted(map(str, versions.glob(f"*/bin/{name}")))]
        for path in filter(None, found):
            # One on PATH may be pyenv's shim for a version that is not active.
            if subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
                return path
    return None


if __name__ == "__main__":
    for name in REQUIREMENTS:
        print(make(name, Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT), flush=True)
