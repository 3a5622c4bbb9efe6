"""Asynchronous runs over clients that are somewhere else: asyncFedDR over a network.

Clients are at work at their own pace. The server updates its model whenever `buffer` replies have come, each of which
may have begun with an older model, and does not wait for anybody else. Who begins next is named by the cohort rule. A
server that dies forgets the jobs in flight; nobody has counted them, so the clients begin anew.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.engines.aggregate import message_of, updated
from fedloom.engines.clock import Clock
from fedloom.engines.records import Record, client_not_finite, server_not_finite
from fedloom.federation.desk import Waited
from fedloom.federation.drawing import drawn
from fedloom.federation.journal import Counted
from fedloom.federation.party import NOT_FINITE
from fedloom.federation.protocol import Job, Ledger
from fedloom.federation.rounds import Reply, Rounds, summed
from fedloom.federation.state import State
from fedloom.federation.wire import Frame, Refused, digest, packed

WAVES = 1000  # that are reserved at once
TRIES = 3  # cohorts of which nobody can start, before anybody who can is started


class Flight(NamedTuple):
    """A job on its way."""

    job: Job
    weight: float
    version: int  # server updates before it began
    since: float


class Landed(NamedTuple):
    """A reply that waits to be counted."""

    flight: Flight
    reply: Reply


class Flights(Rounds):
    """An asynchronous run over a desk: `records` yields a record after each update of the server."""

    def records(self) -> Iterator[Record]:
        run, waits = self.run, self.waits
        assert run.buffer is not None
        state = self.begin()
        self.ledger = Ledger(self.uid)
        self.flying: dict[int, Flight] = {}
        landed: dict[int, Landed] = {}
        # A wave and a client determine randomness, so that no wave is begun twice.
        self.wave = self._first_wave()
        self.asked = 0
        heard = time.monotonic()
        message: bytes | None = None
        while state.t < run.rounds:
            if message is None:
                message = packed(jax.device_get(message_of(run.algorithm, state.record.server, 0)))
            self._start(state, message, set(landed))
            came = self._land(landed)
            heard = time.monotonic() if came else heard
            if time.monotonic() - heard > waits.patience:
                raise Waited(f"No reply has come for {waits.patience:g} seconds. Missing: {self.who()}")
            self.standing = {"round": state.t + 1, "replies": len(landed), "waiting for": sorted(self.flying)}
            if len(landed) >= run.buffer:
                first = sorted(landed.values(), key=lambda x: x.flight.since)[: run.buffer]
                state, message = self._update(state, first), None
                for one in first:
                    del landed[one.flight.job.k]
                yield state.record
                state = state._replace(record=state.record.fresh())

    def _first_wave(self) -> int:
        """One that no server before this one has begun: waves are reserved on the disk."""
        kept = self.journal.get("waves")
        self.reserved = 0 if kept is None else int(kept.header["end"])
        return self.reserved

    def _start(self, state: State, message: bytes, waiting: set[int]) -> None:
        """Let clients begin, as long as there are seats and clients who can."""
        seats, tries = self.run.cohort_room - len(self.flying), 0
        while seats > 0 and tries < TRIES:
            idle = self.desk.ready - self.flying.keys() - waiting
            if not idle:
                return
            if tries < TRIES - 1:
                draw = drawn(self.run, self.rule, self.wave, 0, set(self.desk.ready))
            else:  # the rule names nobody who can begin
                ids = np.random.default_rng([self.run.seed, self.wave, 1]).permutation(sorted(idle))
                draw = drawn(self.run, self.rule, self.wave, 0, set(self.desk.ready))
                draw = draw._replace(ids=ids, weight=self.run.usual_weight[ids], work=np.ones(len(ids)))
            begun = 0
            for k, weight, work in zip(draw.ids.tolist(), draw.weight.tolist(), draw.work.tolist(), strict=True):
                if k in idle and begun < seats:
                    begun += self._begin(state, message, k, weight, work)
            self.wave += 1
            seats, tries = seats - begun, 0 if begun else tries + 1

    def _begin(self, state: State, message: bytes, k: int, weight: float, work: float) -> bool:
        if self.wave >= self.reserved:
            self.reserved = self.wave + WAVES
            self.journal.put("waves", Frame({"end": self.reserved}))
        standing = self.journal.standings().get(k)
        base, tag = (0, "") if standing is None else standing
        clock = state.record.clock or Clock()
        t = clock.replies // self.run.cohort_room  # rounds' worth of replies, as schedules count them
        job = Job(k, t, self.wave, 0, base, self.run.seed, work)
        if not self.desk.send({k: self.request(job, message, tag)}, self.waits.deadline):
            return False
        self.ledger.ask(job, digest(message))
        self.flying[k] = Flight(job, weight, state.t, time.monotonic())
        self.asked += 1
        return True

    def _land(self, landed: dict[int, Landed]) -> bool:
        """Take what has come. Jobs that are too late are given up: their clients may begin anew."""
        came = False
        for k, frame in self.desk.receive():
            try:
                if frame.header.get("kind") == "refused":
                    if not self.ledger.concerns(k, frame.header):
                        continue
                    came |= self._refused(k, str(frame.header.get("why"))[:500], frame.header.get("asked"))
                elif k in self.flying:
                    reply = self.taken(k, frame, 0, self.ledger)
                    landed[k] = Landed(self.flying.pop(k), reply)
                    came = True
                else:
                    raise Refused("it has no job, or was too late.")
            except Refused as error:
                self.lost[0, 1] += 1
                self.desk.note(f"{self.desk.name(k)}: a reply is refused: {error}")
        now = time.monotonic()
        for k, flight in list(self.flying.items()):
            if now - flight.since > self.waits.deadline or k not in self.desk.nodes:
                del self.flying[k]
                self.ledger.asked.pop(k, None)
                self.lost[0, 0] += 1
        return came

    def _refused(self, k: int, why: str, asked: object) -> bool:
        if asked not in ("train", None) or k not in self.flying:
            return False
        flight = self.flying.pop(k)
        self.ledger.asked.pop(k, None)
        self.lost[0, 0] += 1
        if why.startswith(NOT_FINITE) and not self.run.drop:
            raise client_not_finite(flight.version, k, self.run.algorithm.exchanges[0].name)
        self.desk.leave_out(k, why)
        return True

    def _update(self, state: State, first: list[Landed]) -> State:
        """The server after these replies, on the disk."""
        run, exchange, t, record = self.run, self.run.algorithm.exchanges[0], state.t, state.record
        stale = {one.flight.job.k: float(t - one.flight.version) for one in first}
        weight = {one.flight.job.k: one.flight.weight for one in first}
        replies = {
            (k := one.flight.job.k): one.reply._replace(value=exchange.aged(one.reply.value, jnp.asarray(stale[k])))
            for one in first
        }
        counts = {k: reply for k, reply in replies.items() if weight[k] > 0}
        sums = summed(run, counts, weight, self.replies[0])
        total = sum(weight[k] for k in counts)
        staleness = sum(weight[k] * stale[k] for k in counts) / total if total else 0.0
        server, _, finite = updated(run.algorithm, record.server, sums, run.key, t, True, 0, jnp.asarray(staleness))
        if not finite:
            raise server_not_finite(t, exchange.name)
        here = [
            Counted(one.flight.job, one.reply.tag, one.flight.weight, one.flight.version)
            for one in sorted(first, key=lambda x: x.flight.job.k)
            if one.flight.job.k in counts
        ]
        record = self._counted(record._replace(server=server, cohort=()), 0, replies, {}, len(replies), 0)
        clock = record.clock or Clock()
        by_age = np.zeros(max(len(clock.staleness), int(max(stale.values())) + 1), int)
        by_age[: len(clock.staleness)] = clock.staleness
        for k in counts:
            by_age[int(stale[k])] += 1
        clock = clock._replace(staleness=tuple(by_age.tolist()), replies=clock.replies + len(counts))
        record = record._replace(clock=clock, round=t + 1, counters=record.counters.after_rounds(1))
        new = State(t + 1, 0, True, self.timed(record))
        self.commit(new, (t, 0), here)
        return new
