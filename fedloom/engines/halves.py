"""A client's part in an exchange, whole or cut at its `client.solve`, so that the engine can do the steps itself.

`local` is traced once up to the solve, where the first half ends with the problem to be solved, and once as a whole
with the solution put in. Gradients and losses that it asks for before the solve are handed over, not computed again.
A method that solves in a loop or a branch, twice or never, has no halves: its `local` runs in one piece.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, LocalClient, Meter, Solver, StepSolver
from fedloom.engines.run import coin_key
from fedloom.hyperparameters import for_client
from fedloom.problem import Key, Problem, Scalar, Solution, Vector


def in_steps(solver: Solver) -> bool:
    """Is its solve what its begin, step and end say?"""
    return isinstance(solver, StepSolver) and type(solver).solve is StepSolver.solve


class Reached(Exception):
    """The first half ends here."""

    def __init__(self, problem: Problem):
        super().__init__("The solve is reached.")
        self.problem = problem


class NoHalves(Exception):
    """This `local` cannot be cut in two."""


class Half(LocalClient):
    """A client that is asked up to the solve in one half, and again in the other."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.trace = get_opaque_trace_state()
        self.solved = False

    def plainly(self) -> None:
        """An answer in a loop, a branch or a derivative of its own belongs to that, and cannot be handed over."""
        if not self.solved and self.trace != get_opaque_trace_state():
            raise NoHalves

    def repeat(self, times: Any, step: Any, state: Any) -> Any:
        raise NoHalves


class Before(Half):
    """The client of the first half: it stops at the solve, and keeps its answers."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.answers: list[Any] = []

    def loss(self, w: Vector) -> Scalar:
        self.plainly()
        self.answers.append(super().loss(w))
        return self.answers[-1]

    def grad(self, w: Vector) -> Vector:
        self.plainly()
        self.answers.append(super().grad(w))
        return self.answers[-1]

    def solve(self, problem: Problem) -> Solution:
        self.plainly()
        raise Reached(problem)


class After(Half):
    """The client of the second half: it repeats its answers up to the solve, whose solution is given."""

    def __init__(self, *args: Any, answers: list[Any], solution: Solution):
        super().__init__(*args)
        self.answers, self.solution = list(answers), solution

    def loss(self, w: Vector) -> Scalar:
        self.plainly()
        return self.answers.pop(0) if self.answers else super().loss(w)

    def grad(self, w: Vector) -> Vector:
        self.plainly()
        if not self.answers:
            return super().grad(w)
        self.meter = self.meter._replace(gradients=self.meter.gradients + self.objective.size)
        return self.answers.pop(0)

    def solve(self, problem: Problem) -> Solution:
        self.plainly()
        if self.solved or self.answers:
            raise NoHalves
        self.solved = True
        self.meter = self.meter.after_solve(self.solution)
        return self.solution


class Given(NamedTuple):
    """What a client works with."""

    k: Any
    key: Key
    solve_key: Key  # of its first solve
    memory: Any
    work: Any


class Underway(NamedTuple):
    """A client between two steps of its solve."""

    k: Any
    key: Key  # the solve's
    s: Any  # steps taken
    state: Any  # the solver's
    answers: list[Any]


class Job(NamedTuple):
    """What the clients of one exchange have in common."""

    algorithm: Algorithm
    solver: Any  # a Solver; a StepSolver where it is cut in halves
    federation: Federation
    message: Any
    e: int
    key: Key
    t: Any

    def _client(self, kind: Any, given: "Given", **more: Any) -> Any:
        objective = self.federation.objective(given.k)
        return kind(objective, self.solver, given.key, coin_key(self.key), self.t, given.work, **more)

    def _local(self, given: Given, client: LocalClient) -> tuple[Any, Any]:
        exchange = for_client(self.algorithm, given.k).exchanges[self.e]
        try:
            return exchange.local(self.message, given.memory, client)
        except (Reached, NoHalves):
            raise
        except Exception as error:
            error.add_note(
                f"Exchange {exchange.name!r} of {self.algorithm!r}; fedloom.reference runs it with concrete values."
            )
            raise

    def whole(self, given: Given) -> tuple[Any, Any, Meter]:
        """All of it: the reply, the new memory, the books."""
        client = self._client(LocalClient, given)
        return *self._local(given, client), client.meter

    def begin(self, given: Given) -> Underway:
        """Up to the first step."""
        client = self._client(Before, given)
        try:
            self._local(given, client)
        except Reached as here:
            state = self.solver.begin(here.problem, client.objective, self.t)
            return Underway(given.k, given.solve_key, jnp.zeros((), jnp.int32), state, client.answers)
        raise NoHalves

    def step(self, now: Underway) -> Underway:
        state = self.solver.step(now.state, now.s, self.federation.objective(now.k), now.key)
        return now._replace(s=now.s + 1, state=state)

    def end(self, given: Given, now: Underway) -> tuple[Any, Any, Meter]:
        """From the last step to the reply, the new memory and the books. What is given is what it began with."""
        client = self._client(After, given, answers=now.answers, solution=self.solver.end(now.state))
        reply, memory = self._local(given, client)
        if not client.solved:
            raise NoHalves
        return reply, memory, client.meter

    def has_halves(self, given: Given) -> bool:
        """Can it be cut at the solve?"""
        if not in_steps(self.solver):
            return False

        def both(message: Any, given: Given) -> Any:
            job = self._replace(message=message)
            now = job.begin(given)
            return now, job.end(given, now)

        try:
            jax.eval_shape(both, self.message, given)
        except (NoHalves, jax.errors.UnexpectedTracerError):
            return False
        return True
