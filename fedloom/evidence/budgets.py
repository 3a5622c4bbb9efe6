"""Equal budgets: where a run stood when it had spent as much as every other method may."""

import math
from collections.abc import Sequence

import numpy as np

from fedloom.evidence.groups import by_name
from fedloom.experiments.result import Result, Row
from fedloom.experiments.terms import COSTS, Budget


def spent(result: Result, cost: str) -> float | None:
    """The total that a run has spent; None if its rows do not have this cost, such as simulated seconds."""
    if not result.evaluated or (cost == "seconds" and COSTS[cost] not in result.evaluated[-1]):
        return None
    return float(result.column(COSTS[cost])[-1])


def amount(results: Sequence[Result], budget: Budget) -> float | None:
    """The amount of a budget: its own, or the smallest total among the methods that finished without diverging.

    The total of a method is that of its dearest seed, so that it can afford its own. None if no run has this cost.
    """
    totals = []
    for seeds in by_name(results).values():
        if all(r.finished and r.diverged is None for r in seeds):
            known = [total for r in seeds if (total := spent(r, budget.cost)) is not None]
            totals += [max(known)] if len(known) == len(seeds) else []
    if budget.amount is not None:
        if not any(spent(r, budget.cost) is not None for r in results):
            return None
        return budget.amount
    return min(totals, default=None)


def place_at(result: Result, cost: str, limit: float) -> int | None:
    """The last evaluation that a run could afford: its index among the evaluated rows; None if there is none.

    Nothing is interpolated: this is the model that one would have.
    """
    if spent(result, cost) is None:
        return None
    costs = result.column(COSTS[cost])
    return int(np.searchsorted(costs, limit * (1 + 1e-9), side="right")) - 1


def row_at(result: Result, cost: str, limit: float) -> Row | None:
    """The last evaluated row that a run could afford."""
    place = place_at(result, cost, limit)
    return None if place is None or place < 0 else result.evaluated[place]


def amount_words(cost: str, value: float) -> str:
    """An amount with its unit: 19.3 MB, 71.8k gradients, 50 rounds, 3.5 simulated seconds."""
    if cost == "bytes":
        return byte_words(value)
    if cost == "gradients":
        power = min(int(math.log10(value)) // 3, 4) if value >= 1000 else 0
        return f"{float(f'{value / 1000**power:.3g}'):g}{('', 'k', 'M', 'G', 'T')[power]} gradients"
    return f"{value:.4g} {amount_name(cost)}"


def amount_name(cost: str) -> str:
    """What is counted."""
    return "simulated seconds" if cost == "seconds" else cost


def byte_words(value: float) -> str:
    """Bytes with a decimal unit, three digits: 5.78 MB."""
    power = min(int(math.log10(value)) // 3, 5) if value >= 1 else 0
    return f"{float(f'{value / 1000**power:.3g}'):g} {('B', 'kB', 'MB', 'GB', 'TB', 'PB')[power]}"
