"""Why a recorded result differs from its paper: short paragraphs, each with what the record must show for it.

A cause is on a page only if the recorded figures support it; see `Cause.supported`. What the runs cannot show has no
place here, however likely it is.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from fedloom.reproductions import find
from fedloom.reproductions.feddane import MUS, WORSE, worse
from fedloom.reproductions.feddyn import CLIPPED as AS_PROGRAMMED
from fedloom.reproductions.feddyn import LINEAR
from fedloom.reproductions.linear_speedup import CLIPPED
from fedloom.reproductions.recording import recorded
from fedloom.reproductions.reproduction import Values
from fedloom.reproductions.spread import Spread

NUMBERS = "the numbers"  # what a cause explains, if it is not a claim


class Cause(NamedTuple):
    """Explains a claim that does not hold, or numbers that differ."""

    explains: str  # the words of a claim of the reproduction, or NUMBERS
    words: str  # what our runs show
    supported: Callable[[Values], bool]  # by these figures; a figure that is missing is a KeyError
    settings: tuple[str, ...] = ()  # of the claim that it explains; all if there are none


def _kinds(name: str, words: str, values: Values) -> dict[str, str]:
    """What kind of verdict a claim has, by setting."""
    found = find(name)
    return {c.setting: found.verdict(c, values).kind for c in found.claims if c.words == words}


def _one_worker_s_images(values: Values) -> bool:
    """Every run reaches 95% on the last worker's images, none on all; iid within two rounds, digits_2 no later."""
    near = [v for (s, m), of in values.items() if "rounds to 95% on the last" in s for v in of.values()]
    all_images = [v for (s, m), of in values.items() if "on all test images" in s for v in of.values()]
    if not (near and all_images and all(map(math.isfinite, near)) and all(map(math.isinf, all_images))):
        return False
    lines = [line for line in find("speedup-table2-lr").lines if "rounds to 95% on the last" in line.setting]
    far = {line: np.mean(list(values[line.setting, line.method].values())) - (line.reported or 0) for line in lines}
    return all(abs(d) <= 2 if line.setting.startswith("digits_10") else d <= 0 for line, d in far.items())


def _weighting(values: Values) -> bool:
    """On Synthetic(0, 0) the claim holds for plain means, and does not once the loss is the plain one too."""
    ways = {"plain means": "holds", "means by examples": "does not hold", "plain means, plain loss": "does not hold"}
    found = find("feddane-figure3")
    return all(found.verdict(worse(f"Synthetic(0, 0), {way}"), values).kind == kind for way, kind in ways.items())


def _largest_mu(values: Values) -> bool:
    """Where devices differ, mu = 1 is best, mostly below FedAvg; with smaller ones the claim fails in one seed only."""
    best, below, exceptions = [], [], 0
    for s in (c.setting for c in find("feddane-figure1").claims if c.words == WORSE):
        *others, largest = (values[s, f"feddane, mu={mu:g}"] for mu in MUS)
        for seed, loss in largest.items():
            fedavg, fedprox = (values[s, method][seed] for method in ("fedavg", "fedprox"))
            smaller = min(of[seed] for of in others)
            best.append(loss < smaller)
            below.append(loss < fedavg)
            exceptions += smaller <= max(fedavg, fedprox)
    return all(best) and 2 * sum(below) > len(below) and exceptions == 1


def _correction_helps(variant: str, values: Values) -> bool:
    """On iid data a variant that decays ends between FedDANE and FedProx in every seed, FedDANE below."""
    feddane, mine, fedprox = (values["Synthetic-IID", method] for method in ("feddane", variant, "fedprox"))
    return all(feddane[seed] < loss < fedprox[seed] for seed, loss in mine.items())


def _proximal_term(values: Values) -> bool:
    """With all shares of stragglers FedProx is below FedAvg, although counting partial work alone is not."""
    better = _kinds("fedprox-stragglers", "FedProx ends below FedAvg", values)
    partial = _kinds("fedprox-stragglers", PARTIAL, values)
    return all(better[s] == "holds" and partial[s] == "does not hold" for s in better)


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
    for line in (line for line in program.lines if line.method != AS_PROGRAMMED):
        assert line.reported is not None
        near, far = (Spread(tuple(of[line.setting, line.method].values())) for of in (kept.values, values))
        if abs(near.mean / line.reported - 1) > NEAR or far.mean / line.reported > 1 - NEAR:
            return False
    return True


def _the_program_s_scaffold(name: str, values: Values) -> bool:
    """SCAFFOLD as the authors' program has it gets there in every seed and is near the table, the paper's is not."""
    near = {}
    for line in find(name).lines:
        models, printed = tuple(values[line.setting, line.method].values()), line.reported or math.nan
        near[line.method] = all(map(math.isfinite, models)) and abs(Spread(models).mean / printed - 1) <= NEAR
    return near[AS_PROGRAMMED] and not near["scaffold"]


def _clipping_tames(values: Values) -> bool:
    """On digits_2 some runs of SCAFFOLD never get there, and all with clipped steps do."""
    settings = {s for s, _ in values if "digits_2" in s and "on the last" in s}
    never, always = ([v for s in settings for v in values[s, m].values()] for m in ("scaffold", CLIPPED))
    return not all(map(math.isfinite, never)) and all(map(math.isfinite, always))


def _feddr_is_ahead(values: Values) -> bool:
    """On the sets where the two are not comparable, FedDR's users end below FedPD's in every seed."""
    sets = ("Synthetic(0, 0)", "Synthetic(0.5, 0.5)")
    return all(loss < values[s, "fedpd, own"][seed] for s in sets for seed, loss in values[s, "feddr, own"].items())


def _half_of_the_slope(values: Values) -> bool:
    """One worker's slope is a third to two thirds of that of n workers, and their intervals are apart."""
    for p in (10, 2):
        slopes = f"digits_{p}, slope of the squared norm"
        many, one = (Spread(tuple(values[slopes, m].values())) for m in ("against n, K=1", "one worker"))
        if many.interval is None or one.interval is None or many.interval[1] >= one.interval[0]:
            return False
        if not 1 / 3 <= one.mean / many.mean <= 2 / 3:
            return False
    return True


KINDS = ("iid", "dir0.6", "dir0.3")
NEAR = 0.1  # a mean that is near a printed number, in proportion to it; set before Dir(0.6) and Dir(0.3) were run
ALIKE = "FedDR and FedPD are comparable (within 10%)"
FEWEST = "FedDyn sends the fewest models to the target"
PARTIAL = "counting partial work (mu = 0) ends below dropping it (FedAvg)"

CAUSES: dict[str, tuple[Cause, ...]] = {
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
                partial(_the_program_s_scaffold, name),
            ),
        )
        for name in (f"feddyn-mnist-2nn-{kind}{end}" for kind in KINDS for end in ("-lower", "-1%-authors-lower"))
    },
    **{
        name: (
            Cause(
                NUMBERS,
                "Steps without clipping: on digits_2 SCAFFOLD does not get to 95% in every run; with steps that are "
                "clipped as FedAvg's are, it does in all.",
                _clipping_tames,
            ),
        )
        for name in ("speedup-table2-2nn", "speedup-table2-cnn-n=10", "speedup-table2-cnn-n=100")
    },
    "speedup-table2-lr": (
        Cause(
            NUMBERS,
            "In the last public version of the authors' code the accuracy is that on the images of one worker. "
            "Measured so, logistic regression gets to 95% in every run here, in about as many rounds as the table "
            "has for iid data and in fewer for digits_2; on all test images it gets there in none.",
            _one_worker_s_images,
        ),
    ),
    "speedup-corollary2": (
        Cause(
            NUMBERS,
            "The corollary's server step grows with n. With one worker and the same steps the slope is about half of "
            "that with n workers, on both splits and with intervals apart: the larger steps do about half of it, and "
            "the larger cohorts the rest.",
            _half_of_the_slope,
        ),
    ),
    "feddr-figure2": (
        Cause(
            ALIKE,
            "FedDR ends ahead: the loss of its users' own models is below that of FedPD's in every seed.",
            _feddr_is_ahead,
            ("Synthetic(0, 0)", "Synthetic(0.5, 0.5)"),
        ),
    ),
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
    "feddane-figure1": (
        Cause(
            WORSE,
            "It depends on mu. With every mu up to 0.1 FedDANE ends above both, in all seeds of these sets but one. "
            "The best mu is 1 in every seed, the largest of the grid and FedProx's own; with it FedDANE ends below "
            "FedAvg, which has no such term, more often than above.",
            _largest_mu,
        ),
    ),
    "feddane-variants": tuple(
        Cause(
            f"{variant} ends below feddane",
            "On iid data the correction itself helps: FedDANE ends below FedProx in every seed, and with a correction "
            "that fades it ends between the two.",
            partial(_correction_helps, variant),
            ("Synthetic-IID",),
        )
        for variant in ("feddane, decay=0.98", "feddane, decay=0.9")
    ),
    "feddane-figure3": (
        Cause(
            WORSE,
            "On Synthetic(0, 0) it is decided by how models are averaged, not by the correction: FedDANE ends "
            "above FedAvg and FedProx with plain means, as in the figure, but not with means by examples; and not "
            "with plain means either, if every device counts alike in the loss too.",
            _weighting,
            ("Synthetic(0, 0), means by examples",),
        ),
    ),
    "fedprox-stragglers": (
        Cause(
            PARTIAL,
            "Where FedProx ends below FedAvg although counting partial work alone does not, it is the proximal term "
            "that helps. One of the 30 devices has 61% of all examples, and dropping stragglers drops its update too; "
            "whether that is why dropping does no harm, these runs do not separate.",
            _proximal_term,
        ),
    ),
}


def shown(name: str, values: Values) -> list[Cause]:
    """The causes that the recorded figures of a reproduction support."""
    return [cause for cause in CAUSES.get(name, ()) if _supported(cause, values)]


def _supported(cause: Cause, values: Values) -> bool:
    try:
        return cause.supported(values)
    except KeyError:
        return False
