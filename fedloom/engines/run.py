"""What every engine shares: a run's definition and its checks, its randomness, and its records."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.cohorts import CohortRule, Draw, everyone, stragglers
from fedloom.hyperparameters import per_client_fields
from fedloom.problem import Key, Vector


class ClientError(RuntimeError):
    """Something went wrong inside a client; the message names the client, the round and the exchange."""


class NonFiniteUpdate(ArithmeticError):
    """A client produced NaN or infinity; the message names the client, the round and the exchange."""


class Counters(NamedTuple):
    """Totals since the start of the run."""

    rounds: int = 0
    exchanges: int = 0  # trips server -> cohort -> server
    messages: int = 0  # one down and one up for each client in each exchange
    bytes_down: int = 0
    bytes_up: int = 0
    gradients: int = 0  # example gradients evaluated by clients: a full local gradient costs n_k, a minibatch its size


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

    @property
    def w(self) -> Vector:
        """The model."""
        return self.server.w


class Run(NamedTuple):
    """A run that has passed all checks."""

    algorithm: Algorithm
    federation: Federation
    solver: Solver
    draw: Callable[[np.random.Generator, int], Draw]
    p: np.ndarray
    w: Vector
    rounds: int
    seed: int
    key: Key
    drop: bool
    start: Record

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
    for name, number in (("rounds", rounds), ("seed", seed)):
        if not isinstance(number, int | np.integer) or number < 0:
            raise ValueError(f"{name} must be a whole number that is not negative, got {number!r}.")
    if on_nonfinite not in ("raise", "drop"):
        raise ValueError(f"on_nonfinite must be 'raise' or 'drop', got {on_nonfinite!r}.")
    p = np.asarray(federation.weights, dtype=float)
    who = type(algorithm).__name__
    if algorithm.needs_everyone and not isinstance(cohort, everyone):
        raise ValueError(
            f"{who} needs every client in every round, but the cohort is {cohort!r}; "
            "use cohort=everyone(), or a method that allows partial participation."
        )
    if algorithm.needs_everyone and on_nonfinite == "drop":
        raise ValueError(f"{who} needs every client in every round, so none can be dropped; use on_nonfinite='raise'.")
    needed = algorithm.needs | _work_needed(cohort)
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
    draw = cohort.over(p)
    if rounds:
        draw(np.random.default_rng([seed, rounds - 1, 0]), rounds - 1)  # a trace may be too short
    w = _checked_model(w, federation)
    if resume is None:
        server = jax.tree.map(lambda x: jnp.array(x, jnp.asarray(x).dtype), algorithm.init(w))
        resume = Record(0, server, {})
    key = jax.random.key(int(seed))
    drop = on_nonfinite == "drop"
    return Run(algorithm, federation, solver, draw, p, w, int(rounds), int(seed), key, drop, resume)


_REMEDY = {
    "lr_sum": "Use GD, or SGD without momentum and clip; SCAFFOLD's option I works with any solver.",
    "accumulator": "Use the solver Adagrad.",
    "work": "Use a solver that works in steps, such as SGD.",
}


def _work_needed(cohort: CohortRule) -> frozenset[str]:
    partial = isinstance(cohort, stragglers) and not cohort.drop
    return frozenset({"work"} if partial else ())


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
        jax.eval_shape(lambda v: federation.objective(0).loss(v), w)
    except Exception as error:
        raise ValueError(f"The federation's loss does not accept w of length {w.size}: {error}") from error
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


def all_finite(tree: Any) -> Any:
    """Are all floats of the tree finite?"""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in floats])) if floats else jnp.array(True)


def not_finite(t: int, client: int, exchange: str) -> NonFiniteUpdate:
    return NonFiniteUpdate(
        f"Client {client} returned NaN or infinity in round {t} (from 0), exchange {exchange!r}. "
        "Lower the step sizes, or leave such clients out with on_nonfinite='drop'."
    )


def server_not_finite(t: int, exchange: str) -> NonFiniteUpdate:
    return NonFiniteUpdate(
        f"The server's state has NaN or infinity after round {t} (from 0), exchange {exchange!r}, although all replies "
        "were finite. Lower the server's step size."
    )
