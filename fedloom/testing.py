"""A battery that any federated algorithm must pass, ours or yours.

    >>> from fedloom import FedDyn
    >>> from fedloom.testing import check_algorithm
    >>> sorted(check_algorithm(FedDyn(alpha=0.3)))  # doctest: +NORMALIZE_WHITESPACE
    ['compilation', 'engines', 'fixed point', 'invariant', 'optimum', 'optimum, partial', 'renumbering', 'structure']

Everything runs on heterogeneous quadratics with unequal weights and Hessians that do not commute, in float64, from a
model that is not zero: on easier problems a wrong sign, a lost weight or a wrong initialisation goes unseen.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm, Cohort, Exchange
from fedloom.client import Federation, LocalClient, Objective, Solver
from fedloom.cohorts import CohortRule, by_weight, everyone, scheduled, uniform, with_replacement
from fedloom.data.quadratic import Quadratics, quadratics
from fedloom.engines import NonFiniteUpdate, Record, reference, simulate
from fedloom.hyperparameters import frozen
from fedloom.solvers import GD, Adagrad, Exact

Transcription = Callable[[Quadratics, np.ndarray, list[list[int]]], list[np.ndarray]]


def check_algorithm(
    algorithm: Algorithm,
    *,
    solver: Solver | None = None,
    rounds: int = 2000,
    transcription: Transcription | None = None,
) -> dict[str, str]:
    """Check `algorithm` against its mathematics. Raises AssertionError, or returns what was measured.

    structure         states keep their shapes and dtypes, in float32 and in float64; the server state has the model w
    optimum           `exact` methods reach the closed-form optimum with everyone; the others miss it by an error that
                      halves when the clients' step size is halved
    optimum, partial  methods with an invariant reach it with partial participation too
    fixed point       `exact` methods stay at the optimum when started there with exact memories
    invariant         left = sum_k p_k right(memory_k) after every round, however the cohort is drawn
    renumbering       the clients' numbers do not matter
    compilation       neither later rounds nor other values of numeric hyperparameters are compiled again
    engines           the compiled engine equals the reference engine, counters included
    transcription     iterates equal an independent implementation for 20 rounds with partial participation

    Args:
        algorithm: with hyperparameters for which it converges on eigenvalues in [0.1, 1].
        solver: how clients solve their problems; by default exactly, or by a few gradient steps where that is needed.
        rounds: how long it may take to converge.
        transcription: transcription(federation, w, cohorts) gives the model after each round, in NumPy.
    """
    with jax.enable_x64(True):
        case = _Case(algorithm, solver or usual_solver(algorithm), rounds)
        found = {"structure": case.structure(), "optimum": case.optimum()}
        if algorithm.exact:
            found["fixed point"] = case.fixed_point()
        if case.has_invariant() and not algorithm.needs_everyone:
            found["optimum, partial"] = case.optimum_partial()
            found["invariant"] = case.invariant()
        found["renumbering"] = case.renumbering()
        found["compilation"] = case.compilation()
        found["engines"] = case.engines()
        if transcription is not None:
            found["transcription"] = case.transcription(transcription)
        return found


def usual_solver(algorithm: Algorithm) -> Solver:
    """Exact solves, unless the method learns from the steps or is biased by them."""
    if "accumulator" in algorithm.needs:
        return Adagrad(lr=1.0, steps=3)
    if "lr_sum" in algorithm.needs or not algorithm.exact:
        return GD(lr=0.1, steps=3)
    return Exact()


def stacked(record: Record, algorithm: Algorithm, w: Any, clients: int) -> Any:
    """The memories of all clients as arrays [clients, ...]; those not met yet have their first memory."""
    blank = algorithm.init_client(jnp.asarray(w))
    rows = [record.clients.get(k, blank) for k in range(clients)]
    return jax.tree.map(lambda *x: jnp.stack(x), *rows)


def imbalance(record: Record, algorithm: Algorithm, federation: Federation, w: Any) -> float:
    """How far the method's invariant is from holding: |left - sum_k p_k right(memory_k)|."""
    memories = stacked(record, algorithm, w, federation.clients)
    pairs = jax.vmap(lambda memory: algorithm.invariant(record.server, memory))(memories)
    assert pairs is not None
    left, right = pairs
    return float(jnp.linalg.norm(left[0] - jnp.asarray(federation.weights) @ right))


@frozen
class _Counting(Federation):
    """A federation that notes how often client code is traced."""

    inner: Any
    weights: Any
    traces: list[int] = dataclasses.field(metadata={"static": True})

    def objective(self, k: Any) -> Objective:
        self.traces[0] += 1
        return self.inner.objective(k)


class _Traces(list[int]):
    """A counter that can be part of a compiled program's identity."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class _Case:
    """One algorithm on the battery's federation."""

    def __init__(self, algorithm: Algorithm, solver: Solver, rounds: int):
        self.algorithm, self.solver, self.rounds = algorithm, solver, rounds
        self.quadratics = quadratics(clients=7, dimension=4, seed=3)
        self.traces = _Traces([0])
        self.federation = self.counted(self.quadratics)
        self.w = np.array([2.0, -1.0, 0.5, 3.0])
        self.partial: CohortRule = everyone() if algorithm.needs_everyone else uniform(3)

    def counted(self, federation: Quadratics) -> _Counting:
        return _Counting(federation, federation.weights, self.traces)

    def require(self, holds: bool, check: str, sentence: str) -> None:
        if not holds:
            raise AssertionError(f"{self.algorithm!r} with {self.solver!r} fails {check!r}: {sentence}")

    def last(self, solver: Solver, rounds: int, cohort: CohortRule | None = None, **more: Any) -> Record:
        # One chunk size for all long runs, and one for all short ones: they share their programs.
        more = {"chunk": self.rounds} | more
        run = simulate(self.algorithm, self.federation, solver, self.w, rounds, cohort=cohort, **more)
        try:
            return list(run)[-1]
        except NonFiniteUpdate as error:
            raise AssertionError(f"{self.algorithm!r} with {solver!r} fails 'optimum': it diverges. {error}") from error

    def error(self, record: Record) -> float:
        return float(np.linalg.norm(np.asarray(record.w) - self.quadratics.optimum()))

    def has_invariant(self) -> bool:
        server = self.algorithm.init(jnp.asarray(self.w))
        return self.algorithm.invariant(server, self.algorithm.init_client(jnp.asarray(self.w))) is not None

    def structure(self) -> str:
        for dtype in (jnp.float32, jnp.float64):
            w = jnp.asarray(self.w, dtype)
            federation = jax.tree.map(lambda x, d=dtype: jnp.asarray(x, d), self.quadratics)
            server, memory = self.algorithm.init(w), self.algorithm.init_client(w)
            model = getattr(server, "w", None)
            self.require(
                model is not None and model.shape == w.shape and model.dtype == dtype,
                "structure",
                f"init must return a state with a field w of shape {w.shape} and type {w.dtype}.",
            )
            for e in range(len(self.algorithm.exchanges)):
                after = jax.eval_shape(lambda s, m, e=e, f=federation: self._one_client(s, m, e, f), server, memory)
                for what, old, new in zip(("server state", "memory"), (server, memory), after, strict=True):
                    shapes = jax.tree.map(lambda x: (jnp.shape(x), jnp.asarray(x).dtype), old)
                    news = jax.tree.map(lambda x: (x.shape, x.dtype), new)
                    self.require(shapes == news, "structure", f"an exchange turns the {what} {shapes} into {news}.")
        self._fresh_replies_count_in_full()
        leaves, tree = jax.tree.flatten(self.algorithm)
        again = jax.tree.unflatten(tree, leaves)
        self.require(repr(again) == repr(self.algorithm), "structure", "it does not survive jax.tree.unflatten.")
        return "shapes and dtypes are kept"

    def _fresh_replies_count_in_full(self) -> None:
        """`aged` belongs to asynchronous runs; with staleness 0 it must change nothing, for then it is not called."""
        server, memory = (init(jnp.asarray(self.w)) for init in (self.algorithm.init, self.algorithm.init_client))
        for exchange in self.algorithm.exchanges:

            def reply(server: Any, memory: Any, exchange: Exchange = exchange) -> Any:
                key = jax.random.key(0)
                client = LocalClient(self.quadratics.objective(0), self.solver, key, key, jnp.array(0, jnp.int32), 1.0)
                return exchange.local(exchange.send(server), memory, client)[0]

            some = jax.tree.map(lambda x: jnp.full(x.shape, 3, x.dtype), jax.eval_shape(reply, server, memory))
            same = relative_difference(exchange.aged(some, jnp.zeros(())), some) == 0
            self.require(same, "structure", "aged(reply, 0) must be the reply itself: a fresh reply counts in full.")

    def _one_client(self, server: Any, memory: Any, e: int, federation: Federation) -> tuple[Any, Any]:
        exchange, key = self.algorithm.exchanges[e], jax.random.key(0)
        client = LocalClient(federation.objective(0), self.solver, key, key, jnp.array(0, jnp.int32), 1.0)
        reply, memory = exchange.local(exchange.send(server), memory, client)
        return exchange.receive(server, reply, Cohort(jnp.ones((), server.w.dtype), key, reply)), memory

    def optimum(self) -> str:
        lr: Any = getattr(self.solver, "lr", None)
        if not self.algorithm.exact and not isinstance(lr, float):
            raise ValueError(
                f"{self.algorithm!r} is not exact: give a solver whose lr is a number, so that it can be halved."
            )
        error = self.error(self.last(self.solver, self.rounds))
        if self.algorithm.exact:
            self.require(error < 1e-6, "optimum", f"it ends {error:.1e} from the optimum with everyone.")
            return f"{error:.1e} from the optimum"
        halved = self.error(self.last(dataclasses.replace(self.solver, lr=lr / 2), self.rounds))  # type: ignore[type-var]
        self.require(
            error < 0.5 and 1.6 < error / halved < 2.5,
            "optimum",
            f"its error should halve with the clients' step size, but goes from {error:.2e} to {halved:.2e}.",
        )
        return f"error {error:.1e}, {error / halved:.2f} times smaller with half the step size"

    def optimum_partial(self) -> str:
        error = self.error(self.last(self.solver, 2 * self.rounds, self.partial))
        self.require(error < 1e-6, "optimum, partial", f"with {self.partial} it ends {error:.1e} from the optimum.")
        return f"{error:.1e} from the optimum with {self.partial}"

    def fixed_point(self) -> str:
        w = jnp.asarray(self.quadratics.optimum())
        memories = {
            k: self.algorithm.exact_memory(w, self.quadratics.objective(k).grad(w))
            for k in range(self.federation.clients)
        }
        start = Record(round=1, server=self.algorithm.init(w), clients=memories)
        error = self.error(self.last(self.solver, 6, resume=start))
        self.require(error < 1e-10, "fixed point", f"started at the optimum with exact memories it moves {error:.1e}.")
        return f"moves {error:.1e}"

    def invariant(self) -> str:
        worst = 0.0
        for cohort in (uniform(3), with_replacement(3), by_weight(3)):
            for record in simulate(self.algorithm, self.federation, self.solver, self.w, 12, cohort=cohort, seed=1):
                off = imbalance(record, self.algorithm, self.federation, self.w)
                worst = max(worst, off)
                self.require(off < 1e-10, "invariant", f"off by {off:.1e} after round {record.round} with {cohort}.")
        return f"off by at most {worst:.1e}"

    def renumbering(self) -> str:
        n = self.federation.clients
        new = np.random.default_rng(5).permutation(n)  # client k becomes new[k]
        renumbered = self.counted(jax.tree.map(lambda x: np.asarray(x)[np.argsort(new)], self.quadratics))
        trace = [list(range(n))] * 8 if self.algorithm.needs_everyone else _trace(8, n)
        moved = [[int(new[k]) for k in members] for members in trace]
        cohort, other = (
            (everyone(), everyone()) if self.algorithm.needs_everyone else (scheduled(trace), scheduled(moved))
        )
        a = self.last(self.solver, 8, cohort, chunk=1)
        b = list(simulate(self.algorithm, renumbered, self.solver, self.w, 8, cohort=other))[-1]
        off = float(jnp.max(jnp.abs(a.w - b.w)))
        self.require(off < 1e-10, "renumbering", f"the model changes by {off:.1e} when clients are renumbered.")
        return f"changes {off:.1e}"

    def compilation(self) -> str:
        def counts(algorithm: Algorithm) -> list[int]:
            run = simulate(algorithm, self.federation, self.solver, self.w, 4, cohort=self.partial)
            before = self.traces[0]  # the engine has looked at shapes, without compiling
            return [self.traces[0] - before for _ in run]

        first = counts(self.algorithm)
        self.require(first[-1] == first[0], "compilation", f"later rounds compile again: traces {first}.")
        other = {
            f.name: 0.999 * getattr(self.algorithm, f.name)
            for f in dataclasses.fields(self.algorithm)  # type: ignore[arg-type]
            if isinstance(getattr(self.algorithm, f.name), float)
        }
        second = counts(dataclasses.replace(self.algorithm, **other))  # type: ignore[type-var]
        self.require(
            second[-1] == 0,
            "compilation",
            f"other values of {', '.join(other)} compile again; declare them with hyper, not static.",
        )
        return "one compilation"

    def engines(self) -> str:
        def run(engine: Any) -> list[Record]:
            return list(engine(self.algorithm, self.federation, self.solver, self.w, 3, cohort=self.partial))

        off = 0.0
        for a, b in zip(run(simulate), run(reference), strict=True):
            off = max(off, relative_difference(a.server, b.server))
            self.require(off < 1e-12, "engines", f"the compiled engine differs by {off:.1e} after round {a.round}.")
            self.require(a.counters == b.counters, "engines", f"counters differ: {a.counters} and {b.counters}.")
        return f"differ by {off:.1e}"

    def transcription(self, oracle: Transcription) -> str:
        n = self.federation.clients
        trace = [list(range(n))] * 20 if self.algorithm.needs_everyone else _trace(20, n)
        cohort = everyone() if self.algorithm.needs_everyone else scheduled(trace)
        expected = oracle(self.quadratics, self.w.copy(), trace)
        run = simulate(self.algorithm, self.federation, self.solver, self.w, 20, cohort=cohort)
        worst = 0.0
        for record, w in zip(run, expected, strict=True):
            off = float(np.max(np.abs(np.asarray(record.w) - w)))
            worst = max(worst, off)
            self.require(off < 1e-10, "transcription", f"round {record.round} differs by {off:.1e}.")
        return f"differs by at most {worst:.1e}"


def _trace(rounds: int, clients: int) -> list[list[int]]:
    """Cohorts of 1 to 3 clients, alternately in increasing and in decreasing order."""
    rng = np.random.default_rng(7)
    draws = [sorted(rng.choice(clients, 3 - t % 3, replace=False).tolist()) for t in range(rounds)]
    return [d[::-1] if t % 2 else d for t, d in enumerate(draws)]


def relative_difference(a: Any, b: Any) -> float:
    """The largest difference between two trees, relative to the size of their entries where that exceeds 1."""

    def leaf(x: Any, y: Any) -> float:
        x, y = np.asarray(x, float), np.asarray(y, float)
        return float(np.max(np.abs(x - y) / np.maximum(1, np.abs(y)))) if x.size else 0.0

    return max(jax.tree.leaves(jax.tree.map(leaf, a, b)), default=0.0)
