"""Exactly-once memories over a transport that loses, doubles and delays. Nothing here knows of a transport.

    tag = digest of (uid, t, wave, e, k, base, seed, work, message)      base = replies of client k that were counted

    request:  uid, incarnation, t, wave, e, base, counted (the tag of the last counted reply), seed, work; the message
    client:   1. incarnation smaller than one that has spoken: refuse, the server is an old one
              2. base = version and counted = tag: go on
                 base = version + 1 and counted = the pending tag: the pending reply was counted; promote it
                 anything else: refuse. Never compute with a memory that the server does not mean
              3. the pending reply has this very tag: answer with it
                 otherwise compute from the memory, and keep reply and new memory as pending
              4. commit to the disk; then answer
    server:   count a reply only if its tag is the one that was asked for, once; then commit the new state together with
              base + 1 and the tag of everybody who counts

A client has at most one job in flight, so one counter and one pending memory are enough, also for asynchronous runs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedloom.federation.store import Store
from fedloom.federation.wire import Frame, Refused, digest, integer, number, text


class Job(NamedTuple):
    """What one client is asked to do: with the message, all that its answer depends on."""

    k: int
    t: int  # rounds before this one: the time of step size schedules
    wave: int  # with the client and the exchange, this determines its randomness; the round, in synchronous runs
    e: int
    base: int
    seed: int
    work: float  # the part of the usual work

    def tag(self, uid: str, body: str) -> str:
        """Names the answer; `body` is the digest of the message."""
        return digest(uid, list(self), body)


def request(uid: str, incarnation: int, setup: str, counted: str, job: Job) -> dict[str, Any]:
    """The header of a request; its body is the message."""
    given = {"kind": "train", "uid": uid, "incarnation": incarnation, "setup": setup, "counted": counted}
    return given | job._asdict()


def job_of(header: dict[str, Any]) -> Job:
    """The job that a request names."""
    whole = {name: integer(header, name) for name in Job._fields if name != "work"}
    work = number(header, "work")
    if not 0 < work <= 1:
        raise Refused(f"work must be in (0, 1], but is {work}.")
    return Job(**whole, work=work)


Computed = tuple[bytes, Frame]  # the new memory and the reply
Compute = Callable[[Job, bytes, bytes | None], Computed]  # from a job, its message and the memory, if there is one


def answer(store: Store, frame: Frame, compute: Compute) -> Frame:
    """A client's answer to a request, which is on the disk before it is returned."""
    job, counted = job_of(frame.header), text(frame.header, "counted")
    tag = job.tag(store.uid, digest(frame.body))
    with store.database.transaction():
        heard(store, integer(frame.header, "incarnation"), (job.wave, job.e))
        settle(store, job.base, counted)
        if store.held().pending == tag:
            return store.reply()
        memory, reply = compute(job, frame.body, store.memory())
        reply = Frame({**reply.header, "kind": "reply", "uid": store.uid, "k": job.k, "tag": tag}, reply.body)
        store.propose(tag, memory, reply)
    return reply


def heard(store: Store, incarnation: int, job: tuple[int, int] | None = None) -> None:
    """Refuse a server whose successor has spoken, and a request (wave, e) that was overtaken by a later one.

    The later one may have been answered and counted; to answer the earlier one would replace what is pending.
    """
    newest = store.held().incarnation
    if incarnation < newest:
        raise Refused(f"fenced: life {newest} of the server has spoken, and this is life {incarnation}.")
    last = store.last() if incarnation == newest else (-1, -1)
    if job is not None and job < last:
        raise Refused(f"late: a request of wave {last[0]}, exchange {last[1]}, has come before this one of {job}.")
    store.hear(incarnation, last if job is None else job)


def settle(store: Store, base: int, counted: str) -> None:
    """Learn whether the pending reply was counted."""
    held = store.held()
    if base == held.version and counted == held.tag:
        return
    if base == held.version + 1 and held.pending is not None and counted == held.pending:
        store.promote()
        return
    raise Refused(
        f"the server has counted {base} replies of this client (the last is {counted[:8] or 'none'}), but this disk "
        f"knows of {held.version} ({held.tag[:8] or 'none'}). Is one of them an old copy?"
    )


class Ledger:
    """The server's side: which replies it has asked for in this exchange, and what has come. In memory only."""

    def __init__(self, uid: str):
        self.uid = uid
        self.asked: dict[int, str] = {}  # client -> the tag that it may answer with

    def ask(self, job: Job, body: str) -> None:
        self.asked[job.k] = job.tag(self.uid, body)

    def concerns(self, k: int, header: dict[str, Any]) -> bool:
        """Is this refusal one of what client k is asked for now? None: whoever refuses could not read the request."""
        return header.get("tag") in (None, self.asked.get(k))

    def accept(self, k: int, header: dict[str, Any]) -> str:
        """The tag of a reply that was asked for and has not come before; raises Refused otherwise."""
        tag = text(header, "tag")
        if header.get("uid") != self.uid:
            raise Refused("the reply is of another federation.")
        if integer(header, "k") != k:
            raise Refused(f"the reply says that it is of client {header['k']}, but came from client {k}.")
        if self.asked.get(k) != tag:
            raise Refused("nobody has asked for this reply, or it has come before, or it is late.")
        return self.asked.pop(k)
