"""The verdict of a comparison: which methods are the best at equal cost, as far as seeds and test examples can tell."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedloom.evidence.budgets import amount, amount_name, amount_words, place_at, spent
from fedloom.evidence.groups import by_name, by_task, has
from fedloom.evidence.statistics import (
    LEVEL,
    Difference,
    Tested,
    crossed,
    holm,
    level_of_look,
    level_of_unplanned_look,
    nested,
    paired,
)
from fedloom.evidence.targets import target
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study
from fedloom.tasks.evaluated import TEST_BLOCKS, on_test_examples


@dataclasses.dataclass(frozen=True)
class Against:
    """A method against the best: how far it is behind, and whether that is more than luck."""

    name: str
    behind: float  # the best's mean minus its own, positive if it is worse
    interval: tuple[float, float]  # 95%, as if this were the only comparison
    corrected: tuple[float, float]  # at the level of its test among all comparisons and looks
    p: float  # corrected
    tied: bool
    more_seeds: int | None  # that would decide, if the difference is what it seems; None: the test set is too small
    more_examples: float | None  # times as many test examples as there are, before seeds can decide


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a comparison on one task says about its methods at equal cost."""

    metric: str
    larger_is_better: bool
    cost: str  # of the budget
    amount: float | None  # of the budget; None if the runs do not have this cost
    means: Mapping[str, float]  # of the methods that can be compared, at the budget
    seeds: tuple[int, ...]  # that all of them have
    examples: int | None  # in the test set
    pairs: int  # of methods that were compared
    level: float  # of this look; LEVEL if it is the only one
    looks: int
    best: str | None  # the best mean; None if nothing can be compared
    against: Mapping[str, Against]  # the others
    thrifty: tuple[str, ...] = ()  # methods that never spent the whole budget
    partial: bool = False  # whether some method has more seeds than those that all have
    why_not: str = ""  # why there are no statistics

    @property
    def tied(self) -> tuple[str, ...]:
        """The best, and the methods that cannot be told from it, the best first."""
        return (() if self.best is None else (self.best,)) + tuple(a.name for a in self.against.values() if a.tied)

    @property
    def separated(self) -> bool:
        """Whether one method is better than all others."""
        return bool(self.against) and len(self.tied) == 1

    @property
    def at(self) -> str:
        """The budget in words."""
        return "no budget" if self.amount is None else amount_words(self.cost, self.amount)


@functools.lru_cache(maxsize=16)  # tables, cards and figures ask for the same; studies do not change
def verdict(study: Study, task: str) -> Verdict:
    """Compare the methods of a study on one task, at equal cost, by the metric of its target.

    All pairs of methods are compared, because which of them is the best is found out from the same data.
    """
    results, budget, metric = by_task(study)[task], study.terms.budget, target(study, task).metric
    limit = amount(results, budget)
    values: dict[str, dict[int, tuple[Result, int]]] = {}
    for name, seeds in by_name(results).items():
        if limit is None or not all(r.finished and r.diverged is None and has(r, metric) for r in seeds):
            continue
        places = {
            r.experiment.seed: (r, place) for r in seeds if (place := place_at(r, budget.cost, limit)) is not None
        }
        if len(places) == len(seeds) and all(math.isfinite(r.column(metric)[i]) for r, i in places.values()):
            values[name] = places
    shared = sorted(set.intersection(*(set(places) for places in values.values()))) if values else []
    larger = any(r.larger_is_better(metric) for r in results if metric in r.metrics)
    means = {
        name: float(np.mean([places[s][0].column(metric)[places[s][1]] for s in shared or places]))
        for name, places in values.items()
    }
    order = sorted(means, key=lambda name: -means[name] if larger else means[name])
    means = {name: means[name] for name in order}
    examples = next((test["examples"] for r in results if (test := r.about.get("test"))), None)
    pairs = len(order) * (len(order) - 1) // 2
    level, times = _level(study, len(shared))
    thrifty = tuple(
        name
        for name in order
        if limit and max(spent(r, budget.cost) or 0 for r, _ in values[name].values()) < 0.99 * limit
    )
    partial = bool(shared) and any(len(places) > len(shared) for places in values.values())
    found = Verdict(
        metric, larger, budget.cost, limit, means, tuple(shared), examples if on_test_examples(metric) else None,
        pairs, level, times, order[0] if order else None, {}, thrifty, partial,
    )  # fmt: skip
    if limit is None and any(r.finished and r.diverged is None for r in results):
        need = "give clients a system, such as --system.speeds 2" if budget.cost == "seconds" else "choose another"
        return dataclasses.replace(found, why_not=f"these runs have no {amount_name(budget.cost)}; {need}")
    if any(r.experiment.until is not None for r in results):
        return dataclasses.replace(found, why_not="runs ended when they had met what they are for (until)")
    if len(order) < 2:
        return dataclasses.replace(found, why_not="fewer than two methods have finished without diverging")
    if all(i == 0 for places in values.values() for _, i in places.values()):
        return dataclasses.replace(found, why_not=f"no method can afford its first evaluation for {found.at}")
    if len(shared) < 2:
        one = all(len(places) == 1 for places in values.values())
        why = "one seed cannot tell a difference from luck; use --seeds 5" if one else "methods share too few seeds"
        return dataclasses.replace(found, why_not=why)
    if study.about.get("kind") == "sweep":
        return dataclasses.replace(found, why_not="the points of a sweep are ranked, not compared")
    rows = {name: [values[name][s] for s in shared] for name in order}
    if _is_share(results, metric) and not all(_blocks(r, i, metric) for own in rows.values() for r, i in own):
        words = f"the logs do not say how {metric} is spread over examples, and seeds alone may agree by luck"
        return dataclasses.replace(found, why_not=words)
    differences = {(a, b): _difference(rows[a], rows[b], metric) for a, b in itertools.combinations(order, 2)}
    tested = holm({pair: d.p for pair, d in differences.items()}, level)
    against = {
        b: _against(order[0], b, larger, differences[order[0], b], tested[order[0], b], level) for b in order[1:]
    }
    return dataclasses.replace(found, against=against)


def separated(study: Study) -> bool:
    """Whether on every task one method is better than all others."""
    return all(verdict(study, task).separated for task in by_task(study))


def _level(study: Study, seeds: int) -> tuple[float, int]:
    """The level of this look and the number of looks."""
    planned, seen = list(study.about.get("planned", [])), list(study.about.get("looks", []))
    seen += [] if seen[-1:] == [seeds] else [seeds]
    if seeds in planned and seen == planned[: len(seen)]:
        return level_of_look(planned, seeds), len(seen)
    return level_of_unplanned_look(len(seen), bool(planned)), len(seen)


def _difference(a: Sequence[tuple[Result, int]], b: Sequence[tuple[Result, int]], metric: str) -> Difference:
    sets = [[r.about.get("test", {}).get("digest") for r, _ in method] for method in (a, b)]
    blocks = [[_blocks(r, i, metric) for r, i in method] for method in (a, b)]
    if sets[0] != sets[1] or len({len(own) for method in blocks for own in method}) > 1 or not blocks[0][0]:
        return paired(*([r.evaluated[i][metric] for r, i in method] for method in (a, b)))  # not the same examples
    first, second = (np.array(own, float) for own in blocks)
    if len(set(sets[0])) == 1:
        return crossed(first, second)
    return nested(first, second, max(r.about["test"].get("share", 0.0) for r, _ in a))


def _blocks(result: Result, place: int, metric: str) -> list[float]:
    """The metric on each block of the test set; nothing if the log does not have it."""
    return result.evaluated[place].get(TEST_BLOCKS, {}).get(metric, [])


def _is_share(results: Sequence[Result], metric: str) -> bool:
    """Whether the metric counts test examples, so that seeds can agree by luck."""
    bounds = next((b for r in results if (b := r.about.get("bounds", {}).get(metric))), None)
    return on_test_examples(metric) or (bounds is not None and None not in bounds)


def _against(best: str, name: str, larger: bool, d: Difference, tested: Tested, level: float) -> Against:
    sign = 1 if larger else -1
    low, high = sorted(sign * x for x in d.interval())
    low_c, high_c = sorted(sign * x for x in d.interval(tested.level))
    p = min(1.0, tested.p * LEVEL / level)
    return Against(
        name, sign * d.mean, (low, high), (low_c, high_c), p, tested.p > level,
        d.more_seeds(tested.level), d.more_examples(tested.level),
    )  # fmt: skip


def _rounded_up(value: float) -> float:
    """To two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit) * unit


def words(found: Verdict, shown: Mapping[str, str] | None = None) -> list[str]:
    """The verdict in sentences; `shown` has the names of methods as they are shown."""
    names = shown or {}
    lines = []
    if found.thrifty:
        listed = ", ".join(names.get(name, name) for name in found.thrifty)
        lines.append(f"Never spent {found.at}, and compared by what was reached with less: {listed}.")
    if found.partial:
        lines.append(f"Compared over the {len(found.seeds)} seeds that all methods have.")
    return [*_judgement(found, names), *lines]


def _judgement(found: Verdict, names: Mapping[str, str]) -> list[str]:
    if found.best is None or found.why_not:
        return [f"No verdict: {found.why_not or 'no run has this cost'}."]
    best = names.get(found.best, found.best)
    evidence = f"{len(found.seeds)} seeds"
    if found.examples is not None:
        evidence += f" and {found.examples:,} test examples"
    many = [(found.pairs, "pairs"), (found.looks, "looks")]
    corrected = " and ".join(f"{count} {what}" for count, what in many if count > 1)
    level = f"level {LEVEL:.0%}" + (f", corrected for {corrected}" if corrected else "")
    if found.separated:
        return [f"{best} is better than every other method at {found.at}: {evidence}, {level}."]
    tied = ", ".join(names.get(name, name) for name in found.tied)
    why = f"{evidence} cannot tell them apart ({level})"
    lines = [f"Tied at {found.at}: {tied}; {why}."]
    second = next(a for a in found.against.values() if a.tied)
    rival = names.get(second.name, second.name)
    if second.behind == 0:
        lines.append(f"{best} and {rival} have the same mean.")
    elif second.more_seeds is not None:
        seeds = f"{second.more_seeds:,} more seed{'s' * (second.more_seeds != 1)}"
        lines.append(f"About {seeds} would separate {best} from {rival}, if they differ as much as they now seem to.")
    elif found.examples is not None and second.more_examples is not None:
        needed = _rounded_up(found.examples * second.more_examples)
        lines.append(
            f"No number of seeds would separate {best} from {rival} on this test set; about {needed:,.0f} test "
            "examples might, if they differ as much as they now seem to."
        )
    else:
        lines.append(f"No reasonable number of seeds would separate {best} from {rival}.")
    return lines
