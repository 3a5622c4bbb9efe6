"""A file of SQLite that survives a kill and a power cut: a transaction that has ended is on the disk."""

import contextlib
import os
import pathlib
import sqlite3
from collections.abc import Iterator

BUSY = 30.0  # seconds to wait for another process that has the file


class Database:
    """A file with tables, which are made if it is new."""

    def __init__(self, path: str | os.PathLike[str], tables: str):
        self.path = pathlib.Path(path)
        try:
            if not self.path.exists():  # what is inside is nobody else's business
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
            self.db = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY, check_same_thread=False)
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
            self.db.executescript(tables)
        except (OSError, sqlite3.Error) as error:
            raise ValueError(f"{self.path} cannot be used as a database: {error}.") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, and nobody else in between. What is not committed when the process dies never happened."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield self.db
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def close(self) -> None:
        self.db.close()
