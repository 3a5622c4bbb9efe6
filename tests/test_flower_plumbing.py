"""Flower as a transport, by its real processes on loopback: what arrives, who is let in, and what is never run."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedloom[flower]'")

from fedloom.federation import keys
from fedloom.federation.flower import link, probe, processes, shim
from tests.flower_processes import ClientKeys, Echo, Impostor, Loopback, kill, until

SMALL_LIMIT = 2**20


@pytest.fixture(scope="module")
def loopback():
    """A SuperLink with TLS and keys, two clients, and a ServerApp that does what it is told."""
    made = Loopback()
    try:
        for name, limit in (("a", 64 * 2**20), ("b", SMALL_LIMIT)):
            key, node = made.client_key(f"{name}.key")
            found = made.node(name, ClientKeys(made.keys.ca, key), limit=limit, pauses=(0.5, 2.0))
            found.id, found.key = node, key
            setattr(made, name, found)
        made.puppet = made.puppet()
        made.puppet.nodes(2)
        yield made
        made.puppet.close()
    finally:
        made.close()


def state(node):
    try:
        return json.loads(node.status.read_text())
    except (OSError, ValueError):
        return {"state": "", "why": ""}


# Messages.


def test_messages_come_back_bit_by_bit_and_the_code_of_the_server_is_never_run(loopback):
    large = os.urandom(20 * 2**20)
    a, b = loopback.a.id, loopback.b.id
    first, second, empty = loopback.puppet.ask([(a, {"t": 1}, large), (b, {"t": 2}, b"0123456789"), (a, {}, b"")])
    assert first[0] == a
    assert first[2:] == ({"t": 1, "kind": "echo"}, large, "")
    assert second[2:] == ({"t": 2, "kind": "echo"}, b"0123456789", "")
    assert empty[2:] == ({"kind": "echo"}, b"", "")
    asked = loopback.a.echo.asked
    [answer] = loopback.puppet.wait(loopback.puppet.call("foreign", a))
    assert answer[2] == {"kind": "refused", "why": "it is not a message of FedLoom"}
    assert loopback.a.echo.asked == asked
    assert not loopback.trace.exists()  # the app's ClientApp would have made it, even when imported
    assert "it is not a message of FedLoom" in processes.sentences(loopback.a.log)[-1]


def test_a_message_that_is_too_large_is_refused_by_the_client(loopback):
    [answer] = loopback.puppet.ask([(loopback.b.id, {}, bytes(SMALL_LIMIT + 1))])
    assert answer[2]["kind"] == "refused"
    assert "more than the limit of 1048576" in answer[2]["why"]
    assert loopback.puppet.ask([(loopback.b.id, {}, bytes(SMALL_LIMIT))])[0][3] == bytes(SMALL_LIMIT)


def test_a_worker_that_breaks_off_is_asked_again_and_one_that_is_gone_is_waited_for_within_bounds(loopback):
    node = loopback.a
    before, node.echo.break_off = node.echo.asked, 2
    assert loopback.puppet.ask([(node.id, {"x": 1}, b"y")])[0][3] == b"y"
    assert node.echo.asked == before + 3
    node.echo.close()
    try:
        began = time.monotonic()
        [answer] = loopback.puppet.ask([(node.id, {}, b"")])
        assert answer[2] == {"kind": "refused", "why": "the worker of this client does not answer"}
        assert 4 < time.monotonic() - began < 20
    finally:
        node.echo.__init__(node.echo.path)
    assert loopback.puppet.ask([(node.id, {}, b"again")])[0][3] == b"again"


@pytest.mark.long
def test_a_worker_may_compute_for_longer_than_flower_waits_for_a_silent_task(loopback):
    loopback.a.echo.delay = 75.0
    try:
        assert loopback.puppet.ask([(loopback.a.id, {}, b"slow")], 200.0, 150.0)[0][3] == b"slow"
    finally:
        loopback.a.echo.delay = 0.0


# Processes that die.


def test_a_client_with_a_key_that_was_killed_is_back_soon_with_the_same_node(loopback):
    node, old = loopback.b, loopback.b.pid
    kill(old)
    until(
        lambda: node.pid not in (None, old) and state(node)["state"] == "connected" and state(node)["pid"] == node.pid,
        40,
    )
    assert state(node)["node"] == node.id
    assert loopback.puppet.ask([(node.id, {}, b"back")])[0][3] == b"back"


def test_a_message_to_a_client_that_is_away_is_answered_when_it_is_back(loopback):
    """Flower would delete the message if it were asked for its reply meanwhile."""
    loopback.b.stop()
    loopback.b.echo.close()
    until(lambda: loopback.puppet.call("nodes") == {loopback.a.id}, 20)
    ids = loopback.puppet.call("push_all", [(loopback.b.id, {}, b"later")], 60.0)
    for _ in range(3):
        assert loopback.puppet.call("pull") == []
    node, old = loopback.node("b", ClientKeys(loopback.keys.ca, loopback.b.key), limit=SMALL_LIMIT), loopback.b
    node.id, node.key, loopback.b = old.id, old.key, node
    assert loopback.puppet.wait(ids)[0][3] == b"later"


def test_children_end_with_a_parent_that_is_killed(tmp_path):
    code = (
        "import os, pathlib, sys, time\n"
        "from fedloom.federation.flower.processes import Supervised\n"
        "s = Supervised('x', ['sleep', '60'], dict(os.environ), pathlib.Path(sys.argv[1])).start()\n"
        "s.wait_until_alive(); time.sleep(0.5); print(s.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
    until(lambda: not alive(child), 5)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_that_ends_is_started_again_and_its_log_stays_small(tmp_path):
    code = "import time; print('x' * 5000, flush=True); time.sleep(0.3)"
    command, log = [sys.executable, "-S", "-c", code], tmp_path / "log"
    with processes.Supervised("x", command, os.environ, log, pauses=(0.01, 0.05), log_limit=12_000) as found:
        until(lambda: found.starts >= 5, 20)
        assert found.last_exit == 0
    assert log.stat().st_size < 25_000
    assert (tmp_path / "log.1").exists()


# Who is let in.


def test_clients_refuse_a_server_that_is_not_theirs_each_with_a_sentence(loopback, tmp_path, monkeypatch):
    """Wrong authority, wrong host name, expired, no TLS at either end, and a key that nobody registered."""
    ca = loopback.keys.ca
    monkeypatch.setattr(keys, "LOCAL", ())
    other, _ = keys.make_authority(tmp_path / "other")
    certificates = {}
    for name, hosts, days in (("elsewhere", ["elsewhere.example"], 10), ("expired", ["127.0.0.1"], -1)):
        (tmp_path / name).mkdir()
        for file in ("ca.crt", "ca.key"):
            (tmp_path / name / file).write_bytes((loopback.directory / file).read_bytes())
        certificates[name] = keys.make_server_certificate(tmp_path / name, hosts, days)
    unknown = tmp_path / "unknown"
    keys.make_client_key(unknown)
    key, here = loopback.a.key, loopback.address
    elsewhere, expired, plain = Impostor(certificates["elsewhere"]), Impostor(certificates["expired"]), Impostor()
    cases = {
        "other-ca": (ClientKeys(other, key), here, "was not signed by"),
        "elsewhere": (ClientKeys(ca, key), elsewhere.address, "is for another host than '127.0.0.1'"),
        "expired": (ClientKeys(ca, key), expired.address, "has expired. Make"),
        "plain-server": (ClientKeys(ca, key), plain.address, "does not speak TLS"),
        "plain-client": (None, here, "speaks TLS, but this client has no certificate authority"),
        "unknown-key": (ClientKeys(ca, unknown), here, "does not know the key of this client"),
    }
    try:
        nodes = {name: loopback.node(name, *case[:2], pauses=(30.0, 30.0)) for name, case in cases.items()}
        for name, (_, _, sentence) in cases.items():
            until(lambda node=nodes[name]: state(node)["state"] == "refused", 60)
            assert sentence in state(nodes[name])["why"]
            assert sentence in processes.sentences(nodes[name].log)[-1]
    finally:
        for node in nodes.values():
            node.stop()
        for impostor in (elsewhere, expired, plain):
            impostor.close()
    assert len(loopback.puppet.call("nodes")) == 2


def test_the_key_of_a_client_has_one_node_however_often_it_is_registered(loopback):
    public = loopback.directory / "a.key.pub"
    assert processes.registered(loopback.database)[keys.public_key(public)] == loopback.a.id
    assert processes.register(loopback.home, public, loopback.database) == loopback.a.id


@pytest.mark.parametrize(
    ("peer", "path", "size", "status"),
    [
        ("10.0.0.7", "/v1/control/start-run", 10, 404),
        ("10.0.0.7", "/v1/runtime/acquire-task", 10, 404),
        ("10.0.0.7", "/docs", 10, 404),
        ("10.0.0.7", "/v1/fleet/pull-messages", 10, 200),
        ("10.0.0.7", "/v1/fleet/push-object", 10**9, 413),
        ("10.0.0.7", "/v1/fleet/push-object", None, 411),
        ("127.0.0.1", "/v1/control/start-run", 10, 200),
        ("10.0.0.1", "/v1/control/start-run", 10, 200),  # the server's own address
        ("::ffff:10.0.0.7", "/v1/control/start-run", 10, 404),
    ],
)
def test_outsiders_reach_only_what_clients_need(peer, path, size, status):
    assert asyncio.run(answered(link.Door(accepting, 10**6), peer, path, size)) == status


def test_the_real_server_has_this_door(loopback):
    context = ssl.create_default_context(cafile=loopback.keys.ca)
    for path, size, status in (("/v1/fleet/push-object", 10**9, 413), ("/v1/fleet/push-object", 10, 415)):
        with (
            socket.create_connection(("127.0.0.1", loopback.port), 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
            connection.sendall(b"0123456789")
            assert connection.recv(12).decode() == f"HTTP/1.1 {status}"


def test_the_parts_of_one_reply_have_a_bound_together():
    door = link.Door(accepting, 2**20)

    async def push():
        return [await answered(door, "10.0.0.7", "/v1/fleet/push-object", 2**22) for _ in range(6)]

    assert asyncio.run(push()) == [200, 200, 200, 200, 413, 413]
    assert asyncio.run(answered(door, "10.0.0.7", "/v1/fleet/push-messages", 10)) == 200
    assert asyncio.run(answered(door, "10.0.0.7", "/v1/fleet/push-object", 2**22)) == 200


async def accepting(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def answered(door, peer, path, size):
    seen = []

    async def send(event):
        seen.append(event)

    async def receive():
        return {"type": "http.request", "body": b""}

    headers = [(b"flwr-public-key", b"k")] + [(b"content-length", str(size).encode())] * (size is not None)
    scope = {"type": "http", "path": path, "method": "POST", "headers": headers}
    await door({**scope, "client": (peer, 5000), "server": ("10.0.0.1", 8000)}, receive, send)
    return seen[0]["status"]


# Frames.


def test_frames_are_refused_before_their_body_is_read():
    one, other = socket.socketpair()
    with one, other:
        one.sendall(shim.LENGTHS.pack(2, 2**40) + b"{}")
        with pytest.raises(shim.NotAFrame, match="more than the limit of 100"):
            shim.receive_frame(other, 100)
    one, other = socket.socketpair()
    with one, other:
        one.sendall(shim.LENGTHS.pack(2**31, 0))
        with pytest.raises(shim.NotAFrame, match="the header has 2147483648 bytes"):
            shim.receive_frame(other, 100)
    with pytest.raises(shim.NotAFrame, match="the header has"):
        shim.to_content({"x": "y" * 2**16}, b"")


@pytest.mark.parametrize("text", ["", "[]", "3", '{"a": ', "[" * 60_000])
def test_headers_that_are_no_objects_are_refused(text):
    from flwr.app import ConfigRecord, RecordDict

    with pytest.raises(shim.NotAFrame, match="the header is not"):
        shim.from_content(RecordDict({"header": ConfigRecord({"json": text})}))


def test_bodies_that_are_no_bytes_are_refused():
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    header = ConfigRecord({"json": "{}"})
    for array in (
        Array(np.ones(3)),
        Array(np.ones((2, 2), np.uint8)),
        Array("uint8", (3,), "numpy.ndarray", b"pickle"),
    ):
        with pytest.raises(shim.NotAFrame, match="its body"):
            shim.from_content(RecordDict({"header": header, "body": ArrayRecord({"0": array})}))
    large = RecordDict({"header": header, "body": ArrayRecord({"0": Array(np.zeros(5000, np.uint8))})})
    with pytest.raises(shim.NotAFrame, match="more than the limit of 10"):
        shim.from_content(large, 10)


def test_a_worker_that_takes_longer_than_the_message_lives_is_left(tmp_path):
    echo = Echo(tmp_path / "s")
    echo.delay = 1.0
    try:
        header, _ = shim.ask(str(echo.path), {}, b"", 100, 5.0, 0.3)
    finally:
        echo.close()
    assert "within the time that the message had" in header["why"]


# Keys.


def test_private_files_are_private_and_nothing_is_overwritten(tmp_path):
    made = [*keys.make_authority(tmp_path), *keys.make_server_certificate(tmp_path, ["h.example"])]
    public = keys.make_client_key(tmp_path / "client")
    for file in (made[1], made[3], tmp_path / "client"):
        assert file.stat().st_mode & 0o777 == 0o600
    assert keys.public_key(public) == keys.public_key(tmp_path / "client")
    for again in (
        lambda: keys.make_authority(tmp_path),
        lambda: keys.make_server_certificate(tmp_path, ["h.example"]),
        lambda: keys.make_client_key(tmp_path / "client"),
    ):
        with pytest.raises(FileExistsError, match="exists and is not overwritten"):
            again()
    with pytest.raises(ValueError, match="is not a client's key"):
        keys.public_key(made[0])


def test_certificates_are_checked_with_a_sentence(tmp_path):
    ca, _ = keys.make_authority(tmp_path)
    certificate, key = keys.make_server_certificate(tmp_path, ["fl.example", "10.0.0.1"])
    other, _ = keys.make_authority(tmp_path / "other")
    assert keys.check_certificate(certificate, ca, "fl.example") == ""
    assert keys.check_certificate(certificate, ca, "10.0.0.1") == ""
    assert keys.check_certificate(certificate, ca, "127.0.0.1") == ""
    assert "not for 'x.example'" in keys.check_certificate(certificate, ca, "x.example")
    assert "was not signed by" in keys.check_certificate(certificate, other, "fl.example")
    assert "is not a certificate" in keys.check_certificate(key, ca, "fl.example")
    assert "cannot be read" in keys.check_certificate(tmp_path / "none", ca, "fl.example")
    certificate.unlink()
    key.unlink()
    keys.make_server_certificate(tmp_path, ["fl.example"], days=-1)
    assert "has expired" in keys.check_certificate(certificate, ca, "fl.example")


def test_nobody_at_an_address_is_no_refusal(tmp_path):
    ca, _ = keys.make_authority(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    why, passes = probe.problem(f"127.0.0.1:{port}", ca)
    assert why.startswith("Nobody answers at")
    assert passes
    with pytest.raises(ValueError, match="HOST:PORT"):
        probe.problem("nowhere", ca)
