"""Synchronous rounds on a simulated clock: how long they take, and whose reply does not arrive in time."""

import numpy as np

from fedloom.cohorts import Draw
from fedloom.engines.clock import FATES, Clock, Stalled
from fedloom.engines.costs import LocalSteps
from fedloom.engines.records import Sizes
from fedloom.engines.run import Run
from fedloom.systems import Course, System, Work

MOST_EMPTY_ROUNDS = 1000  # rounds without any reply


class NoClock:
    """Rounds that take no time: whoever is drawn is counted."""

    def __init__(self, run: Run):
        self.cohorts = run.cohorts
        self.clock = None
        self.lost = np.zeros((len(run.algorithm.exchanges), 2), int)


def timed(run: Run, sizes: Sizes) -> "SyncClock | NoClock":
    """The rounds of a run under its system, if it has one, from where the run starts; messages have these sizes."""
    if not isinstance(run.system, System):
        return NoClock(run)
    rounds = SyncClock(run, run.system, sizes)
    if run.start.round:
        rounds.cohorts(run.start.round - 1)
        run.check_clock(rounds.clock)
    return rounds


class SyncClock:
    """The rounds of a run under a system, in order. Going back gives the same ones again."""

    def __init__(self, run: Run, system: System, sizes: Sizes):
        self.run, self.system, self.exchanges = run, system, run.algorithm.exchanges
        steps = np.maximum(LocalSteps(run).of_all(), 1)
        self.works = [Work(down, up, steps) for down, up in sizes]
        self._begin()

    def _begin(self) -> None:
        self.clock, self.next = Clock(), 0
        self.courses = self.system.over(self.works[0], self.run.seed)
        self.busy_until: dict[int, float] = {}  # clients that have crashed
        self.without_reply = 0  # rounds since the last reply
        # Messages that went down, and replies that came up, without being counted, so far.
        self.lost = np.zeros((len(self.exchanges), 2), int)

    def cohorts(self, t: int) -> list[Draw]:
        """Who is counted in round t, one cohort for each exchange. Then `clock` is that of the round's end."""
        if t < self.next:
            self._begin()
        while True:
            draws: list[Draw] = []
            for e, exchange in enumerate(self.exchanges):
                if draws and not len(draws[-1].ids):  # nobody replied: the round is over
                    draws.append(draws[-1])
                    continue
                again = exchange.same_cohort and draws
                self.courses.work = self.works[e]
                draws.append(self._exchange(draws[-1] if again else self.run.drawn(self.next, e), e))
            self.next += 1
            if self.next == t + 1:
                return draws

    def _exchange(self, draw: Draw, e: int) -> Draw:
        """One trip: everybody who is online starts at the same time."""
        draw, now = self._online(draw)
        courses = [
            self.courses.start(k, now, part) for k, part in zip(draw.ids.tolist(), draw.work.tolist(), strict=True)
        ]
        close = self._close(courses, now)
        first = sorted(range(len(courses)), key=lambda i: courses[i].arrives)[: self.system.enough]
        work, counts = draw.work.copy(), np.zeros(len(courses), bool)
        fates = dict.fromkeys(FATES, 0)
        wasted = busy = 0.0
        for i, course in enumerate(courses):
            busy += min(course.ends, close) - now
            counts[i] = course.arrives <= close and i in first
            over = course.ends <= close  # what would have happened later does not happen: the round is over
            if course.fate and over:
                fates[course.fate] += 1
                self.busy_until[int(draw.ids[i])] = course.free
            elif not counts[i]:
                part = self._part(course, close) if course.arrives > close else 0.0
                work[i], counts[i] = work[i] * (part or 1.0), part > 0
                fates["late"] += not counts[i]
            wasted += 0.0 if counts[i] else max(min(course.done, close) - course.ready, 0.0)
        copies = sum(course.again <= close for course in courses)
        c, m, replies = self.clock, len(courses), int(counts.sum())
        self.clock = c._replace(
            seconds=close,
            jobs=c.jobs + m,
            replies=c.replies + replies,
            idle=c.idle + m * (close - now) - busy,
            wasted=c.wasted + wasted,
            duplicates=c.duplicates + copies,
            staleness=(c.replies + replies,),
            **{fate: getattr(c, fate) + n for fate, n in fates.items()},
        )
        self.without_reply = 0 if replies else self.without_reply + 1
        if self.without_reply == MOST_EMPTY_ROUNDS:
            raise Stalled(
                f"Nobody has replied in {MOST_EMPTY_ROUNDS} rounds, up to second {close:g}. Do jobs take longer than "
                "the deadline, or longer than clients stay online?"
            )
        self.lost[e] += m - replies, fates["lost"] + copies
        return Draw(draw.ids[counts], draw.weight[counts], work[counts])

    def _online(self, draw: Draw) -> tuple[Draw, float]:
        """Those who are online now, or as soon as anybody is."""

        def since(k: int) -> float:
            ready = max(self.clock.seconds, self.busy_until.get(k, 0.0))
            return max(self.courses.window(k, ready)[0], ready)

        came = np.array([since(k) for k in draw.ids.tolist()])
        now = max(self.clock.seconds, float(came.min()))
        if now == np.inf:
            raise Stalled(
                f"After second {self.clock.seconds:g} none of the clients {draw.ids[:10].tolist()} of a cohort is ever "
                "online again, so the run cannot continue."
            )
        here = came <= now
        return Draw(draw.ids[here], draw.weight[here], draw.work[here]), now

    def _close(self, starts: list[Course], now: float) -> float:
        """When the round ends: all have replied or are known to be gone, enough have replied, or time is up."""
        heard = sorted(course.arrives for course in starts)
        close = max(course.ends for course in starts)
        if self.system.enough is not None and self.system.enough <= len(heard):
            close = min(close, heard[self.system.enough - 1])
        if self.system.deadline is not None:
            close = min(close, now + self.system.deadline)
        return close

    def _part(self, course: Course, close: float) -> float:
        """The part of the work that a client had time for, if it sends what it has when time is up."""
        if self.system.late == "drop" or self.system.deadline is None or close < course.starts + self.system.deadline:
            return 0.0
        if course.whole == 0:
            return 0.0
        return float(np.clip((close - course.up - course.ready) / course.whole, 0.0, 1.0))
