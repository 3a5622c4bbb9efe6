"""Records of runs that were made apart, as one."""

import dataclasses
from typing import TypeVar

import numpy as np

from fedloom.reproductions.recording import Curve, Points, Recorded
from fedloom.reproductions.reproduction import Values

Means = TypeVar("Means", Curve, Points)


def together(old: Recorded, new: Recorded) -> Recorded:
    """Both, which were run apart: of a figure that both have for a seed, the new one. Longer runs win."""
    if new.rounds > old.rounds:
        return new
    if new.rounds < old.rounds:
        raise ValueError(f"{new.name}: runs of {new.rounds} rounds cannot be put beside those of {old.rounds}.")
    left = {seed for key, of in old.values.items() for seed in of if seed not in new.values.get(key, {})}
    replaced = set(old.seeds) - left
    both = {key: dict(sorted({**old.values.get(key, {}), **of}.items())) for key, of in new.values.items()}
    values: Values = {**old.values, **both}
    parts = [{**part, "seeds": [seed for seed in part["seeds"] if seed not in replaced]} for part in old.parts]
    newest = new.parts[0]
    alike = [part for part in parts if {**part, "seeds": newest["seeds"]} == newest]  # a part of the same making
    earlier = [part for part in parts if part["seeds"] and part not in alike]
    seeds = sorted({*new.seeds}.union(*(part["seeds"] for part in alike)))
    made = {**new.made, "newest seeds": seeds, "earlier": earlier} if earlier else dict(new.made)
    lost = {run: [s for s in of if s not in replaced] for run, of in old.made.get("diverged", {}).items()}
    for run, of in new.made.get("diverged", {}).items():
        lost[run] = sorted({*lost.get(run, ()), *of})
    if any(lost.values()):
        made["diverged"] = {run: of for run, of in lost.items() if of}
    seconds = old.seconds * (1 - len(replaced) / len(old.seeds)) + new.seconds
    curves = dict(old.curves)
    for run, found in new.curves.items():
        before = old.curves.get(run, {})
        curves[run] = {m: _mean_of(before[m], curve) if m in before else curve for m, curve in found.items()}
    points = dict(old.points)
    for key, of in new.points.items():
        points[key] = _mean_of(old.points[key], of) if key in old.points else of
    return Recorded(new.name, values, curves, new.rounds, seconds, made, points)


def _mean_of(old: Means, new: Means) -> Means:
    """The mean over the seeds of both, if they have the same rounds and no seed twice; else the one of more seeds."""
    if set(old.seeds) <= set(new.seeds):
        return new
    same = dataclasses.replace(old, values=new.values, seeds=new.seeds) == new
    if same and not set(old.seeds) & set(new.seeds):
        mean = np.average([old.values, new.values], axis=0, weights=[len(old.seeds), len(new.seeds)])
        values = tuple(float(f"{v:.4g}") for v in mean)
        return dataclasses.replace(new, values=values, seeds=(*old.seeds, *new.seeds))
    return new if len(new.seeds) >= len(old.seeds) else old
