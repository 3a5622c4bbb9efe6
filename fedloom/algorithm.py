"""What a federated method is: a server state, a client state, and trips between them.

    class Mine(Round):                                  # fields = hyperparameters, nothing else
        def init(self, w): ...                          # the server's state; it has a field w, the model to evaluate
        def init_client(self, w): ...                   # what a client remembers, () if nothing
        def send(self, s): ...                          # the message, the same for the whole cohort
        def local(self, message, memory, client): ...   # runs on one client; returns (reply, memory)
        def receive(self, s, mean, cohort): ...         # mean = weighted mean of the replies

Everything is pure and works on flat vectors, so that the same file runs in every engine. Population weights p_k live
in the mean, not in a method; one whose clients work differently if they weigh more asks `client.relative_weight`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from fedloom.problem import Key, Problem, Scalar, Solution, Vector


class Cohort(NamedTuple):
    """What the server knows of those who replied, besides the weighted mean of their replies."""

    share: Scalar  # population weight of the clients behind the mean: sum of p_k; 1.0 = everyone
    key: Key  # server-side randomness of this exchange
    total: Any  # sum of p_k * reply_k over them, each counted once: what changes of client memories add up to
    staleness: Scalar = 0  # server updates between send and receive


class Client(Protocol):
    """All that a method may ask of a client."""

    @property
    def key(self) -> Key:
        """This client's randomness in this exchange: a function of (seed, round, exchange, client)."""

    @property
    def coin(self) -> Key:
        """Randomness that the whole cohort of this exchange shares."""

    @property
    def t(self) -> Scalar:
        """The number of rounds before this one: 0 in the first round."""

    @property
    def relative_weight(self) -> Scalar:
        """p_k times the number of clients, 1 on average; n_k / mean(n) where weights are in proportion to examples."""

    def loss(self, w: Vector) -> Scalar:
        """F_k(w) over all local data."""

    def grad(self, w: Vector) -> Vector:
        """The full gradient of F_k at w."""

    def solve(self, problem: Problem) -> Solution:
        """Minimise the local problem as the chosen solver does."""

    def repeat(self, times: Scalar, step: Callable[[Any], Any], state: Any) -> Any:
        """Apply `step` to `state` `times` times. Loops that solve or differentiate belong here."""


class Exchange(NamedTuple):
    """One trip: server -> cohort -> server."""

    name: str
    send: Callable[[Any], Any]
    local: Callable[[Any, Any, Client], tuple[Any, Any]]
    receive: Callable[[Any, Any, Cohort], Any]
    same_cohort: bool = False  # reuse the cohort of the exchange before it, instead of drawing a new one
    aged: Callable[[Any, Scalar], Any] = lambda reply, staleness: reply  # what counts of a late reply; all, if not late


class Algorithm(ABC):
    """A federated method as a value. Subclasses are frozen dataclasses whose fields are the hyperparameters."""

    about: ClassVar[str] = ""  # in one line, for a method that shares its file, and so its docstring, with others
    # With default options the optimum of sum_k p_k F_k is a fixed point even though the clients differ.
    # False: the limit is off by O(client step size).
    exact: ClassVar[bool] = True
    needs_everyone: ClassVar[bool] = False
    # A reply may meet a newer server state. True if replies are differences of things the client itself knows, or if
    # the method says what a late one counts.
    tolerates_staleness: ClassVar[bool] = False
    why_not_stale: ClassVar[str] = "its server combines replies with its own state, which must be the one they answer."

    @property
    def needs(self) -> frozenset[str]:
        """What the method must learn from a Solution beyond `w`, for example {"lr_sum"}."""
        return frozenset()

    @abstractmethod
    def init(self, w: Vector) -> Any:
        """The server's first state; it has a field `w`, the model to evaluate."""

    def init_client(self, w: Vector) -> Any:
        """A client's first memory, given the *initial* model; () if it remembers nothing."""
        return ()

    @property
    @abstractmethod
    def exchanges(self) -> tuple[Exchange, ...]:
        """The trips of one round, in order."""

    def invariant(self, s: Any, memory: Any) -> tuple[Any, Any] | None:
        """(left, right) such that left = sum_k p_k right(memory_k) after every round, if the method has such a law."""
        return None

    def own_model(self, memory: Any) -> Vector | None:
        """The client's own model, if the method keeps one: what FedDR's and FedPD's published figures evaluate."""
        return None

    def exact_memory(self, w: Vector, grad: Vector) -> Any:
        """A client's memory when the method rests at the optimum w, given grad = gradient of F_k at w."""
        return self.init_client(w)


class Round(Algorithm):
    """A method whose round is one exchange."""

    @abstractmethod
    def send(self, s: Any) -> Any:
        """The message to every client of the cohort, from the server's state."""

    @abstractmethod
    def local(self, message: Any, memory: Any, client: Client) -> tuple[Any, Any]:
        """A client's reply and its new memory, from the message and the memory it has."""

    @abstractmethod
    def receive(self, s: Any, mean: Any, cohort: Cohort) -> Any:
        """The server's next state, from the weighted mean of the replies."""

    def aged(self, reply: Any, staleness: Scalar) -> Any:
        """What counts of a reply that comes `staleness` server updates late; with 0 it must be the reply itself."""
        return reply

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        return (Exchange("train", self.send, self.local, self.receive, aged=self.aged),)


class Server(NamedTuple):
    """The server state of methods that keep nothing but the model."""

    w: Vector
