"""A client's part in an exchange, whole or split at its `client.solve`, so that the engine can take the steps itself.

`local` is traced once up to the solve, where the first half ends with the problem to be solved, and once as a whole
with the solution put in. Gradients and losses that it asks for before the solve are handed over, not computed again.
A method that solves in a loop or a branch, twice or never, cannot be split: its `local` runs in one piece.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, LocalClient, Meter
from fedloom.engines.costs import in_steps, noting
from fedloom.engines.keys import client_key, coin_key, exchange_key
from fedloom.engines.run import Run
from fedloom.engines.trees import Tree
from fedloom.hyperparameters import for_client
from fedloom.problem import Key, Problem, Scalar, Solution, Vector


class Reached(Exception):
    """The first half of a split `local` ends here."""

    def __init__(self, problem: Problem):
        super().__init__("The solve is reached.")
        self.problem = problem


class CannotSplit(Exception):
    """This `local` cannot be split at its solve."""


class SplitClient(LocalClient):
    """A client whose `local` runs up to the solve in the first half, and as a whole in the second."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.trace = get_opaque_trace_state()
        self.solved = False

    def check_plain(self) -> None:
        """An answer inside a loop, a branch or a derivative belongs to that, and cannot be handed over."""
        if not self.solved and self.trace != get_opaque_trace_state():
            raise CannotSplit

    def repeat(self, times: Scalar, step: Callable[[Any], Any], state: Any) -> Any:
        raise CannotSplit


class FirstHalf(SplitClient):
    """The client of the first half: it stops at the solve and keeps its answers."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.answers: list[Any] = []

    def loss(self, w: Vector) -> Scalar:
        self.check_plain()
        self.answers.append(super().loss(w))
        return self.answers[-1]

    def grad(self, w: Vector) -> Vector:
        self.check_plain()
        self.answers.append(super().grad(w))
        return self.answers[-1]

    def solve(self, problem: Problem) -> Solution:
        self.check_plain()
        raise Reached(problem)


class SecondHalf(SplitClient):
    """The client of the second half: it repeats its answers up to the solve, whose solution is given."""

    def __init__(self, *args: Any, answers: list[Any], solution: Solution):
        super().__init__(*args)
        self.answers, self.solution = list(answers), solution

    def loss(self, w: Vector) -> Scalar:
        self.check_plain()
        return self.answers.pop(0) if self.answers else super().loss(w)

    def grad(self, w: Vector) -> Vector:
        self.check_plain()
        if not self.answers:
            return super().grad(w)
        self.meter = self.meter._replace(gradients=self.meter.gradients + self.objective.size)
        return self.answers.pop(0)

    def solve(self, problem: Problem) -> Solution:
        self.check_plain()
        if self.solved or self.answers:
            raise CannotSplit
        self.solved = True
        self.meter = self.meter.after_solve(self.solution)
        return self.solution


class Given(NamedTuple):
    """What a client works with."""

    k: Scalar
    key: Key
    solve_key: Key  # of its first solve
    memory: Tree
    work: Scalar
    solves: Any = None  # a key: the randomness of all solves, if not `key`


class Underway(NamedTuple):
    """A client between two steps of its solve."""

    k: Scalar
    key: Key  # the solve's
    s: Scalar  # steps taken
    state: Tree  # the solver's
    answers: list[Any]


class Job(NamedTuple):
    """What the clients of one exchange have in common."""

    algorithm: Algorithm
    solver: Any  # a Solver; a StepSolver where the solve is split
    federation: Federation
    message: Tree
    e: int
    key: Key  # the exchange's
    t: Scalar

    def _client(self, kind: Any, given: "Given", **more: Any) -> Any:
        objective, relative = self.federation.objective(given.k), self.federation.relative_weight(given.k)
        coin = coin_key(self.key)
        return kind(objective, self.solver, given.key, coin, self.t, given.work, given.solves, relative, **more)

    def _local(self, given: Given, client: LocalClient) -> tuple[Tree, Tree]:
        exchange = for_client(self.algorithm, given.k).exchanges[self.e]
        with noting(exchange, self.algorithm):
            return exchange.local(self.message, given.memory, client)

    def whole(self, given: Given) -> tuple[Tree, Tree, Meter]:
        """All of it: the reply, the new memory, and what it spent."""
        client = self._client(LocalClient, given)
        return *self._local(given, client), client.meter

    def begin(self, given: Given) -> Underway:
        """Up to the first step."""
        client = self._client(FirstHalf, given)
        try:
            self._local(given, client)
        except Reached as here:
            state = self.solver.begin(here.problem, client.objective, self.t)
            return Underway(given.k, given.solve_key, jnp.zeros((), jnp.int32), state, client.answers)
        raise CannotSplit

    def step(self, now: Underway) -> Underway:
        state = self.solver.step(now.state, now.s, self.federation.objective(now.k), now.key)
        return now._replace(s=now.s + 1, state=state)

    def end(self, given: Given, now: Underway) -> tuple[Tree, Tree, Meter]:
        """From the last step to the reply, the new memory and what it spent. `given` is what it began with."""
        client = self._client(SecondHalf, given, answers=now.answers, solution=self.solver.end(now.state))
        reply, memory = self._local(given, client)
        if not client.solved:
            raise CannotSplit
        return reply, memory, client.meter

    def can_split(self, given: Given) -> bool:
        """Can it be split at the solve?"""
        if not in_steps(self.solver):
            return False

        def both(message: Any, given: Given) -> Any:
            job = self._replace(message=message)
            now = job.begin(given)
            return now, job.end(given, now)

        try:
            jax.eval_shape(both, self.message, given)
        except (CannotSplit, jax.errors.UnexpectedTracerError):
            return False
        return True


def splits(run: Run, e: int) -> bool:
    """Can clients hand over their lanes at any step of this exchange?"""
    found = []

    def look(server: Tree, memory: Tree, federation: Federation) -> None:
        key = exchange_key(run.key, 0, e)
        job = Job(run.algorithm, run.solver, federation, run.algorithm.exchanges[e].send(server), e, key, jnp.array(0))
        found.append(job.can_split(Given(jnp.array(0), client_key(key, 0), key, memory, jnp.ones(()))))

    memory = jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))
    jax.eval_shape(look, run.start.server, memory, run.federation)
    return found[0]
