"""How the host cuts a synchronous run into calls of the compiled program."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fedloom.cohorts import Draw
from fedloom.engines.clock import Clock
from fedloom.engines.lanes import CohortArrays, cohort_arrays
from fedloom.engines.packing import Packer, Packing
from fedloom.engines.run import Run
from fedloom.engines.sync_clock import NoClock, SyncClock


class Call(NamedTuple):
    """What one call of the program runs."""

    t: int  # its first round
    draws: list[list[Draw]]  # the cohorts of its rounds, one for each exchange
    packings: tuple[Packing, ...]  # of each exchange, as arrays [rounds, ...]
    clock: Clock | None  # after its last round
    lost: np.ndarray  # [exchanges, 2]: messages that did not count, down and up


def calls(run: Run, clock: SyncClock | NoClock, packer: Packer, chunk: int, rounds: int) -> Iterator[Call]:
    """The calls that make up a run: up to `rounds` of a chunk in each."""
    t = run.start.round
    while t < run.rounds:
        before = clock.lost.copy()
        draws = [clock.cohorts(t + i) for i in range(min(rounds, chunk - t % chunk, run.rounds - t))]
        now, lost, packings = clock.clock, clock.lost - before, []
        for e, of_exchange in enumerate(zip(*draws, strict=True)):
            room = run.room(max(len(draw.ids) for draw in of_exchange))
            packed = [packer(draw, room, e) for draw in of_exchange]
            packed += packed[-1:] * (rounds - len(packed))  # never run: it keeps the shapes, hence the program
            packings.append(Packing(*(np.stack(x) for x in zip(*packed, strict=True))))
        yield Call(t, draws, tuple(packings), now, lost)
        t += len(draws)


def arrays_of(
    run: Run, draws: list[list[Draw]], slots_of: Callable[[np.ndarray], np.ndarray], rounds: int
) -> tuple[CohortArrays, ...]:
    """The cohorts of several rounds as arrays [rounds, room], for each exchange."""
    return tuple(
        cohort_arrays(run.p, of_exchange, slots_of, rounds, run.room(max(len(d.ids) for d in of_exchange)))
        for of_exchange in zip(*draws, strict=True)
    )
