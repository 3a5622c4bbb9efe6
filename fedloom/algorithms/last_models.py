"""Any method, with clients that also remember what their last local training ended with.

What FedDyn's curves show (arXiv:2111.04263, appendix) is the mean of these models over all clients, those that never
took part counting with the initial model. Messages, replies, the server and the iterates are those of the method.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedloom.algorithm import Algorithm, Client, Exchange
from fedloom.hyperparameters import Domain, for_client, frozen
from fedloom.problem import Key, Problem, Scalar, Solution, Vector


class Memory(NamedTuple):
    of: Any  # the method's own
    v: Vector  # what the last solve ended with; the initial model before the first


_algorithm = Domain("an Algorithm, e.g. FedAvg()", lambda v: isinstance(v, Algorithm))


@frozen
class LastModels(Algorithm):
    of: Algorithm = dataclasses.field(metadata={"domain": _algorithm, "doc": "the method"})

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.of.exact

    @property
    def needs_everyone(self) -> bool:  # type: ignore[override]
        return self.of.needs_everyone

    @property
    def tolerates_staleness(self) -> bool:  # type: ignore[override]
        return self.of.tolerates_staleness

    @property
    def why_not_stale(self) -> str:  # type: ignore[override]
        return self.of.why_not_stale

    @property
    def needs(self) -> frozenset[str]:
        return self.of.needs

    def init(self, w: Vector) -> Any:
        return self.of.init(w)

    def init_client(self, w: Vector) -> Memory:
        return Memory(self.of.init_client(w), w)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        return tuple(exchange._replace(local=_remembering(exchange.local)) for exchange in self.of.exchanges)

    def invariant(self, s: Any, k: Memory) -> tuple[Any, Any] | None:
        return self.of.invariant(s, k.of)

    def own_model(self, k: Memory) -> Vector:
        return k.v

    def exact_memory(self, w: Vector, grad: Vector) -> Memory:
        return Memory(self.of.exact_memory(w, grad), w)


Local = Callable[[Any, Any, Client], tuple[Any, Any]]


def _remembering(local: Local) -> Local:
    def with_last_model(message: Any, k: Memory, client: Client) -> tuple[Any, Memory]:
        watched = _Watched(client, k.v)
        reply, memory = local(message, k.of, watched)
        return reply, Memory(memory, watched.v)

    return with_last_model


class _Watched:
    """A client that notes what its solves end with."""

    def __init__(self, client: Client, v: Vector):
        self.client, self.v = client, v

    @property
    def key(self) -> Key:
        return self.client.key

    @property
    def coin(self) -> Key:
        return self.client.coin

    @property
    def t(self) -> Scalar:
        return self.client.t

    @property
    def relative_weight(self) -> Scalar:
        return self.client.relative_weight

    def loss(self, w: Vector) -> Scalar:
        return self.client.loss(w)

    def grad(self, w: Vector) -> Vector:
        return self.client.grad(w)

    def solve(self, problem: Problem) -> Solution:
        solution = self.client.solve(problem)
        self.v = solution.w
        return solution

    def repeat(self, times: Scalar, step: Callable[[Any], Any], state: Any) -> Any:
        def both(carry: tuple[Vector, Any]) -> tuple[Vector, Any]:
            self.v, state = carry  # inside the loop, v belongs to it
            state = step(state)
            return self.v, state

        self.v, state = self.client.repeat(times, both, (self.v, state))
        return state


def keeping_models(algorithm: Algorithm, w: Vector) -> Algorithm:
    """A method whose clients have a model of their own: the algorithm itself if it keeps one, else with last models."""
    if algorithm.own_model(algorithm.init_client(w)) is not None:
        return algorithm
    if not _solves(algorithm, w):
        raise ValueError(
            f"the clients of {type(algorithm).__name__} never solve a local problem, so they have no last models."
        )
    return LastModels(algorithm)


def _solves(algorithm: Algorithm, w: Vector) -> bool:
    """Does a client solve a problem in any of the exchanges? Nothing is computed to find out."""
    client = _Asked()

    def once(w: Vector) -> None:
        memory, server = algorithm.init_client(w), algorithm.init(w)
        for exchange in for_client(algorithm, 0).exchanges:
            _, memory = exchange.local(exchange.send(server), memory, client)

    jax.eval_shape(once, w)
    return client.solves


class _Asked:
    """A client without data that notes whether it is asked to solve."""

    def __init__(self) -> None:
        self.solves = False
        self.key = self.coin = jax.random.key(0)
        self.t, self.relative_weight = 0, 1.0

    def loss(self, w: Vector) -> Scalar:
        return jnp.sum(w)

    def grad(self, w: Vector) -> Vector:
        return w

    def solve(self, problem: Problem) -> Solution:
        self.solves = True
        v = problem.start
        return Solution(v, 0, lr_sum=jnp.ones((), v.dtype), accumulator=jnp.ones_like(v))

    def repeat(self, times: Scalar, step: Callable[[Any], Any], state: Any) -> Any:
        return step(state)
