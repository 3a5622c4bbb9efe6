"""A worker: a process somewhere in the cluster that has shards and computes parts. It is an actor of Ray."""

import os
import pathlib
import platform
import resource
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import jax
import numpy as np
import ray

from fedloom.cluster.shard import Answer, Computer, Part, Rows, Shard
from fedloom.cluster.shard_files import read_shard, write_shard
from fedloom.engines.run import Run
from fedloom.engines.trees import Tree, nbytes
from fedloom.places import cache_directory
from fedloom.version import __version__

Memories = Rows | str | None  # of a shard: themselves, the file that has them, or none yet


class Terms(NamedTuple):
    """What a worker must know to be like all others."""

    versions: Mapping[str, str]
    shards: int
    neighbours: int  # shards on one machine, about


def versions_here() -> dict[str, str]:
    """What must be the same on all nodes for the same bits."""
    found = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "ray")}
    return {"fedloom": __version__, "python": platform.python_version(), **found}


def check_versions(wanted: Mapping[str, str]) -> None:
    """Raise a sentence if this process has other versions than the driver."""
    here = versions_here()
    if other := [f"{name} {here[name]}, not {v}" for name, v in wanted.items() if here[name] != v]:
        raise ValueError(f"it has {', '.join(other)} as the driver. Install the same versions on all nodes.")


class Worker:
    """Has the data, the program, and the memories of its shards."""

    def __init__(self, threads: int, float64: bool) -> None:
        """JAX is told here how many cores it may use and which floats: what comes later may have arrays in it."""
        jax.config.update("jax_enable_x64", float64)
        use_cores(threads)
        self.shards: dict[int, Shard] = {}

    def begin(self, make: Callable[..., Run], given: Sequence[Any], terms: Terms) -> int:
        """Load or generate the data of a run; returns their bytes. Raises a sentence if the node is unlike others."""
        check_versions(terms.versions)
        self.shards = {}  # of the run before
        self.terms, self.run = terms, make(*given)
        self.computer = Computer(self.run)
        return nbytes(self.run.federation)

    def where(self) -> tuple[str, int]:
        """The node's address and the process."""
        return ray.util.get_node_ip_address(), os.getpid()

    def begin_shard(self, s: int, memories: Memories, number: int, replay: Sequence[tuple[Part, Any]]) -> None:
        """Have a shard from now on: from memories as they were after `number` parts, through the parts since then."""
        shard = Shard(self.run, s, self.terms.shards, self.terms.neighbours)
        if isinstance(memories, str):
            memories = read_shard(pathlib.Path(memories), self.computer.blank)
        shard.begin(memories, number)
        for part, message in replay:
            self.computer(part, ray.get(message) if isinstance(message, ray.ObjectRef) else message, shard)
        self.shards[s] = shard

    def end_shard(self, s: int) -> None:
        """Have it no more."""
        self.shards.pop(s, None)

    def standing(self) -> dict[int, int]:
        """How many parts each of its shards has done."""
        return {s: shard.number for s, shard in self.shards.items()}

    def compute(self, parts: Sequence[Part], message: Tree) -> list[Answer]:
        """The answers of these parts, whose memories are here, if there are any."""
        return [
            self.computer(part, message, None if self.computer.stateless else self.shards[part.shard]) for part in parts
        ]

    def read(self, s: int, ids: np.ndarray) -> Tree:
        """Memories of clients of a shard."""
        return self.shards[s].read(ids)

    def memories(self, s: int, since: bool = False) -> Rows:
        """All memories of a shard, or those that have changed since the last time."""
        return self.shards[s].memories(since)

    def save(self, s: int, path: str) -> None:
        """Write the memories of a shard to a file that all nodes can read."""
        write_shard(pathlib.Path(path), self.shards[s].memories())

    def resident(self) -> int:
        """Bytes of memory that the process has: for benchmarks."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def keep_programs() -> None:
    """Keep compiled programs on disk, as the command line does, for all processes of a machine."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_directory() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def use_cores(threads: int) -> None:
    """Let JAX use so many threads: workers on one machine would else all use all of its cores.

    JAX counts the cores that the process may use when it is first asked for a device; afterwards the system may move
    the threads to any core again.
    """
    jax.config.update("jax_num_cpu_devices", 1)
    keep_programs()
    if not hasattr(os, "sched_setaffinity"):
        jax.devices()
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:threads])
    try:
        jax.devices()
    finally:
        os.sched_setaffinity(0, cores)
