"""What a server knows of clients that are somewhere else: their weights, and the shapes of what they send."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedloom.client import Federation, Objective, Solver
from fedloom.engines.costs import one_client
from fedloom.engines.run import Run
from fedloom.engines.trees import Tree
from fedloom.hyperparameters import frozen
from fedloom.problem import Key, Problem, Scalar, Solution, Vector


class Unknown(NamedTuple):
    """The objective of a client whose data are not here: it has shapes only, and is never computed."""

    @property
    def size(self) -> int:
        return 1

    @property
    def capacity(self) -> int:
        return 1

    def unravel(self, w: Vector) -> Vector:
        return w

    def loss(self, w: Vector) -> Scalar:
        return jnp.zeros((), w.dtype)

    def grad(self, w: Vector) -> Vector:
        return jnp.zeros_like(w)

    def batch_grad(self, params: Vector, positions: jax.Array, mask: jax.Array, key: Key) -> Vector:
        return jnp.zeros_like(params)


@frozen
class Absent(Federation):
    """Clients that are somewhere else."""

    weights: Any

    def objective(self, k: Scalar) -> Objective:
        return Unknown()


@frozen
class Remote(Solver):
    """A solver that runs somewhere else: what it offers, and the shapes of its solutions."""

    name: str = dataclasses.field(metadata={"static": True})  # in messages
    can: frozenset[str] = dataclasses.field(metadata={"static": True})
    goes_on: bool = dataclasses.field(metadata={"static": True})

    @property
    def offers(self) -> frozenset[str]:
        return self.can

    @property
    def lasting(self) -> bool:
        return self.goes_on

    def solve(self, problem: Problem, objective: Objective, key: Key, t: Scalar, work: Scalar) -> Solution:
        start = problem.start
        lr_sum = jnp.zeros((), start.dtype) if "lr_sum" in self.can else jnp.nan
        accumulator = jnp.zeros_like(start) if "accumulator" in self.can else None
        return Solution(start, jnp.zeros((), jnp.int32), lr_sum=lr_sum, accumulator=accumulator)

    def __repr__(self) -> str:
        return self.name


def remote(solver: Solver) -> Remote:
    """A solver as a server sees it."""
    return Remote(repr(solver), solver.offers, solver.lasting)


def reply_shapes(run: Run, e: int, memory: Tree) -> Tree:
    """The shapes of a reply, which follow from the method alone."""

    def reply(server: Tree, memory: Tree, w: Any) -> Tree:
        return one_client(e, run.algorithm, run.solver, run.federation, server, memory, run.key, w)[1]

    return jax.eval_shape(reply, run.start.server, memory, run.w)
