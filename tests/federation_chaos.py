"""The protocol under every failure that we can think of, at random moments. Real disks, no network, no compilation.

Servers and clients die before and after everything that they write; the network loses, doubles, delays and replays;
dead servers go on; old copies of disks are put back, the clients' and the server's. After every run the server's model
is, bit by bit, that of a plain loop over the jobs that its journal says were counted, and so are the clients' memories.
"""

import contextlib
import pathlib
import random
import shutil
import tempfile
from collections import Counter
from functools import partial

import numpy as np

from fedloom.federation import protocol
from fedloom.federation.journal import Counted, Fenced, Journal, Standing
from fedloom.federation.protocol import Job, Ledger, request
from fedloom.federation.store import Store
from fedloom.federation.wire import Frame, Refused, digest

UID, TERMS = "chaos", "FedDR"
DIMENSION, CLIENTS, COHORT, ROUNDS, ETA, ALPHA = 3, 4, 3, 8, 1.5, 1.2
P = np.array([0.1, 0.2, 0.3, 0.4])
_rng = np.random.default_rng(0)
CURVATURE = _rng.uniform(0.1, 1, (CLIENTS, DIMENSION))
CENTER = _rng.normal(size=(CLIENTS, DIMENSION))
FIRST = np.zeros((2, DIMENSION))


class Died(Exception):
    """A process ends here."""


def local(k, w, memory):
    """FedDR on a quadratic: the change of 2x - y, and the new (x, y)."""
    x0, y0 = memory
    y = y0 + ALPHA * (w - x0)
    x = (CURVATURE[k] * CENTER[k] + y / ETA) / (CURVATURE[k] + 1 / ETA)
    return (2 * x - y) - (2 * x0 - y0), np.stack([x, y])


def array(content, like=FIRST):
    return like if content is None else np.frombuffer(content).reshape(like.shape)


def loop(journal):
    """A plain loop over what the journal says was counted: the model, and all memories."""
    models, memories, number, tags = [np.zeros(DIMENSION)], dict.fromkeys(range(CLIENTS), FIRST), Counter(), set()
    for done in journal.history():
        w = models[-1]
        for one in done.counted:
            k = one.job.k
            assert one.job.base == number[k], "a reply was counted twice, or one was lost"
            assert one.tag not in tags, "a reply was counted twice"
            change, memories[k] = local(k, models[one.version], memories[k])
            w = w + P[k] * change
            number[k] += 1
            tags.add(one.tag)
        models.append(w)
    counted = {k: standing.counted for k, standing in journal.standings().items() if standing.counted}
    assert counted == number, "the journal has other numbers than its history"
    return models[-1], memories


def verified(journal):
    """The memories of the loop, if the journal's model is that of the loop."""
    w, memories = loop(journal)
    state = journal.get("state")
    assert state is None or state.body == w.tobytes(), "the model is not that of the counted jobs"
    return memories


class Server:
    """A life of the server."""

    def __init__(self, world):
        self.world, self.journal = world, Journal(world.path)
        self.life = self.journal.begin(UID, TERMS)
        saved = self.journal.get("state")
        self.t, self.w = (
            (0, np.zeros(DIMENSION)) if saved is None else (saved.header["t"], array(saved.body, CENTER[0]))
        )
        self.counted = self.journal.standings()  # as this life knows it

    def asks(self, ledger, k, wave):
        """Name the job of client k."""
        job = Job(k, self.t, wave, 0, self.counted.get(k, Standing()).counted, 0, 1.0)
        ledger.ask(job, digest(self.w.tobytes()))
        frame = Frame(request(UID, self.life, "", self.counted.get(k, Standing()).tag, job), self.w.tobytes())
        if self.world.fork:
            self.world.misleading.append(frame)
        return job, frame

    def sends(self, k, frame):
        """What comes back at once; the server may die before and after."""
        self.world.dies("server before sending")
        if self.world.at("server after sending"):
            self.world.stale.append((k, frame))
            raise Died
        return self.world.carried(k, frame)

    def takes(self, ledger, inbox):
        """The replies that may be counted, as (client, tag, value)."""
        for k, frame in inbox:
            try:
                yield k, ledger.accept(k, frame.header), array(frame.body, CENTER[0])
            except Refused:
                self.world.seen["ignored reply"] += 1

    def updates(self, came):
        """The new model, on the disk; came: (job, version, tag, value) of those who count."""
        world, came = self.world, sorted(came, key=lambda x: x[0].k)
        for job, _, _, value in came:
            self.w = self.w + P[job.k] * value
        counted = [Counted(job, tag, float(P[job.k]), version) for job, version, tag, _ in came]
        state = Frame({"t": self.t + 1}, self.w.tobytes())
        commit = partial(self.journal.commit, state, self.t, 0, counted, digest(state.body))
        self.t += 1
        for job, _, tag, _ in came:
            self.counted[job.k] = Standing(job.base + 1, tag)
        self.writes(world, commit)
        world.dies("server after its transaction")

    def writes(self, world, commit):
        if world.at("server before its transaction"):
            if world.r.random() < 0.5:  # nobody hears of it any more, but it is not dead
                world.zombies.append(commit)
            raise Died
        commit()

    def rounds(self, least=1):
        """Synchronous rounds until the end."""
        while self.t < ROUNDS:
            world, ledger, inbox = self.world, Ledger(UID), []
            ids = sorted(world.r.sample(range(CLIENTS), COHORT))
            asked = {k: self.asks(ledger, k, self.t) for k in ids}
            for k, (_, frame) in asked.items():
                world.haunted()
                inbox += self.sends(k, frame)
            for k in sorted(set(ids) - {k for k, _ in inbox}):
                if world.r.random() < 0.3:
                    world.seen["asked again"] += 1
                    inbox += self.sends(k, asked[k][1])
            inbox += world.arriving()
            world.r.shuffle(inbox)
            came = [(asked[k][0], self.t, tag, value) for k, tag, value in self.takes(ledger, inbox)]
            if len(came) < least:
                raise Died  # it has waited in vain, and is started again
            self.updates(came)

    def first_wave(self):
        """No wave is begun twice, or an answer of long ago could be one that is asked for now."""
        kept = self.journal.get("waves")
        first = 0 if kept is None else kept.header["end"]
        self.journal.put("waves", Frame({"end": first + 1000}))
        return first

    def flights(self, buffer):
        """Updates whenever `buffer` replies have come; every client has at most one job."""
        world, ledger, flying, begun, landed, air = self.world, Ledger(UID), set(), {}, [], []
        wave, silent = self.first_wave(), 0
        while self.t < ROUNDS:
            idle = set(range(CLIENTS)) - flying - {one[0].k for one in landed}
            for k in world.r.sample(sorted(idle), min(len(idle), COHORT - len(flying))):
                world.haunted()
                job, frame = self.asks(ledger, k, wave)
                flying.add(k)
                begun[k], wave = (job, self.t), wave + 1
                air += self.sends(k, frame)
            air += world.arriving()
            world.r.shuffle(air)
            cut = world.r.randint(0, len(air))
            inbox, air = air[:cut], air[cut:]
            before = len(landed)
            for k, tag, value in self.takes(ledger, inbox):
                flying.discard(k)
                landed.append((*begun[k], tag, value))
                world.seen["stale job"] += landed[-1][1] < self.t
            for k in [k for k in sorted(flying) if world.r.random() < 0.2]:  # too late
                world.seen["given up"] += 1
                flying.discard(k)
                ledger.asked.pop(k, None)
            silent = 0 if len(landed) > before else silent + 1
            if silent > 20:
                raise Died  # it has waited in vain, and is started again
            if len(landed) >= buffer:
                first, landed = landed[:buffer], landed[buffer:]
                self.updates(first)


class World:
    """Clients with their disks, a network, and everything that is still on its way."""

    def __init__(self, seed, directory, *, buffer=None, restores=True, slow=False, rate=0.12):
        """slow: requests of a living server may be overtaken by its next ones."""
        self.r, self.directory, self.path = random.Random(seed), directory, directory / "journal.db"
        self.buffer, self.restores, self.slow, self.rate = buffer, restores, slow, rate
        self.seen = Counter()  # what has happened
        self.late = []  # replies that may still arrive
        self.stale = []  # requests of dead servers that may still arrive
        self.delayed = []  # requests of this server that may still arrive
        self.zombies = []  # transactions of servers that are thought dead
        self.aside, self.copies = {}, {}  # disks of clients: the right one, while an old one is in its place; copies
        self.journals, self.life, self.excused = [], 0, set()  # copies; the newest life; clients that may refuse
        self.fork, self.forked, self.misleading = (
            False,
            False,
            [],
        )  # is this an old journal, was there one, its requests
        self.stores = {k: Store(directory / f"client{k}.db", UID) for k in range(CLIENTS)}

    def at(self, what):
        """Does it happen now? What can happen with every message must be rarer than what can happen once a round."""
        happens = self.r.random() < (self.rate / 3 if what.endswith("sending") else self.rate)
        self.seen[what] += happens
        return happens

    def dies(self, what):
        if self.at(what):
            raise Died

    # The network.

    def carried(self, k, frame):
        """What comes back at once for a request."""
        if self.slow and self.at("overtaken request"):
            self.delayed.append((k, frame))
            return []
        if self.stale and self.at("request of a dead server"):
            self.late += self.answered(*self.r.choice(self.stale))
        if self.restores:
            self.swap(k)
        found = self.answered(k, frame)
        for old in [one for one in self.delayed if one[0] == k and self.r.random() < 0.5]:
            self.delayed.remove(old)
            found += self.answered(*old, current=False)
        if found and self.at("lost reply"):
            return []
        if found and self.at("late reply"):
            self.late += found
            return []
        if found and self.at("doubled reply"):
            self.late += found
            return found * 2
        return found

    def arriving(self):
        """Replies of any time, some of them again and again."""
        found = [one for one in self.late if self.r.random() < 0.3]
        self.seen["replayed reply"] += len(found)
        return found

    def haunted(self):
        """A server that was thought dead wakes up and writes its journal."""
        if self.zombies and self.at("zombie writes"):
            commit = self.zombies.pop()
            try:
                commit()
            except Fenced:
                self.seen["zombie is fenced"] += 1
            commit.func.__self__.close()

    # Clients.

    def answer(self, store, frame, compute, send):
        send(protocol.answer(store, frame, compute))

    def answered(self, k, frame, current=True):
        """The answer of client k, which may die, or refuse for a good reason."""
        sent, before = [], self.stores[k].held()
        misled = any(frame is one for one in self.misleading)
        if misled and len(self.excused | {k}) > CLIENTS // 2:
            return []  # an old journal does not reach everybody, so that the right one can go on

        def compute(job, body, memory):
            self.seen["computed"] += 1
            change, new = local(job.k, array(body, CENTER[0]), array(memory))
            self.dies("client before its transaction")
            return new.tobytes(), Frame({}, change.tobytes())

        try:
            self.answer(self.stores[k], frame, compute, sent.append)
            if self.at("client after its transaction"):
                sent.clear()
        except Died:
            self.stores[k].close()
            self.stores[k] = Store(self.directory / f"client{k}.db", UID)
        except Refused as error:
            self.refused(k, frame, str(error), current and not misled)
        else:
            held = self.stores[k].held()
            self.seen["promoted"] += held.version > before.version
            self.seen["answered again"] += held.pending == before.pending
            if misled:
                self.excused.add(k)  # it follows a journal that is not the right one
            elif frame.header["incarnation"] == self.life and current:
                self.aside.pop(k, None)  # the old disk is as good as the other one
        return [(k, reply) for reply in sent]

    def refused(self, k, frame, why, current):
        if why.startswith("fenced"):
            self.seen["fenced"] += 1
            assert frame.header["incarnation"] < self.life or self.forked, "the living server was fenced off"
            return
        if not current:
            self.seen["wrong request refused"] += 1
            return
        self.seen["refused"] += 1
        assert k in self.aside or k in self.excused, f"client {k} refuses without a reason: {why}"

    # Old disks.

    def swap(self, k):
        """Copy the disk of client k, put an old copy back, or the right one."""
        path = self.directory / f"client{k}.db"
        if k in self.aside:
            if self.r.random() < 0.4:
                self.seen["right disk put back"] += 1
                self.put_back(k, self.aside.pop(k))
        elif k in self.copies and self.at("old disk put back"):
            self.aside[k] = self.copied(self.stores[k].database, path, "aside")
            self.put_back(k, self.copies.pop(k))
        elif self.r.random() < 0.2:
            self.copies[k] = self.copied(self.stores[k].database, path, f"copy{self.r.random()}")

    def copied(self, database, path, name):
        database.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return shutil.copyfile(path, path.with_suffix("." + name))

    def put_back(self, k, copy):
        self.stores[k].close()
        shutil.copyfile(copy, self.directory / f"client{k}.db")
        self.stores[k] = Store(self.directory / f"client{k}.db", UID)

    # Lives.

    def live(self, least=1):
        """A life of the server, until its end or its death. Is the run over?"""
        server = Server(self)
        self.life = server.life
        try:
            server.rounds(least) if self.buffer is None else server.flights(self.buffer)
            return True
        except (Died, Fenced):
            return False
        finally:
            self.late = self.late[-20:]
            if self.restores and not self.fork and self.r.random() < 0.4:
                self.journals.append(self.copied(server.journal.database, self.path, f"copy{len(self.journals)}"))
            if not any(commit.func.__self__ is server.journal for commit in self.zombies):
                server.journal.close()

    def misled(self):
        """Somebody starts the server with an old journal; later the right one is back."""
        self.lay_zombies()
        with contextlib.closing(Journal(self.path)) as journal:
            right = self.copied(journal.database, self.path, "right")
        self.seen["old journal put back"] += 1
        shutil.copyfile(self.r.choice(self.journals), self.path)
        self.fork = self.forked = True
        self.live()
        self.lay_zombies()
        with contextlib.closing(Journal(self.path)) as journal:
            verified(journal)  # what it has counted is right, too
        self.fork = False
        shutil.copyfile(right, self.path)

    def run(self):
        """The whole run; raises AssertionError if anything is wrong."""
        lives = 0
        while not self.live():
            lives += 1
            assert lives < 300, "the run does not go on"
            if self.journals and not self.forked and self.r.random() < 0.3:
                self.misled()
        for k in list(self.aside):
            self.put_back(k, self.aside.pop(k))
        with contextlib.closing(Journal(self.path)) as journal:
            memories = verified(journal)
            assert len(list(journal.history())) == ROUNDS
            for k, store in self.stores.items():  # a last word, so that clients know what was counted
                try:
                    with store.database.transaction():
                        protocol.settle(store, *journal.standings().get(k, Standing()))
                except Refused as error:
                    if k not in self.excused:
                        raise AssertionError(f"client {k} refuses at the end") from error
                    continue
                assert array(store.memory()).tobytes() == memories[k].tobytes(), f"client {k} remembers something else"
        return self.seen

    def lay_zombies(self):
        """Servers that were thought dead are dead now."""
        while self.zombies:
            self.zombies.pop().func.__self__.close()

    def close(self):
        self.lay_zombies()
        for store in self.stores.values():
            store.close()


def chaos(seed, **options):
    """What has happened in a run; raises AssertionError if anything is wrong."""
    memory = pathlib.Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory,
        contextlib.closing(World(seed, pathlib.Path(directory), **options)) as world,
    ):
        return world.run()
