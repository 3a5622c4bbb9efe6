"""Several processes that run one program together, on the devices of all of them (`jax.distributed`).

All of them do the same things in the same order, with the same data, memories and random numbers: whatever waits for
the others here must be called by all.
"""

import contextlib
import re
import zlib
from collections.abc import Iterator

import jax
import numpy as np

from fedloom.engines.trees import Tree


class ProcessEnded(RuntimeError):
    """Another process of the run has ended, and the run with it."""


def several() -> bool:
    return jax.process_count() > 1


def is_first() -> bool:
    """Is it the process that writes and prints, and whose decisions count?"""
    return jax.process_index() == 0


def device_count() -> int:
    """Devices of all processes, of which each has equally many."""
    return jax.process_count() * jax.local_device_count()


def in_all_processes(devices: int) -> list[jax.Device]:
    """So many devices, shared out evenly, so that each process has one of them; those of a process in a row."""
    if not several():
        return jax.local_devices()[:devices]
    local = {p: [d for d in jax.devices() if d.process_index == p] for p in range(jax.process_count())}
    in_turn = [d for same_place in zip(*local.values(), strict=True) for d in same_place]
    return sorted(in_turn[:devices], key=lambda d: (d.process_index, d.id))


def of_first(*numbers: int) -> tuple[int, ...]:
    """The numbers of the first process.

    For what processes decide by something that could differ between them: the memory of the machine, a file, the last
    bit of a loss. If they did not agree, one would wait for ever for what another does not do.
    """
    return of_each(*numbers)[0]


def of_each(*numbers: int) -> list[tuple[int, ...]]:
    """The numbers of every process, which all are 32 bits wide."""
    if not several():
        return [numbers]
    from jax.experimental import multihost_utils  # imported late: few runs need it

    with together():
        gathered = multihost_utils.process_allgather(np.array(numbers, np.int32))
    return [tuple(row) for row in gathered.tolist()]


def check_alike(arrays: Tree, *numbers: int) -> None:
    """Raise a ValueError unless all processes have the same arrays and numbers: each runs a part of the clients."""
    if not several():
        return
    digest = 0
    for text in (repr(numbers).encode(), *(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(arrays))):
        digest = zlib.crc32(text, digest)
    if len(set(of_each(digest >> 1))) > 1:  # so that it has 31 bits
        raise ValueError(
            "The processes do not have the same experiment, data and checkpoint. Start all of them with the same "
            "command, where they see the same files."
        )


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Around what waits for other processes: if one has ended, say so, instead of which connection was closed."""
    try:
        yield
    except (ValueError, RuntimeError) as error:  # XLA's errors begin with their kind, in capitals
        if several() and re.match(r"[A-Z_]+: ", str(error)):
            raise ProcessEnded(
                "Another process of this run has ended, and a run goes on with all of them only."
            ) from error
        raise
