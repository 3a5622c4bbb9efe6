"""Runs on a simulated clock in combination: faults, links, deadlines, exchanges, resuming; numbers found by hand."""

import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.systems import System
from fedloom.systems.availability import observed
from fedloom.systems.compute import constant, proportional
from fedloom.systems.faults import random
from fedloom.systems.network import links
from tests import transcriptions as numpy_version
from tests.federations import bits, last
from tests.small import FEDERATION, TWIN, VECTOR, W

engines = pytest.mark.parametrize("engine", [fl.simulate, fl.reference], ids=["simulate", "reference"])
all_engines = pytest.mark.parametrize("engine", [fl.simulate, fl.reference, fl.events])
GD = fl.GD(0.2, steps=8)

FAULTS = {
    "lost": (random(lost=0.6), lambda asked, counted: asked),  # whoever is asked sends, but not all arrives
    "dropped": (random(drop=0.6), lambda asked, counted: counted),  # only those who are counted have sent anything
    "crashed": (random(crash=0.6, restart=0.0), lambda asked, counted: counted),
    "duplicates": (random(duplicate=1.0), lambda asked, counted: 2 * counted),
    "lost and duplicates": (random(lost=0.6, duplicate=1.0), lambda asked, counted: asked + counted),
}


@pytest.mark.parametrize(("kind", "engine"), [*((kind, fl.simulate) for kind in FAULTS), ("lost", fl.reference)])
def test_two_exchanges_under_faults(kind, engine):
    """FedDANE, in which the second exchange asks those whose first reply arrived, C_1, and counts C_2, a part of them.

        bytes down = 5 d + 2 |C_1| d        bytes up = d * messages sent in both exchanges
        g <- mean over C_1 of grad F_k(w)   w <- mean over C_2 of argmin F_k + <g - grad F_k(w), .> + mu/2 |. - w|^2

    where an empty C_1 leaves everything as it was, and an empty C_2 leaves w.
    """
    faults, sent = FAULTS[kind]
    rounds = 12
    system = System(compute=constant(2.0), faults=faults)
    w, g, empty = W, 0 * W, [0, 0]
    messages = down = up = jobs = replies = gradients = 0
    more = {"chunk": 1} if engine is fl.simulate else {}
    for record in engine(fl.FedDANE(mu=0.5), FEDERATION, fl.Exact(), W, rounds, system=system, seed=6, **more):
        first, second = (ids.tolist() for ids in record.cohort)
        assert set(second) <= set(first)
        if first:
            g = numpy_version.cohort_mean(TWIN, first, {k: numpy_version.grad(TWIN, k, w) for k in first})
        if first and second:
            start = w
            models = {
                k: numpy_version.argmin(TWIN, k, g - numpy_version.grad(TWIN, k, start), 0.5, start) for k in second
            }
            w = numpy_version.cohort_mean(TWIN, second, models)
        empty[0] += not first
        empty[1] += bool(first) and not second
        np.testing.assert_allclose(record.server.w, w, rtol=0, atol=1e-12)
        np.testing.assert_allclose(record.server.g, g, rtol=0, atol=1e-12)
        asked, counted = (5, len(first)), (len(first), len(second))
        both = [sent(a, c) for a, c in zip(asked, counted, strict=True)]
        messages, up = messages + sum(asked) + sum(both), up + sum(both) * VECTOR
        down += (asked[0] + 2 * asked[1]) * VECTOR
        jobs, replies = jobs + sum(asked), replies + sum(counted)
        gradients += len(first) + 2 * len(second)  # one is sent; another is needed for the solve, which takes one
        assert record.counters == fl.Counters(record.round, 2 * record.round, messages, down, up, gradients)
        assert (record.clock.jobs, record.clock.replies) == (jobs, replies)
    if kind == "duplicates":
        assert record.clock.duplicates == replies == jobs
        assert record.clock.seconds == 2 * 2.0 * rounds
    else:
        assert record.clock.failed == jobs - replies
        assert empty[0] > 0
        assert empty[1] > 0


LATE = System(
    compute=constant(8.0),
    speeds=(1.0, 4.0, 2.0, 8.0, 8.0),  # seconds: 8, 2, 4, 1, 1
    network=links(down=VECTOR, up=(VECTOR / 2, VECTOR / 2, VECTOR, VECTOR / 6, np.inf)),  # seconds: 1; 2, 2, 1, 6, 0
    deadline=6.0,
    late="partial",
)


@engines
def test_partial_work_leaves_time_for_the_upload(engine):
    """A client that sends what it has at the deadline D has (D - download - upload) / seconds of its work done.

    Client 0 has 6 - 1 - 2 = 3 of its 8 seconds, so 3 of 8 steps. Client 1 is there at 5, client 2 at 6, in time; client
    3 cannot send before the deadline anything that it has computed; client 4 is there at 2.
    """
    mu, rounds = 0.3, 2
    w = W
    for _ in range(rounds):
        steps = {0: 3, 1: 8, 2: 8, 4: 8}
        models = {k: numpy_version.gd(TWIN, k, w, 0.2, n, lambda v, w=w: mu * (v - w)) for k, n in steps.items()}
        w = numpy_version.cohort_mean(TWIN, list(steps), models)
    record = last(engine, fl.FedProx(mu), FEDERATION, GD, W, rounds, system=LATE)
    np.testing.assert_allclose(record.w, w, rtol=0, atol=1e-13)
    c, clock = record.counters, record.clock
    assert (c.messages, c.bytes_down, c.bytes_up) == (9 * rounds, 5 * VECTOR * rounds, 4 * VECTOR * rounds)
    assert c.gradients == (3 + 8 + 8 + 8) * rounds
    assert (clock.seconds, clock.jobs, clock.replies, clock.late) == (6.0 * rounds, 5 * rounds, 4 * rounds, rounds)
    assert clock.wasted == 1.0 * rounds  # client 3's computation
    assert clock.idle == (0 + 1 + 0 + 0 + 4) * rounds  # clients 1 and 4 wait


@fl.frozen
class Tired(cohorts.CohortRule):
    """Everyone, each with a part of the usual work."""

    partial_work = True

    def over(self, p):
        return lambda rng, t: cohorts.Draw(np.arange(5), p, np.array([0.25, 0.75, 1.0, 0.5, 1.0]))

    def room(self, clients):
        return clients


@engines
def test_stragglers_and_a_deadline(engine):
    """A straggler with the part u of its work, u T seconds of it, has the part min(u, D / T) done at the deadline D.

    T = 8 steps of 1 s: with D = 5, the five have 2, 5 of 6, 5 of 8, 4 and 5 of 8 steps.
    """
    system = System(compute=proportional(1.0), deadline=5.0, late="partial")
    steps = (2, 5, 5, 4, 5)
    models = {k: numpy_version.gd(TWIN, k, W, 0.2, n) for k, n in enumerate(steps)}
    record = last(engine, fl.FedAvg(), FEDERATION, GD, W, 1, system=system, cohort=Tired())
    np.testing.assert_allclose(record.w, numpy_version.cohort_mean(TWIN, range(5), models), rtol=0, atol=1e-13)
    assert record.counters.gradients == sum(steps)
    assert (record.clock.seconds, record.clock.idle, record.clock.late) == (5.0, 3.0 + 1.0, 0)


SPEEDS = (1.0, 4.0, 2.0, 8.0, 8.0)  # of jobs of 8 seconds: 8, 2, 4, 1, 1
LINKS = links(down=VECTOR, up=(VECTOR / 2, VECTOR / 2, VECTOR, VECTOR / 6, np.inf))  # seconds: 1; 2, 2, 1, 6, 0


def test_a_round_that_has_enough_replies_takes_no_partial_work():
    """Partial work is sent at the deadline; a round that ends before it, with enough replies, asks nobody for more."""
    system = System(compute=constant(8.0), speeds=SPEEDS, deadline=6.0, late="partial", enough=2)
    record = last(fl.simulate, fl.FedAvg(), FEDERATION, GD, W, 2, system=system)
    assert [ids.tolist() for ids in record.cohort] == [[3, 4]]
    clock = record.clock
    assert (clock.seconds, clock.replies, clock.late, clock.idle, clock.wasted) == (2 * 1.0, 4, 6, 0.0, 6.0)
    assert record.counters.gradients == 2 * 2 * 8


def test_copies_that_come_after_a_round_are_nothing_to_it():
    """Replies arrive at 11, 5, 6, 8 and 2 s, when the round ends; copies at 13, 7, 7, 14 and 2: three in time."""
    system = System(compute=constant(8.0), speeds=SPEEDS, network=LINKS, faults=random(duplicate=1.0))
    record = last(fl.simulate, fl.FedAvg(), FEDERATION, GD, W, 2, system=system)
    assert (record.clock.seconds, record.clock.replies, record.clock.duplicates) == (22.0, 10, 6)
    assert record.counters[2:5] == (2 * (5 + 5 + 3), 2 * 5 * VECTOR, 2 * (5 + 3) * VECTOR)


def test_every_exchange_has_the_times_of_its_own_messages():
    """FedDANE sends one vector down and one up, then two down and one up; a vector takes 1 s down and 2 s up."""
    system = System(compute=constant(4.0), network=links(down=VECTOR, up=VECTOR / 2))
    record = last(fl.simulate, fl.FedDANE(mu=0.5), FEDERATION, fl.Exact(), W, 3, system=system)
    assert record.clock.seconds == 3 * ((1 + 4 + 2) + (2 + 4 + 2))


def test_a_crashed_client_stays_away_until_it_has_restarted():
    """With a restart that outlasts the run, cohorts can only become smaller."""
    system = System(faults=random(crash=0.2, restart=1e9))
    before, sizes = set(range(5)), []
    for record in fl.simulate(fl.FedAvg(), FEDERATION, GD, W, 6, system=system, seed=2):
        after = set(record.cohort[0].tolist())
        assert after <= before
        assert record.clock.jobs == sum(sizes, 5)  # who was counted is asked again, and nobody else
        before = after
        sizes.append(len(after))
    assert 0 < sizes[-1] < sizes[0] < 5


@all_engines
def test_a_resumed_run_has_the_totals_of_a_whole_one(engine):
    """Counters and clock, with lost messages before and after the record, and step sizes that go on falling."""
    system = System(compute=constant(8.0), speeds=SPEEDS, network=LINKS, faults=random(lost=0.3, duplicate=0.5))
    args = fl.Scaffold(), FEDERATION, fl.GD(fl.schedules.exponential(0.2, 0.8), steps=2), W
    more = {"system": system, "seed": 1, "cohort": cohorts.by_weight(4)}
    n = 8 if engine is fl.events else 3
    half = last(engine, *args, n, **more)
    whole, again = last(engine, *args, 2 * n, **more), last(engine, *args, 2 * n, resume=half, **more)
    assert half.clock.lost > 0
    assert whole.clock.lost > half.clock.lost
    assert (again.counters, again.clock) == (whole.counters, whole.clock)
    assert bits(again.server) == bits(whole.server)
    assert {k: bits(m) for k, m in again.clients.items()} == {k: bits(m) for k, m in whole.clients.items()}


def test_an_interrupted_job_wastes_what_it_has_computed():
    """Client 0 downloads for 1 s and leaves at 2.5 s, after 1.5 of 4 s of computing. It has sent nothing."""
    online = {0: [(0.0, 2.5)]} | {k: [(0.0, 100.0)] for k in range(1, 5)}
    system = System(compute=constant(4.0), network=links(down=VECTOR), availability=observed(online))
    for engine, updates in ((fl.events, 8), (fl.simulate, 2)):
        record = last(engine, fl.FedAvg(), FEDERATION, GD, W, updates, system=system)
        assert (record.clock.interrupted, record.clock.wasted, record.clock.seconds) == (1, 1.5, 10.0)
        assert record.counters.bytes_up == 8 * VECTOR


@fl.frozen
class OnOff(cohorts.CohortRule):
    """Everyone; client 0 counts in odd cohorts only, client 1 never."""

    def over(self, p):
        def draw(rng, t):
            weight = p * [t % 2, 0, 1, 1, 1]
            return cohorts.Draw(np.arange(5), weight, np.ones(5))

        return draw

    def room(self, clients):
        return clients


@fl.frozen
class Counting(fl.FedAvg):
    """Clients remember how many of their replies counted."""

    def init_client(self, w):
        return 0.0

    def local(self, w, n, client):
        reply, _ = super().local(w, (), client)
        return reply, n + 1.0


def who_counts(t):
    return [0] * (t % 2) + [2, 3, 4]


@all_engines
def test_a_memory_is_committed_if_and_only_if_the_reply_has_a_weight(engine):
    """After 5 cohorts client 0 has counted in the two odd ones, client 1 is unknown. The mean is of those who count."""
    w = W
    for t in range(5):
        w = numpy_version.cohort_mean(TWIN, who_counts(t), [numpy_version.gd(TWIN, k, w, 0.2, 8) for k in range(5)])
    more = {"buffer": 5} if engine is fl.events else {}
    record = last(engine, Counting(), FEDERATION, GD, W, 5, cohort=OnOff(), **more)
    assert {k: float(n) for k, n in record.clients.items()} == {0: 2, 2: 5, 3: 5, 4: 5}
    np.testing.assert_allclose(record.w, w, rtol=0, atol=1e-13)


def test_a_reply_without_weight_is_not_in_the_total():
    """FedDR's law x_hat = sum_k p_k (2 x_k - y_k): what is not committed must not be added."""
    x, y, w = np.tile(W, (5, 1)), np.tile(W, (5, 1)), W
    for t in range(3):
        change = 0
        for k in who_counts(t):
            old = 2 * x[k] - y[k]
            y[k] = y[k] + w - x[k]
            x[k] = numpy_version.prox(TWIN, k, y[k], 0.5)
            change = change + TWIN.p[k] * (2 * x[k] - y[k] - old)
        w = w + change
    for engine in (fl.simulate, fl.reference):
        record = last(engine, fl.FedDR(0.5), FEDERATION, fl.Exact(), W, 3, cohort=OnOff())
        np.testing.assert_allclose(record.w, w, rtol=0, atol=1e-13)


def test_a_reply_without_weight_is_not_in_the_total_of_an_asynchronous_server():
    """As many seats as clients, equal speeds and a full buffer: these are synchronous rounds."""
    args = fl.FedDR(0.5), FEDERATION, fl.Exact(), W, 3
    a, b = last(fl.simulate, *args, cohort=OnOff()), last(fl.events, *args, cohort=OnOff(), buffer=5)
    np.testing.assert_allclose(a.w, b.w, rtol=0, atol=1e-13)


def test_a_crashed_client_stays_away_in_asynchronous_runs_too():
    """One client: its replies take a second each, each of its crashes ten more, plus the part of a job before it."""
    system = fl.System(faults=random(crash=0.5, restart=10.0))
    alone = fl.quadratics(clients=1, dimension=3, seed=11)
    clock = last(fl.events, fl.FedAvg(), alone, fl.GD(0.1), W, 12, system=system).clock
    assert clock.crashed > 3
    assert 12 + 10 * clock.crashed <= clock.seconds <= 12 + 11 * clock.crashed
