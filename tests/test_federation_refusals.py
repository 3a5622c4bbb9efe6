"""What a real server refuses from real nodes with rogue workers behind them, each with a sentence; and bad input."""

import contextlib
import shutil
import threading
import time

import numpy as np
import pytest
from safetensors.numpy import load, save

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedloom[flower]'")

import fedloom as fl
from fedloom import cli
from fedloom.federation.flower.processes import ClientKeys, Supervised, environment, node_command
from fedloom.federation.flower.running import FLOWER
from fedloom.federation.flower.shim import BODY_LIMIT
from fedloom.federation.folders import KEY, STORE, client_folder
from fedloom.federation.rounds import Patience
from fedloom.federation.wire import Frame
from fedloom.federation.worker import party_of, serve
from tests.federation_processes import Federation


class Rogue:
    """A worker in a thread of the test: a real party, whose answers are changed on their way out."""

    def __init__(self, federation, name):
        self.federation, self.folder = federation, client_folder(federation.client(name))
        self.changes = {}  # kind of answer: changes that are made, one after the other, each once
        self.sent, self.pause = [], 0.0  # what was answered with work, and the seconds that each took besides
        self.start()

    def start(self):
        self.party, self.stopped = party_of(self.folder), False
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        serve(self.folder.socket, {self.folder.terms.uid: self}, goes_on=lambda: not self.stopped)

    def stop(self):
        self.stopped = True
        self.thread.join(30)
        self.party.store.close()

    # As `serve` wants a party.

    @property
    def most_bytes(self):
        return self.party.most_bytes

    @property
    def over(self):
        return self.party.over

    def answer(self, frame):
        found = self.party.answer(frame)
        changes = self.changes.get(found.header["kind"], [])
        if found.header["kind"] == "reply":
            self.sent.append(found)
            time.sleep(self.pause)
        return changes.pop(0)(found) if changes else found

    # The disk.

    def copied(self, name):
        """A copy of the disk as it is now."""
        self.party.store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return shutil.copyfile(self.folder.path / STORE, self.folder.path / name)

    def put_back(self, kept):
        """Go on with another disk."""
        self.stop()
        shutil.copyfile(kept, self.folder.path / STORE)
        self.start()


@contextlib.contextmanager
def rogues(federation):
    """Rogue workers for all clients, and their real nodes; the server is the real command."""
    made = []
    with contextlib.ExitStack() as stack:
        for name in federation.names:
            made.append(rogue := Rogue(federation, name))
            stack.callback(rogue.stop)
        nodes = contextlib.ExitStack()
        stack.enter_context(nodes)
        federation.start("server")
        for rogue in made:
            folder = rogue.folder.path.resolve()
            home = folder / FLOWER
            home.mkdir()
            keys = ClientKeys(folder / "ca.crt", folder / KEY) if federation.terms.secure else None
            command = node_command(federation.terms.address, rogue.folder.socket, keys, home / "node.json", BODY_LIMIT)
            nodes.enter_context(Supervised(rogue.folder.name, command, environment(home), home / "node.log"))
        yield made, nodes.close


def header(**values):
    return lambda frame: Frame({**frame.header, **values}, frame.body)


def first_array(change):
    """The first array of a reply, changed."""

    def changed(frame):
        arrays = load(frame.body)
        return Frame(frame.header, save({**arrays, "0": np.ascontiguousarray(change(arrays["0"]))}))

    return changed


REPLIES = {
    r"array 0 must be float64[10], but is float64[2]": first_array(lambda x: x[:2]),
    r"array 0 must be float64[10], but is float32[10]": first_array(lambda x: x.astype(np.float32)),
    "NaN or infinity came, although clients look for it themselves": first_array(lambda x: x * np.nan),
    "bytes came, but arrays of the agreed shapes have at most": first_array(lambda x: np.zeros(10**5)),
    "the arrays cannot be read": lambda frame: Frame(frame.header, b"no arrays" * 9),
    "the reply says that it is of client 2, but came from client 1": header(k=2),
}


def noted(federation, words, seconds=60.0):
    """Wait until a sentence of the journal has these words."""
    return federation.until(lambda: any(words in event for event in federation.events()), seconds, repr(words))


@pytest.mark.exhaustive
def test_each_wrong_word_is_refused_with_a_sentence_and_the_run_ends_right():
    waits = Patience(deadline=2.0, minimum=1, patience=120.0)
    given = {"waits": waits, "evaluate_every": 100}
    with Federation("scaffold", fl.GD(0.1, 2), 60, **given) as federation, rogues(federation) as (parties, stop):
        honest, rogue, other = parties

        def as_another(frame):
            noted(federation, "client 0 (c0) is there")  # whoever comes first speaks for a client
            return header(k=0, name="c0")(frame)

        honest.pause = 0.5  # so that there are rounds left for all that follows
        rogue.changes["hello"] = [as_another]
        other.changes["hello"] = [header(version="0.0.1")]
        noted(federation, "it says that it is client 0 (c0), who is there already", 90)
        noted(federation, "the version of client 2 (c2) is '0.0.1', but here it is")
        federation.until(lambda: len(rogue.sent) >= 2, 60, "two replies")
        old, first = rogue.copied("old.db"), rogue.sent[0]
        rogue.changes["reply"] = [lambda frame: first, *REPLIES.values()]
        for words in ("nobody has asked for this reply, or it has come before, or it is late", *REPLIES):
            noted(federation, f"a reply is refused: {words}" if "bytes came" not in words else words)
        # An old disk: the client itself refuses to work with it, and the server does not let it in.
        counted = len(rogue.sent)
        federation.until(lambda: len(rogue.sent) >= counted + 3, 60, "replies that count")
        right = rogue.copied("right.db")
        rogue.put_back(old)
        noted(federation, "client 1 (c1) is left out: the server has counted")
        noted(federation, "an old copy?")
        rogue.put_back(right)
        noted(federation, "client 1 (c1) takes part again.")
        honest.pause = 0.0
        federation.finish(120, stop)
        history, _ = federation.check()
        assert [one.job.k for one in history[-1].counted] == [0, 1, 2]
        assert not honest.changes


@pytest.mark.exhaustive
def test_a_client_cannot_take_the_number_of_another_key():
    waits = Patience(deadline=10.0, minimum=1, patience=120.0)
    given = {"waits": waits, "evaluate_every": 100, "clients": 2, "secure": True}
    with Federation("scaffold", fl.GD(0.1, 2), 3, **given) as federation, rogues(federation) as (parties, stop):
        parties[1].changes["hello"] = [header(k=0, name="c0")]
        noted(federation, "it says that it is client 0 (c0), which has another key", 120)
        federation.finish(120, stop)
        history, _ = federation.check()
        assert [one.job.k for one in history[-1].counted] == [0, 1]


# Bad input, which no process has to be started for.


def run(capsys, *arguments):
    code = cli.main(["federate", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out + err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A federation of two clients, as init makes it."""
    made = tmp_path_factory.mktemp("bad") / "f"
    given = ["--task", "digits", "--algorithm", "fedavg", "--rounds", "2", "--clients", "north,south"]
    assert cli.main(["federate", "init", str(made), *given, "--address", "127.0.0.1:8443"]) == 0
    return made


def a_copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.mark.parametrize("command", ["server", "client", "status"])
def test_an_unknown_field_of_the_terms(folder, tmp_path, capsys, command):
    copy = a_copy(folder, tmp_path)
    place = copy / ("clients/north" if command == "client" else "server")
    file = place / "federation.toml"
    file.write_text(file.read_text().replace("deadline =", "dedline ="))
    code, said = run(capsys, command, place)
    assert code == 2
    assert "there is no field 'dedline'. Did you mean 'deadline'?" in said


@pytest.mark.parametrize("file", ["ca.crt", "key"])
def test_a_client_without_its_files(folder, tmp_path, capsys, file):
    place = a_copy(folder, tmp_path) / "clients/north"
    (place / file).unlink()
    code, said = run(capsys, "client", place, "--data", "task")
    assert code == 2
    assert f"{place / file} is missing" in said


@pytest.mark.parametrize("file", ["ca.crt", "server.crt", "server.key", "keys/north.pub"])
def test_a_server_without_its_files(folder, tmp_path, capsys, file):
    place = a_copy(folder, tmp_path) / "server"
    (place / file).unlink()
    code, said = run(capsys, "server", place)
    assert code == 2
    assert f"{(place / file).resolve()} is missing" in said


def test_a_key_that_others_can_read(folder, tmp_path, capsys):
    place = a_copy(folder, tmp_path) / "clients/north"
    (place / "key").chmod(0o644)
    code, said = run(capsys, "client", place, "--data", "task")
    assert code == 2
    assert f"{place / 'key'} can be read by others on this machine; run chmod 600" in said


def test_data_that_are_missing(folder, tmp_path, capsys):
    place = a_copy(folder, tmp_path) / "clients/north"
    code, said = run(capsys, "client", place)
    assert code == 2
    assert "data: what does client 'north' train on?" in said
    code, said = run(capsys, "client", place, "--explain", "--data", "nothing.py:rows")
    assert code == 2
    assert "nothing.py" in said
    code, said = run(capsys, "client", place, "--explain", "--data", "nothing")
    assert code == 2
    assert "data: 'nothing' is neither FILE.py:NAME, nor a table" in said


def test_a_client_that_nobody_knows(folder, capsys):
    code, said = run(capsys, "client", folder / "clients/north", "--name", "nord", "--data", "task")
    assert code == 2
    assert "client: there is no client 'nord'. Did you mean 'north'?" in said


def test_folders_that_exist_are_not_overwritten(folder, capsys):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, said = run(capsys, "init", folder, "--task", "digits", "--clients", "2")
    assert code == 2
    assert str(folder) in said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--address", "nowhere"], "address must be HOST:PORT, such as example.org:8443, got 'nowhere'"),
        (["--address", "https://x.example:8443"], "address must be HOST:PORT"),
        (["--address", "127.0.0.1:99999"], "address must be HOST:PORT"),
        (["--minimum", "3"], "minimum must be a number of clients from 1 to 2, got 3"),
        (["--enough", "3"], "enough must be a number of clients from 1 to 2, got 3"),
        (["--minimum", "2", "--enough", "1"], "enough = 1 is less than minimum = 2"),
        (["--deadline", "0"], "deadline must be a positive number of seconds, got 0.0"),
        (["--deadline", "60", "--patience", "5"], "patience must be at least the deadline of 60 seconds, got 5"),
        (["--clients", "a,a"], "clients must be a list of different names"),
        (["--clients", "a,../b"], "clients: '../b' cannot be the name of a client"),
        (["--clients", "0"], "--clients must be names, or a number from 1 to 10,000"),
        (["--asynchronous", "0"], "buffer must be a number of replies, got 0"),
    ],
    ids=lambda given: "-".join(given)[:40] if isinstance(given, list) else "",
)
def test_terms_that_cannot_be(tmp_path, capsys, given, words):
    code, said = run(capsys, "init", tmp_path / "f", "--task", "digits", "--clients", "2", *given)
    assert code == 2
    assert words in said
    assert not (tmp_path / "f").exists()
