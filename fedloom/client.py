"""Clients: private data behind `loss`, `grad` and `solve`.

An `Objective` is one client's F_k. A `Federation` is all of them with their population weights p_k. A `LocalClient` is
what an engine hands to `local`: it answers from one objective with one solver, and keeps count.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedloom.problem import Key, Problem, Scalar, Solution, Vector


class Objective(Protocol):
    """F_k, the mean loss over the local examples."""

    @property
    def size(self) -> Scalar:
        """The number n_k of local examples."""

    @property
    def capacity(self) -> int:
        """An upper bound of n_k over the federation, known when compiling."""

    def unravel(self, w: Vector) -> Any:
        """The model's parameter tree."""

    def loss(self, w: Vector) -> Scalar:
        """F_k(w) over all local examples."""

    def grad(self, w: Vector) -> Vector:
        """The full gradient of F_k at w."""

    def batch_grad(self, params: Any, positions: jax.Array, mask: jax.Array, key: Key) -> Any:
        """Gradient, as a tree, of the mean loss over the examples at `positions` where `mask` is True."""


def resting(objective: Objective, rests: Scalar) -> Objective:
    """The objective for a client whose answers are not used if `rests`: one that knows how then has no examples.

    Clients side by side in one program are all computed, also those that have ended before the others.
    """
    return objective.resting(rests) if hasattr(objective, "resting") else objective


class Federation(ABC):
    """All clients: minimise f(w) = sum_k p_k F_k(w). Subclasses are pytrees, made with `frozen`."""

    weights: Any  # p_k, one for each client, summing to 1

    @property
    def on_host(self) -> bool:
        """Whether gradients are computed outside JAX, so that clients side by side gain nothing."""
        return False

    @property
    def known_sizes(self) -> np.ndarray | None:
        """The number of examples of each client, if it is at hand; else every objective is asked for its size."""
        return None

    def check(self, w: Vector) -> None:  # noqa: B027 (most have nothing to check)
        """Raise a ValueError if the clients' losses cannot be used with the model w, before anything is run."""

    @abstractmethod
    def objective(self, k: Scalar) -> Objective:
        """Client k's objective; k may be traced."""

    @property
    def clients(self) -> int:
        """The number of clients."""
        return int(self.weights.shape[0])

    def relative_weight(self, k: Scalar) -> Scalar:
        """p_k times the number of clients, 1 on average; k may be traced."""
        return jnp.asarray(self.weights)[k] * self.clients

    def loss(self, w: Vector) -> Scalar:
        """f(w)."""
        return _population_loss(self, w)

    def grad(self, w: Vector) -> Vector:
        """The gradient of f at w."""
        return _population_grad(self, w)


# One client after another, so that memory does not grow with the population; compiled once for each kind of federation.


@jax.jit
def _population_loss(federation: Federation, w: Vector) -> Scalar:
    losses = jax.lax.map(lambda k: federation.objective(k).loss(w), jnp.arange(federation.clients))
    return jnp.asarray(federation.weights, losses.dtype) @ losses


@jax.jit
def _population_grad(federation: Federation, w: Vector) -> Vector:
    p = jnp.asarray(federation.weights, w.dtype)

    def add(total: Vector, k: Scalar) -> tuple[Vector, None]:
        return total + p[k] * federation.objective(k).grad(w), None

    return jax.lax.scan(add, jnp.zeros_like(w), jnp.arange(federation.clients))[0]


def normalised(weights: ArrayLike, clients: int) -> np.ndarray:
    """Population weights p_k: non-negative, one for each client, summing to 1."""
    p = np.asarray(weights, dtype=float)
    if p.shape != (clients,):
        raise ValueError(f"weights must have one entry for each of {clients} clients, got shape {p.shape}.")
    if not np.all(np.isfinite(p)) or np.any(p < 0) or p.sum() <= 0:
        raise ValueError("weights must be finite, non-negative and not all zero; they need not sum to 1.")
    return p / p.sum()


class Solver(ABC):
    """How a client minimises a `Problem`. Subclasses are frozen dataclasses."""

    @property
    def offers(self) -> frozenset[str]:
        """What it can do beyond `w`: "lr_sum", "accumulator", and "work" (doing a part of its usual work)."""
        return frozenset()

    @property
    def lasting(self) -> bool:
        """Whether a client's solves have the same randomness in every round."""
        return False

    def check(self, federation: Federation) -> None:  # noqa: B027 (most solve anything)
        """Raise a ValueError if it cannot solve the clients' problems, before anything is run."""

    @abstractmethod
    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        """Minimise `problem` in round t, doing the fraction `work` in (0, 1] of the usual local work."""


class StepSolver(Solver):
    """A solver that knows beforehand how many steps it takes: begin, step after step, end.

    So an engine can let a client take over from another at any step. `solve` is these three in a row.
    """

    @abstractmethod
    def steps_for(self, size: Any, capacity: int, work: Any) -> Any:
        """Steps of a client with `size` examples that does the fraction `work`. Arrays of clients give arrays."""

    @abstractmethod
    def begin(self, problem: Problem, objective: Objective, t: Scalar) -> Any:
        """The state before the first step; a tree of arrays, which holds all that steps need of the problem."""

    @abstractmethod
    def step(self, state: Any, s: Scalar, objective: Objective, key: Key) -> Any:
        """The state after step s, from 0. `key` is the solve's, the same for all steps."""

    @abstractmethod
    def end(self, state: Any) -> Solution:
        """The solution, from the state after the last step."""

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        steps = self.steps_for(objective.size, objective.capacity, work)
        state = self.begin(problem, objective, t)
        return self.end(jax.lax.fori_loop(0, steps, lambda s, state: self.step(state, s, objective, key), state))


def portion(work: Any, whole: int) -> Any:
    """The part `work` in (0, 1] of `whole` epochs or steps: an integer, rounded up, at least 1."""
    n = np if isinstance(work, np.ndarray) else jnp
    return n.maximum(n.ceil(work * whole - 1e-4), 1).astype(n.int32)  # 0.07 * 100 is a little more than 7


class Meter(NamedTuple):
    """What a client has spent in one exchange so far."""

    calls: Scalar  # solves so far: each gets its own randomness
    gradients: Scalar  # example gradients evaluated
    residual: Scalar  # the worst residual that a solver reported; -inf if none did
    unsolved: Scalar  # solves that ended before their tolerance

    def after_solve(self, solution: Solution) -> "Meter":
        return Meter(
            calls=self.calls + 1,
            gradients=self.gradients + solution.gradients,
            residual=jnp.fmax(self.residual, solution.residual),  # fmax ignores nan: "not measured"
            unsolved=self.unsolved + solution.unsolved,
        )


class LocalClient:
    """One client during one exchange. Not a pytree: it lives inside one trace and counts as it goes."""

    def __init__(
        self,
        objective: Objective,
        solver: Solver,
        key: Key,
        coin: Key,
        t: Scalar,
        work: Scalar,
        solves: Key | None = None,  # the randomness of solves, if not `key`
        relative_weight: Scalar = 1.0,
    ):
        self.objective, self.solver, self.solves = objective, solver, key if solves is None else solves
        self.key, self.coin, self.t, self.work, self.relative_weight = key, coin, t, work, relative_weight
        zero = jnp.zeros((), jnp.int32)
        self.meter = Meter(zero, zero, jnp.array(-jnp.inf), zero)

    def loss(self, w: Vector) -> Scalar:
        return self.objective.loss(w)

    def grad(self, w: Vector) -> Vector:
        m = self.meter
        self.meter = m._replace(gradients=m.gradients + self.objective.size)
        return self.objective.grad(w)

    def solve(self, problem: Problem) -> Solution:
        solution = self.solver.solve(problem, self.objective, self.solve_key(), self.t, self.work)
        self.meter = self.meter.after_solve(solution)
        return solution

    def solve_key(self) -> Key:
        """The randomness of the next solve."""
        return jax.random.fold_in(self.solves, self.meter.calls)

    def repeat(self, times: Scalar, step: Callable[[Any], Any], state: Any) -> Any:
        def body(_: Any, carry: Any) -> Any:
            self.meter, state = carry
            state = step(state)
            return self.meter, state

        self.meter, state = jax.lax.fori_loop(0, times, body, (self.meter, state))
        return state
