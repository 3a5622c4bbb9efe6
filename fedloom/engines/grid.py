"""Several points of a grid side by side: the compiled engine's rounds, vectorised over hyperparameters.

Points have one structure and differ in numbers, such as step sizes. They share data, cohorts and keys, so each is the
run that `simulate` makes of it, up to rounding. A point that becomes NaN does not disturb the others.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.sharding import NamedSharding, PartitionSpec

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule, Draw
from fedloom.engines.aggregate import Outcome
from fedloom.engines.bookkeeping import with_rounds
from fedloom.engines.calls import arrays_of, calls
from fedloom.engines.checks import check_chunk, checked
from fedloom.engines.choose_plan import as_wide_as_the_cohort
from fedloom.engines.costs import message_sizes
from fedloom.engines.packing import Packer
from fedloom.engines.processes import several
from fedloom.engines.records import Counters, NonFiniteUpdate, Record, Sizes
from fedloom.engines.run import Run
from fedloom.engines.sync_clock import NoClock
from fedloom.engines.sync_program import AXIS, mesh, on_devices, run_rounds, with_keys
from fedloom.engines.trees import Tree, nbytes
from fedloom.problem import Vector

SMALL_MODEL = (
    100_000  # parameters of a model up to which points run side by side; a larger one keeps the cores busy alone
)
BUDGET = 512 * 2**20  # bytes for the states of all points: servers, memories of all clients, the cohort at work
MOST_POINTS = 100  # points at once: more gain no speed, and each has a log open
_ROWS = 4  # the place of the memories among the program's arguments
_COPIES = 4  # of the model that a client at work holds: start, model, gradient, reply


class Diverged(NamedTuple):
    """Since when a point is not finite, and why."""

    round: int  # from 1
    words: str


class GridRecord(NamedTuple):
    """All points after `round` rounds."""

    round: int
    servers: Tree  # the servers' states, with the points as the first axis of every array
    points: tuple[Record, ...]  # counters, residual and unsolved of each point; as they were when it diverged
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
            f"A grid needs at least one algorithm, and a solver for each; got {len(algorithms)} algorithms and "
            f"{len(solvers)} solvers."
        )
    # What can be wrong is wrong with all: domains were checked when the points were made.
    run = checked(algorithms[0], federation, solvers[0], w, rounds, cohort=cohort, seed=seed)
    return run_records(run, algorithms, solvers, chunk)


def run_records(
    run: Run, algorithms: Sequence[Algorithm], solvers: Sequence[Solver], chunk: int = 1
) -> Iterator[GridRecord]:
    """The records of points that share a checked run, except for its algorithm and solver."""
    check_chunk(chunk)
    pairs = list(zip(algorithms, solvers, strict=True))
    for pair in pairs:
        if structure(pair) != structure(pairs[0]):
            raise ValueError(
                f"The points of a grid may differ in numbers only, but {pairs[0]!r} and {pair!r} differ in structure."
            )
    run = run._replace(algorithm=algorithms[0], solver=solvers[0])
    return _records(run, pairs, message_sizes(run), chunk)


def structure(point: Any) -> Any:
    """What points must have in common: all but the numbers."""
    leaves, tree = jax.tree.flatten(point)
    return tree, [np.shape(x) for x in leaves]


def points_at_once(run: Run) -> int:
    """How many points like this run to run side by side; 1: run each alone, with `simulate`."""
    if run.w.size > SMALL_MODEL or run.federation.on_host:
        return 1
    clients, room = run.federation.clients, run.cohort_room
    memory, server = (nbytes(jax.eval_shape(init, run.w)) for init in (run.algorithm.init_client, run.algorithm.init))
    state = 2 * server + (clients + 2 * room) * memory + _COPIES * room * nbytes(run.w)
    return int(min(max(BUDGET // state, 1), MOST_POINTS))


@cache
def _program(devices: int) -> Callable[..., tuple[Tree, Tree, tuple[Outcome, ...]]]:
    """The rounds of all points; each device has its share of them."""
    run = jax.vmap(run_rounds, in_axes=(0, 0, None, 0, 0, None, None, None, None))
    if devices > 1:
        own, same = PartitionSpec(AXIS), PartitionSpec()
        specs = (own, own, same, own, own, same, same, same, same)
        run = jax.shard_map(run, mesh=mesh(devices), in_specs=specs, out_specs=own, check_vma=False)
    # A short sweep on a CPU is mostly compilation, and LLVM's level 2 makes its rounds no faster than level 1.
    options = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else None
    return jax.jit(run, donate_argnums=_ROWS, compiler_options=options)


def _shared_out(tree: Tree, devices: int) -> Tree:
    """Each device gets its own points, as the program returns them: else its second call would compile it again."""
    return jax.device_put(tree, NamedSharding(mesh(devices), PartitionSpec(AXIS)) if devices > 1 else None)


def _records(run: Run, pairs: list[tuple[Algorithm, Solver]], sizes: Sizes, chunk: int) -> Iterator[GridRecord]:
    """`run` is that of the first point; the others share all of it but algorithm, solver and state."""
    devices = 1 if several() else min(jax.local_device_count(), len(pairs))  # a mesh would be of all processes
    federation = on_devices(jax.tree.map(jnp.asarray, run.federation), devices)
    padded = pairs + pairs[-1:] * (-len(pairs) % devices)  # equally many for each device
    blank = _stacked([algorithm.init_client(run.w) for algorithm, _ in padded])
    algorithms, solvers, servers, rows = _shared_out(
        (
            *_stacked(padded, run.w.dtype),
            _stacked([algorithm.init(run.w) for algorithm, _ in padded]),
            jax.tree.map(lambda x: np.repeat(x[:, None], federation.clients, axis=1), blank),
        ),
        devices,
    )
    points = [run.start] * len(pairs)
    diverged: list[Diverged | None] = [None] * len(pairs)
    packer = Packer(run, as_wide_as_the_cohort(run))
    for t, draws, packings, _, _ in calls(run, NoClock(run), packer, chunk, chunk):
        cohorts = arrays_of(run, draws, lambda ids: ids, chunk)  # every client has its own row
        cohorts = on_devices(with_keys(cohorts, run.key, t, run.solver), devices)
        servers, rows, outcomes = _program(devices)(
            algorithms, solvers, federation, servers, rows, cohorts, packings, t, len(draws)
        )
        outcomes = jax.device_get(outcomes)
        for p in range(len(pairs)):
            if diverged[p] is None:
                own = jax.tree.map(lambda x, p=p: x[p], outcomes)
                points[p], diverged[p] = _counted(run, points[p], t, draws, own, sizes)
        t += len(draws)
        if run.has_record(t, chunk):
            real = servers if len(padded) == len(pairs) else jax.tree.map(lambda x: x[: len(pairs)], servers)
            yield GridRecord(t, real, tuple(points), tuple(diverged))
            points = [point.fresh() for point in points]


def _counted(
    run: Run, point: Record, t: int, draws: list[list[Draw]], outcomes: tuple[Outcome, ...], sizes: Sizes
) -> tuple[Record, Diverged | None]:
    """A point's record after some rounds, or up to the one in which it diverged."""
    try:
        return with_rounds(run, point, t, draws, outcomes, sizes), None
    except NonFiniteUpdate as error:
        good = error.round - 1 - t
        before = with_rounds(run, point, t, draws[:good], outcomes, sizes) if good else point
        return before, Diverged(error.round, str(error))


def _stacked(trees: Sequence[Any], dtype: Any = None) -> Any:
    """Trees of one structure as one, with a new first axis. Python's numbers adapt to a model's type, arrays do not."""

    def of_leaves(*leaves: Any) -> Any:
        stacked = np.stack([np.asarray(x) for x in leaves])
        return stacked.astype(
            dtype if dtype and stacked.dtype.kind == "f" else dtypes.canonicalize_dtype(stacked.dtype)
        )

    return jax.tree.map(of_leaves, *trees)
