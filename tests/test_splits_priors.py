"""Splits in which every client draws its labels from a prior.

The oracle is the procedure as the papers state it, one example after another, followed exactly: it returns the
probability of every possible outcome, and many runs of the code must look like draws from that.
"""

import collections
import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedloom.data.splits import dirichlet, dirichlet_priors, latent_dirichlet, pachinko

ALPHAS = [1e-12, 1e-6, 0.1, 1.0, 1e6, 1e12]
RUNS = 2500


def labels_and_clients(most=40, classes=5):
    labels = st.lists(st.integers(0, classes - 1), min_size=1, max_size=most).map(np.array)
    return labels.flatmap(lambda a: st.tuples(st.just(a), st.integers(1, len(a)) | st.just(len(a))))


def table(split, labels, classes):
    """How many examples of each class each client has."""
    return np.array([np.bincount(labels[split.rows(k)], minlength=classes) for k in range(split.clients)])


def frozen(a):
    return tuple(map(tuple, np.round(np.atleast_2d(a), 9).tolist()))


def looks_like(outcomes, probability):
    """Pearson's test, with the outcomes expected fewer than five times taken together."""
    seen = collections.Counter(outcomes)
    assert sum(probability.values()) == pytest.approx(1, abs=1e-6)
    assert set(seen) <= set(probability)
    common = [o for o, p in probability.items() if p * RUNS >= 5]
    observed = [seen[o] for o in common]
    expected = [probability[o] * RUNS for o in common]
    observed, expected = [*observed, RUNS - sum(observed)], [*expected, RUNS - sum(expected)]
    if expected[-1] < 5:
        observed, expected = [*observed[:-2], sum(observed[-2:])], [*expected[:-2], sum(expected[-2:])]
    assert len(expected) > 10
    expected = np.array(expected) * RUNS / sum(expected)
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def renormalised(prior, left):
    prior = np.where(left > 0, prior, 0.0)
    return prior / prior.sum() if prior.sum() > 1e-9 else left / left.sum()


def outcomes_of_dirichlet(priors, counts, sizes, at_random):
    """The probability of each table if clients take turns at random (among those not full) or are filled in turn."""
    states = {(frozen(np.zeros_like(priors)), frozen(priors)): 1.0}
    for _ in range(sum(sizes)):
        after = collections.defaultdict(float)
        for (have, priors), p in states.items():
            have, priors = np.array(have), np.array(priors)
            open_clients = [k for k in range(len(sizes)) if have[k].sum() < sizes[k]]
            turns = open_clients if at_random else open_clients[:1]
            for k, c in itertools.product(turns, range(len(counts))):
                if priors[k, c] > 0:
                    now = have.copy()
                    now[k, c] += 1
                    left = counts - now.sum(axis=0)
                    rows = (
                        np.array([renormalised(row, left) for row in priors]) if left[c] == 0 != left.sum() else priors
                    )
                    after[frozen(now), frozen(rows)] += p * priors[k, c] / len(turns)
        states = after
    result = collections.defaultdict(float)
    for (have, _), p in states.items():
        result[have] += p
    return result


# A class that nobody wants, clients that soon have no class left that they want, and unequal sizes.
COUNTS = np.array([2, 3, 1, 1])
LABELS = np.repeat(np.arange(4), COUNTS)[[3, 1, 6, 0, 2, 5, 4]]
PRIORS = np.array([[1.0, 0.0, 0.0, 0.0], [0.7, 0.1, 0.2, 0.0], [0.2, 0.5, 0.3, 0.0]])


@pytest.mark.parametrize("sizes", [[4, 2, 1], [1, 2, 3]])
def test_dirichlet_has_the_distribution_of_the_sequential_procedure(sizes):
    runs = (dirichlet(LABELS, 3, None, seed, sizes, PRIORS) for seed in range(RUNS))
    looks_like([frozen(table(s, LABELS, 4)) for s in runs], outcomes_of_dirichlet(PRIORS, COUNTS, sizes, True))


def test_latent_dirichlet_has_the_distribution_of_the_sequential_procedure():
    priors = PRIORS[::-1]  # the client with a single class comes last
    runs = (latent_dirichlet(LABELS, 3, None, seed, 2, priors) for seed in range(RUNS))
    looks_like([frozen(table(s, LABELS, 4)) for s in runs], outcomes_of_dirichlet(priors, COUNTS, [2] * 3, False))


PARENT = np.array([1, 0, 1, 0, 0])
FINE_COUNTS = np.array([2, 1, 1, 2, 1])
FINE = np.repeat(np.arange(5), FINE_COUNTS)[[6, 1, 4, 0, 5, 2, 3]]


def new_priors(concentration, open_labels, labels):
    """Dir(concentration) for a concentration of (nearly) 0 or infinity: the possible priors, equally likely."""
    if len(open_labels) == 0:
        return [np.zeros(labels)]
    if concentration > 1:
        return [np.isin(np.arange(labels), open_labels) / len(open_labels)]
    return [np.eye(labels)[c] for c in open_labels]


def outcomes_of_pachinko(alpha, beta, clients, size):
    """The probability of each table of fine labels."""
    none = frozen(np.zeros((clients, 5)))
    states = {(none, None, None): 1.0}
    for k, i in itertools.product(range(clients), range(size)):
        built = collections.defaultdict(float)
        for (have, root, leaves), p in states.items():
            if i > 0:
                built[have, root, leaves] += p
                continue
            left = FINE_COUNTS - np.array(have).sum(axis=0)
            roots = new_priors(alpha, [c for c in (0, 1) if left[c == PARENT].sum()], 2)
            below = [new_priors(beta, np.flatnonzero((c == PARENT) & (left > 0)), 5) for c in (0, 1)]
            trees = list(itertools.product(roots, *below))
            for r, zero, one in trees:
                built[have, frozen(r), frozen(zero + one)] += p / len(trees)
        after = collections.defaultdict(float)
        for (have, root, leaves), p in built.items():
            (root,), (leaves,) = np.array(root), np.array(leaves)
            for f in range(5):
                if (chance := root[PARENT[f]] * leaves[f]) > 0:
                    now = np.array(have)
                    now[k, f] += 1
                    left = FINE_COUNTS - now.sum(axis=0)
                    new_root, new_leaves, siblings = root, leaves.copy(), PARENT[f] == PARENT
                    if left[f] == 0 and left.sum():
                        if left[siblings].sum():
                            new_leaves[siblings] = renormalised(leaves[siblings], left[siblings])
                        else:
                            new_root = renormalised(root, np.array([left[c == PARENT].sum() for c in (0, 1)]))
                    after[frozen(now), frozen(new_root), frozen(new_leaves)] += p * chance
        states = after
    result = collections.defaultdict(float)
    for (have, _, _), p in states.items():
        result[have] += p
    return result


@pytest.mark.parametrize(("alpha", "beta"), [(1e12, 1e12), (1e-12, 1e12), (1e12, 1e-12), (1e-12, 1e-12)])
def test_pachinko_has_the_distribution_of_the_sequential_procedure(alpha, beta):
    runs = (pachinko(PARENT[FINE], FINE, 2, seed, 3, alpha, beta) for seed in range(RUNS))
    looks_like([frozen(table(s, FINE, 5)) for s in runs], outcomes_of_pachinko(alpha, beta, 2, 3))


# Invariants.


@given(labels_and_clients(), st.sampled_from(ALPHAS), st.integers(0, 2**32), st.data())
@settings(deadline=None)
def test_dirichlet_gives_all_sizes_that_are_asked_for(case, alpha, seed, data):
    labels, clients = case
    split = dirichlet(labels, clients, alpha, seed)
    assert sorted(split.order) == list(range(len(labels)))
    assert split.sizes.max() - split.sizes.min() <= 1
    assert split.order.tolist() == dirichlet(labels, clients, alpha, seed).order.tolist()
    priors = dirichlet_priors(clients, labels.max() + 1, alpha, seed)
    assert split.order.tolist() == dirichlet(labels, clients, None, seed, priors=priors).order.tolist()
    sizes = np.ones(clients, int)
    for k in data.draw(st.lists(st.integers(0, clients - 1), max_size=len(labels) - clients)):
        sizes[k] += 1
    split = dirichlet(labels, clients, alpha, seed, sizes=sizes)
    assert split.sizes.tolist() == sizes.tolist()
    assert len(set(split.order.tolist()) & set(range(len(labels)))) == sizes.sum()


@given(labels_and_clients(), st.sampled_from(ALPHAS), st.integers(0, 2**32))
@settings(deadline=None)
def test_latent_dirichlet_gives_everyone_as_many(case, alpha, seed):
    labels, clients = case
    for size in {1, len(labels) // clients}:
        split = latent_dirichlet(labels, clients, alpha, seed, size)
        assert split.sizes.tolist() == [size] * clients
        assert len(set(split.order.tolist()) & set(range(len(labels)))) == size * clients
    assert split.order.tolist() == latent_dirichlet(labels, clients, alpha, seed, size).order.tolist()
    default = latent_dirichlet(labels, clients, alpha, seed)
    assert default.sizes.tolist() == [len(labels) // clients] * clients


@given(labels_and_clients(), st.sampled_from(ALPHAS), st.sampled_from(ALPHAS), st.integers(0, 2**32))
@settings(deadline=None)
def test_pachinko_gives_everyone_as_many(case, alpha, beta, seed):
    fine, clients = case
    size = len(fine) // clients
    split = pachinko(fine % 2, fine, clients, seed, size, alpha, beta)
    assert split.sizes.tolist() == [size] * clients
    assert len(set(split.order.tolist()) & set(range(len(fine)))) == size * clients
    assert split.order.tolist() == pachinko(fine % 2, fine, clients, seed, size, alpha, beta).order.tolist()


def test_priors_have_the_moments_of_a_dirichlet_distribution():
    for alpha in (0.1, 1.0, 5.0):
        priors = dirichlet_priors(20_000, 4, alpha, 3)
        np.testing.assert_allclose(priors.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(priors.mean(axis=0), 1 / 4, atol=0.01)
        np.testing.assert_allclose(priors.var(axis=0), (3 / 16) / (4 * alpha + 1), rtol=0.05)


@pytest.mark.parametrize("split", [dirichlet, latent_dirichlet])
def test_clients_of_train_and_test_data_share_priors(split):
    """While no class runs out, labels are independent draws from the prior, in train and test data."""
    train, test = np.repeat(np.arange(5), 20_000), np.repeat(np.arange(5), 8_000)
    priors = dirichlet_priors(4, 5, 0.5, 1)
    for labels, size in ((train, 5_000), (test, 2_000)):
        more = {"sizes": np.full(4, size)} if split is dirichlet else {"size": size}
        got = table(split(labels, 4, None, 1, priors=priors, **more), labels, 5) / size
        np.testing.assert_allclose(got, priors, atol=4 * 0.5 / np.sqrt(size))
    # Priors with a class that the labels do not have, not normalised, or so large that their sum is not finite.
    wide = np.hstack([priors, np.ones((4, 1))]) * 1e308
    assert len(split(test, 4, None, 1, priors=wide).order) == len(test)


def test_alpha_interpolates_between_one_class_each_and_the_same_for_all():
    labels = np.repeat(np.arange(10), 100)
    even = table(dirichlet(labels, 10, 1e12, 0), labels, 10)
    assert stats.chi2_contingency(even).pvalue > 1e-3
    first = table(latent_dirichlet(labels, 10, 1e-12, 0), labels, 10)[0]
    assert sorted(first) == [0] * 9 + [100]


def test_pachinko_on_cifar_100_is_as_the_paper_describes():
    """Most clients of FedOpt's CIFAR-100 have 20 to 30 fine labels, some more than 40, some few."""
    fine = np.repeat(np.arange(100), 500)
    begin = time.process_time()
    split = pachinko(fine // 5, fine, 500, seed=0)
    assert time.process_time() - begin < 2
    assert np.bincount(fine[split.order]).tolist() == [500] * 100
    labels = (table(split, fine, 100) > 0).sum(axis=1)
    assert 20 <= np.median(labels) <= 25
    assert labels.max() > 35


def test_a_thousand_clients_of_mnist_are_made_in_no_time():
    """Example by example in Python this would take over a second."""
    labels = np.random.default_rng(0).integers(0, 10, 60_000)
    for split in (dirichlet, latent_dirichlet):
        begin = time.process_time()
        assert len(split(labels, 1000, 0.3, 0).order) == 60_000
        assert time.process_time() - begin < 0.3


Y = np.array([0, 1, 1, 2, 0, 1])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dirichlet(Y, 7, 0.3, 0), "dirichlet: 6 examples are too few for 7 clients"),
        (lambda: dirichlet(Y, 0, 0.3, 0), "dirichlet: clients must be a positive integer, got 0"),
        (lambda: dirichlet(Y, 2, 0.0, 0), r"dirichlet: alpha must be a number in \[1e-12, 1e\+12\], got 0.0"),
        (lambda: dirichlet(Y, 2, np.inf, 0), "dirichlet: alpha must be a number in .*, got inf"),
        (lambda: dirichlet(Y, 2, np.nan, 0), "dirichlet: alpha must be a number in .*, got nan"),
        (lambda: dirichlet(Y, 2, "0.3", 0), "dirichlet: alpha must be a number in .*, got '0.3'"),
        (lambda: dirichlet(Y, 2, np.ones(3), 0), "dirichlet: alpha must be a number in .*, got array"),
        (lambda: dirichlet(Y, 2, None, 0), "dirichlet: give either alpha or priors"),
        (lambda: dirichlet(Y, 2, 0.3, 0, priors=np.ones((2, 3))), "dirichlet: give either alpha or priors"),
        (lambda: dirichlet(Y, 2, None, 0, priors=np.ones((2, 2))), r"priors must have shape \[2, 3\], .*got \(2, 2\)"),
        (lambda: dirichlet(Y, 2, None, 0, priors=np.ones((3, 3))), r"priors must have shape \[2, 3\], .*got \(3, 3\)"),
        (lambda: dirichlet(Y, 2, None, 0, priors=[[1, 0, 0], [0, 0, 0]]), "no row may be all zero"),
        (lambda: dirichlet(Y, 2, None, 0, priors=[[1, 0, 0], [-1, 0, 2]]), "priors must be finite and non-negative"),
        (lambda: dirichlet(Y, 2, None, 0, priors=np.full((2, 3), np.nan)), "priors must be finite and non-negative"),
        (lambda: dirichlet(Y, 2, 0.3, 0.5), "seed must be a non-negative integer, got 0.5"),
        (lambda: dirichlet(Y, 2, 0.3, -1), "seed must be a non-negative integer, got -1"),
        (lambda: dirichlet(Y, 2, 0.3, 0, sizes=[3, 2, 1]), "dirichlet: sizes must be 2 positive integers"),
        (lambda: dirichlet(Y, 2, 0.3, 0, sizes=[6, 0]), "dirichlet: sizes must be 2 positive integers"),
        (lambda: dirichlet(Y, 2, 0.3, 0, sizes=[4, 3]), "dirichlet: sizes add up to 7, but there are 6 examples"),
        (lambda: dirichlet(Y / 2, 2, 0.3, 0), "labels must be a one-dimensional array of integers.* got float64"),
        (lambda: dirichlet(Y - 1, 2, 0.3, 0), "labels must be 0, 1, 2, ..., but one is -1"),
        (lambda: dirichlet(Y[None], 2, 0.3, 0), r"dirichlet: labels must be a one-dimensional .*shape \(1, 6\)"),
        (
            lambda: latent_dirichlet(Y, 2, 0.3, 0, size=4),
            "2 clients with size = 4 need 8 examples, but there are only 6",
        ),
        (lambda: latent_dirichlet(Y, 2, 0.3, 0, size=0), "latent_dirichlet: size must be a positive integer"),
        (
            lambda: pachinko(Y // 2, Y, 2, 0),
            "pachinko: 2 clients with size = 100 need 200 examples, but there are only 6",
        ),
        (lambda: pachinko(Y[:5], Y, 2, 0, 1), "pachinko: there are 5 coarse labels, but 6 fine ones"),
        (lambda: pachinko(Y, Y // 2, 2, 0, 1), "pachinko: the fine label 0 is found under more than one coarse label"),
        (lambda: pachinko(Y // 2, Y, 2, 0, 1, beta=-1), "pachinko: beta must be a number in"),
        (lambda: dirichlet_priors(2, 0, 1.0, 0), "dirichlet_priors: classes must be a positive integer, got 0"),
    ],
)
def test_bad_input_raises_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
