"""Flower's real processes on loopback: a SuperLink, nodes, echoing workers, and a ServerApp that does as told."""

import contextlib
import multiprocessing.connection
import os
import pathlib
import shutil
import signal
import socket
import ssl
import tempfile
import threading
import time

from fedloom.federation.flower import processes, shim
from fedloom.federation.flower.processes import ClientKeys, ServerKeys, Supervised
from fedloom.federation.keys import make_authority, make_client_key, make_server_certificate

AUTHKEY = b"only for tests"
LIMIT = 64 * 2**20

SERVER_APP = """
import multiprocessing.connection
import os
import pathlib
import threading
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
from puppet.grid import GridTransport, Sent

app = ServerApp()


def end_with(parent):  # Flower's own way does not reach a process that waits in a call of the system, as this one does
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@app.main()
def main(grid, context):
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    transport = GridTransport(grid)
    path = pathlib.Path(context.run_config["listen"])
    path.unlink(missing_ok=True)
    with multiprocessing.connection.Listener(str(path), authkey=b"only for tests") as listener:
        while True:
            with listener.accept() as test:
                try:
                    while True:
                        name, args = test.recv()
                        if name == "end":
                            return
                        if name == "foreign":  # a message that is none of FedLoom's
                            content = RecordDict({"config": ConfigRecord({"lr": 0.1})})
                            found = list(grid.push_messages([Message(content, args[0], "query", ttl=60.0)]))
                            transport.waiting[found[0]] = Sent(args[0], time.monotonic() + 60)
                        else:
                            found = getattr(transport, name)(*args)
                        test.send([tuple(x) for x in found] if name == "pull" else found)
                except (EOFError, ConnectionError):
                    pass
"""

# A client that runs the server's code would leave a trace.
FOREIGN_CLIENT_APP = """
import pathlib
pathlib.Path({trace!r}).touch()
from flwr.app import Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message, context):
    pathlib.Path({trace!r}).touch()
    return Message(message.content, reply_to=message)
"""

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "puppet"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "fedloom"
[tool.flwr.app.components]
serverapp = "puppet.server_app:app"
clientapp = "puppet.client_app:app"
[tool.flwr.app.config]
listen = ""
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, seconds=60.0, pause=0.05):
    """What the condition gives, as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(pause)
    raise TimeoutError(f"nothing after {seconds} s")


class Echo:
    """A worker that gives back what it gets, after a while if it is told so."""

    def __init__(self, path):
        self.path, self.asked, self.delay, self.break_off = pathlib.Path(path), 0, 0.0, 0
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(ConnectionError):
                header, body = shim.receive_frame(connection, LIMIT)
                self.asked += 1
                time.sleep(self.delay)
                if self.break_off:
                    self.break_off -= 1
                    connection.sendall(b"\\0" * 5)
                    continue
                shim.send_frame(connection, {**header, "kind": "echo"}, body)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)
        self.path.unlink(missing_ok=True)


class Loopback:
    """A federation's transport on this machine, in a directory with a short name, for Unix sockets have short names."""

    def __init__(self, tls=True):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="fl-"))
        self.home, self.database = self.directory / "flower", self.directory / "superlink.db"
        self.port, self.keys = free_port(), None
        if tls:
            ca, _ = make_authority(self.directory)
            self.keys = ServerKeys(ca, *make_server_certificate(self.directory, ["127.0.0.1"]))
        self.address = f"127.0.0.1:{self.port}"
        self.ended, self.log = [], self.directory / "link.log"
        processes.write_connection(self.home, self.port, self.keys and self.keys.ca)
        command = processes.superlink_command(self.database, "127.0.0.1", self.port, self.keys, LIMIT)
        self.link = self.supervised("link", command, self.log)
        ca = self.keys and self.keys.ca
        from fedloom.federation.flower.probe import problem

        until(lambda: not problem(self.address, ca)[0])

    def supervised(self, name, command, log, **more):
        made = Supervised(name, command, processes.environment(self.home), log, **more)
        self.ended.append(made.stop)
        return made.start()

    def client_key(self, name):
        """A registered key, and its node id."""
        public = make_client_key(self.directory / name)
        return self.directory / name, processes.register(self.home, public, self.database)

    def node(self, name, keys=None, address=None, limit=LIMIT, **more):
        """A client: an echoing worker and its node."""
        echo = Echo(self.directory / f"{name}.sock")
        self.ended.append(echo.close)
        status, log = self.directory / f"{name}.json", self.directory / f"{name}.log"
        command = processes.node_command(address or self.address, echo.path, keys, status, limit, 5.0)
        node = self.supervised(name, command, log, **more)
        node.echo, node.status = echo, status
        return node

    def puppet(self):
        """A ServerApp that does what the test says. Its ClientApp is one that nobody should run."""
        app, package = self.directory / "app", self.directory / "app" / "puppet"
        package.mkdir(parents=True)
        (app / "pyproject.toml").write_text(PYPROJECT)
        (package / "__init__.py").write_text("")
        (package / "server_app.py").write_text(SERVER_APP)
        (package / "client_app.py").write_text(FOREIGN_CLIENT_APP.format(trace=str(self.trace)))
        for name in ("grid.py", "pace.py", "shim.py"):
            shutil.copyfile(processes.HERE / name, package / name)
        self.app = app
        return self.run()

    @property
    def trace(self):
        return self.directory / "trace"

    def run(self):
        listen = self.directory / "listen"
        listen.unlink(missing_ok=True)
        self.run_id = processes.start_run(self.home, self.app, {"listen": str(listen)})
        until(listen.exists)
        return Puppet(listen)

    def close(self):
        for end in reversed(self.ended):
            end()
        shutil.rmtree(self.directory)


class Impostor:
    """Something that listens: with a certificate, or without TLS at all."""

    def __init__(self, keys=None):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.context = None
        if keys is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*keys)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                if self.context is None:
                    connection.recv(100)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                else:
                    self.context.wrap_socket(connection, server_side=True).close()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)


class Puppet:
    """The transport in the ServerApp, as if it were here."""

    def __init__(self, path):
        self.path = path
        self.connection = multiprocessing.connection.Client(str(path), authkey=AUTHKEY)

    def call(self, name, *args):
        self.connection.send((name, args))
        return self.connection.recv()

    def wait(self, ids, seconds=60.0):
        """The answers to messages, in order."""
        found = {}
        end = time.monotonic() + seconds
        while len(found) < len(ids) and time.monotonic() < end:
            found.update({arrived[1]: arrived for arrived in self.call("pull")})
            time.sleep(0.05)
        return [found.get(i) for i in ids]

    def ask(self, messages, ttl=60.0, seconds=60.0):
        return self.wait(self.call("push_all", messages, ttl), seconds)

    def nodes(self, n, seconds=60.0):
        return sorted(until(lambda: len(x := self.call("nodes")) >= n and x, seconds))

    def close(self):
        with contextlib.suppress(OSError):
            self.connection.send(("end", ()))
        self.connection.close()


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


__all__ = ["LIMIT", "ClientKeys", "Echo", "Impostor", "Loopback", "Puppet", "ServerKeys", "free_port", "kill", "until"]
