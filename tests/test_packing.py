"""Packing clients into lanes: everyone runs once and wholly, and little time is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedloom as fl
from benchmarks.speed.workloads import WORKLOADS
from fedloom import cohorts
from fedloom.engines.checks import checked
from fedloom.engines.costs import LocalSteps
from fedloom.engines.packing import WAITING, Packer, pack, wasted
from fedloom.engines.plan import Plan

LANES, DEVICES, SPARE = st.integers(1, 5), st.integers(1, 3), st.integers(0, 4)
RAGGED = st.lists(st.integers(0, 30), max_size=12).map(lambda steps: np.array(steps, np.int32))
UNIFORM = st.builds(lambda m, s: np.full(m, s, np.int32), st.integers(0, 12), st.integers(0, 30))


def room_for(steps, spare):
    return max(len(steps) + spare, 1)


def played(schedule, room):
    """Play a schedule step by step, as a device would: for each client its device, lane, begin and end.

    Raises on its way if a lane that is busy begins somebody, or if somebody ends where he does not run.
    """
    devices, lanes = schedule.first.shape
    course, makespan = {}, 0
    for d in range(devices):
        running = {lane: (i, 0) for lane, i in enumerate(schedule.first[d].tolist()) if i < room}
        time = 0
        assert 0 <= schedule.events[d] <= schedule.steps.shape[1]
        for e in range(schedule.events[d]):
            assert schedule.steps[d, e] >= 0
            time += int(schedule.steps[d, e])
            handed = list(zip(*(x[d, e].tolist() for x in schedule[4:7]), strict=True))
            for lane, ends, _ in handed:
                if ends < room:
                    i, begun = running.pop(lane)
                    assert i == ends
                    assert i not in course
                    course[i] = (d, lane, begun, time)
            for lane, _, begins in handed:
                if begins < room:
                    assert lane not in running
                    assert 0 <= lane < lanes
                    running[lane] = (begins, time)
        assert not running
        for i, steps in zip(schedule.alone[d].tolist(), schedule.alone_steps[d].tolist(), strict=True):
            if i < room:
                assert i not in course
                course[i] = (d, None, time, time + steps)
                time += steps
        makespan = max(makespan, time)
    return course, makespan


def computed(schedule):
    """Steps that are computed: of all lanes together, and of clients alone."""
    return schedule.first.shape[1] * schedule.steps.sum() + schedule.alone_steps.sum()


def check(schedule, steps, room):
    """Everyone runs once, for as many steps as it takes, where its owner says; returns when the last one ends."""
    course, makespan = played(schedule, room)
    assert sorted(course) == list(range(len(steps)))
    for i, (d, _, begin, end) in course.items():
        assert schedule.owner[i] == d
        assert end - begin == steps[i]
    return makespan


@given(RAGGED, LANES, DEVICES, SPARE)
@settings(deadline=None)
def test_ragged_clients_run_once_and_wholly(steps, lanes, devices, spare):
    room = room_for(steps, spare)
    schedule = pack(steps, lanes, devices, room, together=False)
    assert schedule.first.shape == (devices, lanes)
    makespan = check(schedule, steps, room)
    # Graham's list scheduling, 1969; the optimum is at least the mean load, the longest client, and two of the
    # lanes + 1 longest clients, since two of these share a lane.
    of = lanes * devices
    longest = np.sort(steps)[::-1]
    pair = int(longest[of - 1] + longest[of]) if len(steps) > of else 0
    least = max(-(-int(steps.sum()) // of), int(longest.max(initial=0)), pair)
    assert least <= makespan
    assert makespan <= int(steps.sum()) / of + (1 - 1 / of) * longest.max(initial=0) + 1e-9
    done = computed(schedule)
    assert done <= of * makespan
    assert wasted(schedule, steps) == pytest.approx(1 - steps.sum() / done if done else 0.0)


@given(RAGGED, LANES, DEVICES, SPARE, st.booleans())
@settings(deadline=None)
def test_with_clients_alone_next_to_nothing_is_computed_for_nobody(steps, lanes, devices, spare, together):
    steps = np.full_like(steps, 7) if together else steps
    room = room_for(steps, spare)
    schedule = pack(steps, lanes, devices, room, together, alone=True)
    check(schedule, steps, room)
    assert steps.sum() <= computed(schedule) <= (1 + WAITING) * steps.sum()


@given(RAGGED, LANES, DEVICES)
@settings(deadline=None, max_examples=30)
def test_clients_that_change_together_are_shared_out_fairly(sizes, lanes, devices):
    sizes = np.sort(sizes) + 1
    schedule = pack(np.full(len(sizes), 2), lanes, devices, max(len(sizes), 1), True, sizes=sizes)
    check(schedule, np.full(len(sizes), 2), max(len(sizes), 1))
    loads = np.bincount(schedule.owner[: len(sizes)], weights=sizes, minlength=devices)
    assert np.ptp(loads) <= 2 * sizes.max(initial=0)
    assert np.ptp(np.bincount(schedule.owner[: len(sizes)], minlength=devices)) <= 1


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6).map(np.array), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_longest_first_is_within_four_thirds_of_the_best(steps, lanes):
    best = min(
        np.bincount(at, weights=steps, minlength=lanes).max() for at in np.ndindex(*(lanes,) * len(steps))
    )  # all ways to place all clients
    makespan = check(pack(steps, lanes, 1, len(steps), together=False), steps, len(steps))
    assert best <= makespan <= (4 / 3 - 1 / (3 * lanes)) * best + 1e-9


@given(UNIFORM, LANES, DEVICES, SPARE)
@settings(deadline=None)
def test_equal_clients_change_together(steps, lanes, devices, spare):
    room = room_for(steps, spare)
    together, one_by_one = (pack(steps, lanes, devices, room, t) for t in (True, False))
    makespan = check(together, steps, room)
    assert makespan == check(one_by_one, steps, room)
    assert makespan == -(-len(steps) // (lanes * devices)) * steps.max(initial=0)
    assert wasted(together, steps) == wasted(one_by_one, steps)


@given(RAGGED, LANES, DEVICES)
@settings(deadline=None, max_examples=30)
def test_the_shape_of_a_schedule_is_that_of_the_room(steps, lanes, devices):
    """Whoever comes, the program is the same."""
    empty = pack(np.zeros(0, np.int32), lanes, devices, 12, together=False)
    schedule = pack(steps, lanes, devices, 12, together=False)
    assert [(x.shape, x.dtype) for x in schedule] == [(x.shape, x.dtype) for x in empty]


def test_a_picture():
    """Two lanes, clients of 5, 3, 3 and 1 steps: 5 and 1 in one lane, 3 and 3 in the other."""
    steps = np.array([3, 5, 1, 3])
    course, makespan = played(pack(steps, 2, 1, 4, together=False), 4)
    assert course == {1: (0, 0, 0, 5), 0: (0, 1, 0, 3), 3: (0, 1, 3, 6), 2: (0, 0, 5, 6)}
    assert makespan == 6
    assert wasted(pack(steps, 2, 1, 4, together=False), steps) == 0
    assert wasted(pack(steps, 3, 1, 4, together=False), steps) == pytest.approx(1 - 12 / 15)


# The workload that clients of very different sizes are measured by.

LR = WORKLOADS["lr-synthetic"]


def lr_synthetic():
    x, y = np.zeros((sum(LR.sizes), 1)), np.zeros(sum(LR.sizes))
    federation = fl.examples((x, y), LR.sizes, lambda w, rows, key: (rows[0] @ w - rows[1]) ** 2)
    solver = fl.SGD(LR.lr, batch_size=LR.batch, epochs=LR.epochs)
    return checked(fl.FedAvg(), federation, solver, np.zeros(1), 30, cohort=cohorts.scheduled(LR.cohorts(30)))


def share(run, plan):
    """The mean wasted share over the workload's cohorts."""
    packer, draws = Packer(run, plan), [run.cohorts(t)[0] for t in range(30)]
    return np.mean([wasted(packer(draw, LR.cohort), packer.steps(draw.ids, draw.work)) for draw in draws])


def test_less_than_a_tenth_of_the_steps_is_wasted_on_ragged_clients():
    run = lr_synthetic()
    assert LocalSteps(run).of_all().tolist() == [LR.steps(k) for k in range(LR.clients)]
    for plan in (Plan(1), Plan(2), Plan(1, 2), Plan(3, 2), Plan(LR.cohort)):
        assert share(run, plan) < WAITING, plan
    # All side by side, padded to the longest, is what is to be avoided.
    steps = LocalSteps(run)(np.arange(LR.cohort), np.ones(LR.cohort))
    assert wasted(pack(steps, LR.cohort, 1, LR.cohort, together=False), steps) > 0.5


def test_partial_work_is_packed_by_what_is_done():
    federation = fl.examples(np.zeros((40, 1)), [10] * 4, lambda w, rows, key: rows @ w)
    solver = fl.SGD(0.1, batch_size=2, epochs=4)
    args = (fl.FedAvg(), federation, solver, np.zeros(1), 1)
    slow = checked(*args, cohort=cohorts.stragglers(of=cohorts.everyone(), share=1.0))
    packer, draw = Packer(slow, Plan(2)), slow.cohorts(0)[0]
    assert packer.together == [False]
    assert packer.alone == [True]
    steps = packer.steps(draw.ids, draw.work)
    assert steps.tolist() == [5 * int(np.ceil(4 * u)) for u in draw.work]
    check(packer(draw, 4), steps, 4)
    usual = Packer(checked(*args), Plan(2))
    assert (usual.together, usual.alone) == ([True], [False])  # nobody needs to be compiled twice
    assert Packer(checked(*args, cohort=cohorts.bernoulli(0.5)), Plan(2)).alone == [True]
