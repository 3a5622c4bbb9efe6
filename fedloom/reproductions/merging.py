"""Records of runs that were made apart, as one."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from fedloom.reproductions.recording import Curve, Points, Recorded
from fedloom.reproductions.reproduction import Values

Key = TypeVar("Key", str, tuple[str, str])
Means = TypeVar("Means", Curve, Points)
Keys = set[tuple[str, str, int]]  # of which setting, method and seed


def together(old: Recorded, new: Recorded) -> Recorded:
    """Both, which were run apart: of a run and seed that both have, what the new one says. Longer runs win.

    Not exact are the seconds, as all figures count as equally long. A figure of several runs stays until one record
    has all of them again.
    """
    if new.rounds > old.rounds:
        return new
    if new.rounds < old.rounds:
        raise ValueError(f"{new.name}: runs of {new.rounds} rounds cannot be put beside those of {old.rounds}.")
    before, now, runs = _figures(old.values), _figures(new.values), _runs(new)
    both = {key: dict(sorted({**old.values.get(key, {}), **of}.items())) for key, of in new.values.items()}
    values: Values = {**old.values, **both}
    seconds = old.seconds * len(before - now) / len(before) + new.seconds
    made = {**new.made, **_parts(old, new)}
    if lost := _diverged(old) - runs | _diverged(new):
        made["diverged"] = {run: [s for r, s in sorted(lost) if r == run] for run, _ in sorted(lost)}
    # A mean goes with one of its seeds, which cannot be taken out of it.
    curves = {k: of for k, of in old.curves.items() if not runs & {(k, s) for c in of.values() for s in c.seeds}}
    points = {key: of for key, of in old.points.items() if not now & {(*key, s) for s in of.seeds}}
    curves |= {run: _beside(curves.get(run, {}), of) for run, of in new.curves.items()}
    return Recorded(new.name, values, curves, new.rounds, seconds, made, _beside(points, new.points), new.runs)


def _figures(values: Values) -> Keys:
    return {(*key, seed) for key, of in values.items() for seed in of}


def _runs(kept: Recorded) -> set[tuple[str, int]]:
    return {(run, seed) for run, seeds in kept.seeds_of_runs.items() for seed in seeds}


def _diverged(kept: Recorded) -> set[tuple[str, int]]:
    return {(run, seed) for run, seeds in kept.made.get("diverged", {}).items() for seed in seeds}


def _parts(old: Recorded, new: Recorded) -> dict[str, Any]:
    """What `made` says of the parts of both, if there are several: each has the figures that no later one replaced.

    The earlier ones name theirs, and no figure is named twice, as a seed may be in several; the rest is of the newest.
    """
    now = newest = _figures(new.values)
    (how, _), *_ = _parts_of(new)
    earlier = []
    for part, figures in _parts_of(old):
        left = figures - now
        if part == how:
            newest = newest | left
        elif left:
            named: dict[str, dict[str, list[int]]] = {}
            for setting, method, seed in sorted(left):
                named.setdefault(setting, {}).setdefault(method, []).append(seed)
            earlier.append({"seeds": _seeds(left), **part, "figures": named})
    return {"newest seeds": _seeds(newest), "earlier": earlier} if earlier else {}


def _parts_of(kept: Recorded) -> list[tuple[dict[str, Any], Keys]]:
    """When and with what its parts were made, the newest first, and the figures of each, which no other has."""
    figures = _figures(kept.values)
    newest, *earlier = kept.parts
    own = [figures & _named(part, kept.name) for part in earlier]
    of = [figures.difference(*own), *own]
    how = [{key: part[key] for key in part if key not in ("seeds", "figures")} for part in (newest, *earlier)]
    return list(zip(how, of, strict=True))


def _named(part: Mapping[str, Any], name: str) -> Keys:
    if "figures" not in part:  # it could be told which are its own only if no other part had its seeds
        raise ValueError(f"{name}: the part recorded at commit {part['commit']} does not name its figures.")
    lines = [(setting, m, seeds) for setting, of in part["figures"].items() for m, seeds in of.items()]
    return {(setting, method, seed) for setting, method, seeds in lines for seed in seeds}


def _seeds(figures: Keys) -> list[int]:
    return sorted({seed for *_, seed in figures})


def _beside(old: Mapping[Key, Means], new: Mapping[Key, Means]) -> dict[Key, Means]:
    return {**old, **{key: _mean_of(old[key], mean) if key in old else mean for key, mean in new.items()}}


def _mean_of(old: Means, new: Means) -> Means:
    """The mean over the seeds of both, which have none in common; of other rounds, the one of more seeds."""
    if dataclasses.replace(old, values=new.values, seeds=new.seeds) == new:
        mean = np.average([old.values, new.values], axis=0, weights=[len(old.seeds), len(new.seeds)])
        values = tuple(float(f"{v:.4g}") for v in mean)
        return dataclasses.replace(new, values=values, seeds=(*old.seeds, *new.seeds))
    return new if len(new.seeds) >= len(old.seeds) else old
