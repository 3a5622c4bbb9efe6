"""Speed that is counted, not timed: compilations, calls of the program, and what the compiler says of it."""

import functools
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fedloom as fl
from fedloom import cohorts
from fedloom.engines import sync_program
from fedloom.engines.calls import arrays_of, calls
from fedloom.engines.checks import checked
from fedloom.engines.memory_store import DeviceStore
from fedloom.engines.packing import Packer
from fedloom.engines.plan import Plan
from fedloom.engines.sync_clock import NoClock
from fedloom.problem import ravel
from tests.federations import W, last, least_squares

SGD = fl.SGD(0.1, batch_size=4, epochs=2)


@pytest.fixture
def called(monkeypatch):
    """How often the program is called."""
    count = []

    @functools.wraps(sync_program.run_rounds)
    def run_rounds(*args):
        count.append(args[-2])
        return sync_program.run_rounds(*args)

    monkeypatch.setattr(sys.modules["fedloom.engines.synchronous"], "run_rounds", run_rounds)
    return count


def test_one_program_for_all_rounds_seeds_and_numbers(called):
    """Cohorts that change in who and how many, a last chunk that is short, other numbers: nothing compiles again."""
    args, rule = (least_squares(), SGD, W), cohorts.bernoulli(0.4)
    last(fl.simulate, fl.FedAvg(), *args, 3, cohort=rule, chunk=3, plan=Plan(2))
    assert called == [3]
    before = sync_program.run_rounds._cache_size()
    other = (args[0], fl.SGD(0.02, batch_size=4, epochs=2), 2 * W)
    compiled = []

    def listen(name, *_, **__):
        if "backend_compile" in name:
            compiled.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        last(fl.simulate, fl.FedAvg(0.3), *args, 7, cohort=rule, chunk=3, plan=Plan(2), seed=5)
        last(fl.simulate, fl.FedAvg(), *other, 5, cohort=rule, chunk=3, plan=Plan(2))
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert sync_program.run_rounds._cache_size() == before
    assert called == [3, 3, 3, 1, 3, 2]  # one call for each chunk
    assert compiled == []


def lowered(algorithm, federation, solver, w, cohort, plan, chunk=1):
    """The program of a run's first call."""
    run = checked(algorithm, federation, solver, w, chunk, cohort=cohort)
    packer = Packer(run, plan)
    t, draws, packings, *_ = next(calls(run, NoClock(run), packer, chunk, chunk))
    rows = DeviceStore(algorithm.init_client(w), federation.clients).rows
    arrays = sync_program.with_keys(arrays_of(run, draws, lambda ids: ids, chunk), run.key, t, solver)
    federation = jax.tree.map(jnp.asarray, federation)
    return sync_program.run_rounds.lower(
        algorithm, solver, federation, run.start.server, rows, arrays, packings, t, chunk
    )


@functools.cache
def of_population(clients):
    federation = fl.quadratics(clients=clients, dimension=4)
    return lowered(fl.Scaffold(), federation, fl.GD(0.1, 2), W, cohorts.uniform(3), Plan(3)).compile()


def test_the_work_of_a_round_does_not_grow_with_the_population():
    """Rows of the table are read and written in place. A copy of it, 33 bytes a client, would show in all of these."""
    few, many = (of_population(n) for n in (100, 10_000))
    table = 33 * 10_000
    assert many.cost_analysis()["flops"] == few.cost_analysis()["flops"]
    assert abs(many.memory_analysis().temp_size_in_bytes - few.memory_analysis().temp_size_in_bytes) < table / 100
    assert many.memory_analysis().alias_size_in_bytes >= table  # the table is donated
    fresh = many.memory_analysis().output_size_in_bytes - many.memory_analysis().alias_size_in_bytes
    assert fresh < table / 100


@pytest.mark.parametrize("lanes", [1, 2])
def test_no_step_makes_keys_that_its_model_does_not_use(lanes):
    """Rounds, events, steps: in the loop of steps, at depth 2, JAX's generator must not run in what is compiled."""
    plain, noisy = (compiled_steps(lanes, noise) for noise in (0.0, 1.0))
    assert plain
    assert not any("threefry" in body for body in plain)
    assert any("threefry" in body for body in noisy)  # so it would be seen


def compiled_steps(lanes, noise):
    """The compiled text of all computations that loops within loops within loops run."""

    def loss(w, rows, key):
        draw = jax.random.normal(key) if noise and key is not None else 0.0
        return (rows @ w - draw) ** 2

    federation = fl.examples(np.ones((24, 4)), [3, 9, 1, 6, 5], loss)
    text = lowered(fl.FedAvg(), federation, SGD, W, None, Plan(lanes)).compile().as_text()
    computations = dict(re.findall(r"^(?:ENTRY )?%?([\w.\-]+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S))
    bodies = {}

    def walk(name, depth):
        body = computations.get(name, "")
        for kind in re.findall(r"body=%?([\w.\-]+)", body):
            bodies[kind] = depth
            walk(kind, depth + 1)
        for callee in re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)|branch_computations=\{([^}]*)\}", body):
            for one in ",".join(callee).replace("%", "").split(","):
                if one.strip():
                    walk(one.strip(), depth)

    entry = re.search(r"^ENTRY %?([\w.\-]+)", text, re.M)
    walk(entry.group(1), 0)
    return [computations[name] for name, depth in bodies.items() if depth == 2]


def test_a_round_is_the_steps_of_its_schedule_and_no_more():
    """Every step evaluates one batch gradient: counted as the program runs."""
    seen = []

    def loss(w, rows, key):
        jax.debug.callback(lambda: seen.append(1))
        return (rows @ w) ** 2

    sizes = (3, 9, 1, 6, 5)
    federation = fl.examples(np.ones((sum(sizes), 4)), sizes, loss)
    federation.check(jnp.asarray(W))  # the loss is tried once, before the first run
    jax.effects_barrier()
    # 2 + 5 + 1 + 3 + 3 steps one after another; in two lanes 5 + 2 beside 3 + 3 + 1.
    for lanes, steps in ((1, 14), (2, 7)):
        seen.clear()
        last(fl.simulate, fl.FedAvg(), federation, fl.SGD(1e-3, batch_size=2), W, 1, plan=Plan(lanes))
        jax.effects_barrier()
        assert len(seen) == steps  # of all lanes at once


LEAVES = {"a": {"b": jnp.zeros(3), "w": jnp.zeros((40, 30))}, "c": {"b": jnp.zeros(7), "w": jnp.zeros((40, 50))}}


def joined(text):
    """Fused computations that put vectors of numbers one after another."""
    fused = re.findall(r"^%?fused_computation[\w.]* .*?^\}", text, re.M | re.S)
    return [one for one in fused if re.search(r"= f\d+\[\d+\]\S* concatenate\(", one)]


@pytest.mark.parametrize("solver", [SGD, fl.Adagrad(0.1, batch_size=4), fl.Optax(batch_size=4), fl.GD(0.1, 2)])
def test_leaves_are_put_together_by_copying(solver):
    """The time of a fused concatenation depends on where its buffers lie in memory: see `fedloom.problem.ravel`."""
    w, unravel = ravel_pytree(LEAVES)

    def loss(p, rows, key):
        first, second = rows @ p["a"]["w"], rows @ p["c"]["w"]
        return jnp.sum(first**2, 1) + jnp.sum(second**2, 1) + jnp.sum(p["a"]["b"]) + jnp.sum(p["c"]["b"])

    federation = fl.examples(np.ones((24, 40)), [3, 9, 1, 6, 5], loss, unravel)
    assert not joined(lowered(fl.FedAvg(), federation, solver, w, None, Plan(1)).compile().as_text())
    naive = jax.jit(lambda tree, w: ravel_pytree(tree)[0] - w)
    if jax.default_backend() == "cpu":
        assert joined(naive.lower(LEAVES, w).compile().as_text())  # so it would be seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ravel_is_ravel_pytree(dtype):
    """One after another, and side by side in lanes."""
    rng = np.random.default_rng(0)
    trees = jax.tree.map(lambda leaf: rng.standard_normal((2, *leaf.shape)).astype(dtype), LEAVES)
    ours = jax.jit(lambda trees: (ravel(trees), jax.vmap(ravel)(trees)))(trees)
    theirs = jax.jit(lambda trees: (ravel_pytree(trees)[0], jax.vmap(lambda tree: ravel_pytree(tree)[0])(trees)))(trees)
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine.dtype == expected.dtype
        np.testing.assert_array_equal(mine, expected)
