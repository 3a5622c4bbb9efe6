"""A memory changes if and only if its reply was counted, whoever dies; and a run with an error in it is noticed."""

import contextlib
from collections import Counter

import pytest

from fedloom.federation import protocol
from fedloom.federation.journal import Counted, Fenced, Journal
from fedloom.federation.protocol import Job, Ledger, answer, request
from fedloom.federation.store import Store
from fedloom.federation.wire import Frame, Refused, digest
from tests.federation_chaos import TERMS, UID, Server, World, chaos

# What must have happened in a hundred runs, and how often at the least.
DEATHS = ["before sending", "after sending", "before its transaction", "after its transaction"]
HAPPENS = {
    **{f"server {when}": 60 for when in DEATHS},
    **{f"client {when}": 100 for when in DEATHS[2:]},
    **dict.fromkeys(("lost reply", "late reply", "doubled reply", "replayed reply", "ignored reply"), 100),
    **dict.fromkeys(("request of a dead server", "fenced", "promoted"), 80),
    "zombie writes": 15,
}
RESTORED = {"old disk put back": 80, "right disk put back": 30, "old journal put back": 30, "refused": 80}


@pytest.mark.parametrize(
    ("buffer", "restores", "seeds"),
    [
        pytest.param(None, False, range(100), id="synchronous"),
        pytest.param(None, True, range(100, 200), id="synchronous, old disks and journals"),
        pytest.param(1, True, range(50), id="asynchronous, old disks and journals"),
        pytest.param(2, True, range(50), id="asynchronous, in pairs, old disks and journals"),
        *(
            pytest.param(buffer, True, range(200, 2200), marks=pytest.mark.long, id=f"many, buffer {buffer}")
            for buffer in (None, 1, 2)
        ),
    ],
)
def test_the_model_is_that_of_the_counted_jobs_whatever_fails(buffer, restores, seeds):
    """Bit by bit, and so are the memories on the clients' disks; clients refuse old servers and old disks only."""
    seen = Counter()
    for seed in seeds:
        seen += chaos(seed, buffer=buffer, restores=restores)
    own = {"answered again": 100} if buffer is None else {"stale job": 50, "given up": 100}
    expected = HAPPENS | own | (RESTORED if restores else {"refused": 0})
    assert {what: n for what, n in expected.items() if seen[what] < n * len(seeds) // 100} == {}
    assert seen["zombie is fenced"] == seen["zombie writes"]  # a server whose successor has begun writes nothing
    assert restores or not seen["refused"]


# Planted errors.


def commits_its_memory_with_the_reply(patch):
    propose = Store.propose

    def proposed(store, tag, memory, reply):
        propose(store, tag, memory, reply)
        store._put("memory", Frame({}, memory))

    patch.setattr(Store, "propose", proposed)


def listens_to_dead_servers(patch):
    patch.setattr(protocol, "heard", lambda store, *given: store.hear(*given))


def looks_at_counters_only(patch):
    def settled(store, base, counted):
        held = store.held()
        if base == held.version + 1 and held.pending is not None:
            store.promote()
        elif base != held.version:
            raise Refused("another number")

    patch.setattr(protocol, "settle", settled)


def answers_before_it_writes(patch):
    def answered(world, store, frame, compute, send):
        job = protocol.job_of(frame.header)
        tag = job.tag(store.uid, digest(frame.body))
        with store.database.transaction():
            protocol.heard(store, frame.header["incarnation"])
            protocol.settle(store, job.base, frame.header["counted"])
            if store.held().pending == tag:
                return send(store.reply())
            memory, reply = compute(job, frame.body, store.memory())
            reply = Frame({"kind": "reply", "uid": store.uid, "k": job.k, "tag": tag}, reply.body)
            send(reply)
            world.dies("client before its transaction")
            store.propose(tag, memory, reply)

    patch.setattr(World, "answer", answered)


def counts_any_reply(patch):
    def accepted(ledger, k, header):
        if k not in ledger.asked:
            raise Refused("nobody has asked")
        del ledger.asked[k]
        return header["tag"]

    patch.setattr(Ledger, "accept", accepted)


def counts_twice(patch):
    accept = Ledger.accept

    def accepted(ledger, k, header):
        tag = accept(ledger, k, header)
        ledger.asked[k] = tag
        return tag

    patch.setattr(Ledger, "accept", accepted)


def writes_although_it_has_a_successor(patch):
    patch.setattr(Journal, "_check", lambda journal: None)


def sends_before_it_writes(patch):
    write = Server.writes

    def written(server, world, commit):
        for k in world.r.sample(range(4), 3):
            world.carried(k, server.asks(Ledger(UID), k, server.t)[1])
        write(server, world, commit)

    patch.setattr(Server, "writes", written)


def begins_waves_twice(patch):
    def first_wave(server):
        known = (one.job.wave for done in server.journal.history() for one in done.counted)
        return max(known, default=-1) + 1

    patch.setattr(Server, "first_wave", first_wave)


PLANTED = [
    commits_its_memory_with_the_reply,
    listens_to_dead_servers,
    looks_at_counters_only,
    answers_before_it_writes,
    counts_any_reply,
    counts_twice,
    writes_although_it_has_a_successor,
    sends_before_it_writes,
]


@pytest.mark.parametrize("buffer", [None, 2], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("planted", PLANTED, ids=lambda f: f.__name__)
def test_a_planted_error_is_noticed(planted, buffer, monkeypatch):
    """In one of forty runs, at the latest."""
    planted(monkeypatch)
    with pytest.raises(AssertionError):
        list(chaos(seed, buffer=buffer) for seed in range(40))


@pytest.mark.parametrize("buffer", [None, 1], ids=["synchronous", "asynchronous"])
def test_requests_that_are_overtaken_by_later_ones(buffer):
    """A transport may delay requests, too: the one of an earlier exchange comes after that of a later one."""
    for seed in range(40):
        chaos(seed, buffer=buffer, restores=False, slow=True)


# One at a time.


def compute(job, body, memory):
    return body + (memory or b""), Frame({}, body)


def asked(job, counted="", life=1, body=b"model"):
    return Frame(request(UID, life, "", counted, job), body)


def job(t, base, k=0):
    return Job(k, t, t, 0, base, 0, 1.0)


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(Store(tmp_path / "client.db", UID)) as found:
        yield found


def test_a_memory_is_a_clients_own_once_its_reply_was_counted(store):
    first = answer(store, asked(job(0, 0)), compute)
    assert answer(store, asked(job(0, 0)), None) == first  # asked again: nothing is computed
    assert (store.held().version, store.memory()) == (0, None)
    second = answer(store, asked(job(1, 0), body=b"other"), compute)  # the first was not counted
    answer(store, asked(job(2, 1), second.header["tag"]), compute)
    assert (store.held().version, store.memory()) == (1, b"other")
    for base, counted in [(1, first.header["tag"]), (2, first.header["tag"]), (0, ""), (3, second.header["tag"])]:
        with pytest.raises(Refused, match=rf"has counted {base} replies .* knows of 1 \("):
            answer(store, asked(job(3, base), counted), compute)
    assert store.held().version == 1


def test_a_client_refuses_servers_that_have_a_successor(store):
    answer(store, asked(job(0, 0), life=2), compute)
    held = store.held()
    with pytest.raises(Refused, match="fenced: life 2 of the server has spoken, and this is life 1"):
        answer(store, asked(job(1, 0), life=1), compute)
    assert store.held() == held


def test_what_fails_in_a_client_changes_nothing_on_its_disk(store):
    answer(store, asked(job(0, 0)), compute)
    held = store.held()
    with pytest.raises(ZeroDivisionError):
        answer(store, asked(job(1, 0), life=5), lambda *_: 1 / 0)
    assert store.held() == held


@pytest.mark.parametrize("name", ["k", "t", "wave", "e", "base", "seed", "work", "incarnation", "counted"])
@pytest.mark.parametrize("value", [None, -1, 1.5, "x", True, float("nan")], ids=repr)
def test_requests_that_are_not_requests_are_refused(store, name, value):
    frame = asked(job(0, 0))
    with pytest.raises(Refused, match=r"must be|knows of"):
        answer(store, Frame({**frame.header, name: value}, frame.body), compute)
    assert store.held() == (0, 0, "", None)


def test_a_server_that_has_a_successor_writes_nothing(tmp_path):
    path = tmp_path / "journal.db"
    with contextlib.closing(Journal(path)) as old, contextlib.closing(Journal(path)) as new:
        assert [old.begin(UID, TERMS), new.begin(UID, TERMS)] == [1, 2]
        counted = [Counted(job(0, 0), "tag", 1.0, 0)]
        for write in (
            lambda journal: journal.commit(Frame({}), 0, 0, counted, ""),
            lambda journal: journal.put("plan", Frame({})),
            lambda journal: journal.set_facts({0: {"size": 3}}),
            lambda journal: journal.add_row({"round": 1}),
        ):
            with pytest.raises(Fenced, match="another server has taken over"):
                write(old)
        assert (new.standings(), new.get("state"), new.rows(), list(new.history())) == ({}, None, [], [])
        new.commit(Frame({}), 0, 0, counted, "")
        assert new.standings()[0] == (1, "tag")
    with contextlib.closing(Journal(path)) as other, pytest.raises(ValueError, match="of another federation"):
        other.begin("another", TERMS)


def test_what_is_written_is_on_the_disk(tmp_path, store):
    """A write-ahead log that is flushed at the end of every transaction (2: FULL); others cannot read the files."""
    with contextlib.closing(Journal(tmp_path / "journal.db")) as journal:
        for database in (store.database, journal.database):
            assert database.db.execute("PRAGMA synchronous").fetchone() == (2,)
            assert database.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert database.path.stat().st_mode & 0o077 == 0
