"""System models: distributions, traces, faults; and synchronous rounds on the clock."""

import numpy as np
import pytest
from scipy import stats

import fedloom as fl
from fedloom import cohorts
from fedloom.systems import System, Work
from fedloom.systems.availability import always, diurnal, markov, observed
from fedloom.systems.compute import constant, exponential, lognormal, proportional, recorded
from fedloom.systems.faults import random
from fedloom.systems.network import links
from tests.federations import FEDERATION, W, bits, last, least_squares

GD = fl.GD(0.1, steps=4)
WORK = Work(1000, 500, np.array([10.0, 20.0, 30.0]))


def seconds(compute, k=0, jobs=1, speeds=1.0, work=WORK):
    """How long jobs of client k compute."""
    courses = System(compute=compute, speeds=speeds).over(work, 3)
    return np.array([(c := courses.start(k, 0.0)).done - c.ready for _ in range(jobs)])


def test_computing_times():
    assert seconds(constant(2.5)) == 2.5
    assert seconds(proportional(0.1), k=1) == pytest.approx(2.0)
    many = seconds(exponential(of=constant(3.0)), jobs=4000)
    assert np.mean(many) == pytest.approx(3, rel=0.1)
    assert np.std(many) == pytest.approx(3, rel=0.1)
    logs = np.log(seconds(lognormal(of=constant(2.0), sigma=0.7), jobs=4000))
    assert np.mean(logs) == pytest.approx(np.log(2), abs=0.05)
    assert np.std(logs) == pytest.approx(0.7, rel=0.1)
    of_steps = seconds(lognormal(of=proportional(0.1), sigma=0.0), k=2)
    assert of_steps == pytest.approx(3.0)


def test_partial_work_takes_less_time():
    courses = System(compute=proportional(0.1)).over(WORK, 0)
    assert courses.start(0, 0.0, 0.5).arrives == pytest.approx(0.5)


def test_speeds_from_one_number_are_evenly_spaced_up_to_it():
    work = Work(0, 0, np.ones(5))
    speeds = System(speeds=2.0).over(work, 0).speeds
    assert sorted(speeds) == pytest.approx([1, 1.25, 1.5, 1.75, 2])
    times = [seconds(constant(6.0), k, speeds=(1.0, 2.0, 3.0))[0] for k in range(3)]
    assert times == [6, 3, 2]


def test_recorded_times_come_in_turn(tmp_path):
    trace = {0: [1.0, 2.0], 1: [5.0], 2: [7.0]}
    assert seconds(recorded(trace), jobs=3).tolist() == [1, 2, 1]
    file = tmp_path / "times.csv"
    file.write_text("client,seconds\n0,1\n1,5\n0,2\n2,7\n")
    assert seconds(recorded(str(file)), jobs=3).tolist() == [1, 2, 1]


def test_messages_take_latency_and_bytes_over_bandwidth():
    system = System(compute=constant(1.0), network=links(up=(100.0, 200.0, 400.0), down=1000.0, latency=0.25))
    c = system.over(WORK, 0).start(1, 10.0)
    assert c.ready == pytest.approx(10 + 0.25 + 1)
    assert c.arrives == pytest.approx(c.ready + 1 + 0.25 + 500 / 200)
    rates = links(up=1e6, sigma=0.8).over(4000, np.random.default_rng(0)).up
    assert np.std(np.log(rates)) == pytest.approx(0.8, rel=0.05)
    assert np.median(rates) == pytest.approx(1e6, rel=0.1)


def online(availability, clients=50, until=4000.0):
    """The share of client-seconds online, found by looking at moments."""
    rng = np.random.default_rng(1)
    window = availability.over(clients, lambda k: np.random.default_rng([7, k + 1]))
    moments = np.sort(rng.uniform(0, until, 400))
    return np.mean([[w[0] <= t < w[1] for t in moments for w in [window(k, t)]] for k in range(clients)])


def test_markov_clients_start_in_the_stationary_state():
    """At time 0 the share online / (online + offline) is online, and what remains of each state is exponential."""
    n = 4000
    window = markov(30.0, 10.0).over(n, lambda k: np.random.default_rng([1, k]))
    starts, ends = np.array([window(k, 0.0) for k in range(n)]).T
    here = starts == 0
    # Five standard deviations of a binomial count: 0.034, where starting online or offline is off by 0.25 or 0.75.
    assert abs(here.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / n)
    assert stats.kstest(starts[~here], stats.expon(scale=10.0).cdf).pvalue > 1e-3
    assert stats.kstest(ends[here], stats.expon(scale=30.0).cdf).pvalue > 1e-3


def test_shares_of_time_online():
    assert online(always()) == 1
    assert online(diurnal(100.0, 0.3, 1.0)) == pytest.approx(0.3, abs=0.03)
    assert online(markov(30.0, 10.0)) == pytest.approx(0.75, abs=0.04)
    assert online(observed({k: [(0.0, 5.0)] for k in range(50)}, repeat=20.0)) == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    "availability",
    [
        diurnal(10.0, 0.4, 1.0),
        markov(3.0, 2.0),
        observed({0: [(1.0, 2.0), (5.0, 9.0)]}, repeat=10.0),
        observed({0: [(0.0, 0.3)]}, repeat=1.0),
    ],
    ids=lambda a: type(a).__name__,
)
def test_a_window_is_the_first_that_ends_after_the_moment(availability):
    window = availability.over(1, lambda k: np.random.default_rng(k + 1))
    t, found = 0.0, []
    for _ in range(20):
        start, end = window(0, t)
        assert start < end
        assert end > t
        assert not found or start >= found[-1][1]
        for inside in (start, (start + end) / 2, np.nextafter(end, 0)):
            assert window(0, inside) == pytest.approx((start, end))
        found.append((start, end))
        t = end


def test_fates_are_as_frequent_as_they_should_be():
    faults = random(drop=0.1, crash=0.2, restart=5.0, lost=0.3, duplicate=0.5)
    courses = System(faults=faults).over(Work(0, 0, np.ones(1)), 0)
    jobs = [courses.start(0, 0.0) for _ in range(4000)]
    share = {fate: np.mean([j.fate == fate for j in jobs]) for fate in ("dropped", "crashed", "lost", "")}
    assert share == pytest.approx({"dropped": 0.1, "crashed": 0.2, "lost": 0.3, "": 0.4}, abs=0.03)
    copies = np.mean([j.again < np.inf for j in jobs if not j.fate])
    assert copies == pytest.approx(0.5, abs=0.04)
    for j in jobs:
        assert (j.arrives < np.inf) == (j.fate == "")
        assert j.free == j.ends + (5.0 if j.fate == "crashed" else 0.0)
        assert j.done <= 1
        assert (j.done == 1) == (j.fate in ("lost", ""))


def test_times_online_that_follow_upon_one_another_are_one():
    night = observed({0: [(0.0, 6.0), (22.0, 24.0)], 1: [(0.0, 24.0)], 2: [(0.0, 5.0), (5.0, 9.0)]}, repeat=24.0)
    window = night.over(3, lambda k: np.random.default_rng(0))
    assert window(0, 3.0) == (-2.0, 6.0)
    assert window(0, 23.5) == (22.0, 30.0)
    assert window(0, 25.0) == (22.0, 30.0)
    assert window(0, 30.0) == (46.0, 54.0)
    assert window(1, 100.0) == (0.0, np.inf)
    assert window(2, 4.0) == (0.0, 9.0)


def test_who_goes_offline_breaks_off():
    system = System(compute=constant(4.0), availability=observed({0: [(0.0, 3.0)], 1: [(0.0, 9.0)], 2: [(0.0, 1.0)]}))
    courses = system.over(WORK, 0)
    broken, whole = courses.start(0, 0.0), courses.start(1, 0.0)
    assert (broken.fate, broken.arrives, broken.free) == ("interrupted", np.inf, 3.0)
    assert (whole.fate, whole.arrives) == ("", 4.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: System(speeds=-1.0), "speeds must be"),
        (lambda: System(speeds=float("nan")), "speeds must be"),
        (lambda: System(speeds=(1.0, float("nan"))), "speeds must be"),
        (lambda: System(speeds=(1.0, 0.0)), "speeds must be"),
        (lambda: System(speeds=0.5), "speeds must be"),
        (lambda: System(compute=3), "compute must be a model"),
        (lambda: constant(-1.0), "seconds must be"),
        (lambda: constant(float("inf")), "seconds must be"),
        (lambda: links(up=0.0), "up must be"),
        (lambda: links(latency=-0.1), "latency must be"),
        (lambda: diurnal(share=0.0), "share must be"),
        (lambda: markov(online=0.0), "online must be"),
        (lambda: random(drop=1.5), "drop must be"),
        (lambda: random(drop=0.5, lost=0.4, crash=0.2), "must not exceed 1"),
        (lambda: random(lost=1.0), "no reply would ever arrive"),
        (lambda: System(deadline=0.0), "deadline must be"),
        (lambda: observed({0: [(None, 3)]}), "a row of client 0"),
        (lambda: observed({0: 5.0}), "client 0 must have a list"),
        (lambda: recorded(None), "trace must be"),
        (lambda: System(late="wait"), "late must be"),
        (lambda: System(enough=0), "enough must be"),
    ],
)
def test_bad_values_are_refused_with_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("system", "words"),
    [
        (System(speeds=(1.0, 2.0)), "speeds has 2 entries for 7 clients"),
        (System(network=links(up=(1.0, 2.0))), "up has 2 entries for 7 clients"),
        (System(availability=observed({9: [(0.0, 1.0)]})), "names client 9, but clients are 0 to 6"),
        (System(availability=observed({})), "no client is ever online"),
        (System(availability=observed({0: []})), "no client is ever online"),
        (System(availability=observed({0: [(3.0, 1.0)]})), "times online of client 0"),
        (System(availability=observed({0: [(0.0, 5.0)]}, repeat=4.0)), "after repeat = 4 seconds"),
        (System(availability=observed("no-such-file.csv")), "no file"),
        (System(compute=recorded({0: [1.0]})), "no times for client 1"),
        (System(compute=recorded({k: [-1.0] for k in range(7)})), "finite and non-negative"),
        (System(compute=recorded({k: [1.0] for k in range(8)})), "names client 7"),
        (System(enough=8), "never sends enough = 8 replies"),
    ],
)
@pytest.mark.parametrize("engine", [fl.simulate, fl.reference], ids=["simulate", "reference"])
def test_systems_that_do_not_fit_are_refused_before_the_run(engine, system, words):
    with pytest.raises(ValueError, match=words):
        engine(fl.FedAvg(), FEDERATION, GD, W, 5, system=system)


def test_times_that_are_not_finite_are_refused():
    system = System(compute=lognormal(of=constant(1e308), sigma=30.0))
    with pytest.raises(ValueError, match="choose times that are finite"), np.errstate(over="ignore"):
        last(fl.events, fl.FedDR(), FEDERATION, GD, W, 30, system=system)


def test_columns_of_a_trace_are_named(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("client,start\n0,1\n")
    with pytest.raises(ValueError, match="no column 'from'"):
        System(availability=observed(str(file))).over(WORK, 0)
    file.write_text("client,from,to\n0,1,x\n")
    with pytest.raises(ValueError, match="line 2"):
        System(availability=observed(str(file))).over(WORK, 0)


# Synchronous rounds.


def test_a_round_takes_as_long_as_its_slowest_client():
    speeds = (1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0)
    system = System(compute=constant(8.0), speeds=speeds)
    plain = last(fl.simulate, fl.FedDR(), FEDERATION, GD, W, 3)
    timed = last(fl.simulate, fl.FedDR(), FEDERATION, GD, W, 3, system=system)
    assert bits(plain.w) == bits(timed.w)  # a system that loses nobody changes nothing but the clock
    assert plain.counters == timed.counters
    assert timed.clock.seconds == pytest.approx(24)
    assert timed.clock.idle == pytest.approx(3 * sum(8 - 8 / s for s in speeds))


def test_a_deadline_drops_those_who_are_late():
    system = System(compute=constant(8.0), speeds=(1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0), deadline=5.0)
    dropped = last(fl.simulate, fl.FedDR(), FEDERATION, GD, W, 3, system=system)
    without = last(fl.simulate, fl.FedDR(), FEDERATION, GD, W, 3, cohort=cohorts.scheduled([range(1, 7)] * 3))
    np.testing.assert_allclose(dropped.w, without.w, rtol=1e-13)
    assert (dropped.clock.late, dropped.clock.seconds) == (3, 15.0)
    assert dropped.clock.wasted == pytest.approx(15)
    assert dropped.counters.bytes_down == without.counters.bytes_down + 3 * 4 * 8


def test_at_a_deadline_partial_work_counts_as_in_fedprox():
    """The slow client has time for 5 of 8 seconds, hence for 3 of its 4 steps, rounded up."""
    system = System(compute=constant(8.0), speeds=(1.0,) + (4.0,) * 6, deadline=5.0, late="partial")
    record = last(fl.simulate, fl.FedProx(mu=0.1), FEDERATION, GD, W, 1, system=system)
    assert record.clock.late == 0
    assert record.counters.gradients == 6 * 4 + 3
    expected = np.zeros(4)
    for k in range(7):
        v = np.asarray(W)
        for _ in range(3 if k == 0 else 4):
            v = v - 0.1 * (FEDERATION.hessians[k] @ (v - FEDERATION.centers[k]) + 0.1 * (v - np.asarray(W)))
        expected += FEDERATION.weights[k] * v
    np.testing.assert_allclose(record.w, expected, rtol=1e-12)


def test_over_selection_counts_the_first_replies():
    speeds = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    system = System(compute=constant(42.0), speeds=speeds, enough=3)
    first = last(fl.simulate, fl.FedAvg(), FEDERATION, GD, W, 2, system=system)
    fastest = last(fl.simulate, fl.FedAvg(), FEDERATION, GD, W, 2, cohort=cohorts.scheduled([[4, 5, 6]] * 2))
    np.testing.assert_allclose(first.w, fastest.w, rtol=1e-13)
    assert first.clock.seconds == pytest.approx(2 * 42 / 5)
    assert first.clock.late == 8
    ties = last(fl.simulate, fl.FedAvg(), FEDERATION, GD, W, 2, system=System(enough=3))
    assert (ties.clock.replies, ties.cohort[0].tolist()) == (6, [0, 1, 2])


def test_what_would_happen_after_a_round_does_not_happen():
    """Of jobs of ten seconds, every second one crashes, but nearly all of them after the round is over."""
    system = System(compute=constant(10.0), faults=random(crash=0.5, restart=1e6), deadline=1.0, late="partial")
    record = last(fl.simulate, fl.FedProx(), FEDERATION, GD, W, 10, system=system)
    assert record.clock.crashed < 15
    assert record.clock.crashed + record.clock.replies + record.clock.late == record.clock.jobs
    assert record.clock.late == 0
    assert record.clock.seconds == pytest.approx(10)


UNRELIABLE = System(
    compute=exponential(),
    availability=markov(20.0, 5.0),
    faults=random(drop=0.1, crash=0.1, restart=3.0, lost=0.1, duplicate=0.1),
    deadline=3.0,
)


def test_engines_agree_under_an_unreliable_system():
    args = fl.Scaffold(), least_squares(), fl.SGD(0.1, batch_size=2), W, 6
    more = {"cohort": cohorts.uniform(3), "system": UNRELIABLE, "seed": 2}
    for a, b in zip(fl.simulate(*args, **more), fl.reference(*args, **more), strict=True):
        np.testing.assert_allclose(a.w, b.w, rtol=1e-12)
        assert a.clock == b.clock
        assert a.counters == b.counters
    assert a.clock.failed > 0


def test_a_synchronous_run_on_the_clock_resumes_to_the_same_bits():
    args = fl.Scaffold(), least_squares(), fl.SGD(0.1, batch_size=2), W
    more = {"cohort": cohorts.uniform(3), "system": UNRELIABLE, "seed": 2}
    whole = last(fl.simulate, *args, 12, chunk=4, **more)
    again = last(fl.simulate, *args, 12, resume=last(fl.simulate, *args, 5, **more), **more)
    assert bits(whole.w) == bits(again.w)
    assert whole.clock == again.clock


def test_a_round_in_which_nobody_replies_changes_nothing():
    system = System(compute=constant(8.0), deadline=1.0)
    for engine in (fl.simulate, fl.reference):
        record = last(engine, fl.FedDR(), FEDERATION, GD, W, 2, system=system)
        np.testing.assert_array_equal(record.w, W)
        assert len(record.clients) == 0
        assert (record.clock.late, record.clock.jobs) == (14, 14)
        assert (record.counters.messages, record.counters.bytes_up, record.counters.gradients) == (14, 0, 0)
    two = last(fl.simulate, fl.FedDANE(), FEDERATION, GD, W, 2, system=system)
    assert two.clock.jobs == 14  # there is no second exchange without anybody in the first
    with pytest.raises(ValueError, match="Nobody has replied in 1000 rounds"):
        last(fl.simulate, fl.FedDR(), FEDERATION, GD, W, 2000, system=system, chunk=2000)


def test_the_server_waits_until_somebody_is_online():
    system = System(availability=observed({k: [(100.0 + k, 200.0)] for k in range(7)}))
    record = last(fl.simulate, fl.FedAvg(), FEDERATION, GD, W, 1, system=system)
    assert record.cohort[0].tolist() == [0]
    assert record.clock.seconds == pytest.approx(101)
    with pytest.raises(ValueError, match="ever online again"):
        last(fl.simulate, fl.FedAvg(), FEDERATION, GD, W, 200, system=system)


def test_methods_that_need_everyone_refuse_systems_that_lose_some():
    with pytest.raises(ValueError, match="may lose some"):
        fl.simulate(fl.FedPD(), FEDERATION, GD, W, 2, system=UNRELIABLE)
    record = last(fl.simulate, fl.FedPD(), FEDERATION, GD, W, 2, system=System(speeds=2.0))
    assert record.clock.seconds > 0


def test_delays_belong_to_asynchronous_runs():
    from fedloom.systems import Delays

    with pytest.raises(ValueError, match=r"use fl\.events"):
        fl.simulate(fl.FedDR(), FEDERATION, GD, W, 2, system=Delays(1))


def test_networks_without_bandwidth_cost_nothing():
    assert System(network=links()).over(WORK, 0).start(0, 5.0).arrives == 6.0
