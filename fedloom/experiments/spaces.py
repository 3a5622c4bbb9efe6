"""What `tune` varies: for each method the fields to search, with their scales."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from fedloom.algorithms import ALGORITHMS
from fedloom.experiments.definition import PARTS, Experiment
from fedloom.experiments.plain import name_of, to_plain
from fedloom.hyperparameters import positive


@dataclasses.dataclass(frozen=True)
class Axis:
    """The values of one field, numbered by steps from the start: two steps are a coarse one, one is a fine one.

    On a logarithmic axis a coarse step is a factor of sqrt(10), on a linear one it is 0.5. A value above `high` is
    replaced by `high`, the end of the field's domain; a value below `low` by 0, if the field may be 0.
    """

    field: str
    linear: bool = False
    low: float = 0.0
    high: float = math.inf
    zero: bool = False  # whether the field may be 0
    start: float = math.nan

    def value(self, step: int) -> float | None:
        """The value so many fine steps from the start; None beyond the end of the domain."""
        value = self._unlimited(step)
        if value > self.high:
            return self.high if self._unlimited(step - 1) < self.high else None
        if value < self.low:
            return 0.0 if self.zero and self._unlimited(step + 1) >= self.low else None
        return value

    def _unlimited(self, step: int) -> float:
        if self.linear:
            return self.start + 0.25 * step
        return float(f"{self.start * 10 ** (step / 4):.2g}") if step else self.start


_CLIENT = Axis("solver.lr")
_SERVER = Axis("algorithm.lr")
_MU = Axis("algorithm.mu", low=1e-4, zero=True)
_ETA = Axis("algorithm.eta")
_ALPHA = Axis("algorithm.alpha")
_ADAPTIVE = (_CLIENT, _SERVER, Axis("algorithm.tau"))

SPACES: dict[str, tuple[Axis, ...]] = {
    "fedsgd": (_SERVER,),
    "fedavg": (_CLIENT, _SERVER),
    "fedavgm": (_CLIENT, _SERVER),
    "fedprox": (_CLIENT, _MU, _SERVER),
    "scaffold": (_CLIENT, _SERVER),
    "feddane": (_CLIENT, _MU),
    "feddyn": (_CLIENT, _ALPHA),
    "feddyn-onegd": (_ALPHA,),
    "fedsplit": (_CLIENT, _ETA),
    "fedpd": (_CLIENT, _ETA),
    "feddr": (_CLIENT, _ETA, Axis("algorithm.alpha", linear=True, low=0.25, high=2.0)),
    "fedadagrad": _ADAPTIVE,
    "fedadam": _ADAPTIVE,
    "fedyogi": _ADAPTIVE,
    "fedopt": (_CLIENT, Axis("algorithm.optimizer.learning_rate")),
    "lookahead": (_CLIENT, Axis("algorithm.lr", high=1.0)),
    "adaalter": (_CLIENT, _SERVER),
    "fedasync": (_CLIENT, Axis("algorithm.alpha", high=1.0)),
    "fedbuff": (_CLIENT, _SERVER),
}


def axes_of(method: str, base: Experiment) -> tuple[Axis, ...]:
    """The axes of a method, from the values that the experiment has. A step size that follows a schedule is scaled."""
    if base.lost:
        raise ValueError(base.lost)
    plain, found = {part: to_plain(getattr(base, part), PARTS[part]) for part in ("algorithm", "solver")}, []
    for axis in SPACES.get(name_of(base.algorithm, ALGORITHMS) or "", _own_axes(base.algorithm)):
        field, value = axis.field, _at(plain, axis.field)
        if isinstance(value, Mapping):
            field, value = f"{field}.value", value.get("value")
        if isinstance(value, int | float):
            start = float(value) or 0.01
            found.append(dataclasses.replace(axis, field=field, start=start, low=min(axis.low, start)))
    if not found:
        raise ValueError(f"algorithms: {method} has nothing to tune with this solver; leave it out.")
    return tuple(found)


def _own_axes(algorithm: Any) -> tuple[Axis, ...]:
    """Of a method that is not in SPACES: the client's step size, and its own numbers that may be any positive one."""
    own = [f.name for f in dataclasses.fields(algorithm) if f.metadata.get("domain") is positive]
    return (_CLIENT, *(Axis(f"algorithm.{name}") for name in own))


def _at(plain: Mapping[str, Any], field: str) -> Any:
    value: Any = plain
    for name in field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
