"""The circumstances of a run: the federation in figures, versions and the machine."""

import functools
import os
import platform
from importlib import metadata
from typing import Any

import jax
import numpy as np

from fedloom.data.describe import label_counts
from fedloom.tasks import Loaded
from fedloom.version import __version__

PACKAGES = ("jax", "jaxlib", "numpy", "optax", "scipy")
DRAWN = 100  # clients shown in the picture of the split


def versions() -> dict[str, str]:
    """The versions of everything that can change the bits of a result."""
    found = {name: metadata.version(name) for name in PACKAGES}
    return {"fedloom": __version__, "python": platform.python_version(), **found}


def machine() -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "device": f"{device.platform}: {device.device_kind}",
        "float64": jax.numpy.zeros(0).dtype == "float64",
    }


@functools.lru_cache(maxsize=4)  # shared by runs side by side
def about(loaded: Loaded, own_models: bool = False) -> dict[str, Any]:
    """Figures of a loaded task, the versions and the machine."""
    metrics = {"train loss": False}
    data = loaded.data
    if own_models:
        metrics["own train loss"] = False
        if data is not None and data.test_split is not None:
            metrics |= {f"own test {name}": m.larger_is_better for name, m in loaded.metrics.items()}
    facts: dict[str, Any] = {
        "task": loaded.task.name,
        "words": loaded.task.about,
        "target": loaded.task.target,
        "clients": loaded.federation.clients,
        "parameters": int(loaded.w.size),
        "model bytes": int(loaded.w.size * loaded.w.dtype.itemsize),
    }
    if data is not None:
        facts["summary"] = str(data.describe())
        if data.test is not None:
            metrics |= {f"test {name}": m.larger_is_better for name, m in loaded.metrics.items()}
        facts["sizes"] = data.split.sizes[:DRAWN].tolist()
        if data.classes is not None and np.ndim(data.train[1]) == 1:
            drawn = slice(0, min(DRAWN, data.clients))
            facts["labels"] = label_counts(np.asarray(data.train[1]), data.split, data.classes, drawn).tolist()
    return {**facts, "metrics": metrics, "versions": versions(), "machine": machine()}
