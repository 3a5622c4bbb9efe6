"""A federation in one process: real parties with real disks, and a transport that is a list."""

import pathlib
import random

import jax.numpy as jnp
import numpy as np

from fedloom.cohorts import Draw
from fedloom.engines.checks import checked
from fedloom.engines.oracle import _records
from fedloom.federation.desk import Arrived
from fedloom.federation.engine import Served, agreed
from fedloom.federation.party import Party
from fedloom.federation.protocol import settle
from fedloom.federation.store import Store
from fedloom.federation.wire import shapes_of, unpacked
from fedloom.federation.work import Objectives


class Direct:
    """Frames arrive at once. Nodes are called by the number of their client."""

    def __init__(self, parties):
        self.parties = dict(enumerate(parties)) if isinstance(parties, list) else parties
        self.arrived = []

    def nodes(self):
        return set(self.parties)

    def push(self, frames, ttl):
        for node, frame in frames:
            if node in self.parties:
                self.arrived.append(Arrived(node, self.parties[node].answer(frame)))

    def pull(self):
        found, self.arrived = self.arrived, []
        return found


class Losing(Direct):
    """Of the answers to requests of work, some are lost, some come twice, and some again later."""

    def __init__(self, parties, seed=0, lost=0.2, doubled=0.2):
        super().__init__(parties)
        self.random, self.lost, self.doubled, self.old = random.Random(seed), lost, doubled, []
        self.happened = {"lost": 0, "doubled": 0, "replayed": 0}

    def push(self, frames, ttl):
        super().push(frames, ttl)
        found, self.arrived = self.arrived, []
        for one in found:
            chance = self.random.random() if one.frame.header["kind"] == "reply" else 1.0
            if chance < self.lost:
                self.happened["lost"] += 1
                continue
            self.arrived.append(one)
            if chance < self.lost + self.doubled:
                self.happened["doubled"] += 1
                self.arrived.append(one)
                self.old.append(one)
        if self.old and self.random.random() < 0.3:
            self.happened["replayed"] += 1
            self.arrived.append(self.random.choice(self.old))


class Changing(Direct):
    """What some nodes send is changed on its way: change(node, frame) returns the frames that arrive."""

    def __init__(self, parties, change):
        super().__init__(parties)
        self.change = change

    def pull(self):
        return [Arrived(one.node, frame) for one in super().pull() for frame in self.change(one.node, one.frame)]


class Recorded:
    """The clock of a reference run whose cohorts are those that a journal says were counted."""

    clock = None

    def __init__(self, journal, exchanges):
        self.lost = np.zeros((exchanges, 2), int)
        self.draws = {}
        for done in journal.history():
            columns = [(one.job.k, one.weight, one.job.work) for one in done.counted]
            ids, weight, work = zip(*columns, strict=True) if columns else ((), (), ())
            draw = Draw(np.array(ids, int), np.array(weight, float), np.array(work, float))
            self.draws.setdefault(done.t, []).append(draw)

    def cohorts(self, t):
        return self.draws[t]


def recounted(server, algorithm, solver, federation, w, rounds, seed=0):
    """The last record of the reference over the cohorts that were counted."""
    run = checked(algorithm, federation, solver, w, rounds, None, seed)
    return list(_records(run, Recorded(server.journal, len(algorithm.exchanges)), []))[-1]


def party(directory, algorithm, solver, federation, k, uid="test", **more):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    store = Store(directory / f"client{k}.db", uid)
    return Party(agreed(uid, algorithm, solver), algorithm, solver, k, Objectives(federation, k), store, **more)


def served(directory, transport, algorithm, solver, federation, w, rounds, uid="test", **more):
    n = federation.clients
    return Served(
        transport,
        pathlib.Path(directory),
        agreed(uid, algorithm, solver),
        [f"client {k}" for k in range(n)],
        algorithm,
        solver,
        lambda desk: (jnp.asarray(w), None),
        rounds,
        weights=federation.weights,
        **more,
    )


def memories(parties, server):
    """What clients remember at the end, when they have learnt what was counted: as `reference` has it."""
    found = {}
    for k, party in enumerate(parties):
        standing = server.journal.standings().get(k)
        if standing is None or not standing.counted:
            continue
        with party.store.database.transaction():
            settle(party.store, *standing)
        found[k] = unpacked(party.store.memory(), shapes_of(party._first_memory()))
    return found
