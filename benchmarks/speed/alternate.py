"""Players take turns: an alternation is one block of each, in an order that rotates."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from benchmarks.speed.players import Block, PlayerFailed

LEAST = 5  # alternations
QUIET = 0.1  # cores that others may use during a block
REPEATS = 3  # of one block that others disturbed
ALL_REPEATS = 30  # of all blocks together: a machine that is never quiet must not make a run endless


class Plays(Protocol):
    def play(self, rounds: int) -> Block: ...


@dataclasses.dataclass(frozen=True)
class Turn:
    """A block and where it belongs."""

    alternation: int
    name: str
    block: Block
    counts: bool = True  # False: others disturbed it, and it was repeated


def order(names: list[str], alternation: int) -> list[str]:
    """Each is first in turn, and each follows the same one."""
    first = alternation % len(names)
    return names[first:] + names[:first]


def alternate(
    players: Mapping[str, Plays],
    rounds: Mapping[str, int],
    until: float,
    check: Callable[[str, Block], object] = lambda name, block: None,
    failed: Callable[[str, PlayerFailed], None] | None = None,
    first: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> list[Turn]:
    """Alternations until the clock shows `until`, but LEAST of them; all turns, in the order in which they were taken.

    `rounds`: of a block of each player. `check` looks at every block. A player that fails takes no further part, and
    `failed` is told. Alternations are counted from `first`. A block during which others used more than QUIET cores is
    repeated at once; the last one counts if the limits are reached.
    """
    names = list(players)
    turns: list[Turn] = []
    repeats, alternation = 0, first
    longest = 0.0  # of one alternation
    while alternation < first + LEAST or clock() + longest < until:
        start = clock()
        for name in order(names, alternation):
            for attempt in range(REPEATS + 1):
                try:
                    block = players[name].play(rounds[name])
                except PlayerFailed as failure:
                    if failed is None:
                        raise
                    names.remove(name)
                    failed(name, failure)
                    break
                check(name, block)
                again = block.others > QUIET and attempt < REPEATS and repeats < ALL_REPEATS
                turns.append(Turn(alternation, name, block, counts=not again))
                if not again:
                    break
                repeats += 1
        alternation += 1
        longest = max(longest, clock() - start)
    return turns


def disturbed(turns: list[Turn]) -> list[Turn]:
    """Turns that count although others used the machine."""
    return [turn for turn in turns if turn.counts and turn.block.others > QUIET]
