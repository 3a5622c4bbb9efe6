"""Sizes, splits at random, by shards and by key, and what all splits have in common."""

import collections
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedloom.data import splits
from fedloom.data.split import Split

SEEDS = st.integers(0, 2**40)
LABELS = np.random.default_rng(5).integers(0, 4, 60)
CALLS = {  # one of each
    "iid": (60, 7, 3),
    "iid_balanced": (LABELS, 7, 3),
    "dirichlet": (LABELS, 7, 0.3, 3),
    "latent_dirichlet": (LABELS, 7, 0.3, 3),
    "pachinko": (LABELS // 2, LABELS, 7, 3, 8),
    "digits_p": (LABELS, 2, 7, 3),
    "shards": (LABELS, 7, 2, 3),
    "by_key": (LABELS,),
    "fedprox_mnist": (LABELS, 3, 3),
    "fedprox_femnist": (LABELS, 3, 3),
}


def labels_and_clients(most=40, classes=5):
    labels = st.lists(st.integers(0, classes - 1), min_size=1, max_size=most).map(np.array)
    return labels.flatmap(lambda a: st.tuples(st.just(a), st.integers(1, len(a)) | st.just(len(a))))


def table(split, labels):
    classes = int(np.max(labels)) + 1
    return np.array([np.bincount(np.asarray(labels)[split.rows(k)], minlength=classes) for k in range(split.clients)])


def exhaustive(split, n):
    return sorted(split.order.tolist()) == list(range(n)) and bool(split.sizes.min() >= 1)


# What all have in common.


@pytest.mark.parametrize("name", splits.SPLITS)
def test_a_split_is_a_function_of_its_arguments(name):
    function = splits.SPLITS[name]
    assert function.__name__ == name
    *arguments, seed = CALLS[name] if name != "pachinko" else CALLS[name][:4]
    more = {"size": 8} if name == "pachinko" else {}
    first = function(*CALLS[name])
    assert isinstance(first, Split)
    assert first.order.max() < 60
    assert first.sizes.min() >= 1
    if name == "by_key":
        return
    again, other = (function(*arguments, seed=s, **more) for s in (np.int64(seed), seed + 1))
    np.testing.assert_array_equal(first.order, again.order)
    assert first.order.tolist() != other.order.tolist() or first.sizes.tolist() != other.sizes.tolist()
    for bad in (-1, 0.5, "1", None, True):
        with pytest.raises(ValueError, match="seed must be a non-negative integer, got "):
            function(*arguments, seed=bad, **more)


def test_splits_are_the_same_in_another_process():
    """With another seed of Python's hashes, for example."""
    code = (
        "from tests.test_splits import CALLS, splits\n"
        "print([splits.SPLITS[n](*a).order.tolist() for n, a in CALLS.items()])"
    )
    root = pathlib.Path(__file__).parent.parent
    env = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": str(root)}
    out = subprocess.run([sys.executable, "-c", code], cwd=root, env=env, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str([splits.SPLITS[n](*a).order.tolist() for n, a in CALLS.items()])


# Sizes.


@given(st.integers(1, 50), st.integers(0, 500), st.sampled_from([0.0, 0.3, 5.0, 1e6]), SEEDS)
@settings(deadline=None)
def test_sizes_are_positive_and_add_up(clients, more, spread, seed):
    n = clients + more
    balanced = splits.balanced_sizes(n, clients)
    assert balanced.sum() == n
    assert balanced.max() - balanced.min() <= 1
    assert splits.lognormal_sizes(n, clients, 0.0, seed).tolist() == balanced.tolist()
    assert sorted(splits.power_law_sizes(n, clients, 1e12, seed)) == sorted(balanced)
    for sizes in (
        splits.lognormal_sizes(n, clients, spread, seed),
        splits.power_law_sizes(n, clients, 1 / (spread + 0.1), seed),
    ):
        assert sizes.shape == (clients,)
        assert sizes.min() >= 1
        assert sizes.sum() == n


def test_sizes_have_the_distribution_that_they_are_named_after():
    """Standard deviation of the logarithm; maximum likelihood (Hill) estimate of the exponent."""
    clients, n = 20_000, 10**10
    for sigma in (0.3, 1.0):
        logs = np.log(splits.lognormal_sizes(n, clients, sigma, 1))
        assert logs.std() == pytest.approx(sigma, rel=0.02)
        assert stats.kstest((logs - logs.mean()) / sigma, "norm").pvalue > 1e-3
    for exponent in (1.5, 3.0):
        sizes = splits.power_law_sizes(n, clients, exponent, 1)
        assert 1 / np.log(sizes / sizes.min()).mean() == pytest.approx(exponent, rel=0.03)


# At random, by shards, by key.


@given(labels_and_clients(), SEEDS, st.data())
@settings(deadline=None)
def test_iid(case, seed, data):
    labels, clients = case
    split = splits.iid(len(labels), clients, seed)
    assert exhaustive(split, len(labels))
    assert split.sizes.tolist() == splits.balanced_sizes(len(labels), clients).tolist()
    sizes = data.draw(st.permutations([1] * (clients - 1) + [len(labels) - clients + 1]))
    split = splits.iid(len(labels), clients, seed, sizes)
    assert exhaustive(split, len(labels))
    assert split.sizes.tolist() == sizes


ONE_CLASS = np.zeros(4, int)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: splits.iid(4, 2, seed),
        lambda seed: splits.iid_balanced(ONE_CLASS, 2, seed),
        lambda seed: splits.dirichlet(ONE_CLASS, 2, 0.3, seed),
        lambda seed: splits.latent_dirichlet(ONE_CLASS, 2, 0.3, seed),
        lambda seed: splits.pachinko(ONE_CLASS, ONE_CLASS, 2, seed, 2),
    ],
    ids=["iid", "iid_balanced", "dirichlet", "latent_dirichlet", "pachinko"],
)
def test_examples_of_a_class_are_dealt_out_at_random(make):
    """All permutations are equally likely."""
    seen = collections.Counter(tuple(make(seed).order.tolist()) for seed in range(1200))
    assert len(seen) == 24
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_functions_with_the_same_seed_do_not_share_random_numbers():
    """Both are a permutation of a hundred rows; were it the same, large clients could also be those with few labels."""
    assert splits.iid(100, 100, 8).order.tolist() != splits.shards(np.zeros(100, int), 100, 1, 8).order.tolist()


@given(labels_and_clients(), SEEDS)
@settings(deadline=None)
def test_iid_balanced(case, seed):
    labels, clients = case
    split = splits.iid_balanced(labels, clients, seed)
    assert exhaustive(split, len(labels))
    assert np.all(np.ptp(table(split, labels), axis=0) <= 1)
    assert np.ptp(split.sizes) <= 1


def test_iid_balanced_is_exact_where_it_can_be_and_fair_where_it_cannot():
    labels = np.tile(np.arange(100), 500)
    assert np.all(table(splits.iid_balanced(labels, 100, 0), labels) == 5)
    lucky = [int(splits.iid_balanced([0] * 5, 4, seed).sizes.argmax()) for seed in range(800)]
    assert stats.chisquare(np.bincount(lucky)).pvalue > 1e-3


@given(labels_and_clients(), st.integers(1, 3), SEEDS)
@settings(deadline=None)
def test_shards_are_pieces_of_the_sorted_rows(case, per_client, seed):
    labels, clients = case
    if len(labels) < clients * per_client:
        with pytest.raises(ValueError, match=f"examples are too few for {clients * per_client} shards"):
            splits.shards(labels, clients, per_client, seed)
        return
    split = splits.shards(labels, clients, per_client, seed)
    assert exhaustive(split, len(labels))
    pieces = np.array_split(np.argsort(labels, kind="stable"), clients * per_client)
    for k in range(clients):
        own = set(split.rows(k).tolist())
        assert sum(set(piece.tolist()) <= own for piece in pieces) == per_client


def test_shards_of_mcmahan():
    """200 shards of 300 images that have two labels at most, so clients have at most four; most have two."""
    labels = np.random.default_rng(0).integers(0, 10, 60_000)
    split = splits.shards(labels, 100, 2, seed=0)
    assert split.sizes.tolist() == [600] * 100
    labels = (table(split, labels) > 0).sum(axis=1)
    assert labels.max() <= 4
    assert np.median(labels) == 2


@given(st.lists(st.integers(-3, 3), min_size=1) | st.lists(st.text(max_size=2), min_size=1))
@settings(deadline=None)
def test_by_key_groups_the_rows(keys):
    split = splits.by_key(keys)
    keys = np.asarray(keys).tolist()  # NumPy's strings end before a final NUL
    groups = {key: [i for i, k in enumerate(keys) if k == key] for key in sorted(set(keys))}
    assert [split.rows(k).tolist() for k in range(split.clients)] == list(groups.values())
    assert split.names.tolist() == [str(key) for key in groups]


def test_by_key_takes_what_sources_have():
    assert splits.by_key(np.array([b"f1", b"f0", b"f1"])).names.tolist() == ["f0", "f1"]
    assert splits.by_key(np.array([b"\xc3\xa9", b"a"], dtype=object)).names.tolist() == ["a", "é"]
    assert splits.by_key(np.array(["b", "a"], dtype=object)).order.tolist() == [1, 0]
    keys = np.random.default_rng(0).integers(0, 300_000, 10**6)
    begin = time.process_time()
    split = splits.by_key(keys)
    train, test = splits.train_test(split, 0)
    some = train.take(np.arange(split.clients)[::-1])
    assert time.process_time() - begin < 6
    assert np.all(np.diff(keys[split.order]) >= 0)
    assert len(train.order) + len(test.order) == 10**6
    assert np.all(np.diff(keys[some.order]) <= 0)


# Train and test.


@given(st.lists(st.integers(0, 30), min_size=1, max_size=10), SEEDS, st.sampled_from([0.1, 0.5, 0.8, 0.9]))
@settings(deadline=None)
def test_train_test(sizes, seed, fraction):
    split = Split(np.arange(sum(sizes))[::-1] + 5, np.array(sizes), [f"c{k}" for k in range(len(sizes))])
    train, test = splits.train_test(split, seed, fraction)
    for k, n in enumerate(sizes):
        assert sorted([*train.rows(k), *test.rows(k)]) == sorted(split.rows(k))
        assert train.sizes[k] == max(int(fraction * n), min(n, 1))
    assert train.names.tolist() == test.names.tolist() == split.names.tolist()


def test_train_test_shuffles_every_client():
    _, test = splits.train_test(Split(np.arange(20_000), np.full(2000, 10)), seed=0)
    assert stats.chisquare(np.bincount(test.order % 10, minlength=10)).pvalue > 1e-3


Y = np.array([0, 1, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: splits.balanced_sizes(3, 4), "balanced_sizes: 3 examples are too few for 4 clients"),
        (lambda: splits.balanced_sizes(3.5, 2), "balanced_sizes: n must be a positive integer, got 3.5"),
        (lambda: splits.lognormal_sizes(9, 4, -1, 0), r"lognormal_sizes: sigma must be a number in \[0, 1e\+12\]"),
        (lambda: splits.power_law_sizes(9, 4, 0, 0), "power_law_sizes: exponent must be a number in"),
        (lambda: splits.iid(0, 1, 0), "iid: n must be a positive integer, got 0"),
        (lambda: splits.iid(5, 2, 0, [3, 3]), "iid: sizes add up to 6, but there are 5 examples"),
        (lambda: splits.iid(5, 2, 0, [2.0, 3.0]), "iid: sizes must be 2 positive integers"),
        (lambda: splits.iid_balanced([], 2, 0), "iid_balanced: labels must be a one-dimensional array"),
        (lambda: splits.iid_balanced([True, False], 2, 0), "iid_balanced: labels must be .* got bool"),
        (lambda: splits.iid_balanced(["a", "b"], 2, 0), "iid_balanced: labels must be a one-dimensional array"),
        (lambda: splits.shards(Y, 2, 0, 0), "shards: per_client must be a positive integer, got 0"),
        (lambda: splits.by_key([]), r"by_key: keys must be one-dimensional, .*got shape \(0,\)"),
        (lambda: splits.by_key([1.0, np.nan]), "by_key: the key of example 1 is nan"),
        (lambda: splits.by_key(np.array([1, "a"], dtype=object)), "by_key: keys must be of the same type"),
        (lambda: splits.train_test(splits.by_key(Y), 0, 1.0), r"train_test: fraction must be a number in \(0, 1\)"),
    ],
)
def test_bad_input_raises_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
