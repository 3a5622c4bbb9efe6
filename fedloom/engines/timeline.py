"""The order of events of an asynchronous run: who starts when, and whose reply is counted when.

Nothing here depends on the numbers that clients compute, so the host can look ahead, and the engine is free to choose
what is computed in which batch. It also makes resuming simple: the timeline is replayed without computing.
"""

import heapq
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fedloom.cohorts import Draw
from fedloom.engines.clock import FATES, Clock, Stalled
from fedloom.systems import Course, Courses, JointModel

REPLY, END, WAKE = range(3)  # events of one moment come in this order
MOST_EMPTY_COHORTS = 3  # cohorts of which nobody can start, before the server takes anybody


class Flight(NamedTuple):
    """One job of one client, from its start to its end."""

    number: int  # of all jobs of the run, in the order in which they start
    client: int
    place: int  # where its reply is kept until it is counted
    wave: int  # the cohort that it was drawn in; with the client, this determines its randomness
    t: int  # rounds' worth of replies that were counted when it started: the time of step size schedules
    weight: float  # in the mean
    work: float  # the part of the usual work
    version: int  # server updates before it started: the model that it has
    course: Course


class Stage(NamedTuple):
    """From one server update to the next."""

    starts: list[Flight]  # jobs that start with the model of this version
    counted: list[Flight]  # jobs whose replies make the next version, in the order in which they arrive


class Timeline:
    """An endless sequence of stages.

    Up to `seats` jobs are in flight. `draw(wave)` names clients to start next; those who are offline, at work, or whose
    last reply waits in the buffer are passed over. If cohorts have nobody else, anybody who can start does.
    """

    def __init__(self, courses: Courses, draw: Callable[[int], Draw], weight: np.ndarray, seats: int, buffer: int):
        self.courses, self.draw, self.weight, self.seats, self.buffer = courses, draw, weight, seats, buffer
        n = courses.clients
        self.events: list[tuple[float, int, int, Flight | None]] = []  # (moment, kind, order, job)
        self.order = 0
        # Clients: is its last job neither counted nor gone? Until when is it known to be offline? Its last reply's job?
        self.busy, self.offline_until, self.last = np.zeros(n, bool), np.zeros(n), np.full(n, -1)
        self.idle_clients = n
        # The server: who is named next, which places are free, what has started with this version.
        self.wave, self.position, self.cohort = 0, 0, draw(0)
        self.look_again = 0.0  # before this moment nobody comes online who is known to be offline
        self.places = list(range(seats + buffer))[::-1]
        self.starts: list[Flight] = []
        self.version = 0
        # Totals.
        self.now, self.started, self.replies, self.in_flight = 0.0, 0, 0, 0
        self.ended = self.underway = 0.0  # seconds of jobs that have ended; sum of the starts of those in flight
        self.fates = dict.fromkeys(FATES, 0)
        self.wasted, self.duplicates = 0.0, 0
        self.without_reply = 0  # jobs that have failed since the last reply
        self.staleness: list[int] = []

    def __iter__(self) -> Iterator[Stage]:
        self._fill()
        waiting: list[Flight] = []
        while True:
            if not self.events:
                kept = f" ({len(waiting)} replies wait until there are {self.buffer})" if waiting else ""
                raise Stalled(f"After second {self.now:g} nobody else can start{kept}, so the run cannot continue.")
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                _, kind, _, flight = heapq.heappop(self.events)
                if flight is None:
                    continue
                if kind == END:
                    self._end(flight)
                elif self._is_new(flight):
                    waiting.append(flight)
                    if len(waiting) == self.buffer:
                        for counted in waiting:
                            self._count(counted)
                        starts, self.starts = self.starts, []
                        self.version += 1
                        yield Stage(starts, waiting)
                        waiting = []
            self._fill()

    def clock(self) -> Clock:
        """The totals at the moment of the last stage."""
        idle = self.seats * self.now - self.ended - (self.in_flight * self.now - self.underway)
        return Clock(
            seconds=self.now,
            jobs=self.started,
            replies=self.replies,
            idle=max(idle, 0.0),
            wasted=self.wasted,
            duplicates=self.duplicates,
            staleness=tuple(self.staleness),
            **self.fates,
        )

    def _is_new(self, flight: Flight) -> bool:
        """A client has one job in flight, so a reply is a copy unless its job is newer than the last that replied."""
        if flight.number <= self.last[flight.client]:
            self.duplicates += 1
            return False
        self.last[flight.client] = flight.number
        self.without_reply = 0
        return True

    def _count(self, flight: Flight) -> None:
        stale = self.version - flight.version
        self.staleness += [0] * (stale + 1 - len(self.staleness))
        self.staleness[stale] += 1
        self.replies += 1
        self._release(flight)

    def _release(self, flight: Flight) -> None:
        """The client may start anew, and the place of its reply is free."""
        self.busy[flight.client] = False
        self.idle_clients += 1
        self.look_again = 0.0
        self.places.append(flight.place)

    def _end(self, flight: Flight) -> None:
        """The job is over; its seat is empty."""
        self.in_flight -= 1
        self.ended += self.now - flight.course.starts
        self.underway -= flight.course.starts
        if not flight.course.fate:
            return
        self._release(flight)
        self.offline_until[flight.client] = flight.course.free
        self.fates[flight.course.fate] += 1
        self.wasted += flight.course.done - flight.course.ready
        self.without_reply += 1
        if self.without_reply > 1_000 + 10 * self.courses.clients:
            raise Stalled(
                f"None of the last {self.without_reply} jobs led to a reply, up to second {self.now:g}. Do jobs take "
                "longer than clients stay online, or are faults too frequent?"
            )

    def _fill(self) -> None:
        """Start jobs in all empty seats, as far as there are clients for them."""
        if self.in_flight == self.seats or not self.idle_clients or self.now < self.look_again:
            return
        fruitless = 0  # cohorts in a row
        while self.in_flight < self.seats and self.idle_clients and fruitless < MOST_EMPTY_COHORTS:
            fruitless = 0 if self._start_some() else fruitless + 1
        if self.in_flight < self.seats and self.idle_clients:
            self._start_anybody()
        if self.in_flight < self.seats and self.idle_clients:
            self._wait()

    def _start_some(self) -> bool:
        """Start those of the cohort who can while there are seats; if seats are left, draw the next cohort."""
        ids, begun = self.cohort.ids[self.position :], self.started
        for i in (np.flatnonzero(~self.busy[ids] & (self.offline_until[ids] <= self.now)) + self.position).tolist():
            k = int(self.cohort.ids[i])
            if self._online(k):
                self.position = i + 1
                self._start(k, float(self.cohort.weight[i]), float(self.cohort.work[i]))
                if self.in_flight == self.seats:
                    return True
        self.wave, self.position = self.wave + 1, 0
        self.cohort = self.draw(self.wave)
        return self.started > begun

    def _online(self, k: int) -> bool:
        comes, _ = self.courses.window(k, self.now)
        self.offline_until[k] = max(self.offline_until[k], comes)
        return bool(self.offline_until[k] <= self.now)

    def _start_anybody(self) -> None:
        """The cohort rule names nobody who can start, so start whoever can, in random order."""
        idle = np.flatnonzero(~self.busy & (self.offline_until <= self.now))
        for k in self.courses.rng("anybody", self.wave).permutation(idle).tolist():
            if self._online(k):
                self._start(k, float(self.weight[k]), 1.0)
                if self.in_flight == self.seats:
                    break
        # A wave and a client determine randomness, so nobody may start twice in the same wave.
        self.wave, self.position, self.cohort = self.wave + 1, 0, self.draw(self.wave + 1)

    def _start(self, k: int, weight: float, work: float) -> None:
        course = self.courses.start(k, self.now, work)
        t = self.replies // self.seats
        flight = Flight(self.started, k, self.places.pop(), self.wave, t, weight, work, self.version, course)
        self.started += 1
        self.in_flight += 1
        self.busy[k] = True
        self.idle_clients -= 1
        self.underway += self.now
        self.starts.append(flight)
        self._at(course.arrives, REPLY, flight)
        self._at(course.again, REPLY, flight)
        self._at(course.ends, END, flight)

    def _at(self, moment: float, kind: int, flight: Flight | None) -> None:
        if moment < np.inf:
            self.order += 1
            heapq.heappush(self.events, (moment, kind, self.order, flight))

    def _wait(self) -> None:
        """Nobody can start now: look again when a client comes online or is free again."""
        away = self.offline_until[~self.busy & (self.offline_until > self.now)]
        soonest = float(np.min(away)) if len(away) else np.inf
        if soonest != self.look_again:
            self.look_again = soonest
            self._at(soonest, WAKE, None)


class SampledTimeline:
    """Stages of the joint model of user and delay: each counts one reply. A second is an update here.

    The model of a user is at least as new as its own last update, so it has one job at a time here too.
    """

    def __init__(self, model: JointModel, p: np.ndarray, seed: int):
        self.model, self.p, self.seed = model, p, seed
        self.version = 0
        self.last = np.full(model.clients, -1)  # the last update of each user
        self.staleness = [0] * (model.tau + 1)

    def _flight(self, k: int) -> Flight:
        i, d = self.model.draw(np.random.default_rng([self.seed, zlib.crc32(b"delays"), k]), k)
        version = max(k - d, int(self.last[i]) + 1)
        self.last[i] = k
        start, end = float(version), float(k + 1)
        course = Course(start, start, end, end, end, np.inf, end, "", end - start, 0.0)
        return Flight(
            k, i, k % (self.model.tau + 1), k, k // self.model.clients, float(self.p[i]), 1.0, version, course
        )

    def __iter__(self) -> Iterator[Stage]:
        ahead: list[Flight] = []  # of the updates version, version + 1, ..., version + tau
        while True:
            first = self.version + len(ahead)
            new = [self._flight(k) for k in range(first, self.version + self.model.tau + 1)]
            ahead += new
            starts = [f for f in ahead if f.version == self.version]
            counted = ahead.pop(0)
            self.staleness[self.version - counted.version] += 1
            self.version += 1
            yield Stage(starts, [counted])

    def clock(self) -> Clock:
        n = self.version
        return Clock(seconds=float(n), jobs=n, replies=n, staleness=tuple(self.staleness))
