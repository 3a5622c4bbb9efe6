"""Beyond one machine: clients in the workers of a Ray cluster. Ray is imported in this package only."""

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule
from fedloom.engines.checks import checked
from fedloom.engines.choose_plan import sharded
from fedloom.engines.plan import Plan
from fedloom.engines.records import Record
from fedloom.engines.run import Run
from fedloom.systems import System


def need_ray(run: Run | None = None) -> None:
    """Raise a sentence if Ray is not installed, or if a cluster cannot run this."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError("The engine ray needs Ray, which is not installed: pip install 'fedloom[ray]'.")
    if run is not None and run.plan is not None and run.plan.devices > 1:
        raise ValueError("plan: on a cluster a part of a cohort runs on one device; leave the number of devices out.")


def on_ray(
    algorithm: Algorithm,
    federation: Federation | Callable[[], Federation],
    solver: Solver,
    w: Any,
    rounds: int,
    *,
    cohort: CohortRule | None = None,
    seed: int = 0,
    chunk: int = 1,
    on_nonfinite: str = "raise",
    resume: Record | None = None,
    plan: Plan | None = None,
    system: System | None = None,
    shards: int | None = None,
    address: str | None = None,
) -> Iterator[Record]:
    """`simulate` with its clients in the workers of a Ray cluster: the same records, up to rounding.

    Client k and its memory belong to shard k mod `shards`, and the bits depend on the number of shards only: neither on
    the number of machines, nor on workers that die.

    Args:
        algorithm, solver, w, rounds, cohort, seed, chunk, on_nonfinite, resume, system: as `simulate` has them.
        federation: the clients; or a function without arguments that makes them, which every worker calls, so that data
            are read or generated where they are needed and do not travel.
        plan: Plan(lanes): clients side by side in each worker.
        shards: into how many parts the clients are divided; by default some for each CPU of the cluster.
        address: of the cluster, such as "auto"; None starts Ray on this machine alone, unless this process is connected
            to a cluster already.

    Yields:
        Records. Their `clients` are read from the workers.
    """
    need_ray()
    from fedloom.cluster.connect import connect, usual_shards
    from fedloom.cluster.engine import run_records

    made = federation() if callable(federation) else federation
    run = checked(algorithm, made, solver, w, rounds, cohort, seed, on_nonfinite, resume, system, plan=plan)
    need_ray(run)
    connect(address)
    run = sharded(run, shards, usual_shards)
    assert run.plan is not None
    given = (algorithm, solver, np.asarray(run.w), rounds, cohort, seed, on_nonfinite, system, run.plan)
    data = federation if callable(federation) else _shipped(made)
    return run_records(run, partial(_again, *given), (data,), chunk)


def _shipped(federation: Federation) -> Any:
    """The federation, put where every node gets it once."""
    import ray

    return ray.put(jax.tree.map(np.asarray, federation))


def _again(
    algorithm: Algorithm,
    solver: Solver,
    w: np.ndarray,
    rounds: int,
    cohort: CohortRule | None,
    seed: int,
    on_nonfinite: str,
    system: System | None,
    plan: Plan,
    data: Any,
) -> Run:
    """The run, in a worker."""
    import ray

    found = ray.get(data) if isinstance(data, ray.ObjectRef) else data
    federation = found() if callable(found) and not isinstance(found, Federation) else found
    run = checked(algorithm, federation, solver, w, rounds, cohort, seed, on_nonfinite, None, system)
    return run._replace(plan=plan)
