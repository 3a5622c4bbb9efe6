"""A client's disk: what it remembers, how many of its replies were counted, and the one that may be counted next.

A new memory is `pending` until the server says that the reply it belongs to was counted; only then does it replace the
old one. So a memory changes if and only if the reply was counted, whoever dies in between.
"""

import json
import os
import secrets
import sqlite3
from typing import Any, NamedTuple

from fedloom.federation.database import Database
from fedloom.federation.wire import Frame

TABLES = """
CREATE TABLE IF NOT EXISTS client (
    uid TEXT PRIMARY KEY,
    disk TEXT NOT NULL,
    incarnation INTEGER NOT NULL DEFAULT 0,
    wave INTEGER NOT NULL DEFAULT -1,
    e INTEGER NOT NULL DEFAULT -1,
    version INTEGER NOT NULL DEFAULT 0,
    tag TEXT NOT NULL DEFAULT '',
    memory INTEGER,
    pending TEXT,
    pending_memory INTEGER,
    reply INTEGER,
    setup INTEGER
);
CREATE TABLE IF NOT EXISTS blob (id INTEGER PRIMARY KEY, header TEXT NOT NULL, data BLOB NOT NULL);
"""


class Held(NamedTuple):
    """What a client holds in one federation."""

    incarnation: int  # the newest life of the server that has spoken to it
    version: int  # its replies that were counted
    tag: str  # of the last of them
    pending: str | None  # the tag of a reply that may have been counted


class Store:
    """The disk of one client in one federation. Blobs have a table of their own, so that they are not rewritten."""

    def __init__(self, path: str | os.PathLike[str], uid: str):
        self.database, self.uid = Database(path, TABLES), uid
        with self.database.transaction() as db:
            db.execute("INSERT OR IGNORE INTO client (uid, disk) VALUES (?, ?)", (uid, secrets.token_hex(8)))

    @property
    def db(self) -> sqlite3.Connection:
        return self.database.db

    def _row(self, *columns: str) -> Any:
        return self.db.execute(f"SELECT {', '.join(columns)} FROM client WHERE uid = ?", (self.uid,)).fetchone()

    def _set(self, **values: Any) -> None:
        names = ", ".join(f"{name} = ?" for name in values)
        self.db.execute(f"UPDATE client SET {names} WHERE uid = ?", (*values.values(), self.uid))

    def _blob(self, column: str) -> Frame | None:
        (number,) = self._row(column)
        if number is None:
            return None
        header, data = self.db.execute("SELECT header, data FROM blob WHERE id = ?", (number,)).fetchone()
        return Frame(json.loads(header), data)

    def _put(self, column: str, frame: Frame | None) -> None:
        """Replace a blob, or remove it."""
        self.db.execute("DELETE FROM blob WHERE id = (SELECT " + column + " FROM client WHERE uid = ?)", (self.uid,))
        number = None
        if frame is not None:
            given = json.dumps(frame.header), frame.body
            number = self.db.execute("INSERT INTO blob (header, data) VALUES (?, ?)", given).lastrowid
        self._set(**{column: number})

    @property
    def disk(self) -> str:
        """Tells this disk from all others: a client that comes back by another way is known by it."""
        return str(self._row("disk")[0])

    def held(self) -> Held:
        return Held(*self._row("incarnation", "version", "tag", "pending"))

    def memory(self) -> bytes | None:
        """The memory after all counted replies; None before the first."""
        found = self._blob("memory")
        return None if found is None else found.body

    def reply(self) -> Frame:
        """The pending reply."""
        found = self._blob("reply")
        assert found is not None
        return found

    def last(self) -> tuple[int, int]:
        """Wave and exchange of the last request of this life of the server."""
        wave, e = self._row("wave", "e")
        return wave, e

    def hear(self, incarnation: int, last: tuple[int, int]) -> None:
        """A server of this life has spoken; its last request."""
        self._set(incarnation=incarnation, wave=last[0], e=last[1])

    def promote(self) -> None:
        """The pending reply was counted: its memory is the client's now."""
        self._put("memory", None)
        self._put("reply", None)
        self.db.execute(
            "UPDATE client SET version = version + 1, tag = pending, memory = pending_memory, pending = NULL,"
            " pending_memory = NULL WHERE uid = ?",
            (self.uid,),
        )

    def propose(self, tag: str, memory: bytes, reply: Frame) -> None:
        """Keep a reply, and the memory that becomes the client's if it is counted, in the place of an earlier one."""
        self._put("pending_memory", Frame({}, memory))
        self._put("reply", reply)
        self._set(pending=tag)

    def setup(self) -> Frame | None:
        """What the server has told of the whole federation."""
        return self._blob("setup")

    def set_up(self, frame: Frame) -> None:
        self._put("setup", frame)

    def close(self) -> None:
        self.database.close()
