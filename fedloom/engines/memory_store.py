"""The memories of clients: a row for each client that was met, on the device or, if they do not fit there, on disk."""

import errno
import io
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.engines import processes
from fedloom.engines.run import Run
from fedloom.engines.trees import Array, Tree, nbytes

SMALL_TABLE = 64 * 2**20  # a table of up to so many bytes is allocated whole; a larger one grows with the clients met
ON_DEVICE = 0.25  # of the device's memory: a table that could become larger is kept on disk
LENT = 256 * 2**20  # bytes of memories that a call may take from the disk
USUAL_MEMORY = 8 * 2**30  # bytes, where the operating system does not say


class MemoryStore(Protocol):
    """Where memories live. A call of the program borrows the rows of its clients, and gives them back."""

    blank: Tree  # a client's first memory
    known: np.ndarray  # [clients] bool: has the client committed a memory?
    round: int | None  # after which round these are the memories; None: between two rounds

    def rounds_at_once(self, room: int) -> float:
        """For how many rounds with cohorts of this size the rows can be lent."""

    def lend(self, ids: np.ndarray, room: int) -> Tree:
        """Rows in which these clients have a place: `slots` says which."""

    def slots(self, ids: Array) -> np.ndarray: ...

    def take_back(self, rows: Tree) -> None:
        """The rows that were lent, after some rounds."""

    def read(self, ids: int | np.ndarray) -> Tree: ...

    def copy(self) -> "MemoryStore":
        """One that nobody else changes."""


def write(store: MemoryStore, ids: np.ndarray, memories: Tree) -> None:
    """Write the memories [ids, ...] of these clients."""
    rows = store.lend(ids, len(ids))
    slots = store.slots(ids)
    store.take_back(jax.tree.map(lambda r, x: on_one_device(r).at[slots].set(x), rows, memories))
    store.known[ids] = True


def known_memories(store: MemoryStore) -> tuple[np.ndarray, Tree]:
    """The clients that have a memory, and their memories [ids, ...]."""
    ids = np.flatnonzero(store.known)
    return ids, store.read(ids)


@final
class DeviceStore:
    """Rows of memories on the device. A client gets a row when it is first drawn, so memory follows participation."""

    def __init__(self, blank: Tree, clients: int):
        self.blank = jax.tree.map(jnp.asarray, blank)
        self.slot = np.full(clients, -1, np.int32)  # the row of each client; -1: none yet
        self.known = np.zeros(clients, bool)
        self.used = 0
        self.round: int | None = 0
        size = nbytes(self.blank)
        self.capacity = clients if size * clients <= SMALL_TABLE else max(1, SMALL_TABLE // size)
        self.rows = _repeated(self.blank, self.capacity)

    def rounds_at_once(self, room: int) -> float:
        return np.inf

    def lend(self, ids: np.ndarray, room: int) -> Tree:
        new = np.unique(ids[self.slot[ids] < 0])
        if self.used + len(new) > self.capacity:
            more = min(max(self.capacity, len(new)), len(self.slot) - self.capacity)
            more_rows = _repeated(self.blank, more)
            self.rows = jax.tree.map(lambda r, b: jnp.concatenate([on_one_device(r), b]), self.rows, more_rows)
            self.capacity += more
        self.slot[new] = np.arange(self.used, self.used + len(new))
        self.used += len(new)
        return self.rows

    def slots(self, ids: Array) -> np.ndarray:
        return self.slot[ids]

    def take_back(self, rows: Tree) -> None:
        self.rows = rows

    def read(self, ids: int | np.ndarray) -> Tree:
        return jax.tree.map(lambda r: on_one_device(r)[self.slot[ids]], self.rows)

    def copy(self) -> "DeviceStore":
        new = object.__new__(type(self))
        new.blank, new.used, new.capacity, new.round = self.blank, self.used, self.capacity, self.round
        new.slot, new.known = self.slot.copy(), self.known.copy()
        new.rows = jax.tree.map(lambda r: jnp.copy(on_one_device(r)), self.rows)
        return new


@final
class DiskStore:
    """Rows of memories in files that have room for all clients, but take space only for those that were met.

    For each call of the program the rows of its clients are read to the device, and written back when it is done; the
    operating system keeps as much of the files in memory as there is room for. (Writing through a memory map would
    allocate page by page, which takes many times as long.)
    """

    def __init__(self, blank: Tree, clients: int):
        self.blank = jax.tree.map(np.asarray, blank)
        self.known = np.zeros(clients, bool)
        self.round: int | None = 0
        self.lent = np.zeros(0, np.int64)
        leaves, tree = jax.tree.flatten(self.blank)
        files = [tempfile.TemporaryFile(prefix="fedloom-", buffering=0) for _ in leaves]  # noqa: SIM115 (they live as long as the store)
        for file in files:
            weakref.finalize(self, file.close)
        self.files = jax.tree.unflatten(tree, files)
        jax.tree.map(lambda file, b: file.truncate(clients * b.nbytes), self.files, self.blank)

    def rounds_at_once(self, room: int) -> float:
        return max(1, LENT // (room * nbytes(self.blank)))

    def lend(self, ids: np.ndarray, room: int) -> Tree:
        self.lent = np.unique(ids)
        more = 1 << (len(self.lent) - 1).bit_length()  # more came than expected: few sizes, hence few programs
        return jax.tree.map(jnp.asarray, self._read(self.lent, room if len(self.lent) <= room else more))

    def _read(self, ids: np.ndarray, room: int) -> Tree:
        """The memories of these clients, or the first one of those who have none, in an array with room for more."""
        places = np.flatnonzero(self.known[ids]).tolist()

        def of_file(file: io.FileIO, b: np.ndarray) -> np.ndarray:
            rows = np.empty((room, *b.shape), b.dtype)
            rows[:] = b
            for i in places:
                file.seek(int(ids[i]) * b.nbytes)
                if file.readinto(_as_bytes(rows[i : i + 1])) < b.nbytes:
                    raise OSError(errno.EIO, "The file with the memories of clients is shorter than it was")
            return rows

        return jax.tree.map(of_file, self.files, self.blank)

    def slots(self, ids: Array) -> np.ndarray:
        return np.searchsorted(self.lent, ids)

    def take_back(self, rows: Tree) -> None:
        ids = self.lent.tolist()

        def to_file(file: io.FileIO, b: np.ndarray, rows: jax.Array) -> None:
            host = np.ascontiguousarray(on_one_device(rows))
            for i, k in enumerate(ids):
                file.seek(k * b.nbytes)
                if file.write(_as_bytes(host[i : i + 1])) < b.nbytes:
                    raise OSError(
                        errno.ENOSPC,
                        "The memories of clients do not fit on the disk; set TMPDIR to a directory with more space",
                    )

        jax.tree.map(to_file, self.files, self.blank, rows)

    def read(self, ids: int | np.ndarray) -> Tree:
        rows = self._read(np.atleast_1d(ids), np.size(ids))
        return jax.tree.map(lambda x: jnp.asarray(x if np.ndim(ids) else x[0]), rows)

    def copy(self) -> "DiskStore":
        new = DiskStore(self.blank, len(self.known))
        new.round = self.round
        for part in np.array_split(np.flatnonzero(self.known), max(1, self.known.sum() * nbytes(self.blank) // LENT)):
            write(new, part, self.read(part))
        return new


def _as_bytes(rows: np.ndarray) -> memoryview:
    """The same memory, byte by byte."""
    return rows.reshape(-1).view(np.uint8).data


def store_for(blank: Tree, clients: int, devices: int = 1) -> MemoryStore:
    """On the devices if the memories of all clients fit there, else on disk."""
    blank = jax.tree.map(np.asarray, blank)
    (on_device,) = processes.of_first(nbytes(blank) * clients <= ON_DEVICE * device_memory(devices))
    return DeviceStore(blank, clients) if on_device else DiskStore(blank, clients)


def first_store(run: Run, devices: int = 1) -> MemoryStore:
    """The memories that the run starts with; a record's own are left as they are."""
    memories = run.start.clients
    if isinstance(memories, Memories):
        return memories.store.copy()
    store = store_for(run.algorithm.init_client(run.w), run.federation.clients, devices)
    if memories:
        ids = np.array(sorted(memories))
        write(store, ids, jax.tree.map(lambda *x: jnp.stack(x), *(memories[k] for k in ids.tolist())))
    return store


def device_memory(devices: int) -> int:
    """Bytes of memory of a device; those of a CPU share the machine's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("bytes_limit", _machine_memory() // devices))


def _machine_memory() -> int:
    if not hasattr(os, "sysconf"):  # Windows
        return USUAL_MEMORY
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def on_one_device(x: jax.Array) -> jax.Array:
    """The first device's copy of an array that all devices have."""
    return x.addressable_shards[0].data


def _repeated(blank: Tree, n: int) -> Tree:
    return jax.tree.map(lambda x: jnp.tile(x, (n, *(1,) * x.ndim)), blank)


class Memories(Mapping[int, Any]):
    """Client id -> memory, as of one round.

    The engine reuses the space of these memories, so they can be read until the next record is taken.
    """

    def __init__(self, store: MemoryStore, round: int):
        self._store, self._round = store, round

    @property
    def store(self) -> MemoryStore:
        if self._store.round != self._round:
            raise RuntimeError(
                f"The memories of round {self._round} are gone because the run has moved on. To read or resume a "
                "record later, keep it before you take the next one: record = record.keep()."
            )
        return self._store

    def __getitem__(self, k: int) -> Any:
        store = self.store
        if not 0 <= k < len(store.known) or not store.known[k]:
            raise KeyError(k)
        return store.read(k)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.store.known).tolist())

    def __len__(self) -> int:
        return int(self.store.known.sum())

    def __copy__(self) -> "Memories":
        return Memories(self.store.copy(), self._round)
