"""Shards without a cluster: parts of clients, computed one by one, are a round of `simulate`."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.cluster.assignment import assigned, moves
from fedloom.cluster.server import together
from fedloom.cluster.shard import Computer, Part, Shard, places
from fedloom.cluster.shard_files import FileStore, read_shard, shard_file, write_shard
from fedloom.cohorts import Draw
from fedloom.engines.aggregate import message_of, updated
from fedloom.engines.checks import checked
from fedloom.engines.choose_plan import sharded
from fedloom.engines.plan import Plan
from fedloom.testing import relative_difference, usual_solver
from tests.cases import CASES
from tests.federations import FEDERATION, W, bits, last, least_squares
from tests.test_engines import MINIBATCH, RULES


def by_hand(run, watch=lambda t, shards: None):
    """The rounds of a run, shard after shard."""
    count, computer, server = run.plan.shards, Computer(run), run.start.server
    shards = [Shard(run, s, count, 1) for s in range(count)]
    gradients = 0
    for t in range(run.rounds):
        active = True
        for e, draw in enumerate(run.cohorts(t)):
            where, room, answers = places(draw, count), run.room(len(draw.ids)), {}
            message = jax.device_get(message_of(run.algorithm, server, e))
            for s, i in where.items():
                part = Part(s, shards[s].number, t, e, Draw(*(x[i] for x in draw)), room, active)
                answers[s] = computer(part, message, None if computer.stateless else shards[s])
            sums, report = together(answers, where, room)
            gradients += int(report.gradients.sum())
            counted = False
            if sums is not None:
                server, counted, _ = updated(run.algorithm, server, sums, run.key, t, active, e)
            active = bool(counted)
        watch(t, shards)
    memories = {}
    for shard in shards:
        lent = shard.memories()
        memories |= {int(k): jax.tree.map(lambda x, i=i: x[i], lent.rows) for i, k in enumerate(lent.ids)}
    return server, memories, gradients


def run_of(algorithm, federation, solver, rounds, rule, shards=3, seed=5, lanes=None, **more):
    run = checked(algorithm, federation, solver, W, rounds, rule, seed, plan=lanes and Plan(lanes), **more)
    return sharded(run, shards, lambda cohort: 1)


def pairs():
    """Each algorithm with one rule in turn, so that each rule meets several; with another one on a real cluster."""
    rules = list(RULES)
    for i, (name, case) in enumerate(CASES.items()):
        rule = "everyone" if case.algorithm.needs_everyone else rules[i % len(rules)]
        yield pytest.param(case, rule, id=f"{name}, {rule}")


@pytest.mark.parametrize(("case", "rule"), list(pairs()))
def test_shards_equal_simulate(case, rule):
    """Server, memories and gradients."""
    solver = case.solver or usual_solver(case.algorithm)
    if rule == "stragglers" and "work" not in solver.offers:
        solver = fl.GD(0.2, 3)
    run = run_of(case.algorithm, FEDERATION, solver, 3, RULES[rule])
    one = last(fl.simulate, case.algorithm, FEDERATION, solver, W, 3, cohort=RULES[rule], seed=5)
    server, memories, gradients = by_hand(run)
    assert relative_difference(server, one.server) < 1e-12
    assert gradients == one.counters.gradients
    if jax.tree.leaves(case.algorithm.init_client(W)):
        assert sorted(memories) == sorted(one.clients)
        for k in memories:
            assert relative_difference(memories[k], one.clients[k]) < 1e-12


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(
    ("algorithm", "solver"), [MINIBATCH["scaffold"], MINIBATCH["feddane"]], ids=["scaffold", "feddane"]
)
def test_shards_of_ragged_clients_equal_simulate(algorithm, solver, lanes):
    run = run_of(algorithm, least_squares(), solver, 3, cohorts.uniform(4), shards=2, lanes=lanes)
    one = last(fl.simulate, algorithm, least_squares(), solver, W, 3, cohort=cohorts.uniform(4), seed=5)
    server, memories, gradients = by_hand(run)
    assert relative_difference(server, one.server) < 1e-12
    assert gradients == one.counters.gradients
    if algorithm == MINIBATCH["scaffold"][0]:
        assert sorted(memories) == sorted(one.clients)


def test_a_part_that_is_not_the_next_one_is_refused():
    """A shard that missed a part, or has done it already, must not compute with the wrong memories."""
    run = run_of(fl.Scaffold(), FEDERATION, fl.GD(0.2, 3), 2, cohorts.everyone(), shards=1)
    shard, computer = Shard(run, 0, 1, 1), Computer(run)
    (draw,) = run.cohorts(0)
    message = jax.device_get(message_of(run.algorithm, run.start.server, 0))
    part = Part(0, 0, 0, 0, draw, len(draw.ids), True)
    computer(part, message, shard)
    for number in (0, 2):
        with pytest.raises(RuntimeError, match=f"has done 1 parts, but is asked for part {number}"):
            computer(part._replace(number=number), message, shard)


def test_a_shard_begun_again_goes_through_its_parts_to_the_same_bits(tmp_path):
    """From memories saved after 2 of 5 rounds, once as they are and once through a file."""
    run = run_of(fl.FedDR(eta=1.5, alpha=1.2), FEDERATION, fl.GD(0.2, 3), 5, cohorts.uniform(3), shards=2)
    saved = {}

    def watch(t, shards):
        if t == 1:
            for shard in shards:
                lent = jax.tree.map(np.copy, shard.memories())
                write_shard(shard_file(tmp_path, shard.s), lent)
                saved[shard.s] = shard.number, lent

    _, memories, _ = by_hand(run, watch=watch)
    blank = run.algorithm.init_client(run.w)
    assert any(len(lent.ids) for _, lent in saved.values())
    server, computer = run.start.server, Computer(run)
    again = {s: Shard(run, s, 2, 1) for s in saved}
    for s, (number, lent) in saved.items():
        from_file = read_shard(shard_file(tmp_path, s), blank)
        assert bits(from_file) == bits(lent)
        again[s].begin(from_file, number)
    numbers = [0, 0]
    fresh = [Shard(run, s, 2, 1) for s in range(2)]
    for t in range(5):
        (draw,) = run.cohorts(t)
        message, answers = jax.device_get(message_of(run.algorithm, server, 0)), {}
        where = places(draw, 2)
        for s, i in where.items():
            part = Part(s, numbers[s], t, 0, Draw(*(x[i] for x in draw)), 3, True)
            answers[s] = computer(part, message, fresh[s])
            if part.number >= saved[s][0]:  # the replay
                assert bits(computer(part, message, again[s])[:2]) == bits(answers[s][:2])
            numbers[s] += 1
        server, *_ = updated(run.algorithm, server, together(answers, where, 3)[0], run.key, t, True, 0)
    for s, shard in again.items():
        assert bits(shard.memories()) == bits(fresh[s].memories())
        for i, k in enumerate(shard.memories().ids.tolist()):
            assert bits(jax.tree.map(lambda x, i=i: x[i], shard.memories().rows)) == bits(memories[k])


def test_files_of_shards_are_read_as_one(tmp_path):
    run = run_of(fl.Scaffold(), FEDERATION, fl.GD(0.2, 3), 3, cohorts.uniform(3), shards=3)

    def save(t, shards):
        for shard in shards:
            write_shard(shard_file(tmp_path, shard.s), shard.memories())

    _, memories, _ = by_hand(run, watch=save)
    store = FileStore(tmp_path, run.algorithm.init_client(run.w), 7, 3, 3)
    ids = np.flatnonzero(store.known)
    assert ids.tolist() == sorted(memories)
    whole = store.copy()
    for i, k in enumerate(ids.tolist()):
        for found in (store.read(k), jax.tree.map(lambda x, i=i: x[i], store.read(ids)), whole.read(k)):
            assert bits(found) == bits(memories[k])
    shard_file(tmp_path, 1).write_bytes(b"not a file of numpy")
    with pytest.raises(ValueError, match=r"shard-1.npz cannot be read"):
        FileStore(tmp_path, store.blank, 7, 3, 3)
    shard_file(tmp_path, 0).replace(shard_file(tmp_path, 1))
    write_shard(shard_file(tmp_path, 0), store_of(tmp_path, store))
    with pytest.raises(ValueError, match="not of this shard"):
        FileStore(tmp_path, store.blank, 7, 3, 3)


def store_of(path, store):
    return read_shard(shard_file(path, 2), store.blank)


# Who computes what.


def test_parts_go_to_whoever_ends_soonest():
    assert assigned({0: 4.0, 1: 3.0, 2: 3.0, 3: 2.0}, {0: 1.0, 1: 1.0}) == {0: 0, 1: 1, 2: 1, 3: 0}


def test_a_slow_worker_gets_its_part_only():
    """Of 30 equal parts, one that is twice as slow gets a third."""
    found = assigned(dict.fromkeys(range(30), 1.0), {0: 1.0, 1: 2.0})
    assert sum(w == 1 for w in found.values()) == 10


def test_shards_with_memories_move_to_quicker_workers_and_to_new_ones():
    """Eight shards: half as fast keeps a third; a worker that has come gets its part; small gains move nothing."""
    two = {0: [0, 2, 4, 6], 1: [1, 3, 5, 7]}
    assert moves(two, {0: 1.0, 1: 1.1}, 1.25) == []
    assert moves(two, {0: 1.0, 1: 2.5}, 1.25) == [(7, 1, 0), (5, 1, 0)]
    assert len(moves(two, {0: 1.0, 1: 5.0}, 1.01)) == 3
    assert len(moves({**two, 2: []}, {0: 1.0, 1: 1.0, 2: 1.0}, 1.01)) == 2
    assert moves({0: [0, 1]}, {0: 1.0}, 1.25) == []


# Plans.


def test_the_number_of_shards_is_part_of_the_plan():
    run = checked(fl.FedAvg(), FEDERATION, fl.GD(0.2, 3), W, 2)
    assert sharded(run, None, lambda cohort: cohort + 93).plan.shards == 7  # not more than clients
    assert sharded(run, 4, lambda cohort: 1).plan.shards == 4
    given = sharded(run._replace(plan=Plan(2, shards=3)), None, lambda cohort: 1)
    assert given.plan == Plan(2, shards=3)
    assert str(given.plan) == "2 lanes for each of 3 shards"
    with pytest.raises(ValueError, match="shards must be a positive integer, got 0"):
        sharded(run, 0, lambda cohort: 1)
    resumed = run._replace(plan=None, start=run.start._replace(origin=given.start.origin))
    assert sharded(resumed, None, lambda cohort: 1).plan == Plan(2, shards=3)
    with pytest.raises(ValueError, match="the run that is resumed has 3"):
        sharded(resumed, 4, lambda cohort: 1)


# Classes of a script.


def test_a_class_of_a_script_arrives_in_another_process_as_a_pytree(tmp_path):
    """Pickled by value, as Ray does it with classes of a script or a notebook."""
    pickle = pytest.importorskip("ray.cloudpickle", reason="needs Ray: pip install 'fedloom[ray]'")
    made = {"__name__": "__main__"}
    exec(
        "import fedloom as fl\n"
        "@fl.frozen\n"
        "class Mine(fl.FedAvg):\n"
        "    'One of my own.'\n"
        "    more: float = fl.hyper(fl.hyperparameters.positive, 'a number', default=2.0)\n",
        made,
    )
    (tmp_path / "it").write_bytes(pickle.dumps(made["Mine"](lr=0.5)))
    code = (
        "import sys, pickle, jax\n"
        "found = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert jax.tree.leaves(found) == [0.5, 2.0], found\n"
        "print(type(found).__name__, jax.tree.map(lambda x: 2 * x, found).lr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "it")], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout == "Mine 1.0\n", done.stderr
