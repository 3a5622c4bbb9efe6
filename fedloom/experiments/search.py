"""The search of `tune`: a pure function of what has been tried, so that it goes on after an interruption.

A place is a tuple of steps, one for each axis (see `Axis`). The search looks around the best place with coarse steps
until both neighbours of it on every axis have been tried, however far that leads, and then with fine ones.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

from fedloom.experiments.spaces import Axis

Place = tuple[int, ...]
Score = tuple[float, float]  # what decides, and what decides between equals; smaller is better
LOST = (math.inf, math.inf)  # the score of a place that diverged or learned nothing


def best_place(tried: Mapping[Place, Score]) -> Place:
    """The place with the best score; of those that lost, the one with the smallest values, which may not."""
    return min(tried, key=lambda place: (tried[place], sum(place) if tried[place] == LOST else 0))


def next_places(axes: Sequence[Axis], tried: Mapping[Place, Score], number: int) -> list[Place]:
    """The places to try next: those nearest to the best, and of equally near ones those beyond what was tried."""
    if not tried:
        return _nearest(axes, tried, (0,) * len(axes), 2, number)
    coarse = {place: score for place, score in tried.items() if all(k % 2 == 0 for k in place)}
    if _open(axes, coarse, best_place(coarse)):
        return _nearest(axes, tried, best_place(coarse), 2, number)
    return _nearest(axes, tried, best_place(tried), 1, number)


def _open(axes: Sequence[Axis], tried: Mapping[Place, Score], place: Place) -> bool:
    """Whether a coarse neighbour on some axis has not been tried."""
    return any(
        (near := _moved(place, i, step)) not in tried and axis.value(near[i]) is not None
        for i, axis in enumerate(axes)
        for step in (-2, 2)
    )


def _moved(place: Place, axis: int, steps: int) -> Place:
    return (*place[:axis], place[axis] + steps, *place[axis + 1 :])


def _nearest(axes: Sequence[Axis], tried: Mapping[Place, Score], best: Place, step: int, number: int) -> list[Place]:
    low, high = ([end(steps) for steps in zip(*(tried or [best]), strict=True)] for end in (min, max))

    def order(place: Place) -> tuple[int, int, Place]:
        distance = sum(abs(k - b) for k, b in zip(place, best, strict=True))
        beyond = sum(not a <= k <= b for a, k, b in zip(low, place, high, strict=True))
        return distance, -beyond, place

    places: list[Place] = []
    for reach in (2, 4, 8, 16, 32):  # steps to each side
        sides = [range(b - reach * step, b + reach * step + 1, step) for b in best]
        real = [[k for k in side if axis.value(k) is not None] for axis, side in zip(axes, sides, strict=True)]
        places = [place for place in itertools.product(*real) if place not in tried]
        if len(places) >= number:
            break
    return sorted(places, key=order)[:number]


def ends(axes: Sequence[Axis], tried: Mapping[Place, Score], place: Place) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields whose value is the smallest or the largest tried: those with values beyond, and those without."""
    edges: list[str] = []
    limits: list[str] = []
    for i, axis in enumerate(axes):
        steps = [other[i] for other in tried]
        for end, beyond in ((min(steps), place[i] - 1), (max(steps), place[i] + 1)):
            if place[i] == end:
                (limits if axis.value(beyond) is None else edges).append(axis.field)
    return tuple(dict.fromkeys(edges)), tuple(dict.fromkeys(limits))
