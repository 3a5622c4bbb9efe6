"""The memories of clients, one row for each client that was met."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.engines.run import nbytes

_AT_ONCE = 64 * 2**20  # a table of up to so many bytes is allocated whole; a larger one grows with the clients met


class Table(Mapping[int, Any]):
    """Client id -> memory. A client gets a row when it is first met, so memory follows participation."""

    def __init__(self, blank: Any, clients: int, known: Mapping[int, Any]):
        self.blank = jax.tree.map(jnp.asarray, blank)
        self.slot = np.full(clients, -1, np.int32)  # the row of each client; -1: not met yet
        self.met = 0
        size = nbytes(self.blank)
        self.capacity = clients if size * clients <= _AT_ONCE else max(1, _AT_ONCE // size)
        self.rows = self._blank_rows(self.capacity)
        if isinstance(known, Table):
            self.slot, self.met, self.capacity = known.slot.copy(), known.met, known.capacity
            self.rows = jax.tree.map(jnp.copy, known.rows)
        elif known:
            ids = np.array(sorted(known))
            stacked = jax.tree.map(lambda *x: jnp.stack(x), *(known[k] for k in ids.tolist()))
            slots = self.slots(ids)
            self.rows = jax.tree.map(lambda r, x: r.at[slots].set(x), self.rows, stacked)

    def _blank_rows(self, n: int) -> Any:
        return jax.tree.map(lambda x: jnp.tile(x, (n, *(1,) * x.ndim)), self.blank)

    def slots(self, ids: np.ndarray) -> np.ndarray:
        """The rows of these clients; those not met yet get one."""
        new = ids[self.slot[ids] < 0]
        if self.met + len(new) > self.capacity:
            more = min(max(self.capacity, len(new)), len(self.slot) - self.capacity)
            self.rows = jax.tree.map(lambda r, b: jnp.concatenate([r, b]), self.rows, self._blank_rows(more))
            self.capacity += more
        self.slot[new] = np.arange(self.met, self.met + len(new))
        self.met += len(new)
        return self.slot[ids]

    def __getitem__(self, k: int) -> Any:
        if not 0 <= k < len(self.slot) or self.slot[k] < 0:
            raise KeyError(k)
        return jax.tree.map(lambda r: r[self.slot[k]], self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.slot >= 0).tolist())

    def __len__(self) -> int:
        return self.met
