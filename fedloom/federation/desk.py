"""The server's desk: who is there, who may speak for whom, and frames to and from clients. It knows no method.

A node is whatever the transport calls the other end of a line. A node is greeted when it appears; it answers as which
client it speaks, and is told the setup if it does not have it. Only then is the client `ready`.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fedloom.federation.agreement import Agreement
from fedloom.federation.journal import Journal
from fedloom.federation.wire import Frame, Refused, integer, text

LOOK = 0.5  # seconds between looks at who is there
GREET = 5.0  # seconds until somebody is greeted again who did not answer, or was left out
POLL = 0.02  # seconds between looks for replies
HELLO = 60.0  # seconds for which a greeting may be answered

Node = Hashable


class Arrived(NamedTuple):
    """A reply, or the transport's word that there will be none."""

    node: Any
    frame: Frame | None
    error: str = ""


class Transport(Protocol):
    """What brings frames to nodes and back. It may lose, double and delay them; it must not change them."""

    def nodes(self) -> set[Any]:
        """Who is there."""

    def push(self, frames: Sequence[tuple[Any, Frame]], ttl: float) -> None:
        """Send frames to nodes; answers are wanted for `ttl` seconds."""

    def pull(self) -> list[Arrived]:
        """What has come since the last time."""


class Waited(RuntimeError):
    """The server has waited in vain; the message says for whom. Start it again and it goes on."""


class Desk:
    """The clients 0, 1, ..., by name, as the server sees them."""

    def __init__(
        self,
        agreed: Agreement,
        names: Sequence[str],
        transport: Transport,
        journal: Journal,
        *,
        bound: Mapping[Any, int] | None = None,
        say: Callable[[str], None] = lambda words: None,
    ):
        """bound: which client each node may speak for, if that is known by keys; None: whoever comes first."""
        self.agreed, self.names, self.transport, self.journal = agreed, list(names), transport, journal
        self.bound, self.say = bound, say
        self.clients: dict[Node, int] = {}  # nodes that have said hello, and as whom
        self.nodes: dict[int, Node] = {}
        self.ready: set[int] = set()
        self.disks: dict[int, str] = {}  # by which clients are known that come back by another way
        self.left_out: dict[int, str] = {}  # why
        self.again: set[int] = set()  # whose last request is known to be lost, or who may not have got it
        self.seen: dict[int, float] = {}  # when each was last heard of
        self.setups: dict[int, Frame] = {}
        self.facts = journal.facts()
        self.down = self.up = 0  # bytes that were handed to the transport, and that came from it
        self._greeted: dict[Node, float] = {}
        self._looked = -LOOK
        self._said: dict[str, float] = {}

    # What is told to people.

    def note(self, words: str) -> None:
        """Tell whoever looks; the same words once a minute at the most."""
        if time.monotonic() - self._said.get(words, -60.0) >= 60.0:
            self._said[words] = time.monotonic()
            if len(self._said) > 1000:
                self._said.clear()
            self.journal.note(time.time(), words)
            self.say(words)

    def name(self, k: int) -> str:
        return f"client {k} ({self.names[k]})"

    # Who is there.

    def look(self) -> None:
        """See who has come and who is gone, and greet newcomers."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        there = self.transport.nodes()
        for node in [node for node in self.clients if node not in there]:
            self._gone(node)
        for node in [node for node in self._greeted if node not in there]:
            del self._greeted[node]
        new = [node for node in there if self.clients.get(node) not in self.ready or node not in self.clients]
        due = [node for node in new if now - self._greeted.get(node, -GREET) >= GREET]
        hello = Frame({"kind": "hello", **self.agreed._asdict()})
        self._push([(node, hello) for node in due], HELLO)
        self._greeted |= dict.fromkeys(due, now)

    def _gone(self, node: Node) -> None:
        k = self.clients.pop(node)
        if self.nodes.get(k) == node:
            del self.nodes[k]
            self.ready.discard(k)
            self.again.add(k)
            self.note(f"{self.name(k)} is gone.")

    def leave_out(self, k: int, why: str) -> None:
        """Do not draw this client until it has said hello again."""
        self.left_out[k] = why
        self.ready.discard(k)
        self.note(f"{self.name(k)} is left out: {why}")

    def set_up(self, setups: Mapping[int, Frame]) -> None:
        """From now on clients are told this before they are ready."""
        self.setups = dict(setups)
        for k, node in self.nodes.items():
            self.ready.discard(k)
            self._push([(node, setups[k])], HELLO)

    def _hello(self, node: Node, header: Mapping[str, Any]) -> None:
        """Somebody says who it is."""
        k = integer(header, "k")
        if k >= len(self.names):
            raise Refused(f"it says that it is client {k}, but clients are 0 to {len(self.names) - 1}.")
        if self.bound is not None and self.bound.get(node) != k:
            raise Refused(f"it says that it is {self.name(k)}, which has another key.")
        if self.clients.get(node, k) != k:
            raise Refused(f"it says that it is {self.name(k)}, but has said that it is client {self.clients[node]}.")
        old, disk = self.nodes.get(k, node), text(header, "disk")
        if old != node and old in self.transport.nodes() and self.disks.get(k) != disk:
            raise Refused(f"it says that it is {self.name(k)}, who is there already.")
        self.agreed.check(header, self.name(k))
        if text(header, "name") != self.names[k]:
            raise Refused(f"it calls itself {header['name']!r:.50}, but client {k} is {self.names[k]!r}.")
        size, known = integer(header, "size", 1), self.facts.get(k, {}).get("size")
        if known is not None and self.setups and size != known:
            raise Refused(f"{self.name(k)} had {known:,} training examples at the start, but has {size:,} now.")
        counted, standing = integer(header, "counted"), self.journal.standings().get(k)
        expected = 0 if standing is None else standing.counted
        if counted not in (expected, expected - 1):
            why = f"the server has counted {expected} of its replies, but its disk knows of {counted}: an old copy?"
            self.left_out[k] = why
            raise Refused(f"{self.name(k)} is left out: {why}")
        facts = {"name": self.names[k], "size": size, "rows": header.get("rows")}
        if self.facts.get(k) != facts:
            self.facts[k] = facts
            self.journal.set_facts({k: facts})
        if node not in self.clients:
            self.note(f"{self.name(k)} is there.")
        if old != node:  # it was killed, and has come back by another way before the transport has noticed
            self.clients.pop(old, None)
            self.again.add(k)
        self.clients[node], self.nodes[k], self.disks[k] = k, node, disk
        if k in self.setups and header.get("setup") == self.setups[k].header["digest"]:
            self._is_ready(k)
        elif k in self.setups:
            self._push([(node, self.setups[k])], HELLO)

    def _is_ready(self, k: int) -> None:
        self.ready.add(k)
        if self.left_out.pop(k, None):
            self.note(f"{self.name(k)} takes part again.")

    # Frames.

    def send(self, requests: Mapping[int, Frame], ttl: float) -> set[int]:
        """Send requests to those clients that are there; returns who they are."""
        there = [k for k in requests if k in self.nodes]
        self._push([(self.nodes[k], requests[k]) for k in there], ttl)
        return set(there)

    def _push(self, frames: Sequence[tuple[Node, Frame]], ttl: float) -> None:
        if frames:
            self.down += sum(frame.size for _, frame in frames)
            self.transport.push(frames, ttl)

    def receive(self, wait: float = POLL) -> list[tuple[int, Frame]]:
        """Frames of clients that have come; waits a little if there are none. Greetings are dealt with here."""
        self.look()
        found: list[tuple[int, Frame]] = []
        for arrived in self.transport.pull():
            if arrived.frame is None:
                if (k := self.clients.get(arrived.node)) is not None:
                    self.again.add(k)
                    self.note(f"{self.name(k)}: {arrived.error}")
                else:
                    self.note(f"node {arrived.node}: {arrived.error}")
                continue
            self.up += arrived.frame.size
            try:
                found += self._taken(arrived.node, arrived.frame)
            except Refused as error:
                self.note(f"node {arrived.node} is refused: {error}")
        if not found and wait:
            time.sleep(wait)
        return found

    def _taken(self, node: Node, frame: Frame) -> list[tuple[int, Frame]]:
        kind = frame.header.get("kind")
        if kind == "hello":
            self._hello(node, frame.header)
            return []
        k = self.clients.get(node)
        if k is None:
            raise Refused(str(frame.header.get("why", f"it sent {kind!r:.50} before it said who it is."))[:500])
        self.seen[k] = time.time()
        if kind == "ready":
            if k in self.setups and frame.header.get("digest") == self.setups[k].header["digest"]:
                self._is_ready(k)
            return []
        if kind == "refused" and frame.header.get("asked") in ("hello", "setup"):
            self.leave_out(k, str(frame.header.get("why"))[:500])
            return []
        return [(k, frame)]

    # Questions to everybody.

    def wait_for(self, who: Iterable[int], patience: float) -> None:
        """Wait until all of these have said hello."""
        wanted, end = set(who), time.monotonic() + patience
        while wanted - self.nodes.keys():
            self.receive()
            if time.monotonic() > end:
                missing = ", ".join(self.name(k) for k in sorted(wanted - self.nodes.keys()))
                raise Waited(f"After {patience:g} seconds these have not come: {missing}.{self._reasons()}")

    def ask_each(
        self, frames: Mapping[int, Frame], kind: str, patience: float, everybody: bool = False
    ) -> dict[int, dict[str, Any]]:
        """The headers with which clients answer these frames; `kind` is that of the answers. Asks again now and then.

        Those who refuse, or have not answered when the patience ends, are left out; with `everybody`, none may be.
        """
        wanted, found = set(frames), dict[int, dict[str, Any]]()
        end, asked = time.monotonic() + patience, -patience
        while len(found) < len(wanted):
            now = time.monotonic()
            if now > end and not everybody:
                break
            if now > end:
                missing = ", ".join(self.name(k) for k in sorted(wanted - found.keys()))
                raise Waited(f"After {patience:g} seconds these have not answered: {missing}.{self._reasons()}")
            if now - asked >= max(GREET, patience / 4):
                self.send({k: frames[k] for k in sorted(wanted - found.keys())}, patience)
                asked = now
            for k, reply in self.receive():
                if k not in wanted:
                    continue
                if reply.header.get("kind") == kind and reply.header.get("ask") == frames[k].header.get("ask"):
                    found[k] = reply.header
                elif reply.header.get("kind") == "refused" and reply.header.get("asked") == frames[k].header["kind"]:
                    why = str(reply.header.get("why"))[:500]
                    if everybody:
                        raise Waited(f"{self.name(k)} refuses: {why}")
                    wanted.discard(k)
                    self.note(f"{self.name(k)} refuses {frames[k].header['kind']!r}: {why}")
        return found

    def _reasons(self) -> str:
        return "".join(f" {self.name(k)}: {why}" for k, why in sorted(self.left_out.items()))
