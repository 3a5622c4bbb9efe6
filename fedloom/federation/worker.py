"""A client's lasting process: it owns the data, the compiled programs and the disk, and answers over a Unix socket.

Whatever brings the messages (for Flower: flower/shim.py, a process without JAX) opens a connection for each of them. A
frame is "!IQ" (the lengths of header and body), the header as JSON, and the body.
"""

import contextlib
import json
import os
import pathlib
import socket
import struct
from collections.abc import Callable, Iterator, Mapping

from fedloom.experiments.files import only_one
from fedloom.federation.party import Party
from fedloom.federation.wire import Frame, encoded

LENGTHS = struct.Struct("!IQ")
MOST_HEADER = 1 << 20
PATIENCE = 600.0  # seconds for a frame that has begun


class Cut(ConnectionError):
    """The other side has closed the connection in the middle of a frame."""


def received(connection: socket.socket, most: int) -> Frame:
    """A frame; raises ValueError, before it is read, if it is larger than can be."""
    header, body = LENGTHS.unpack(_exactly(connection, LENGTHS.size))
    if header > MOST_HEADER or body > most:
        raise ValueError(f"a header of {header:,} and a body of {body:,} bytes: at most {most:,} were agreed upon.")
    found = json.loads(_exactly(connection, header))
    if not isinstance(found, dict):
        raise ValueError("the header is not a JSON object.")
    return Frame(found, _exactly(connection, body))


def sent(connection: socket.socket, frame: Frame) -> None:
    header = encoded(frame.header)
    connection.sendall(LENGTHS.pack(len(header), len(frame.body)) + header)
    connection.sendall(frame.body)


def _exactly(connection: socket.socket, n: int) -> bytes:
    content = bytearray(n)
    view, place = memoryview(content), 0
    while place < n:
        if not (came := connection.recv_into(view[place:])):
            raise Cut
        place += came
    return bytes(content)


@contextlib.contextmanager
def listening(path: pathlib.Path) -> Iterator[socket.socket]:
    """A socket at `path`, for this user only. One of a worker that was killed is replaced."""
    if len(os.fsencode(path)) > 100:
        raise ValueError(f"{path} is too long for the name of a socket (100 bytes); use a shorter directory.")
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        before = os.umask(0o177)
        try:
            opened.bind(str(path))
        finally:
            os.umask(before)
        opened.listen(8)
        yield opened


def serve(
    path: pathlib.Path,
    parties: Mapping[str, Party],
    say: Callable[[str], None] = lambda words: None,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Answer requests, one after the other, until the process ends. `parties` are by federation: mostly one."""
    most = max(party.most_bytes for party in parties.values())
    with only_one(path.parent), listening(path) as opened:
        opened.settimeout(0.5)
        while goes_on():
            try:
                connection, _ = opened.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(PATIENCE)
                try:
                    frame = received(connection, most)
                    party = parties.get(str(frame.header.get("uid")))
                    if party is None:
                        why = "this client takes part in another federation."
                        sent(connection, Frame({"kind": "refused", "why": why}))
                    else:
                        sent(connection, party.answer(frame))
                        most = max(party.most_bytes for party in parties.values())
                except ValueError as error:
                    say(f"refused: {error}")
                    with contextlib.suppress(OSError):
                        sent(connection, Frame({"kind": "refused", "why": str(error)}))
                except OSError as error:  # whoever asked is gone, and will ask again
                    say(f"a connection has broken: {error!r}")
