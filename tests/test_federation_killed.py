"""Real processes of a federation are killed at random moments: nothing is counted twice, nothing counted is lost."""

import random
import shutil
import time

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedloom[flower]'")

import fedloom as fl
from fedloom import cohorts
from fedloom.federation.engine import Served
from fedloom.federation.folders import client_folder
from fedloom.federation.rounds import Patience
from fedloom.federation.worker import party_of
from tests.federation_in_memory import Direct
from tests.federation_processes import Federation, alive, signalled


def victim(federation, kind, name):
    """The process to kill, as soon as it is there."""
    if kind in ("server", "client"):
        return federation.commands[name].pid
    return federation.until(lambda: federation.of(name, kind), 90, f"{kind} of {name}")[0]


def killed(federation, kind, name):
    """Kill -9 one of the processes; the commands are started again, all else comes back by itself."""
    pid = victim(federation, kind, name)
    signalled(pid)
    federation.until(lambda: not alive(pid), 10, f"the death of {kind} {pid}")
    if kind in ("server", "client"):
        federation.commands[name].wait(10)
        federation.start(name)
    return pid


def storm(federation, kills, every, seed, first=2):
    """One kill after the other, `every` exchanges apart, each at a random moment."""
    chance = random.Random(seed)
    for i, (kind, name) in enumerate(kills):
        federation.until(lambda i=i: federation.exchanges() >= first + every * i, 150, f"the exchange of kill {i}")
        time.sleep(chance.uniform(0.0, 1.0))
        killed(federation, kind, name)


def undisturbed(federation, directory):
    """The same run in this process, in which nobody dies: its journal."""
    e, parties = federation.terms.experiment, []
    for name in federation.names:
        folder = directory / name
        folder.mkdir()
        for file in ("federation.toml", "client.toml", "small.py"):
            shutil.copyfile(federation.client(name) / file, folder / file)
        parties.append(party_of(client_folder(folder)))
    terms = client_folder(folder).terms
    begin = (lambda desk: (terms.experiment.load().w, None), e.rounds)
    given = (Direct(parties), directory / "server", terms.agreement, terms.clients, e.algorithm, e.solver, *begin)
    server = Served(*given, cohort=e.cohort, seed=e.seed, waits=terms.waits)
    list(server.records())
    return server.journal


def test_a_worker_is_killed_and_comes_back_without_help():
    """While it is away, it is waited for no longer than the deadline."""
    waits = Patience(deadline=2.0, minimum=1, patience=120.0)
    with Federation("scaffold", fl.GD(0.1, 2), 12, waits=waits, evaluate_every=6, clients=2) as federation:
        federation.start()
        storm(federation, [("worker", "c0")], 2, seed=0)
        began, before = time.monotonic(), federation.exchanges()
        federation.until(lambda: federation.exchanges() >= before + 2, 20, "two exchanges while somebody is away")
        assert time.monotonic() - began < 15
        federation.finish(60)
        history, _ = federation.check()
        assert [one.job.k for one in history[-1].counted] == [0, 1]


STORM = [
    ("worker", "c0"),
    ("node", "c1"),
    ("serverapp", "server"),
    ("client", "c2"),
    ("worker", "c1"),
    ("superlink", "server"),
    ("node", "c0"),
    ("worker", "c2"),
    ("serverapp", "server"),
    ("client", "c0"),
    ("server", "server"),
    ("node", "c2"),
    ("worker", "c1"),
    ("superlink", "server"),
]


@pytest.mark.long
def test_everybody_is_killed_and_the_run_is_right():
    waits = Patience(deadline=3.0, minimum=1, patience=180.0)
    given = {"cohort": cohorts.uniform(2), "waits": waits, "evaluate_every": 10}
    with Federation("scaffold", fl.GD(0.1, 2), 3 * len(STORM) + 12, **given) as federation:
        federation.start()
        storm(federation, STORM, 3, seed=1)
        federation.finish(240)
        history, _ = federation.check()
        assert federation.life() > 4
        assert {one.job.k for done in history[len(history) // 2 :] for one in done.counted} == {0, 1, 2}


SECURE_STORM = [("node", "c1"), ("superlink", "server"), ("client", "c0"), ("server", "server")]


@pytest.mark.long
def test_everybody_is_killed_where_clients_have_keys():
    """FedDR, whose clients have memories. A client with a key has to wait until the server has forgotten it."""
    waits = Patience(deadline=3.0, minimum=1, patience=180.0)
    given = {"cohort": cohorts.uniform(2), "waits": waits, "evaluate_every": 50, "secure": True}
    with Federation(fl.FedDR(eta=1.0, alpha=1.0), fl.Exact(), 40, **given) as federation:
        federation.start()
        storm(federation, SECURE_STORM, 4, seed=2)
        federation.finish(240)
        federation.check()


@pytest.mark.exhaustive
def test_a_server_that_is_killed_changes_no_bit_where_everybody_answers(tmp_path):
    """Two exchanges in a round, so that the server also dies between them."""
    waits = Patience(deadline=60.0, minimum=3, patience=180.0)
    given = {"cohort": cohorts.everyone(), "waits": waits, "evaluate_every": 3}
    with Federation(fl.FedDANE(mu=0.5), fl.Exact(), 8, **given) as federation:
        federation.start()
        storm(federation, [("serverapp", "server")] * 3, 4, seed=3)
        federation.finish(180)
        federation.check()
        with federation.journal() as journal:
            expected = undisturbed(federation, tmp_path)
            assert journal.get("state").body == expected.get("state").body
            assert list(journal.history()) == list(expected.history())
            expected.close()
        assert federation.life() >= 4
