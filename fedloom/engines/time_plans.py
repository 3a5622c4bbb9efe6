"""Timing plans on a machine that does other things too.

Noise only adds time, and it comes and goes. So all candidates are compiled first and then take turns, pass after pass;
each is judged by its shortest time, and by how it did beside the plan that the rule gives, which is kept unless another
one wins clearly.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Client, Cohort, Round, Server
from fedloom.engines.lanes import cohort_arrays
from fedloom.engines.packing import Packer, Packing
from fedloom.engines.plan import Plan
from fedloom.engines.run import Run
from fedloom.engines.sync_program import on_devices, run_rounds, with_keys
from fedloom.hyperparameters import frozen
from fedloom.problem import Problem, Vector

FEWEST, MOST = 5, 20  # passes
GAIN = 1.05  # times faster: less is no reason to leave the rule's plan
HOPELESS = 1.4  # times slower than the best: not timed any more
ENOUGH = 0.05  # seconds that a timing should take
TOO_LONG = 0.3  # seconds of a round from which clients take a part of their steps only
ROUNDS_TIMED = 10  # rounds in a call, so that the overhead of a call matters little
RATE = 1e10  # operations a second, about, by which a round's time is guessed


class Choice(NamedTuple):
    plan: Plan
    clear: bool  # was it decided? If not, another time may decide otherwise
    seconds: dict[Plan, float]  # the shortest of each


def fastest(candidates: Sequence[Plan], usual: Plan, seconds: Callable[[Plan], float]) -> Choice:
    """The fastest candidate by timings `seconds(plan)`: `usual`, which is one of them, unless another wins clearly."""
    times: dict[Plan, list[float]] = {plan: [] for plan in candidates}
    running = list(times)
    if len(running) == 1:
        return Choice(usual, True, {usual: seconds(usual)})
    for i in range(MOST):
        for plan in (*running[i % len(running) :], *running[: i % len(running)]):  # nobody is always the first
            times[plan].append(seconds(plan))
        shortest = {plan: min(of) for plan, of in times.items()}
        best = min(running, key=shortest.__getitem__)
        faster = shortest[usual] >= GAIN * shortest[best]
        beside = bool(np.median(np.divide(times[usual], times[best])) >= GAIN)
        if i + 1 >= FEWEST:
            running = [p for p in running if p == usual or shortest[p] <= HOPELESS * shortest[best]]
            if faster == beside and all(_settled(times[p]) for p in running):
                break
    else:
        return Choice(best if faster and beside else usual, False, shortest)
    return Choice(best if faster else usual, True, shortest)


def _settled(times: list[float]) -> bool:
    """Has the shortest time come up three times? Then it was not disturbed, unless something disturbs all the time."""
    first, _, third = sorted(times)[:3]
    return third < GAIN * first


@frozen
class Averaging(Round):
    """The plainest method: what is timed is the solver."""

    def init(self, w: Vector) -> Server:
        return Server(w)

    def send(self, s: Server) -> Vector:
        return s.w

    def local(self, w: Vector, _: tuple[()], client: Client) -> tuple[Vector, tuple[()]]:
        return client.solve(Problem(start=w)).w, ()

    def receive(self, s: Server, mean: Vector, cohort: Cohort) -> Server:
        return Server(mean)


class Stopwatch:
    """Times rounds of plain averaging with a run's solver and its first cohorts, under any plan.

    Where a round would take long, every client takes the same part of its steps.
    """

    def __init__(self, run: Run, operations: float):
        """operations: floating-point operations of a round."""
        self.run = run._replace(algorithm=Averaging())
        self.guess = operations / RATE
        self.draws = [self.run.cohorts(t)[0] for t in range(min(3, run.rounds))]
        self.federation = jax.tree.map(jnp.asarray, run.federation)
        self._calls: dict[Plan, Callable[[], Any]] = {}

    def prepare(self, plan: Plan) -> float:
        """Compile the plan's program, and have two looks at its time."""
        self._calls[plan] = self._call(plan)
        self._calls[plan]()
        return min(self.seconds(plan), self.seconds(plan))

    def seconds(self, plan: Plan) -> float:
        """Seconds of some rounds: the shortest of as many calls as take long enough together."""
        times: list[float] = []
        while sum(times) < ENOUGH:
            start = time.perf_counter()
            self._calls[plan]()
            times.append(time.perf_counter() - start)
        return min(times)

    def _call(self, plan: Plan) -> Callable[[], Any]:
        run, rounds = self.run, 1 if self.guess > TOO_LONG / ROUNDS_TIMED else ROUNDS_TIMED
        packer = Packer(run, plan)
        packer.steps.part = min(1.0, TOO_LONG / max(self.guess, TOO_LONG))
        room = run.room(max(len(d.ids) for d in self.draws))
        draws = [self.draws[i % len(self.draws)] for i in range(rounds)]
        packed = [packer(draw, room) for draw in draws]
        cohorts = with_keys((cohort_arrays(run.p, draws, lambda ids: ids, rounds, room),), run.key, 0, run.solver)
        packing = Packing(*(np.stack(x) for x in zip(*packed, strict=True)))
        shared = on_devices((self.federation, Averaging().init(run.w), (), cohorts), plan.devices)
        given = (run.algorithm, run.solver, *shared, (packing,), 0, rounds)
        return lambda: jax.block_until_ready(run_rounds(*given, plan.devices))
