"""A federation in one process: real parties with real disks, and a transport that is a list."""

import pathlib

import jax.numpy as jnp

from fedloom.federation.desk import Arrived
from fedloom.federation.engine import Served, agreed
from fedloom.federation.party import Objectives, Party
from fedloom.federation.store import Store


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
        from fedloom.federation.protocol import settle
        from fedloom.federation.wire import shapes_of, unpacked

        with party.store.database.transaction():
            settle(party.store, *standing)
        found[k] = unpacked(party.store.memory(), shapes_of(party._first_memory()))
    return found
