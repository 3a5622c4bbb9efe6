"""Why numbers and claims of FedDyn come out otherwise."""

import math
from functools import partial

from docs.causes.cause import NUMBERS, Cause, Causes
from fedloom.reproductions import find
from fedloom.reproductions.feddyn import CLIPPED, LINEAR
from fedloom.reproductions.recording import recorded
from fedloom.reproductions.reproduction import Line, Values
from fedloom.reproductions.spread import Spread

KINDS = ("iid", "dir0.6", "dir0.3")
LOWER = ("-lower", "-100%-lower", "-1%-authors-lower")  # what the names of rows with the lower targets end with
NEAR = 0.1  # a mean that is near a printed number, in proportion to it; set before Dir(0.6) and Dir(0.3) were run
FEWEST = "FedDyn sends the fewest models to the target"


def _beside_the_table(values: Values, kind: str) -> dict[str, tuple[list[float], float]]:
    """Of a set of FedDyn's table 6: the models of every draw and the table's number, by method, FedDyn first."""
    lines = [line for line in find("feddyn-table6").lines if line.setting.startswith(f"{kind}, ")]
    return {
        line.method: (list(values[line.setting, line.method].values()), line.reported)
        for line in lines
        if line.reported is not None
    }


def _all_slower(values: Values) -> bool:
    """On the homogeneous set every method needs more models than the table says, in every draw."""
    return all(min(ours) > printed for ours, printed in _beside_the_table(values, "homogeneous").values())


def _the_square_is_lost(values: Values) -> bool:
    """Without the square of its term FedProx is ahead of FedAvg in every draw; with it mostly neither gets there.

    And then it needs fewer models than the table's, and fewer than FedDyn, in every draw.
    """
    (printed,) = (line.reported for line in find("feddyn-table6-draws").lines if line.method == LINEAR)
    assert printed is not None
    of = {line.method: values[line.setting, line.method] for line in find("feddyn-table6-draws").lines}
    neither = [math.isinf(models) and math.isinf(of["fedavg"][seed]) for seed, models in of["fedprox"].items()]
    fewest = [m < min(printed, of["fedavg"][seed], of["feddyn"][seed]) for seed, m in of[LINEAR].items()]
    return all(fewest) and 2 * sum(neither) > len(neither)


def _never_behind(values: Values) -> bool:
    """On type 1 no method needs fewer models than FedDyn in any draw, but in some one needs as many."""
    feddyn, *others = (ours for ours, _ in _beside_the_table(values, "type1").values())
    gaps = [min(of) - mine for mine, *of in zip(feddyn, *others, strict=True)]
    return min(gaps) == 0 < max(gaps)


def _easier(values: Values) -> bool:
    """Models are fewer than the table says in every draw: of type 2 for all methods, of type 3 for all but FedDyn."""
    found = [*_beside_the_table(values, "type2").values()]
    found += [of for method, of in _beside_the_table(values, "type3").items() if method != "feddyn"]
    return all(max(ours) < printed for ours, printed in found)


def _distance(values: Values, line: Line) -> float:
    """How far ours are from the table's number, in proportion; below it if negative, infinite if a seed has none."""
    ours = tuple(values[line.setting, line.method].values())
    assert line.reported is not None
    return Spread(ours).mean / line.reported - 1 if all(map(math.isfinite, ours)) else math.inf


def _off(name: str, values: Values) -> list[tuple[float, float]]:
    """How far every method is from the table's lower row: with the program's cohorts, and with ours.

    Empty if nothing is recorded of the former.
    """
    program = find(f"{name}-authors-lower")
    kept = recorded(program)
    own = [line for line in program.lines if line.method != CLIPPED]
    return [] if kept is None else [(_distance(kept.values, line), _distance(values, line)) for line in own]


def _the_program_s_cohorts(name: str, values: Values) -> bool:
    """With the cohorts of the authors' program every method is near the table; with independent ones, below that."""
    off = _off(name, values)
    return bool(off) and all(abs(one) <= NEAR and other <= -NEAR for one, other in off)


def _nearer_with_the_program_s_cohorts(name: str, values: Values) -> bool:
    """They bring every method nearer, by half of its distance or more, but not all within NEAR."""
    off = _off(name, values)
    return any(abs(one) > NEAR for one, _ in off) and all(abs(one) <= abs(other) / 2 for one, other in off)


def _the_program_s(changed: str, method: str, name: str, values: Values) -> bool:
    """A method as the authors' program has it gets there in every seed and is near the table, the paper's is not.

    And it is at most half as far from the table: else a few models at the edge would decide.
    """
    lines = {line.method: line for line in find(name).lines}
    far = {m: abs(_distance(values, lines[m])) for m in (changed, method)}
    return far[changed] <= min(NEAR, far[method] / 2) and far[method] > NEAR


CAUSES: Causes = {
    **{
        name: (
            Cause(
                NUMBERS,
                "The cohorts. Here every round draws its own. If nobody comes, the authors' program takes the next "
                "round's cohort, and in the next round takes it again, so that every third round repeats the one "
                f"before it and devices come up later. With its cohorts (`{name}-authors-lower`) all four methods are "
                f"within {NEAR:.0%} of the table's lower row; with independent ones all need less than that.",
                partial(_the_program_s_cohorts, name),
            ),
            Cause(
                NUMBERS,
                "The cohorts, for the most part. In the authors' program every third round repeats the cohort of the "
                f"one before it. With its cohorts (`{name}-authors-lower`) every method is at most half as far from "
                f"the table's lower row as with independent ones, but not all are within {NEAR:.0%} of it. That half "
                "the distance counts was decided after these runs.",
                partial(_nearer_with_the_program_s_cohorts, name),
            ),
        )
        for name in (f"feddyn-mnist-2nn-{kind}-1%" for kind in KINDS)
    },
    **{
        name: (
            Cause(
                NUMBERS,
                "SCAFFOLD's is the program's: with clipped steps, and w - v divided by the first round's step sizes in "
                f"every round, it is within {NEAR:.0%} of the table; the paper's SCAFFOLD is not.",
                partial(_the_program_s, CLIPPED, "scaffold", name),
            ),
            Cause(
                NUMBERS,
                "FedProx's is the program's, which had lost the square of its term: with the linear part alone it is "
                f"within {NEAR:.0%} of the table; the paper's FedProx is not.",
                partial(_the_program_s, LINEAR, "fedprox", name),
            ),
        )
        for name in (f"feddyn-mnist-2nn-{kind}{end}" for kind in KINDS for end in LOWER)
    },
    "feddyn-table6-draws": (
        Cause(
            NUMBERS,
            "The lost square gives FedProx's lead over FedAvg: with the linear part of its term alone FedProx gets "
            "there, and ahead of FedAvg, in every draw; with the whole term neither gets there in most draws. It does "
            "not give the table's number, nor its order: in every draw FedProx then needs fewer models than the "
            "table's, and fewer than FedDyn.",
            _the_square_is_lost,
        ),
    ),
    "feddyn-table6": (
        Cause(
            NUMBERS,
            "On the homogeneous set all four methods need more models than the table says, in each of these draws, so "
            "it is no single method that falls behind. More draws of this set are in `feddyn-table6-draws`.",
            _all_slower,
        ),
        Cause(
            FEWEST,
            "On type 1 no method needs fewer models than FedDyn in any draw. Where the claim fails, another method "
            "needs just as many: the target is met so early that whole rounds cannot tell them apart.",
            _never_behind,
            ("type1, loss 1.5717",),
        ),
        Cause(
            NUMBERS,
            "Type 2 is easier here for all four methods, in every draw, and type 3 for all but FedDyn. The levels of "
            "heterogeneity behind these two are not published and set to 1 here, so the data are others.",
            _easier,
        ),
    ),
}
