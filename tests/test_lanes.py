"""Every plan gives the reference's result: lanes, devices, ragged and dropped clients, solves that split or do not.

Tolerances: 1e-12 in float64; in float32 1e-5 of the largest number after a few rounds, since sums have another order.
"""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.engines.keys import client_key, exchange_key
from fedloom.engines.plan import Plan
from fedloom.engines.split_solve import Given, Job
from fedloom.hyperparameters import frozen
from fedloom.problem import Problem
from fedloom.testing import relative_difference
from tests.federations import FEDERATION, W, bits, last, least_squares

RAGGED = least_squares()
SGD = fl.SGD(0.1, batch_size=4)
EPOCHS = fl.SGD(0.1, batch_size=4, epochs=2)
PLANS = [Plan(9), Plan(1, 3), Plan(2, 2)]
STRAGGLERS = cohorts.stragglers(of=cohorts.uniform(3), share=0.67)


@frozen
class Twice(fl.FedAvg):
    """Two solves."""

    def local(self, w, memory, client):
        v = client.solve(Problem(start=w)).w
        return client.solve(Problem(start=v, anchor=w, mu=0.5)).w - w, memory


@frozen
class Repeated(fl.FedAvg):
    """Solves in a loop."""

    def local(self, w, memory, client):
        return client.repeat(2, lambda v: client.solve(Problem(start=v)).w, w) - w, memory


@frozen
class RepeatedBefore(fl.FedAvg):
    """Differentiates in a loop, then solves."""

    def local(self, w, memory, client):
        v = client.repeat(2, lambda v: v - 0.1 * client.grad(v), w)
        return client.solve(Problem(start=v)).w - w, memory


@frozen
class Asking(fl.FedAvg):
    """Asks for gradients and losses before and after its solve, and remembers."""

    def init_client(self, w):
        return {"low": jnp.zeros(()), "g": jnp.zeros_like(w)}

    def local(self, w, memory, client):
        before, g = client.loss(w), client.grad(w)
        second = client.loss(w + g)
        v = client.solve(Problem(start=w, linear=0.1 * memory["g"] - 0.1 * g * (before < second))).w
        after, h = client.loss(v), client.grad(v)
        return (v - w) * before / (before + after), {"low": after - second, "g": h - g}


@frozen
class InLoop(fl.FedAvg):
    """Asks for losses inside JAX's own loops and transformations, then solves."""

    def local(self, w, memory, client):
        total = jax.lax.fori_loop(0, 2, lambda i, total: total + client.loss(w + i), 0.0)
        total = total + jax.jit(client.loss)(w) + jnp.sum(jax.vmap(client.loss)(jnp.stack([w, 2 * w])))
        total = jax.lax.cond(total > 0, lambda: total + client.loss(3 * w), lambda: total)
        return client.solve(Problem(start=w * (1 + 0.001 * total))).w - w, memory


@frozen
class Differentiated(fl.FedAvg):
    """Differentiates its loss itself."""

    def local(self, w, memory, client):
        g = jax.grad(client.loss)(w)
        return client.solve(Problem(start=w, linear=g)).w - w + 0.1 * g, memory


@frozen
class SideBySide(fl.FedAvg):
    """Solves from two starts, vectorised by itself."""

    def local(self, w, memory, client):
        return jnp.mean(jax.vmap(lambda v: client.solve(Problem(start=v)).w)(jnp.stack([w, 2 * w])), 0) - w, memory


def agree(fast, slow, tolerance=1e-12):
    assert relative_difference(fast.server, slow.server) < tolerance
    assert fast.counters == slow.counters
    assert fast.dropped == slow.dropped
    if jax.tree.leaves(slow.clients):
        assert sorted(fast.clients) == sorted(slow.clients)
        for k in slow.clients:
            assert relative_difference(fast.clients[k], slow.clients[k]) < tolerance


# (algorithm, solver, cohort, plans): few of all pairs, but each kind of method, cohort and plan several times.
CASES = {
    "fedavg": (fl.FedAvg(0.7), SGD, cohorts.uniform(3), PLANS),
    "scaffold, everyone": (fl.Scaffold(), SGD, None, [Plan(2)]),
    "scaffold I, stragglers": (fl.Scaffold(option="I"), EPOCHS, STRAGGLERS, [Plan(1, 2)]),
    "feddane": (fl.FedDANE(mu=0.5, fresh=True), fl.SGD(0.1, batch_size=4), cohorts.uniform(3), [Plan(2)]),
    "feddane, pipelined": (fl.FedDANE(mu=0.5, pipelined=True), fl.GD(0.1, 2), cohorts.uniform(3), [Plan(1, 2)]),
    "feddr": (fl.FedDR(2.0), SGD, cohorts.bernoulli(0.4), [Plan(1)]),
    "feddyn": (fl.FedDyn(0.3), fl.GD(0.1, 2), cohorts.uniform(3), [Plan(1, 3)]),
    "fedpd": (fl.FedPD(eta=2.0, skip=0.5), fl.GD(0.1, 2), None, [Plan(2, 2)]),
    "momentum": (fl.FedAvg(), dataclasses.replace(EPOCHS, momentum=0.5, clip=1.0), STRAGGLERS, [Plan(2)]),
    "adaalter": (fl.AdaAlter(), fl.Adagrad(0.1, batch_size=4), cohorts.uniform(3), [Plan(2)]),
    "twice": (Twice(), SGD, cohorts.uniform(3), [Plan(2)]),
    "repeated": (Repeated(), EPOCHS, STRAGGLERS, [Plan(2)]),
    "repeated before": (RepeatedBefore(), SGD, cohorts.uniform(3), [Plan(2)]),
    "asking": (Asking(), SGD, cohorts.uniform(3), [Plan(2)]),
    "in loops": (InLoop(), SGD, cohorts.uniform(3), [Plan(2)]),
    "side by side": (SideBySide(), SGD, cohorts.uniform(3), [Plan(2)]),
    "no steps": (fl.FedDR(2.0), fl.ToTolerance(0.3, "distance", 0.3, max_steps=8), cohorts.uniform(3), [Plan(2)]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_all_plans_give_the_result_of_the_reference(case):
    algorithm, solver, rule, plans = case
    args = (algorithm, RAGGED, solver, W, 2)
    slow = last(fl.reference, *args, cohort=rule, seed=2)
    for plan in plans:
        fast = last(fl.simulate, *args, cohort=rule, seed=2, plan=plan, chunk=2)
        agree(fast, slow)


def test_a_method_may_differentiate_its_loss():
    """On quadratics, where JAX can."""
    args = (Differentiated(), FEDERATION, fl.GD(0.1, 2), W, 2)
    agree(last(fl.simulate, *args, plan=Plan(3)), last(fl.reference, *args))


def test_single_precision():
    with jax.enable_x64(False):
        args = (fl.Scaffold(), least_squares(), SGD, np.asarray(W, np.float32), 2)
        slow = last(fl.reference, *args, cohort=cohorts.uniform(3))
        agree(last(fl.simulate, *args, cohort=cohorts.uniform(3), plan=Plan(2)), slow, tolerance=1e-5)


@pytest.mark.parametrize("plan", [Plan(1), Plan(2, 2)], ids=str)
def test_the_same_bits_however_rounds_are_chunked(plan):
    args = (fl.FedDR(2.0), RAGGED, SGD, W, 5)
    runs = [last(fl.simulate, *args, cohort=cohorts.bernoulli(0.4), chunk=c, plan=plan) for c in (1, 4)]
    seen = [(bits(r.server), {k: bits(v) for k, v in r.clients.items()}, r.counters) for r in runs]
    assert seen[0] == seen[1]


# Clients that do not count.


@frozen
class Poison(fl.FedDR):
    """Client 1 returns NaN from round 1 on; client 4 has a memory that is not finite."""

    def local(self, w, k, client):
        reply, memory = super().local(w, k, client)
        n = client.objective.size
        bad = jnp.where((n == 9) & (client.t >= 1), jnp.nan, 1)
        return bad * reply, memory._replace(x=memory.x * jnp.where(n == 5, jnp.inf, 1))


LIGHT = dataclasses.replace(RAGGED, weights=np.array([0.3, 0.3, 0.2, 0.0, 0.2]))
POISONED = (Poison(2.0), LIGHT, SGD, W, 4)
DROP = {"cohort": cohorts.scheduled([[0, 1, 3, 4], [1, 2, 3], [1, 3, 4], [0, 1, 2, 3, 4]]), "on_nonfinite": "drop"}


@cache
def left_out():
    return [record.keep() for record in fl.reference(*POISONED, **DROP)]


@pytest.mark.parametrize("plan", [Plan(2), Plan(1, 3)], ids=str)
def test_whoever_is_not_finite_is_left_out_under_every_plan(plan):
    """In round 2 nobody is left; client 3 has no weight in any."""
    fast, slow = [r.keep() for r in fl.simulate(*POISONED, **DROP, plan=plan)], left_out()
    for a, b in zip(fast, slow, strict=True):
        agree(a, b)
    assert [sorted(r.clients) for r in fast] == [[0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
    assert bits(fast[1].server) == bits(fast[2].server)
    assert bits(fast[0].clients[1]) == bits(fast[3].clients[1])
    with pytest.raises(fl.NonFiniteUpdate, match=r"Client 4 .* round 1,"):
        list(fl.simulate(*POISONED, **(DROP | {"on_nonfinite": "raise"}), plan=plan))


def test_more_clients_than_were_expected():
    """A draw beyond the usual room, with fewer lanes than clients."""

    @frozen
    class Surges(cohorts.CohortRule):
        def over(self, p):
            return lambda rng, t: cohorts.Draw(np.arange(2 + 3 * t), p[: 2 + 3 * t], np.ones(2 + 3 * t))

        def room(self, clients):
            return 2

    args = (fl.Scaffold(), RAGGED, SGD, W, 2)
    agree(last(fl.simulate, *args, cohort=Surges(), plan=Plan(2)), last(fl.reference, *args, cohort=Surges()))


def test_replies_may_be_whole_numbers():
    """Their mean is a mean, as in the reference."""

    @frozen
    class Counting(fl.FedAvg):
        def local(self, w, memory, client):
            dw, memory = super().local(w, memory, client)
            return (dw, jnp.asarray(client.objective.size, jnp.int32), client.objective.size > 4), memory

        def receive(self, s, mean, cohort):
            return super().receive(s, mean[0] * mean[1] * mean[2], cohort)

    args = (Counting(), RAGGED, SGD, W, 1)
    agree(last(fl.simulate, *args, plan=Plan(2)), last(fl.reference, *args))


# Halves.


def job_and_given(algorithm, solver, e=0, federation=RAGGED):
    exchange = algorithm.exchanges[e]
    key = exchange_key(jax.random.key(0), 0, e)
    mine = client_key(key, 1)
    memory = jax.tree.map(jnp.asarray, algorithm.init_client(W))
    given = Given(jnp.array(1), mine, jax.random.fold_in(mine, 0), memory, jnp.ones(()))
    return Job(algorithm, solver, federation, exchange.send(algorithm.init(W)), e, key, jnp.array(0)), given


def halved(algorithm, solver=SGD, e=0):
    """As it is found inside a compiled program, which must be what is found outside."""
    job, given = job_and_given(algorithm, solver, e)
    found = []
    jax.eval_shape(lambda given: found.append(job.can_split(given)), given)
    assert found == [job.can_split(given)]
    return found[0]


def test_which_methods_have_halves():
    once = [fl.FedAvg(), fl.FedProx(), fl.Scaffold(), fl.Scaffold(option="I"), fl.FedDyn(), fl.FedDR(), fl.FedSplit()]
    for algorithm in (*once, fl.FedAdam(), fl.Lookahead(), Asking()):
        assert halved(algorithm), algorithm
    assert halved(fl.FedDANE(), e=1)
    assert halved(fl.AdaAlter(), fl.Adagrad())
    assert not halved(fl.FedAvg(), fl.Exact())
    assert not halved(fl.FedDANE(), e=0)  # it does not solve
    for algorithm in (fl.FedSGD(), fl.FedPD(), Twice(), Repeated(), RepeatedBefore(), InLoop(), SideBySide()):
        assert not halved(algorithm), algorithm


@pytest.mark.parametrize("algorithm", [Asking(), fl.Scaffold(option="I"), fl.FedDANE(pipelined=True)], ids=repr)
def test_the_halves_make_the_whole_and_ask_for_nothing_twice(algorithm, monkeypatch):
    job, given = job_and_given(algorithm, SGD)
    asked = []
    risk = type(RAGGED.objective(0))
    for name in ("loss", "grad"):
        old = getattr(risk, name)
        monkeypatch.setattr(risk, name, lambda self, w, old=old, name=name: (asked.append(name), old(self, w))[1])
    whole = job.whole(given)
    of_whole, asked[:] = list(asked), []
    now = job.begin(given)
    for _ in range(int(SGD.steps_for(RAGGED.sizes[1], RAGGED.capacity, 1.0))):
        now = job.step(now)
    halves = job.end(given, now)
    assert asked == of_whole
    assert relative_difference(halves[:2], whole[:2]) < 1e-12
    assert bits(halves[2]) == bits(whole[2])  # what it spent
