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
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import jax

from fedloom.experiments.files import only_one
from fedloom.federation.folders import STORE, ClientFolder, client_folder
from fedloom.federation.own import OwnRows
from fedloom.federation.own_data import own_rows
from fedloom.federation.party import Party
from fedloom.federation.store import Store
from fedloom.federation.wire import Frame, encoded
from fedloom.places import cache_directory

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
    if frame.body:  # whoever has all of a frame may have closed the connection already
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
    """Answer requests, one after the other, until all have been told that it is over. Mostly there is one party."""
    most = max(party.most_bytes for party in parties.values())
    with listening(path) as opened:
        opened.settimeout(0.5)
        while goes_on() and not all(party.over for party in parties.values()):
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


def party_of(folder: ClientFolder, say: Callable[[str], None] = lambda words: None) -> Party:
    """The client of a folder, with its data."""
    terms, k = folder.terms, folder.k
    e = terms.experiment
    if folder.data is None:
        raise ValueError(
            f"data: what does client {folder.name!r} train on? Give --data FILE.py:NAME, a table such as patients.csv, "
            "or `task` to try the task's own data."
        )
    own = OwnRows(own_rows(folder.data, e, k, folder.name, e.seed), e)
    store = Store(folder.path / STORE, terms.uid)
    return Party(terms.agreement, e.algorithm, e.solver, k, own, store, folder.name, own.parameters, say)


def main() -> None:
    """`python -m fedloom.federation.worker FOLDER NAME DATA`: what `fedloom federate client` starts."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_directory() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

    def say(words: str) -> None:
        print(f"fedloom: {time.strftime('%Y-%m-%d %H:%M:%S')} {words}", flush=True)

    try:
        folder = client_folder(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3])
        with only_one(folder.path):
            party = party_of(folder, say)
            say(f"client {party.k} ({party.name}) has {party.own.size:,} training examples and waits for requests")
            serve(folder.socket, {folder.terms.uid: party}, say)
            say("the federation has ended")
    except (ValueError, ImportError, FileNotFoundError) as error:
        say(f"cannot start: {error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
