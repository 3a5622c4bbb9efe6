"""Cohort rules: who comes, how often, with which weight in the mean, and at what cost."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedloom.cohorts import (
    bernoulli,
    by_weight,
    cyclic,
    everyone,
    plain,
    scheduled,
    seeded_bernoulli,
    seeded_by_round,
    stragglers,
    uniform,
    with_replacement,
)
from fedloom.diagnosis.setting import _cohort


def weights(n, seed=0):
    """Unequal population weights."""
    p = np.random.default_rng(seed).uniform(0.5, 2.0, n)
    return p / p.sum()


def draws(rule, p, rounds, seed=0):
    draw = rule.over(p)
    rng = np.random.default_rng(seed)
    return [draw(rng, t) for t in range(rounds)]


def fits(observed, expected):
    """Chi-square: with the fixed seeds below a right sampler passes, and a wrong one is off by orders of magnitude."""
    expected = np.asarray(expected) * np.sum(observed) / np.sum(expected)
    assert stats.chisquare(observed, expected).pvalue > 1e-3


# What holds for all of them.

CLIENTS = st.integers(1, 40)


@st.composite
def rule_and_population(draw):
    n = draw(CLIENTS)
    m = draw(st.integers(1, n))
    many = draw(st.integers(1, 60))  # draws with replacement may exceed the population
    trace = draw(st.lists(st.lists(st.integers(0, n - 1), min_size=1, max_size=8), min_size=3, max_size=3))
    rule = draw(
        st.sampled_from(
            [
                everyone(),
                uniform(m),
                seeded_by_round(m),
                with_replacement(many),
                by_weight(many),
                bernoulli(draw(st.floats(1e-6, 1.0))),
                cyclic(m),
                scheduled(trace),
            ]
        )
    )
    if draw(st.booleans()):
        rule = stragglers(rule, share=draw(st.floats(0, 1)), drop=draw(st.booleans()))
    if draw(st.booleans()):
        rule = plain(rule)
    return rule, n


@settings(max_examples=150, deadline=None, derandomize=True)
@given(drawn=rule_and_population(), seed=st.integers(0, 2**32 - 1))
def test_every_draw_is_a_cohort(drawn, seed):
    rule, n = drawn
    p = weights(n, seed)
    for draw, again in zip(draws(rule, p, 3, seed), draws(rule, p, 3, seed), strict=True):
        ids, weight, work = draw
        assert len(ids) == len(weight) == len(work) > 0
        assert np.issubdtype(ids.dtype, np.integer)
        assert ids[0] >= 0
        assert ids[-1] < n
        assert np.all(np.diff(ids) > 0)  # distinct and sorted
        assert np.all(np.isfinite(weight) & (weight > 0))
        assert np.all((work > 0) & (work <= 1))
        # The same generator gives the same cohort.
        for a, b in zip(draw, again, strict=True):
            np.testing.assert_array_equal(a, b)


def test_another_seed_is_another_draw():
    p = weights(1000)
    for rule in (uniform(20), with_replacement(20), by_weight(20), bernoulli(0.02), stragglers(uniform(20), 0.5)):
        first, second = draws(rule, p, 1, seed=1)[0], draws(rule, p, 1, seed=2)[0]
        assert not np.array_equal(first.ids, second.ids)
        # And so is another round with the same generator.
        here, next_ = draws(rule, p, 2, seed=1)
        assert not np.array_equal(here.ids, next_.ids)


# One rule at a time.


def test_everyone():
    p = weights(6)
    for ids, weight, work in draws(everyone(), p, 2):
        np.testing.assert_array_equal(ids, np.arange(6))
        np.testing.assert_array_equal(weight, p)
        np.testing.assert_array_equal(work, np.ones(6))
    assert everyone().room(6) == 6


def test_uniform_has_m_clients_all_equally_likely():
    p, m, rounds = weights(12), 4, 3000
    seen = np.zeros(12)
    pairs = np.zeros((12, 12))
    for ids, weight, work in draws(uniform(m), p, rounds):
        assert len(ids) == m
        np.testing.assert_array_equal(weight, p[ids])  # the weights play no part in who comes, only in the mean
        np.testing.assert_array_equal(work, np.ones(m))
        seen[ids] += 1
        pairs[np.ix_(ids, ids)] += 1
    assert seen.sum() == m * rounds
    # Counts of a sample without replacement vary less than independent ones, by (N - m) / (N - 1).
    statistic = np.sum((seen - rounds * m / 12) ** 2 / (rounds * m / 12)) * 11 / (12 - m)
    assert stats.chi2(11).sf(statistic) > 1e-3
    # Every pair has probability m (m - 1) / (N (N - 1)): five standard deviations of room.
    q = m * (m - 1) / (12 * 11)
    off = pairs[np.triu_indices(12, 1)] / rounds - q
    assert np.all(np.abs(off) < 5 * np.sqrt(q * (1 - q) / rounds))


def test_uniform_of_all_is_everyone():
    np.testing.assert_array_equal(draws(uniform(7), weights(7), 1)[0].ids, np.arange(7))


@pytest.mark.parametrize(("n", "m"), [(5, 3), (5, 20), (50, 10)])
def test_with_replacement_counts_repeats_in_the_mean(n, m):
    p = weights(n)
    draw = with_replacement(m).over(p)
    repeated = 0
    for seed in range(20):
        ids, weight, work = draw(np.random.default_rng(seed), 0)
        # The same draws, made again from the same generator and counted by hand.
        raw = list(np.random.default_rng(seed).integers(n, size=m))
        assert list(ids) == sorted(set(raw))
        np.testing.assert_allclose(weight, [raw.count(k) * p[k] for k in ids], rtol=1e-15)
        np.testing.assert_array_equal(work, np.ones(len(ids)))
        repeated += len(ids) < m
    assert repeated > 0


def test_with_replacement_is_uniform():
    n, m, rounds = 8, 5, 2000
    p = weights(n)
    times = np.zeros(n)
    for ids, weight, _ in draws(with_replacement(m), p, rounds):
        times[ids] += np.round(weight / p[ids])
    assert times.sum() == m * rounds
    fits(times, np.ones(n))


def test_by_weight_draws_in_proportion_and_means_plainly():
    p, m, rounds = weights(9, seed=3), 6, 2000
    times = np.zeros(9)
    for ids, weight, work in draws(by_weight(m), p, rounds):
        np.testing.assert_array_equal(weight, np.round(weight))  # counts: p is in the sampling already
        assert weight.sum() == m
        np.testing.assert_array_equal(work, np.ones(len(ids)))
        times[ids] += weight
    fits(times, p)


def test_by_weight_never_draws_a_client_without_weight():
    p = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
    seen = set(np.concatenate([d.ids for d in draws(by_weight(3), p, 200)]))
    assert seen == {1, 3}

    class Extreme:
        """The smallest and the largest number that a generator gives, which no seed is likely to find."""

        def random(self, size):
            return np.array([0.0, np.nextafter(1.0, 0.0)])[:size]

    np.testing.assert_array_equal(by_weight(2).over(p)(Extreme(), 0).ids, [1, 3])


@pytest.mark.parametrize(("n", "q"), [(3, 0.3), (3, 0.9), (4, 0.05), (1, 0.2)])
def test_bernoulli_has_the_exact_distribution_given_that_somebody_comes(n, q):
    rounds = 4000
    p = weights(n)
    subsets = np.zeros(2**n)
    for ids, weight, _ in draws(bernoulli(q), p, rounds):
        np.testing.assert_array_equal(weight, p[ids])
        subsets[np.sum(2**ids)] += 1
    sizes = np.array([s.bit_count() for s in range(2**n)])
    expected = q**sizes * (1 - q) ** (n - sizes) / (1 - (1 - q) ** n)
    assert subsets[0] == 0
    np.testing.assert_allclose(expected[1:].sum(), 1)
    if n == 1:
        assert subsets[1] == rounds
    else:
        # Subsets too rare for a chi-square are counted together.
        common = expected[1:] * rounds > 5
        rare = ~common
        observed = np.append(subsets[1:][common], subsets[1:][rare].sum())
        likely = np.append(expected[1:][common], expected[1:][rare].sum())
        fits(observed[likely > 0], likely[likely > 0])


def test_bernoulli_is_never_empty():
    cohorts = draws(bernoulli(1e-6), weights(100), 500)
    assert all(len(d.ids) >= 1 for d in cohorts)
    # Two at once have a probability of about 5e-5 here; the one that comes is uniform on the 100.
    alone = np.array([d.ids[0] for d in cohorts])
    assert sum(len(d.ids) > 1 for d in cohorts) <= 1
    fits(np.bincount(alone // 10, minlength=10), np.ones(10))


def test_bernoulli_one_is_everyone():
    for ids, _, _ in draws(bernoulli(1.0), weights(13), 3):
        np.testing.assert_array_equal(ids, np.arange(13))


def test_bernoulli_sizes_in_a_large_population():
    n, q = 100_000, 0.001
    sizes = np.array([len(d.ids) for d in draws(bernoulli(q), weights(n), 400)])
    # Binomial(n, q), since an empty round is out of the question: mean 100, variance 99.9.
    assert abs(sizes.mean() - 100) < 5 * 10 / np.sqrt(400)
    assert 0.75 < sizes.var() / 99.9 < 1.3
    assert np.mean(sizes <= bernoulli(q).room(n)) > 0.99


@pytest.mark.parametrize(("n", "m"), [(6, 2), (7, 3), (5, 5), (10, 7), (4, 1)])
def test_cyclic_goes_round(n, m):
    p = weights(n)
    cohorts = draws(cyclic(m), p, 2 * n)
    turn = 0
    for ids, weight, work in cohorts:
        assert sorted((turn + j) % n for j in range(m)) == list(ids)
        np.testing.assert_array_equal(weight, p[ids])
        np.testing.assert_array_equal(work, np.ones(m))
        turn = (turn + m) % n
    # 2n rounds of m are 2m times around: everybody came equally often.
    np.testing.assert_array_equal(np.bincount(np.concatenate([c.ids for c in cohorts])), np.full(n, 2 * m))


def test_cyclic_depends_on_the_round_alone():
    draw = cyclic(3).over(weights(7))
    np.testing.assert_array_equal(draw(np.random.default_rng(0), 5).ids, draw(np.random.default_rng(1), 5).ids)


def test_scheduled_replays_its_trace():
    p = weights(6)
    trace = [[2, 0, 5], [1], [4, 4, 3, 4]]
    first, second, third = draws(scheduled(trace), p, 3)
    np.testing.assert_array_equal(first.ids, [0, 2, 5])
    np.testing.assert_array_equal(first.weight, p[[0, 2, 5]])
    np.testing.assert_array_equal(second.ids, [1])
    np.testing.assert_array_equal(second.weight, p[[1]])
    # Client 4 is listed three times: it works once and counts three times.
    np.testing.assert_array_equal(third.ids, [3, 4])
    np.testing.assert_allclose(third.weight, [p[3], 3 * p[4]], rtol=1e-15)
    np.testing.assert_array_equal(third.work, np.ones(2))
    assert scheduled(trace).room(6) == 3


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ([[0], [1, 6]], r"scheduled: trace\[1\] names client 6, but clients are 0 to 5\."),
        ([[0], [-1, 2]], r"scheduled: trace\[1\] names client -1, but clients are 0 to 5\."),
        ([[0], [1], []], r"scheduled: trace\[2\] is empty; every round needs a client\."),
        ([], r"scheduled: trace must have at least one round\."),
    ],
)
def test_scheduled_says_what_is_wrong_with_a_trace(trace, message):
    with pytest.raises(ValueError, match=message):
        scheduled(trace).over(weights(6))


def test_scheduled_says_that_the_trace_is_over():
    draw = scheduled([[0], [1]]).over(weights(6))
    with pytest.raises(ValueError, match=r"the trace has 2 rounds, but the run asks for round 3"):
        draw(np.random.default_rng(0), 2)


@pytest.mark.parametrize(("share", "slow"), [(0.0, 0), (0.3, 3), (0.5, 5), (0.9, 9), (1.0, 10)])
def test_stragglers_are_the_given_share(share, slow):
    p = weights(30)
    rule = stragglers(uniform(10), share)
    who = np.zeros(30)
    came = np.zeros(30)
    for ids, weight, work in draws(rule, p, 600):
        assert len(ids) == 10
        np.testing.assert_array_equal(weight, p[ids])  # partial work weighs as much as full work
        assert np.all((work > 0) & (work <= 1))
        assert np.sum(work < 1) == slow
        who[ids] += work < 1
        came[ids] += 1
    if 0 < share < 1:
        # Slowness is nobody's property: each client's frequency is within five standard deviations of the share.
        assert np.all(np.abs(who / came - share) < 5 * np.sqrt(share * (1 - share) / came))


def test_partial_work_is_uniform_in_whole_epochs():
    epochs = 5
    work = np.concatenate([d.work for d in draws(stragglers(uniform(10), 1.0), weights(30), 400)])
    done = np.ceil(work * epochs).astype(int)
    assert done.min() == 1
    assert done.max() == epochs
    fits(np.bincount(done)[1:], np.ones(epochs))


@pytest.mark.parametrize(("share", "left"), [(0.0, 10), (0.3, 7), (0.9, 1), (1.0, 1)])
def test_dropped_stragglers_leave_somebody(share, left):
    p = weights(30)
    inner = uniform(10).over(p)
    survivors = np.zeros(10)
    for seed in range(300):
        ids, weight, work = stragglers(uniform(10), share, drop=True).over(p)(np.random.default_rng(seed), 0)
        cohort = inner(np.random.default_rng(seed), 0).ids
        assert len(ids) == left
        assert set(ids) <= set(cohort)
        np.testing.assert_array_equal(weight, p[ids])
        np.testing.assert_array_equal(work, np.ones(left))
        survivors[np.searchsorted(cohort, ids)] += 1
    # Nobody in the cohort is privileged, not even where one client must stay.
    if left < 10:
        q = left / 10
        assert np.all(np.abs(survivors / 300 - q) < 5 * np.sqrt(q * (1 - q) / 300))


def test_stragglers_keep_the_multiplicities_of_the_inner_rule():
    p = weights(4)
    for seed in range(20):
        inner = by_weight(9).over(p)(np.random.default_rng(seed), 0)
        slow = stragglers(by_weight(9), 0.5).over(p)(np.random.default_rng(seed), 0)
        np.testing.assert_array_equal(slow.ids, inner.ids)
        np.testing.assert_array_equal(slow.weight, inner.weight)


def test_stragglers_do_not_spoil_a_shared_draw():
    """`everyone` and `scheduled` hand out the same arrays again and again."""
    for inner in (everyone(), scheduled([[0, 1, 2, 3]] * 5)):
        for _, _, work in draws(stragglers(inner, 0.5), weights(4), 5):
            assert np.sum(work < 1) == 2


INNER = [
    everyone(),
    uniform(4),
    seeded_by_round(4),
    bernoulli(0.4),
    seeded_bernoulli(0.4),
    cyclic(4),
    scheduled([[0, 5], [3], [1, 2, 4]]),
    stragglers(uniform(4), 0.5),
    stragglers(bernoulli(0.6), 0.5, drop=True),
]


@pytest.mark.parametrize("rule", INNER, ids=str)
def test_plain_draws_the_same_clients_who_all_count_once(rule):
    p = weights(9)
    for inner, (ids, weight, work) in zip(draws(rule, p, 3), draws(plain(rule), p, 3), strict=True):
        np.testing.assert_array_equal(ids, inner.ids)
        np.testing.assert_array_equal(work, inner.work)
        np.testing.assert_array_equal(weight, np.ones(len(ids)))
    np.testing.assert_array_equal(plain(rule).usual_weight(p), np.ones(9))
    assert plain(rule).room(9) == rule.room(9)
    assert plain(rule).partial_work == rule.partial_work


@pytest.mark.parametrize("inner", [with_replacement(30), by_weight(30)])
def test_plain_counts_a_client_as_often_as_it_was_drawn(inner):
    """30 draws from 5 clients: each draw counts once, whoever it is, and by_weight is plain already."""
    p = weights(5)
    for seed in range(10):
        drawn, found = (rule.over(p)(np.random.default_rng(seed), 0) for rule in (inner, plain(inner)))
        np.testing.assert_array_equal(found.ids, drawn.ids)
        assert found.weight.sum() == pytest.approx(30, rel=1e-14)
        np.testing.assert_allclose(found.weight, np.round(found.weight), rtol=1e-14)
        if isinstance(inner, by_weight):
            np.testing.assert_array_equal(found.weight, drawn.weight)
        else:
            raw = list(np.random.default_rng(seed).integers(5, size=30))
            np.testing.assert_allclose(found.weight, [raw.count(k) for k in found.ids], rtol=1e-14)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("rule", [uniform(6), bernoulli(0.5), with_replacement(8)], ids=str)
def test_plain_means_and_stragglers_in_either_order(rule, drop):
    p = weights(9)
    inside = draws(stragglers(plain(rule), 0.5, drop), p, 5)
    outside = draws(plain(stragglers(rule, 0.5, drop)), p, 5)
    for one, other in zip(inside, outside, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert stragglers(plain(rule), 0.5, drop).partial_work is not drop
    np.testing.assert_array_equal(stragglers(plain(rule)).usual_weight(p), np.ones(9))


def test_plain_counts_clients_without_weight_too():
    p = np.array([0.0, 0.5, 0.5])
    for rule in (plain(everyone()), plain(uniform(3)), plain(stragglers(everyone(), 0.0))):
        np.testing.assert_array_equal(draws(rule, p, 1)[0].weight, np.ones(3))


# The first two cohorts of FedProx's program with 30 users, in the order of drawing.
FEDPROX = [[2, 28, 13, 10, 26, 24, 27, 11, 17, 22], [17, 21, 10, 19, 14, 20, 26, 3, 24, 22]]


def test_seeded_by_round_has_the_cohorts_of_the_papers_programs():
    p = weights(30)
    for seed in (0, 7):
        for drawn, (ids, weight, work) in zip(FEDPROX, draws(seeded_by_round(10), p, 2, seed), strict=True):
            np.testing.assert_array_equal(ids, sorted(drawn))
            np.testing.assert_array_equal(weight, p[ids])
            np.testing.assert_array_equal(work, np.ones(10))
    assert seeded_by_round(10).room(30) == 10


def test_seeded_bernoulli_has_the_cohorts_of_feddyns_program():
    """Its loop, with NumPy's global generator: after an empty draw the next round's cohort comes twice."""
    n, q, rounds, p = 100, 0.01, 60, weights(100)
    wanted = []
    for t in range(rounds):
        seed = t
        while True:
            np.random.seed(seed)
            chosen = [k for k, u in enumerate(np.random.uniform(size=n)) if u <= q]
            if chosen:
                break
            seed += 1
        wanted.append(chosen)
    for seed in (0, 7):
        found = draws(seeded_bernoulli(q), p, rounds, seed)
        assert [ids.tolist() for ids, _, _ in found] == wanted
        np.testing.assert_array_equal(found[0].weight, p[found[0].ids])
    repeated = sum(a == b for a, b in itertools.pairwise(wanted))
    assert repeated >= rounds / 4  # independent draws of so few would be alike once in a hundred times


def last(rule, ids, clients, t, seed=0):
    return rule.last(np.asarray(ids), clients, np.random.default_rng(seed), t)


def test_the_last_member_of_a_cohort_that_is_drawn_in_an_order():
    """Also where other rules are around it, and where the last one was dropped."""
    inner = seeded_by_round(10)
    for t, drawn in enumerate(FEDPROX):
        for rule in (inner, plain(inner), stragglers(inner), plain(stragglers(inner, drop=True))):
            assert last(rule, sorted(drawn), 30, t, seed=t + 3) == drawn[-1]
            assert last(rule, sorted(drawn[:7]), 30, t) == drawn[6]
            assert last(rule, sorted({*drawn} - {drawn[-1]}), 30, t) == drawn[-2]


@pytest.mark.parametrize("rule", [everyone(), uniform(5), by_weight(9), stragglers(plain(cyclic(5)))], ids=str)
def test_the_last_member_of_other_cohorts_is_a_random_one(rule):
    ids = [3, 4, 9, 17, 28]
    found = [last(rule, ids, 30, 0, seed) for seed in range(500)]
    assert {type(k) for k in found} == {int}
    fits([found.count(k) for k in ids], np.ones(5))
    assert sum(found.count(k) for k in ids) == 500
    assert found == [last(rule, ids, 30, 0, seed) for seed in range(500)]


@pytest.mark.parametrize("rule", [uniform(11), cyclic(11), stragglers(uniform(11)), seeded_by_round(11)])
def test_a_cohort_larger_than_the_population_is_an_error(rule):
    kind = type(getattr(rule, "of", rule)).__name__
    with pytest.raises(
        ValueError, match=rf"{kind}: m = 11 is larger than the population of 10 clients; choose m <= 10"
    ):
        rule.over(weights(10))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uniform(0), "uniform: m must be a positive integer, got 0"),
        (lambda: uniform(2.5), r"uniform: m must be a positive integer, got 2\.5"),
        (lambda: with_replacement(-1), "with_replacement: m must be a positive integer, got -1"),
        (lambda: by_weight("3"), "by_weight: m must be a positive integer, got '3'"),
        (lambda: cyclic(0), "cyclic: m must be a positive integer, got 0"),
        (lambda: bernoulli(0.0), r"bernoulli: q must be a number in \(0, 1\], got 0\.0"),
        (lambda: bernoulli(1.1), r"bernoulli: q must be a number in \(0, 1\], got 1\.1"),
        (lambda: bernoulli(np.nan), r"bernoulli: q must be a number in \(0, 1\], got nan"),
        (lambda: stragglers(uniform(2), -0.1), r"stragglers: share must be a number in \[0, 1\], got -0\.1"),
        (lambda: stragglers(3), r"stragglers: of must be a cohort rule such as uniform\(10\), got 3"),
        (lambda: plain(3), r"plain: of must be a cohort rule such as uniform\(10\), got 3"),
        (lambda: seeded_by_round(0), "seeded_by_round: m must be a positive integer, got 0"),
        (lambda: stragglers(uniform(2), drop=1), "stragglers: drop must be True or False, got 1"),
    ],
)
def test_bad_hyperparameters_raise_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Room and cost.


@pytest.mark.parametrize(
    "rule",
    [
        everyone(),
        uniform(20),
        with_replacement(20),
        with_replacement(400),
        by_weight(20),
        bernoulli(0.1),
        bernoulli(1.0),
        bernoulli(1e-6),
        cyclic(20),
        stragglers(bernoulli(0.1), 0.5),
        stragglers(uniform(20), 0.5, drop=True),
        seeded_by_round(20),
        plain(bernoulli(0.1)),
    ],
    ids=str,
)
def test_there_is_room_for_the_usual_draw(rule):
    room = rule.room(200)
    sizes = np.array([len(d.ids) for d in draws(rule, weights(200), 300)])
    assert np.mean(sizes <= room) >= 0.99
    assert room <= 200
    # And not so much room that most of it is wasted.
    assert sizes.max() >= room / 2


@pytest.mark.parametrize(
    "rule",
    [
        uniform(100),
        by_weight(100),
        with_replacement(100),
        bernoulli(1e-4),
        cyclic(100),
        scheduled([range(100)]),
        stragglers(uniform(100), 0.5),
        plain(uniform(100)),
    ],
    ids=str,
)
def test_a_draw_costs_the_cohort_and_not_the_population(rule):
    """Memory taken during a draw, in numbers of 8 bytes: a draw that looks at every client needs a byte for each."""
    clients, cohort = 1_000_000, 100
    draw, rng = rule.over(np.full(clients, 1 / clients)), np.random.default_rng(0)
    draw(rng, 0)  # what NumPy allocates once does not count
    tracemalloc.start()
    try:
        drawn = draw(rng, 0)
        numbers = tracemalloc.get_traced_memory()[1] / 8
    finally:
        tracemalloc.stop()
    assert len(drawn.ids) < 2 * cohort
    assert numbers < 50 * cohort < clients / 100


def test_a_trace_lists_whole_numbers():
    with pytest.raises(ValueError, match=r"trace\[0\] must list clients by number, as integers"):
        scheduled([[1.7, 2]]).over(np.full(3, 1 / 3))


def test_theorems_do_not_cover_cohorts_that_are_repeated():
    assert _cohort(bernoulli(0.1), 50) == (5, False, ["Cohorts have no fixed size."])
    size, twice, odd = _cohort(seeded_bernoulli(0.1), 50)
    assert (size, twice) == (5, False)
    assert any("rounds are not independent" in words for words in odd)
