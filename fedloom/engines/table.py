"""The memories of clients, one row for each client that was met."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.engines.run import nbytes

_AT_ONCE = 64 * 2**20  # a table of up to so many bytes is allocated whole; a larger one grows with the clients met


class Table:
    """Rows of memories. A client gets a row when it is first drawn, so memory follows participation."""

    def __init__(self, blank: Any, clients: int):
        self.blank = jax.tree.map(jnp.asarray, blank)
        self.slot = np.full(clients, -1, np.int32)  # the row of each client; -1: none yet
        self.known = np.zeros(clients, bool)  # has the client committed a memory?
        self.used = 0
        self.round: int | None = 0  # after which round these are the memories; None: between two rounds
        size = nbytes(self.blank)
        self.capacity = clients if size * clients <= _AT_ONCE else max(1, _AT_ONCE // size)
        self.rows = self._blank_rows(self.capacity)

    def _blank_rows(self, n: int) -> Any:
        return jax.tree.map(lambda x: jnp.tile(x, (n, *(1,) * x.ndim)), self.blank)

    def slots(self, ids: np.ndarray) -> np.ndarray:
        """The rows of these clients; those that have none yet get one."""
        new = ids[self.slot[ids] < 0]
        if self.used + len(new) > self.capacity:
            more = min(max(self.capacity, len(new)), len(self.slot) - self.capacity)
            self.rows = jax.tree.map(lambda r, b: jnp.concatenate([r, b]), self.rows, self._blank_rows(more))
            self.capacity += more
        self.slot[new] = np.arange(self.used, self.used + len(new))
        self.used += len(new)
        return self.slot[ids]

    def write(self, memories: Mapping[int, Any]) -> None:
        if memories:
            ids = np.array(sorted(memories))
            self.commit(ids, jax.tree.map(lambda *x: jnp.stack(x), *(memories[k] for k in ids.tolist())))

    def commit(self, ids: np.ndarray, memories: Any) -> None:
        """Write the memories of these clients, one in each row."""
        slots = self.slots(ids)
        self.rows = jax.tree.map(lambda r, x: r.at[slots].set(x), self.rows, memories)
        self.known[ids] = True

    def committed(self) -> tuple[np.ndarray, Any]:
        """The clients that have a memory, and their memories, one in each row."""
        ids = np.flatnonzero(self.known)
        return ids, jax.tree.map(lambda r: r[self.slot[ids]], self.rows)


class Memories(Mapping[int, Any]):
    """Client id -> memory, as of one round.

    The engine reuses the space of these memories, so they can be read until the next record is taken.
    """

    def __init__(self, table: Table, round: int):
        self._table, self._round = table, round

    @property
    def table(self) -> Table:
        if self._table.round != self._round:
            raise RuntimeError(
                f"The memories of round {self._round} are gone, the run has moved on. To read or resume a record "
                "later, keep it before you take the next one: record = record.keep()."
            )
        return self._table

    def __getitem__(self, k: int) -> Any:
        table = self.table
        if not 0 <= k < len(table.slot) or not table.known[k]:
            raise KeyError(k)
        return jax.tree.map(lambda r: r[table.slot[k]], table.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.table.known).tolist())

    def __len__(self) -> int:
        return int(self.table.known.sum())

    def __copy__(self) -> "Memories":
        return Memories(self.own_table(), self._round)

    def own_table(self) -> Table:
        """A copy of the table, which nobody else changes."""
        old, new = self.table, object.__new__(Table)
        new.blank, new.used, new.capacity, new.round = old.blank, old.used, old.capacity, old.round
        new.slot, new.known = old.slot.copy(), old.known.copy()
        new.rows = jax.tree.map(jnp.copy, old.rows)
        return new
