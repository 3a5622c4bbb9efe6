"""The hdf5 files of TensorFlow Federated: /examples/<client>/<field>, a row for each example.

The files are those that TFF publishes; its archives fed_emnist, fed_cifar100, shakespeare and stackoverflow are looked
for unpacked in folders of these names, or in the data directory itself. Reading them takes the package h5py.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate


def clients_of(
    path: Path, fields: Sequence[str], clients: int | Sequence[str] | None = None, per_client: int | None = None
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """One client of an hdf5 file after another, as (id, {field: rows}), in the order of their ids.

    Args:
        path: the file.
        fields: what to read of each example. Texts come as an object array of bytes.
        clients: only the first so many, or these.
        per_client: only the first so many examples of each client.
    """
    if isinstance(clients, int) and clients < 1:
        raise ValueError(f"clients must be a positive integer, the ids of clients, or None for all; got {clients}.")
    if per_client is not None and per_client < 1:
        raise ValueError(f"per_client must be a positive integer, or None for all examples; got {per_client}.")
    with _open(path) as file:
        if "examples" not in file:
            raise ValueError(f"{path} has no group 'examples', so it is not a client file of TensorFlow Federated.")
        examples = file["examples"]
        for client in _chosen(path, list(examples), clients):
            rows = {}
            for field in fields:
                if field not in examples[client]:
                    has = ", ".join(sorted(examples[client]))
                    raise ValueError(f"{path}: client {client} has no field {field!r}; it has {has or 'none at all'}.")
                rows[field] = _damaged(path, examples[client][field].__getitem__, slice(per_client))
            lengths = {field: len(values) for field, values in rows.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"{path}: the fields of client {client} differ in length: {lengths}.")
            yield client, rows


def read_tff(
    path: Path, fields: Sequence[str], clients: int | Sequence[str] | None = None, per_client: int | None = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The examples of many clients, one after another: the client of each example, and an array for each field.

    The arguments are those of `clients_of`.
    """
    ids: list[str] = []
    sizes: list[int] = []
    parts: dict[str, list[np.ndarray]] = {field: [] for field in fields}
    for client, rows in clients_of(path, fields, clients, per_client):
        ids.append(client)
        sizes.append(len(rows[fields[0]]))
        for field in fields:
            parts[field].append(rows[field])
    if sum(sizes) == 0:
        raise ValueError(f"{path} has no examples.")
    return np.repeat(ids, sizes), {field: np.concatenate(arrays) for field, arrays in parts.items()}


def tff_emnist(only_digits: bool = False) -> Dataset:
    """EMNIST by writer: 3,400 clients, 62 classes, 671,585 training and 77,483 test images of 28x28 pixels.

    Pixels are uint8, 255 for the background and 0 for ink: TFF's numbers in [0, 1], background 1, times 255. Should
    the file's pixels not be multiples of 1/255, they are kept as float32 numbers in [0, 1].

    Args:
        only_digits: the 10 digits only, from fed_emnist_digitsonly_{train,test}.h5, which has 3,383 clients.
    """
    name = "fed_emnist_digitsonly" if only_digits else "fed_emnist"
    arrays: dict[str, Any] = {}
    for prefix, path in tff_files(name):
        ids: list[str] = []
        pixels, labels = [], []
        for client, rows in clients_of(path, ["pixels", "label"]):  # compact at once: all as floats are 2 GB
            pixels.append(_bytes(rows["pixels"]))
            labels.append(rows["label"].astype(np.uint8))
            ids.extend([client] * len(rows["label"]))
        if not ids:
            raise ValueError(f"{path} has no examples.")
        if any(p.dtype != np.uint8 for p in pixels):
            pixels = [p / np.float32(255) if p.dtype == np.uint8 else p for p in pixels]
        arrays |= {f"{prefix}x": np.concatenate(pixels), f"{prefix}y": np.concatenate(labels)}
        arrays[f"{prefix}keys"] = np.array(ids)
    return Dataset(**arrays, classes=10 if only_digits else 62, origin=f"TFF's {name}")


def tff_cifar100() -> Dataset:
    """CIFAR-100 as FedOpt divides it: 500 training and 100 test clients with 100 images each; `keys` is the split."""
    arrays: dict[str, Any] = {}
    for prefix, path in tff_files("fed_cifar100"):
        arrays[f"{prefix}keys"], rows = read_tff(path, ["image", "label", "coarse_label"])
        arrays |= {f"{prefix}x": rows["image"].astype(np.uint8), f"{prefix}y": rows["label"].astype(np.uint8)}
        if not prefix:
            arrays["coarse"] = rows["coarse_label"].astype(np.uint8)
    return Dataset(**arrays, classes=100, origin="TFF's fed_cifar100")


def tff_files(name: str) -> list[tuple[str, Path]]:
    """("", the training file) and ("test_", the test file), from the folder `name` or the data directory itself."""
    files = [("", f"{name}_train.h5"), ("test_", f"{name}_test.h5")]
    return [(prefix, locate(f"{name}/{file}", file)) for prefix, file in files]


def _open(path: Path) -> Any:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise ImportError(f"Reading {path} requires the package h5py: pip install 'fedloom[tff]'.") from error
    return _damaged(path, h5py.File, path, "r")


def _damaged(path: Path, read: Callable[..., Any], *arguments: Any) -> Any:
    """read(*arguments), with a sentence for what h5py says about damaged files."""
    try:
        return read(*arguments)
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path} is not a complete hdf5 file ({error}); delete it and get it again.") from error


def _chosen(path: Path, ids: list[str], clients: int | Sequence[str] | None) -> list[str]:
    ids = sorted(ids)
    if clients is None:
        return ids
    if isinstance(clients, int):
        if clients > len(ids):
            raise ValueError(f"clients = {clients}, but {path} has only {len(ids)} clients.")
        return ids[:clients]
    known = set(ids)
    for client in clients:
        if client not in known:
            raise ValueError(f"{path} has no client {client!r}; ids look like {', '.join(ids[:3])}.")
    return list(clients)


def _bytes(pixels: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1] as uint8 if they are multiples of 1/255, as float32 if not."""
    scaled = 255 * pixels.astype(np.float32)
    whole = np.rint(scaled)
    exact = np.all(np.abs(scaled - whole) < 1e-3) and np.all((whole >= 0) & (whole <= 255))
    return whole.astype(np.uint8) if exact else pixels.astype(np.float32)
