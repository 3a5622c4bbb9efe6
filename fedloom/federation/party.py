"""A client of a federation: its method, its own data and its disk. It answers requests, whatever brings them."""

import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.client import Federation, Solver
from fedloom.engines.trees import Tree
from fedloom.federation.agreement import Agreement, Setup, first_model, setup_digest
from fedloom.federation.protocol import Computed, Job, answer, heard, job_of, settle
from fedloom.federation.store import Store
from fedloom.federation.wire import Frame, Refused, digest, integer, largest, number, packed, shapes_of, text, unpacked
from fedloom.federation.work import Own, worked

ROOM = 1 << 20  # bytes of a message besides its model: the preparation of a table has the names of its categories


NOT_FINITE = "NaN or infinity"  # the first words of such a refusal


class NotFinite(Refused):
    """A client came to NaN or infinity; it says what it spent on that."""

    def __init__(self, words: str, gradients: int):
        super().__init__(words)
        self.gradients = gradients


class Party:
    """Client k. `answer` takes a request and gives what is sent back; it never raises."""

    def __init__(
        self,
        agreed: Agreement,
        algorithm: Algorithm,
        solver: Solver,
        k: int,
        own: Own,
        store: Store,
        name: str = "",
        parameters: int | None = None,
        say: Callable[[str], None] = lambda words: None,
    ):
        """parameters: of the model, if that is known before the server tells it; say: gets a sentence now and then."""
        self.agreed, self.algorithm, self.solver, self.k, self.own, self.store = (
            agreed,
            algorithm,
            solver,
            k,
            own,
            store,
        )
        self.name, self.parameters, self.say = name or f"client {k}", parameters, say
        self.setup: Setup | None = None
        self.federation: Federation | None = None
        self.over = False  # has the server said that this was the last round?
        self.does = {
            "hello": self._hello,
            "question": self._question,
            "setup": self._set_up,
            "train": self._train,
            "evaluate": self._evaluate,
            "farewell": self._farewell,
        }
        if (stored := store.setup()) is not None:
            self._use(stored)

    @property
    def most_bytes(self) -> int:
        """The largest body that a request can have; larger ones need not be read."""
        if self.setup is None:
            return ROOM + (1 << 33 if self.parameters is None else 8 * self.parameters)
        return ROOM + max(largest(self._message(e)) for e in range(len(self.algorithm.exchanges)))

    def answer(self, frame: Frame) -> Frame:
        """The answer to a request; a refusal says why."""
        who = {"uid": self.agreed.uid, "k": self.k}
        kind = frame.header.get("kind")
        try:
            if frame.header.get("uid") != self.agreed.uid:
                raise Refused("the request is of another federation.")
            if kind not in self.does:
                raise Refused(f"there is no request of the kind {kind!r:.50}.")
            found = self.does[kind](frame)
            self.say(f"{kind}: sent {found.size:,} bytes")
            return Frame({**who, **found.header}, found.body)
        except Refused as error:
            self.say(f"{kind!s:.50}: refused: {error}")
            spent = {"gradients": error.gradients} if isinstance(error, NotFinite) else {}
            return Frame({**who, "kind": "refused", "why": str(error), "asked": str(kind)[:50], **_tag(frame), **spent})
        except Exception as error:  # of one's own data or code: only its kind leaves this machine
            self.say(f"{kind}: failed: {''.join(traceback.format_exception(error))}")
            words = f"it failed with {type(error).__name__}; its own log says more."
            return Frame({**who, "kind": "refused", "why": words, "asked": str(kind)[:50], **_tag(frame)})

    def _hello(self, frame: Frame) -> Frame:
        self.agreed.check(frame.header, "the server")
        held, setup = self.store.held(), self.store.setup()
        return Frame(
            {
                "kind": "hello",
                **self.agreed._asdict(),
                "name": self.name,
                "size": self.own.size,
                "rows": self.own.rows(),
                "setup": None if setup is None else setup.header["digest"],
                "counted": held.version,
                "disk": self.store.disk,
            }
        )

    def _question(self, frame: Frame) -> Frame:
        return Frame({"kind": "answer", "ask": frame.header.get("ask"), "content": self.own.statistics(frame.header)})

    def _set_up(self, frame: Frame) -> Frame:
        with self.store.database.transaction():
            heard(self.store, integer(frame.header, "incarnation"))
            stored = self.store.setup()
            if stored is not None and stored.header["digest"] != frame.header.get("digest"):
                raise Refused(
                    "this client has been told other numbers of the same federation; does the server have an old or a "
                    "new journal?"
                )
            self._use(frame)
            if stored is None:
                self.store.set_up(frame)
        return Frame({"kind": "ready", "digest": frame.header["digest"]})

    def _use(self, frame: Frame) -> None:
        """Take what the server has told."""
        h = frame.header
        if text(h, "digest") != setup_digest(h, frame.body):
            raise Refused("the setup is damaged: its digest is another one.")
        if integer(h, "k") != self.k:
            raise Refused(f"the server takes this client for client {h['k']}, but it is client {self.k}.")
        parameters = integer(h, "parameters", 1)
        if self.parameters is not None and parameters != self.parameters:
            raise Refused(f"the server's model has {parameters:,} parameters, and this client's {self.parameters:,}.")
        w = first_model(frame)
        capacity, width, clients = (integer(h, name, 1) for name in ("capacity", "width", "clients"))
        setup = Setup(
            self.k, clients, number(h, "weight"), capacity, width, integer(h, "seed"), h.get("preparation"), w
        )
        federation = self.own.federation(setup)
        federation.check(w)
        self.solver.check(federation)
        self.setup, self.federation = setup, federation

    def _ready(self, header: Mapping[str, Any]) -> Setup:
        stored = self.store.setup()
        if self.setup is None or stored is None or stored.header["digest"] != header.get("setup"):
            raise Refused("this client has not been set up for this.")
        return self.setup

    def _message(self, e: int) -> Tree:
        """The shapes of the message of exchange e."""
        assert self.setup is not None
        server = jax.eval_shape(self.algorithm.init, self.setup.w)
        return jax.eval_shape(self.algorithm.exchanges[e].send, server)

    def _first_memory(self) -> Tree:
        assert self.setup is not None
        return jax.tree.map(jnp.asarray, self.algorithm.init_client(self.setup.w))

    def _train(self, frame: Frame) -> Frame:
        setup = self._ready(frame.header)
        if integer(frame.header, "k") != self.k:
            raise Refused(f"the request is for client {frame.header['k']}, but this is client {self.k}.")
        if integer(frame.header, "seed") != setup.seed:
            raise Refused(f"the seed is {frame.header['seed']}, but this client was told {setup.seed}.")
        return answer(self.store, frame, self._compute)

    def _compute(self, job: Job, body: bytes, stored: bytes | None) -> Computed:
        assert self.setup is not None
        if job.e >= len(self.algorithm.exchanges):
            raise Refused(f"there is no exchange {job.e}.")
        message = unpacked(body, self._message(job.e))
        first = self._first_memory()
        memory = first if stored is None else unpacked(stored, shapes_of(first))
        reply, memory, meter, finite = worked(
            self.algorithm,
            self.solver,
            self.federation,
            message,
            memory,
            jax.random.key(job.seed),
            (job.k, job.t, job.wave, job.work),
            job.e,
        )
        if not finite:
            name = self.algorithm.exchanges[job.e].name
            raise NotFinite(f"{NOT_FINITE} in exchange {name!r}.", int(meter.gradients))
        residual = float(meter.residual)
        header = {
            "gradients": int(meter.gradients),
            "residual": residual if np.isfinite(residual) else None,
            "unsolved": int(meter.unsolved),
        }
        return packed(memory), Frame(header, packed(reply))

    def _evaluate(self, frame: Frame) -> Frame:
        setup = self._ready(frame.header)
        w = unpacked(frame.body, shapes_of(setup.w))
        return Frame({"kind": "evaluated", "ask": frame.header.get("ask"), "sums": self.own.evaluated(w, setup)})

    def _farewell(self, frame: Frame) -> Frame:
        with self.store.database.transaction():
            heard(self.store, integer(frame.header, "incarnation"))
            settle(self.store, integer(frame.header, "base"), text(frame.header, "counted"))
        self.over = True
        return Frame({"kind": "farewell"})

    def explained(self) -> list[str]:
        """What leaves this client, of each kind of message: names, shapes and bytes."""
        lines = [
            f"hello: client {self.k} ({self.name}), {self.own.size:,} training examples, versions, the method",
            "question, of tables only: names of columns, categories and classes; counts, sums and squares by column",
            "evaluated: for each metric the sum over its examples, and their number",
        ]
        if self.setup is None:
            return [*lines, "reply: its shapes are known once the server has told the size of the model"]
        for e, exchange in enumerate(self.algorithm.exchanges):
            given = (self.algorithm, self.solver, self.federation, self._message(e), self._first_memory())
            of = partial(worked, e=e)
            reply = jax.eval_shape(of, *given, jax.random.key(0), (0, 0, 0, 1.0))[0]
            for path, leaf in jax.tree_util.tree_leaves_with_path(reply):
                name = jax.tree_util.keystr(path) or " (the whole reply)"
                size = leaf.size * leaf.dtype.itemsize
                lines.append(
                    f"reply of {exchange.name!r}: {name.strip('.')} {leaf.dtype}{list(leaf.shape)}, {size:,} bytes"
                )
        return lines


def _tag(frame: Frame) -> dict[str, str]:
    """Of the reply that a request asks for, so that a refusal says of what it is."""
    try:
        return {"tag": job_of(frame.header).tag(text(frame.header, "uid"), digest(frame.body))}
    except Refused:  # not a request of work
        return {}
