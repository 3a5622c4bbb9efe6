"""Why numbers and claims of FedDyn come out otherwise."""

import math
from functools import partial

from docs.causes.cause import NEAR, NUMBERS, Cause, Causes, enough
from fedloom.reproductions import find
from fedloom.reproductions.feddyn import CLIPPED, LINEAR, PLAIN, least_of_others
from fedloom.reproductions.feddyn_centralised import BEST
from fedloom.reproductions.feddyn_mnist import ACT
from fedloom.reproductions.recording import recorded
from fedloom.reproductions.reproduction import Line, Values, comparable, of_seeds
from fedloom.reproductions.spread import Spread

KINDS = ("iid", "dir0.6", "dir0.3")
LOWER = ("-lower", "-100%-lower", "-1%-authors-lower")  # what the names of rows with the lower targets end with


def _beside_the_table(values: Values, kind: str) -> dict[str, tuple[list[float], float]]:
    """Of a set of FedDyn's table 6: the models of every draw and the table's number, by method, FedDyn first."""
    lines = [line for line in find("feddyn-table6").lines if line.setting.startswith(f"{kind}, ")]
    return {
        line.method: (list(values[line.setting, line.method].values()), line.reported)
        for line in lines
        if line.reported is not None and not line.beside
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
    setting = next(line.setting for line in find("feddyn-table6").lines if line.setting.startswith("type1, "))
    gaps = of_seeds(lambda f: least_of_others(f, setting) - f[setting, "feddyn"], values)
    return bool(gaps) and min(gaps) == 0 < max(gaps)


def _beyond_the_draws(values: Values) -> bool:
    """The table's number of FedDyn is less than that of every draw on the homogeneous set, and more on type 1."""
    (homogeneous, low), (type1, high) = (_beside_the_table(values, kind)["feddyn"] for kind in ("homogeneous", "type1"))
    return low < min(homogeneous) and high > max(type1)


def _easier(values: Values) -> bool:
    """Models are fewer than the table says in every draw: of type 2 for all methods, of type 3 for all but FedDyn."""
    found = [*_beside_the_table(values, "type2").values()]
    found += [of for method, of in _beside_the_table(values, "type3").items() if method != "feddyn"]
    return all(max(ours) < printed for ours, printed in found)


def _either_mean(values: Values) -> bool:
    """On type 3 FedDyn and SCAFFOLD need as many models by the plain mean as by the weighted one, or nearly."""
    beside = [line for line in find("feddyn-table6").lines if line.beside]
    weighted = [line._replace(method=line.method.removesuffix(f", {PLAIN}")) for line in beside]
    return all(comparable(_mean(values, a), _mean(values, b)) for a, b in zip(beside, weighted, strict=True))


def _within_the_model_s_reach(name: str, values: Values) -> bool:
    """Some run of a row misses a target, to which the model gets at one place in every seed.

    A run that misses it is one however few there are, so this looks at all that is recorded.
    """
    r, reference = find(name), recorded(find("feddyn-mnist-centralised"))
    kept = recorded(r)
    if kept is None or reference is None:
        return False
    missed = [
        line for line in r.lines if any(map(math.isinf, kept.values.get((line.setting, line.method), {}).values()))
    ]
    best = enough(reference.values)["MNIST", BEST].values()
    return bool(missed) and all(100 * (line.measure.target or 0.0) <= min(best) for line in missed)


def _distance(values: Values, line: Line) -> float:
    """How far ours are from the table's number, in proportion; below it if negative, infinite if a seed has none."""
    assert line.reported is not None
    return _mean(values, line) / line.reported - 1


def _mean(values: Values, line: Line) -> float:
    """Of ours; infinite if a seed has no number."""
    ours = tuple(values[line.setting, line.method].values())
    return Spread(ours).mean if all(map(math.isfinite, ours)) else math.inf


def _off(name: str, values: Values) -> list[tuple[float, float]]:
    """How far every method is from the table's lower row: with the program's cohorts, and with ours.

    Empty if nothing is recorded of the former.
    """
    program = find(f"{name}-authors-lower")
    kept = recorded(program)
    own = [line for line in program.lines if line.method != CLIPPED]
    if kept is None:
        return []
    return [(_distance(enough(kept.values), line), _distance(values, line)) for line in own]


def _the_program_s_cohorts(name: str, values: Values) -> bool:
    """With the cohorts of the authors' program every method is near the table; with independent ones, below that."""
    off = _off(name, values)
    return bool(off) and all(abs(one) <= NEAR and other <= -NEAR for one, other in off)


def _nearer_with_the_program_s_cohorts(name: str, values: Values) -> bool:
    """They bring every method nearer, by half of its distance or more, but not all within NEAR."""
    off = _off(name, values)
    nearer = all(math.isfinite(one) and abs(one) <= abs(other) / 2 for one, other in off)
    return nearer and any(abs(one) > NEAR for one, _ in off)


def _farther_with_the_program_s_cohorts(name: str, values: Values) -> bool:
    """With independent cohorts every method is below the table, with the program's every one is above; none is near.

    And not all are half as far as before.
    """
    off = _off(name, values)
    apart = bool(off) and all(one > NEAR and other < -NEAR for one, other in off)
    return apart and not _nearer_with_the_program_s_cohorts(name, values)


def _far(changed: str, method: str, name: str, values: Values) -> tuple[float, float]:
    """How far a method as the authors' program has it is from the table, and the paper's."""
    lines = {line.method: line for line in find(name).lines}
    one, other = (abs(_distance(values, lines[m])) for m in (changed, method))
    return one, other


def _the_program_s(changed: str, method: str, name: str, values: Values) -> bool:
    """A method as the authors' program has it gets there in every seed and is near the table, the paper's is not.

    And it is at most half as far from the table: else a few models at the edge would decide.
    """
    one, other = _far(changed, method, name, values)
    return one <= min(NEAR, other / 2) and other > NEAR


def _not_the_program_s(changed: str, method: str, name: str, values: Values) -> bool:
    """Neither the paper's method nor the program's is near the table."""
    return min(_far(changed, method, name, values)) > NEAR


def _as_in_the_program(end: str) -> str:
    """What its SCAFFOLD has; with all devices step sizes do not shrink, so that there clipping is all of it."""
    if end.startswith("-100%"):
        return "whose steps are clipped"
    return "whose steps are clipped, and which divides by the first round's step sizes in every round"


def _scaffold_s(name: str, end: str) -> tuple[Cause, ...]:
    """Of a row whose name ends so: whether SCAFFOLD's number is that of the program's."""
    return (
        Cause(
            NUMBERS,
            f"SCAFFOLD's number is that of the program's SCAFFOLD, {_as_in_the_program(end)}: it is within "
            f"{NEAR:.0%} of the table; the paper's SCAFFOLD is not.",
            partial(_the_program_s, CLIPPED, "scaffold", name),
        ),
        Cause(
            NUMBERS,
            f"SCAFFOLD's number is not explained by what the program's SCAFFOLD has, {_as_in_the_program(end)}: "
            f"with these it is not within {NEAR:.0%} of the table either.",
            partial(_not_the_program_s, CLIPPED, "scaffold", name),
        ),
    )


def _fedprox_s(name: str) -> tuple[Cause, ...]:
    return (
        Cause(
            NUMBERS,
            "FedProx's number is that of the program's FedProx, which had lost the square of its term: with the "
            f"linear part alone it is within {NEAR:.0%} of the table; the paper's FedProx is not.",
            partial(_the_program_s, LINEAR, "fedprox", name),
        ),
        Cause(
            NUMBERS,
            "FedProx's number is not explained by the square that the program's FedProx had lost: with the linear "
            f"part alone it is not within {NEAR:.0%} of the table either.",
            partial(_not_the_program_s, LINEAR, "fedprox", name),
        ),
    )


CHANCE = 20.0  # percent of ten digits: below this next to nothing is recognised


def _act_is_lost(values: Values) -> bool:
    """In every seed FedSplit Act ends near chance or diverges, FedSplit All far above."""
    settings = dict.fromkeys(line.setting for line in find("feddyn-figure2-mnist").lines)
    act, all_ = ([v for s in settings for v in values[s, f"fedsplit, {m}"].values()] for m in ("act", "all"))
    return max(act) < CHANCE and min(all_) > 4 * CHANCE


def _reach(name: str) -> Cause:
    return Cause(
        NUMBERS,
        "A run that does not get to a target does not miss it for want of the model: at one place "
        "(`feddyn-mnist-centralised`) it gets there in every seed.",
        partial(_within_the_model_s_reach, name),
    )


CAUSES: Causes = {
    **{
        name: (_reach(name),)
        for kind in KINDS
        for name in (f"feddyn-mnist-2nn-{kind}", f"feddyn-mnist-2nn-{kind}-100%")
    },
    **{
        name: (
            _reach(name),
            Cause(
                NUMBERS,
                "The cohorts. Here every round draws its own. If nobody comes, the authors' program takes the next "
                "round's cohort, and in the next round takes it again, so that more than a third of the rounds repeat "
                f"the one before and devices come up later. With its cohorts (`{name}-authors-lower`) all four methods "
                f"are within {NEAR:.0%} of the table's lower row; with independent ones all need less than that. That "
                f"{NEAR:.0%} is near was decided after the runs on iid data and before those of the other splits.",
                partial(_the_program_s_cohorts, name),
            ),
            Cause(
                NUMBERS,
                "The cohorts, for the most part. In the authors' program more than a third of the rounds repeat the "
                f"cohort of the one before. With its cohorts (`{name}-authors-lower`) every method is at most half as "
                f"far from the table's lower row as with independent ones, but not all are within {NEAR:.0%} of it. "
                "That half the distance counts was decided after these runs.",
                partial(_nearer_with_the_program_s_cohorts, name),
            ),
            Cause(
                NUMBERS,
                f"Not the cohorts alone: with those of the authors' program (`{name}-authors-lower`) every method "
                f"needs over {NEAR:.0%} more models than the table's lower row has, or does not get there in every "
                f"seed; with independent ones every method needs over {NEAR:.0%} fewer.",
                partial(_farther_with_the_program_s_cohorts, name),
            ),
        )
        for name in (f"feddyn-mnist-2nn-{kind}-1%" for kind in KINDS)
    },
    **{
        name: (*_scaffold_s(name, end), *(_fedprox_s(name) if LINEAR in find(name).experiments else ()))
        for kind in KINDS
        for end in LOWER
        for name in (f"feddyn-mnist-2nn-{kind}{end}",)
    },
    "feddyn-figure2-mnist": (
        Cause(
            ACT,
            "With this step size FedSplit Act ends near chance, or diverges, in every seed, while FedSplit All "
            "learns. The paper's step size is not published.",
            _act_is_lost,
        ),
    ),
    "feddyn-table6-draws": (
        Cause(
            NUMBERS,
            "The lost square would give FedProx a lead over FedAvg: with the linear part of its term alone FedProx "
            "gets there, and ahead of FedAvg, in every draw; with the whole term neither gets there in most draws. It "
            "gives neither the table's number nor its order: in every draw FedProx then needs fewer models than the "
            "table's, and fewer than FedDyn.",
            _the_square_is_lost,
        ),
    ),
    "feddyn-table6": (
        Cause(
            NUMBERS,
            "On the homogeneous set all four methods need more models than the table says, in each of these draws. "
            "`feddyn-table6-draws` has these and more.",
            _all_slower,
        ),
        Cause(
            NUMBERS,
            "On type 1 no method needs fewer models than FedDyn in any draw. Where FedDyn does not need the fewest, "
            "another method needs just as many: the target is met so early that whole rounds cannot tell them apart.",
            _never_behind,
        ),
        Cause(
            NUMBERS,
            "The draw does not explain FedDyn's numbers on these two sets, whose recipes are published whole: the "
            "table's is less than that of every draw on the homogeneous set, and more than that of every draw on "
            "type 1.",
            _beyond_the_draws,
        ),
        Cause(
            NUMBERS,
            "Type 2 is easier here for all four methods, in every draw, and type 3 for all but FedDyn. The levels of "
            "heterogeneity behind these two are not published and set to 1 here, so the data are others.",
            _easier,
        ),
        Cause(
            NUMBERS,
            "Which mean of the last models is measured explains nothing of type 3: by the plain one of the authors' "
            "program FedDyn and SCAFFOLD need as many models as by the weighted one, within a tenth.",
            _either_mean,
        ),
    ),
}
