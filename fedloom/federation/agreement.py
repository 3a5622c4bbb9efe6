"""What a client and the server must have in common, and what the server tells a client once."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedloom.federation.wire import Frame, Refused, digest, integer, text, unpacked
from fedloom.problem import Vector
from fedloom.version import __version__


class Agreement(NamedTuple):
    """What a client and the server must have in common."""

    uid: str
    method: str  # the method and its hyperparameters, the solver, the model, in words
    version: str
    float_type: str

    def check(self, other: Mapping[str, Any], who: str) -> None:
        """Raise Refused if somebody else means another federation."""
        for name, mine in self._asdict().items():
            if (theirs := other.get(name)) != mine:
                what = {"float_type": "float type"}.get(name, name)
                raise Refused(f"the {what} of {who} is {theirs!r:.500}, but here it is {mine!r:.500}.")


def agreement(uid: str, method: str) -> Agreement:
    """With this FedLoom and this float type."""
    return Agreement(uid, method, __version__, str(jax.dtypes.canonicalize_dtype(float)))


class Setup(NamedTuple):
    """What the server tells a client of the whole federation, once."""

    k: int
    clients: int
    weight: float  # p_k
    capacity: int  # the examples of the largest client
    width: int  # examples in a chunk of a full pass
    seed: int
    preparation: Any  # of tables, as JSON; None for other data
    w: Vector  # the initial model


def first_model(setup: Frame) -> Vector:
    """The initial model of a setup; raises Refused if it is not a flat vector of floats of the announced size."""
    parameters, dtype = integer(setup.header, "parameters", 1), text(setup.header, "dtype")
    if dtype not in ("float16", "float32", "float64"):
        raise Refused(f"dtype must be float32 or float64, but is {dtype!r:.50}.")
    if parameters * np.dtype(dtype).itemsize > len(setup.body):
        raise Refused(f"{parameters:,} parameters are announced, but {len(setup.body):,} bytes came.")
    return unpacked(setup.body, jax.ShapeDtypeStruct((parameters,), np.dtype(dtype)))


def setup_digest(header: Mapping[str, Any], body: bytes) -> str:
    """Names a setup, by which a client can tell whether it has the right one."""
    told = {name: value for name, value in header.items() if name not in ("digest", "incarnation")}
    return digest(told, body)
