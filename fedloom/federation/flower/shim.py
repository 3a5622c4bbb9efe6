"""A Flower message becomes a frame for the client's lasting worker, and the worker's frame becomes Flower's reply.

A frame is the lengths of header and body, the header as a JSON object, and the body as it is. This file is loaded by
itself, in a process that has Flower but neither JAX nor FedLoom, and is copied into the app that `flwr run` sends.
"""

import contextlib
import json
import pathlib
import socket
import struct
import time
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

LENGTHS = struct.Struct("!IQ")
HEADER_LIMIT = 64 * 1024
BODY_LIMIT = 2**30
PATIENCE = 60.0  # seconds for a worker to start, or to come back
PAUSE = 0.2
SMALL = 64 * 1024
SLACK = 1024  # NumPy's own header, in front of the body

Header = dict[str, Any]


class NotAFrame(ValueError):
    """What came is not of the form that is agreed; the sentence says why."""


def _text(header: Header) -> bytes:
    text = json.dumps(header).encode()
    if len(text) > HEADER_LIMIT:
        raise NotAFrame(f"the header has {len(text)} bytes, more than {HEADER_LIMIT}")
    return text


def _header(text: bytes | str) -> Header:
    if len(text) > HEADER_LIMIT:
        raise NotAFrame(f"the header has {len(text)} bytes, more than {HEADER_LIMIT}")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise NotAFrame("the header is not JSON") from None
    if not isinstance(header, dict):
        raise NotAFrame("the header is not a JSON object")
    return header


# Frames, on a socket.


def send_frame(connection: socket.socket, header: Header, body: bytes | memoryview) -> None:
    text = _text(header)
    connection.sendall(LENGTHS.pack(len(text), len(body)) + text)
    connection.sendall(body)


def receive_frame(connection: socket.socket, limit: int = BODY_LIMIT) -> tuple[Header, bytes]:
    """The next frame. What is too large is refused before any of it is read."""
    head, size = LENGTHS.unpack(_exactly(connection, LENGTHS.size))
    if head > HEADER_LIMIT:
        raise NotAFrame(f"the header has {head} bytes, more than {HEADER_LIMIT}")
    if size > limit:
        raise NotAFrame(f"the body has {size} bytes, more than the limit of {limit}")
    return _header(bytes(_exactly(connection, head))), bytes(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytearray:
    buffer = bytearray(size)
    view, got = memoryview(buffer), 0
    while got < size:
        n = connection.recv_into(view[got:], min(size - got, 2**20))
        if not n:
            raise ConnectionError("the connection ended in the middle of a frame")
        got += n
    return buffer


# Flower's records.


def to_content(header: Header, body: bytes) -> RecordDict:
    """A header and a body as Flower's records.

    Each record is an object with requests of its own, so that a small body travels in the header's. A large one is by
    itself: equal ones are then equal objects, which Flower uploads once for all clients.
    """
    own = {"json": _text(header).decode()}
    if len(body) <= SMALL:
        return RecordDict({"header": ConfigRecord({**own, "body": bytes(body)} if len(body) else own)})
    array = Array(np.frombuffer(body, np.uint8))
    return RecordDict({"header": ConfigRecord(own), "body": ArrayRecord({"0": array})})


def from_content(content: RecordDict, limit: int = BODY_LIMIT) -> tuple[Header, bytes]:
    """The header and the body. The size is looked at before the body is unpacked."""
    own = content.get("header")
    if not set(content) <= {"header", "body"} or not isinstance(own, ConfigRecord):
        raise NotAFrame("it is not a message of FedLoom")
    text, small = own.get("json"), own.get("body", b"")
    if not set(own) <= {"json", "body"} or not isinstance(text, str) or not isinstance(small, bytes):
        raise NotAFrame("its header is not a JSON text")
    header = _header(text)
    if "body" not in content:
        if len(small) > limit:
            raise NotAFrame(f"the body has {len(small)} bytes, more than the limit of {limit}")
        return header, small
    record = content["body"]
    if small or not isinstance(record, ArrayRecord) or set(record) != {"0"}:
        raise NotAFrame("its body is not one array")
    array = record["0"]
    if len(array.data) > limit + SLACK:
        raise NotAFrame(f"the body has {len(array.data)} bytes, more than the limit of {limit}")
    try:
        values = array.numpy()
    except Exception:  # whatever NumPy thinks of bytes that somebody else made
        raise NotAFrame("its body cannot be read") from None
    if values.dtype != np.uint8 or values.ndim != 1:
        raise NotAFrame(f"its body has type {values.dtype} and {values.ndim} dimensions, not a row of bytes")
    return header, values.tobytes()


# The way to the worker and back.


def ask(path: str, header: Header, body: bytes, limit: int, patience: float, seconds: float) -> tuple[Header, bytes]:
    """The worker's answer. A worker that is not there is waited for, and asked again if it breaks off.

    It may compute for as long as `seconds`; `patience` is for the time in which nobody listens. To ask again is safe,
    because the worker answers a repeated message with what it has answered before.
    """
    end, until = time.monotonic() + seconds, time.monotonic() + patience
    while True:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(path)
                until = time.monotonic() + patience
                connection.settimeout(max(0.1, end - time.monotonic()))
                send_frame(connection, header, body)
                return receive_frame(connection, limit)
        except TimeoutError:
            return refusal("the worker of this client did not answer within the time that the message had")
        except OSError:
            if time.monotonic() > min(until, end):
                return refusal("the worker of this client does not answer")
            time.sleep(PAUSE)


def refusal(why: str) -> tuple[Header, bytes]:
    return {"kind": "refused", "why": why}, b""


def answer(
    message: Message, path: str | pathlib.Path, limit: int = BODY_LIMIT, patience: float = PATIENCE
) -> tuple[Message, str]:
    """Flower's reply to a message of Flower, and a sentence if it was refused here, else ""."""
    why = ""
    try:
        header, body = from_content(message.content, limit)
        header, body = ask(str(path), header, body, limit, patience, max(1.0, float(message.metadata.ttl)))
    except NotAFrame as error:
        header, body = refusal(str(error))
    if header.get("kind") == "refused" and not body:
        with contextlib.suppress(Exception):
            why = str(header.get("why"))
    return Message(to_content(header, body), reply_to=message), why
