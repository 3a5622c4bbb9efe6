"""A real federation: clients with their own data and memories, behind a transport that may lose anything.

Flower is imported in the folder `flower` only.
"""

import importlib.util
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from numpy.typing import ArrayLike

from fedloom.algorithm import Algorithm
from fedloom.client import Solver
from fedloom.cohorts import CohortRule
from fedloom.engines.records import Record


def need_flower() -> None:
    """Raise a sentence if Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise ImportError("A federation needs Flower, which is not installed: pip install 'fedloom[flower]'.")


def on_flower(
    grid: Any,
    algorithm: Algorithm,
    solver: Solver,
    w: Any,
    rounds: int,
    *,
    directory: str | os.PathLike[str],
    clients: Sequence[str],
    federation: str,
    cohort: CohortRule | None = None,
    seed: int = 0,
    on_nonfinite: str = "drop",
    buffer: int | None = None,
    weights: str | ArrayLike = "examples",
    deadline: float = 60.0,
    minimum: int = 1,
    enough: int | None = None,
    patience: float = 3600.0,
    bound: Mapping[int, int] | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> Iterator[Record]:
    """`simulate` over clients that are somewhere else, in the ServerApp of one's own; `fedloom federate` has one.

    The records go on from where the journal in `directory` is, whoever has died. Their `clients` are empty, since
    memories stay with the clients; `clock` is the real time, and `traffic` the bytes that really travelled.

    Args:
        grid: Flower's, from `ServerApp.main`.
        algorithm, solver, rounds, cohort, seed: as `simulate` has them. Cohorts are drawn from the clients that are
            there. The solver must be that of the clients; it does not run here.
        w: the initial model, a flat vector.
        directory: where the journal is. A server that is started again with the same directory goes on.
        clients: their names: client 0, 1, ...
        federation: a name that the clients know too, of 8 to 64 letters and digits.
        on_nonfinite: "drop" a client that comes to NaN or infinity from its round, or "raise".
        buffer: replies in an update of an asynchronous run; None: synchronous rounds.
        weights: population weights: "examples", as clients say how many they have, "uniform", or an array.
        deadline: seconds that an exchange waits for replies.
        minimum: replies without which an exchange waits on, and asks again.
        enough: replies with which an exchange is over: to draw more clients than are needed.
        patience: seconds after which the server gives up, when there are not enough clients.
        bound: which client each of Flower's nodes may speak for; None: whoever comes first.
        say: gets a sentence when a client comes, goes or is refused.

    Yields:
        Records, one for each round that this server completes.
    """
    need_flower()
    from fedloom.federation.engine import Served, agreed  # imported late, as few need it
    from fedloom.federation.flower.serving import OverGrid
    from fedloom.federation.rounds import Patience

    served = Served(
        OverGrid(grid),
        pathlib.Path(directory),
        agreed(federation, algorithm, solver),
        clients,
        algorithm,
        solver,
        lambda desk: (jnp.asarray(w), None),
        rounds,
        cohort=cohort,
        seed=seed,
        on_nonfinite=on_nonfinite,
        buffer=buffer,
        weights=weights,
        waits=Patience(deadline, minimum, enough, patience),
        bound=bound,
        say=say,
    )
    return _closing(served)


def _closing(served: Any) -> Iterator[Record]:
    try:
        yield from served.records()
    finally:
        served.close()
