"""The points of a sweep: values of some fields of an experiment, on a grid or at random."""

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.experiments.changes import changed
from fedloom.experiments.definition import Experiment, method_name
from fedloom.experiments.own_files import is_reference
from fedloom.experiments.plain import parse
from fedloom.experiments.presets import preset
from fedloom.hyperparameters import brief, count


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers between two positive ones, for random search; their logarithms are uniform. Integers give integers."""

    low: float
    high: float

    def __post_init__(self) -> None:
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (self.low, self.high))
        if not (numbers and 0 < self.low < self.high < math.inf):
            raise ValueError(f"A range must go from a positive number to a larger one, such as 0.001..1; got {self}.")

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    def draw(self, rng: np.random.Generator) -> float:
        """A number whose logarithm is uniform over the range."""
        if isinstance(self.low, int) and isinstance(self.high, int):  # each integer stands for what is rounded to it
            value: float = round(math.exp(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5))))
        else:
            value = float(f"{math.exp(rng.uniform(math.log(self.low), math.log(self.high))):.4g}")
        return min(max(value, self.low), self.high)


Values = Sequence[Any] | Range


def over(texts: Sequence[str], preset_name: str | None, base: Experiment) -> dict[str, Values]:
    """The fields of a preset, and those that a command line gives as "solver.lr=0.01,0.1"."""
    found: dict[str, Values] = {} if preset_name is None else dict(preset(preset_name, base))
    given: dict[str, Values] = {}
    for field, values in map(parse_over, texts):
        if field in given:
            raise ValueError(f"over: {field} is given twice; list all of its values in one --over.")
        given[field] = values
    return found | given


def parse_over(text: str) -> tuple[str, Values]:
    """A field and its values: "solver.lr=0.01,0.1", "algorithm=fedavg,fedprox", or the range "solver.lr=0.001..1"."""
    field, equals, values = (part.strip() for part in text.partition("="))
    if not (field and equals and values):
        raise ValueError(f"over: write FIELD=VALUE,VALUE or FIELD=LOW..HIGH, such as solver.lr=0.01,0.1; got {text!r}.")
    if ends := re.fullmatch(r"(.*\S)\s*\.\.\s*(\S.*)", values):
        return field, Range(*(parse(end) for end in ends.groups()))
    listed = parse(f"[{values}]")
    if isinstance(listed, str):  # not a list in TOML's notation, because names have no quotes here
        return field, [parse(piece.strip()) for piece in _pieces(values)]
    return field, listed


def _pieces(text: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def points_of(
    base: Experiment, over: Mapping[str, Values], random: int | None
) -> dict[str, tuple[dict[str, Any], Experiment]]:
    """The values and the experiment of each point, by name. Seeds are not among the values."""
    if not over:
        raise ValueError("There is nothing to sweep: give fields and their values, such as solver.lr=0.01,0.1.")
    if random is not None and not count.holds(random):
        raise ValueError(f"random must be {count.words}, got {random!r}.")
    axes = {field: _axis(field, values, random) for field, values in over.items()}
    axes.pop("seed", None)
    points = {}
    for point in _grid(axes) if random is None else _drawn(axes, random, base.seed):
        name = ",".join(f"{field}={word}" for field, (word, _) in point.items()) or method_name(base.algorithm)
        chosen = {field: value for field, (_, value) in point.items()}
        points[name] = (chosen, changed_as(name, base, chosen))
    return points


Axis = dict[str, Any] | Range  # the values by their text
Choice = dict[str, tuple[str, Any]]  # by field: the text of the value, and the value


def _axis(field: str, values: Values, random: int | None) -> Axis:
    if isinstance(values, Range):
        if field == "seed":
            raise ValueError("seed needs a list of values, not a range.")
        if random is None:
            raise ValueError(
                f"{field} is the range {values}, which only random search can use: give a number of points, such as "
                "random=20, or list the values."
            )
        return values
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise ValueError(f"{field} needs a list of values, got {values!r:.100}.")
    if len(values) == 0:
        raise ValueError(f"{field} has no values: its list is empty.")
    return _words(field, [value.item() if isinstance(value, np.generic) else value for value in values])


def _grid(axes: Mapping[str, Axis]) -> list[Choice]:
    listed = [list(axis.items()) for axis in axes.values() if not isinstance(axis, Range)]
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*listed)]


def _drawn(axes: Mapping[str, Axis], n: int, seed: int) -> list[Choice]:
    """n distinct points; the first ones do not depend on n."""
    most = math.prod(_size(axis) for axis in axes.values())
    if n > most:
        raise _too_many(n, int(most))
    rng = np.random.default_rng(seed)
    found: dict[tuple[str, ...], Choice] = {}
    for _ in range(1000 + 100 * n):
        point: Choice = {}
        for field, axis in axes.items():
            if isinstance(axis, Range):
                value = axis.draw(rng)
                point[field] = (str(value), value)
            else:
                listed = list(axis.items())
                point[field] = listed[rng.integers(len(listed))]
        found.setdefault(tuple(word for word, _ in point.values()), point)
        if len(found) == n:
            return list(found.values())
    raise _too_many(n, len(found))


def _size(axis: Axis) -> float:
    """How many values there are to draw from."""
    if not isinstance(axis, Range):
        return len(axis)
    integers = isinstance(axis.low, int) and isinstance(axis.high, int)
    return axis.high - axis.low + 1 if integers else math.inf


def _too_many(n: int, most: int) -> ValueError:
    return ValueError(f"random is {n}, but there are only {most} distinct points; ask for fewer, or give more values.")


def _words(field: str, values: list[Any]) -> dict[str, Any]:
    """Values by their text in names and tables: short, unless two would then look alike."""
    for written in (short, repr):
        found = {written(value): value for value in values}
        if len(found) == len(values):
            return found
    twice = next(v for i, v in enumerate(values) if repr(v) in map(repr, values[:i]))
    raise ValueError(f"{field} lists {short(twice)} twice.")


def short(value: Any) -> str:
    """The text of a value in names and tables."""
    if isinstance(value, Mapping):
        inner = ",".join(f"{k}={short(v)}" for k, v in value.items() if k != "name")
        return f"{value.get('name', '')}({inner})"
    if is_reference(value):
        return value.rpartition(":")[2]
    return value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else brief(value)


def json_value(value: Any) -> Any:
    """The value itself if JSON has it, else its text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else short(value)


def changed_as(name: str, base: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment of the point `name`."""
    try:
        return changed(base, values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
