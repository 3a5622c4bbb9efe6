"""Synchronous rounds over clients that are somewhere else: the same exchanges as in every engine.

Who is drawn is on the disk before anybody is asked, so that a server that dies asks the same clients for the same; they
answer from what they have kept. An exchange is over when all have answered, when enough have, or at the deadline if
there are at least `minimum` replies.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.cohorts import CohortRule, Draw
from fedloom.engines.aggregate import Sums, added, empty_sums, message_of, updated
from fedloom.engines.clock import Clock
from fedloom.engines.costs import message_sizes
from fedloom.engines.records import Record, client_not_finite, server_not_finite
from fedloom.engines.run import Run
from fedloom.engines.trees import Tree, all_finite
from fedloom.federation.absent import reply_shapes
from fedloom.federation.desk import GREET, Desk, Waited
from fedloom.federation.drawing import draw_from_frame, draw_to_frame, drawn
from fedloom.federation.journal import Counted, Journal
from fedloom.federation.party import NOT_FINITE
from fedloom.federation.protocol import Job, Ledger, request
from fedloom.federation.state import State, state_from_frame, state_to_frame
from fedloom.federation.wire import Frame, Refused, digest, integer, packed, unpacked


class Patience(NamedTuple):
    """How long a server waits, in seconds and in replies."""

    deadline: float = 60.0  # for the replies of an exchange
    minimum: int = 1  # replies without which an exchange is not over: those who did not answer are asked again
    enough: int | None = None  # replies with which it is over: draw more clients than that
    patience: float = 3600.0  # for the first replies, and for those that `minimum` asks for


class Reply(NamedTuple):
    """A reply that may be counted."""

    value: Tree
    tag: str
    gradients: int
    residual: float | None
    unsolved: int


@jax.jit
def _add(sums: Sums, reply: Tree, weight: Any, population: Any) -> Sums:
    one = jnp.ones(1, bool)
    return added(sums, jax.tree.map(lambda x: x[None], reply), one, jnp.asarray(weight)[None], population[None])


def summed(run: Run, replies: dict[int, Reply], weight: dict[int, float], like: Tree) -> Sums:
    """The sums of the replies that count, added in the order of clients: whoever was first changes no bit."""
    sums = empty_sums(like, jnp.asarray(run.p).dtype)
    for k in sorted(replies):
        sums = _add(sums, replies[k].value, jnp.asarray(weight[k]), jnp.asarray(run.p[k]))
    return sums


class Rounds:
    """A run over a desk: `records` yields a record after each round, from where the journal is."""

    def __init__(self, run: Run, rule: CohortRule, desk: Desk, journal: Journal, waits: Patience):
        self.run, self.rule, self.desk, self.journal, self.waits = run, rule, desk, journal, waits
        self.uid = desk.agreed.uid
        self.sizes = message_sizes(run)
        memory = jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))
        self.replies = [reply_shapes(run, e, memory) for e in range(len(run.algorithm.exchanges))]
        self.started = time.monotonic()
        saved = journal.get("state")
        # Seconds and bytes of earlier lives.
        self.before = (0.0, 0, 0) if saved is None else (saved.header["clock"]["seconds"], *saved.header["traffic"])
        self.lost = np.zeros((len(self.sizes), 2), int)  # messages that went down, and came up, without being counted
        self.standing: dict[str, Any] = {}  # for those who look

    def begin(self) -> State:
        """Where the journal is."""
        return state_from_frame(self.journal.get("state"), self.run)

    def commit(self, state: State, at: tuple[int, int], counted: Sequence[Counted]) -> None:
        """The exchange `at` is over."""
        self.journal.commit(state_to_frame(state), *at, counted, digest(packed(state.record.w)))

    def timed(self, record: Record) -> Record:
        """With the time that has passed and the bytes that have travelled, in all lives of the server."""
        clock = record.clock or Clock()
        seconds, down, up = self.before
        clock = clock._replace(seconds=round(seconds + time.monotonic() - self.started, 3))
        return record._replace(clock=clock, traffic=(down + self.desk.down, up + self.desk.up))

    # Rounds.

    def records(self) -> Iterator[Record]:
        """A record after each round that this server completes."""
        state = self.begin()
        while state.t < self.run.rounds:
            if state.e == 0:
                state = state._replace(record=state.record.fresh()._replace(cohort=()))
            state = self.exchange(state)
            if state.e == 0:
                yield state.record

    def exchange(self, state: State) -> State:
        """One trip: to the cohort and back, on the disk at its end."""
        t, e, active, record = state
        run, exchange = self.run, self.run.algorithm.exchanges[e]
        draw = self._plan(t, e)
        message = packed(jax.device_get(message_of(run.algorithm, record.server, e)))
        jobs = self._jobs(t, e, draw)
        weight = dict(zip(draw.ids.tolist(), draw.weight.tolist(), strict=True))
        replies, broken, asked = self._gather(jobs, message)
        for k in broken:
            if not run.drop:
                raise client_not_finite(t, k, exchange.name)
        counts = {k: reply for k, reply in replies.items() if weight[k] > 0}
        server, counted = record.server, False
        if active and counts:
            sums = summed(run, counts, weight, self.replies[e])
            server, somebody, finite = updated(run.algorithm, server, sums, run.key, t, active, e, jnp.asarray(0.0))
            if not finite:
                raise server_not_finite(t, exchange.name)
            counted = bool(somebody)
        here = [
            Counted(jobs[k], reply.tag, weight[k], self._version(t, e))
            for k, reply in sorted(counts.items())
            if counted
        ]
        record = self._counted(record._replace(server=server), e, replies, broken, asked, len(here))
        record = record._replace(dropped=record.dropped + tuple((t + 1, k, exchange.name) for k in sorted(broken)))
        e += 1
        over = e == len(run.algorithm.exchanges)
        new = State(t + over, 0 if over else e, over or counted, self.timed(record))
        if over:
            counters = new.record.counters.after_rounds(1)
            new = new._replace(record=new.record._replace(round=new.t, counters=counters))
        self.commit(new, (t, state.e), here)
        return new

    def _version(self, t: int, e: int) -> int:
        return t * len(self.run.algorithm.exchanges) + e

    def _plan(self, t: int, e: int) -> Draw:
        """The cohort: one that a server before this one has drawn, or a new one, which is kept before it is used."""
        kept = self.journal.get("plan")
        if kept is not None and (kept.header["t"], kept.header["e"]) == (t, e):
            return draw_from_frame(kept)
        previous = self.journal.get("cohort")
        again = e and self.run.algorithm.exchanges[e].same_cohort and previous is not None
        draw = draw_from_frame(previous) if again and previous is not None else self._draw(t, e)
        if any(exchange.same_cohort for exchange in self.run.algorithm.exchanges):
            self.journal.put("cohort", draw_to_frame(draw, t, e))  # first: where there is a plan, there is its cohort
        self.journal.put("plan", draw_to_frame(draw, t, e))
        return draw

    def _draw(self, t: int, e: int) -> Draw:
        """From those who are there; waits until there are some."""
        needed, end = self._needed(len(self.run.p)), time.monotonic() + self.waits.patience
        while True:
            # Those who have just come back are waited for a moment, so that a restart changes no cohort.
            ready = set(self.desk.ready)
            all_there = len(ready) == len(self.run.p)
            if all_there or (len(ready) >= needed and time.monotonic() - self.started > min(self.waits.deadline, 10.0)):
                draw = drawn(self.run, self.rule, t, e, ready)
                if len(draw.ids):
                    return draw
            if time.monotonic() > end:
                raise Waited(f"After {self.waits.patience:g} seconds only {len(ready)} clients are ready: {self.who()}")
            self.lost[0, 1] += sum(frame.header.get("kind") == "reply" for _, frame in self.desk.receive())

    def who(self, silent: Iterable[int] = ()) -> str:
        """Who is missing, and why; silent: those who were asked and have not answered."""
        missing = {k: "it is not there" for k in range(len(self.run.p)) if k not in self.desk.ready}
        missing |= {k: "it does not answer" for k in silent if k in self.desk.ready}
        missing |= {k: why for k, why in self.desk.left_out.items() if k in missing}
        return "; ".join(f"{self.desk.name(k)}: {missing[k]}" for k in sorted(missing)) or "none"

    def _needed(self, drawn: int) -> int:
        """How many replies an exchange with so many clients needs at the least."""
        return drawn if self.run.algorithm.needs_everyone else min(self.waits.minimum, drawn)

    def _jobs(self, t: int, e: int, draw: Draw) -> dict[int, Job]:
        standings = self.journal.standings()
        jobs = {}
        for k, work in zip(draw.ids.tolist(), draw.work.tolist(), strict=True):
            base = standings[k].counted if k in standings else 0
            jobs[k] = Job(k, t, t, e, base, self.run.seed, work)
        return jobs

    def request(self, job: Job, message: bytes, counted: str) -> Frame:
        setup = self.desk.setups[job.k].header["digest"]
        return Frame(request(self.uid, self.journal.incarnation, setup, counted, job), message)

    def _gather(self, jobs: dict[int, Job], message: bytes) -> tuple[dict[int, Reply], dict[int, int], int]:
        """Ask the cohort.

        Returns the replies, what those spent whose numbers are not finite, and how often somebody was asked.
        """
        ledger, standings, waits = Ledger(self.uid), self.journal.standings(), self.waits
        body = digest(message)
        for job in jobs.values():
            ledger.ask(job, body)
        replies: dict[int, Reply] = {}
        broken: dict[int, int] = {}
        refused: set[int] = set()
        asked: dict[int, float] = {}
        times, start = 0, time.monotonic()
        while True:
            now = time.monotonic()
            silent = [k for k in jobs if k not in replies and k not in broken and k not in refused]
            due = [k for k in silent if k in self.desk.ready and now - asked.get(k, -math.inf) >= self._pause(k)]
            if due:
                counted = {k: standings[k].tag if k in standings else "" for k in due}
                sent = self.desk.send({k: self.request(jobs[k], message, counted[k]) for k in due}, waits.deadline)
                asked |= dict.fromkeys(sent, now)
                times += len(sent)
                self.desk.again -= sent
            self._look(jobs, replies, silent)
            needed = self._needed(len(jobs))
            enough = len(jobs) if waits.enough is None else min(waits.enough, len(jobs))
            if len(replies) >= enough or not silent or now - start > waits.deadline:
                if len(replies) >= needed or (not silent and not refused and broken):
                    return replies, broken, times
                if now - start > waits.patience:
                    raise Waited(
                        f"After {waits.patience:g} seconds there are {len(replies)} replies, but {needed} are needed. "
                        f"Missing: {self.who(silent)}"
                    )
                refused -= self.desk.ready  # who has come back is asked again
            for k, frame in self.desk.receive():
                if k not in jobs:
                    self.lost[0, 1] += frame.header.get("kind") == "reply"
                    continue
                try:
                    if frame.header.get("kind") == "refused":
                        if ledger.concerns(k, frame.header):
                            self._refusal(k, frame, broken, refused)
                    elif frame.header.get("kind") == "reply" and k not in replies:
                        replies[k] = self.taken(k, frame, jobs[k].e, ledger)
                    else:
                        raise Refused("it has answered already, or something else.")
                except Refused as error:
                    self.lost[jobs[k].e, 1] += 1
                    self.desk.note(f"{self.desk.name(k)}, round {jobs[k].t + 1}: a reply is refused: {error}")

    def _pause(self, k: int) -> float:
        """Seconds until a silent client is asked again: soon, if it is known that it has not got the request."""
        return min(GREET, self.waits.deadline) if k in self.desk.again else self.waits.deadline

    def _refusal(self, k: int, frame: Frame, broken: dict[int, int], refused: set[int]) -> None:
        if frame.header.get("asked") not in ("train", None):  # None: whoever stands between the client and the server
            return
        why = str(frame.header.get("why"))[:500]
        if why.startswith(NOT_FINITE):
            broken[k] = integer(frame.header, "gradients")
            self.desk.note(f"{self.desk.name(k)} is left out of this round: {why}")
            return
        refused.add(k)
        self.desk.leave_out(k, why)

    def taken(self, k: int, frame: Frame, e: int, ledger: Ledger) -> Reply:
        """A reply that was asked for, of the right shapes and finite; raises Refused otherwise."""
        value = unpacked(frame.body, self.replies[e])
        if not all_finite(value):
            raise Refused(f"{NOT_FINITE} came, although clients look for it themselves.")
        residual = frame.header.get("residual")
        if residual is not None and not isinstance(residual, int | float):
            raise Refused(f"residual must be a number, but is {residual!r:.50}.")
        gradients, unsolved = integer(frame.header, "gradients"), integer(frame.header, "unsolved")
        return Reply(value, ledger.accept(k, frame.header), gradients, residual, unsolved)

    def _counted(
        self,
        record: Record,
        e: int,
        replies: dict[int, Reply],
        broken: dict[int, int],
        asked: int,
        counted: int,
    ) -> Record:
        """The record with the totals of an exchange."""
        down, up = self.sizes[e]
        came = len(replies) + len(broken)
        counters = record.counters.after_exchanges(1, came, came * down, came * up)
        lost = self.lost.copy()
        lost[e, 0] += max(asked - came, 0)
        self.lost[:] = 0
        counters = counters.after_lost(lost, self.sizes)
        counters = counters.after_gradients(sum(reply.gradients for reply in replies.values()) + sum(broken.values()))
        residuals = [r.residual for r in replies.values() if r.residual is not None]
        worst = max([*residuals, *([] if record.residual is None else [record.residual])], default=None)
        c = record.clock or Clock()
        staleness = (sum(c.staleness[:1]) + counted, *c.staleness[1:])
        return record._replace(
            counters=counters,
            residual=worst,
            unsolved=record.unsolved + sum(reply.unsolved for reply in replies.values()),
            cohort=(*record.cohort, np.array(sorted(replies), int)),
            clock=c._replace(
                jobs=c.jobs + asked,
                replies=c.replies + counted,
                late=c.late + int(lost[:, 1].sum()),
                lost=c.lost + int(lost[:, 0].sum()),
                staleness=staleness,
            ),
        )

    def _look(self, jobs: dict[int, Job], replies: dict[int, Reply], silent: list[int]) -> None:
        """What somebody sees who looks at the federation now."""
        job = next(iter(jobs.values()))
        self.standing = {"round": job.t + 1, "exchange": job.e, "replies": len(replies), "waiting for": silent}
