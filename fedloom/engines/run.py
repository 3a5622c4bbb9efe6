"""What every engine shares: a run's definition and its checks, its randomness, and its records."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import Draw
from fedloom.engines.clock import Clock
from fedloom.engines.rounds import Rounds
from fedloom.problem import Key, Vector
from fedloom.systems import Delays, System, Work


class ClientError(RuntimeError):
    """Something went wrong inside a client; the message names the client, the round and the exchange."""


class NonFiniteUpdate(ArithmeticError):
    """A client produced NaN or infinity; the message names the client, the round and the exchange."""

    def __init__(self, message: str, round: int = 0):
        super().__init__(message)
        self.round = round  # from 0


class Counters(NamedTuple):
    """Totals since the start of the run."""

    rounds: int = 0
    exchanges: int = 0  # trips server -> cohort -> server
    messages: int = 0  # one down and one up for each client in each exchange
    bytes_down: int = 0
    bytes_up: int = 0
    gradients: int = 0  # example gradients evaluated by clients: a full local gradient costs n_k, a minibatch its size

    def after_exchanges(
        self, exchanges: int, clients: int, bytes_down: int, bytes_up: int, gradients: int
    ) -> "Counters":
        """The counters after some more exchanges with so many clients in all."""
        return Counters(
            rounds=self.rounds,
            exchanges=self.exchanges + exchanges,
            messages=self.messages + 2 * clients,
            bytes_down=self.bytes_down + bytes_down,
            bytes_up=self.bytes_up + bytes_up,
            gradients=self.gradients + gradients,
        )

    def after_lost(self, lost: np.ndarray, sizes: list[tuple[int, int]]) -> "Counters":
        """Messages to and from clients that are not counted: how many down and up, and their bytes, by exchange."""
        down, up = np.sum(lost * np.array(sizes), axis=0).tolist()
        return self._replace(
            messages=self.messages + int(np.sum(lost)), bytes_down=self.bytes_down + down, bytes_up=self.bytes_up + up
        )

    def after_rounds(self, rounds: int) -> "Counters":
        """The counters after some more rounds."""
        return self._replace(rounds=self.rounds + rounds)


class Origin(NamedTuple):
    """What a run started from: a record can be resumed by a run of the same origin only."""

    algorithm: str
    seed: int
    w: Vector
    plan: Any = None  # of the compiled engine: the same bits need the same plan
    engine: Any = None  # (buffer, system): the buffer is None in synchronous rounds


class Record(NamedTuple):
    """The run after `round` rounds. Give it back as `resume=` and the run goes on, bit by bit as if never stopped."""

    round: int
    server: Any  # the algorithm's server state
    clients: Mapping[int, Any]  # memories of the clients met so far; read it before the iterator moves on
    counters: Counters = Counters()
    cohort: tuple[np.ndarray, ...] = ()  # who took part in the last round, one array for each exchange
    residual: float | None = None  # the worst that a solver reported since the record before; None: not measured
    unsolved: int = 0  # local solves that ended before their tolerance, since the record before
    dropped: tuple[tuple[int, int, str], ...] = ()  # (round, client, exchange) left out as not finite, since then
    origin: Origin | None = None
    clock: Clock | None = None  # simulated time, if the run has any
    flying: Any = None  # of an asynchronous run: what jobs under way have started with and come to

    @property
    def w(self) -> Vector:
        """The model."""
        return self.server.w

    def keep(self) -> "Record":
        """A copy that can be read and resumed after the run has moved on. (The model and counters always can.)"""
        return self._replace(clients=copy.copy(self.clients))


class Run(NamedTuple):
    """A run that has passed all checks."""

    algorithm: Algorithm
    federation: Federation
    solver: Solver
    draw: Callable[[np.random.Generator, int], Draw]
    lanes: int
    partial_work: bool
    p: np.ndarray
    w: Vector
    rounds: int
    seed: int
    key: Key
    drop: bool
    start: Record
    system: System | Delays | None = None
    on_clock: Rounds | None = None  # the rounds of a synchronous run under a system
    usual_weight: Any = None  # in the mean, of each client that is drawn once

    def room(self, clients: int) -> int:
        """Room for a cohort: the expected size, or a power of two if more clients came than expected."""
        return self.lanes if clients <= self.lanes else 1 << (clients - 1).bit_length()

    def cohorts(self, t: int) -> list[Draw]:
        """The cohorts of round t, one for each exchange."""
        if self.on_clock is not None:
            return self.on_clock.cohorts(t)
        draws: list[Draw] = []
        for e, exchange in enumerate(self.algorithm.exchanges):
            if exchange.same_cohort and draws:
                draws.append(draws[-1])
            else:
                draws.append(self.drawn(t, e))
        return draws

    def drawn(self, t: int, e: int) -> Draw:
        return self.draw(np.random.default_rng([self.seed, t, e]), t)

    def with_clock(self, sizes: list[tuple[int, int]], steps: np.ndarray) -> "Run":
        """Under its system, if it has one: messages have these sizes, and clients take so many steps."""
        if self.system is None:
            return self
        if isinstance(self.system, Delays):
            raise ValueError(
                "system: Delays are those of late replies, which synchronous rounds do not have; use `events`."
            )
        works = [Work(down, up, np.maximum(steps, 1)) for down, up in sizes]
        rounds = Rounds(self.system, self.algorithm.exchanges, works, self.drawn, self.seed)
        if self.start.round:
            rounds.cohorts(self.start.round - 1)
            self.check_clock(rounds.clock)
        return self._replace(on_clock=rounds)

    @property
    def lost(self) -> np.ndarray:
        """Messages down and up that count for nothing, by exchange, up to the round that was asked for last."""
        return np.zeros((len(self.algorithm.exchanges), 2), int) if self.on_clock is None else self.on_clock.lost.copy()

    def check_clock(self, clock: Clock | None) -> None:
        """Where a run is resumed, the clock must be where the record has it."""
        if clock is not None and self.start.clock is not None and clock != self.start.clock:
            raise ValueError(
                "resume: the clock of the record is not where this system would have it; has a trace changed since?"
            )

    @property
    def clock(self) -> Clock | None:
        """After the round whose cohorts were asked for last."""
        return None if self.on_clock is None else self.on_clock.clock


# Randomness is a function of (seed, round, exchange, client id), never of position, process or order.


def exchange_key(key: Key, t: Any, e: int) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, t), e)


def client_key(key: Key, k: Any) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, 0), k)


def coin_key(key: Key) -> Key:
    return jax.random.fold_in(key, 1)


def server_key(key: Key) -> Key:
    return jax.random.fold_in(key, 2)


def nbytes(tree: Any) -> int:
    """The bytes of a message: its numbers, and nothing else."""
    return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def shapes(tree: Any) -> Any:
    """Structure, shapes and types of a tree, to be compared."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jnp.shape(x), jnp.result_type(x)) for x in leaves]


def all_finite(tree: Any) -> Any:
    """Are all floats of the tree finite?"""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in floats])) if floats else jnp.array(True)


def not_finite(t: int, client: int, exchange: str) -> NonFiniteUpdate:
    return NonFiniteUpdate(
        f"Client {client} returned NaN or infinity in round {t} (from 0), exchange {exchange!r}. "
        "Lower the step sizes, or leave such clients out with on_nonfinite='drop'.",
        t,
    )


def server_not_finite(t: int, exchange: str) -> NonFiniteUpdate:
    return NonFiniteUpdate(
        f"The server's state has NaN or infinity after round {t} (from 0), exchange {exchange!r}, although all replies "
        "were finite. Lower the server's step size.",
        t,
    )
