"""A deployed run again, in one process: the journal's counted jobs, computed anew where all data are at hand.

Every exchange must come to the model that the server had, bit by bit on the same kind of machine. The first one that
does not is where to look: another version, other data, or a client that did not send what it had computed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Solver
from fedloom.engines.aggregate import message_of, updated
from fedloom.engines.checks import checked
from fedloom.engines.run import Run
from fedloom.engines.trees import Tree
from fedloom.federation.absent import Absent, remote, reply_shapes
from fedloom.federation.agreement import Setup, first_model
from fedloom.federation.journal import Exchanged, Journal
from fedloom.federation.rounds import Reply, summed
from fedloom.federation.wire import digest, packed, shapes_of, unpacked
from fedloom.federation.work import Own, worked
from fedloom.problem import Vector


class Replayed(NamedTuple):
    """What came of it."""

    exchanges: int
    first: Exchanged | None  # the first exchange after which the model has other bits
    difference: float  # of the last model, relative to the largest number in it
    w: Vector
    memories: dict[int, Tree]

    @property
    def words(self) -> str:
        n = f"{self.exchanges:,} exchanges were computed again"
        if self.first is None:
            return f"{n}: the model is the same after every one of them, bit by bit."
        where = f"round {self.first.t + 1}, exchange {self.first.e} is the first that differs"
        return f"{n}: {where}; in the end the models differ by {self.difference:.2g}, relative to the largest number."


def replay(journal: Journal, algorithm: Algorithm, solver: Solver, own: Mapping[int, Own]) -> Replayed:
    """Compute the journal's exchanges again; `own` are the data of the clients, by number."""
    setup = journal.get("setup")
    if setup is None:
        raise ValueError(f"{journal.database.path}: this federation has not begun, so that there is nothing to replay.")
    h, p = setup.header, np.array(setup.header["weights"])
    w = first_model(setup)
    history = list(journal.history())
    if missing := {one.job.k for done in history for one in done.counted} - own.keys():
        raise ValueError(f"The data of client {min(missing)} are needed to replay its part.")
    run = checked(algorithm, Absent(p), remote(solver), w, 1, seed=h["seed"])
    federations = {}
    for k, data in own.items():
        told = Setup(k, len(p), float(p[k]), h["capacity"], h["width"], h["seed"], h["preparation"], w)
        federations[k] = data.federation(told)
    blank = jax.tree.map(jnp.asarray, algorithm.init_client(w))
    shapes = [reply_shapes(run, e, blank) for e in range(len(algorithm.exchanges))]
    last_use = {one.version: i for i, done in enumerate(history) for one in done.counted}  # of each message
    server, memories = run.start.server, dict[int, Tree]()
    first, messages = None, dict[int, Tree]()
    for i, done in enumerate(history):
        messages[i] = message_of(algorithm, server, done.e)
        replies: dict[int, Reply] = {}
        new: dict[int, Tree] = {}
        for one in done.counted:
            job, e = one.job, one.job.e
            given = (algorithm, solver, federations[job.k], messages[one.version], memories.get(job.k, blank))
            value, new[job.k], _, _ = worked(*given, run.key, (job.k, job.t, job.wave, job.work), e)
            aged = algorithm.exchanges[e].aged(value, jnp.asarray(float(i - one.version)))
            replies[job.k] = Reply(aged if i != one.version else value, one.tag, 0, None, 0)
        if replies:
            server = _after(run, server, done, replies, shapes, i)
            memories |= new
        if first is None and digest(packed(server.w)) != done.model:
            first = done
        messages = {version: message for version, message in messages.items() if last_use.get(version, -1) > i}
    last = journal.get("state")
    difference = 0.0
    if last is not None:
        end = np.asarray(unpacked(last.body, shapes_of(server)).w)
        difference = float(np.max(np.abs(end - np.asarray(server.w))) / max(float(np.max(np.abs(end))), 1e-300))
    return Replayed(len(history), first, difference, server.w, memories)


def _after(run: Run, server: Any, done: Exchanged, replies: dict[int, Reply], shapes: list[Tree], i: int) -> Any:
    weight = {one.job.k: one.weight for one in done.counted}
    sums = summed(run, replies, weight, shapes[done.e])
    stale = {one.job.k: float(i - one.version) for one in done.counted}
    total = sum(weight.values())
    staleness = sum(weight[k] * stale[k] for k in weight) / total if total else 0.0
    return updated(run.algorithm, server, sums, run.key, done.t, True, done.e, jnp.asarray(staleness))[0]
