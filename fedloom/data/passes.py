"""Going through all examples of a client, or of several clients side by side, a chunk at a time.

Clients side by side must not wait for the largest of them. So what is vectorised are chunks, whosever they are: of all
clients together they are numbered one after another, and several at a time are computed and added to their clients'
sums. A pass costs what the examples cost, however they are spread over the clients; a client without any costs nothing.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from fedloom.problem import Scalar

SIDE_BY_SIDE = 16  # chunks of several clients at a time, at most
BUSY = 2**22  # examples times parameters from which a chunk keeps a core busy alone
CHUNK_OVERHEAD = 8  # examples that would take as long as the start of a chunk
NARROWEST = 8  # examples in a chunk, unless all clients have fewer: narrower chunks cost as much
PADDING = 0.07  # rows that fill up chunks, over examples: at most, where narrower chunks help

OfChunk = Callable[[Any, Any, jax.Array, jax.Array], Any]  # of what all share, what one is given, positions and a mask


def rows_at_once(model: Any) -> int:
    """Examples at a time in a full pass: few for a large model, whose intermediate values are large too."""
    return 256 if sum(x.size for x in jax.tree.leaves(model)) <= 2**20 else 32


def chunk_width(sizes: np.ndarray, most: int = 256) -> int:
    """Examples in a chunk, for clients of these sizes: few chunks, and few rows that only fill them up."""
    size, clients = np.unique(sizes, return_counts=True)
    widths = np.arange(min(int(size[-1]), NARROWEST), min(int(size[-1]), most) + 1)
    chunks = np.array([clients @ -(-size // width) for width in widths])
    padded = chunks * widths
    allowed = padded <= max((1 + PADDING) * float(clients @ size), padded.min())
    return int(widths[np.argmin(np.where(allowed, padded + CHUNK_OVERHEAD * chunks, np.inf))])


def in_chunks(of_chunk: Callable[[jax.Array, jax.Array], Any], zero: Any, size: Scalar, width: int) -> Any:
    """Sum `of_chunk(positions, mask)` over the positions 0 .. size - 1, `width` at a time."""

    def add(i: Scalar, total: Any) -> Any:
        positions = i * width + jnp.arange(width)
        chunk = of_chunk(positions, positions < size)
        return jax.tree.map(lambda x, y: x + y.astype(x.dtype), total, chunk)

    return jax.lax.fori_loop(0, -(-size // width), add, zero)


def sum_of_pass(of_chunk: OfChunk, zero: Any, shared: Any, given: Any, size: Scalar, width: int) -> Any:
    """Sum `of_chunk(shared, given, positions, mask)` over the positions 0 .. size - 1 of one client.

    `shared` is the same for all clients that are vectorised, such as the store of all examples.
    """

    def alone(shared: Any, given: Any, size: Scalar) -> Any:
        return in_chunks(lambda positions, mask: of_chunk(shared, given, positions, mask), zero, size, width)

    # custom_vmap would hide values from a debugger, and keep JAX from differentiating where the size is known.
    if jax.config.values["jax_disable_jit"] or not isinstance(size, jax.core.Tracer):
        return alone(shared, given, size)

    def together(shared: Any, given: Any, sizes: jax.Array) -> Any:
        return _of_several(of_chunk, zero, shared, given, sizes, width)

    one, several = custom_vmap(alone), custom_vmap(together)

    @one.def_vmap
    def of_one(clients: int, batched: Any, shared: Any, given: Any, size: Scalar) -> Any:
        if _any(batched[0]):
            out = jax.vmap(alone, in_axes=_axes(batched))(shared, given, size)
        else:
            out = several(shared, *_on_each(clients, batched[1:], (given, size)))
        return out, jax.tree.map(lambda _: True, out)

    @several.def_vmap
    def of_several(points: int, batched: Any, shared: Any, given: Any, sizes: jax.Array) -> Any:
        if _any(batched[0]) or not _any(batched[2]):  # all points go through the same chunks
            out = jax.vmap(together, in_axes=_axes(batched))(shared, given, sizes)
        else:
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), _on_each(points, batched[1:], (given, sizes)))
            out = jax.tree.map(lambda x: x.reshape(points, -1, *x.shape[1:]), several(shared, *flat))
        return out, jax.tree.map(lambda _: True, out)

    return one(shared, given, jnp.asarray(size))


def _of_several(of_chunk: OfChunk, zero: Any, shared: Any, given: Any, sizes: jax.Array, width: int) -> Any:
    """The sums of several clients, which are the first axis of `given` and `sizes`."""
    clients = sizes.shape[0]
    chunks = -(-sizes // width)
    ends = jnp.cumsum(chunks)
    parameters = max(sum(x.size for x in jax.tree.leaves(zero)), sum(x.size for x in jax.tree.leaves(given)) // clients)
    at_once = max(min(SIDE_BY_SIDE, clients, BUSY // (width * parameters)), 1)

    def chunk(number: Scalar) -> tuple[Scalar, Any]:
        """Whose this chunk is, and its sum."""
        client = jnp.minimum(jnp.sum(ends <= number), clients - 1)
        positions = (number - ends[client] + chunks[client]) * width + jnp.arange(width)
        own = jax.tree.map(lambda x: x[client], given)
        return client, of_chunk(shared, own, positions, positions < sizes[client])

    def add(total: Any, client: Any, part: Any) -> Any:
        return jax.tree.map(lambda x, y: x.at[client].add(y.astype(x.dtype)), total, part)

    def group(i: Scalar, total: Any) -> Any:
        return add(total, *jax.vmap(chunk)(i * at_once + jnp.arange(at_once)))

    total = jax.tree.map(lambda x: jnp.zeros((clients, *x.shape), x.dtype), zero)
    groups = ends[-1] // at_once if at_once > 1 else 0
    if at_once > 1:
        total = jax.lax.fori_loop(0, groups, group, total)
    # Those that do not fill a group, one by one.
    return jax.lax.fori_loop(groups * at_once, ends[-1], lambda i, total: add(total, *chunk(i)), total)


def _any(batched: Any) -> bool:
    return any(jax.tree.leaves(batched))


def _axes(batched: Any) -> Any:
    """The trees in which True is axis 0, for vmap."""
    return tuple(jax.tree.map(lambda b: 0 if b else None, tree) for tree in batched)


def _on_each(n: int, batched: Any, trees: Any) -> Any:
    """The trees with a first axis of n wherever they have none."""

    def on_each(b: bool, x: Any) -> Any:
        return jnp.asarray(x) if b else jnp.broadcast_to(x, (n, *jnp.shape(x)))

    return tuple(jax.tree.map(on_each, b, tree) for b, tree in zip(batched, trees, strict=True))
