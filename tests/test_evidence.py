"""What a comparison may say: intervals and tests that keep their promises, on data whose truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from fedloom import evidence
from fedloom.evidence.statistics import LEVEL, Difference, Spread, level_of_look
from fedloom.report import page_tables
from tests import made_up

LOOKS = {f"method-{m}": ("#000000", "solid") for m in range(11)}


def test_a_paired_difference_is_the_paired_t_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 1, 6), rng.normal(0, 1, 6)
    found, expected = evidence.paired(a, b), stats.ttest_rel(a, b)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_the_p_value_is_the_level_at_which_the_interval_ends_at_zero():
    rng = np.random.default_rng(1)
    d = 0.2 + rng.normal(0, 0.2, (4, 1)) + rng.normal(0, 0.5, (1, 50)) + rng.normal(0, 0.5, (4, 50))
    found = evidence.crossed(d, np.zeros_like(d))
    low, _ = found.interval(found.p)
    assert low == pytest.approx(0, abs=1e-9)


def test_a_difference_that_only_the_test_set_has_is_not_proved_by_more_seeds():
    rng = np.random.default_rng(2)
    of_examples = rng.normal(0, 1, (1, 100))
    d = 0.15 + of_examples - of_examples.mean() + rng.normal(0, 0.01, (50, 100))  # every seed agrees
    found = evidence.crossed(d, np.zeros_like(d))
    assert evidence.paired(d.mean(1), np.zeros(50)).p < 1e-10
    assert found.p == pytest.approx(stats.ttest_1samp(d.mean(0), 0).pvalue, rel=0.01)  # a hundred blocks decide
    assert found.more_seeds(LEVEL) is None
    assert 3 < found.more_examples(LEVEL) < 4  # ((1.96 + 0.84) * 0.1 / 0.15)^2


def test_seeds_that_agree_by_luck_are_not_certain():
    right = made_up.answers(np.random.default_rng(3), 2, 3, examples=100)
    right[1] = right[0]
    for s in range(3):  # each seed differs in one example, which is another every time
        right[0, s, s], right[1, s, s] = True, False
    a, b = (made_up.in_blocks(x) for x in right)
    assert evidence.paired(a.mean(1).round(9), b.mean(1).round(9)).p < 1e-6  # the same difference three times
    assert evidence.crossed(a, b).p > 0.05
    assert evidence.nested(a, b).p > 0.005


KINDS = {  # standard deviations of seeds, test examples (by block) and the rest
    "seeds": (0.3, 0.0, 0.5),
    "examples": (0.0, 1.0, 0.0),
    "all": (0.1, 1.0, 1.0),
    "rest": (0.0, 0.0, 1.0),
    "both": (1.0, 1.0, 1.0),
}


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_an_interval_misses_the_truth_as_rarely_as_it_says(kind, seeds):
    of_seed, of_block, rest = KINDS[kind]
    rng, missed, repetitions = np.random.default_rng(seeds), 0, 400
    for _ in range(repetitions):
        d = of_seed * rng.normal(size=(seeds, 1)) + of_block * rng.normal(size=(1, 100))
        d = 0.3 + d + rest * rng.normal(size=(seeds, 100))
        low, high = evidence.crossed(d, np.zeros_like(d)).interval()
        missed += not low <= 0.3 <= high
    assert stats.binomtest(missed, repetitions, 0.05, alternative="greater").pvalue > 0.01
    if kind in ("seeds", "examples") and seeds > 3:  # nor is it wider than it has to be
        assert missed > 0.02 * repetitions


def test_holm_is_that_of_the_textbook():
    p = {("a", "b"): 0.01, ("a", "c"): 0.04, ("b", "c"): 0.03}
    found = evidence.holm(p)
    assert {pair: t.p for pair, t in found.items()} == pytest.approx(
        {("a", "b"): 0.03, ("b", "c"): 0.06, ("a", "c"): 0.06}
    )
    found = evidence.holm(p, 0.05)
    for pair, tested in found.items():  # a difference is found where its interval at its level excludes zero
        assert (p[pair] <= tested.level) == (tested.p <= 0.05)


def test_planned_looks_share_the_level():
    assert evidence.looks(3, 10) == [3, 5, 7, 10]
    for planned in ([3, 5, 7, 10], [2, 3], evidence.looks(5, 50)):
        assert sum(level_of_look(planned, seeds) for seeds in planned) == pytest.approx(LEVEL)
    with pytest.raises(ValueError, match="at least 2 seeds"):
        evidence.looks(1, 5)


def winner(study):
    """What the page says: the name of a single best method, or None."""
    said = page_tables.cards(study, "digits", LOOKS, "method")
    tied, best = "Tied for the best" in said, ">Best test accuracy at" in said
    assert tied != best
    return evidence.verdict(study, "digits").best if best else None


@pytest.mark.parametrize(("methods", "seeds"), [(2, 3), (2, 10), (5, 5), (11, 3)])
def test_of_equal_methods_the_page_names_a_winner_in_at_most_one_of_twenty(methods, seeds):
    rng = np.random.default_rng(methods * seeds)
    named = said_worse = 0
    for _ in range(200):
        study = made_up.study(made_up.answers(rng, methods, seeds))
        named += winner(study) is not None
        said_worse += any(not a.tied for a in evidence.verdict(study, "digits").against.values())
    assert named <= 10
    assert said_worse <= 10  # nor is any method called worse than the best


@pytest.mark.parametrize(("better", "seeds"), [(0.05, 10), (0.08, 5), (0.12, 3)])
def test_a_better_method_is_found_with_the_power_that_the_statistics_promise(better, seeds):
    rng = np.random.default_rng(seeds)
    # The truth, from many seeds and examples.
    n = 100_000
    right = made_up.answers(rng, 2, 20, examples=n, better=better)
    many = evidence.crossed(*(made_up.in_blocks(x) for x in right))
    per_example = many.spread._replace(test_set=many.spread.test_set * n / 360, rest=many.spread.rest * n / 360)
    luck = max(many.spread.seed - many.spread.rest, 0)
    promised = Difference(many.mean, seeds, per_example._replace(seed=luck + per_example.rest)).power(seeds, LEVEL)
    found = sum(winner(made_up.study(made_up.answers(rng, 2, seeds, better=better))) == "method-0" for _ in range(200))
    assert -0.1 < found / 200 - promised < 0.2  # with three seeds, the promise is too modest
    assert promised > 0.3


def test_more_seeds_are_as_many_as_the_power_needs():
    found = Difference(0.3, 3, Spread(0.2, 0.0, 0.0, 0))
    more = found.more_seeds(LEVEL)
    rng, repetitions = np.random.default_rng(0), 2000
    d = 0.3 + math.sqrt(0.2) * rng.normal(size=(repetitions, 3 + more))
    hits = stats.ttest_1samp(d, 0, axis=1).pvalue <= LEVEL
    assert abs(hits.mean() - 0.8) < 0.04


def test_looking_several_times_finds_no_more_winners():
    rng, planned, wrong = np.random.default_rng(7), evidence.looks(3, 10), 0
    for _ in range(200):
        d = rng.normal(size=10)
        wrong += any(
            evidence.paired(d[:seeds], np.zeros(seeds)).p <= level_of_look(planned, seeds) for seeds in planned
        )
    assert wrong <= 10
