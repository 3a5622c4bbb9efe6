"""A record on disk, bit for bit, so that a run continues as if it had never stopped.

A checkpoint holds numbers only: the leaves of the server's state and the memories of the clients that have taken part.
Their structure follows from the experiment. It also holds the length of the log, because rows that were logged later
are written again.
"""

import contextlib
import io
import json
import pathlib
import shutil
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedloom.algorithm import Algorithm
from fedloom.cluster.shard_files import FileStore, ShardedStore, read_shard, shard_file
from fedloom.engines.clock import Clock
from fedloom.engines.memory_store import Memories, known_memories, store_for, write
from fedloom.engines.records import Counters, Record
from fedloom.engines.trees import shapes
from fedloom.experiments.about import other_versions
from fedloom.experiments.files import Damaged, reading, write_whole
from fedloom.experiments.settings import from_toml
from fedloom.problem import Vector

CHECKPOINT = "checkpoint.npz"  # the file of a run's directory

# What a checkpoint says of itself, besides its format.
META = {"versions": dict, "config": str, "round": int, "counters": dict, "log bytes": int, "arrays": list}
FORMAT = 3  # 1 stored the weights of dense layers as [in, out]; 2 had no simulated time


def save(path: pathlib.Path, record: Record, config: str, log_bytes: int, versions: Mapping[str, str]) -> None:
    meta = {
        "format": FORMAT,
        "versions": versions,
        "config": config,
        "round": record.round,
        "counters": record.counters._asdict(),
        "log bytes": log_bytes,
        "clock": None if record.clock is None else record.clock._asdict(),
        "shards": None,
    }
    # The model is also part of the server's state; this copy is for `read_model`.
    arrays: dict[str, Any] = {"w": np.asarray(record.w)}
    arrays |= {f"server {i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(record.server))}
    if isinstance(record.clients, Memories) and isinstance(store := record.clients.store, ShardedStore):
        place = f"memories-{record.round}"
        meta["shards"] = {"directory": place, "number": store.shards}
        if jax.tree.leaves(store.blank):
            store.save(path.parent / place)
    elif isinstance(record.clients, Memories):
        ids, rows = known_memories(record.clients.store)
        arrays["clients"] = ids
        arrays |= {f"memory {i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(rows))}
    arrays |= {f"in flight {i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(record.in_flight))}
    meta["arrays"] = sorted(arrays)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_whole(path, content.getvalue())
    _forget_shards(path.parent)


def _forget_shards(directory: pathlib.Path) -> None:
    """Remove the memories of shards that no checkpoint of the run needs any more."""
    there = [found for found in directory.glob("memories-*") if found.is_dir()]
    if not there:
        return
    needed = {(read_meta(file).get("shards") or {}).get("directory") for file in directory.glob("*.npz")}
    for found in there:
        if found.name not in needed:
            shutil.rmtree(found, ignore_errors=True)


def read_meta(path: pathlib.Path) -> dict[str, Any]:
    with _opened(path) as arrays:
        if "meta" not in arrays:
            raise Damaged(f"{path} is not a checkpoint.")
        try:
            meta = json.loads(arrays["meta"].tobytes())
        except ValueError as error:
            raise Damaged(f"{path} is damaged: it does not say what it holds.") from error
        if not isinstance(meta, dict) or not all(isinstance(meta.get(key), kind) for key, kind in META.items()):
            raise Damaged(f"{path} is damaged: it does not say what it holds.")
        if {*map(str, meta["arrays"]), "meta"} != set(arrays):  # which zip's checksums do not cover
            raise Damaged(f"{path} is not a complete checkpoint.")
        return meta


def check_config(path: pathlib.Path, config: str) -> None:
    """Raise a ValueError unless the checkpoint is one that the experiment passes through."""
    meta = read_meta(path)
    if meta.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {meta.get('format')}, but this version of FedLoom reads format {FORMAT}; use FedLoom "
            f"{meta['versions'].get('fedloom')}, or run the experiment again in another directory."
        )
    if meta["config"] == config:
        return
    meta["config"] = _written_now(meta["config"])
    if meta["config"] != config and not _leads_to(meta, tomllib.loads(config)):
        raise Damaged(f"{path} belongs to another experiment: {path.parent / 'config.toml'} was changed.")


def _written_now(config: str) -> str:
    """The same experiment as this version writes it: with the fields that there are by now, at their defaults."""
    try:
        return from_toml(config, recorded=True).to_toml()
    except ValueError:  # it names what there is no more
        return config


def _leads_to(meta: dict[str, Any], new: dict[str, Any]) -> bool:
    """Does the same run with more rounds pass through this checkpoint? It does where both have an evaluation."""
    try:
        old = tomllib.loads(meta["config"])
    except tomllib.TOMLDecodeError:
        return False
    same = {**old, "rounds": 0} == {**new, "rounds": 0}
    return same and old["rounds"] <= new["rounds"] and meta["round"] % new["evaluate_every"] == 0


def read_model(path: pathlib.Path) -> np.ndarray:
    """The model of a checkpoint."""
    with _opened(path) as arrays:
        return arrays["w"]


def read_memory(path: pathlib.Path, algorithm: Algorithm, w: Vector, k: int) -> Any:
    """The memory of client k; None if it has not taken part."""
    leaves, structure = jax.tree.flatten(algorithm.init_client(w))
    if (shards := _shards(path, read_meta(path))) is not None:
        there = read_shard(shard_file(shards[0], k % shards[1]), algorithm.init_client(w))
        found = np.flatnonzero(there.ids == k)
        return jax.tree.map(lambda x: x[found[0]], there.rows) if len(found) else None
    with _opened(path) as arrays:
        place = np.flatnonzero(arrays["clients"] == k)[:1] if "clients" in arrays else np.zeros(0, int)
        if not len(place):
            return None
        return jax.tree.unflatten(structure, [arrays[f"memory {i}"][place[0]] for i in range(len(leaves))])


def load(
    path: pathlib.Path, algorithm: Algorithm, w: Vector, clients: int, config: str, versions: Mapping[str, str]
) -> tuple[Record, int]:
    """The record of a checkpoint of the experiment `config`, and the length of the log at that time.

    `versions` are those of now, which must be the same.
    """
    check_config(path, config)
    meta = read_meta(path)
    if other := other_versions(meta["versions"], versions):
        raise ValueError(
            f"{path} was written with {', '.join(other)}, and another version may not give the same bits. Install the "
            "same versions to resume it, or run the experiment again in another directory."
        )
    with _opened(path) as arrays:
        server = _server(path, arrays, algorithm, w)
        memories: Any = {}
        if (shards := _shards(path, meta)) is not None and jax.tree.leaves(algorithm.init_client(w)):
            try:
                kept = FileStore(shards[0], algorithm.init_client(w), clients, shards[1], meta["round"])
            except ValueError as error:
                raise Damaged(f"{path} is damaged: {error}") from error
            memories = Memories(kept, meta["round"])
        elif "clients" in arrays:
            store = store_for(algorithm.init_client(w), clients)
            leaves, structure = jax.tree.flatten(store.blank)
            stacked = [jnp.asarray(arrays[f"memory {i}"]) for i in range(len(leaves))]
            write(store, arrays["clients"], jax.tree.unflatten(structure, stacked))
            store.round = meta["round"]
            memories = Memories(store, meta["round"])
        in_flight = [
            jnp.asarray(arrays[f"in flight {i}"])
            for i in range(sum(a.startswith("in flight ") for a in meta["arrays"]))
        ]
    try:
        counters, clock = Counters(**meta["counters"]), None if meta["clock"] is None else Clock(**meta["clock"])
    except (KeyError, TypeError) as error:
        raise Damaged(f"{path} is damaged: it does not say what it holds.") from error
    record = Record(meta["round"], server, memories, counters, in_flight=in_flight or None)
    if clock is not None:
        record = record._replace(clock=clock._replace(staleness=tuple(clock.staleness)))
    return record, meta["log bytes"]


def _shards(path: pathlib.Path, meta: dict[str, Any]) -> tuple[pathlib.Path, int] | None:
    """Where the memories of shards are, and how many there are; None if they are in the checkpoint itself."""
    if (said := meta.get("shards")) is None:
        return None
    try:
        return path.parent / pathlib.Path(said["directory"]).name, int(said["number"])
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path} is damaged: it does not say where its shards are.") from error


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[Any]:
    """The arrays, each read only on access: most callers need only the metadata."""
    with reading(path):
        opened = path.open("rb")
    with opened as file:
        try:
            arrays = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:  # NumPy takes it for pickled objects
            raise Damaged(f"{path} cannot be read as a checkpoint.") from error
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise Damaged(f"{path} cannot be read as a checkpoint.")
        try:
            yield arrays
        except (EOFError, OSError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:  # from a damaged zip file
            raise Damaged(f"{path} is damaged: {error}.") from error


def _server(path: pathlib.Path, arrays: Any, algorithm: Algorithm, w: Vector) -> Any:
    blank = jax.tree.map(jnp.asarray, algorithm.init(w))
    leaves, structure = jax.tree.flatten(blank)
    if f"server {len(leaves) - 1}" not in arrays or f"server {len(leaves)}" in arrays:
        raise Damaged(f"{path} does not hold a server state of {type(algorithm).__name__}.")
    server = jax.tree.unflatten(structure, [jnp.asarray(arrays[f"server {i}"]) for i in range(len(leaves))])
    if shapes(server) != shapes(blank):
        raise Damaged(f"{path} holds a model of another size or float type than the experiment's.")
    return server
