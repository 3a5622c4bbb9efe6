"""The driver's side of a cluster: its workers, which of them has which shard, and what happens when some die.

The driver keeps the messages and cohorts of all exchanges since the shards' memories were last saved. When a worker
dies, another one takes over its shards: from the saved memories, through the shard's own parts since then. What clients
do is a function of the message, the memories and (seed, round, exchange, client), so that all bits come out the same.
"""

import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import ray

from fedloom.cluster.assignment import assigned, moves
from fedloom.cluster.server import together
from fedloom.cluster.shard import Answer, Part, Rows, places
from fedloom.cluster.shard_files import FileStore, shard_file
from fedloom.cluster.staff import LOST, Kind, Staff, brief, ended, got
from fedloom.cluster.worker import Memories, Terms
from fedloom.cohorts import Draw
from fedloom.engines.aggregate import ClientReport, Sums
from fedloom.engines.costs import LocalSteps
from fedloom.engines.memory_store import Memories as RecordedMemories
from fedloom.engines.memory_store import first_store, write
from fedloom.engines.run import Run
from fedloom.engines.trees import Tree, nbytes

SMALL = 100_000  # bytes of a message that goes with each call; a larger one is put where all workers of a node see it
REPLAY_SECONDS = 60.0  # of exchanges since memories were saved: more would take too long to do again
REPLAY_BYTES = 2**30  # of messages since then
GAIN = 1.25  # times shorter that exchanges must become before a shard moves to another worker
LOOK = 20  # exchanges between two looks at who takes longest
FRESH = 0.3  # the weight of the newest measurement in a worker's pace


class Entry(NamedTuple):
    """An exchange, as it is done again if need be."""

    parts: Mapping[int, Part]
    message: Any  # a tree, or a reference to one


class Base(NamedTuple):
    """From where a shard begins again: its memories after `number` parts."""

    number: int
    file: str | None = None  # None: those that the driver has itself


class Crew(Staff):
    """The workers of one run with their shards."""

    def __init__(
        self, run: Run, make: Callable[..., Run], given: Sequence[Any], terms: Terms, workers: int, kind: Kind
    ):
        """Starts the workers: each makes its run by make(*given)."""
        super().__init__(make, given, terms, kind)
        self.run = run
        self.shards, self.blank = terms.shards, jax.tree.map(np.asarray, run.algorithm.init_client(run.w))
        self.stateful = bool(jax.tree.leaves(self.blank))
        self.steps = LocalSteps(run)
        self.home: dict[int, int] = {}  # the worker of each shard, if clients have memories
        self.number = [0] * self.shards  # parts that each shard has done
        self.pace: dict[int, float] = {}  # seconds of a step, of workers that have been measured
        self.warm: set[tuple[int, int]] = set()  # workers that have compiled an exchange
        self.log: list[Entry] = []
        self.seconds = self.since = 0.0  # of exchanges in all, and since memories were saved
        self.busy, self.bytes, self.log_bytes, self.exchanges = 0.0, 0, 0, 0
        start = run.start.clients.store if isinstance(run.start.clients, RecordedMemories) else None
        self.base = [Base(0)] * self.shards
        if isinstance(start, FileStore) and start.shards == self.shards:
            self.base = [Base(0, str(shard_file(start.directory, s))) for s in range(self.shards)]
        self.known = np.zeros(run.federation.clients, bool) if start is None else start.known.copy()
        for k in {} if start is not None else run.start.clients:
            self.known[k] = True
        # The driver's own copy of memories: those at the start, unless files have them, and what `remember` adds.
        anew = run._replace(start=run.start._replace(clients={})) if isinstance(start, FileStore) else run
        self.replica = first_store(anew)
        self.hire(workers)

    def end(self) -> None:
        """The run is over: its workers stay only as long as nobody else needs their place."""
        if self.stateful:
            ended.add(self)
        else:
            self.dismiss()

    # Losses.

    def bury(self, w: int, why: str) -> None:
        super().bury(w, why)
        self.pace.pop(w, None)
        self.home = {s: at for s, at in self.home.items() if at != w}

    def roll_call(self, parts: Mapping[int, Part], answers: dict[int, Answer]) -> None:
        """After a loss: who is alive, and which shards are not as they should be, between or after these parts."""
        standing = {}
        for w, call in [(w, worker.standing.remote()) for w, worker in self.workers.items()]:
            try:
                standing[w] = ray.get(call)
            except LOST as error:
                self.bury(w, brief(error))
        if not self.stateful:
            return
        for s in range(self.shards):
            at = self.home.get(s)
            if at is None or standing[at].get(s) != self.number[s] + (s in answers):
                self.home.pop(s, None)
                answers.pop(s, None)  # its memories are lost with it, so that the part is done again
        for w, there in standing.items():
            for s in there:
                if self.home.get(s) != w:  # also one that had just begun when another worker was lost
                    self.workers[w].end_shard.remote(s)

    def settle(self, move: bool = False) -> None:
        """Let new workers join, and give every shard a home; another one, if that is better and it may `move`."""
        self.wait_for_workers()
        if not self.stateful:
            return
        shared = {w: [s for s, at in self.home.items() if at == w] for w in self.workers}
        calls = []
        for s in sorted(set(range(self.shards)) - self.home.keys()):
            w = min(shared, key=lambda w: (len(shared[w]), w))
            shared[w].append(s)
            replay = [
                (entry.parts[s], entry.message)
                for entry in self.log
                if s in entry.parts and entry.parts[s].number >= self.base[s].number
            ]
            calls.append((s, w, self.workers[w].begin_shard.remote(s, self._saved(s), self.base[s].number, replay)))
        homes = {w: [s for s in own if s in self.home] for w, own in shared.items()}
        for s, old, new in moves(homes, self._paces(), GAIN) if move and not calls and self._look() else []:
            memories = self.workers[old].memories.remote(s)
            calls.append((s, new, self.workers[new].begin_shard.remote(s, memories, self.number[s], [])))
            self.bytes += nbytes(self.blank) * int(np.sum(self.known[s :: self.shards]))
        for s, w, call in calls:
            got(call)
            if s in self.home:
                self.workers[self.home[s]].end_shard.remote(s)
            self.home[s] = w

    def _look(self) -> bool:
        """Is it time to see whether shards should move? Also when somebody has come."""
        someone_has_none = len(set(self.home.values())) < min(len(self.workers), self.shards)
        return someone_has_none or self.exchanges % LOOK == LOOK - 1

    def _saved(self, s: int) -> Memories:
        """The memories that a shard begins again with."""
        if self.base[s].file is not None:
            return self.base[s].file
        ids = np.flatnonzero(self.replica.known)
        ids = ids[ids % self.shards == s]
        return Rows(ids, jax.tree.map(np.asarray, self.replica.read(ids))) if len(ids) else None

    # Exchanges.

    def exchange(self, t: int, e: int, draw: Draw, message: Tree, active: bool) -> tuple[Sums | None, ClientReport]:
        """One trip to the workers and back: the sums, None of nobody, and what is reported of each client."""
        room, began = self.run.room(len(draw.ids)), time.perf_counter()
        where = places(draw, self.shards)
        parts = {s: Part(s, self.number[s], t, e, Draw(*(x[i] for x in draw)), room, active) for s, i in where.items()}
        sent = ray.put(message) if nbytes(message) > SMALL else message
        answers: dict[int, Answer] = {}
        moving = True  # between exchanges only
        while True:
            try:
                self.settle(moving)
                moving = False
                self._ask(parts, message, sent, answers)
                break
            except LOST:
                moving = False
                self.roll_call(parts, answers)
        for s in parts:
            self.number[s] += 1
        self.exchanges += 1
        spent = time.perf_counter() - began
        self.seconds, self.since = self.seconds + spent, self.since + spent
        if self.stateful:
            self.log.append(Entry(parts, sent))
            self.log_bytes += nbytes(message)
            if self.since > REPLAY_SECONDS or self.log_bytes > REPLAY_BYTES:
                self.remember()
        return together(answers, where, room)

    def _ask(self, parts: Mapping[int, Part], message: Tree, sent: Any, answers: dict[int, Answer]) -> None:
        """Have the parts computed that have no answer yet: where their memories are, or by whoever ends soonest."""
        missing = {s: part for s, part in parts.items() if s not in answers}
        work = {s: self._work(part) for s, part in missing.items()}
        where = {s: self.home[s] for s in missing} if self.stateful else assigned(work, self._paces())
        batches = {w: [s for s in missing if where[s] == w] for w in set(where.values())}
        calls = {w: self.workers[w].compute.remote([missing[s] for s in own], sent) for w, own in batches.items()}
        failed: Exception | None = None
        for w, call in calls.items():
            try:
                found = dict(zip(batches[w], got(call), strict=True))
            except LOST as error:
                failed = error
                continue
            answers.update(found)
            self._measure(w, [(missing[s].e, work[s], answer) for s, answer in found.items()])
            self.bytes += nbytes(message) + sum(nbytes(answer.sums) for answer in found.values())
        if failed is not None:
            raise failed

    def _paces(self) -> dict[int, float]:
        """Seconds of a step of each worker; of one that has not been measured, the usual."""
        usual = float(np.mean(list(self.pace.values()))) if self.pace else 1.0
        return {w: self.pace.get(w, usual) for w in self.workers}

    def _work(self, part: Part) -> float:
        """Steps of a part; clients, where steps are not known."""
        return float(self.steps(part.draw.ids, part.draw.work).sum()) or float(len(part.draw.ids))

    def _measure(self, w: int, done: Sequence[tuple[int, float, Answer]]) -> None:
        """Learn how fast a worker is; the first time it compiles, which says nothing."""
        seconds = sum(answer.seconds for *_, answer in done)
        self.busy += seconds
        e = done[0][0]
        if (w, e) in self.warm:
            now = seconds / sum(work for _, work, _ in done)
            self.pace[w] = (1 - FRESH) * self.pace.get(w, now) + FRESH * now
        self.warm.add((w, e))

    # Memories.

    def remember(self) -> None:
        """Bring the driver's copy of all memories up to date."""
        for s, w, call in [(s, w, self.workers[w].memories.remote(s, True)) for s, w in sorted(self.home.items())]:
            try:
                changed = got(call)
            except LOST as error:  # the shard begins again from what was saved before
                if w in self.workers:
                    self.bury(w, brief(error))
                continue
            if len(changed.ids):
                write(self.replica, changed.ids, changed.rows)
            self.base[s] = Base(self.number[s])
            self.bytes += nbytes(changed.rows)
        self._forget()

    def save(self, directory: pathlib.Path) -> None:
        """Have every shard written to a file, by its worker; from now on shards begin again from there."""
        if not self.stateful:
            return
        directory.mkdir(parents=True, exist_ok=True)
        files = {s: shard_file(directory, s) for s in range(self.shards)}
        while True:
            try:
                self.settle()
                for call in [self.workers[w].save.remote(s, str(files[s])) for s, w in sorted(self.home.items())]:
                    got(call)
                break
            except LOST:
                self.roll_call({}, {})
        if missing := [str(file) for file in files.values() if not file.exists()]:
            raise ValueError(
                f"{missing[0]} was written by a node of the cluster, but is not there for the driver; use a directory "
                "on a file system that all nodes share."
            )
        self.base = [Base(self.number[s], str(files[s])) for s in range(self.shards)]
        self._forget()

    def _forget(self) -> None:
        """Drop what no shard needs any more."""
        self.log = [x for x in self.log if any(p.number >= self.base[s].number for s, p in x.parts.items())]
        self.since, self.log_bytes = 0.0, 0

    def read(self, s: int, ids: np.ndarray) -> Tree:
        """The memories of clients of a shard, as they are now."""
        if self.gone:
            raise RuntimeError(
                "The workers that have these memories have ended, because another run began. To read or resume a "
                "record later, keep it before: record = record.keep()."
            )
        while True:
            try:
                self.settle()
                return got(self.workers[self.home[s]].read.remote(s, ids))
            except LOST:
                self.roll_call({}, {})

    @property
    def idle(self) -> float:
        """The share of the workers' time in which they waited."""
        return max(0.0, 1 - self.busy / (self.seconds * max(len(self.workers), 1))) if self.seconds else 0.0

    def __str__(self) -> str:
        n = len(self.workers)
        return f"{n} actor{'s' * (n != 1)}, {self.idle:.0%} idle, {self.bytes / 1e6:.1f} MB moved"
