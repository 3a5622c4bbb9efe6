"""An engine whose clients are somewhere else, behind any transport: it yields records like the others."""

import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedloom.algorithm import Algorithm
from fedloom.client import Solver, normalised
from fedloom.cohorts import CohortRule, everyone
from fedloom.data.passes import chunk_width
from fedloom.engines.checks import checked
from fedloom.engines.records import Record
from fedloom.engines.run import Run
from fedloom.federation.absent import Absent, remote
from fedloom.federation.agreement import Agreement, agreement, first_model, setup_digest
from fedloom.federation.desk import Desk, Transport
from fedloom.federation.flights import Flights
from fedloom.federation.journal import Journal
from fedloom.federation.rounds import Patience, Rounds
from fedloom.federation.wire import Frame, packed
from fedloom.problem import Vector

JOURNAL = "journal.db"

Begin = Callable[[Desk], tuple[Vector, Any]]  # makes the initial model, and the preparation of tables, if any


def agreed(uid: str, algorithm: Algorithm, solver: Solver, more: str = "") -> Agreement:
    """What the server and its clients must have in common; `more` is whatever else must be the same."""
    words = re.sub(r" at 0x[0-9a-f]+", "", f"{algorithm!r} {solver!r}")  # functions have an address
    return agreement(uid, f"{words} {more}".strip())


def checked_run(
    algorithm: Algorithm,
    solver: Solver,
    rounds: int,
    cohort: CohortRule,
    seed: int,
    on_nonfinite: str,
    buffer: int | None,
    w: Any,
    p: np.ndarray,
) -> Run:
    """The run as a server sees it, whose clients have the weights p; raises a sentence if it makes no sense."""
    nonfinite = "raise" if algorithm.needs_everyone else on_nonfinite
    return checked(algorithm, Absent(p), remote(solver), w, rounds, cohort, seed, nonfinite, buffer=buffer)


class Served:
    """A federation as its server runs it."""

    def __init__(
        self,
        transport: Transport,
        directory: pathlib.Path,
        agreed: Agreement,
        names: Sequence[str],
        algorithm: Algorithm,
        solver: Solver,
        begin: Begin,
        rounds: int,
        *,
        cohort: CohortRule | None = None,
        seed: int = 0,
        on_nonfinite: str = "drop",
        buffer: int | None = None,
        weights: str | ArrayLike = "examples",
        waits: Patience | None = None,
        bound: Mapping[Any, int] | None = None,
        say: Callable[[str], None] = lambda words: None,
    ):
        """As `on_flower` has them; begin: makes the initial model once all clients have said hello."""
        self.algorithm, self.names, self.waits = algorithm, list(names), Patience() if waits is None else waits
        self.cohort = everyone() if cohort is None else cohort
        n, weights = len(self.names), weights if isinstance(weights, str) else np.asarray(weights, float)
        check_patience(self.waits, n)
        if isinstance(weights, str) and weights not in ("examples", "uniform"):
            raise ValueError(f"weights must be 'examples', 'uniform' or an array, got {weights!r}.")
        given = (algorithm, solver, rounds, self.cohort, seed, on_nonfinite, buffer)
        checked_run(*given, jnp.zeros(1), np.full(n, 1 / n))  # what is wrong shows before anybody is waited for
        directory.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(directory / JOURNAL)
        self.journal.begin(agreed.uid, agreed.method)
        self.desk = Desk(agreed, self.names, transport, self.journal, bound=bound, say=say)
        if self.journal.get("setup") is None:
            self.desk.note(f"Life {self.journal.incarnation} of the server: waiting for {n} clients to say hello.")
            self.desk.wait_for(range(n), self.waits.patience)
            self._begin(begin, weights, seed)
        else:
            self.desk.note(f"Life {self.journal.incarnation} of the server: it goes on where it was.")
        setup = self.journal.get("setup")
        assert setup is not None
        w = first_model(setup)
        p = np.array(setup.header["weights"])
        self.preparation = setup.header["preparation"]
        self.run = checked_run(*given, w, p)
        self.engine = (Rounds if buffer is None else Flights)(
            self.run, self.cohort, self.desk, self.journal, self.waits
        )
        self.desk.set_up({k: self._setup(setup, k) for k in range(n)})

    def _begin(self, begin: Begin, weights: str | np.ndarray, seed: int) -> None:
        """Once: the weights, the initial model and the preparation, which never change afterwards."""
        n = len(self.names)
        sizes = np.array([self.desk.facts[k]["size"] for k in range(n)])
        w, preparation = begin(self.desk)
        if isinstance(weights, str):
            weights = sizes if weights == "examples" else np.ones(n)
        w = jnp.asarray(w)
        header = {
            "parameters": int(w.size),
            "dtype": str(w.dtype),
            "weights": normalised(weights, n).tolist(),
            "capacity": int(sizes.max()),
            "width": int(chunk_width(sizes)),
            "seed": int(seed),
            "preparation": preparation,
        }
        self.journal.put("setup", Frame(header, packed(w)))

    def _setup(self, whole: Frame, k: int) -> Frame:
        """What client k is told: not how many examples the others have."""
        h = {name: whole.header[name] for name in ("parameters", "dtype", "capacity", "width", "seed", "preparation")}
        told = {"kind": "setup", "uid": self.desk.agreed.uid, **h}
        told |= {"k": k, "clients": len(self.names), "weight": whole.header["weights"][k]}
        told["digest"] = setup_digest(told, whole.body)
        return Frame({**told, "incarnation": self.journal.incarnation}, whole.body)

    def records(self) -> Iterator[Record]:
        """The records of the rounds that are left."""
        yield from self.engine.records()

    def evaluated(self, w: Vector, number: int) -> dict[int, dict[str, list[float]]]:
        """The sums of metrics of a model, from those clients that are there and answer in time."""
        body, frames = packed(w), {}
        for k in sorted(self.desk.ready):
            asked = {"setup": self.desk.setups[k].header["digest"], "ask": number}
            frames[k] = Frame({"kind": "evaluate", "uid": self.desk.agreed.uid, **asked}, body)
        return {k: h["sums"] for k, h in self.desk.ask_each(frames, "evaluated", self.waits.deadline).items()}

    def farewell(self) -> None:
        """Tell the clients that are there that this was the last round: they learn whether their last reply counted."""
        standings, frames = self.journal.standings(), {}
        for k in sorted(self.desk.ready):
            base, counted = standings.get(k, (0, ""))
            told = {"incarnation": self.journal.incarnation, "base": base, "counted": counted}
            frames[k] = Frame({"kind": "farewell", "uid": self.desk.agreed.uid, **told})
        self.desk.ask_each(frames, "farewell", min(self.waits.deadline, 20.0))

    def close(self) -> None:
        self.journal.close()


def check_patience(waits: Patience, clients: int) -> None:
    """Raise a ValueError if a server of so many clients cannot wait so."""
    for name in ("deadline", "patience"):
        if not getattr(waits, name) > 0:
            raise ValueError(f"{name} must be a positive number of seconds, got {getattr(waits, name)!r}.")
    if waits.patience < waits.deadline:
        raise ValueError(
            f"patience must be at least the deadline of {waits.deadline:g} seconds, got {waits.patience:g}."
        )
    for name in ("minimum", "enough"):
        value = getattr(waits, name)
        if value is not None and not (isinstance(value, int) and 1 <= value <= clients):
            raise ValueError(f"{name} must be a number of clients from 1 to {clients}, got {value!r}.")
    if waits.enough is not None and waits.enough < waits.minimum:
        raise ValueError(
            f"enough = {waits.enough} is less than minimum = {waits.minimum}; an exchange would never end."
        )
