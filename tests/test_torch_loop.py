"""A training loop of PyTorch as a solver: our SGD where it is one, the terms of every method, and what is refused."""

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.models import from_torch
from tests.cases import CASES
from tests.federations import bits, last
from tests.torch_twins import DATA, NET, START, X, as_torch, model, nn, task, torch

W = as_torch(START)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, weight_decay=0.05)


SAME = fl.SGD(0.1, weight_decay=0.05, batch_size=None)
PLAIN = fl.TorchLoop(sgd, batch_size=None)


def by_hand(module, optimizer, batches):
    """The usual loop, as somebody would write it who has a criterion of their own."""
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()


def by_closure(module, optimizer, batches):
    for x, y in batches:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def in_halves(module, optimizer, batches):
    """Gradients that are accumulated: the terms are to be added once for each step."""
    for x, y in batches:
        optimizer.zero_grad()
        for part in (slice(0, None, 2), slice(1, None, 2)):
            if len(y[part]):
                (nn.functional.cross_entropy(module(x[part]), y[part], reduction="sum") / len(y)).backward()
        optimizer.step()


def run(algorithm, solver, engine=fl.simulate, rounds=3, **more):
    rule = cohorts.everyone() if algorithm.needs_everyone else cohorts.uniform(3)
    federation = task("calls").federation
    return last(engine, algorithm, federation, solver, W, rounds, cohort=rule, seed=1, **more)


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a.server), jax.tree.leaves(b.server), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    for k in b.clients:
        for x, y in zip(jax.tree.leaves(a.clients[k]), jax.tree.leaves(b.clients[k]), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    assert a.counters == b.counters


WITHOUT_ACCUMULATOR = {n: c.algorithm for n, c in CASES.items() if "accumulator" not in c.algorithm.needs}


@pytest.mark.parametrize(
    "name",
    list(WITHOUT_ACCUMULATOR)[::3],
)
def test_plain_sgd_on_all_rows_is_our_sgd_with_every_method(name):
    """Linear terms, anchors, both, and none; a wrong sign or a lost factor shows here."""
    algorithm = WITHOUT_ACCUMULATOR[name]
    assert_same(run(algorithm, PLAIN), run(algorithm, SAME))


@pytest.mark.parametrize("train", [by_hand, by_closure, in_halves])
def test_a_loop_of_ones_own_gets_the_terms_too(train):
    """FedDyn has a linear term and an anchor. What such a loop does not offer is not needed here."""
    for algorithm in (fl.FedDyn(alpha=0.3), fl.FedDANE(mu=0.5)):
        theirs = run(algorithm, fl.TorchLoop(sgd, train, batch_size=None), rounds=3)
        assert_same(theirs, run(algorithm, SAME, rounds=3))


@pytest.mark.parametrize("engine", [fl.reference, fl.events])
def test_other_engines(engine):
    more = {"buffer": 3} if engine is fl.events else {}
    assert_same(run(fl.Scaffold(), PLAIN, engine, 2, **more), run(fl.Scaffold(), SAME, rounds=2))


def test_stragglers_do_a_part_of_the_epochs():
    rule = cohorts.stragglers(of=cohorts.uniform(4), share=0.7)
    args = (fl.FedProx(mu=0.2), task("calls").federation)
    loop, ours = fl.TorchLoop(sgd, epochs=4, batch_size=None), fl.SGD(0.1, weight_decay=0.05, batch_size=None, epochs=4)
    one, two = (last(fl.simulate, *args, solver, W, 3, cohort=rule, seed=3) for solver in (loop, ours))
    assert_same(one, two)


def test_any_optimizer_with_minibatches():
    """Adam by hand, on the batches that the loop itself was given."""
    seen = []

    def recorded(module, optimizer, batches):
        for x, y in batches:
            seen.append((x.clone(), y.clone()))
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()

    rule = cohorts.scheduled([[1]])
    solver = fl.TorchLoop(lambda p: torch.optim.Adam(p, lr=0.01), recorded, batch_size=3)
    found = last(fl.simulate, fl.FedProx(mu=0.7), task("calls").federation, solver, W, 1, cohort=rule)
    n = int(DATA.split.sizes[1])
    assert [len(y) for _, y in seen] == [3] * (n // 3) + ([n % 3] if n % 3 else [])
    rows = np.asarray(DATA.train[0])[DATA.split.rows(1)]
    assert sorted(torch.cat([x for x, _ in seen]).numpy().tolist()) == sorted(rows.tolist())
    w, m, v = np.array(W), 0, 0
    for t, (x, y) in enumerate(seen, start=1):
        g = torch.autograd.functional.jacobian(
            lambda w, x=x, y=y: nn.functional.cross_entropy(forward(w, x), y), torch.from_numpy(w)
        ).numpy() + 0.7 * (w - W)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(found.w, w, rtol=1e-9, atol=1e-12)
    assert found.counters.gradients == n


def forward(w, x):
    a, b, c, d = w.split([20, 5, 15, 3])
    return torch.relu(x @ a.view(5, 4).T + b) @ c.view(3, 5).T + d


def test_batches_are_shuffled_anew_by_key_and_pass():
    orders = []

    def passes(module, optimizer, batches):
        assert len(batches) == len(list(batches))
        for _ in range(2):
            orders.append(torch.cat([y for _, y in batches]).tolist() + [x.sum().item() for x, _ in batches])
        by_hand(module, optimizer, batches)

    solver = fl.TorchLoop(sgd, passes, batch_size=2)
    records = [run(fl.FedAvg(), solver, rounds=2) for _ in range(2)]
    assert bits(records[0].server) == bits(records[1].server)
    half = len(orders) // 2
    assert orders[:half] == orders[half:]
    assert len({tuple(o) for o in orders[:half]}) > half // 2


def test_dropout_in_a_loop_follows_from_the_key_and_leaves_the_generator_alone():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 20), nn.Dropout(0.5), nn.Linear(20, 3)).double()
    found = fl.Task("t", DATA, from_torch(net, X[:2], compile=False)).load()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    args = (fl.FedAvg(), found.federation, PLAIN, found.w, 2)
    one, again, other = (last(fl.simulate, *args, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert bits(one.w) == bits(again.w)
    assert np.abs(one.w - other.w).max() > 1e-4


def test_forward_passes_that_can_be_differentiated_are_counted():
    """A closure that is called again counts again; a look at the loss without gradients does not."""

    def looks(module, optimizer, batches):
        for x, _ in batches:
            with torch.no_grad():
                module(x)
        by_closure(module, optimizer, batches)

    def lbfgs(parameters):
        return torch.optim.LBFGS(parameters, lr=0.1, max_iter=3, tolerance_grad=0, tolerance_change=0)

    rule = cohorts.scheduled([[1]])
    args = (fl.FedAvg(), task("calls").federation, fl.TorchLoop(lbfgs, looks, batch_size=None), W, 1)
    record = last(fl.simulate, *args, cohort=rule)
    assert record.counters.gradients == 3 * int(DATA.split.sizes[1])


def test_a_closure_is_given_the_value_of_the_terms_too():
    """A line search compares values: it finds the minimiser of F_k(v) + mu/2 |v - w|^2, where the gradient is 0."""

    def lbfgs(parameters):
        return torch.optim.LBFGS(parameters, max_iter=100, line_search_fn="strong_wolfe", tolerance_change=0)

    torch.manual_seed(0)
    smooth = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    found = fl.Task("t", DATA, from_torch(smooth, X[:2], compile=False)).load()
    solver, rule = fl.TorchLoop(lbfgs, by_closure, batch_size=None), cohorts.scheduled([[1]])
    v = last(fl.simulate, fl.FedProx(mu=0.5), found.federation, solver, found.w, 1, cohort=rule).w
    assert np.abs(v - found.w).max() > 0.1
    assert np.linalg.norm(found.federation.objective(1).grad(v) + 0.5 * (v - found.w)) < 1e-6


def test_nothing_of_a_client_stays_for_the_next():
    """The module has its own parameters again, and no gradients."""
    run(fl.Scaffold(), PLAIN)
    host = model("calls").own.__self__
    for p, own in zip(host.parameters, NET.parameters(), strict=True):
        assert torch.equal(p, own)
        assert p.grad is None


# What it offers, and what is refused.


def test_what_it_offers():
    plain = {"work", "lr_sum"}
    assert PLAIN.offers == plain
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1, maximize=True),
        lambda p: torch.optim.SGD([{"params": p, "lr": 0.1}, {"params": [torch.zeros(1)]}], lr=0.2),
        lambda p: torch.optim.Adam(p),
        lambda p: torch.optim.SGD(p[1:], lr=0.1),
    ):
        assert fl.TorchLoop(make).offers == {"work"}
    assert fl.TorchLoop(sgd, by_hand).offers == set()


def idle(module, optimizer, batches):
    pass


CALLS, JAX = (lambda: task("calls")), (lambda: task("jax"))
LOOP = fl.TorchLoop(sgd)
REFUSED = {
    "lr_sum": (
        fl.Scaffold(option="II"),
        fl.TorchLoop(torch.optim.Adam),
        CALLS,
        None,
        "offers lr_sum, which TorchLoop.*or TorchLoop with plain torch.optim.SGD and without `train`",
    ),
    "work": (
        fl.FedAvg(),
        fl.TorchLoop(sgd, by_hand),
        CALLS,
        cohorts.stragglers(of=cohorts.uniform(3), share=0.5),
        "offers work, which TorchLoop.*such as SGD, or TorchLoop without `train`",
    ),
    "jax": (
        fl.Scaffold(),
        LOOP,
        JAX,
        None,
        r"TorchLoop needs a task whose model is fl.models.from_torch\(module, x, com",
    ),
    "compiled": (fl.FedAvg(), LOOP, lambda: task("compiled"), None, "compile=False"),
    "quadratics": (fl.FedAvg(), LOOP, lambda: fl.load("quadratics"), None, "TorchLoop needs a task whose model"),
    "a criterion of JAX": (
        fl.FedAvg(),
        LOOP,
        lambda: task("calls", lambda o, y: fl.metrics.cross_entropy(o, y)),
        None,
        r"criterion is a function of JAX, .*metrics.from_torch\(loss\), or give a `train`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    algorithm, solver, make, rule, words = REFUSED[name]
    loaded = make()
    with pytest.raises(ValueError, match=words):
        fl.simulate(algorithm, loaded.federation, solver, loaded.w, 1, cohort=rule)


def test_a_loop_that_does_not_use_its_optimizer_is_an_error():
    with pytest.raises(Exception, match="took no step with the optimizer"):
        run(fl.FedAvg(), fl.TorchLoop(sgd, idle), rounds=1)


def test_a_criterion_of_jax_does_not_matter_to_a_loop_of_ones_own():
    loaded = task("calls", lambda o, y: fl.metrics.cross_entropy(o, y))
    one = last(fl.simulate, fl.FedAvg(), loaded.federation, fl.TorchLoop(sgd, by_hand, batch_size=None), W, 1)
    two = last(fl.simulate, fl.FedAvg(), task("calls").federation, SAME, W, 1)
    np.testing.assert_allclose(one.w, two.w, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"optimizer": 3}, "optimizer must be a function that makes an optimizer of parameters, such as"),
        ({"optimizer": sgd, "train": 3}, "train must be a function train"),
        ({"optimizer": sgd, "train": by_hand, "epochs": 2}, "makes its own passes over the batches; leave epochs out"),
        ({"optimizer": sgd, "batch_size": 0}, "batch_size must be a positive integer, or None"),
    ],
)
def test_wrong_fields(given, words):
    with pytest.raises(ValueError, match=words):
        fl.TorchLoop(**given)
