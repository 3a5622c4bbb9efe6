"""A round costs what the examples of its cohort cost, for every solver, whatever their sizes: the work is counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.data.passes import chunk_width, sum_of_pass
from fedloom.engines.plan import Plan
from fedloom.testing import relative_difference

SIZES = np.minimum(np.random.default_rng(1).lognormal(4, 2, 30).astype(int) + 50, 2000)
D = 3
computed = [0]


def _count(y):
    computed[0] += np.size(y)


def loss(w, rows, key):
    x, y = rows
    jax.debug.callback(_count, y)  # vectorised, it is called for each lane
    return (x @ w - y) ** 2 / 2


def federation(sizes=SIZES):
    rng, n = np.random.default_rng(2), int(np.sum(sizes))
    return fl.examples((rng.normal(size=(n, D)), rng.normal(size=n)), np.asarray(sizes), loss)


FEDERATION = federation()
SGD = fl.SGD(0.01, batch_size=10)
SOLVERS = {
    "sgd": SGD,
    "steps": fl.SGD(0.01, batch_size=10, steps=4),
    "all at once": fl.SGD(0.01, batch_size=None),
    "gd": fl.GD(0.1, steps=2),
    "tolerance": fl.ToTolerance(1e-2, lr=0.3),
    "exact": fl.Exact(),
    "adagrad": fl.Adagrad(0.01, batch_size=10),
}
RULES = {
    "uniform": cohorts.uniform(10),
    "bernoulli": cohorts.bernoulli(1 / 3),
    "stragglers": cohorts.stragglers(of=cohorts.uniform(10), share=0.5),
}
PASSES = {"exact": 3}  # it counts as one gradient, but goes through the examples three times


def work(algorithm, solver, rule, clients=FEDERATION, **options):
    """Examples computed, and examples needed, in three rounds."""
    records = fl.simulate(algorithm, clients, solver, np.zeros(D), 3, cohort=rule, **options)
    jax.effects_barrier()
    before = computed[0]  # trials before the run are not its work
    needed = list(records)[-1].counters.gradients
    jax.effects_barrier()
    return computed[0] - before, needed


def check(algorithm, solver, rule, passes=1, **options):
    done, needed = work(algorithm, solver, rule, **options)
    assert passes * needed <= done < 1.1 * passes * needed, done / needed


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "exact"])
@pytest.mark.parametrize("rule", RULES)
def test_every_solver(solver, rule):
    check(fl.FedAvg(), SOLVERS[solver], RULES[rule])


@pytest.mark.parametrize("rule", ["uniform", "bernoulli"])
def test_exact(rule):
    check(fl.FedAvg(), SOLVERS["exact"], RULES[rule], PASSES["exact"])


@pytest.mark.parametrize(
    ("algorithm", "solver"),
    [(fl.FedDANE(), "sgd"), (fl.FedDANE(), "steps"), (fl.FedSGD(), "gd"), (fl.Scaffold(), "sgd")],
    ids=["FedDANE", "FedDANE, steps", "FedSGD", "SCAFFOLD"],
)
def test_methods_that_ask_for_gradients(algorithm, solver):
    check(algorithm, SOLVERS[solver], RULES["bernoulli"])


@pytest.mark.parametrize("plan", [Plan(10), Plan(4, 2)], ids=str)
@pytest.mark.parametrize("solver", ["sgd", "gd", "tolerance"])
def test_every_plan(solver, plan):
    check(fl.FedDANE(), SOLVERS[solver], RULES["uniform"], plan=plan)


def test_one_client_that_is_larger_than_all_others():
    clients = federation([2000] + [20] * 19)
    for solver in ("gd", "all at once"):
        check(fl.FedAvg(), SOLVERS[solver], cohorts.everyone(), clients=clients)


# The same numbers, whoever is beside whom.


@pytest.mark.parametrize("solver", ["sgd", "all at once", "tolerance"])
def test_lanes_agree_with_one_client_at_a_time(solver):
    def run(plan, rule):
        records = fl.simulate(
            fl.FedDANE(mu=0.5), FEDERATION, SOLVERS[solver], jnp.ones(D), 2, cohort=rule, plan=plan, chunk=2
        )
        return list(records)[-1]

    alone = run(Plan(1), RULES["bernoulli"])
    for plan in (Plan(10), Plan(3, 2)):
        together = run(plan, RULES["bernoulli"])
        assert relative_difference(together.w, alone.w) < 1e-12
        assert together.counters == alone.counters


def naive(given, sizes):
    return np.array(
        [sum(w * (10 * k + i) for i in range(n)) for k, (w, n) in enumerate(zip(given, sizes, strict=True))]
    )


@pytest.mark.parametrize("width", [1, 3, 7])
@pytest.mark.parametrize("sizes", [[0, 0, 0], [5], [1, 30, 0, 2, 9, 4, 3, 8, 1, 1, 17]])
def test_a_pass_of_several_clients(sizes, width):
    sizes, given = np.array(sizes), np.linspace(1, 2, len(sizes))

    def total(w, k, n):
        def of_chunk(shared, given, positions, mask):
            w, k = given
            return jnp.sum(jnp.where(mask, w * (shared * k + positions), 0))

        return sum_of_pass(of_chunk, jnp.zeros(()), 10, (w, k), n, width)

    ks = np.arange(len(sizes))
    expected = naive(given, sizes)
    one_by_one = [total(w, k, n) for w, k, n in zip(given, ks, sizes, strict=True)]
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(total)(given, ks, sizes), expected, rtol=1e-12)
    # Of several points: with the same examples, and with examples that differ from point to point.
    points = np.stack([given, 2 * given])
    of_points = jax.vmap(jax.vmap(total), in_axes=(0, None, None))(points, ks, sizes)
    np.testing.assert_allclose(of_points, [expected, 2 * expected], rtol=1e-12)
    others = np.stack([sizes, sizes[::-1]])
    of_points = jax.vmap(jax.vmap(total), in_axes=(0, None, 0))(points, ks, others)
    np.testing.assert_allclose(of_points, [naive(*pair) for pair in zip(points, others, strict=True)], rtol=1e-12)
    if sizes.sum():
        slope = jax.jvp(lambda w: jax.vmap(total)(w, ks, sizes), (given,), (np.ones_like(given),))[1]
        np.testing.assert_allclose(slope, expected / given, rtol=1e-12)


def test_the_width_of_chunks():
    assert chunk_width(np.full(7, 60)) == 60
    assert chunk_width(np.full(7, 600)) == 200  # three chunks, nothing filled up
    assert chunk_width(np.array([1, 1, 1])) == 1
    for sizes in (SIZES, np.array([8000] + [50] * 39), np.arange(1, 400)):
        width = chunk_width(sizes)
        assert np.sum(-(-sizes // width) * width) <= 1.07 * np.sum(sizes)
    assert chunk_width(np.array([3, 9, 1, 6, 6])) in (8, 9)  # a chunk for each, and not one for each example
