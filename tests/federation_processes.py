"""A federation of the real commands on loopback: server, clients, and whoever they start; all found and ended by id."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

from fedloom.engines.checks import checked
from fedloom.engines.oracle import _records
from fedloom.experiments.settings import experiment
from fedloom.federation.engine import JOURNAL
from fedloom.federation.flower.running import FLOWER
from fedloom.federation.folders import CLIENTS, SERVER, client_folder, make
from fedloom.federation.journal import Journal
from fedloom.federation.rounds import Patience
from fedloom.federation.status import read_status, replayed
from fedloom.federation.terms import Terms
from fedloom.federation.wire import shapes_of, unpacked
from fedloom.testing import relative_difference
from tests.federation_in_memory import Recorded
from tests.flower_processes import free_port

COMMAND = [sys.executable, "-m", "fedloom.cli", "federate"]
TASK = """
import fedloom as fl

task = fl.Task("small", lambda seed: fl.quadratics(clients={clients}, dimension=10, seed=seed), metrics=())
"""
# What a process is, by its command line.
KINDS = {
    "superlink": "flower/link.py",
    "superexec": "flower-superexec",
    "serverapp": "flwr-serverapp",
    "node": "flower/node.py",
    "worker": "fedloom.federation.worker",
    "server": "fedloom.cli federate server",
    "client": "fedloom.cli federate client",
}


# Processes, by what Linux says of them.


def _stat(pid):
    """State and parent; None if there is no such process."""
    try:
        state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return state, int(parent)


def alive(pid):
    found = _stat(pid)
    return found is not None and found[0] not in "ZX"


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kind_of(pid):
    line = command_line(pid)
    return next((kind for kind, words in KINDS.items() if words in line and " -c " not in line), None)


def processes():
    """All that live, with their parents."""
    found = {int(name): _stat(name) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: stat[1] for pid, stat in found.items() if stat is not None and stat[0] not in "ZX"}


def descendants(pid):
    """Everybody that this process has started, and they, and so on."""
    parents, found, new = processes(), set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def signalled(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def resident(pid):
    """Bytes of memory."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tail(path, lines=10):
    """The last lines of a log, without those that Flower writes for each message."""
    try:
        text = pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return "(there is none)"
    return "\n".join([line for line in text.splitlines() if line.strip() and "INFO" not in line][-lines:])


class Federation:
    """The folders of a new federation of quadratics, and the commands that run in them.

    As a context it ends every process at its end: those it has started, and those that they have left behind.
    """

    def __init__(self, algorithm, solver, rounds, *, clients=3, secure=False, waits=None, cache=None, **fields):
        # A short name: Unix sockets have short names.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="flp-"))
        self.folder = self.directory / "f"
        self.server, self.names = self.folder / SERVER, [f"c{k}" for k in range(clients)]
        self.port = free_port()
        task = self.directory / "small.py"
        task.write_text(TASK.format(clients=clients))
        fields = {"evaluate_every": 1, "solver": solver, **fields}
        made = experiment(f"{task}:task", algorithm, rounds=rounds, **fields)
        waits = Patience(deadline=10.0, minimum=1, patience=120.0) if waits is None else waits
        address = f"127.0.0.1:{self.port}"
        self.terms = Terms(os.urandom(8).hex(), tuple(self.names), address, made, secure=secure, waits=waits)
        make(self.folder, self.terms)
        for name in self.names:
            with (self.client(name) / "client.toml").open("a") as file:
                file.write('data = "task"\n')
        self.environment = {
            **os.environ,
            "JAX_ENABLE_X64": "1",
            "JAX_COMPILATION_CACHE_DIR": str(cache or self.directory / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
        self.commands = {}  # "server" or a client's name: its process
        self.started = []

    def client(self, name):
        return self.folder / CLIENTS / name

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.end()
        shutil.rmtree(self.directory, ignore_errors=True)

    # Commands.

    def start(self, *names):
        """Start the server, or clients; with no name, all."""
        for name in names or ("server", *self.names):
            what = ["server", str(self.server)] if name == "server" else ["client", str(self.client(name))]
            with (self.directory / f"{name}.log").open("ab") as output:
                self.commands[name] = subprocess.Popen(
                    [*COMMAND, *what],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self.environment,
                    cwd=self.directory,
                    start_new_session=True,
                )
            self.started.append(self.commands[name])

    def end(self):
        """End whatever is left, by force."""
        mine = set()
        for _ in range(3):  # who is ended may just have started somebody
            mine = self.left()
            for pid in mine:
                signalled(pid)
            for process in self.started:
                if process.poll() is None:
                    process.kill()
                process.wait(20)
            if not mine:
                return
            time.sleep(0.2)

    def left(self):
        """The processes of this federation that live: of its commands, or with its folder in their environment."""
        found, mark = set(), str(self.directory).encode()
        for process in self.started:
            if process.poll() is None:
                found |= {process.pid, *descendants(process.pid)}
        for pid in processes():
            with contextlib.suppress(OSError):
                if mark in pathlib.Path(f"/proc/{pid}/environ").read_bytes() or mark.decode() in command_line(pid):
                    found.add(pid)
        return found - {os.getpid()}

    def of(self, name, kind):
        """The processes of a kind that a command has started."""
        return sorted(pid for pid in descendants(self.commands[name].pid) if kind_of(pid) == kind)

    # What is known of the run.

    @property
    def status(self):
        return read_status(self.server) or {}

    def exchanges(self):
        """How many are over."""
        return self._one("SELECT COUNT(*) FROM history")

    def life(self):
        return int(self._one("SELECT value FROM meta WHERE key = 'incarnation'"))

    def ready(self):
        """The numbers of the clients that take part now, if the server says so itself."""
        status = self.status
        fresh = time.time() - status.get("at", 0) < 5.0
        states = status.get("clients", {}).values() if fresh else ()
        return {one["number"] for one in states if one["state"] == "ready"}

    def _one(self, query):
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.server / JOURNAL}?mode=ro", uri=True)) as db:
                row = db.execute(query).fetchone()
        except sqlite3.Error:
            return 0
        return row[0] if row else 0

    def events(self):
        """The sentences of the journal."""
        with self.journal() as journal:
            return [words for _, words in journal.events(1000)]

    @contextlib.contextmanager
    def journal(self):
        found = Journal(self.server / JOURNAL)
        try:
            yield found
        finally:
            found.close()

    def logs(self):
        """The ends of all logs, for the message of a failed assertion."""
        files = [self.directory / f"{name}.log" for name in ("server", *self.names)]
        files.append(self.server / FLOWER / "superlink.log")
        for name in self.names:
            files += [self.client(name) / FLOWER / f"{what}.log" for what in ("worker", "node")]
        parts = [f"--- {path.relative_to(self.directory)}\n{tail(path)}" for path in files]
        with contextlib.suppress(Exception):
            parts.append("--- events\n" + "\n".join(self.events()[-30:]))
        return "\n".join([f"after {self.exchanges()} exchanges; status {json.dumps(self.status)}", *parts])

    def until(self, condition, seconds, what):
        """What the condition gives, as soon as it is true; fails with all logs if it takes too long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := condition():
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what}: not within {seconds:g} seconds\n{self.logs()}")

    def finish(self, seconds, then=lambda: None):
        """Wait until the server has ended by itself, and then the clients and all that they have started."""
        server = self.commands["server"]
        self.until(lambda: server.poll() is not None, seconds, "the last round")
        assert server.returncode == 0, self.logs()
        then()
        told = {name for name, one in self.status["clients"].items() if one["state"] == "ready"}
        for name in self.names:
            if name in self.commands and name not in told:  # it was away, and cannot know that all is over
                self.commands[name].terminate()
            if name in self.commands:
                self.until(lambda name=name: self.commands[name].poll() is not None, 30, f"the end of {name}")
        self.until(lambda: not self.left(), 15, f"the end of all processes ({[*map(command_line, self.left())]})")

    # What must hold of a run that has ended.

    def check(self):
        """The counted replies of each client are consecutive, the run can be computed again, and is the reference's."""
        e = self.terms.experiment
        exchanges = len(e.algorithm.exchanges)
        with self.journal() as journal:
            history, standings = list(journal.history()), journal.standings()
            state, setup, rows = journal.get("state"), journal.get("setup"), journal.rows()
            clock = Recorded(journal, exchanges)
        assert [(one.t, one.e) for one in history] == [(t, i) for t in range(e.rounds) for i in range(exchanges)]
        for k in range(len(self.names)):
            bases = [one.job.base for done in history for one in done.counted if one.job.k == k]
            assert bases == list(range(len(bases)))
            assert len(bases) == (standings[k].counted if k in standings else 0)
        for done in history:
            ids = [one.job.k for one in done.counted]
            assert len(set(ids)) == len(ids) >= self.terms.waits.minimum
        again = replayed(self.server, [])
        assert again.first is None, again.words
        assert again.exchanges == len(history)
        # The reference over the cohorts that were counted.
        p = np.array(setup.header["weights"])
        own = client_folder(self.client(self.names[0])).terms.experiment
        loaded = own.load()
        federation = dataclasses.replace(loaded.federation, weights=p)
        run = checked(own.algorithm, federation, own.solver, loaded.w, own.rounds, None, own.seed)
        record = list(_records(run, clock, []))[-1]
        server = unpacked(state.body, shapes_of(record.server))
        assert relative_difference(server, record.server) < 1e-12
        for k, memory in record.clients.items():
            assert relative_difference(again.memories[k], memory) < 1e-12
        # The log has a row for each evaluated round.
        lines = [json.loads(line) for line in (self.server / "log.jsonl").read_text().splitlines()]
        assert lines == rows
        due = [t for t in range(e.rounds + 1) if t % e.evaluate_every == 0 or t == e.rounds]
        assert [row["round"] for row in lines] == due
        return history, jax.device_get(record.server)
