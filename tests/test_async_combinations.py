"""Asynchronous runs in combination, against a server written out event by event in NumPy.

Staleness, buffers, step size schedules, memories, weights of cohorts, partial work, own hyperparameters of clients and
chunks of several updates: each has its tests alone; here they meet.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts, schedules
from fedloom.systems import System
from tests import transcriptions as numpy_version
from tests.small import FEDERATION, TWIN, W

SECONDS = np.sqrt([2.0, 11.0, 3.0, 7.0, 5.0])  # of a job of each client
SYSTEM = System(speeds=tuple(1 / SECONDS))
RATE, STEPS, SEED = schedules.exponential(0.4, 0.8), 3, 91


def gd(k, v, t, extra, work=1.0):
    """ceil(work * STEPS) steps on F_k, with the step size 0.4 * 0.8^t."""
    return numpy_version.gd(TWIN, k, v, 0.4 * 0.8**t, int(np.ceil(work * STEPS)), extra)


class Method(NamedTuple):
    """A method with one exchange: its server state and its memories are arrays."""

    server: np.ndarray
    memory: np.ndarray
    local: Callable  # (server, memory, client, t, work) -> reply, memory
    receive: Callable  # (server, mean, total, staleness of the mean) -> server
    aged: Callable = lambda reply, tau: reply


class Job(NamedTuple):
    arrives: float
    client: int
    version: int
    weight: float
    reply: np.ndarray
    memory: np.ndarray


class Moment(NamedTuple):
    """After an update of the server."""

    server: np.ndarray
    memories: list
    seconds: float
    staleness: np.ndarray
    last: list  # the jobs whose replies made the update, or were left out of it as not finite

    @property
    def counted(self):
        return [job for job in self.last if np.isfinite(job.reply).all()]


def asynchronous(method, rule, seats, buffer, updates):
    """The asynchronous server, event by event.

    Up to `seats` jobs are in flight. Cohorts name who starts next; clients at work, and those whose reply still waits
    to be counted, are passed over, and if three cohorts in a row start nobody, whoever can does, with the weight of one
    draw. A job that starts at version n of the server works with the model of that version, with its client's last
    counted memory and, of r replies counted so far, with the step size of t = floor(r / seats). The server updates as
    soon as `buffer` replies b with weights a_b wait, each tau_b = version - version_b updates late:

        mean = sum_b a_b aged(r_b, tau_b) / sum_b a_b     total = sum_b p_b aged(r_b, tau_b)
        staleness of the mean = sum_b a_b tau_b / sum_b a_b

    Sums are over replies that are finite. If there are none, neither the server's state nor a memory changes.
    """
    draw = rule.over(TWIN.p)
    usual = np.ones(5) if isinstance(getattr(rule, "of", rule), cohorts.by_weight) else TWIN.p
    server, memories = method.server, [method.memory] * len(TWIN.p)
    jobs, waiting, moments, late, now, version = [], [], [], [0] * updates, 0.0, 0

    def cohort(wave):
        return list(zip(*draw(np.random.default_rng([SEED, wave, 0]), wave), strict=True))

    wave, named = 0, cohort(0)

    def idle():
        return set(range(len(TWIN.p))) - {job.client for job in jobs + waiting}

    def start(k, weight, work):
        reply, memory = method.local(server, memories[k], k, version * buffer // seats, work)
        jobs.append(Job(now + SECONDS[k], k, version, weight, reply, memory))

    while version < updates:
        fruitless = 0
        while len(jobs) < seats and idle() and fruitless < 3:
            before = len(jobs)
            while named and len(jobs) < seats:
                k, weight, work = named.pop(0)
                if k in idle():
                    start(k, weight, work)
            if len(jobs) < seats:
                wave, named = wave + 1, cohort(wave + 1)
            fruitless = 0 if len(jobs) > before else fruitless + 1
        if len(jobs) < seats and idle():
            assert len(idle()) <= seats - len(jobs)  # there are seats for all, so that their order does not matter
            for k in idle():
                start(k, usual[k], 1.0)
            wave, named = wave + 1, cohort(wave + 1)
        job = min(jobs)
        jobs.remove(job)
        waiting.append(job)
        now = job.arrives
        assert all(other.arrives > now + 1e-9 for other in jobs)  # the order of events is not a matter of rounding
        if len(waiting) == buffer:
            moment = Moment(server, memories, now, late, waiting)
            good = moment.counted
            if good:
                a, p = np.array([b.weight for b in good]), TWIN.p[[b.client for b in good]]
                tau = np.array([version - b.version for b in good])
                replies = np.array([method.aged(b.reply, version - b.version) for b in good])
                mean, total = np.tensordot(a, replies, 1) / a.sum(), np.tensordot(p, replies, 1)
                server = method.receive(server, mean, total, a @ tau / a.sum())
            memories = memories.copy()
            for b in good:
                memories[b.client] = b.memory
            for b in waiting:
                late[version - b.version] += 1
            version += 1
            moments.append(moment._replace(server=server, memories=memories, staleness=np.trim_zeros(late, "b")))
            waiting = []
    return moments


NOTHING = np.zeros(0)


def fedbuff(lr, a):
    """FedBuff (Nguyen et al. 2022): w <- w + lr mean of (1 + tau)^-a (v - w_start)."""
    return Method(
        W,
        NOTHING,
        local=lambda w, _, k, t, work: (gd(k, w, t, None, work) - w, NOTHING),
        receive=lambda w, mean, total, stale: w + lr * mean,
        aged=lambda reply, tau: (1 + tau) ** -a * reply,
    )


def fedasync(alpha, rho, a):
    """FedAsync (Xie et al. 2019), polynomial: with s = (1 + staleness)^-a, w <- (1 - alpha s) w + alpha s mean of v."""

    def receive(w, mean, total, stale):
        share = alpha * (1 + stale) ** -a
        return (1 - share) * w + share * mean

    def local(w, _, k, t, work):
        return gd(k, w, t, lambda v: rho * (v - w), work), NOTHING

    return Method(W, NOTHING, local, receive)


def scaffold(lr):
    """SCAFFOLD, option II: memory c_k; server (w, c) with c = sum_k p_k c_k."""

    def local(server, c_k, k, t, work):
        w, c = server
        v = gd(k, w, t, lambda v: c - c_k, work)
        new = c_k - c + (w - v) / (np.ceil(work * STEPS) * 0.4 * 0.8**t)
        return np.array([v - w, new - c_k]), new

    def receive(server, mean, total, stale):
        return np.array([server[0] + lr * mean[0], server[1] + total[1]])

    return Method(np.array([W, 0 * W]), 0 * W, local, receive)


def feddr(eta, alpha):
    """FedDR (Tran-Dinh et al. 2021): memory (x_k, y_k); server x_hat = sum_k p_k (2 x_k - y_k), which is w too."""

    def local(w, memory, k, t, work):
        x, y = memory
        new_y = y + alpha * (w - x)
        new_x = gd(k, x, t, lambda v: (v - new_y) / eta, work)
        return (2 * new_x - new_y) - (2 * x - y), np.array([new_x, new_y])

    return Method(W, np.array([W, W]), local, receive=lambda w, mean, total, stale: w + total)


def fedprox(mu, lr):
    """FedProx (Li et al. 2020), each client with its own mu_k."""

    def local(w, _, k, t, work):
        return gd(k, w, t, lambda v: mu[k] * (v - w), work) - w, NOTHING

    return Method(W, NOTHING, local, receive=lambda w, mean, total, stale: w + lr * mean)


POISONED = 0, 2  # the fastest clients, who meet in a buffer


@fl.frozen
class Poisoned(fl.Scaffold):
    """The replies of two clients are not numbers, once as many replies have been counted as there are seats."""

    def local(self, s, k, client):
        reply, memory = super().local(s, k, client)
        who = sum(jnp.all(client.objective.center == FEDERATION.centers[j]) for j in POISONED) > 0
        return jax.tree.map(lambda x: jnp.where(who & (client.t >= 1), jnp.nan, x), reply), memory


def poisoned(lr):
    whole = scaffold(lr)

    def local(server, c_k, k, t, work):
        reply, memory = whole.local(server, c_k, k, t, work)
        return reply * (np.nan if k in POISONED and t >= 1 else 1.0), memory

    return whole._replace(local=local)


MU = np.array([0.1, 1.0, 0.3, 2.0, 0.0])
BY_WEIGHT = cohorts.by_weight(3)
TIRED, TIRED_BY_WEIGHT = (
    cohorts.stragglers(of=of, share=0.5) for of in (cohorts.with_replacement(4), cohorts.by_weight(4))
)
CASES = {
    "fedbuff": (fl.FedBuff(0.7, 0.6), fedbuff(0.7, 0.6), BY_WEIGHT, 2),
    "fedasync": (fl.FedAsync(0.6, 0.2, a=0.7), fedasync(0.6, 0.2, 0.7), BY_WEIGHT, 2),
    "scaffold": (fl.Scaffold(0.8), scaffold(0.8), BY_WEIGHT, 2),
    "feddr": (fl.FedDR(0.5, 0.9), feddr(0.5, 0.9), BY_WEIGHT, 2),
    "scaffold, poisoned": (Poisoned(0.8), poisoned(0.8), BY_WEIGHT, 2),
    "scaffold, everyone": (fl.Scaffold(0.8), scaffold(0.8), cohorts.everyone(), 3),
    "fedprox, stragglers": (fl.FedProx(MU, 0.9), fedprox(MU, 0.9), TIRED_BY_WEIGHT, 2),
    "feddr, stragglers": (fl.FedDR(0.5, 0.9), feddr(0.5, 0.9), TIRED, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_asynchronous_server_event_by_event(name):
    """Server, memories, clock, staleness and counters after chunks of three updates are those of `asynchronous`."""
    algorithm, method, rule, buffer = CASES[name]
    seats = rule.room(5)
    moments = asynchronous(method, rule, seats, buffer, 11)
    counted = [job for moment in moments for job in moment.last]
    assert len(moments[-1].staleness) > 2  # what is to be seen can be seen: late replies,
    assert max(job.version * buffer // seats for job in counted) > 2  # several step sizes,
    assert np.ptp([job.weight for job in counted]) > 0  # unequal weights
    assert {len(moment.counted) for moment in moments} == ({0, 1, 2} if name == "scaffold, poisoned" else {buffer})
    records = list(fl.events(algorithm, FEDERATION, fl.GD(RATE, STEPS), W, 11, system=SYSTEM, buffer=buffer,
                             cohort=rule, seed=SEED, chunk=3, on_nonfinite="drop"))  # fmt: skip
    assert [record.round for record in records] == [3, 6, 9, 11]
    seen = 0
    for record in records:
        moment = moments[record.round - 1]
        out = [(t + 1, job.client, "train") for t in range(seen, record.round) for job in moments[t].last
               if job not in moments[t].counted]  # fmt: skip
        assert sorted(record.dropped) == sorted(out)
        seen = record.round
        found = np.array(jax.tree.leaves(record.server))
        if isinstance(algorithm, fl.FedDR):
            np.testing.assert_array_equal(found[0], found[1])  # without a regularizer w is x_hat
            found = found[0]
        np.testing.assert_allclose(found.reshape(method.server.shape), moment.server, rtol=0, atol=1e-13)
        assert record.clock.seconds == pytest.approx(moment.seconds, rel=1e-13)
        assert list(record.clock.staleness) == moment.staleness
        assert record.cohort[0].tolist() == sorted(job.client for job in moment.last)
        assert record.counters.rounds == record.counters.exchanges == record.round
        assert record.clock.replies == record.round * buffer
    met = {job.client for moment in moments for job in moment.counted}
    assert set(record.clients) == met
    for k in met:
        memory = jax.tree.leaves(record.clients[k])
        if memory:
            floats = np.array([x for x in memory if x.ndim]).reshape(method.memory.shape)
            np.testing.assert_allclose(floats, moment.memories[k], rtol=0, atol=1e-13)
