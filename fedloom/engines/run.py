"""What every engine shares: a run's definition and its checks, its randomness, and its records."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule, Draw, everyone
from fedloom.hyperparameters import misplaced_arrays, per_client_fields
from fedloom.problem import Key, Vector


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
        return Counters(
            rounds=self.rounds,
            exchanges=self.exchanges + exchanges,
            messages=self.messages + 2 * clients,
            bytes_down=self.bytes_down + bytes_down,
            bytes_up=self.bytes_up + bytes_up,
            gradients=self.gradients + gradients,
        )

    def after_rounds(self, rounds: int) -> "Counters":
        return self._replace(rounds=self.rounds + rounds)


class Origin(NamedTuple):
    """What a run started from: a record can be resumed by a run of the same origin only."""

    algorithm: str
    seed: int
    w: Vector
    plan: Any = None  # of the compiled engine: the same bits need the same plan


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

    def room(self, clients: int) -> int:
        """Room for a cohort: the expected size, or a power of two if more clients came than expected."""
        return self.lanes if clients <= self.lanes else 1 << (clients - 1).bit_length()

    def cohorts(self, t: int) -> list[Draw]:
        """The cohorts of round t, one for each exchange."""
        draws: list[Draw] = []
        for e, exchange in enumerate(self.algorithm.exchanges):
            if exchange.same_cohort and draws:
                draws.append(draws[-1])
            else:
                draws.append(self.draw(np.random.default_rng([self.seed, t, e]), t))
        return draws


def prepare(
    algorithm: Algorithm,
    federation: Federation,
    solver: Solver,
    w: Any,
    rounds: int,
    cohort: CohortRule | None,
    seed: int,
    on_nonfinite: str,
    resume: Record | None,
) -> Run:
    """Check everything that can be checked before the expensive work."""
    cohort = everyone() if cohort is None else cohort
    for name, value, kind, example in (
        ("algorithm", algorithm, Algorithm, 'FedAvg() or make("fedavg")'),
        ("federation", federation, Federation, "examples(...)"),
        ("solver", solver, Solver, "SGD(lr=0.1)"),
        ("cohort", cohort, CohortRule, "uniform(10)"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a value such as {example}, got {value!r}.")
    for name, number, limit in (("rounds", rounds, np.inf), ("seed", seed, 2**32)):
        if not isinstance(number, int | np.integer) or not 0 <= number < limit:
            bound = "" if limit == np.inf else f" and smaller than {limit}"
            raise ValueError(f"{name} must be a whole number that is not negative{bound}, got {number!r}.")
    if on_nonfinite not in ("raise", "drop"):
        raise ValueError(f"on_nonfinite must be 'raise' or 'drop', got {on_nonfinite!r}.")
    p = np.asarray(federation.weights, dtype=float)
    if not (np.all(p >= 0) and abs(p.sum() - 1) < 1e-3):
        raise ValueError(
            f"federation: weights must not be negative and must add up to 1, but their sum is {p.sum():g}."
        )
    who = type(algorithm).__name__
    if algorithm.needs_everyone and not isinstance(cohort, everyone):
        raise ValueError(
            f"{who} needs every client in every round, but the cohort is {cohort!r}; "
            "use cohort=everyone(), or a method that allows partial participation."
        )
    if algorithm.needs_everyone and on_nonfinite == "drop":
        raise ValueError(f"{who} needs every client in every round, so none can be dropped; use on_nonfinite='raise'.")
    needed = algorithm.needs | ({"work"} if cohort.partial_work else set())
    if missing := needed - solver.offers:
        raise ValueError(
            f"{who} with cohort {cohort!r} needs a solver that offers {', '.join(sorted(missing))}, which "
            f"{solver!r} does not. " + " ".join(_REMEDY[m] for m in sorted(missing))
        )
    for name, values in per_client_fields(algorithm).items():
        if len(values) != len(p):
            raise ValueError(
                f"{who}: {name} has {len(values)} entries for {len(p)} clients; give one number or {len(p)}."
            )
    for value in (algorithm, solver):
        for name, shape in misplaced_arrays(value).items():
            raise ValueError(f"{type(value).__name__}: {name} must be one number, got an array of shape {shape}.")
    draw = cohort.over(p)
    if rounds:
        draw(np.random.default_rng([seed, rounds - 1, 0]), rounds - 1)  # a trace may be too short
    w = _checked_model(w, federation)
    origin = Origin(who, int(seed), w)
    server = jax.tree.map(lambda x: jnp.array(x, jnp.asarray(x).dtype), algorithm.init(w))
    start = Record(0, server, {}, origin=origin) if resume is None else _checked_resume(resume, server, origin, rounds)
    key, drop = jax.random.key(int(seed)), on_nonfinite == "drop"
    lanes = cohort.lanes(len(p))
    partial = cohort.partial_work
    return Run(algorithm, federation, solver, draw, lanes, partial, p, w, int(rounds), int(seed), key, drop, start)


def _checked_resume(resume: Record, server: Any, origin: Origin, rounds: int) -> Record:
    """A record can be resumed with the arguments of its own run, up to a later round."""
    old = resume.origin or origin
    if old.algorithm != origin.algorithm or shapes(resume.server) != shapes(server):
        raise ValueError(f"resume: the record is of {old.algorithm}, or of a model of another size or type.")
    if old.seed != origin.seed:
        raise ValueError(f"resume: the record's run has seed {old.seed}, this one {origin.seed}.")
    if not bool(jnp.array_equal(old.w, origin.w)):
        raise ValueError("resume: w must be the initial model of the record's run, not the model where it stopped.")
    if resume.round > rounds:
        raise ValueError(
            f"resume: the record has {resume.round} rounds already, so rounds, which counts all, must be at least that."
        )
    origin = origin._replace(plan=old.plan)
    return resume._replace(origin=origin, residual=None, unsolved=0, dropped=())  # these are of single records


_REMEDY = {
    "lr_sum": "Use GD, or SGD without momentum and clip; SCAFFOLD's option I works with any solver.",
    "accumulator": "Use the solver Adagrad.",
    "work": "Use a solver that works in steps, such as SGD.",
}


def _checked_model(w: Any, federation: Federation) -> Vector:
    w = jnp.asarray(w)
    if w.ndim != 1 or not jnp.issubdtype(w.dtype, jnp.floating):
        raise ValueError(
            f"w must be a flat vector of floats, got shape {w.shape} of {w.dtype}; "
            "jax.flatten_util.ravel_pytree turns parameters into one."
        )
    if not bool(jnp.all(jnp.isfinite(w))):
        raise ValueError("w must be finite: the initial model has NaN or infinite entries.")
    try:
        grad = jax.eval_shape(lambda f, v: f.objective(0).grad(v), federation, w)
    except Exception as error:
        raise ValueError(f"The federation's loss does not accept w of length {w.size}: {error}") from error
    if grad.dtype != w.dtype:
        raise ValueError(
            f"w is of type {w.dtype}, but the federation's gradients are of type {grad.dtype}; "
            f"use one float type, for example w.astype({grad.dtype})."
        )
    return w


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
