"""Synchronous rounds on a virtual clock: how long they take, and whose reply does not come in time."""

from collections.abc import Callable

import numpy as np

from fedloom.algorithm import Exchange
from fedloom.cohorts import Draw
from fedloom.engines.clock import FATES, Clock, Stalled
from fedloom.systems import Course, System, Work

PATIENCE = 1000  # rounds without any reply


class Rounds:
    """The rounds of a run under a system, in order. The same ones come again if one goes back."""

    def __init__(
        self,
        system: System,
        exchanges: tuple[Exchange, ...],
        works: list[Work],
        draw: Callable[[int, int], Draw],
        seed: int,
    ):
        self.system, self.exchanges, self.works, self.draw, self.seed = system, exchanges, works, draw, seed
        self._begin()

    def _begin(self) -> None:
        self.clock, self.next = Clock(), 0
        self.courses = self.system.over(self.works[0], self.seed)
        self.busy_until: dict[int, float] = {}  # clients that have crashed
        self.in_vain = 0  # rounds since somebody replied
        self.lost = np.zeros(
            (len(self.exchanges), 2), int
        )  # messages down and replies up that count for nothing, so far

    def cohorts(self, t: int) -> list[Draw]:
        """Who is counted in round t, one cohort for each exchange. After it, `clock` is that of the round's end."""
        if t < self.next:
            self._begin()
        while True:
            draws: list[Draw] = []
            for e, exchange in enumerate(self.exchanges):
                if draws and not len(draws[-1].ids):  # nobody has replied: the round is over
                    draws.append(draws[-1])
                    continue
                again = exchange.same_cohort and draws
                self.courses.work = self.works[e]
                draws.append(self._exchange(draws[-1] if again else self.draw(self.next, e), e))
            self.next += 1
            if self.next == t + 1:
                return draws

    def _exchange(self, draw: Draw, e: int) -> Draw:
        """One trip: everybody who is online starts at once."""
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
        self.in_vain = 0 if replies else self.in_vain + 1
        if self.in_vain == PATIENCE:
            raise Stalled(
                f"Nobody has replied in {PATIENCE} rounds, up to second {close:g}. Do jobs take longer than the "
                "deadline, or than clients stay online?"
            )
        self.lost[e] += m - replies, fates["lost"] + copies
        return Draw(draw.ids[counts], draw.weight[counts], work[counts])

    def _online(self, draw: Draw) -> tuple[Draw, float]:
        """Those who are online, now or as soon as anybody is."""

        def since(k: int) -> float:
            ready = max(self.clock.seconds, self.busy_until.get(k, 0.0))
            return max(self.courses.window(k, ready)[0], ready)

        came = np.array([since(k) for k in draw.ids.tolist()])
        now = max(self.clock.seconds, float(came.min()))
        if now == np.inf:
            raise Stalled(
                f"After second {self.clock.seconds:g} none of the clients {draw.ids[:10].tolist()} of a cohort is ever "
                "online again, so the run cannot go on."
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
