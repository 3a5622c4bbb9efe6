"""Virtual environments for the peers, one each, with pinned packages.

python -m benchmarks.speed.peers.environments [DIRECTORY]

An environment that is there and holds the pinned packages is kept. pip takes the index it is configured with. PyTorch
from PyPI brings gigabytes of CUDA on Linux: where the index has a CPU build of the pinned version (2.13.0+cpu), pip
prefers it by itself. (The build with CUDA does not import without its CUDA packages, so --no-deps is no way out.)
"""

import shutil
import subprocess
import sys
import venv
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
}


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
        venv.create(place, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        result = subprocess.run([*command, *REQUIREMENTS[peer]], capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"pip could not install {peer}'s packages:\n{last_lines(result.stderr)}")
        done.write_text(pinned)
    return python


def last_lines(text: str) -> str:
    """Enough of what a program said to see why it failed."""
    return "\n".join(text.splitlines()[-25:])


if __name__ == "__main__":
    for name in REQUIREMENTS:
        print(make(name, Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT), flush=True)
