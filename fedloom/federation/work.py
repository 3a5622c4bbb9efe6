"""A client's own data, and its part in an exchange."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import jax

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Meter, Solver
from fedloom.engines.keys import client_key, exchange_key, lasting_key, solve_key
from fedloom.engines.split_solve import Given, Job
from fedloom.engines.trees import Tree, all_finite
from fedloom.federation.agreement import Setup
from fedloom.federation.wire import Refused
from fedloom.problem import Key, Scalar, Vector


class Own(Protocol):
    """A client's own data."""

    @property
    def size(self) -> int:
        """The number n_k of its training examples."""

    def rows(self) -> dict[str, Any] | None:
        """What predictions will need to know of its examples: the number of classes, the shape and type of a label."""

    def federation(self, setup: Setup) -> Federation:
        """The federation as this client sees it: its own objective, under its number in the whole."""

    def statistics(self, question: Mapping[str, Any]) -> Any:
        """An answer to what the server asks before a model can be made, as JSON: of tables, sums over rows."""

    def evaluated(self, w: Vector, setup: Setup) -> dict[str, list[float]]:
        """Sums [numerator, denominator] of metrics over its own examples."""


class Objectives:
    """A federation of one's own objectives, of which this is client k."""

    def __init__(self, of: Federation, k: int):
        self.of, self.k = of, k

    @property
    def size(self) -> int:
        return int(self.of.objective(self.k).size)

    def rows(self) -> dict[str, Any] | None:
        return None

    def federation(self, setup: Setup) -> Federation:
        if self.of.clients != setup.clients:
            raise Refused(f"the federation has {setup.clients} clients, but this client's own has {self.of.clients}.")
        return self.of

    def statistics(self, question: Mapping[str, Any]) -> Any:
        return None

    def evaluated(self, w: Vector, setup: Setup) -> dict[str, list[float]]:
        return {"train loss": [float(_loss(self.of, w, self.k)) * self.size, float(self.size)]}


@jax.jit
def _loss(federation: Federation, w: Vector, k: Scalar) -> Scalar:
    return federation.objective(k).loss(w)


@partial(jax.jit, static_argnames="e")
def worked(
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    message: Tree,
    memory: Tree,
    key: Key,
    job: tuple[Scalar, Scalar, Scalar, Scalar],
    e: int,
) -> tuple[Tree, Tree, Meter, Scalar]:
    """A client's part in exchange e: its reply, its new memory, what it spent, and whether all is finite."""
    k, t, wave, work = job
    own = exchange_key(key, wave, e)
    client = client_key(own, k)
    solves = lasting_key(key, e, k) if solver.lasting else None
    given = Given(k, client, solve_key(client if solves is None else solves), memory, work, solves)
    reply, new, meter = Job(algorithm, solver, federation, message, e, own, t).whole(given)
    return reply, new, meter, all_finite((reply, new))
