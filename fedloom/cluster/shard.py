"""A shard: some of the clients with their memories, and their part in each exchange. Nothing here knows of Ray.

Client k belongs to shard k mod S. A part is computed by one program on one device, whoever computes it, and the server
adds up parts in the order of shards. So the bits depend on S, and neither on the number of machines nor on failures.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import Draw
from fedloom.engines.aggregate import ClientReport, Sums
from fedloom.engines.keys import keys_of_rounds
from fedloom.engines.lanes import CohortArrays, cohort_arrays, run_lanes
from fedloom.engines.memory_store import store_for, write
from fedloom.engines.packing import Packer, Packing
from fedloom.engines.plan import Plan
from fedloom.engines.run import Run
from fedloom.engines.split_solve import Job
from fedloom.engines.trees import Array, Tree
from fedloom.problem import Scalar


class Part(NamedTuple):
    """What a shard does in one exchange."""

    shard: int
    number: int  # of the parts that the shard did before: it goes through all of its own, in order
    t: int
    e: int
    draw: Draw  # its own clients of the cohort
    room: int  # for a whole cohort, so that all parts are one program
    active: bool  # has somebody counted in every exchange before this one in the round?


class Answer(NamedTuple):
    """What comes of a part."""

    sums: Sums  # total None: the same as replies
    report: ClientReport  # [clients of the part]
    seconds: float  # that it took


def places(draw: Draw, shards: int) -> dict[int, np.ndarray]:
    """Of each shard that has clients in the cohort: their places in it."""
    owner = draw.ids % shards
    return {s: np.flatnonzero(owner == s) for s in np.unique(owner).tolist()}


class Rows(NamedTuple):
    """Memories of clients, on their way from one process to another."""

    ids: np.ndarray  # increasing
    rows: Tree  # [ids, ...]


class Shard:
    """The memories of clients s, s + S, s + 2 S, ..."""

    def __init__(self, run: Run, s: int, shards: int, neighbours: int):
        """neighbours: shards that share the memory of this machine."""
        own = len(range(s, run.federation.clients, shards))
        self.s, self.shards, self.number = s, shards, 0
        self.store = store_for(run.algorithm.init_client(run.w), max(own, 1), neighbours)
        self.changed = np.zeros(max(own, 1), bool)  # since `changes` was last asked

    def slots(self, ids: Array) -> np.ndarray:
        return self.store.slots(np.asarray(ids) // self.shards)

    def lend(self, part: Part) -> Tree:
        """The table in which the part's clients have rows."""
        if part.number != self.number:
            raise RuntimeError(f"shard {self.s} has done {self.number} parts, but is asked for part {part.number}")
        return self.store.lend(part.draw.ids // self.shards, part.room)

    def take_back(self, part: Part, rows: Tree, report: ClientReport) -> None:
        """The table after the part: committed if and only if the reply counted."""
        self.store.take_back(rows)
        if part.active:
            counted = part.draw.ids[report.finite & (part.draw.weight > 0)] // self.shards
            self.store.known[counted] = self.changed[counted] = True
        self.number += 1

    def read(self, ids: np.ndarray) -> Tree:
        """The memories of these clients, who have some."""
        return jax.tree.map(np.asarray, self.store.read(ids // self.shards))

    def memories(self, since: bool = False) -> Rows:
        """All memories, or those that changed since this was last asked."""
        own = np.flatnonzero(self.changed if since else self.store.known)
        if since:
            self.changed[:] = False
        return Rows(own * self.shards + self.s, jax.tree.map(np.asarray, self.store.read(own)))

    def begin(self, memories: Rows | None, number: int) -> None:
        """Go on from these memories, as they were after so many parts."""
        self.number = number
        if memories is not None and len(memories.ids):
            own = memories.ids // self.shards
            write(self.store, own, memories.rows)
            self.changed[own] = True  # since when, only the one who had them before knew


class Computer:
    """Computes parts, of any shard: it has the data and the program."""

    def __init__(self, run: Run):
        assert run.plan is not None
        self.run, self.blank = run, jax.tree.map(np.asarray, run.algorithm.init_client(run.w))
        self.stateless = not jax.tree.leaves(self.blank)
        self.packer = Packer(run, Plan(run.plan.lanes), vary=True)
        self.federation = jax.tree.map(jnp.asarray, run.federation)

    def __call__(self, part: Part, message: Tree, shard: Shard | None) -> Answer:
        """The answer of a part, whose clients' memories are in `shard`; they need none if it is None."""
        began = time.perf_counter()
        rows = () if shard is None else shard.lend(part)
        slots = np.zeros_like if shard is None else shard.slots
        sums, rows, report = self._run(part, message, rows, slots)
        if shard is not None:
            shard.take_back(part, rows, report)
        return Answer(sums, report, time.perf_counter() - began)

    def _run(self, part: Part, message: Tree, rows: Tree, slots: Any) -> tuple[Sums, Tree, ClientReport]:
        run = self.run
        cohort = cohort_arrays(run.p, [part.draw], slots, 1, part.room)
        keys = keys_of_rounds(run.key, part.t, part.e, cohort.ids, run.solver.lasting)
        cohort = cohort._replace(**keys._asdict())
        packing = self.packer(part.draw, part.room, part.e)
        sums, rows, report = run_part(
            run.algorithm, run.solver, self.federation, message, rows, cohort, packing, part.t, part.active, part.e
        )
        if np.array_equal(part.draw.weight, run.p[part.draw.ids]):  # as usual: then they are the same sums
            sums = sums._replace(total=None)
        sums, report = jax.device_get((sums, report))
        return sums, rows, ClientReport(*(x[: len(part.draw.ids)] for x in report))


@partial(jax.jit, donate_argnames="rows", static_argnames="e")
def run_part(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    message: Tree,
    rows: Tree,
    cohort: CohortArrays,
    packing: Packing,
    t: Scalar,
    active: Scalar,
    e: int,
) -> tuple[Sums, Tree, ClientReport]:
    """Clients' work up to the seam: what the server does with the sums comes after. The cohort is of one round."""
    cohort = jax.tree.map(lambda x: x[0], cohort)
    packing = Packing(packing.owner, *(x[0] for x in packing[1:]))
    job = Job(algorithm, solver, federation, message, e, cohort.key, t)
    return run_lanes(job, cohort, packing, rows, active)
