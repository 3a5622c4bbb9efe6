"""Asynchronous runs: resumed, repeated, counted, with clients that fail, and refused."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.engines import memory_store
from fedloom.engines.asynchronous import Asynchronous
from fedloom.engines.checks import checked
from fedloom.engines.plan import Plan
from fedloom.engines.timeline import Timeline
from fedloom.hyperparameters import frozen
from fedloom.systems import Delays, System, Work
from fedloom.systems.availability import markov, observed
from fedloom.systems.compute import constant, exponential, recorded
from fedloom.systems.faults import random
from fedloom.systems.network import links
from fedloom.testing import imbalance
from tests.federations import FEDERATION, W, bits, last, least_squares

RAGGED = least_squares()
GD = fl.GD(0.1, steps=3)
SGD = fl.SGD(0.1, batch_size=2, epochs=2)
UNRELIABLE = System(
    compute=exponential(),
    speeds=3.0,
    network=links(up=200.0, down=500.0, latency=0.01, sigma=0.5),
    faults=random(drop=0.05, crash=0.05, restart=2.0, lost=0.1, duplicate=0.2),
)


@pytest.mark.parametrize("chunk", [1, 7])
def test_resuming_and_chunks_change_no_bit(chunk):
    args = fl.Scaffold(), RAGGED, SGD, W
    more = {"system": UNRELIABLE, "cohort": cohorts.uniform(3), "buffer": 2, "seed": 9}
    whole = last(fl.events, *args, 20, chunk=20, **more)
    half = last(fl.events, *args, 9, chunk=chunk, **more)
    end = last(fl.events, *args, 20, chunk=chunk, resume=half, **more)
    assert bits(end.w) == bits(whole.w)
    assert (end.counters, end.clock) == (whole.counters, whole.clock)
    assert {k: bits(m) for k, m in end.clients.items()} == {k: bits(m) for k, m in whole.clients.items()}


def test_a_kept_record_can_be_resumed_after_the_run_has_moved_on():
    args = fl.FedDR(), RAGGED, SGD, W, 12
    records = [r.keep() for r in fl.events(*args, system=UNRELIABLE)]
    again = last(fl.events, *args, system=UNRELIABLE, resume=records[4])
    assert bits(again.w) == bits(records[-1].w)


def test_seeds_matter_and_reproduce():
    def end(seed):
        return last(fl.events, fl.FedAvg(), RAGGED, SGD, W, 10, system=UNRELIABLE, seed=seed)

    assert bits(end(1).w) == bits(end(1).w)
    assert end(1).clock == end(1).clock
    assert bits(end(1).w) != bits(end(2).w)


def test_messages_and_bytes_are_counted():
    system = System(faults=random(lost=0.3, duplicate=0.3))
    r = last(fl.events, fl.Scaffold(), FEDERATION, GD, W, 50, system=system)
    sent = r.clock.replies + r.clock.lost + r.clock.duplicates
    assert r.counters.bytes_down == r.clock.jobs * 2 * 4 * 8  # two models down
    assert r.counters.bytes_up == sent * 2 * 4 * 8
    assert r.counters.messages == r.clock.jobs + sent
    assert r.counters.gradients == 3 * r.clock.replies  # three steps on one example each


def test_a_client_that_explodes_is_named_or_left_out():
    def loss(w, rows, key):
        return jnp.where(rows[1] > 100, jnp.nan, 1.0) * jnp.sum((w[None] - rows[0]) ** 2, -1)

    f = fl.examples((np.ones((8, 4)), np.array([0.0, 0, 0, 0, 0, 200, 0, 0])), (2,) * 4, loss)
    with pytest.raises(fl.NonFiniteUpdate, match="Client 2"):
        last(fl.events, fl.FedDR(), f, GD, W, 8)
    r = last(fl.events, fl.FedDR(), f, GD, W, 8, chunk=8, on_nonfinite="drop")
    assert [(k, name) for _, k, name in r.dropped] == [(2, "train")] * 2
    assert np.all(np.isfinite(r.w))
    assert 2 not in r.clients
    assert imbalance(r, fl.FedDR(), f, W) < 1e-12


@frozen
class Counting(fl.FedAvg):
    """Clients count their jobs; the replies of the first round's worth are not numbers."""

    def init_client(self, w):
        return jnp.zeros(())

    def local(self, w, jobs, client):
        return jnp.where(client.t < 1, jnp.nan, 0.0) * w, jobs + 1


def test_the_memory_of_a_client_that_is_left_out_stays_as_it_was():
    r = last(fl.events, Counting(), FEDERATION, GD, W, 21, on_nonfinite="drop")  # three jobs of each of seven clients
    assert {k: float(m) for k, m in r.clients.items()} == dict.fromkeys(range(7), 2.0)


REFUSED = [
    (fl.FedDyn(), "FedDyn cannot run asynchronously"),
    (fl.FedDANE(), "2 exchanges"),
    (fl.FedPD(), "FedPD cannot run asynchronously"),
]


@pytest.mark.parametrize(("algorithm", "words"), REFUSED, ids=lambda v: type(v).__name__)
def test_methods_that_do_not_tolerate_staleness_are_refused(algorithm, words):
    with pytest.raises(ValueError, match=words):
        fl.events(algorithm, FEDERATION, GD, W, 5)


OTHER = {
    "a synchronous record": lambda args: last(fl.simulate, *args, 5),
    "another buffer": lambda args: last(fl.events, *args, 5, buffer=2),
    "another system": lambda args: last(fl.events, *args, 5, system=System(speeds=2.0)),
}


@pytest.mark.parametrize("which", OTHER)
def test_records_of_other_runs_cannot_be_resumed(which):
    args = fl.FedDR(), FEDERATION, GD, W
    with pytest.raises(ValueError, match="run was of another kind"):
        fl.events(*args, 10, resume=OTHER[which](args))
    with pytest.raises(ValueError, match="run was of another kind"):
        fl.simulate(*args, 10, resume=last(fl.events, *args, 5))


def test_a_trace_that_has_changed_is_noticed(tmp_path):
    file = tmp_path / "times.csv"
    args = fl.FedDR(), FEDERATION, GD, W
    for engine in (fl.events, fl.simulate):
        file.write_text("client,seconds\n" + "".join(f"{k},{k + 1}\n" for k in range(7)))
        system = System(compute=recorded(str(file)))
        half = last(engine, *args, 5, system=system)
        file.write_text(file.read_text().replace("6,7", "6,9").replace("0,1\n", "0,1.5\n"))
        with pytest.raises(ValueError, match="Has a trace changed since"):
            list(engine(*args, 10, system=system, resume=half))


def test_memories_on_disk_give_the_same_bits(monkeypatch):
    args = fl.FedDR(), FEDERATION, GD, W, 20
    more = {"cohort": cohorts.uniform(3), "system": UNRELIABLE, "chunk": 4}
    here = last(fl.events, *args, **more)
    monkeypatch.setattr(memory_store, "ON_DEVICE", 0.0)
    there = last(fl.events, *args, **more)
    assert isinstance(there.clients.store, memory_store.DiskStore)
    assert bits(here.w) == bits(there.w)
    assert {k: bits(m) for k, m in here.clients.items()} == {k: bits(m) for k, m in there.clients.items()}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"buffer": 0}, "buffer must be an integer from 1 to 7"),
        ({"buffer": 8}, "buffer must be an integer from 1 to 7"),
        ({"buffer": 1.5}, "buffer must be"),
        ({"system": 3}, "system must be"),
        ({"system": System(deadline=2.0)}, "deadline and enough end synchronous rounds"),
        ({"system": System(speeds=(1.0, 2.0))}, "speeds has 2 entries for 7 clients"),
        ({"system": Delays(2), "buffer": 2}, "every update has one reply"),
        ({"system": Delays(2, users=(1.0, 1.0))}, "users has 2 entries"),
        ({"system": Delays(2, delays=(1.0, 1.0))}, "must have 3 numbers"),
        ({"chunk": 0}, "chunk must be"),
        ({"system": Delays(1), "cohort": cohorts.uniform(2)}, "Delays draw the clients themselves"),
        ({"cohort": cohorts.scheduled([[0, 1]] * 9)}, "is a trace of synchronous rounds"),
        ({"cohort": cohorts.stragglers(cohorts.scheduled([[0, 1]] * 9))}, "is a trace of synchronous rounds"),
        ({"plan": Plan(2, 2)}, "asynchronous runs use one device"),
    ],
)
def test_bad_arguments_are_refused_at_once(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fl.events(fl.FedDR(), FEDERATION, GD, W, 5, **options)


def test_more_than_fits_in_flight_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(sys.modules["fedloom.engines.asynchronous"], "device_memory", lambda devices: 1000)
    with pytest.raises(ValueError, match="7 clients at work at once need"):
        fl.events(fl.FedDR(), FEDERATION, GD, W, 5)


def test_nobody_online_is_an_error_and_not_an_endless_loop():
    system = System(availability=observed({0: [(0.0, 3.5)]}))
    for chunk in (1, 10):
        records = []
        run = fl.events(fl.FedDR(), FEDERATION, GD, W, 10, system=system, chunk=chunk)
        with pytest.raises(ValueError, match="nobody else can start"):
            records.extend(record.keep() for record in run)
        assert (records[-1].round, records[-1].clock.seconds, records[-1].clock.jobs) == (3, 3.0, 3)
        with pytest.raises(ValueError, match="nobody else can start"):
            last(fl.events, fl.FedDR(), FEDERATION, GD, W, 10, system=system, resume=records[-1])


def test_whoever_fills_a_seat_has_the_weight_that_the_rule_would_give():
    """`by_weight` counts draws, and its mean is plain; clients of small weight are busy less often, and fill in."""
    p = np.array([0.8] + [0.2 / 6] * 6)
    f = type(FEDERATION)(FEDERATION.hessians, FEDERATION.centers, p)
    more = {"cohort": cohorts.by_weight(4), "system": System(compute=exponential()), "buffer": 3, "plan": Plan(2)}
    run = checked(fl.FedAvg(), f, GD, W, 10, **more)
    flights = [f for _, stage in zip(range(100), Asynchronous(run).stages, strict=False) for f in stage.counted]
    assert {f.client for f in flights} == set(range(7))
    assert min(f.weight for f in flights) == 1


def test_jobs_that_never_end_in_time_are_an_error():
    system = System(compute=constant(10.0), availability=markov(0.01, 0.01))
    with pytest.raises(ValueError, match="None of the last"):
        last(fl.events, fl.FedDR(), FEDERATION, GD, W, 10, system=system)


def test_whoever_fills_a_seat_has_its_usual_weight():
    """Cohorts name client 0 only, so the other two seats are filled by anybody, who counts as if drawn."""
    p = np.array([0.1, 0.2, 0.3, 0.4])
    courses = System(compute=exponential()).over(Work(8, 8, np.ones(4)), 0)
    drawn = cohorts.Draw(np.array([0]), np.array([0.7]), np.ones(1))
    stages = Timeline(courses, lambda wave: drawn, p, 3, 2)
    weights = {(f.client, f.weight) for _, stage in zip(range(40), stages, strict=False) for f in stage.counted}
    assert weights <= {(0, 0.7), *enumerate(p.tolist())}
    assert weights >= {(0, 0.7), (1, 0.2), (2, 0.3), (3, 0.4)}
