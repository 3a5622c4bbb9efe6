"""Federated data: who owns what, what it is described as, and what is refused."""

import itertools
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom.data import Dataset, FederatedData, Split, by_client, federated, held_out, natural

RNG = np.random.default_rng(0)
SIZES = np.array([3, 1, 40, 300, 7])
N = SIZES.sum() + 10  # ten rows belong to no client
ORDER = RNG.permutation(N)[: SIZES.sum()]
X = RNG.normal(size=(N, 3))
Y = np.sign(RNG.normal(size=N))
W = jnp.array([0.4, -1.2, 0.7])
SPLIT = Split(ORDER, SIZES)


def logistic(w, rows, key):
    x, y = rows
    return jnp.logaddexp(0.0, -y * (x @ w))


SHUFFLED = fl.examples((X, Y), SPLIT, logistic, weights=[0.1, 0.4, 0.0, 0.3, 0.2])
SORTED = fl.examples((X[ORDER], Y[ORDER]), SIZES, logistic, weights=[0.1, 0.4, 0.0, 0.3, 0.2])


# A split is as good as rows in order.


def test_a_split_gives_the_federation_that_sorted_rows_give():
    for k in range(len(SIZES)):
        a, b = SHUFFLED.objective(k), SORTED.objective(k)
        np.testing.assert_allclose(a.loss(W), b.loss(W), rtol=1e-13)
        np.testing.assert_allclose(a.grad(W), b.grad(W), rtol=1e-12)


def test_training_on_a_split_is_training_on_sorted_rows():
    solver = fl.SGD(0.1, batch_size=4)
    runs = [list(fl.simulate(fl.Scaffold(), f, solver, W, 3, cohort=fl.cohorts.uniform(3))) for f in (SHUFFLED, SORTED)]
    np.testing.assert_array_equal(runs[0][-1].w, runs[1][-1].w)


@pytest.mark.parametrize("federation", [SHUFFLED, SORTED], ids=["split", "sorted"])
def test_the_population_is_the_weighted_sum_over_clients(federation):
    """One pass over all examples, against the definition sum_k p_k F_k. A client has weight 0, one has most rows."""
    objectives = [federation.objective(k) for k in range(len(SIZES))]
    p = np.asarray(federation.weights)
    want = sum(p[k] * objectives[k].loss(W) for k in range(len(SIZES)))
    np.testing.assert_allclose(federation.loss(W), want, rtol=1e-12)
    gradient = sum(p[k] * objectives[k].grad(W) for k in range(len(SIZES)))
    np.testing.assert_allclose(federation.grad(W), gradient, rtol=1e-11, atol=1e-14)


def test_the_store_is_not_copied_by_a_split():
    x = jnp.asarray(X)
    assert fl.examples((x, jnp.asarray(Y)), SPLIT, logistic).store[0] is x


# Bringing one's own arrays.


def test_by_client_holds_out_a_share_of_each_client():
    names = np.repeat(["b", "a", "c"], [20, 10, 31])
    x, y = np.arange(61.0), np.arange(61) % 4
    data = by_client(x, y, names, test=0.2, seed=3)
    assert list(data.split.names) == ["a", "b", "c"]
    assert data.split.sizes.tolist() == [8, 16, 24]
    assert data.test_split.sizes.tolist() == [2, 4, 7]
    assert data.classes == 4
    for k, name in enumerate(data.split.names):
        train, test = x[data.split.rows(k)], data.test[0][data.test_split.rows(k)]
        assert sorted([*train, *test]) == list(x[names == name])
        np.testing.assert_array_equal(data.test[1][data.test_split.rows(k)], test % 4)


def test_by_client_without_a_test_share_trains_on_everything():
    data = by_client(np.ones((4, 2)), np.array([0.5, 0.1, 2.0, 1.0]), [1, 0, 1, 0], test=0)
    assert data.test is None
    assert data.classes is None
    assert data.split.sizes.tolist() == [2, 2]


def test_by_client_with_lists_and_with_clients_too_small_to_spare_an_example():
    data = by_client([[1.0], [2.0], [3.0]], [0, 1, 1], ["a", "b", "c"])
    assert data.test is None
    assert data.split.sizes.tolist() == [1, 1, 1]


@pytest.mark.parametrize("test", [0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
def test_by_client_holds_out_whole_shares_exactly(test):
    data = by_client(np.ones((100, 1)), np.zeros(100, int), np.zeros(100), test=test)
    assert data.test_split.sizes.tolist() == [round(100 * test)]


def test_natural_clients_keep_their_own_test_examples():
    keys, test_keys = np.array(["x", "z", "x", "y", "x"]), np.array(["z", "w", "x", "z"])
    dataset = Dataset(np.arange(5), np.zeros(5, int), np.arange(4), np.zeros(4, int), keys, test_keys, classes=1)
    data = natural(dataset)
    assert data.split.names.tolist() == ["x", "y", "z"]
    assert [data.split.rows(k).tolist() for k in range(3)] == [[0, 2, 4], [3], [1]]
    assert [data.test_split.rows(k).tolist() for k in range(3)] == [[2], [], [0, 3]]
    assert len(data.test[1]) == 4  # w's example is in the global test set, though w does not train
    large = natural(dataset, at_least=2)
    assert large.split.names.tolist() == ["x"]
    assert large.test_split.rows(0).tolist() == [2]


def test_natural_clients_that_share_nobody_with_the_test_set():
    dataset = Dataset(
        np.arange(2), np.zeros(2, int), np.arange(2), np.zeros(2, int), np.array([1, 2]), np.array([3, 0])
    )
    assert natural(dataset).test_split is None


# Descriptions.


def test_description_of_a_small_split():
    """Client 0: one class. Client 1: halves. Client 2: 5, 3, 1, 1 of four, so 1, 2, 2 classes cover 40, 60, 80%."""
    y = np.array([0] * 4 + [0, 0, 1, 1] + [0] * 5 + [1] * 3 + [2, 3])
    data = FederatedData((y, y), Split(np.arange(18), np.array([4, 4, 10])), classes=5)
    d = data.describe()
    assert d.labels.tolist() == [11, 5, 1, 1, 0]
    p = np.array([0.5, 0.3, 0.1, 0.1])
    np.testing.assert_allclose(d.entropy, [0, 1, -(p * np.log2(p)).sum()], atol=1e-12)
    everybody = d.labels / 18
    np.testing.assert_allclose(d.distance[0], 1 - everybody[0], atol=1e-12)
    assert [d.covering[c].tolist() for c in (0.4, 0.6, 0.8)] == [[1, 1, 1], [1, 2, 2], [1, 2, 2]]
    assert "3 clients, 18 training examples" in str(d)


def test_description_in_blocks(monkeypatch):
    """The table of labels by clients is made a few clients at a time."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 7, 500)
    data = federated(Dataset(y, y, classes=7), fl.splits.dirichlet(y, 40, 0.3, 0))
    whole = data.describe()
    monkeypatch.setattr("fedloom.data.describe._CELLS", 30)
    parts = data.describe()
    np.testing.assert_array_equal(whole.entropy, parts.entropy)
    np.testing.assert_array_equal(whole.covering[0.6], parts.covering[0.6])


def test_description_without_labels():
    data = by_client(np.ones((4, 2)), np.array([0.5, 0.1, 2.0, 1.0]), [1, 0, 1, 0], test=0)
    assert data.describe().labels is None
    assert "labels" not in str(data.describe())


def test_iid_data_are_covered_by_4_6_and_8_of_10_classes():
    """What the text of the FedDyn paper says about its figure 3."""
    y = np.tile(np.arange(10), 1000)
    covering = federated(Dataset(y, y, classes=10), fl.splits.iid_balanced(y, 20, seed=0)).describe().covering
    assert {c: set(n.tolist()) for c, n in covering.items()} == {0.4: {4}, 0.6: {6}, 0.8: {8}}


# Bad input.


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fl.examples((X, Y), Split(np.array([N]), np.array([1])), logistic), rf"row {N}, but .* \[{N}\] rows"),
        (lambda: FederatedData((X, Y[1:]), SPLIT), "the same number of rows"),
        (lambda: FederatedData((X[:9], Y[:9]), SPLIT), "assigns row .* only 9 rows"),
        (lambda: FederatedData((X, Y), Split(ORDER, np.append(SIZES, 0))), "Client 5 has no training example"),
        (lambda: FederatedData((X, Y), SPLIT, (X, Y), Split(ORDER[:1], np.array([1]))), "test_split has 1 clients"),
        (lambda: by_client(X, Y, np.zeros(3)), f"owner of each of {N} examples"),
        (lambda: by_client(X, Y, np.zeros(N), test=1.0), r"test must be a share in \[0, 1\)"),
        (lambda: by_client(X, Y, np.zeros(N), test="0.1"), "test must be a share"),
        (lambda: by_client(X, ["a"] * N, np.zeros(N)), "y must be an array of numbers"),
        (lambda: by_client(3.0, Y, np.zeros(N)), "x must be an array of numbers"),
        (lambda: by_client(X, np.full(N, 2**40), np.zeros(N)), "1099511627777 classes; labels must be numbered 0, 1"),
        (lambda: by_client(X, Y, np.full(N, np.nan)), "the key of example 0 is nan"),
        (lambda: by_client(X, Y, np.full(N, np.datetime64("NaT"))), "the key of example 0 is NaT"),
        (lambda: FederatedData([X, Y], SPLIT), r"train must be a pair \(x, y\)"),
        (lambda: FederatedData((X, Y), SPLIT, (X, Y[1:])), "test: the arrays must all have the same number of rows"),
        (lambda: FederatedData((X, Y), SPLIT, (X[:0], Y[:0])), "test has no examples"),
        (lambda: FederatedData((X, Y), SPLIT, classes=3), "train labels must be integers, got float64"),
        (lambda: by_client(X[:5], Y, np.zeros(N)), f"train has {N} labels but 5 entries in x"),
        (lambda: natural(Dataset(X, Y)), "does not say who owns"),
        (lambda: natural(Dataset(X, Y, keys=np.arange(N)), at_least=2), "no client has 2 examples; the largest has 1"),
        (lambda: Dataset(X, np.full(N, 3), classes=3), r"labels must be in 0 .. 2, but go from 3 to 3"),
        (lambda: Dataset(X, np.full(N, -1), classes=3, origin="here"), "here: train labels must be in 0"),
    ],
)
def test_bad_data_raise_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# Scale.

MILLION = """
import numpy as np
import fedloom as fl

n = 1_000_000
data = fl.data.synthetic(1.0, 1.0, clients=n, features=10, classes=5, sizes=np.full(n, 4), seed=0)
task = fl.Task("a million", data, fl.models.logistic(10, 5)).load()
run = fl.simulate(fl.Scaffold(), task.federation, fl.SGD(0.1, batch_size=2), task.w, 3, cohort=fl.cohorts.uniform(100))
*_, last = run
before, after = (task.evaluate(w, ["train"]) for w in (task.w, last.w))
assert after["train loss"] < before["train loss"]
assert len(task.by_client(last.w)["accuracy"].values) == n
assert len(data.describe().entropy) == n
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads its own size where Linux keeps it")
def test_a_million_clients_fit_in_a_gigabyte():
    """Data, a federation, three rounds of a method with client memories, evaluation by client, and a description."""
    done = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 2**20  # its largest size so far, in KiB


def test_what_is_held_out_is_drawn_with_the_seed():
    rows = np.arange(60)
    dataset = Dataset(rows[:, None].astype(np.float32), rows % 3, classes=3)
    split = Split(rows, np.array([10, 20, 30]))

    def tested(seed):
        data = held_out(dataset, split, 0.8, seed)
        test = np.asarray(data.test[0])[:, 0]
        assert sorted(np.concatenate([data.split.order, test])) == list(rows)  # each example is on one side
        assert data.test_split.sizes.tolist() == [2, 4, 6]
        return set(test)

    drawn = [tested(seed) for seed in range(5)]
    assert tested(0) == drawn[0]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))
