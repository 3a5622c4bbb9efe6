"""The engine on a real cluster of two nodes: the same numbers as `simulate`, whoever dies."""

import contextlib
import dataclasses
import pathlib
import random
from functools import partial

import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.systems import System, faults
from fedloom.testing import relative_difference, usual_solver
from tests.cases import CASES
from tests.federations import FEDERATION, W, bits, last, least_squares
from tests.ray_cluster import NODE, kill, later, two_nodes
from tests.test_engines import MINIBATCH, RULES

pytest.importorskip("ray", reason="needs Ray: pip install 'fedloom[ray]'")
# Ray starts programs, and leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*os.fork.*:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as found:
        yield found


def assert_equal(one, two):
    assert relative_difference(two.server, one.server) < 1e-12
    assert two.counters == one.counters
    assert [c.tolist() for c in two.cohort] == [c.tolist() for c in one.cohort]
    assert two.dropped == one.dropped
    assert two.unsolved == one.unsolved
    assert two.clock == one.clock
    if one.residual is not None:
        assert abs(two.residual - one.residual) < 1e-12
    assert sorted(two.clients) == sorted(one.clients)
    for k in one.clients:
        assert relative_difference(two.clients[k], one.clients[k]) < 1e-12


def pairs():
    """Every registered algorithm with a rule in turn, a few in short; test_shards.py has all their options."""
    first = {case.name: name for name, case in reversed(CASES.items())}
    for i, (name, case) in enumerate((name, case) for name, case in CASES.items() if first[case.name] == name):
        rules = [r for r in RULES if r != "stragglers" and (r == "everyone" or not case.algorithm.needs_everyone)]
        marks = () if name in ("scaffold-II", "feddane", "feddr") else pytest.mark.exhaustive
        rule = rules[(i + 3) % len(rules)]  # another one than in test_shards.py
        yield pytest.param(case, RULES[rule], id=f"{name}, {rule}", marks=marks)


@pytest.mark.parametrize(("case", "rule"), list(pairs()))
def test_equals_simulate(cluster, case, rule):
    solver = case.solver or usual_solver(case.algorithm)
    args = (case.algorithm, FEDERATION, solver, W, 3)
    one = last(fl.simulate, *args, cohort=rule, seed=5)
    assert_equal(one, last(fl.on_ray, *args, cohort=rule, seed=5, shards=3))


@pytest.mark.parametrize(
    ("algorithm", "solver"),
    [
        pytest.param(*case, id=name, marks=() if name == "feddane" else pytest.mark.exhaustive)
        for name, case in {**MINIBATCH, "optax": (fl.FedAvg(), fl.Optax(batch_size=4))}.items()
    ],
)
def test_equals_simulate_on_minibatches_of_ragged_clients(cluster, algorithm, solver):
    """The federation is made by every worker, and does not travel."""
    rule = cohorts.everyone() if algorithm.needs_everyone else cohorts.uniform(3)
    args = (algorithm, least_squares(), solver, W, 2)
    one = last(fl.simulate, *args, cohort=rule, seed=1)
    assert_equal(one, last(fl.on_ray, algorithm, least_squares, *args[2:], cohort=rule, seed=1, shards=2))


def test_clients_that_are_not_finite_partial_work_and_a_clock(cluster):
    """A client that returns NaN is left out as in `simulate`; stragglers and simulated devices too; records resume."""
    poisoned = dataclasses.replace(FEDERATION, centers=np.asarray(FEDERATION.centers).copy())
    poisoned.centers[2] = np.nan
    args = (fl.Scaffold(), poisoned, fl.GD(0.2, 3), W, 4)
    more = {"cohort": cohorts.uniform(4), "seed": 5, "on_nonfinite": "drop"}
    one, two = (next(iter(engine(*args, **more, chunk=4))) for engine in (fl.simulate, partial(fl.on_ray, shards=3)))
    assert one.dropped
    assert_equal(one, two)
    with pytest.raises(fl.NonFiniteUpdate, match="Client 2 returned NaN"):
        list(fl.on_ray(*args, cohort=cohorts.everyone(), shards=3))
    late = {
        "cohort": cohorts.stragglers(of=cohorts.uniform(4), share=0.5),
        "seed": 5,
        "system": System(speeds=3.0, faults=faults.random(drop=0.2)),
    }
    args = (fl.Scaffold(), FEDERATION, fl.GD(0.2, 3), W)
    one = last(fl.simulate, *args, 6, **late)
    first = next(fl.on_ray(*args, 6, **late, shards=3, chunk=3)).keep()
    assert_equal(one, last(fl.on_ray, *args, 6, **late, resume=first, shards=3))
    with pytest.raises(ValueError, match="shards: the run that is resumed has 3; its bits depend on them"):
        fl.on_ray(*args, 6, **late, resume=first, shards=2)


# Who dies.

ROUNDS = 40


def run(*, after=lambda record: None, shards=4, algorithm=None):
    """The bits of every round of a run with memories; `after` is called with every record."""
    algorithm = algorithm or fl.FedDR(eta=1.5, alpha=1.2)
    found = []
    args = (algorithm, FEDERATION, fl.GD(0.2, 3), W, ROUNDS)
    for record in fl.on_ray(*args, cohort=cohorts.uniform(5), seed=7, shards=shards):
        found.append((bits(record.server), record.counters))
        after(record)
    return found, {k: bits(record.clients[k]) for k in record.clients}


def workers(record):
    """The processes of the workers at work; one may be dead without anybody having noticed."""
    import ray

    found = []
    for worker in record.clients.store.crew.workers.values():
        with contextlib.suppress(ray.exceptions.RayActorError):
            found.append(ray.get(worker.where.remote())[1])
    return found


@pytest.fixture(scope="module")
def undisturbed(cluster):
    return run()


@pytest.mark.parametrize("schedule", range(6))
def test_workers_that_die_at_any_moment_change_no_bit(cluster, undisturbed, schedule):
    """One, two after each other, both at once, and one more while others take over; memories saved now and then."""
    rng = random.Random(schedule)
    rounds, crews = sorted(rng.sample(range(2, ROUNDS - 5), 2)), []

    def after(record):
        crew = record.clients.store.crew
        if record.round == 1:
            crews.append(crew)
        if schedule % 3 == 1 and record.round % 10 == 0:
            crew.remember()
        if record.round == rounds[0]:
            victims = workers(record)
            rng.shuffle(victims)
            for pid in victims[: 1 + schedule % 2]:
                later(rng.uniform(0, 0.05), kill, pid)
        elif record.round == rounds[1]:
            for pid in workers(record)[:1]:
                later(rng.uniform(0, 0.05), kill, pid)

    assert run(after=after) == undisturbed
    assert len(crews[0].lost) >= 2  # they died while they were needed


def test_memories_that_have_moved_are_as_safe_as_others(cluster, undisturbed):
    """From a record on: shards leave a slow worker, memories are saved by the driver, and then all workers die."""
    from fedloom.cluster import crew as crew_file

    args = (fl.FedDR(eta=1.5, alpha=1.2), FEDERATION, fl.GD(0.2, 3), W, ROUNDS)
    more = {"cohort": cohorts.uniform(5), "seed": 7, "shards": 4}
    for record in fl.on_ray(*args, **more, chunk=5):
        if record.round == 10:
            kept = record.keep()
            break
    found, moved = [], []
    for record in fl.on_ray(*args, **more, resume=kept):
        found.append((bits(record.server), record.counters))
        crew = record.clients.store.crew
        if record.round == 13:
            before, slow = dict(crew.home), min(crew.workers)
            crew.pace = {w: 100.0 if w == slow else 1.0 for w in crew.workers}
            crew.exchanges = crew_file.LOOK - 1  # it is time to look
            crew.settle(True)
            moved = [s for s in before if crew.home[s] != before[s]]
            crew.remember()  # before the clients that have moved take part again
            assert len(crew.log) == 0
            for pid in workers(record):
                kill(pid)
    assert moved
    rows, memories = undisturbed
    assert found == rows[10:]
    assert {k: bits(record.clients[k]) for k in record.clients} == memories


def test_a_worker_that_dies_during_recovery_changes_no_bit(cluster, undisturbed, monkeypatch):
    """The second dies while it takes over the shards of the first."""
    from fedloom.cluster.crew import Crew

    settle, deaths = Crew.settle, []

    def settled(crew, *move):
        lost = set(range(crew.shards)) - crew.home.keys()
        if crew.log and lost and len(deaths) == 1:
            import ray

            deaths.append(next(iter(crew.workers)))
            pid = ray.get(crew.workers[deaths[-1]].where.remote())[1]
            later(random.Random(3).uniform(0, 0.02), kill, pid)
        settle(crew, *move)

    def after(record):
        if record.round == 9:
            deaths.append(None)
            kill(workers(record)[0])

    monkeypatch.setattr(Crew, "settle", settled)
    assert run(after=after) == undisturbed
    assert len(deaths) == 2


def test_a_node_that_dies_changes_no_bit(cluster, undisturbed):
    """With its raylet and its worker; the shards go on at the other node."""
    crews = []

    def after(record):
        if record.round == 12:
            crews.append(record.clients.store.crew)
            node, pids = cluster.list_all_nodes()[-1], workers(record)
            (raylet,) = [p.process.pid for p in node.all_processes["raylet"]]
            there = [p for p in pids if pathlib.Path(f"/proc/{p}/stat").read_text().split()[3] == str(raylet)]
            cluster.remove_node(node, False)
            for pid in there:  # a machine that dies leaves nothing behind; a worker alone would end a little later
                kill(pid)

    try:
        assert run(after=after) == undisturbed
        assert crews[0].lost
    finally:
        cluster.add_node(**NODE)
