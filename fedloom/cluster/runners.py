"""Whole runs in parallel: processes on all CPUs of the cluster that work through a list of calls."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import ray
from ray.exceptions import RayActorError, RayTaskError

from fedloom.cluster.connect import cluster_cpus
from fedloom.cluster.staff import dismiss_all
from fedloom.cluster.worker import check_versions, keep_programs, versions_here

MOST_TRIES = 5  # of one call: its process may die for reasons of its own
POLL = 0.5  # seconds between two looks at what runs have logged


class Runner:
    """A process that makes one call after another."""

    def __init__(self, versions: dict[str, str], float64: bool, devices: int) -> None:
        """Be like the driver, down to the number of JAX's devices, on which plans depend."""
        self.versions = versions
        keep_programs()
        jax.config.update("jax_num_cpu_devices", devices)
        jax.config.update("jax_enable_x64", float64)

    def call(self, function: Callable[..., Any], given: Sequence[Any]) -> Any:
        check_versions(self.versions)
        return function(*given)


def run_calls(
    function: Callable[..., Any], calls: Sequence[Sequence[Any]], watch: Callable[[set[int]], None]
) -> Iterator[tuple[int, Any]]:
    """The places and values of function(*call) for all calls, as they come.

    `watch` is told again and again which calls are being made. A call whose process dies is made again by another: it
    must be able to go on with what it finds.
    """
    dismiss_all()  # their CPUs are needed
    waiting, tries = deque(range(len(calls))), [0] * len(calls)
    runners = [_runner() for _ in range(min(cluster_cpus()[0], len(calls)))]
    idle, busy = list(runners), dict[Any, tuple[int, Any]]()
    try:
        while waiting or busy:
            while waiting and idle:
                runner, i = idle.pop(), waiting.popleft()
                tries[i] += 1
                busy[runner.call.remote(function, calls[i])] = i, runner
            watch({i for i, _ in busy.values()})
            ready, _ = ray.wait(list(busy), timeout=POLL)
            for call in ready:
                i, runner = busy.pop(call)
                try:
                    value = ray.get(call)
                except RayTaskError as error:
                    raise error.cause from error
                except RayActorError as error:
                    if tries[i] == MOST_TRIES:
                        raise RuntimeError(
                            f"A process of the cluster died {MOST_TRIES} times with the same run; the last time: "
                            f"{str(error).strip().splitlines()[0]}"
                        ) from error
                    waiting.appendleft(i)
                    runners.append(_runner())
                    idle.append(runners[-1])
                    time.sleep(POLL)
                    continue
                idle.append(runner)
                yield i, value
    finally:
        for runner in runners:
            with contextlib.suppress(Exception):
                ray.kill(runner)


def _runner() -> Any:
    double = jax.dtypes.canonicalize_dtype(float) == "float64"
    return (
        ray.remote(Runner)
        .options(max_restarts=0, max_task_retries=0, num_cpus=1)
        .remote(versions_here(), bool(double), jax.local_device_count())
    )
