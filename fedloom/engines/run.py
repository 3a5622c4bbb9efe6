"""A run that has passed all checks: what every engine takes. `checks.checked` makes one."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import Draw
from fedloom.engines.clock import Clock
from fedloom.engines.plan import Plan
from fedloom.engines.records import Record
from fedloom.problem import Key, Vector
from fedloom.systems import Delays, System


class Run(NamedTuple):
    """What is run, from where to where. It does not change while an engine runs it."""

    algorithm: Algorithm
    federation: Federation
    solver: Solver
    draw: Callable[[np.random.Generator, int], Draw]
    cohort_room: int  # the size of a usual cohort
    partial_work: bool  # may a client do a part of its work only?
    p: np.ndarray  # [clients]: population weights
    usual_weight: np.ndarray  # [clients]: in the mean, of a client that is drawn once
    w: Vector
    rounds: int
    seed: int
    key: Key
    drop: bool  # leave clients out whose replies are not finite, instead of raising
    start: Record
    system: System | Delays | None
    buffer: int | None  # replies in an update of an asynchronous run; None: synchronous rounds
    plan: Plan | None  # None: not chosen yet, see choose_plan.py

    def room(self, clients: int) -> int:
        """Room for a cohort: the usual size, or a power of two if more clients came than usual."""
        return self.cohort_room if clients <= self.cohort_room else 1 << (clients - 1).bit_length()

    def drawn(self, t: int, e: int) -> Draw:
        return self.draw(np.random.default_rng([self.seed, t, e]), t)

    def cohorts(self, t: int) -> list[Draw]:
        """The cohorts of round t, one for each exchange."""
        draws: list[Draw] = []
        for e, exchange in enumerate(self.algorithm.exchanges):
            draws.append(draws[-1] if exchange.same_cohort and draws else self.drawn(t, e))
        return draws

    def has_record(self, t: int, chunk: int) -> bool:
        """Is there a record after t rounds?"""
        return t % chunk == 0 or t == self.rounds

    def check_clock(self, clock: Clock | None) -> None:
        """Where a run is resumed, the clock must be where the record has it."""
        if clock is not None and self.start.clock is not None and clock != self.start.clock:
            raise ValueError(
                "resume: this system's clock disagrees with the record's. Has a trace changed since the run began?"
            )
