"""Many exchanges of a small model over real processes: memory and databases stay as they are."""

import contextlib
import sqlite3
import time

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedloom[flower]'")

import fedloom as fl
from fedloom.federation.engine import JOURNAL
from fedloom.federation.flower.running import FLOWER
from fedloom.federation.folders import STORE
from fedloom.federation.rounds import Patience
from tests.federation_processes import Federation, resident

EXCHANGES = 500
FIRST = 100  # by then all is compiled, and caches have their size
MEMORY = 4 * 2**20  # bytes that a process may grow by from the first to the last look
DATABASE = 2**16  # the same of the databases of SuperLink and clients; SQLite's own log has up to 4 MB besides
HISTORY = 700  # bytes of the journal for an exchange of three clients: with it the run can be computed again


def content(path):
    """Bytes of a database, wherever they are on the disk."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as db:
        pages, free, size = (
            db.execute(f"PRAGMA {n}").fetchone()[0] for n in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def sizes(federation):
    """Resident memory of all processes, and bytes of all databases, by name."""
    found = {}
    for kind in ("superlink", "serverapp"):
        found[kind] = sum(resident(pid) for pid in federation.of("server", kind))
    for name in federation.names:
        for kind in ("node", "worker"):
            found[f"{kind} of {name}"] = sum(resident(pid) for pid in federation.of(name, kind))
        found[f"store of {name}"] = content(federation.client(name) / STORE)
    found["superlink.db"] = content(federation.server / FLOWER / "superlink.db")
    found["journal"] = content(federation.server / JOURNAL)
    for path in federation.folder.rglob("*-wal"):
        found[f"log {path.relative_to(federation.folder)}"] = path.stat().st_size
    return found


@pytest.mark.long
def test_memory_and_databases_are_flat():
    waits = Patience(deadline=20.0, minimum=1, patience=120.0)
    given = {"waits": waits, "evaluate_every": 10**6}
    with Federation("scaffold", fl.GD(0.1, 2), EXCHANGES, **given) as federation:
        federation.start()
        federation.until(lambda: federation.exchanges() >= FIRST, 240, f"{FIRST} exchanges")
        began, before = time.monotonic(), sizes(federation)
        federation.until(lambda: federation.exchanges() >= EXCHANGES - 2, 900, "the other exchanges")
        seconds, after = time.monotonic() - began, sizes(federation)
        federation.finish(60)
        federation.check()
    print(f"{seconds / (EXCHANGES - FIRST):.2f} s for an exchange", before, after)  # shown if it fails
    assert all(before.values()), before
    for name, size in after.items():
        grown = size - before.get(name, 0)
        if name.startswith("log"):
            assert size < 6 * 2**20, (name, size)
        elif name == "journal":
            assert grown < HISTORY * (EXCHANGES - FIRST) + 2**16, (name, grown)
        elif name.endswith(".db") or name.startswith("store"):
            assert grown < DATABASE, (name, before[name], size)
        else:
            assert grown < MEMORY, (name, before[name], size)
