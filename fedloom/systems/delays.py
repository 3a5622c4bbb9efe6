"""The joint model of user and delay of asyncFedDR's theory: no clock, only who replies next and how old its model is.

At update k user i_k is drawn, together with a delay d <= tau: it works with the server's model of d updates ago and
with its own newest memory. (FedDR, arXiv:2103.03452, section 4.) Its own part in that model is never delayed, as
assumption 4.1 demands: the model is at least as new as the user's own last update. The paper allows each user's part
in a model to have a delay of its own; here all parts are of one moment, as they are wherever a server sends its model.
"""

from typing import Any

import numpy as np

from fedloom.hyperparameters import Domain, check_fields, frozen, static
from fedloom.systems.traces import tuples

Rng = np.random.Generator


def _table(value: Any) -> bool:
    try:
        rows = [np.asarray(row, float) for row in (value if np.ndim(value[0]) else [value])]
        return all(r.ndim == 1 and np.all(np.isfinite(r)) and np.all(r >= 0) and r.sum() > 0 for r in rows)
    except (TypeError, ValueError, IndexError, KeyError):
        return False


_weights = Domain("non-negative numbers that are not all 0, or None", lambda v: v is None or _table(v))
_whole = Domain(
    "a non-negative integer", lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and v >= 0
)


@frozen
class Delays:
    """At each update a random user replies, with a model that is a random number of updates old."""

    tau: int = static(_whole, "the largest delay, in server updates", default=0)
    users: Any = static(_weights, "how often each user replies; equally often if None", default=None)
    delays: Any = static(_weights, "how frequent delays 0 to tau are, for all or for each user", default=None)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("users", "delays"):
            object.__setattr__(self, name, tuples(getattr(self, name)))

    def over(self, clients: int) -> "JointModel":
        """Bind to a population."""
        return JointModel(self, clients)


class JointModel:
    """P(i, d), bound to a population."""

    def __init__(self, model: Delays, clients: int):
        users = np.ones(clients) if model.users is None else np.asarray(model.users, float)
        if users.shape != (clients,):
            raise ValueError(f"delays: users has {len(users)} entries for {clients} clients; give one for each.")
        if np.any(users == 0):
            raise ValueError(f"delays: users has a 0 for client {int(np.argmin(users))}, who would never reply.")
        delays = np.ones(model.tau + 1) if model.delays is None else np.asarray(model.delays, float)
        if delays.shape not in ((model.tau + 1,), (clients, model.tau + 1)):
            raise ValueError(
                f"delays: delays must have {model.tau + 1} numbers, for 0 to tau = {model.tau}, or a row of that "
                f"length for each of {clients} clients; got shape {delays.shape}."
            )
        self.tau, self.clients = model.tau, clients
        self._users = np.cumsum(users / users.sum())
        delays = np.broadcast_to(delays, (clients, model.tau + 1))
        self._delays = np.cumsum(delays / delays.sum(axis=1, keepdims=True), axis=1)

    def draw(self, rng: Rng, k: int) -> tuple[int, int]:
        """(i_k, d) of update k; no client can have a model from before the first one."""
        user, delay = rng.random(2)
        i = min(int(np.searchsorted(self._users, user, side="right")), self.clients - 1)
        d = min(int(np.searchsorted(self._delays[i], delay, side="right")), self.tau)
        return i, min(d, k)
