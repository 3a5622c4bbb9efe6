"""The systems that clients live in, on a simulated clock: devices, links, who is online, and what goes wrong.

A `System` is a value; `over(...)` binds it to a population and answers one question: what becomes of a job that client
k starts at this moment? All randomness is a function of the seed, the client and the number of its job.
"""

import zlib
from typing import NamedTuple

import numpy as np

from fedloom.hyperparameters import Domain, check_fields, choice, count, frozen, optional, positive, static
from fedloom.systems.availability import AVAILABILITIES, Availability, always
from fedloom.systems.compute import COMPUTE, Compute, constant, speeds_domain, speeds_of
from fedloom.systems.delays import Delays, JointModel
from fedloom.systems.faults import FAULTS, Faults, random
from fedloom.systems.network import NETWORKS, Network, links
from fedloom.systems.traces import tuples

__all__ = [
    "AVAILABILITIES",
    "COMPUTE",
    "FAULTS",
    "NETWORKS",
    "SYSTEMS",
    "Course",
    "Courses",
    "Delays",
    "JointModel",
    "System",
    "Work",
]

Rng = np.random.Generator


def _kind(words: str, kind: type, registry: dict[str, type]) -> Domain:
    return Domain(words, lambda v: isinstance(v, kind), registry)


class Work(NamedTuple):
    """What jobs need."""

    bytes_down: int
    bytes_up: int
    steps: np.ndarray  # local steps of each client


class Course(NamedTuple):
    """What becomes of a job: moments on the clock."""

    starts: float
    ready: float  # the message has come down
    done: float  # the computation ends, or is interrupted
    ends: float  # the job is over, whether or not it succeeded
    arrives: float  # the reply reaches the server; inf: never
    again: float  # a copy of it does; inf: there is none
    free: float  # the client can start another job
    fate: str  # "": the reply arrives; else "dropped", "crashed", "lost" or "interrupted"
    whole: float  # seconds of the whole computation
    up: float  # seconds of sending the reply


@frozen
class System:
    """Where and how clients work."""

    compute: Compute = static(
        _kind("a model of computing time such as constant(1.0)", Compute, COMPUTE),
        "how long a job computes",
        default=constant(),
    )
    speeds: float | tuple[float, ...] = static(
        speeds_domain, "how many times the fastest client is faster than the slowest; or a speed for each", default=1.0
    )
    network: Network = static(
        _kind("a network such as links(up=1e6)", Network, NETWORKS), "how long messages travel", default=links()
    )
    availability: Availability = static(
        _kind("an availability model such as diurnal()", Availability, AVAILABILITIES),
        "when clients are online",
        default=always(),
    )
    faults: Faults = static(
        _kind("a fault model such as random(lost=0.1)", Faults, FAULTS), "what goes wrong", default=random()
    )
    deadline: float | None = static(optional(positive), "seconds after which a synchronous round ends", default=None)
    late: str = static(choice("drop", "partial"), "at the deadline, work that is not finished", default="drop")
    enough: int | None = static(optional(count), "replies with which a synchronous round ends", default=None)

    @property
    def partial_work(self) -> bool:
        """May some clients have time for a part of their work only?"""
        return self.deadline is not None and self.late == "partial"

    @property
    def loses_nobody(self) -> bool:
        """Does every client that is asked reply, and is it counted?"""
        whole = isinstance(self.availability, always) and self.faults.never
        return whole and self.deadline is None and self.enough is None

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "speeds", tuples(self.speeds))

    def over(self, work: Work, seed: int) -> "Courses":
        """Bind to a population, with the work that its jobs need."""
        return Courses(self, work, seed)


PARTS: dict[str, dict[str, type]] = {
    "compute": COMPUTE,
    "network": NETWORKS,
    "availability": AVAILABILITIES,
    "faults": FAULTS,
}
SYSTEMS: dict[str, type] = {"simulated": System, "delays": Delays}


class Courses:
    """A system bound to a population: it knows what becomes of every job. Jobs of a client are asked for in turn."""

    def __init__(self, system: System, work: Work, seed: int):
        self.work, self.seed, self.clients = work, seed, len(work.steps)
        self.speeds = speeds_of(system.speeds, self.clients, self.rng("speeds"))
        self.links = system.network.over(self.clients, self.rng("links"))
        self.window = system.availability.over(self.clients, lambda k: self.rng("online", k))
        self._seconds = system.compute.over(self.clients)
        self._faults = system.faults
        self._rngs: dict[int, Rng] = {}
        self._jobs: dict[int, int] = {}

    def rng(self, what: str, k: int = 0) -> Rng:
        """The generator for one purpose of client k, or of the population if k is -1."""
        return np.random.default_rng([self.seed, zlib.crc32(what.encode()), k + 1])  # -1: of all

    def start(self, k: int, now: float, part: float = 1.0) -> Course:
        """Client k starts a job with the given part of its usual work. It must be online."""
        rng = self._rngs.get(k)
        if rng is None:
            rng = self._rngs[k] = self.rng("jobs", k)
        job = self._jobs[k] = self._jobs.get(k, -1) + 1
        seconds = self._seconds(rng, k, job, float(self.work.steps[k]) * part) / float(self.speeds[k])
        fault = self._faults.of_job(rng)
        if not np.isfinite(seconds):
            raise ValueError(f"compute: a job of client {k} takes {seconds} seconds; choose times that are finite.")
        ready = now + self.links.latency + self.work.bytes_down / float(self.links.down[k])
        done = ready + seconds * fault.when
        up = self.links.latency + self.work.bytes_up / float(self.links.up[k])
        broken = fault.fate in ("dropped", "crashed")
        sent = done if broken else done + up
        leaves = self.window(k, now)[1]
        if leaves < sent:  # a client that goes offline abandons its job
            return Course(
                now, min(ready, leaves), min(done, leaves), leaves, np.inf, np.inf, leaves, "interrupted", seconds, up
            )
        arrives = np.inf if fault.fate else sent
        again = sent + up if fault.duplicate and sent + up <= leaves else np.inf
        return Course(now, ready, done, sent, arrives, again, sent + fault.pause, fault.fate, seconds, up)
