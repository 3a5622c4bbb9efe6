"""The terms of a comparison: at what cost methods are compared, and what it means to reach a target."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.hyperparameters import count, nearest

# What can be spent, and the column of a result that counts it.
COSTS = {"bytes": "bytes", "gradients": "gradients", "rounds": "round", "seconds": "simulated seconds"}
UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
CROSSINGS = ("stay", "first")


@dataclasses.dataclass(frozen=True)
class Budget:
    """An amount of one cost that every method may spend; None: the smallest total among the methods."""

    cost: str = "bytes"
    amount: float | None = None

    def __post_init__(self) -> None:
        if self.cost not in COSTS:
            raise ValueError(f"budget: there is no cost {self.cost!r}.{nearest(self.cost, COSTS)}")
        if self.amount is not None and not (0 < self.amount < math.inf):
            raise ValueError(f"budget: the amount of {self.cost} must be a positive number, got {self.amount!r}.")

    @classmethod
    def from_text(cls, text: str) -> "Budget":
        """bytes=20MB, gradients=70k, rounds=50, seconds=3.5, or only the cost: then the smallest total."""
        cost, equals, amount = (part.strip() for part in text.partition("="))
        if not equals:
            return cls(cost)
        unit = "B?" if cost == "bytes" else "s?" if cost == "seconds" else ""
        found = re.fullmatch(rf"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kMGT]?){unit}", amount)
        try:
            return cls(cost, float(found[1]) * UNITS[found[2]] if found else math.nan)
        except ValueError as error:
            if cost not in COSTS:
                raise
            raise ValueError(
                f"budget: write COST=AMOUNT, such as bytes=20MB, gradients=70k or rounds=50; got {text!r}."
            ) from error


@dataclasses.dataclass(frozen=True)
class Terms:
    """How a study judges its methods.

    Args:
        budget: what every method may spend.
        window: evaluations in the running mean that has to reach a target.
        crossing: "stay": a target is reached when the running mean crosses it, if the run does not end below;
            "first": when a single evaluation first crosses it, as papers report.
    """

    budget: Budget = Budget()
    window: int = 5
    crossing: str = "stay"

    def __post_init__(self) -> None:
        if not count.holds(self.window):
            raise ValueError(f"window must be {count.words}, got {self.window!r}.")
        if self.crossing not in CROSSINGS:
            raise ValueError(f"crossing: there is no {self.crossing!r}.{nearest(str(self.crossing), CROSSINGS)}")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Terms":
        """The terms of a table as `dataclasses.asdict` writes it."""
        return cls(**{**plain, "budget": Budget(**plain["budget"])}) if plain else cls()


def check_target(metric: str, value: float, bounds: Sequence[float | None] | None = None) -> None:
    """Raise a ValueError for a target that no metric of this kind can mean."""
    if not math.isfinite(value):
        raise ValueError(f"target: {metric} must reach a finite number, got {value}.")
    least, most = bounds or (None, None)
    low, high = (-math.inf if least is None else least), (math.inf if most is None else most)
    if not low <= value <= high:
        percent = f" Did you mean {value / 100:g}?" if low <= value / 100 <= high else ""
        where = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise ValueError(f"target: {metric} is always {where}, so it cannot reach {value:g}.{percent}")
