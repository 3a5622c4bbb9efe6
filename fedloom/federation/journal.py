"""The server's disk: its state after every exchange, whose replies are in it, and everything that a restart needs.

An exchange is one transaction. It is on the disk before anything else is sent, so that a server that dies goes on from
its last exchange: clients whose replies were counted learn it with the next request, the others are asked again.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedloom.federation.database import Database
from fedloom.federation.protocol import Job
from fedloom.federation.wire import Frame

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS client (
    k INTEGER PRIMARY KEY,
    counted INTEGER NOT NULL DEFAULT 0,
    tag TEXT NOT NULL DEFAULT '',
    facts TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS blob (name TEXT PRIMARY KEY, header TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS history (
    number INTEGER PRIMARY KEY, t INTEGER NOT NULL, e INTEGER NOT NULL, jobs TEXT NOT NULL, model TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS row (round INTEGER PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS event (at REAL NOT NULL, words TEXT NOT NULL);
"""
MOST_EVENTS = 1000  # sentences that are kept; older ones are in the server's log
FORMAT = 1


class Fenced(RuntimeError):
    """Another server has taken over this journal."""


class Counted(NamedTuple):
    """A reply that counts, and what its job was."""

    job: Job
    tag: str
    weight: float  # in the mean
    version: int  # server updates before the job began


class Standing(NamedTuple):
    """What the server knows of a client's replies."""

    counted: int = 0
    tag: str = ""


class Exchanged(NamedTuple):
    """An exchange that is over, as the history has it."""

    number: int
    t: int
    e: int
    counted: list[Counted]
    model: str  # the digest of the model after it


class Journal:
    """The journal of one federation. `begin` starts a new life; other uses only read."""

    def __init__(self, path: str | os.PathLike[str]):
        self.database = Database(path, TABLES)
        self.incarnation = 0  # of this server; 0: only reading

    @property
    def db(self) -> sqlite3.Connection:
        return self.database.db

    def meta(self, key: str) -> str | None:
        found = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def begin(self, uid: str, terms: str) -> int:
        """Begin a new life of the server: all before it are fenced off. Returns its number, from 1."""
        with self.database.transaction() as db:
            for key, value in {"uid": uid, "terms": terms, "format": str(FORMAT)}.items():
                db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))
                if (there := self.meta(key)) != value:
                    raise ValueError(
                        f"{self.database.path} is the journal of another federation, or of other terms: its {key} is "
                        f"{there:.80}, but {value:.80} was given. Use a new directory, or the old settings."
                    )
            life = int(self.meta("incarnation") or 0) + 1
            self._keep("incarnation", str(life))
        self.incarnation = life
        return life

    def _keep(self, key: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _check(self) -> None:
        """A server whose successor has begun must not write any more."""
        if int(self.meta("incarnation") or 0) != self.incarnation:
            raise Fenced(f"{self.database.path}: another server has taken over; this one ends.")

    def _put(self, name: str, frame: Frame) -> None:
        given = name, json.dumps(frame.header), frame.body
        self.db.execute("INSERT OR REPLACE INTO blob VALUES (?, ?, ?)", given)

    def get(self, name: str) -> Frame | None:
        found = self.db.execute("SELECT header, data FROM blob WHERE name = ?", (name,)).fetchone()
        return None if found is None else Frame(json.loads(found[0]), found[1])

    def put(self, name: str, frame: Frame) -> None:
        with self.database.transaction():
            self._check()
            self._put(name, frame)

    def standings(self) -> dict[int, Standing]:
        """Of every client that has been met."""
        return {k: Standing(n, tag) for k, n, tag in self.db.execute("SELECT k, counted, tag FROM client")}

    def facts(self) -> dict[int, dict[str, Any]]:
        """What clients have said of themselves, and what was seen of them."""
        return {k: json.loads(facts) for k, facts in self.db.execute("SELECT k, facts FROM client ORDER BY k")}

    def set_facts(self, facts: Mapping[int, Mapping[str, Any]]) -> None:
        with self.database.transaction() as db:
            self._check()
            for k, about in facts.items():
                db.execute("INSERT OR IGNORE INTO client (k) VALUES (?)", (k,))
                db.execute("UPDATE client SET facts = ? WHERE k = ?", (json.dumps(about), k))

    def commit(self, state: Frame, t: int, e: int, counted: Sequence[Counted], model: str) -> None:
        """The exchange is over: the new state, and those who are in it. All or nothing."""
        with self.database.transaction() as db:
            self._check()
            self._put("state", state)
            db.execute("DELETE FROM blob WHERE name = 'plan'")
            for one in counted:
                db.execute("INSERT OR IGNORE INTO client (k) VALUES (?)", (one.job.k,))
                db.execute("UPDATE client SET counted = counted + 1, tag = ? WHERE k = ?", (one.tag, one.job.k))
            jobs = json.dumps([[*one.job, one.tag, one.weight, one.version] for one in counted])
            db.execute("INSERT INTO history (t, e, jobs, model) VALUES (?, ?, ?, ?)", (t, e, jobs, model))

    def history(self) -> Iterable[Exchanged]:
        """All exchanges, in order."""
        for number, t, e, jobs, model in self.db.execute("SELECT number, t, e, jobs, model FROM history ORDER BY 1"):
            n = len(Job._fields)
            counted = [Counted(Job(*job[:n]), *job[n:]) for job in json.loads(jobs)]
            yield Exchanged(number, t, e, counted, model)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the log."""
        return [json.loads(content) for (content,) in self.db.execute("SELECT content FROM row ORDER BY round")]

    def add_row(self, row: Mapping[str, Any]) -> None:
        with self.database.transaction() as db:
            self._check()
            db.execute("INSERT OR REPLACE INTO row VALUES (?, ?)", (row["round"], json.dumps(row)))

    def note(self, at: float, words: str) -> None:
        """Something that whoever looks at the federation should know, in a sentence."""
        with self.database.transaction() as db:
            db.execute("INSERT INTO event VALUES (?, ?)", (at, words))
            db.execute(
                "DELETE FROM event WHERE rowid <= (SELECT MAX(rowid) FROM event) - ?",
                (MOST_EVENTS,),
            )

    def events(self, most: int = 20) -> list[tuple[float, str]]:
        """The last sentences, the newest last."""
        return self.db.execute("SELECT at, words FROM event ORDER BY rowid DESC LIMIT ?", (most,)).fetchall()[::-1]

    def close(self) -> None:
        self.database.close()
