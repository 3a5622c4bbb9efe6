"""A federation whose clients are somewhere else equals the reference over the cohorts that were counted."""

import dataclasses
import pathlib
import re
import shutil
import time

import numpy as np
import pytest

import fedloom as fl
from fedloom import cohorts
from fedloom.federation import desk
from fedloom.federation.desk import Waited
from fedloom.federation.journal import Journal
from fedloom.federation.party import NOT_FINITE, NotFinite
from fedloom.federation.rounds import Patience
from fedloom.federation.wire import Frame, Refused, packed
from fedloom.testing import relative_difference, usual_solver
from tests.cases import CASES, VARIANTS
from tests.federation_in_memory import Changing, Direct, Losing, memories, party, recounted, served
from tests.federations import FEDERATION, W, bits, last, least_squares
from tests.test_engines import MINIBATCH

N = FEDERATION.clients
DR = (fl.FedDR(eta=2.0, alpha=1.3), fl.Exact(), FEDERATION, W)
DANE = (fl.FedDANE(mu=0.5), fl.Exact(), FEDERATION, W)
PROX = (fl.Scaffold(), fl.GD(0.1, 2), FEDERATION, W)
SOON = Patience(deadline=0.3, patience=2.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Here clients come at once."""
    for name, seconds in {"LOOK": 0.0, "GREET": 0.05, "POLL": 0.001}.items():
        monkeypatch.setattr(desk, name, seconds)


def crew(directory, algorithm, solver, federation, *_, **more):
    return [party(directory, algorithm, solver, federation, k, **more) for k in range(federation.clients)]


def opened(directory, transport, args, rounds, **more):
    algorithm, solver, federation, w = args
    return served(pathlib.Path(directory) / "server", transport, algorithm, solver, federation, w, rounds, **more)


def assert_equal(record, remembered, expected):
    assert relative_difference(record.server, expected.server) < 1e-12
    assert sorted(remembered) == sorted(expected.clients)
    for k in remembered:
        assert relative_difference(remembered[k], expected.clients[k]) < 1e-12


def assert_same(tmp_path, args, rounds, **more):
    """A run in which everybody answers: its totals are the reference's, too."""
    algorithm, solver, federation, w = args
    parties = crew(tmp_path, *args)
    server = opened(tmp_path, Direct(parties), args, rounds, **more)
    record = list(server.records())[-1]
    expected = last(fl.reference, algorithm, federation, solver, w, rounds, **more)
    assert_equal(record, memories(parties, server), expected)
    assert record.counters == expected.counters
    assert record.dropped == expected.dropped
    assert record.unsolved == expected.unsolved
    if expected.residual is not None:
        assert abs(record.residual - expected.residual) < 1e-12
    return record, expected


@pytest.mark.parametrize("name", [*CASES, "fedprox-mu_k"])
def test_equals_the_reference(name, tmp_path):
    case = (CASES | VARIANTS)[name]
    rule = cohorts.everyone() if case.algorithm.needs_everyone else cohorts.uniform(3)
    args = (case.algorithm, case.solver or usual_solver(case.algorithm), FEDERATION, W)
    record, expected = assert_same(tmp_path, args, 4, cohort=rule, seed=5)
    assert [c.tolist() for c in record.cohort] == [c.tolist() for c in expected.cohort]


@pytest.mark.parametrize(
    "name",
    ["scaffold", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in MINIBATCH if name != "scaffold")],
)
def test_equals_the_reference_on_minibatches_of_ragged_clients(name, tmp_path):
    algorithm, solver = MINIBATCH[name]
    rule = cohorts.everyone() if algorithm.needs_everyone else cohorts.uniform(3)
    assert_same(tmp_path, (algorithm, solver, least_squares(), W), 2, cohort=rule, seed=1)


def test_equals_the_reference_where_some_do_a_part_of_their_work(tmp_path):
    rule = cohorts.stragglers(of=cohorts.uniform(4), share=0.5)
    assert_same(tmp_path, (fl.Scaffold(), fl.GD(0.2, 5), FEDERATION, W), 4, cohort=rule, seed=5)


def test_a_client_that_is_not_finite_is_left_out_as_in_the_reference(tmp_path):
    poisoned = dataclasses.replace(FEDERATION, centers=np.asarray(FEDERATION.centers).copy())
    poisoned.centers[2] = np.nan
    args = (fl.Scaffold(), fl.GD(0.2, 3), poisoned, W)
    rounds = [t for t in range(20) if 2 in np.random.default_rng([5, t, 0]).choice(N, 4, replace=False, shuffle=False)]
    record, expected = assert_same(
        tmp_path / "drop", args, rounds[0] + 1, cohort=cohorts.uniform(4), seed=5, on_nonfinite="drop"
    )
    assert record.dropped == expected.dropped == ((rounds[0] + 1, 2, expected.dropped[0][2]),)
    server = opened(tmp_path / "raise", Direct(crew(tmp_path / "raise", *args)), args, 1, on_nonfinite="raise")
    with pytest.raises(fl.NonFiniteUpdate, match="Client 2 returned NaN"):
        list(server.records())


# Who is there, and who answers.


@pytest.mark.parametrize("args", [DR, DANE, PROX], ids=["feddr", "feddane", "scaffold"])
def test_lost_doubled_and_replayed_replies(args, tmp_path):
    parties = crew(tmp_path, *args)
    transport = Losing(parties, seed=1)
    waits = Patience(deadline=0.05, minimum=2, patience=5.0)
    server = opened(tmp_path, transport, args, 6, cohort=cohorts.uniform(4), waits=waits)
    record = list(server.records())[-1]
    assert min(transport.happened.values()) > 0
    expected = recounted(server, *args, 6)
    assert_equal(record, memories(parties, server), expected)
    ids = [[one.job.k for one in done.counted] for done in server.journal.history()]
    assert all(len(set(here)) == len(here) >= 2 for here in ids)
    assert min(map(len, ids)) < 4


def test_clients_that_are_away_are_not_drawn_and_come_back_without_help(tmp_path):
    parties = crew(tmp_path, *PROX)
    transport = Direct(parties)
    server = opened(tmp_path, transport, PROX, 6, cohort=cohorts.uniform(6), waits=SOON)
    records = server.records()
    next(records)
    away = {k: transport.parties.pop(k) for k in (1, 4)}
    assert set(next(records).cohort[0].tolist()) <= {0, 2, 3, 5, 6}  # they may have been drawn before they went
    assert next(records).cohort[0].tolist() == [0, 2, 3, 5, 6]
    transport.parties |= away
    record = list(records)[-1]
    assert len(record.cohort[0]) == 6
    assert_equal(record, memories(parties, server), recounted(server, *PROX, 6))
    assert any("client 4 (client 4) is gone" in words for _, words in server.journal.events(100))


def silent(*nodes):
    """A transport on which these nodes never answer when work is asked for."""
    return lambda node, frame: [] if node in nodes and frame.header["kind"] == "reply" else [frame]


def test_a_round_ends_at_its_deadline(tmp_path):
    parties = crew(tmp_path, *PROX)
    server = opened(tmp_path, Changing(parties, silent(1, 2)), PROX, 2, waits=SOON)
    list(server.records())  # compiles
    start = time.monotonic()
    server = opened(tmp_path, Changing(parties, silent(1, 2)), PROX, 4, waits=SOON)
    record = list(server.records())[-1]
    assert 0.6 <= time.monotonic() - start < 5.0
    assert record.cohort[0].tolist() == [0, 3, 4, 5, 6]
    assert_equal(record, memories(parties, server), recounted(server, *PROX, 4))


def test_a_round_ends_when_enough_have_answered(tmp_path):
    """Nobody waits for the others, and those who were not needed do not count."""
    waits = Patience(deadline=30.0, minimum=2, enough=5, patience=60.0)
    parties = crew(tmp_path, *PROX)
    server = opened(tmp_path, Changing(parties, silent(1, 2)), PROX, 3, waits=waits)
    start = time.monotonic()
    record = list(server.records())[-1]
    assert time.monotonic() - start < 20.0
    assert_equal(record, memories(parties, server), recounted(server, *PROX, 3))


@pytest.mark.parametrize(("args", "minimum"), [(PROX, 6), (CASES["fedpd"], 1)], ids=["minimum", "needs everyone"])
def test_patience_ends_with_the_names_of_those_who_are_missing(args, minimum, tmp_path):
    """And a server that is started again when they are back goes on."""
    if minimum == 1:
        args = (args.algorithm, usual_solver(args.algorithm), FEDERATION, W)
    parties, waits = crew(tmp_path, *args), Patience(deadline=0.1, minimum=minimum, patience=0.4)
    server = opened(tmp_path, Changing(parties, silent(1, 2)), args, 2, waits=waits)
    with pytest.raises(Waited, match=r"there are 5 replies, but . are needed. Missing: .*client 1 .*client 2"):
        list(server.records())
    server.close()
    server = opened(tmp_path, Direct(parties), args, 2, waits=waits)
    record = list(server.records())[-1]
    assert_equal(record, memories(parties, server), recounted(server, *args, 2))


def test_clients_that_never_come_are_named(tmp_path):
    parties = crew(tmp_path, *PROX)
    with pytest.raises(Waited, match=r"these have not come: client 1 \(client 1\), client 6 \(client 6\)"):
        opened(tmp_path, Direct({k: p for k, p in enumerate(parties) if k not in (1, 6)}), PROX, 2, waits=SOON)


@pytest.mark.parametrize("rounds", [1, 2], ids=["one round ago", "two rounds ago"])
def test_a_client_with_an_old_disk_is_left_out_and_the_others_go_on(rounds, tmp_path):
    parties = crew(tmp_path, *PROX)
    transport = Direct(parties)
    server = opened(tmp_path, transport, PROX, 6, waits=SOON)
    records = server.records()
    next(records)

    def copy(name):
        parties[3].store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return shutil.copyfile(tmp_path / "client3.db", tmp_path / name)

    def put_back(kept):
        parties[3].store.close()
        shutil.copyfile(kept, tmp_path / "client3.db")
        transport.parties[3] = parties[3] = party(tmp_path, *PROX[:3], 3)

    old = copy("old")
    for _ in range(rounds):
        next(records)
    right = copy("right")
    put_back(old)
    server.desk.leave_out(3, "it has been started again.")  # as its node has another number then
    assert next(records).cohort[0].tolist() == [0, 1, 2, 4, 5, 6]
    words = " ".join(words for _, words in server.journal.events(100))
    assert "client 3 (client 3) is left out: the server has counted" in words
    assert "old copy?" in words
    put_back(right)
    end = time.monotonic() + 5.0
    while 3 not in server.desk.ready and time.monotonic() < end:
        server.desk.receive()
    record = list(records)[-1]
    assert record.cohort[0].tolist() == list(range(N))
    assert_equal(record, memories(parties, server), recounted(server, *PROX, 6))


# Servers that die.


class Died(Exception):
    """The server ends here."""


def results(parties, server):
    """All that must not depend on deaths: the bits of the state and of the memories, and what was counted."""
    state, remembered = server.journal.get("state"), memories(parties, server)
    counters = {name: state.header["counters"][name] for name in ("rounds", "exchanges", "gradients")}
    return state.body, {k: bits(memory) for k, memory in remembered.items()}, counters, list(server.journal.history())


@pytest.mark.parametrize("args", [DR, DANE], ids=["feddr", "feddane"])
def test_a_server_that_is_started_again_changes_no_bit(args, tmp_path):
    """After every exchange, also between the two of a round."""
    parties = crew(tmp_path / "one", *args)
    server = opened(tmp_path / "one", Direct(parties), args, 4, cohort=cohorts.uniform(4), seed=3)
    list(server.records())
    undisturbed = results(parties, server)
    server, lives = None, 0
    while server is None or server.engine.begin().t < 4:
        parties = crew(tmp_path / "two", *args)
        server = opened(tmp_path / "two", Direct(parties), args, 4, cohort=cohorts.uniform(4), seed=3)
        state = server.engine.begin()
        fresh = state._replace(record=state.record.fresh()._replace(cohort=())) if state.e == 0 else state
        server.engine.exchange(fresh)
        lives += 1
    assert lives == 4 * len(args[0].exchanges)
    assert results(parties, server) == undisturbed


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_dies_at_any_of_its_writes_changes_no_bit(when, tmp_path, monkeypatch):
    """Before and after each transaction of its journal, in a method with two exchanges."""
    left = [0]

    def dying(method):
        def wrapped(*args):
            left[0] -= 1
            if left[0] == 0 and when == "before":
                raise Died
            method(*args)
            if left[0] == 0 and when == "after":
                raise Died

        return wrapped

    for name in ("put", "commit"):
        monkeypatch.setattr(Journal, name, dying(getattr(Journal, name)))

    def run(directory, dies_at):
        parties, left[0] = crew(directory, *DANE), dies_at
        for _ in range(2):
            try:
                server = opened(directory, Direct(parties), DANE, 2, cohort=cohorts.uniform(4), seed=3)
                list(server.records())
            except Died:
                continue
            return results(parties, server), dies_at - left[0]

    undisturbed, writes = run(tmp_path / "undisturbed", 10**6)
    different = [n for n in range(1, writes + 1) if run(tmp_path / str(n), n)[0] != undisturbed]
    assert different == []


def test_an_old_journal_is_refused_by_the_clients_and_the_right_one_goes_on(tmp_path):
    parties = crew(tmp_path, *PROX)
    server = opened(tmp_path, Direct(parties), PROX, 6)
    records = server.records()
    place = tmp_path / "server"
    for record in records:
        if record.round in (2, 5):
            server.journal.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            shutil.copytree(place, tmp_path / f"after {record.round}")
    server.close()

    def put_back(name):
        shutil.rmtree(place)
        shutil.copytree(tmp_path / name, place)
        return opened(tmp_path, Direct(parties), PROX, 6, waits=Patience(0.1, patience=0.3))

    server = put_back("after 2")
    with pytest.raises(Waited, match=r"client 1.*the server has counted 2 of its replies, but its disk knows of 5"):
        list(server.records())
    assert sum(1 for _ in server.journal.history()) == 2
    server.close()
    server = put_back("after 5")
    again = list(server.records())[-1]
    assert bits(again.server) == bits(record.server)
    assert_equal(again, memories(parties, server), last(fl.reference, PROX[0], FEDERATION, PROX[1], W, 6))


# What is refused.


def again(change, node=1, kind="reply"):
    """Something wrong comes from a node besides what it sends."""

    def changed(where, frame):
        return [*change(frame), frame] if where == node and frame.header["kind"] == kind else [frame]

    return changed


def body(tree):
    return lambda frame: [Frame(frame.header, packed(tree))]


def header(**values):
    return lambda frame: [Frame({**frame.header, **values}, frame.body)]


REFUSED = {
    "shape": (body(W[:2]), r"array 0 must be float64\[4\], but is float64\[2\]"),
    "type": (body(np.asarray(W, np.float32)), r"array 0 must be float64\[4\], but is float32\[4\]"),
    "number of arrays": (body((W, W)), "1 arrays were agreed upon, but 2 came"),
    "NaN": (body(W * np.nan), "NaN or infinity came"),
    "size": (body(np.zeros(10**4)), "80,0.. bytes came, but arrays of the agreed shapes have at most"),
    "no arrays": (lambda frame: [Frame(frame.header, b"x" * 50)], "the arrays cannot be read"),
    "other federation": (header(uid="other"), "the reply is of another federation"),
    "other client": (header(k=3), "the reply says that it is of client 3, but came from client 1"),
    "other tag": (header(tag="0" * 64), "nobody has asked for this reply"),
    "gradients": (header(gradients=-1), "gradients must be a whole number"),
    "residual": (header(residual="large"), "residual must be a number"),
    "unsolved": (header(unsolved=None), "unsolved must be a whole number"),
}


def noted(server):
    return [words for _, words in server.journal.events(1000)]


def assert_noted(server, pattern):
    assert any(re.search(pattern, words) for words in noted(server)), noted(server)


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_wrong_replies_are_refused_with_a_sentence_and_change_nothing(change, words, tmp_path):
    args = (fl.FedAvg(), fl.GD(0.1, 2), FEDERATION, W)
    server = opened(tmp_path, Changing(crew(tmp_path, *args), again(change)), args, 2, waits=SOON)
    record = list(server.records())[-1]
    assert_noted(server, f"client 1 .client 1., round 1: a reply is refused: {words}")
    expected = last(fl.reference, args[0], FEDERATION, args[1], W, 2)
    assert relative_difference(record.server, expected.server) < 1e-12


def test_a_reply_of_an_earlier_round_is_refused(tmp_path):
    old = []

    def replayed(node, frame):
        if node != 1 or frame.header["kind"] != "reply":
            return [frame]
        old.append(frame)
        return [old[0], frame]

    server = opened(tmp_path, Changing(crew(tmp_path, *PROX), replayed), PROX, 3)
    record = list(server.records())[-1]
    assert_noted(server, "round 3: a reply is refused: nobody has asked for this reply, or it has come before")
    expected = last(fl.reference, PROX[0], FEDERATION, PROX[1], W, 3)
    assert relative_difference(record.server, expected.server) < 1e-12


def test_a_refusal_of_an_earlier_round_is_not_one_of_this_round(tmp_path):
    """Client 1 comes to NaN in the first round; that word of it comes again in the second, in which it is well."""
    parties, old = crew(tmp_path, *PROX), []
    compute = parties[1]._compute

    def computed(job, *given):
        if job.t == 0:
            raise NotFinite(f"{NOT_FINITE} in exchange 'train'.", 3)
        return compute(job, *given)

    def replayed(node, frame):
        if node == 1 and frame.header["kind"] == "refused":
            old.append(frame)
        return [old[0], frame] if node == 1 and frame.header["kind"] == "reply" else [frame]

    parties[1]._compute = computed
    server = opened(tmp_path, Changing(parties, replayed), PROX, 2)
    assert [len(record.dropped) for record in server.records()] == [1, 0]


def test_a_node_speaks_for_one_client_only(tmp_path):
    parties = crew(tmp_path, *PROX)
    server = opened(tmp_path, Direct(parties), PROX, 1)
    del server.desk.transport.parties[2]
    server.desk.look()
    greeted = Frame({"kind": "hello", **server.desk.agreed._asdict()})
    with pytest.raises(Refused, match="client 1"):
        server.desk._taken(1, parties[2].answer(greeted))


HELLO = {
    "uid": "the uid of client 1 .client 1. is 'x', but here it is 'test'",
    "method": "the method of client 1 .client 1. is 'x'",
    "version": "the version of client 1 .client 1. is 'x'",
    "float_type": "the float type of client 1 .client 1. is 'x', but here it is 'float64'",
    "name": "it calls itself 'x', but client 1 is 'client 1'",
    "size": "size must be a whole number",
    "k": "k must be a whole number",
}


@pytest.mark.parametrize("name", HELLO)
def test_those_who_mean_another_federation_are_refused_at_hello(name, tmp_path):
    def other(node, frame):
        wrong = node == 1 and frame.header["kind"] == "hello"
        return [Frame({**frame.header, name: "x"}, frame.body)] if wrong else [frame]

    waits = Patience(deadline=0.1, patience=0.2)
    with pytest.raises(Waited, match="these have not come: client 1"):
        opened(tmp_path, Changing(crew(tmp_path, *PROX), other), PROX, 1, waits=waits)
    events = [words for _, words in Journal(tmp_path / "server" / "journal.db").events(100)]
    assert any(HELLO[name].replace(".client 1.", "(client 1)") in words for words in events)


def test_clients_refuse_a_server_of_another_method(tmp_path):
    parties = crew(tmp_path, fl.FedAvg(), PROX[1], FEDERATION)
    with pytest.raises(Waited, match="these have not come: client 0"):
        opened(tmp_path, Direct(parties), PROX, 1, waits=Patience(deadline=0.1, patience=0.2))
    events = [words for _, words in Journal(tmp_path / "server" / "journal.db").events(100)]
    assert any("the method of the server is" in words for words in events)


def test_a_client_that_comes_back_by_another_way_is_known_by_its_disk(tmp_path):
    """Without keys a SuperNode that is started again has another number, and the old one is listed for a minute."""
    parties = crew(tmp_path, *PROX)
    ways = Direct(dict(enumerate(parties)))
    server = opened(tmp_path / "server", ways, PROX, 4)
    records = server.records()
    next(records)
    silent = type("Silent", (), {"answer": lambda self, frame: Frame({"kind": "nothing"})})()
    ways.parties |= {2: silent, "new": parties[2]}
    server.desk.leave_out(2, "its node was killed")
    last = list(records)[-1]
    assert server.desk.nodes[2] == "new"
    assert last.round == 4


def test_only_one_node_speaks_for_a_client_and_only_the_one_with_its_key(tmp_path):
    parties = crew(tmp_path, *PROX)
    double = Direct({**dict(enumerate(parties)), "thief": crew(tmp_path / "another disk", *PROX)[2]})
    server = opened(tmp_path / "first", double, PROX, 2)
    record = list(server.records())[-1]
    assert any("client 2 (client 2), who is there already" in words for words in noted(server))
    assert_equal(record, memories(parties, server), last(fl.reference, PROX[0], FEDERATION, PROX[1], W, 2))
    parties = crew(tmp_path / "keys", *PROX)
    thief = Direct({**dict(enumerate(parties)), "thief": parties[2]})
    bound = {k: k for k in range(N) if k != 2} | {"thief": 3}
    with pytest.raises(Waited, match="these have not come: client 2"):
        opened(tmp_path / "keys", thief, PROX, 1, bound=bound, waits=Patience(deadline=0.1, patience=0.2))
    events = [words for _, words in Journal(tmp_path / "keys" / "server" / "journal.db").events(100)]
    for node in ("thief", "2"):
        assert any(f"node {node} is refused: it says that it is client 2" in words for words in events)


@pytest.mark.parametrize(
    ("waits", "words"),
    [
        ({"minimum": N + 1}, f"minimum must be a number of clients from 1 to {N}, got {N + 1}"),
        ({"minimum": 0}, "minimum must be a number of clients"),
        ({"minimum": 3, "enough": 2}, "enough = 2 is less than minimum = 3"),
        ({"enough": N + 1}, "enough must be a number of clients"),
        ({"deadline": 0.0}, "deadline must be a positive number of seconds, got 0.0"),
        ({"deadline": -1.0}, "deadline must be a positive number"),
        ({"deadline": float("nan")}, "deadline must be a positive number"),
        ({"deadline": 5.0, "patience": 1.0}, "patience must be at least the deadline"),
    ],
    ids=repr,
)
def test_waiting_that_makes_no_sense(waits, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        opened(tmp_path, Direct([]), PROX, 1, waits=Patience(**waits))
    assert not list(tmp_path.rglob("*.db"))


# Asynchronous runs.


@pytest.mark.parametrize(
    ("buffer", "transport"),
    [
        (1, Direct),
        (2, Losing),
        pytest.param(2, Direct, marks=pytest.mark.exhaustive),
        pytest.param(1, Losing, marks=pytest.mark.exhaustive),
    ],
)
def test_asynchronous_feddr_keeps_its_invariant_and_reaches_the_optimum(buffer, transport, tmp_path):
    """x_hat = sum_k p_k (2 x_k - y_k), with the memories that are on the clients' disks."""
    parties = crew(tmp_path, *DR)
    waits, rounds = Patience(deadline=0.05, patience=5.0), 300 // buffer
    server = opened(
        tmp_path, transport(parties), DR, rounds, cohort=cohorts.uniform(4), seed=2, buffer=buffer, waits=waits
    )
    for record in server.records():
        if record.round % (rounds // 5):
            continue
        found, p = memories(parties, server), server.run.p
        first = DR[0].init_client(W)
        own = [DR[0].invariant(record.server, found.get(k, first))[1] for k in range(N)]
        x_hat = DR[0].invariant(record.server, first)[0]
        assert relative_difference(sum(p[k] * own[k] for k in range(N)), x_hat) < 1e-12
    assert record.clock.replies == rounds * buffer
    assert relative_difference(record.w, FEDERATION.optimum()) < 1e-6


def test_no_wave_is_begun_twice_by_servers_that_die(tmp_path):
    """A wave names a job; a late answer to one of long ago must not be an answer to another one of the same name."""
    waves = []

    class Watched(Direct):
        def push(self, frames, ttl):
            waves[-1] |= {frame.header["wave"] for _, frame in frames if frame.header["kind"] == "train"}
            super().push([(node, frame) for node, frame in frames if frame.header["kind"] != "train"], ttl)

    for _ in range(2):
        waves.append(set())
        server = opened(tmp_path, Watched(crew(tmp_path, *DR)), DR, 3, buffer=1, waits=Patience(0.1, patience=0.3))
        with pytest.raises(Waited, match="No reply has come"):
            list(server.records())
    assert waves[0]
    assert waves[1]
    assert not waves[0] & waves[1]


def test_methods_that_cannot_be_asynchronous_are_refused(tmp_path):
    args = (fl.FedDyn(alpha=0.3), fl.Exact(), FEDERATION, W)
    with pytest.raises(ValueError, match="asynchronous"):
        opened(tmp_path, Direct([]), args, 1, buffer=1)
    with pytest.raises(ValueError, match="buffer must be an integer from 1 to 4"):
        opened(tmp_path, Direct([]), DR, 1, cohort=cohorts.uniform(4), buffer=5)
    assert not list(tmp_path.rglob("*.db"))
