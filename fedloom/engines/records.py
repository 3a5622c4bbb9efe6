"""What engines yield: records with exact totals, and the errors that end a run."""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedloom.engines.clock import Clock
from fedloom.engines.plan import Plan
from fedloom.engines.trees import Tree
from fedloom.problem import Vector
from fedloom.systems import Delays, System

Sizes = list[tuple[int, int]]  # bytes down and up for one client, by exchange


class ClientError(RuntimeError):
    """Something went wrong inside a client; the message names the client, the round and the exchange."""


class NonFiniteUpdate(ArithmeticError):
    """A client or the server produced NaN or infinity; the message names the round and the exchange."""

    def __init__(self, message: str, round: int = 1):
        super().__init__(message)
        self.round = round  # from 1


def client_not_finite(t: int, client: int, exchange: str) -> NonFiniteUpdate:
    return NonFiniteUpdate(
        f"Client {client} returned NaN or infinity in round {t + 1}, exchange {exchange!r}. "
        "Use smaller step sizes, or leave such clients out with on_nonfinite='drop'.",
        t + 1,
    )


def server_not_finite(t: int, exchange: str) -> NonFiniteUpdate:
    return NonFiniteUpdate(
        f"The server's state contains NaN or infinity after round {t + 1}, exchange {exchange!r}, although all replies "
        "were finite. Use a smaller server step size.",
        t + 1,
    )


class Counters(NamedTuple):
    """Totals since the start of the run."""

    rounds: int = 0
    exchanges: int = 0  # trips server -> cohort -> server
    messages: int = 0  # one down and one up for each client in each exchange
    bytes_down: int = 0
    bytes_up: int = 0
    gradients: int = 0  # example gradients evaluated by clients: a full local gradient costs n_k, a minibatch its size

    def after_exchanges(self, exchanges: int, clients: int, bytes_down: int, bytes_up: int) -> "Counters":
        """With more exchanges, and the clients and bytes of all of them."""
        return self._replace(
            exchanges=self.exchanges + exchanges,
            messages=self.messages + 2 * clients,
            bytes_down=self.bytes_down + bytes_down,
            bytes_up=self.bytes_up + bytes_up,
        )

    def after_lost(self, lost: np.ndarray, sizes: Sizes) -> "Counters":
        """Messages to and from clients that did not count: lost [exchanges, 2] says how many went down and up."""
        down, up = np.sum(lost * np.array(sizes), axis=0).tolist()
        return self._replace(
            messages=self.messages + int(np.sum(lost)), bytes_down=self.bytes_down + down, bytes_up=self.bytes_up + up
        )

    def after_gradients(self, gradients: int) -> "Counters":
        """With that many more example gradients."""
        return self._replace(gradients=self.gradients + gradients)

    def after_rounds(self, rounds: int) -> "Counters":
        """With that many more rounds."""
        return self._replace(rounds=self.rounds + rounds)


class Origin(NamedTuple):
    """What a run started from: only a run of the same origin can resume its records."""

    algorithm: str
    seed: int
    w: Vector
    plan: Plan | None = None  # of a compiled engine: the same bits need the same plan
    engine: tuple[int | None, System | Delays | None] = (None, None)  # buffer (None: synchronous rounds) and system


class Record(NamedTuple):
    """The run after `round` rounds. Pass it as `resume=` and the run continues, bit by bit as if it never stopped."""

    round: int
    server: Tree  # the algorithm's server state
    clients: Mapping[int, Any]  # memories of the clients met so far; read it before the iterator moves on
    counters: Counters = Counters()
    cohort: tuple[np.ndarray, ...] = ()  # who took part in the last round, one array for each exchange
    residual: float | None = None  # the worst that a solver reported since the previous record; None: not measured
    unsolved: int = 0  # local solves that ended before their tolerance, since the previous record
    dropped: tuple[tuple[int, int, str], ...] = ()  # (round, client, exchange) left out as not finite, since then
    origin: Origin | None = None
    clock: Clock | None = None  # simulated time, if the run has any; of a federation, the real time
    in_flight: Tree = None  # of an asynchronous run: what unfinished jobs started with and have computed
    traffic: tuple[int, int] | None = None  # of a federation: bytes that really travelled, down and up

    @property
    def w(self) -> Vector:
        """The model."""
        return self.server.w

    def keep(self) -> "Record":
        """A copy that can be read and resumed after the run has moved on. (The model and counters always can.)"""
        return self._replace(clients=copy.copy(self.clients))

    def fresh(self) -> "Record":
        """Without what belongs to this record alone."""
        return self._replace(residual=None, unsolved=0, dropped=())
