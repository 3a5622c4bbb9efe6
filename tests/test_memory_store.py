"""Memories on disk are the memories in memory."""

import copy
import gc
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.engines import memory_store
from fedloom.engines.memory_store import DeviceStore, DiskStore, Memories, known_memories, store_for, write
from tests.federations import W, bits, last, least_squares

FEDERATION = least_squares()
SOLVER = fl.SGD(0.1, batch_size=4)
RULE = cohorts.uniform(3)
BLANK = {"c": np.arange(8.0), "met": np.array(True), "times": np.int32(3)}  # 8 floats: rows lie where JAX may use them


def all_bits(record):
    return bits(record.server), {k: bits(v) for k, v in record.clients.items()}, record.counters


@pytest.fixture
def on_disk(monkeypatch):
    monkeypatch.setattr(memory_store, "ON_DEVICE", 0)


@pytest.mark.parametrize("algorithm", [fl.FedDR(2.0), pytest.param(fl.Scaffold(), marks=pytest.mark.exhaustive)])
def test_the_same_bits_as_in_memory(algorithm, monkeypatch):
    """FedDR's memories start at w, not at 0. Chunks of 4 rounds, of which a call may take 4, 2 or 1."""
    args = (algorithm, FEDERATION, SOLVER, W, 6)
    memory = last(fl.simulate, *args, cohort=RULE, chunk=4)
    assert type(memory.clients.store) is DeviceStore
    monkeypatch.setattr(memory_store, "ON_DEVICE", 0)
    size = sum(x.nbytes for x in jax.tree.leaves(algorithm.init_client(W)))
    for rounds in (4, 2, 1):
        monkeypatch.setattr(memory_store, "LENT", rounds * 3 * size)
        disk = list(fl.simulate(*args, cohort=RULE, chunk=4))
        assert [record.round for record in disk] == [4, 6]
        assert type(disk[-1].clients.store) is DiskStore
        assert all_bits(disk[-1]) == all_bits(memory)


def test_a_run_goes_on_from_disk(on_disk):
    args = (fl.FedDR(2.0), FEDERATION, SOLVER, W)
    run = fl.simulate(*args, 6, cohort=RULE)
    records = [record.keep() if record.round < 6 else record for record in run]
    whole = all_bits(records[-1])
    assert all_bits(last(fl.simulate, *args, 6, cohort=RULE, resume=records[2])) == whole
    assert all_bits(last(fl.simulate, *args, 6, cohort=RULE, resume=records[2])) == whole  # it was not used up
    half = last(fl.simulate, *args, 3, cohort=RULE)
    assert all_bits(last(fl.simulate, *args, 6, cohort=RULE, resume=half)) == whole
    assert all_bits(half) == all_bits(records[2])
    plain = half._replace(clients={k: v for k, v in half.clients.items()})
    assert all_bits(last(fl.simulate, *args, 6, cohort=RULE, resume=plain)) == whole


def test_memories_read_early_stay_as_they_were(on_disk):
    """What is read is a copy: the file is written again under it."""
    federation = fl.quadratics(clients=3, dimension=8, seed=1)
    run = fl.simulate(fl.FedDR(2.0), federation, fl.GD(0.1, 1), jnp.arange(8.0), 2)
    first = next(run)
    read = {k: first.clients[k] for k in range(3)}
    then = {k: bits(v) for k, v in read.items()}
    second = next(run)
    assert bits(second.clients[0]) != then[0]
    assert {k: bits(v) for k, v in read.items()} == then


def test_rows_come_back():
    disk, memory = DiskStore(BLANK, 100), DeviceStore(BLANK, 100)
    rng = np.random.default_rng(0)
    for ids in ([3, 99, 7], [7, 0], [50]):
        ids = np.array(ids)
        rows = {"c": rng.normal(size=(len(ids), 8)), "met": rng.random(len(ids)) < 0.5, "times": ids.astype(np.int32)}
        for t in (disk, memory):
            write(t, ids, rows)
    for t in (disk, memory, disk.copy(), memory.copy()):
        ids, rows = known_memories(t)
        assert ids.tolist() == [0, 3, 7, 50, 99]
        assert bits(rows) == bits(known_memories(memory)[1])
        assert rows["times"].tolist() == [0, 3, 7, 50, 99]
        view = Memories(t, 0)
        assert list(view) == ids.tolist()
        assert len(view) == 5
        assert 7 in view
        assert 8 not in view
        for k in (8, 100, -1):
            with pytest.raises(KeyError):
                view[k]
        assert bits(view[7]) == bits(jax.tree.map(lambda x: x[2], rows))


def test_whoever_is_not_known_has_the_first_memory():
    disk = DiskStore(BLANK, 10)
    write(disk, np.array([4]), jax.tree.map(lambda x: np.full((1, *np.shape(x)), 0, np.asarray(x).dtype), BLANK))
    ids = np.array([8, 4, 2])
    lent = disk.lend(ids, 6)
    assert all(x.shape[0] == 6 for x in jax.tree.leaves(lent))
    got = jax.tree.map(lambda x: np.asarray(x)[disk.slots(ids)], lent)
    np.testing.assert_array_equal(got["c"], [np.arange(8.0), np.zeros(8), np.arange(8.0)])
    assert got["times"].tolist() == [3, 0, 3]
    assert sum(1 for _ in Memories(disk, 0)) == 1


def test_a_copy_is_its_own():
    disk = DiskStore(BLANK, 10)
    write(disk, np.array([4]), jax.tree.map(lambda x: np.asarray(x)[None], BLANK))
    before = bits(known_memories(disk)[1])
    twin = copy.copy(Memories(disk, 0))
    write(disk, np.array([4, 5]), jax.tree.map(lambda x: np.stack([np.zeros_like(x)] * 2), BLANK))
    assert list(twin) == [4]
    assert bits(known_memories(twin.store)[1]) == before


def test_only_clients_that_were_met_take_space_and_it_is_given_back():
    blank = {"c": np.ones(1024)}  # 8 KiB: two pages
    disk = DiskStore(blank, 100_000)
    file = disk.files["c"].fileno()
    assert os.fstat(file).st_size == 100_000 * 8192
    write(disk, np.arange(0, 100_000, 10_000), {"c": np.ones((10, 1024))})
    os.fsync(file)
    assert 10 * 8192 <= 512 * os.fstat(file).st_blocks <= 10 * 8192 + 64 * 4096
    assert os.fstat(file).st_nlink == 0  # it has no name, so the system frees it with the table, however the run ends
    del disk
    gc.collect()  # and without a warning
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_a_table_that_does_not_fit_goes_to_disk(monkeypatch):
    monkeypatch.setattr(memory_store, "device_memory", lambda devices: 1000 // devices)
    vector = np.zeros(5)  # 40 bytes; a quarter of the memory is 250
    assert type(store_for(vector, 6)) is DeviceStore
    assert type(store_for(vector, 7)) is DiskStore
    assert type(store_for(vector, 6, devices=2)) is DiskStore
    assert type(store_for((), 10**6)) is DeviceStore  # no memories at all


def test_a_first_memory_may_be_plain_numbers():
    """The reference engine takes them, so must the others."""
    assert known_memories(store_for({"n": 0.0, "met": False}, 3))[0].tolist() == []


def test_dropped_and_weightless_clients_are_not_committed_on_disk(on_disk):
    """Their old memories stay, and those never met stay unknown."""

    @fl.hyperparameters.frozen
    class Poison(fl.FedDR):
        """Client 4 returns NaN from round 1 on, client 0 always."""

        def local(self, w, k, client):
            reply, memory = super().local(w, k, client)
            bad = (client.objective.size == 3) | ((client.t >= 1) & (client.objective.size == 5))
            return jnp.where(bad, jnp.nan, reply), memory

    args = (Poison(2.0), FEDERATION, SOLVER, W, 3)
    more = {"cohort": cohorts.scheduled([[1, 4], [0, 1, 4], [0, 4]]), "on_nonfinite": "drop"}
    run, slow = fl.simulate(*args, **more), fl.reference(*args, **more)
    old = None
    for fast, twin in zip(run, slow, strict=True):
        assert list(fast.clients) == sorted(twin.clients) == [1, 4]
        assert fast.dropped == twin.dropped
        old = old or bits(fast.clients[4])
        assert bits(fast.clients[4]) == old
        np.testing.assert_allclose(fast.clients[1].x, twin.clients[1].x, rtol=0, atol=1e-12)


def test_memories_that_were_cut_off_are_noticed():
    store = DiskStore({"c": np.zeros(3)}, 4)
    write(store, np.array([2]), {"c": np.ones((1, 3))})
    store.files["c"].truncate(2 * 24 + 8)
    with pytest.raises(OSError, match="shorter than it was"):
        store.read(2)
