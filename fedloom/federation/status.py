"""What people see of a federation: who is there, the round, the loss, what is left out and why; and a run again."""

import json
import pathlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedloom.federation.engine import JOURNAL
from fedloom.federation.folders import CLIENTS, STORE, client_folder
from fedloom.federation.journal import Journal
from fedloom.federation.own import OwnRows
from fedloom.federation.own_data import own_rows
from fedloom.federation.replay import Replayed, replay
from fedloom.federation.showing import STATUS
from fedloom.federation.store import Store
from fedloom.federation.terms import read_terms

QUIET = 10.0  # seconds after which a server that has written nothing is probably not there

Rows = list[tuple[str, ...]]


def read_status(folder: pathlib.Path) -> dict[str, Any] | None:
    """What the server last said of itself."""
    try:
        found = json.loads((folder / STATUS).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "at" in found else None


class ServerStatus(NamedTuple):
    """A federation, as its server's folder shows it."""

    state: str  # in a sentence
    status: dict[str, Any]
    events: list[tuple[float, str]]

    def to_json(self) -> str:
        return json.dumps({"state": self.state, **self.status, "events": self.events})


def server_status(folder: pathlib.Path) -> ServerStatus:
    """The status of a server, from its folder alone: it need not be running."""
    read_terms(folder)
    if not (folder / JOURNAL).exists():
        return ServerStatus("The server has not been started yet.", {}, [])
    journal = Journal(folder / JOURNAL)
    events = journal.events()
    journal.close()
    status = read_status(folder) or {}
    if not status or status.get("starting"):
        return ServerStatus("The server is starting, or waits for its clients to say hello.", {}, events)
    if status.get("failed"):
        state = f"The server has stopped: {status['failed']}"
    elif status.get("ended"):
        state = "The federation has ended."
    elif time.time() - status["at"] > QUIET:
        state = f"The server has said nothing for {time.time() - status['at']:.0f} seconds: it is not running."
    else:
        state = f"Round {status.get('round', 0)} of {status['rounds']}, life {status['life']} of the server."
    return ServerStatus(state, status, events)


def status_words(folder: pathlib.Path) -> list[str | Rows]:
    """Sentences and tables, for a terminal."""
    if (folder / STORE).exists() or not ((folder / JOURNAL).exists() or (folder / "keys").exists()):
        return _client_words(folder)
    found = server_status(folder)
    parts: list[str | Rows] = [found.state]
    row = found.status.get("last row")
    if row:
        numbers = {k: v for k, v in row.items() if isinstance(v, int | float)}
        parts.append("Last evaluation: " + ", ".join(f"{k} {v:.6g}" for k, v in list(numbers.items())[:5]))
    clients = found.status.get("clients", {})
    if clients:
        waited = set(found.status.get("waiting for", []))
        table: Rows = [("client", "name", "state", "last heard of", "why")]
        for name, c in clients.items():
            state = "working" if c["number"] in waited and c["state"] == "ready" else c["state"]
            table.append((str(c["number"]), name, state, _ago(c["seen"]), c["why"] or ""))
        parts.append(table)
    if found.events:
        parts.append("\n".join(["", "What happened last:", *(f"  {_clock(at)} {words}" for at, words in found.events)]))
    return parts


def _client_words(folder: pathlib.Path) -> list[str | Rows]:
    own = client_folder(folder)
    if not (folder / STORE).exists():
        return [f"Client {own.k} ({own.name}) has not been started yet."]
    store = Store(folder / STORE, own.terms.uid)
    held, setup = store.held(), store.setup()
    store.close()
    node = folder / "flower" / "node.json"
    words = [f"Client {own.k} ({own.name}): {held.version} of its replies were counted"]
    words[0] += ", and one more may have been." if held.pending else "."
    if setup is None:
        words.append("The server has not told it the model yet.")
    if node.exists():
        found = json.loads(node.read_text())
        words.append(f"Its node: {found.get('state')}{': ' + found['why'] if found.get('why') else ''}")
    return ["\n".join(words)]


def _ago(at: float | None) -> str:
    return "never" if at is None else f"{max(time.time() - at, 0):.0f} s ago"


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def replayed(folder: pathlib.Path, data: Sequence[str]) -> Replayed:
    """Compute a server's run again, with the data of all clients: as given, or as the folders beside it say."""
    terms = read_terms(folder)
    given = {}
    for entry in data:
        name, equals, what = entry.partition("=")
        if not equals:
            raise ValueError(f"--data must be NAME=DATA, such as {terms.clients[0]}=patients.csv, got {entry!r}.")
        terms.number(name)
        given[name] = what
    if not (folder / JOURNAL).exists():
        raise ValueError(f"{folder} has no journal: the server has not been started yet.")
    own, e = {}, terms.experiment
    for k, name in enumerate(terms.clients):
        beside = folder.resolve().parent / CLIENTS / name
        rows = given.get(name) or (client_folder(beside).data if beside.is_dir() else None)
        if rows is None:
            raise ValueError(f"--data: the data of client {name!r} are needed, such as --data {name}=patients.csv.")
        own[k] = OwnRows(own_rows(rows, e, k, name, e.seed), e)
    journal = Journal(folder / JOURNAL)
    try:
        return replay(journal, e.algorithm, e.solver, own)
    finally:
        journal.close()
