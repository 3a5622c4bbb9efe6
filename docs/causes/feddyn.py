"""Why numbers and claims of FedDyn come out otherwise."""

import math
from functools import partial

from docs.causes.cause import NUMBERS, Cause, Causes
from fedloom.reproductions import find
from fedloom.reproductions.feddyn import CLIPPED, LINEAR
from fedloom.reproductions.recording import recorded
from fedloom.reproductions.reproduction import Values
from fedloom.reproductions.spread import Spread

KINDS = ("iid", "dir0.6", "dir0.3")
LOWER = ("-lower", "-100%-lower", "-1%-authors-lower")  # what the names of rows with the lower targets end with
NEAR = 0.1  # a mean that is near a printed number, in proportion to it; set before Dir(0.6) and Dir(0.3) were run
SEEDS = 3  # fewer decide nothing
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
    """Without the square of its term FedProx is ahead of FedAvg in every draw, with it in fewer than half of them."""
    of = {line.method: values[line.setting, line.method] for line in find("feddyn-table6-draws").lines}
    ahead = {name: [models < of["fedavg"][seed] for seed, models in of[name].items()] for name in ("fedprox", LINEAR)}
    return all(ahead[LINEAR]) and 2 * sum(ahead["fedprox"]) < len(ahead["fedprox"])


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


def _the_program_s_cohorts(name: str, values: Values) -> bool:
    """With the cohorts of the authors' program every method is near the table; with independent ones, below that."""
    program = find(f"{name}-authors-lower")
    kept = recorded(program)
    if kept is None:
        return False
    for line in (line for line in program.lines if line.method != CLIPPED):
        assert line.reported is not None
        near, far = (Spread(tuple(of[line.setting, line.method].values())) for of in (kept.values, values))
        if abs(near.mean / line.reported - 1) > NEAR or far.mean / line.reported > 1 - NEAR:
            return False
    return True


def _the_program_s(changed: str, method: str, name: str, values: Values) -> bool:
    """A method as the authors' program has it gets there in every seed and is near the table, the paper's is not.

    At least three seeds each, and at most half as far from the table: else a few models at the edge would decide.
    """
    far = {}
    for line in (line for line in find(name).lines if line.method in (changed, method)):
        models, printed = tuple(values[line.setting, line.method].values()), line.reported or math.nan
        if len(models) < SEEDS:
            return False
        far[line.method] = abs(Spread(models).mean / printed - 1) if all(map(math.isfinite, models)) else math.inf
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
            "FedProx ahead of FedAvg is what the lost square gives: with the linear part of its term alone FedProx is "
            "ahead in every draw, with the whole term in fewer than half of them.",
            _the_square_is_lost,
        ),
    ),
    "feddyn-table6": (
        Cause(
            NUMBERS,
            "On the homogeneous set all four methods need more models than the table says, in every draw, so it is no "
            "single method that falls behind. The loss is that of the authors' program. More draws of this set are in "
            "`feddyn-table6-draws`.",
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
