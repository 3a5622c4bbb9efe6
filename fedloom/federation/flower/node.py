"""The client's lasting Flower process: a SuperNode that hands every message to the worker and runs no app at all.

`python -P node.py --superlink HOST:PORT --socket PATH ...`, as a plain file, so that JAX is not loaded. Flower's own
SuperNode starts a process for each message and lets it run whatever code the server sent. Here a thread takes the
messages instead; the code that comes with them is neither unpacked nor run.

This is the one file, with `link.py`, that knows more of Flower than its public interface. What it replaces it looks for
first; where a version of Flower has another name, it keeps Flower's own pace.
"""

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import pathlib
import secrets
import socket
import sys
import threading
import time
from typing import Any

HERE = pathlib.Path(__file__).parent
BEAT = 10.0  # seconds between signs of life of a task; Flower gives it up after 60
NOT_ALLOWED, CANNOT_START = 3, 4  # exit codes: the server is not the one, or does not want this client; it may pass


def _beside(name: str) -> Any:
    """A module of this folder, loaded as a plain file."""
    spec = importlib.util.spec_from_file_location(f"fedloom_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


shim, probe, pacing, watching = map(_beside, ("shim", "probe", "pace", "watch"))


def say(sentence: str) -> None:
    print(f"fedloom: {sentence}", file=sys.stderr, flush=True)


class Status:
    """A small file that says how this process is, for those who look from outside."""

    def __init__(self, file: pathlib.Path | None) -> None:
        self.file = file
        self.before: dict[str, Any] = {}
        if file is not None:
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(file.read_text())
                self.before = found if isinstance(found, dict) else {}
        self.node = self.before.get("node")

    def write(self, state: str, why: str = "") -> None:
        if self.file is None:
            return
        found = {"state": state, "why": why, "node": self.node, "pid": os.getpid(), "at": time.time()}
        beside = self.file.with_name(self.file.name + ".new")
        beside.write_text(json.dumps(found))
        beside.replace(self.file)


class Tasks(threading.Thread):
    """Takes the tasks of the SuperNode in this process, one after the other, and has the worker answer them."""

    def __init__(self, address: str, secret: bytes, options: argparse.Namespace, pace: Any) -> None:
        super().__init__(name="fedloom-tasks", daemon=True)
        self.address, self.secret, self.options, self.pace = address, secret, options, pace
        self.work, self.pause = threading.Event(), pacing.SHORTEST
        self.turn = threading.Lock()  # a task exists before its parts have come; who takes it then waits, maybe in vain

    def run(self) -> None:
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.constant import TaskType

        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        acquiring = self._client(secret=self.secret)
        while not probe.listens(self.address):  # until the SuperNode of this process does
            time.sleep(pacing.SHORTEST)
        while True:
            try:
                with self.turn:
                    found = acquiring.AcquireTask(request)
                if found.HasField("task") and found.token:
                    self._do(found.token)
                    continue
            except Exception as error:  # whatever it is, the next message may be better
                say(f"A task could not be done: {type(error).__name__}: {error}")
                time.sleep(1.0)
            self.work.wait(self.pause)
            self.work.clear()

    def _client(self, token: str = "", secret: bytes = b"") -> Any:
        """A connection to this process's own SuperNode. It never tries again by itself: Flower's ways to do so end
        the whole process when a task has run out."""
        from flwr.supercore.interceptors import (
            RuntimeTokenHttpInterceptor,
            RuntimeVersionHttpInterceptor,
            SuperExecAuthHttpInterceptor,
        )
        from flwr.supercore.runtime import RuntimeHttpClient

        interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")]
        if token:
            interceptors.append(RuntimeTokenHttpInterceptor(token))
        if secret:
            methods = frozenset({"/flwr.proto.Runtime/AcquireTask"})
            interceptors.append(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=methods))
        return RuntimeHttpClient.from_server_address(self.address, True, None, interceptors)

    def _do(self, token: str) -> None:
        from flwr.common.constant import SubStatus
        from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

        client = self._client(token)
        done = threading.Event()
        alive = threading.Thread(target=self._stay_alive, args=(token, done), daemon=True)
        alive.start()
        try:
            message, context, run, _ = pull_task_input(client)  # the last is the server's code, which nobody wants
            reply, why = shim.answer(message, self.options.socket, self.options.limit, self.options.patience)
            if why:
                say(f"A message of run {run.run_id} was refused: {why}.")
            push_message(client, reply, context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
            self.pace.last = time.monotonic()
            self.pace.ready.set()
        finally:
            done.set()
            alive.join()
            client.close()

    def _stay_alive(self, token: str, done: threading.Event) -> None:
        """Signs of life, however long the worker computes."""
        from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

        client = self._client(token)
        try:
            while not done.wait(BEAT):
                with contextlib.suppress(Exception):
                    client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        finally:
            client.close()


def _sentences(connection: Any, status: Status, options: argparse.Namespace) -> None:
    """Say in our words why the server does not let this client in."""
    leave = getattr(connection, "flwr_exit", None)
    if leave is None:
        return

    def explained(code: Any, message: Any = None, *args: Any, **more: Any) -> Any:
        text = str(message)
        if "2004" in text and status.node is not None:
            why = "The server still takes an earlier process of this client for alive; it forgets it within a minute."
        elif "2004" in text:
            why = "The server does not know the key of this client. Have its .pub file registered on the server."
        elif "2001" in text:
            why = "The server admits only clients with a key. Give this client its key file."
        else:
            why = "The connection to the server failed: " + " ".join(text.split())
        status.write("refused", why)
        say(why)
        return leave(code, message, *args, **more)

    connection.flwr_exit = explained


def _end_earlier_life(options: argparse.Namespace, node: int) -> None:
    """Tell the server that the earlier process of this client is gone, so that it need not wait a minute to notice."""
    with contextlib.suppress(Exception):
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        key: Any = load_ssh_private_key(pathlib.Path(options.key).read_bytes(), None)
        signed = NodeAuthHttpInterceptor(key, key.public_key())
        version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
        certificates = pathlib.Path(options.ca).read_bytes()
        with FleetHttpClient.from_server_address(
            options.superlink, False, certificates, interceptors=[version, signed]
        ) as client:
            client.DeactivateNode(DeactivateNodeRequest(node_id=node))


def _wait_for_server(options: argparse.Namespace, status: Status) -> None:
    """Until the server answers, and is the right one; else an end with a sentence."""
    said = ""
    while True:
        why, passes = probe.problem(options.superlink, options.ca)
        if not why:
            return
        if why != said:
            say(why)
            said = why
        status.write("waiting" if passes else "refused", why)
        if not passes:
            sys.exit(NOT_ALLOWED)
        time.sleep(1.0)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _once(secret: bytes) -> str:
    """A path from which the secret can be read once, by this process only."""
    reading, writing = os.pipe()
    os.write(writing, secret)
    os.close(writing)
    return f"/dev/fd/{reading}"


def _lock(file: pathlib.Path | None) -> Any:
    """One process for one client: two with the same key would send each other away."""
    if file is None:
        return None
    held = file.with_name(file.name + ".lock").open("w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say(f"Another process of this client is running: it holds {held.name}.")
        sys.exit(CANNOT_START)
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--superlink", required=True, help="HOST:PORT of the server")
    parser.add_argument("--socket", required=True, help="the Unix socket on which the worker listens")
    parser.add_argument("--ca", help="the certificate authority of the federation")
    parser.add_argument("--key", help="this client's private key")
    parser.add_argument("--insecure", action="store_true", help="without TLS and keys")
    parser.add_argument("--limit", type=int, default=shim.BODY_LIMIT, help="bytes that a message may have")
    parser.add_argument("--patience", type=float, default=shim.PATIENCE, help="seconds to wait for the worker")
    parser.add_argument("--status", type=pathlib.Path, help="a file in which this process says how it is")
    options = parser.parse_args()
    if options.insecure == (options.ca is not None) or options.insecure == (options.key is not None):
        parser.error("give --ca and --key, or say --insecure")
    lock, status = _lock(options.status), Status(options.status)
    _wait_for_server(options, status)
    status.write("starting")
    if options.key is None:
        status.node = None
    elif status.node is not None:
        _end_earlier_life(options, status.node)

    import flwr.supernode.fleet_http_connection as connection
    import flwr.supernode.start_client_internal as internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    port, pace, secret = _free_port(), pacing.Pace(), secrets.token_bytes(32)
    tasks = Tasks(f"127.0.0.1:{port}", secret, options, pace)
    watching.watched(internal, tasks, pace, status, options.limit, pacing.hasten, say)
    _sentences(connection, status, options)
    safety = ["--insecure"] if options.insecure else ["--root-certificates", options.ca]
    if options.key is not None:
        safety += ["--auth-supernode-private-key", options.key]
    sys.argv = ["flower-supernode", *safety, "--superlink", options.superlink, "--isolation", "process"]
    sys.argv += ["--host", "127.0.0.1", "--port", str(port), "--superexec-auth-secret-file", _once(secret)]
    tasks.start()
    flower_supernode()
    del lock


if __name__ == "__main__":
    main()
