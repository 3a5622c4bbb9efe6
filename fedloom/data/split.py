"""Who owns which examples: index ranges over a flat store, for a thousand clients or a million."""

import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Client k owns the rows order[offsets[k] : offsets[k + 1]] of a store; no row has two owners.

    Rows that are not in `order` belong to no client. `sizes` may have zeros (a client without test examples, say); a
    federation to train on refuses those.
    """

    order: np.ndarray  # row numbers, client after client: int32, or int64 where they need it
    sizes: np.ndarray  # how many rows each client owns
    names: np.ndarray | None = None  # of the clients, as strings, where they have any

    def __post_init__(self) -> None:
        for name in ("order", "sizes"):
            a = np.asarray(getattr(self, name))
            if a.ndim != 1 or (a.size and not np.issubdtype(a.dtype, np.integer)):
                raise ValueError(f"Split: {name} must be a one-dimensional array of integers.")
            object.__setattr__(self, name, a.astype(np.int64, copy=False))
        if len(self.sizes) == 0 or np.any(self.sizes < 0):
            raise ValueError("Split: sizes must have at least one client, and no negative number.")
        if self.sizes.sum() != len(self.order):
            raise ValueError(f"Split: sizes add up to {self.sizes.sum()}, but order has {len(self.order)} rows.")
        if len(self.order) == 0 or self.order.max() <= np.iinfo(np.int32).max:
            object.__setattr__(self, "order", self.order.astype(np.int32))
        rows = np.sort(self.order)
        if len(rows) and rows[0] < 0:
            raise ValueError("Split: order has a negative row number.")
        twice = rows[1:][rows[1:] == rows[:-1]]
        if len(twice):
            raise ValueError(f"Split: row {twice[0]} is assigned more than once.")
        if self.names is not None:
            names = np.asarray(self.names, dtype=str)
            if names.shape != self.sizes.shape:
                raise ValueError(f"Split: names has shape {names.shape}, but there are {self.clients} clients.")
            object.__setattr__(self, "names", names)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.sizes)

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def rows(self, k: int) -> np.ndarray:
        """The rows of client k."""
        return self.order[self.offsets[k] : self.offsets[k + 1]]

    def owner(self) -> np.ndarray:
        """The client of each entry of `order`."""
        return np.repeat(np.arange(self.clients), self.sizes)

    def take(self, clients: ArrayLike) -> "Split":
        """The split with these clients only, in this order."""
        k = np.asarray(clients)
        whole = k.ndim == 1 and k.size > 0 and np.issubdtype(k.dtype, np.integer)
        if not whole or k.min() < 0 or k.max() >= self.clients:
            raise ValueError(f"Split.take: clients must be integers in 0 .. {self.clients - 1}, got {k!r}.")
        names = None if self.names is None else self.names[k]
        return Split(self.order[ranges(self.offsets[k], self.sizes[k])], self.sizes[k], names)

    def at_least(self, n: int) -> "Split":
        """Without the clients that have fewer than n examples."""
        keep = np.flatnonzero(self.sizes >= n)
        if len(keep) == 0:
            raise ValueError(f"No client has {n} examples; the largest has {self.sizes.max()}.")
        return self.take(keep)

    def save(self, path: str | pathlib.Path) -> None:
        """Write the split to a new .npz file, for others to repeat a study."""
        path = pathlib.Path(path)
        # Names, which may be absent, come first: a damaged table of contents loses its end.
        arrays: dict[str, Any] = {} if self.names is None else {"names": self.names}
        arrays |= {"order": self.order, "sizes": self.sizes}
        try:
            file = path.open("xb")  # never over something that is there
        except FileExistsError:
            raise FileExistsError(f"{path} already exists; delete it or save the split under another name.") from None
        except FileNotFoundError:
            raise FileNotFoundError(f"{path}: there is no folder {path.parent}; make it before saving.") from None
        with file:
            np.savez_compressed(file, **arrays)

    @staticmethod
    def load(path: str | pathlib.Path) -> "Split":
        """Read a split that `save` wrote."""
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path} to load a split from.")
        try:  # opened here, because NumPy does not close a file that it cannot read
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                if strange := set(file) - {"order", "sizes", "names"}:  # a damaged name, say
                    raise ValueError(f"it has {', '.join(sorted(strange))}")
                return Split(file["order"], file["sizes"], file.get("names"))
        except Exception as error:  # zip, zlib and NumPy raise a dozen kinds for a damaged file
            raise ValueError(f"{path} is not a split saved by Split.save, or is damaged: {error}") from error


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The ranges starts[i] .. starts[i] + lengths[i] - 1, one after another."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
