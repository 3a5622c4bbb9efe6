"""Workers come and go: how they are hired, dismissed, and handed on from one run to the next."""

import contextlib
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ray
from ray.exceptions import NodeDiedError, ObjectLostError, OwnerDiedError, RayActorError, RayTaskError

from fedloom.cluster.worker import Terms, Worker
from fedloom.engines.run import Run

# A worker or its node is gone, or cannot be reached, or what it made is lost with it.
LOST = (RayActorError, ObjectLostError, OwnerDiedError, NodeDiedError)
MOST_TRIES = 20  # workers in a row that die before they can begin
PATIENCE = 120.0  # seconds to wait for a first worker


class Kind(NamedTuple):
    """What a worker is for as long as it lives."""

    cpus: float
    float64: bool


# Of runs that have ended, in this process. They stay for their run's last record, whose memories they have, until
# another run needs workers; then it takes theirs, because a new one takes seconds to start.
ended: "weakref.WeakSet[Staff]" = weakref.WeakSet()
free: list[tuple[Kind, Any]] = []  # workers without a run


def dismiss_all() -> None:
    """End all workers that no run needs."""
    for staff in list(ended):
        staff.dismiss()
    while free:
        _end(free.pop()[1])


def _end(worker: Any) -> None:
    with contextlib.suppress(Exception):
        ray.kill(worker)


class Staff:
    """The workers of one run."""

    def __init__(self, make: Callable[..., Run], given: Sequence[Any], terms: Terms, kind: Kind):
        self.make, self.given, self.terms, self.kind = make, given, terms, kind
        self.workers: dict[int, Any] = {}
        self.coming: dict[int, tuple[Any, Any]] = {}  # workers that are about to begin, with the call that they answer
        self.lost: list[str] = []  # what happened to workers
        self.hired = self.stillborn = 0  # of all; of those that died before they could begin, in a row
        self.gone = False  # have they been dismissed?

    def hire(self, workers: int) -> None:
        """Get the first workers; those of runs that have ended, if there are any."""
        for staff in list(ended):
            staff.dismiss()
        for _ in range(workers):
            self._hire()
        try:
            self.wait_for_workers(every=True)
        except Exception:
            self.dismiss()
            raise

    def _hire(self) -> None:
        """Ask for one more worker. It may take long until a node has room for it."""
        same = [i for i, (kind, _) in enumerate(free) if kind == self.kind]
        if same:
            _, new = free.pop(same[0])
        else:
            new = (
                ray.remote(Worker)
                .options(max_restarts=0, max_task_retries=0, num_cpus=self.kind.cpus, scheduling_strategy="SPREAD")
                .remote(max(1, int(self.kind.cpus)), self.kind.float64)
            )
        self.coming[self.hired] = new, new.begin.remote(self.make, self.given, self.terms)
        self.hired += 1

    def wait_for_workers(self, every: bool = False) -> None:
        """Let workers join that have begun; wait for the first, or for every one."""
        until = time.monotonic() + PATIENCE
        while self.coming:
            wait = min(1.0, until - time.monotonic()) if every or not self.workers else 0.0
            ready, _ = ray.wait([call for _, call in self.coming.values()], timeout=max(wait, 0.0))
            for w in [w for w, (_, call) in self.coming.items() if call in ready]:
                worker, call = self.coming.pop(w)
                try:
                    ray.get(call)
                except RayTaskError as error:
                    words = f"{self._place(worker)}: {error.cause}"
                    _end(worker)
                    if every or not self.workers:
                        raise ValueError(words) from error
                    self.lost.append(f"one that was to replace it is not like the others. {words}")
                    continue
                except LOST as error:  # a node may be about to be declared dead
                    self.stillborn += 1
                    if self.stillborn == MOST_TRIES:
                        raise RuntimeError(
                            f"{MOST_TRIES} workers in a row could not begin; the last one: {brief(error)}. Is FedLoom "
                            "installed on all nodes?"
                        ) from error
                    self._hire()
                    time.sleep(0.1)
                    continue
                self.workers[w], self.stillborn = worker, 0
            if not ready and time.monotonic() >= until and not self.workers:
                raise RuntimeError(
                    f"No worker has begun within {PATIENCE:.0f} s, because the cluster has no free CPU. `ray status` "
                    "shows how many are in use; in this process, another run that has not ended may have them."
                )
            if (not every and self.workers) or (every and time.monotonic() >= until):
                return

    def dismiss(self) -> None:
        """Set all workers free."""
        ended.discard(self)
        free.extend((self.kind, worker) for worker in self.workers.values())
        for worker, _ in self.coming.values():
            _end(worker)
        self.workers, self.coming, self.gone = {}, {}, True

    def _place(self, worker: Any) -> str:
        with contextlib.suppress(*LOST, RayTaskError):
            return f"Node {ray.get(worker.where.remote(), timeout=5)[0]} of the cluster"
        return "A node of the cluster"

    def bury(self, w: int, why: str) -> None:
        """A worker is dead, or must be taken for dead: then it does nothing more."""
        self.lost.append(why)
        _end(self.workers.pop(w))
        self._hire()


def got(call: Any) -> Any:
    """What a call returned. An error inside FedLoom or a user's code is that error."""
    try:
        return ray.get(call)
    except RayTaskError as error:
        if isinstance(error, LOST) or isinstance(error.cause, LOST):
            raise RayActorError from error
        raise error.cause from error


def brief(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".:")
