"""The processes of a federation over Flower: their command lines, their environment, and a supervisor for them."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

HERE = pathlib.Path(__file__).parent
CONNECTION = "here"  # the name of the server's own SuperLink in Flower's configuration
NEEDS = "Flower is not installed here; a federation needs: pip install 'fedloom[flower]'"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",
}
LOCAL = "127.0.0.1,localhost,::1"


class ServerKeys(NamedTuple):
    """The files of a server with TLS."""

    ca: pathlib.Path
    certificate: pathlib.Path
    key: pathlib.Path


class ClientKeys(NamedTuple):
    """The files of a client with TLS: the authority that it trusts, and its own private key."""

    ca: pathlib.Path
    key: pathlib.Path


def environment(home: pathlib.Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """For every process of Flower: nothing is reported or installed, and what it writes is inside `home`."""
    found = {**os.environ, **QUIET, "FLWR_HOME": str(home.absolute())}
    found["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), found.get("PATH", os.defpath)])
    # A proxy of the surroundings must not see what one process of this machine says to another.
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(filter(None, [found.get(name, ""), LOCAL]))
    return {**found, **(more or {})}


def superlink_command(database: pathlib.Path, host: str, port: int, keys: ServerKeys | None, limit: int) -> list[str]:
    """The server's transport. Without keys there is neither TLS nor a check of who comes."""
    command = [sys.executable, "-P", str(HERE / "link.py"), "--limit", str(limit), "--host", host, "--port", str(port)]
    command += ["--database", str(database.absolute()), "--disable-runtime-dependency-installation"]
    if keys is None:
        return [*command, "--insecure"]
    command += ["--ssl-ca-certfile", str(keys.ca), "--ssl-certfile", str(keys.certificate)]
    return [*command, "--ssl-keyfile", str(keys.key), "--enable-supernode-auth"]


def node_command(
    superlink: str,
    socket: pathlib.Path,
    keys: ClientKeys | None,
    status: pathlib.Path,
    limit: int,
    patience: float = 60.0,
) -> list[str]:
    """A client's transport, which hands messages to the worker at the socket and says in `status` how it is."""
    command = [
        sys.executable,
        "-P",
        str(HERE / "node.py"),
        "--superlink",
        superlink,
        "--socket",
        str(socket.absolute()),
    ]
    command += ["--limit", str(limit), "--patience", str(patience), "--status", str(status.absolute())]
    if keys is None:
        return [*command, "--insecure"]
    return [*command, "--ca", str(keys.ca), "--key", str(keys.key)]


def write_connection(home: pathlib.Path, port: int, ca: pathlib.Path | None) -> None:
    """Tell Flower's commands where the server is: on this machine, for it answers to nobody else."""
    home.mkdir(parents=True, exist_ok=True)
    safety = "insecure = true" if ca is None else f"root-certificates = {json.dumps(str(ca.absolute()))}"
    text = (
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{port}"\n{safety}\n'
    )
    (home / "config.toml").write_text(text)


def write_app(directory: pathlib.Path) -> pathlib.Path:
    """The app that `flwr run` bundles, with the shim that it shares with FedLoom's own node."""
    package = directory / "fedloom_app"
    package.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / "app" / "pyproject.toml", directory / "pyproject.toml")
    for file in (HERE / "app" / "server_app.py", HERE / "app" / "client_app.py", HERE / "shim.py"):
        shutil.copyfile(file, package / file.name)
    (package / "__init__.py").write_text('"""A federation of FedLoom over Flower."""\n')
    return directory


# Flower's commands. Each starts a process and takes seconds.


class FlowerError(RuntimeError):
    """A command of Flower that failed, with what it said."""


def flower(home: pathlib.Path, *arguments: str, seconds: float = 120.0) -> dict[str, Any]:
    """What a command of Flower answers."""
    program = pathlib.Path(sys.executable).parent / "flwr"
    if not program.exists():
        raise ModuleNotFoundError(NEEDS)
    command = [str(program), *arguments, "--format", "json"]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=seconds, cwd=home)
    try:
        found = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        found = {}
    if done.returncode or not found.get("success"):
        said = found.get("error-message") or " ".join((done.stderr + done.stdout).split())
        raise FlowerError(f"flwr {' '.join(arguments[:2])}: {said}")
    return found


def register(home: pathlib.Path, public: pathlib.Path, database: pathlib.Path) -> int:
    """The node id of a client's public key, which is registered if it is new."""
    from fedloom.federation.keys import public_key

    if (known := registered(database).get(public_key(public))) is not None:
        return known
    return int(flower(home, "supernode", "register", str(public.absolute()), CONNECTION)["node-id"])


def registered(database: pathlib.Path) -> dict[str, int]:
    """The node ids of the public keys that the server knows. Flower's commands do not tell; its database does."""
    if not database.exists():
        return {}
    from cryptography.hazmat.primitives import serialization

    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        try:
            rows = connection.execute("SELECT node_id, public_key FROM node WHERE status != 'unregistered'").fetchall()
        except sqlite3.OperationalError:  # there is no such table yet
            return {}
    found = {}
    for node, key in rows:
        with contextlib.suppress(ValueError):
            public = serialization.load_pem_public_key(key)
            text = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            found[text.decode()] = node % 2**64  # it is stored with a sign
    return found


def start_run(home: pathlib.Path, app: pathlib.Path, config: Mapping[str, str | int | float | bool]) -> int:
    """Start the app on the server; the number of the run."""
    text = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    more = ["--run-config", text] if text else []
    return int(flower(home, "run", str(app.absolute()), CONNECTION, *more)["run-id"])


def stop_run(home: pathlib.Path, run: int) -> None:
    flower(home, "stop", str(run), CONNECTION)


# Processes that last.

# Ends with its parent, also one that was killed. A program of its own, because a process with threads may not do this
# between fork and exec.
LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Supervised:
    """A process that is started again whenever it ends, with growing pauses; its output is in a file of bounded size.

    >>> with Supervised("node", ["sleep", "60"], dict(os.environ), pathlib.Path(os.devnull)) as node:
    ...     node.wait_until_alive()
    True
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: pathlib.Path,
        *,
        pauses: tuple[float, float] = (0.5, 15.0),
        log_limit: int = 10 * 2**20,
        ends: bool = False,
    ) -> None:
        self.name, self.command, self.environment, self.log = name, list(command), dict(environment), log
        self.pauses, self.log_limit = pauses, log_limit
        self.ends = ends  # an end with code 0 is the end
        self.process: subprocess.Popen[bytes] | None = None
        self.starts, self.last_exit = 0, None
        self._over, self._patience = threading.Event(), 10.0
        # The thread that starts a process must last as long as the process: it is its parent for the kernel.
        self._thread = threading.Thread(target=self._supervise, name=f"supervise-{name}", daemon=True)

    last_exit: int | None

    def start(self) -> Self:
        self._thread.start()
        return self

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def wait_until_alive(self, seconds: float = 10.0) -> bool:
        end = time.monotonic() + seconds
        while not self.alive and time.monotonic() < end:
            time.sleep(0.02)
        return self.alive

    def stop(self, patience: float = 10.0) -> None:
        """End it and all that it has started: asked first, then by force."""
        self._patience = patience
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _supervise(self) -> None:
        pause, longest = self.pauses
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), *self.command]
        while not self._over.is_set():
            began = time.monotonic()
            with self.log.open("ab") as output:
                self.process = subprocess.Popen(
                    launcher,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self.environment,
                    start_new_session=True,  # a group of its own, which can be ended as a whole
                )
                self.starts += 1
                while self.process.poll() is None and not self._over.wait(0.1):
                    self._bound_log()
            if self._over.is_set():
                self._end(self.process)
                return
            self.last_exit = self.process.returncode
            _signal(self.process, signal.SIGKILL)  # what it has left behind
            if self.ends and self.last_exit == 0:
                return
            pause = self.pauses[0] if time.monotonic() - began > 60 else min(longest, 2 * pause)
            self._over.wait(pause)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """By the thread that is its parent: once that ends, the kernel asks again, and Flower dies of it."""
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self._patience)
        _signal(process, signal.SIGKILL)
        process.wait()

    def _bound_log(self) -> None:
        """Keep the last of a long log, in the file with .1 at its end: the process goes on writing to the same file."""
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > self.log_limit:
                shutil.copyfile(self.log, self.log.with_name(self.log.name + ".1"))
                os.truncate(self.log, 0)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def sentences(log: pathlib.Path, last: int = 5) -> list[str]:
    """What FedLoom's own parts have said in a log, without Flower's lines."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 2**18))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return re.findall(r"^fedloom: (.*)$", text, re.MULTILINE)[-last:]
