"""The verdict of a study, against differences that are computed directly."""

import dataclasses

import numpy as np
import pytest

from fedloom import evidence
from fedloom.evidence.statistics import LEVEL, level_of_look, level_of_unplanned_look
from fedloom.experiments import Study
from fedloom.experiments.terms import Budget, Terms
from fedloom.report import forest, tables
from tests import made_up

RNG = np.random.default_rng(0)
SEEDS, ROUNDS, BLOCKS = 4, 4, 20
LEVELS = {"good": 0.9, "middling": 0.8, "bad": 0.5}


def values(name, seed):
    """A method's blocks [rounds, blocks]: better in every round, with luck of the seed and of the blocks."""
    rng = np.random.default_rng([seed, len(name)])
    easy = np.random.default_rng(9).normal(0, 0.05, BLOCKS)
    rise = np.linspace(-0.3, 0, ROUNDS + 1)[:, None]
    return LEVELS[name] + rise + easy + rng.normal(0, 0.02) + rng.normal(0, 0.05, (ROUNDS + 1, BLOCKS))


def study(names=tuple(LEVELS), seeds=SEEDS, metric="test accuracy", digest=None, about=None, **more):
    results = []
    for name in names:
        for seed in range(seeds):
            blocks = values(name, seed)
            made = made_up.run(name, blocks.mean(1), seed, blocks=blocks, digest=digest(seed) if digest else "one")
            for row in made.rows:
                row["test blocks"]["test loss"] = [1 - b for b in row["test blocks"]["test accuracy"]]
            results.append(made)
    return Study("", results, (metric, 0.5), about or {}, **more)


def direct(a, b, round=ROUNDS, kind=evidence.crossed, seeds=SEEDS, **more):
    return kind(*(np.array([values(name, s)[round] for s in range(seeds)]) for name in (a, b)), **more)


@pytest.mark.parametrize(("metric", "sign"), [("test accuracy", 1), ("test loss", -1)])
@pytest.mark.parametrize(("amount", "round"), [(None, 4), (250, 2)])
def test_differences_are_those_of_the_rows_at_the_budget(metric, sign, amount, round):
    made = study(metric=metric, terms=Terms(Budget("bytes", amount)))
    found = evidence.verdict(made, "digits")
    assert (found.best, found.pairs, found.seeds) == ("good", 3, (0, 1, 2, 3))
    p = {pair: direct(*pair, round).p for pair in (("good", "middling"), ("good", "bad"), ("middling", "bad"))}
    tested = evidence.holm(p)
    for name in ("middling", "bad"):
        expected, one = direct("good", name, round), found.against[name]
        assert one.behind == pytest.approx(expected.mean)  # positive: it is worse
        assert one.interval == pytest.approx(expected.interval(0.05))
        assert one.corrected == pytest.approx(expected.interval(tested["good", name].level))
        assert one.p == pytest.approx(tested["good", name].p)
        assert one.tied == (tested["good", name].p > LEVEL)
    drawn, reference, words = forest.differences(made, "digits")
    assert (reference, words) == ("good", f"{metric} at {'400 B' if amount is None else '250 B'}")
    assert [d.difference for d in drawn] == pytest.approx([-sign * a.behind for a in found.against.values()])
    assert all(d.low <= d.difference <= d.high and d.low_corrected <= d.low for d in drawn)
    assert found.separated
    assert "good is better than every other method" in tables.text(made)


def test_all_pairs_count_not_only_those_with_the_best():
    two, three = (evidence.verdict(study(names), "digits") for names in (("good", "bad"), tuple(LEVELS)))
    alone = direct("good", "bad").p
    assert two.against["bad"].p == pytest.approx(alone)
    order = sorted(direct(*pair).p for pair in (("good", "bad"), ("good", "middling"), ("middling", "bad")))
    assert three.against["bad"].p == pytest.approx(
        max((3 - i) * p for i, p in enumerate(order) if p <= alone), rel=1e-6
    )


def test_seeds_are_paired_by_their_numbers():
    made = study()
    shuffled = dataclasses.replace(made, results=made.results[::-1])
    one, other = (evidence.verdict(s, "digits").against["bad"] for s in (made, shuffled))
    assert one.interval == pytest.approx(other.interval)


def test_test_sets_of_their_own_are_not_crossed():
    made = study(digest=str)
    found = evidence.verdict(made, "digits").against["bad"]
    assert found.interval == pytest.approx(direct("good", "bad", kind=evidence.nested).interval())
    for result in made.results:
        result.about["test"]["share"] = 0.2
    wider = evidence.verdict(dataclasses.replace(made), "digits").against["bad"]
    assert wider.interval == pytest.approx(direct("good", "bad", kind=evidence.nested, share=0.2).interval())
    assert wider.interval[1] > found.interval[1]
    split = study(digest=str)
    for i, result in enumerate(split.results):
        result.about["test"]["digest"] = str(i)  # no two runs have the same examples
    means = [[values(name, s)[-1].mean() for s in range(SEEDS)] for name in ("good", "bad")]
    assert evidence.verdict(split, "digits").against["bad"].interval == pytest.approx(
        evidence.paired(*means).interval()
    )


def test_looking_again_costs():
    def found(about):
        return evidence.verdict(study(about={"kind": "comparison", **about}), "digits")

    assert (found({}).level, found({}).looks) == (LEVEL, 1)
    assert found({"looks": [4]}).level == LEVEL
    assert (found({"looks": [2, 4]}).level, found({"looks": [2, 4]}).looks) == (LEVEL / 4, 2)
    assert found({"looks": [4, 4, 4]}).level == LEVEL / 9  # with more rounds each time
    assert found({"looks": [2]}).level == LEVEL / 4  # this is the second
    planned = found({"planned": [2, 4, 6], "looks": [2, 4]})
    assert (planned.level, planned.looks) == (level_of_look([2, 4, 6], 4), 2)
    assert found({"planned": [2, 3], "looks": [2, 3, 4]}).level == LEVEL / 16
    again = found({"looks": [2, 4]}).against["bad"]
    assert again.p == pytest.approx(min(1, 4 * found({}).against["bad"].p))
    assert again.corrected[0] < found({}).against["bad"].corrected[0]


def test_any_number_of_unplanned_looks_keeps_the_promise():
    assert sum(level_of_unplanned_look(k) for k in range(1, 10_000)) < 0.05
    assert LEVEL + sum(level_of_unplanned_look(k, True) for k in range(1, 10_000)) < 0.05


def test_no_verdict_without_blocks_of_seeds_alone_or_of_a_sweep():
    made = study()
    for result in made.results:
        for row in result.rows:
            del row["test blocks"]
    assert "spread over examples" in evidence.verdict(made, "digits").why_not
    assert "one seed" in evidence.verdict(study(seeds=1), "digits").why_not
    assert "sweep" in evidence.verdict(study(about={"kind": "sweep"}), "digits").why_not
    assert "fewer than two" in evidence.verdict(study(("good",)), "digits").why_not
    poor = study(terms=Terms(Budget("bytes", 1)))
    assert "no method can afford its first evaluation" in evidence.verdict(poor, "digits").why_not


def test_only_seeds_that_all_methods_have_are_compared_and_shown():
    made = study()
    fewer = dataclasses.replace(made, results=[r for r in made.results if r.name != "bad" or r.experiment.seed < 2])
    found = evidence.verdict(fewer, "digits")
    assert found.seeds == (0, 1)
    assert found.against["middling"].interval == pytest.approx(direct("good", "middling", seeds=2).interval())
    shown = {row.name: row.at["bytes"].mean for row in tables.rows(fewer)}
    assert shown == pytest.approx(dict(found.means))
    assert shown["good"] == pytest.approx(np.mean([values("good", s)[-1].mean() for s in range(2)]))
    assert "Compared over the 2 seeds that all methods have." in tables.text(fewer)


def test_a_p_value_is_on_the_side_of_its_verdict():
    (row, *_) = tables.rows(study(("good", "bad")))
    for p, verdict in ((0.0302, "tied"), (0.0298, "worse"), (0.2, "tied"), (1e-9, "worse")):
        words = tables._verdict_words(dataclasses.replace(row, p=p, verdict=verdict))
        assert words != "tied, p = 0.03"
        assert words.startswith(verdict)
