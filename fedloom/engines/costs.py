"""What clients' work costs, known before a run starts: the sizes of messages and the number of local steps."""

import contextlib
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm, Cohort, Exchange
from fedloom.client import Federation, LocalClient, Solver, StepSolver
from fedloom.engines.keys import client_key, coin_key, exchange_key, server_key
from fedloom.engines.records import Sizes
from fedloom.engines.run import Run
from fedloom.engines.trees import Tree, mean_type, nbytes, shapes
from fedloom.hyperparameters import for_client
from fedloom.problem import Key, Scalar, Vector


def message_sizes(run: Run) -> Sizes:
    """Bytes down and up for one client in each exchange. Traces everything once, so that shape errors show here."""
    server, sizes = run.start.server, []
    memory = jax.tree.map(jnp.asarray, run.algorithm.init_client(run.w))
    parts = run.algorithm, run.solver
    trees = not any(leaf is part for part in parts for leaf in jax.tree.leaves(part))  # others run in `reference` only
    for e, exchange in enumerate(run.algorithm.exchanges):
        with noting(exchange, run.algorithm):
            given = (run.federation, server, memory, run.key, run.w)
            if trees:
                message, reply, *after = _shared.eval_shape(e, *parts, *given)
            else:
                message, reply, *after = jax.eval_shape(partial(one_client, e, *parts), *given)
        for what, old, new in zip(("server's state", "client's memory"), (server, memory), after, strict=True):
            if shapes(old) != shapes(new):
                raise TypeError(
                    f"Exchange {exchange.name!r} of {run.algorithm!r} turns the {what} from {_types(old)} into "
                    f"{_types(new)}. Do w, the data and the hyperparameters share one float type?"
                )
        sizes.append((nbytes(message), nbytes(reply)))
    return sizes


def one_client(
    e: int,
    algorithm: Algorithm,
    solver: Solver,
    federation: Federation,
    server: Tree,
    memory: Tree,
    key: Key,
    w: Vector,
) -> tuple[Tree, Tree, Tree, Tree]:
    """Exchange e with client 0: message, reply, and what server and client then have."""
    exchange, key = algorithm.exchanges[e], exchange_key(key, 0, e)
    t, work = jnp.zeros((), jnp.int32), jnp.ones(())
    message = exchange.send(server)
    relative = federation.relative_weight(0)
    client = LocalClient(federation.objective(0), solver, client_key(key, 0), coin_key(key), t, work, None, relative)
    reply, memory = for_client(algorithm, 0).exchanges[e].local(message, memory, client)
    mean = jax.tree.map(lambda x: x.astype(mean_type(x.dtype)), reply)
    server = exchange.receive(server, mean, Cohort(jnp.ones((), w.dtype), server_key(key), mean))
    return message, reply, server, memory


_shared = jax.jit(one_client, static_argnums=0)  # runs that differ in numbers share its trace


@contextlib.contextmanager
def noting(exchange: Exchange, algorithm: Algorithm) -> Iterator[None]:
    """Errors inside say which exchange of which algorithm they come from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"Exchange {exchange.name!r} of {algorithm!r}; fedloom.reference runs it with concrete values.")
        raise


def _types(tree: Tree) -> str:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(tree))


def in_steps(solver: Solver) -> bool:
    """Is its solve what its begin, step and end say?"""
    return isinstance(solver, StepSolver) and type(solver).solve is StepSolver.solve


class LocalSteps:
    """How many steps the solver of a run takes on each client; 0 if that is not known beforehand."""

    part = 1.0  # of its steps that a client takes; less, to time them

    def __init__(self, run: Run):
        self.solver = run.solver
        self.sizes, self.capacity = _sizes(run.federation)
        whole = self.of_all()
        self.uniform = not run.partial_work and bool(np.all(whole == whole[0]))  # all clients take equally many

    def __call__(self, ids: np.ndarray, work: np.ndarray) -> np.ndarray:
        """Of these clients, if they do these fractions of their usual work."""
        sizes = self.sizes[ids]
        if not isinstance(self.solver, StepSolver) or not in_steps(self.solver):
            return np.zeros(len(sizes), np.int32)
        steps = np.broadcast_to(np.asarray(self.solver.steps_for(sizes, self.capacity, work)), sizes.shape)
        return np.ceil(self.part * steps).astype(steps.dtype)

    def of_all(self) -> np.ndarray:
        """Of every client of the population, if it does all its work."""
        return self(np.arange(len(self.sizes)), np.ones(len(self.sizes)))


def _sizes(federation: Federation) -> tuple[np.ndarray, int]:
    """The number of examples of each client, and an upper bound that is known when compiling."""
    capacity = []

    def size(federation: Federation, k: Scalar) -> jax.Array:
        objective = federation.objective(k)
        capacity.append(objective.capacity)
        return jnp.asarray(objective.size)

    jax.eval_shape(size, federation, 0)
    sizes = federation.known_sizes
    if sizes is None:
        sizes = np.asarray(jax.jit(jax.vmap(size, in_axes=(None, 0)))(federation, jnp.arange(federation.clients)))
    return sizes, capacity[0]
