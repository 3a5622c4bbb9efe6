"""Any dataset in LEAF's json format (Caldas et al. 2018, arXiv:1812.01097), which FedProx's files have too.

A file is {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}. A dataset is one file
or a folder of them, .json or .json.gz; or a folder with the folders train and test.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate, open_binary


def leaf(path: str | Path, shape: tuple[int, ...] | None = None, classes: int | None = None) -> Dataset:
    """A LEAF dataset with numbers as inputs: x is float32, y int32, and `keys` are the users' names.

    LEAF's FEMNIST is leaf("femnist", shape=(28, 28), classes=62).

    Args:
        path: a file or a folder; if it does not exist as it stands, it is looked for in the data directory.
        shape: of one input, if it is not the list of numbers that the files have.
        classes: how many there are, to check the labels.
    """
    path = Path(path) if Path(path).exists() else locate(str(path))
    separate = (path / "train").is_dir() and (path / "test").is_dir()
    x, y, keys = _arrays(path / "train" if separate else path, shape)
    test_x, test_y, test_keys = _arrays(path / "test", shape) if separate else (None, None, None)
    return Dataset(x, y, test_x, test_y, keys, test_keys, classes, origin=str(path))


def read_leaf(path: str | Path) -> tuple[np.ndarray, list[Any], list[Any]]:
    """The user, x and y of each example in a file or in the json files of a folder, as they are there."""
    users: list[str] = []
    x: list[Any] = []
    y: list[Any] = []
    for _, user, user_x, user_y in _users(Path(path)):
        users += [user] * len(user_y)
        x += user_x
        y += user_y
    return np.array(users, dtype=str), x, y


def _arrays(path: Path, shape: tuple[int, ...] | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    xs: list[np.ndarray] = []
    ys: list[np.ndarray] = []
    users: list[str] = []
    for file, user, user_x, user_y in _users(path):
        if not user_y:
            continue
        where = f"{file}: user {user!r}"
        try:
            # User by user: lists of Python numbers are far larger than arrays of them.
            x, y = np.asarray(user_x, np.float32), np.asarray(user_y, np.float64)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}: x and y must be numbers, x of one length: {error}.") from error
        if y.ndim != 1 or not np.all(np.isfinite(y) & (y == np.floor(y))):
            raise ValueError(f"{where}: y must be one integer for each example.")
        if not np.isfinite(x).all():  # null in json would be NaN from here on
            raise ValueError(f"{where}: an entry of x is null or not finite.")
        if shape is not None:
            if x[0].size != np.prod(shape):
                raise ValueError(f"{where}: an input has {x[0].size} numbers, which is not the shape {shape}.")
            x = x.reshape(-1, *shape)
        if xs and x.shape[1:] != xs[0].shape[1:]:
            raise ValueError(f"{where}: inputs have shape {x.shape[1:]}, but those before have {xs[0].shape[1:]}.")
        xs.append(x)
        ys.append(y.astype(np.int32))
        users.append(user)
    if not xs:
        raise ValueError(f"{path}: there is not a single example.")
    return np.concatenate(xs), np.concatenate(ys), np.repeat(np.array(users, dtype=str), [len(y) for y in ys])


def _users(path: Path) -> Iterator[tuple[Path, str, list[Any], list[Any]]]:
    """File, user, x and y, for each user in turn."""
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
        if not files:
            raise FileNotFoundError(f"{path} has no .json or .json.gz file in it.")
    elif not path.exists():
        raise FileNotFoundError(f"There is no {path}.")
    for file in files:
        content = _read(file)
        for user, number in zip(content["users"], content["num_samples"], strict=True):
            data = content["user_data"].get(user)
            if not isinstance(data, dict) or not isinstance(data.get("x"), list) or not isinstance(data.get("y"), list):
                raise ValueError(f"{file}: user {user!r} is in users, but user_data has no lists x and y of that user.")
            # LEAF leaves out 79 test windows of each role of Shakespeare, but does not subtract them from num_samples.
            if len(data["x"]) != len(data["y"]) or len(data["y"]) not in (number, number - 79):
                raise ValueError(
                    f"{file}: user {user!r} should have {number} examples by num_samples, but has {len(data['x'])} x "
                    f"and {len(data['y'])} y."
                )
            yield file, user, data["x"], data["y"]


def _read(file: Path) -> dict[str, Any]:
    try:
        with open_binary(file) as stream:
            content = json.load(stream)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not json: {error}.") from error
    kinds = {"users": list, "num_samples": list, "user_data": dict}
    for key, kind in kinds.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise ValueError(f"{file} is not a LEAF file: it has no {kind.__name__} named {key}.")
    users, numbers, data = list(map(str, content["users"])), content["num_samples"], content["user_data"]
    if len(users) != len(numbers):
        raise ValueError(f"{file}: there are {len(users)} users, but {len(numbers)} entries in num_samples.")
    listed = set(users)
    if len(listed) != len(users):
        raise ValueError(f"{file}: a user is listed more than once in users.")
    if unlisted := [user for user in data if user not in listed]:
        raise ValueError(f"{file}: user_data has user {unlisted[0]!r}, who is not in users.")
    return {**content, "users": users}  # keys of json objects are texts, so names must be
