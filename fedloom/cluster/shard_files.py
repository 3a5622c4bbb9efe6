"""The memories of shards in files: one for each shard, which its worker writes, in a directory that all nodes see."""

import os
import pathlib
import zipfile
from abc import ABC, abstractmethod
from typing import Any, final

import jax
import numpy as np

from fedloom.cluster.shard import Rows
from fedloom.engines.memory_store import MemoryStore, store_for, write
from fedloom.engines.trees import Array, Tree


def shard_file(directory: pathlib.Path, s: int) -> pathlib.Path:
    return directory / f"shard-{s}.npz"


def write_shard(path: pathlib.Path, memories: Rows) -> None:
    """Write all memories of a shard. The file counts only once a checkpoint names its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        leaves = {f"memory {i}": x for i, x in enumerate(jax.tree.leaves(memories.rows))}
        np.savez(file, clients=memories.ids, **leaves)
        file.flush()
        os.fsync(file.fileno())


def read_shard(path: pathlib.Path, blank: Tree, ids: bool = False) -> Rows:
    """The memories of a shard, which are like `blank`; with `ids` only whose they are."""
    leaves, structure = jax.tree.flatten(blank)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            rows = () if ids else jax.tree.unflatten(structure, [arrays[f"memory {i}"] for i in range(len(leaves))])
            return Rows(arrays["clients"], rows)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error


class ShardedStore(ABC):
    """The memories of a run in shards, as its records show them: to be read, copied and saved, not to be lent."""

    blank: Tree
    known: np.ndarray  # [clients] bool
    round: int | None
    shards: int

    @abstractmethod
    def of_shard(self, s: int, ids: np.ndarray) -> Tree:
        """The memories [ids, ...] of these clients of a shard."""

    @abstractmethod
    def save(self, directory: pathlib.Path) -> None:
        """Write a file for each shard."""

    def read(self, ids: int | np.ndarray) -> Tree:
        if not jax.tree.leaves(self.blank):  # clients that remember nothing
            return self.blank
        wanted = np.atleast_1d(np.asarray(ids))
        rows = jax.tree.map(lambda b: np.empty((len(wanted), *np.shape(b)), np.asarray(b).dtype), self.blank)
        for s in np.unique(wanted % self.shards).tolist():
            places = np.flatnonzero(wanted % self.shards == s)
            found = self.of_shard(s, wanted[places])
            for whole, part in zip(jax.tree.leaves(rows), jax.tree.leaves(found), strict=True):
                whole[places] = part
        return rows if np.ndim(ids) else jax.tree.map(lambda x: x[0], rows)

    def copy(self) -> MemoryStore:
        """All memories in one place, which nobody else changes."""
        store = store_for(self.blank, len(self.known))
        for s in range(self.shards):
            ids = np.flatnonzero(self.known)
            ids = ids[ids % self.shards == s]
            if len(ids):
                write(store, ids, self.of_shard(s, ids))
        store.round = self.round
        return store

    def rounds_at_once(self, room: int) -> float:
        raise NotImplementedError

    def lend(self, ids: np.ndarray, room: int) -> Tree:
        raise NotImplementedError

    def slots(self, ids: Array) -> np.ndarray:
        raise NotImplementedError

    def take_back(self, rows: Tree) -> None:
        raise NotImplementedError


@final
class FileStore(ShardedStore):
    """Memories that a checkpoint of shards has."""

    def __init__(self, directory: pathlib.Path, blank: Any, clients: int, shards: int, round: int):
        self.directory, self.shards, self.round = directory, shards, round
        self.blank = jax.tree.map(np.asarray, blank)
        self.known = np.zeros(clients, bool)
        for s in range(shards):
            ids = read_shard(shard_file(directory, s), self.blank, ids=True).ids
            if len(ids) and not (ids.min() >= 0 and ids.max() < clients and np.all(ids % shards == s)):
                raise ValueError(f"{shard_file(directory, s)} has memories of clients that are not of this shard.")
            self.known[ids] = True

    def of_shard(self, s: int, ids: np.ndarray) -> Tree:
        there = read_shard(shard_file(self.directory, s), self.blank)
        return jax.tree.map(lambda x: x[np.searchsorted(there.ids, ids)], there.rows)

    def save(self, directory: pathlib.Path) -> None:
        raise NotImplementedError
