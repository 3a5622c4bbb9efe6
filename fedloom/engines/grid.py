"""Several points of a grid side by side: the compiled engine's rounds, vectorised over hyperparameters.

Points have one structure and differ in numbers, such as step sizes. They share data, cohorts and keys, so each is the
run that `simulate` makes of it, up to rounding. A point that becomes NaN does not disturb the others.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule, Draw, everyone
from fedloom.engines.measure import side_by_side
from fedloom.engines.plan import Packing, Plan
from fedloom.engines.prepare import prepare
from fedloom.engines.program import AXIS, Outcome, mesh, message_sizes, on_devices, run_rounds
from fedloom.engines.run import Counters, NonFiniteUpdate, Record, Run, nbytes
from fedloom.engines.simulate import calls, check_chunk, count, filled_trips, is_seen
from fedloom.problem import Vector

SMALL = 100_000  # parameters of a model up to which points run side by side; a larger one keeps the cores busy alone
BUDGET = 512 * 2**20  # bytes for the states of all points: servers, memories of all clients, the cohort at work
MOST = 100  # points at once: more gain no speed, and each has a log open
_COPIES = 4  # of the model that a client at work holds: start, model, gradient, reply


class Diverged(NamedTuple):
    """Since when a point is not finite, and why."""

    round: int  # from 0, as in the words
    words: str


class GridRecord(NamedTuple):
    """All points after `round` rounds."""

    round: int
    servers: Any  # the servers' states, with the points as the first axis of every array
    points: tuple[Record, ...]  # the books of each point: counters, residual, unsolved; as they were when it diverged
    diverged: tuple[Diverged | None, ...]

    @property
    def w(self) -> Vector:
        """The models [points, d]."""
        return self.servers.w

    @property
    def counters(self) -> tuple[Counters, ...]:
        return tuple(point.counters for point in self.points)

    def point(self, i: int) -> Record:
        """One point's record, without the memories of its clients."""
        return self.points[i]._replace(round=self.round, server=jax.tree.map(lambda x: x[i], self.servers))


def simulate_grid(
    algorithms: Sequence[Algorithm],
    federation: Federation,
    solvers: Sequence[Solver],
    w: Any,
    rounds: int,
    *,
    cohort: CohortRule | None = None,
    seed: int = 0,
    chunk: int = 1,
) -> Iterator[GridRecord]:
    """Run the points (algorithms[i], solvers[i]) as `simulate` would run each, in one compiled program.

    Yields:
        A record at the end of each chunk. Nothing is raised for a point that is not finite: its record says so.
    """
    if not algorithms or len(algorithms) != len(solvers):
        raise ValueError(
            f"A grid needs points, and a solver for each algorithm; got {len(algorithms)} algorithms and "
            f"{len(solvers)} solvers."
        )
    check_chunk(chunk)
    pairs = list(zip(algorithms, solvers, strict=True))
    for pair in pairs:
        if structure(pair) != structure(pairs[0]):
            raise ValueError(
                f"The points of a grid may differ in numbers only, but {pairs[0]!r} and {pair!r} are of two structures."
            )
    # What can be wrong is wrong with all: domains were checked when the points were made.
    run = prepare(algorithms[0], federation, solvers[0], w, rounds, cohort, seed, "raise", None)
    return _records(run, pairs, message_sizes(run), chunk)


def structure(point: Any) -> Any:
    """What points must have in common: all but the numbers."""
    leaves, tree = jax.tree.flatten(point)
    return tree, [np.shape(x) for x in leaves]


def points_at_once(algorithm: Algorithm, federation: Federation, w: Vector, cohort: CohortRule | None = None) -> int:
    """How many points of this structure to run side by side; 1: run each alone, with `simulate`."""
    if w.size > SMALL:
        return 1
    lanes = (everyone() if cohort is None else cohort).room(federation.clients)
    memory, server = (nbytes(jax.eval_shape(init, w)) for init in (algorithm.init_client, algorithm.init))
    state = 2 * server + (federation.clients + 2 * lanes) * memory + _COPIES * lanes * nbytes(w)
    return int(min(max(BUDGET // state, 1), MOST))


def _run_points(
    algorithms: Any, solvers: Any, federation: Any, servers: Any, rows: Any, *rest: Any, devices: int
) -> Any:
    """The rounds of all points; each device has its share of them."""
    run = jax.vmap(run_rounds, in_axes=(0, 0, None, 0, 0, None, None, None, None, None))
    if devices > 1:
        own, all_same = PartitionSpec(AXIS), PartitionSpec()
        specs = (own, own, all_same, own, own, *(all_same for _ in rest))
        run = jax.shard_map(run, mesh=mesh(devices), in_specs=specs, out_specs=own, check_vma=False)
    return run(algorithms, solvers, federation, servers, rows, *rest)


_run_points = jax.jit(_run_points, donate_argnames="rows", static_argnames="devices")


def _records(
    run: Run, pairs: list[tuple[Algorithm, Solver]], sizes: list[tuple[int, int]], chunk: int
) -> Iterator[GridRecord]:
    """`run` is that of the first point; the others share all of it but algorithm, solver and state."""
    devices = min(jax.local_device_count(), len(pairs))
    federation = on_devices(jax.tree.map(jnp.asarray, run.federation), devices)
    padded = pairs + pairs[-1:] * (-len(pairs) % devices)  # equally many for each device
    algorithms, solvers = _stacked(padded, run.w.dtype)
    servers = _stacked([algorithm.init(run.w) for algorithm, _ in padded])
    blank = _stacked([algorithm.init_client(run.w) for algorithm, _ in padded])
    rows = jax.tree.map(lambda x: jnp.repeat(x[:, None], federation.clients, axis=1), blank)
    points = [run.start] * len(pairs)
    diverged: list[Diverged | None] = [None] * len(pairs)
    packing = Packing(run, side_by_side(run, Packing(run, Plan(1))))
    for t, draws, schedules, _, _ in calls(run, packing, chunk, chunk):
        trips = filled_trips(run, draws, lambda ids: ids, chunk)  # every client has its own row
        servers, rows, outcomes = _run_points(
            algorithms, solvers, federation, servers, rows, trips, schedules, run.key, t, len(draws), devices=devices
        )
        outcomes = jax.device_get(outcomes)
        for p in range(len(pairs)):
            if diverged[p] is None:
                own = jax.tree.map(lambda x, p=p: x[p], outcomes)
                points[p], diverged[p] = _counted(run, points[p], t, draws, own, sizes)
        t += len(draws)
        if is_seen(run, t, chunk):
            yield GridRecord(t, jax.tree.map(lambda x: x[: len(pairs)], servers), tuple(points), tuple(diverged))
            points = [point._replace(residual=None, unsolved=0) for point in points]


def _counted(
    run: Run,
    point: Record,
    t: int,
    draws: list[list[Draw]],
    outcomes: tuple[Outcome, ...],
    sizes: list[tuple[int, int]],
) -> tuple[Record, Diverged | None]:
    """The books of a point after some rounds, or up to the one in which it diverged."""
    try:
        return count(run, point, t, draws, outcomes, sizes), None
    except NonFiniteUpdate as error:
        good = error.round - t
        return count(run, point, t, draws[:good], outcomes, sizes) if good else point, Diverged(error.round, str(error))


def _stacked(trees: Sequence[Any], dtype: Any = None) -> Any:
    """Trees of one structure as one, with a new first axis. Python's numbers adapt to a model's type, arrays do not."""

    def of_leaves(*leaves: Any) -> Any:
        stacked = np.stack([np.asarray(x) for x in leaves])
        return jnp.asarray(stacked.astype(dtype) if dtype and stacked.dtype.kind == "f" else stacked)

    return jax.tree.map(of_leaves, *trees)
