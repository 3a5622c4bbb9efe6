"""Losses: ours as PyTorch computes them, PyTorch's as criteria, and one that couples rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts, metrics
from fedloom.models import from_torch
from tests.federations import last
from tests.torch_twins import DATA, NET, OWNER, START, X, as_torch, nn, task, torch

losses = pytest.importorskip("fedloom.pytorch.losses")
RNG = np.random.default_rng(4)

PAIRS = {
    "labels": ("cross_entropy", RNG.normal(size=(5, 3)), RNG.integers(0, 3, 5)),
    "sequences": ("cross_entropy", RNG.normal(size=(5, 4, 3)), RNG.integers(0, 3, (5, 4))),
    "no such class": ("cross_entropy", RNG.normal(size=(5, 3)), np.array([0, 3, 1, -1, -100])),
    "large": ("cross_entropy", 1e3 * RNG.normal(size=(5, 3)), RNG.integers(0, 3, 5)),
    "one logit": ("binary_cross_entropy", RNG.normal(size=(5, 1)), RNG.integers(0, 2, 5)),
    "tags": ("binary_cross_entropy", 50 * RNG.normal(size=(5, 4)), RNG.integers(0, 2, (5, 4))),
    "numbers": ("squared_error", RNG.normal(size=(5, 1)), RNG.normal(size=5)),
    "images": ("squared_error", RNG.normal(size=(5, 2, 2)), RNG.normal(size=(5, 4))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_ours_are_the_same_in_pytorch(name):
    of, outputs, y = PAIRS[name]
    ours, theirs = getattr(metrics, of), getattr(losses, of)
    a = torch.tensor(outputs, requires_grad=True)
    found = theirs(a, torch.from_numpy(y))
    np.testing.assert_allclose(found.detach().numpy(), ours(jnp.asarray(outputs), jnp.asarray(y)), rtol=1e-12)
    weights = np.arange(1.0, 6)
    finite = np.isfinite(found.detach().numpy())
    (found[finite] @ torch.from_numpy(weights[finite])).backward()
    expected = jax.grad(lambda o: jnp.sum(jnp.where(finite, weights * ours(o, jnp.asarray(y)), 0)))(
        jnp.asarray(outputs)
    )
    np.testing.assert_allclose(a.grad.numpy()[finite], expected[finite], rtol=1e-10, atol=1e-14)
    if name == "no such class":
        assert finite.tolist() == [True, False, True, False, False]


def test_labels_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"Labels of shape \(5, 1\) do not match outputs of shape \(5, 3\)"):
        losses.cross_entropy(torch.zeros(5, 3), torch.zeros(5, 1, dtype=torch.int64))


@pytest.mark.parametrize("how", ["calls", "compiled", "jax"])
def test_a_loss_of_pytorch_is_a_criterion_of_any_model(how):
    """With a torch model it is computed in the same call as the model; with one in JAX in a call of its own."""
    criterion = metrics.from_torch(nn.CrossEntropyLoss(reduction="none"))
    theirs, w = task(how, criterion), START if how == "jax" else as_torch(START)
    args = (fl.SGD(0.1, batch_size=4), w, 2)
    one, two = (
        last(fl.simulate, fl.FedProx(mu=0.2), of.federation, *args, cohort=cohorts.uniform(3))
        for of in (theirs, task(how))
    )
    np.testing.assert_allclose(one.w, two.w, rtol=1e-12)
    assert theirs.evaluate(one.w)["test loss"] == pytest.approx(task(how).evaluate(one.w)["test loss"], rel=1e-12)


def test_a_loss_of_jax_works_with_a_torch_model():
    def smooth(outputs, y):
        return metrics.cross_entropy(outputs, y) + 0.1 * jnp.mean(outputs**2, axis=1)

    ours, theirs = task("jax", smooth), task("calls", smooth)
    args = (fl.SGD(0.1, batch_size=4), 2)
    a, b = (
        last(fl.simulate, fl.FedAvg(), of.federation, args[0], w, 2)
        for of, w in ((ours, START), (theirs, as_torch(START)))
    )
    np.testing.assert_allclose(b.w, as_torch(a.w), rtol=1e-12)


def test_pytorch_sees_the_rows_of_a_batch_and_no_others():
    """Batches and passes are filled up with copies of rows; those are left out before the call."""
    seen = []

    def recorded(outputs, y):
        seen.append(len(outputs))
        return nn.functional.cross_entropy(outputs, y, reduction="none")

    theirs = task("calls", metrics.from_torch(recorded))
    w = as_torch(START)
    seen.clear()
    sizes = DATA.split.sizes
    last(fl.simulate, fl.FedAvg(), theirs.federation, fl.SGD(0.1, batch_size=4), w, 1)
    expected = sorted(min(4, n - i) for n in sizes for i in range(0, n, 4))
    tried = [n for n in seen if n == 4]  # a trace tries the loss on a full batch of zeros
    assert sorted(n for n in seen if n < 4) == [n for n in expected if n < 4]
    assert len(tried) >= expected.count(4)
    assert max(seen) <= max(4, int(sizes.max()))


def test_a_call_without_rows_is_zero():
    theirs = task("calls")
    objective = theirs.federation.objective(0)
    none = np.zeros(2, bool)
    g = objective.batch_grad(as_torch(START), np.zeros(2, int), none, jax.random.key(0))
    np.testing.assert_array_equal(g, np.zeros(len(START)))


# Cox's partial likelihood: every row at risk is in the loss of those who die before it.


def cox(outputs, y):
    """Minus the mean log partial likelihood, as PyTorch users write it."""
    time, event = y[:, 0], y[:, 1]
    eta = outputs[:, 0]
    at_risk = torch.where(time[None, :] >= time[:, None], eta[None, :], -torch.inf)
    return -torch.sum(event * (eta - torch.logsumexp(at_risk, dim=1))) / len(time)


def cox_in_numpy(eta, time, event):
    total = 0.0
    for i in range(len(time)):
        if event[i]:
            total -= eta[i] - np.log(sum(np.exp(eta[j]) for j in range(len(time)) if time[j] >= time[i]))
    return total / len(time)


Z = np.stack([RNG.permutation(len(X)) + 1.0, RNG.integers(0, 2, len(X))], axis=1)
SURVIVAL = fl.by_client(X, Z, OWNER, test=0)
COUPLED = fl.Coupled(metrics.from_torch(cox))


def numpy_risk(w, k):
    """F_k of a linear model."""
    rows = np.asarray(SURVIVAL.split.rows(k))
    eta = X[rows] @ np.asarray(w)[:4] + w[4]
    return cox_in_numpy(eta, Z[rows, 0], Z[rows, 1])


def numpy_gradient(w, k, h=1e-6):
    return np.array([(numpy_risk(w + h * e, k) - numpy_risk(w - h * e, k)) / (2 * h) for e in np.eye(5)])


def survival(how):
    """A linear model: weights, then the bias, in PyTorch and here."""
    torch.manual_seed(2)
    if how == "calls":
        model = from_torch(nn.Linear(4, 1).double(), X[:2], compile=False)
    else:

        def apply(w, x, key):
            return (x @ w[:4] + w[4])[:, None]

        model = fl.models.Model("linear", lambda key: jnp.zeros(5), apply)
    return fl.Task("survival", SURVIVAL, model, criterion=COUPLED, metrics=()).load()


@pytest.mark.parametrize("how", ["calls", "jax"])
def test_a_loss_that_couples_rows(how):
    """Cox's loss in PyTorch against NumPy: of each client's own rows, and of no others."""
    found, w = survival(how), jnp.array([0.3, -0.2, 0.5, 0.1, 0.7])
    for k in range(SURVIVAL.clients):
        objective = found.federation.objective(k)
        np.testing.assert_allclose(objective.loss(w), numpy_risk(w, k), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(objective.grad(w), numpy_gradient(np.asarray(w), k), atol=1e-8)
    p = np.asarray(found.federation.weights)
    risks = [numpy_risk(w, k) for k in range(SURVIVAL.clients)]
    np.testing.assert_allclose(found.federation.loss(w), p @ risks, rtol=1e-12)
    record = last(fl.simulate, fl.FedAvg(), found.federation, fl.SGD(0.5, batch_size=None), w, 1)
    step = sum(p[k] * numpy_gradient(np.asarray(w), k) for k in range(SURVIVAL.clients))
    np.testing.assert_allclose(record.w, w - 0.5 * step, atol=1e-7)
    assert found.federation.on_host == (how == "calls")


def test_a_coupled_minibatch_is_the_loss_of_its_own_rows():
    found, w = survival("calls"), jnp.array([0.3, -0.2, 0.5, 0.1, 0.7])
    objective, positions = found.federation.objective(1), np.array([4, 2, 7, 0])
    mask = np.array([True, True, True, False])
    rows = np.asarray(SURVIVAL.split.rows(1))[positions[mask]]

    def batch_risk(w):
        return cox_in_numpy(X[rows] @ w[:4] + w[4], Z[rows, 0], Z[rows, 1])

    h, at = 1e-6, np.asarray(w)
    expected = [(batch_risk(at + h * e) - batch_risk(at - h * e)) / (2 * h) for e in np.eye(5)]
    g = objective.batch_grad(w, positions, mask, jax.random.key(0))
    np.testing.assert_allclose(g, expected, atol=1e-8)


# What is refused.


def per_position(outputs, y):
    return nn.functional.cross_entropy(outputs, y, reduction="none")[:, None].expand(-1, 2)


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))


REFUSED = {
    "a mean": (lambda: metrics.from_torch(nn.CrossEntropyLoss()), r"returns shape \(\); use reduction='none'.*Coupled"),
    "a matrix": (lambda: metrics.from_torch(per_position), r"each of 7 rows, but returns shape \(7, 2\)"),
    "a number": (lambda: metrics.from_torch(3), "must be a function of outputs and labels, got 3"),
    "no tensor": (lambda: metrics.from_torch(lambda o, y: 0.0), "must return a tensor, but returns float"),
    "other labels": (
        lambda: metrics.from_torch(nn.BCEWithLogitsLoss(reduction="none")),
        r"BCEWithLogitsLoss does not take outputs of shape \[7, 3\] and labels int32\[7\]",
    ),
    "its own parameters": (
        lambda: metrics.from_torch(Trained()),
        "has parameters of its own, which nobody would train",
    ),
    "not coupled": (
        lambda: fl.Coupled(metrics.from_torch(nn.CrossEntropyLoss(reduction="none"))),
        r"given as Coupled, so it must return one number for all rows, not shape",
    ),
    "as it is": (nn.CrossEntropyLoss, r"criterion is a loss of PyTorch; give it as metrics.from_torch\(loss\)"),
    "a function as it is": (lambda: nn.functional.cross_entropy, "criterion is a loss of PyTorch"),
}


def begun(how, criterion):
    model = fl.models.mlp(4, 3) if how == "jax" else from_torch(NET, X, compile=False)
    loaded = fl.Task("t", DATA, model, criterion).load()
    return fl.simulate(fl.FedAvg(), loaded.federation, fl.SGD(0.1, batch_size=2), loaded.w, 1)


@pytest.mark.parametrize("how", ["calls", "jax"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, how):
    make, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        begun(how, make())
