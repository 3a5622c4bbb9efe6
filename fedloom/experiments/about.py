"""The circumstances of a run: the federation in figures, versions and the machine."""

import contextlib
import functools
import hashlib
import math
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

import jax
import numpy as np

from fedloom.data.describe import label_counts
from fedloom.engines.processes import several
from fedloom.experiments.definition import Checked, Experiment
from fedloom.experiments.origins import origin
from fedloom.experiments.used_files import digests
from fedloom.hyperparameters import brief
from fedloom.native import build
from fedloom.tasks import Loaded
from fedloom.tasks.evaluated import owners_of_tests
from fedloom.version import __version__

PACKAGES = ("jax", "jaxlib", "numpy", "optax", "scipy")
KERNELS = {f"native {source}": source for source in build.SOURCES}  # beside packages: their rounding is their own
DRAWN = 100  # clients shown in the picture of the split


def versions(others: Iterable[str] = ()) -> dict[str, str]:
    """The versions of everything that can change the bits of a result; of more packages where these are installed."""
    found = {name: metadata.version(name) for name in PACKAGES}
    for name in others:
        if name in KERNELS and build.kernels(KERNELS[name]):
            found[name] = build.version(KERNELS[name])
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return {"fedloom": __version__, "python": platform.python_version(), **found}


def other_versions(old: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs, in words."""
    names = [name for name in dict.fromkeys((*old, *now)) if old.get(name) != now.get(name)]
    return [f"{name} {old.get(name, 'not used')} (here {now.get(name, 'not used')})" for name in names]


def packages(checked: Checked) -> tuple[str, ...]:
    """What a task's model and criterion need besides JAX."""
    task = checked.loaded.task
    used = build.used_in(lambda f, w: f.objective(0).loss(w), checked.run.federation, checked.run.w)
    kernels = [name for name, source in KERNELS.items() if source in used]
    model = () if task.model is None else task.model.packages
    criterion = getattr(task.criterion, "of", task.criterion)  # of rows that are coupled
    return (*kernels, *model, *getattr(criterion, "packages", ()))


def commit() -> str | None:
    """The commit of the checkout that runs, with a + if files have been changed since; None if it is no checkout."""
    root = pathlib.Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=root, capture_output=True, text=True
        )
    except OSError:
        return None
    return found.stdout.strip() or None


def with_commit(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a study says of itself once runs are added to it, perhaps at another commit."""
    before, now = about.get("commit"), commit()
    if before is None or now is None or now in before:
        return dict(about)
    return {**about, "commit": f"{before} and {now}"}


def machine() -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "device": f"{device.platform}: {device.device_kind}",
        "float64": jax.dtypes.canonicalize_dtype(float) == "float64",
        **({"processes": jax.process_count()} if several() else {}),
    }


@functools.lru_cache(maxsize=4)  # shared by runs side by side
def figures(loaded: Loaded) -> dict[str, Any]:
    """Figures of a loaded task."""
    data = loaded.data
    facts: dict[str, Any] = {
        "task": loaded.task.name,
        "words": loaded.task.about,
        "target": loaded.task.target,
        "clients": loaded.federation.clients,
        "parameters": int(loaded.w.size),
        "model bytes": int(loaded.w.size * loaded.w.dtype.itemsize),
    }
    if (model := loaded.task.model) is not None and model.how:
        facts["how"] = model.how
    if data is not None:
        facts["summary"] = str(data.describe())
        if data.test is not None:
            n, rest = len(data.test[1]), int(data.split.sizes.sum())
            owners = owners_of_tests(loaded)
            digest = _digest(data.test if owners is None else (data.test, owners))  # of what the blocks are made of
            facts["test"] = {"examples": n, "digest": digest, "share": n / (n + rest)}
        if data.split.names is not None:
            facts["names"] = data.split.names[:DRAWN].tolist()
        facts["sizes"] = data.split.sizes[:DRAWN].tolist()
        if data.classes is not None and np.ndim(data.train[1]) == 1:
            drawn = slice(0, min(DRAWN, data.clients))
            facts["labels"] = label_counts(np.asarray(data.train[1]), data.split, data.classes, drawn).tolist()
    return facts


def _digest(store: Any) -> str:
    """Equal for equal arrays: runs whose digests agree were tested on the same examples."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(store):
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()


def about(experiment: Experiment, checked: Checked) -> dict[str, Any]:
    """Figures of the task and of the experiment, metrics that are evaluated, files, versions and the machine."""
    metrics = checked.evaluation.metrics
    return {
        **figures(checked.loaded),
        "exchanges": len(experiment.algorithm.exchanges),  # in a round
        "cohort": brief(experiment.cohort),
        "room": checked.run.cohort_room,
        "setting": origin(experiment),
        "metrics": {name: m.larger_is_better for name, m in metrics.items()},
        "bounds": {name: [b if math.isfinite(b) else None for b in m.bounds] for name, m in metrics.items()},
        "files": digests([experiment]),
        "versions": versions(packages(checked)),
        "machine": machine(),
    }
