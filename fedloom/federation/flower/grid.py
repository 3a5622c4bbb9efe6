"""The server's side of the transport: headers and bodies to nodes, and what comes back, by Flower's public interface.

A message is lost or answered; nothing here knows what it says. A connection to the SuperLink that is gone for a while
is not an error: it is restarted by its supervisor, and its database has the messages.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from .pace import hasten_grid
from .shim import BODY_LIMIT, Header, NotAFrame, from_content, to_content

GONE, UNAVAILABLE = 3, 5  # Flower's error codes: the message has expired or was deleted; its node does not answer
PAUSE = 1.0
FRESH = 1.0  # seconds for which it is known who is there
# Seconds between two looks for replies: a twentieth of the time since the last message. Each look is work for the
# SuperLink, which it lacks for clients.
SHORTEST, LONGEST = 0.05, 1.0

T = TypeVar("T")


class Arrived(NamedTuple):
    """A reply: to which message, from which node; header None and a sentence if it is not one."""

    node: int
    message: str
    header: Header | None
    body: bytes
    error: str


class Sent(NamedTuple):
    node: int
    until: float  # by the clock of this process


class GridTransport:
    """Messages over Flower's Grid. `patience`: seconds without the SuperLink after which it is given up."""

    def __init__(self, grid: Grid, limit: int = BODY_LIMIT, patience: float = 600.0) -> None:
        self.grid, self.limit, self.patience = grid, limit, patience
        hasten_grid()
        self.waiting: dict[str, Sent] = {}
        self.here: set[int] = set()
        self.seen = self.looked = self.pushed = -LONGEST  # when it was last seen who is there, looked, and sent

    def nodes(self) -> set[int]:
        """The nodes that are there, or were a moment ago."""
        if time.monotonic() - self.seen > FRESH:
            self.here = set(self._persistently(lambda: list(self.grid.get_node_ids())))
            self.seen = time.monotonic()
        return self.here

    def push(self, node: int, header: Header, body: bytes, ttl: float) -> str:
        """Send one message; its id, "" if Flower would not take it, as when the node is gone."""
        return self.push_all([(node, header, body)], ttl)[0]

    def push_all(self, messages: Sequence[tuple[int, Header, bytes]], ttl: float) -> list[str]:
        """Send many at once: equal bodies are uploaded once. The ids, in order; "" for those Flower would not take."""
        if not messages:
            return []
        made = [
            Message(to_content(header, body), dst_node_id=node, message_type=MessageType.QUERY, ttl=ttl)
            for node, header, body in messages
        ]
        # To push the same again after a lost answer is harmless: a message's id is the digest of its content.
        ids = [x or "" for x in self._persistently(lambda: list(self.grid.push_messages(made)))]
        ids += [""] * (len(messages) - len(ids))
        self.pushed = time.monotonic()
        until = self.pushed + ttl
        for (node, _, _), name in zip(messages, ids, strict=True):
            if name:
                self.waiting[name] = Sent(node, until)
        return ids

    def pull(self) -> list[Arrived]:
        """The replies that have come since; messages whose time is over are forgotten.

        Flower deletes a message, and a reply that is stored for it, as soon as it is asked for while its node is away.
        So only those of nodes that are there are asked for: a client that comes back in time is heard.
        """
        now = time.monotonic()
        self.waiting = {name: sent for name, sent in self.waiting.items() if sent.until > now}
        if not self.waiting or now - self.looked < max(SHORTEST, min(LONGEST, (now - self.pushed) / 20)):
            return []
        self.looked = now
        here = self.nodes()
        names = [name for name, sent in self.waiting.items() if sent.node in here]
        if not names:
            return []
        arrived = []
        for reply in self._persistently(lambda: list(self.grid.pull_messages(names))):
            name = reply.metadata.reply_to_message_id
            sent = self.waiting.get(name)
            if sent is None or (reply.has_error() and reply.error.code == UNAVAILABLE):
                continue
            del self.waiting[name]
            arrived.append(self._arrived(sent.node, name, reply))
        return arrived

    def forget(self, message: str) -> None:
        """No longer wait for an answer to a message."""
        self.waiting.pop(message, None)

    def _arrived(self, node: int, name: str, reply: Message) -> Arrived:
        if reply.has_error():
            error = reply.error
            lost = "the message, or the reply to it, is gone" if error.code == GONE else str(error.reason)
            return Arrived(node, name, None, b"", f"Flower lost it (code {error.code}): {lost}")
        if reply.metadata.src_node_id != node:
            return Arrived(node, name, None, b"", f"another node answered, {reply.metadata.src_node_id}")
        try:
            header, body = from_content(reply.content, self.limit)
        except NotAFrame as error:
            return Arrived(node, name, None, b"", str(error))
        return Arrived(node, name, header, body, "")

    def _persistently(self, call: Callable[[], T]) -> T:
        """What a call gives, tried again while the SuperLink is away. Flower itself tries again for most of it."""
        end = time.monotonic() + self.patience
        while True:
            try:
                return call()
            except (OSError, *_lost()):
                if time.monotonic() > end:
                    raise
                time.sleep(PAUSE)


def _lost() -> tuple[Any, ...]:
    """The errors of a connection that is lost. Flower speaks HTTP by httpx, which therefore is installed with it."""
    import httpx

    return (httpx.TransportError,)
