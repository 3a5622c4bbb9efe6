"""Splits in which clients have examples of a few classes only."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedloom.data import splits

SEEDS = st.integers(0, 2**40)
MNIST_TRAIN = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
MNIST_TEST = np.repeat(np.arange(10), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009])


def table(split, labels):
    classes = int(np.max(labels)) + 1
    return np.array([np.bincount(np.asarray(labels)[split.rows(k)], minlength=classes) for k in range(split.clients)])


@pytest.mark.parametrize(("p", "quota", "test_quota"), [(1, 542, 89), (2, 271, 44), (5, 108, 17), (10, 54, 8)])
def test_digits_p_on_mnist(p, quota, test_quota):
    classes = splits.digits_p_classes(MNIST_TRAIN, p)
    for labels, q in ((MNIST_TRAIN, quota), (MNIST_TEST, test_quota)):
        split = splits.of_classes(labels, classes)
        assert split.sizes.tolist() == [p * q] * 100
        expected = q * np.array([np.bincount(own, minlength=10) for own in classes])
        np.testing.assert_array_equal(table(split, labels), expected)
    assert splits.digits_p(MNIST_TRAIN, p).order.tolist() == splits.of_classes(MNIST_TRAIN, classes).order.tolist()


@pytest.mark.parametrize(("p", "quota", "test_quota"), [(1, 499, 99), (2, 249, 49), (5, 99, 19), (10, 49, 9)])
def test_digits_p_on_cifar_10(p, quota, test_quota):
    train, test = np.tile(np.arange(10), 5000), np.tile(np.arange(10), 1000)
    assert splits.digits_p(train, p).sizes.tolist() == [p * quota] * 100
    assert splits.of_classes(test, splits.digits_p_classes(train, p)).sizes.tolist() == [p * test_quota] * 100


@given(st.integers(1, 6), st.integers(1, 12), st.integers(2, 60), SEEDS, st.data())
@settings(deadline=None)
def test_digits_p_follows_the_authors_rule(known, clients, least, seed, data):
    """Replayed: distinct classes with strictly more than the quota; too few of them are filled up with the fullest."""
    p = data.draw(st.integers(1, known))
    more = data.draw(st.lists(st.integers(0, 5), min_size=known, max_size=known))
    labels = np.repeat(np.arange(known), [least, *(least + m for m in more[1:])])
    quota = (least - 1) // int(np.ceil(clients * p / known))
    if quota == 0 or len(labels) < clients:
        with pytest.raises(ValueError, match="too few for"):
            splits.digits_p_classes(labels, p, clients, seed)
        return
    left = [least - 1] * known
    for own in splits.digits_p_classes(labels, p, clients, seed).tolist():
        enough = {c for c in range(known) if left[c] > quota}
        drawn = own[: min(p, len(enough))]
        assert len(set(drawn)) == len(drawn)
        assert set(drawn) <= enough
        for j, c in enumerate(own):
            assert j < len(drawn) or left[c] == max(left)
            left[c] -= quota
        assert min(left) >= 0
    split = splits.digits_p(labels, p, clients, seed)
    assert split.sizes.tolist() == [p * quota] * clients
    assert set(split.order.tolist()) <= set(range(len(labels)))


def authors_program(train, test):
    """The split as the authors make it: examples are taken off the ends of lists, p = 1, 2, 5, 10 from one stream."""
    np.random.seed(6)
    for p in (1, 2, 5, 10):
        stores = []
        for labels in (train, test):
            least = min(np.bincount(labels)) - 1
            stores.append(([np.flatnonzero(labels == c)[:least].tolist() for c in range(10)], least * 10 // (100 * p)))
        (train_lists, quota), _ = stores
        chosen, rows = [], [[], []]
        for _ in range(100):
            enough = [c for c in range(10) if len(train_lists[c]) > quota]
            if len(enough) >= p:
                own = np.random.choice(enough, p, replace=False).tolist()
            else:
                lengths, own = [len(left) for left in train_lists], enough
                while len(own) < p:
                    own.append(lengths.index(max(lengths)))
                    lengths[own[-1]] -= 1
            chosen.append(own)
            for (lists, amount), taken in zip(stores, rows, strict=True):
                taken.append([lists[c].pop() for c in own for _ in range(amount)])
        yield p, chosen, rows


def test_the_authors_own_split_of_mnist():
    rng = np.random.default_rng(0)
    train, test = rng.permutation(MNIST_TRAIN), rng.permutation(MNIST_TEST)
    state = np.random.get_state()
    for p, chosen, rows in authors_program(train, test):
        classes = splits.authors_classes(train, p)
        assert classes.tolist() == chosen
        for labels, expected in zip((train, test), rows, strict=True):
            split = splits.of_classes(labels, classes)
            assert [sorted(split.rows(k).tolist()) for k in range(100)] == [sorted(own) for own in expected]
        if p == 1:
            assert classes[90:, 0].tolist() == list(range(10))  # nobody has more than enough left for the last ten
        if p == 2:  # the last worker of the 14th cohort, on whom table 2's 14 rounds depend
            worker = np.random.RandomState(13).choice(100, 10, replace=False)[-1]
            assert sorted(classes[worker]) == [4, 5]
    np.random.set_state(state)


def test_the_authors_own_split_of_cifar_10():
    train, test = np.tile(np.arange(10), 5000), np.tile(np.arange(10), 1000)
    for p, quota, test_quota in ((1, 499, 99), (2, 249, 49), (5, 99, 19), (10, 49, 9)):
        classes = splits.authors_classes(train, p)
        assert splits.of_classes(train, classes).sizes.tolist() == [p * quota] * 100
        assert splits.of_classes(test, classes).sizes.tolist() == [p * test_quota] * 100


def test_digits_p_draws_uniformly_and_gives_out_from_the_end():
    labels = np.tile(np.arange(4), 40)
    first = [tuple(sorted(splits.digits_p_classes(labels, 2, 10, seed)[0].tolist())) for seed in range(1200)]
    counts = list(collections.Counter(first).values())
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-3
    # Class c has the rows c, c + 4, ...: the first 39 of its 40 are used, the last of those first.
    split = splits.of_classes(labels, [[2], [0], [2]])
    assert sorted(split.rows(0)) == [2 + 4 * i for i in range(20, 39)]
    assert sorted(split.rows(1)) == [4 * i for i in range(20, 39)]
    assert sorted(split.rows(2)) == [2 + 4 * i for i in range(1, 20)]


@given(st.lists(st.integers(60, 90), min_size=3, max_size=5), st.integers(1, 12), SEEDS)
@settings(deadline=None)
def test_fedprox_clients_have_neighbouring_classes(counts, clients, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    for function, width, least in ((splits.fedprox_mnist, 2, 5), (splits.fedprox_femnist, 3, 2)):
        split = function(labels, clients, seed)
        have = table(split, labels)
        for u in range(clients):
            assert set(np.flatnonzero(have[u])) == {(u + j) % len(counts) for j in range(width)}
            assert have[u][have[u] > 0].min() >= least
        if function is splits.fedprox_mnist:  # each request loses less than one example to rounding
            users = (have > 0).sum(axis=0)
            assert np.all(have.sum(axis=0)[users > 0] > (np.array(counts) - users)[users > 0])


def test_fedprox_sizes():
    """The authors report 69,035 examples, 69 +- 106, and 18,345 examples, 92 +- 159; both are heavy-tailed."""
    split = splits.fedprox_mnist(np.concatenate([MNIST_TRAIN, MNIST_TEST]))
    assert split.clients == 1000
    assert 68_000 < len(split.order) < 70_000
    assert 100 < split.sizes.std() < 300
    assert np.median(split.sizes) < 40
    split = splits.fedprox_femnist(np.repeat(np.arange(10), 4000))
    assert split.clients == 200
    assert np.all(split.sizes % 3 == 0)
    # Sizes + 1 - 5 are lognormal(4, 1) but for rounding to a multiple of 3.
    logs = np.log(np.maximum(split.sizes - 4, 1))
    assert logs.mean() == pytest.approx(4, abs=0.3)
    assert logs.std() == pytest.approx(1, abs=0.2)


Y = np.array([0, 1, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: splits.digits_p(Y, 4, 2), "digits_p: p = 4 is larger than the number of classes, 3"),
        (lambda: splits.digits_p(Y, 2, 7), "digits_p: 1 examples of each class are too few for 7 clients with p = 2"),
        (lambda: splits.digits_p(Y[:4], 1, 2), "digits_p: class 0 has 1 examples; every class needs two"),
        (lambda: splits.authors_classes(Y, 3), r"authors have files for p = \(1, 2, 5, 10\), not for p = 3"),
        (lambda: splits.of_classes(Y, [0, 1]), r"classes must be integers of shape \[clients, p\]"),
        (lambda: splits.of_classes(Y, [[3]]), r"of_classes: classes must be in 0 \.\. 2"),
        (lambda: splits.of_classes(Y, [[1], [1]]), "1 examples of each class are too few for the 2 clients"),
        (lambda: splits.fedprox_mnist(Y, 1), "fedprox_mnist: 1 clients need 5 examples of class 0, but it has 2"),
        (lambda: splits.fedprox_femnist(Y, 2), "fedprox_femnist: 2 clients need 4 examples of class 0, but it has 2"),
    ],
)
def test_bad_input_raises_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
