"""What travels: a header, which is a JSON object, and a body, which is arrays. Never pickles, never code.

The structure of a tree does not travel. It follows from the method, so that whoever receives arrays says what they must
be, and everything else is refused before it is used.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedloom.engines.trees import Tree, nbytes


class Frame(NamedTuple):
    """One message, in either direction."""

    header: dict[str, Any]
    body: bytes = b""

    @property
    def size(self) -> int:
        """The bytes that are handed to the transport, which adds its own."""
        return len(encoded(self.header)) + len(self.body)


class Refused(Exception):
    """What has arrived is not what was agreed upon; the message says why. Nothing was changed."""


def encoded(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode()


def packed(tree: Tree) -> bytes:
    """The arrays of a tree, in order."""
    leaves = map(np.asarray, jax.tree.leaves(tree))
    return save({str(i): np.ascontiguousarray(x).reshape(x.shape) for i, x in enumerate(leaves)})


def largest(like: Tree) -> int:
    """The bytes that a packed tree of these shapes can have at the most."""
    return nbytes(like) + 256 * (len(jax.tree.leaves(like)) + 1)


def unpacked(body: bytes, like: Tree) -> Tree:
    """A tree of these shapes and types from its arrays; raises Refused for anything else."""
    expected, structure = jax.tree.flatten(like)
    if len(body) > largest(like):
        raise Refused(f"{len(body):,} bytes came, but arrays of the agreed shapes have at most {largest(like):,}.")
    try:
        arrays = load(bytes(body))
    except (SafetensorError, ValueError, KeyError) as error:
        raise Refused(f"the arrays cannot be read: {error}.") from error
    if set(arrays) != {str(i) for i in range(len(expected))}:
        raise Refused(f"{len(expected)} arrays were agreed upon, but {len(arrays)} came.")
    found = [arrays[str(i)] for i in range(len(expected))]
    for i, (array, wanted) in enumerate(zip(found, expected, strict=True)):
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise Refused(f"array {i} must be {_kind(wanted)}, but is {_kind(array)}.")
    return jax.tree.unflatten(structure, [jnp.asarray(array) for array in found])


def _kind(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def shapes_of(tree: Tree) -> Tree:
    """Shapes and types, as `unpacked` wants them."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), tree)


def digest(*parts: Any) -> str:
    """Equal for equal parts: bytes, or what JSON can write."""
    found = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        found.update(len(content).to_bytes(8, "big"))
        found.update(content)
    return found.hexdigest()


def integer(header: Mapping[str, Any], name: str, least: int = 0) -> int:
    """A whole number of a header; raises Refused if there is none."""
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise Refused(f"{name} must be a whole number from {least} on, but is {value!r:.50}.")
    return value


def number(header: Mapping[str, Any], name: str) -> float:
    """A finite number of a header; raises Refused if there is none."""
    value = header.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise Refused(f"{name} must be a finite number, but is {value!r:.50}.")
    return float(value)


def text(header: Mapping[str, Any], name: str) -> str:
    """A text of a header; raises Refused if there is none."""
    value = header.get(name)
    if not isinstance(value, str):
        raise Refused(f"{name} must be a text, but is {value!r:.50}.")
    return value
