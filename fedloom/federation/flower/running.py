"""The processes of a server and of a client, kept alive, until the federation has ended."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from fedloom.federation.flower.processes import (
    ClientKeys,
    FlowerError,
    ServerKeys,
    Supervised,
    environment,
    node_command,
    register,
    start_run,
    stop_run,
    superlink_command,
    write_app,
    write_connection,
)
from fedloom.federation.flower.shim import BODY_LIMIT
from fedloom.federation.folders import KEY, KEYS, ClientFolder
from fedloom.federation.keys import check_certificate
from fedloom.federation.status import read_status
from fedloom.federation.terms import Terms, host_and_port

BOUND = "nodes.json"  # which client each of Flower's nodes may speak for
FLOWER, HOME = "flower", ".flwr"  # the folder of what Flower writes, and in it Flower's own, which has a config.toml
BEGINS = 120.0  # seconds for a ServerApp to begin

Say = Callable[[str], None]


def listens_at(host: str) -> str:
    """Where the server listens: on this machine only, if clients look for it there."""
    return "127.0.0.1" if host in ("localhost", "127.0.0.1", "::1") else "0.0.0.0"


def serve(folder: pathlib.Path, terms: Terms, say: Say, sinks: tuple[str, ...] = ()) -> None:
    """Run the server of a federation to its last round: the SuperLink, and in it one ServerApp after the other."""
    host, port = host_and_port(terms.address)
    logs = folder.resolve() / FLOWER
    home = logs / HOME
    home.mkdir(exist_ok=True, mode=0o700, parents=True)
    server_keys = None
    if terms.secure:
        server_keys = ServerKeys(*(folder.resolve() / name for name in ("ca.crt", "server.crt", "server.key")))
        for file in (*server_keys, *(folder.resolve() / KEYS / f"{name}.pub" for name in terms.clients)):
            if not file.is_file():
                raise ValueError(f"{file} is missing; `fedloom federate init` makes it, unless --insecure is given.")
        if wrong := check_certificate(server_keys.certificate, server_keys.ca, host):
            raise ValueError(wrong)
    else:
        say("NO TLS AND NO KEYS: whoever reaches this port can read models and take part. Use it for trials only.")
    write_connection(home, port, None if server_keys is None else server_keys.ca)
    database = logs / "superlink.db"
    command = superlink_command(database, listens_at(host), port, server_keys, BODY_LIMIT)
    with Supervised("superlink", command, environment(home), logs / "superlink.log") as link:
        _wait_for_port(port, link)
        say(f"listening at {terms.address}; what Flower says is in {logs / 'superlink.log'}")
        if terms.secure:
            bound = {}
            for k, name in enumerate(terms.clients):
                bound[register(home, folder / KEYS / f"{name}.pub", database)] = k
            (folder / BOUND).write_text(json.dumps(bound))
        app = write_app(logs / "app")
        while not _run_once(folder, home, app, sinks, say):
            say("the ServerApp has died; the next one goes on where it was")


def _wait_for_port(port: int, link: Supervised, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise ValueError(
        f"address: nothing listens at port {port} after {seconds:g} seconds; is it in use? {link.log} says more."
    )


def _run_once(folder: pathlib.Path, home: pathlib.Path, app: pathlib.Path, sinks: tuple[str, ...], say: Say) -> bool:
    """Start a ServerApp and wait for its end. Returns whether the federation has ended; False: it has died."""
    began = time.time()
    try:
        run = start_run(home, app, {"directory": str(folder.resolve()), "sinks": ",".join(sinks)})
    except (FlowerError, OSError, subprocess.SubprocessError) as error:
        say(f"Flower does not start the ServerApp, which is tried again: {error}")
        time.sleep(5.0)
        return False
    told: float | None = None
    while True:
        time.sleep(0.3)
        status = read_status(folder)
        if status is None or status["at"] < began:
            if time.time() - began > BEGINS:
                _stop(home, run)
                return False
            continue
        row = status.get("last row")
        if row is not None and row["round"] != told:
            told = row["round"]
            metrics = ", ".join(f"{name} {row[name]:.4g}" for name in list(row)[1:4] if isinstance(row[name], float))
            say(f"round {told} of {status['rounds']}: {metrics or row.get('diverged')}")
        if status.get("failed"):
            raise ValueError(str(status["failed"]))
        if status.get("ended"):
            return True
        if not _alive(status["pid"]):
            _stop(home, run)
            return False


def _stop(home: pathlib.Path, run: int) -> None:
    """Tell Flower that a run is over, so that its messages are forgotten."""
    with contextlib.suppress(FlowerError, OSError, subprocess.SubprocessError):
        stop_run(home, run)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def take_part(folder: ClientFolder, say: Say) -> int:
    """Run a client until the federation has ended: its worker, and its node of Flower's. Returns an exit code."""
    terms, home = folder.terms, folder.path.resolve() / FLOWER
    (home / HOME).mkdir(exist_ok=True, mode=0o700, parents=True)
    assert folder.data is not None
    keys = None
    if terms.secure:
        keys = ClientKeys(folder.path.resolve() / "ca.crt", folder.path.resolve() / KEY)
    else:
        say("NO TLS AND NO KEYS: whoever is on the way can read and change what is sent. Use it for trials only.")
    status = home / "node.json"
    with contextlib.suppress(OSError, ValueError):  # the number of its node, by which the server lets it in again soon
        status.write_text(json.dumps({**json.loads(status.read_text()), "state": "starting", "why": ""}))
    worker = [sys.executable, "-m", "fedloom.federation.worker", str(folder.path), folder.name, folder.data]
    node = node_command(terms.address, folder.socket, keys, status, BODY_LIMIT)
    log = home / "worker.log"
    started = log.stat().st_size if log.exists() else 0
    with (
        Supervised("worker", worker, dict(os.environ), log, ends=True) as working,
        Supervised("node", node, environment(home / HOME), home / "node.log"),
    ):
        said, heard = "", started
        while True:
            time.sleep(0.3)
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(status.read_text())
                words = f"{found['state']}{': ' + found['why'] if found.get('why') else ''}"
                if words != said:
                    said = words
                    say(words)
            heard = _follow(log, heard, say)
            if working.last_exit == 2:
                return 2
            if working.last_exit == 0 and not working.alive:
                return 0


def _follow(log: pathlib.Path, since: int, say: Say) -> int:
    """Say what the worker has written since."""
    try:
        size = log.stat().st_size
        if size <= since:
            return min(size, since)
        with log.open("rb") as file:
            file.seek(since)
            content = file.read()
    except OSError:
        return since
    whole = content[: content.rfind(b"\n") + 1]
    for line in whole.decode(errors="replace").splitlines():
        if line.startswith("fedloom: "):
            say(line.split(" ", 3)[-1])  # without the date, which only the file needs
    return since + len(whole)
