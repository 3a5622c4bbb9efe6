"""Shakespeare's plays, a client for each speaking role: LEAF's windows, and FedOpt's snippets."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate, open_binary
from fedloom.data.sources.leaf import read_leaf
from fedloom.data.sources.tff import read_tff, tff_files
from fedloom.data.text import LEAF_ALPHABET, TFF_SYMBOLS, WINDOW, encode_snippets, leaf_codes, one_line, pieces

_GAP = WINDOW - 1  # windows left out between training and test, so that they have no character in common
_LINES = 6  # of a snippet, where the text does not say who speaks when


class Roles(NamedTuple):
    """The text of each role."""

    names: list[str]  # play and character
    plays: list[str]
    texts: list[str]  # the role's lines, each with its newline


def roles() -> Roles:
    """The plays by role, as the file has them: 1,151 roles in 37 plays in the Moby text.

    Its maker left out roles with at most 2 lines or without a window of 80 characters.
    """
    path = locate(
        "shakespeare/shakespeare_roles_moby.json.gz",
        "shakespeare/shakespeare_roles_moby.json",
        "shakespeare/data/all_data/all_data.json",  # as LEAF's own scripts write it
    )
    with open_binary(path) as file:
        try:
            content = json.load(file)
            names, plays = list(content["users"]), list(content["hierarchies"])
            texts = [content["user_data"][name]["raw"] for name in names]
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is not a file of roles: it must be json with users, hierarchies and user_data[user]['raw'] "
                f"({type(error).__name__}: {error})."
            ) from error
    if len(plays) != len(names) or not names or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{path}: each of the {len(names)} users must have a play in hierarchies and a text in raw.")
    return Roles(names, plays, texts)


def shakespeare_leaf(
    train_fraction: float = 0.8,
    clients: int | None = None,
    crop: tuple[int, int] | None = None,
    seed: int = 0,
) -> Dataset:
    """LEAF's task: from 80 characters to the next one, for every window of a role's text.

    A role's first windows are for training and its last ones for testing; the 79 windows between them are left out, so
    that inputs have no character in common (the label of the last training window is the first character of the first
    test window). Roles that have no window left for one of the two are left out, as LEAF does. `keys` are positions in
    `roles()`. All windows are 3.3 million training and 0.8 million test examples of 822 roles, 330 MB.

    Args:
        train_fraction: the part of a role's windows that comes before the gap.
        clients: only so many roles, drawn at random.
        crop: (2000, 400) is FedDyn's choice: of each role so many consecutive training and test windows, from random
            starts; only roles that have more than so many of both.
        seed: for the two draws.

    Departures: the text is the Moby edition, because the file that LEAF downloads has changed over the years and with
    it the number of roles. FedDyn seeds a role's crop with its number; here one generator makes all draws.
    """
    if not 0 < train_fraction < 1:
        raise ValueError(f"train_fraction must be between 0 and 1, got {train_fraction}.")
    if crop is not None and min(crop) < 1:
        raise ValueError(f"crop must be two positive numbers of windows, got {crop}.")
    codes = [leaf_codes(one_line(text)) for text in roles().texts]
    windows = np.array([max(len(c) - WINDOW, 0) for c in codes])
    train = np.maximum((train_fraction * windows).astype(int), 1)
    test = windows - train - _GAP
    needed = (0, 0) if crop is None else crop
    eligible = np.flatnonzero((train > needed[0]) & (test > needed[1]))
    if len(eligible) == 0:
        raise ValueError(f"No role has more than {needed[0]} training and {needed[1]} test windows.")

    rng = np.random.default_rng(seed)
    if clients is not None:
        if not 1 <= clients <= len(eligible):
            raise ValueError(f"clients must be from 1 to {len(eligible)}, the number of eligible roles; got {clients}.")
        eligible = np.sort(rng.choice(eligible, clients, replace=False))
    ranges = []  # of windows: role, first for training, last, first for testing, last
    for k in eligible:
        a, b, c, d = 0, train[k], train[k] + _GAP, windows[k]
        if crop is not None:
            a, c = rng.integers(a, b - crop[0] + 1), rng.integers(c, d - crop[1] + 1)
            b, d = a + crop[0], c + crop[1]
        ranges.append((int(k), int(a), int(b), int(c), int(d)))
    x, y, keys = _windows(codes, [(k, a, b) for k, a, b, _, _ in ranges])
    test_x, test_y, test_keys = _windows(codes, [(k, c, d) for k, _, _, c, d in ranges])
    origin = "Shakespeare by role, LEAF's windows"
    return Dataset(x, y, test_x, test_y, keys, test_keys, classes=len(LEAF_ALPHABET), origin=origin)


def _windows(codes: list[np.ndarray], ranges: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels and roles of the windows that start at `first` .. `last` - 1 of a role, for each range."""
    sizes = [last - first for _, first, last in ranges]
    x = np.empty((sum(sizes), WINDOW), np.uint8)  # filled in place: the largest array here exists once
    y = np.empty(sum(sizes), np.uint8)
    row = 0
    for (k, first, last), size in zip(ranges, sizes, strict=True):
        x[row : row + size] = sliding_window_view(codes[k], WINDOW)[first:last]
        y[row : row + size] = codes[k][first + WINDOW : last + WINDOW]
        row += size
    return x, y, np.repeat(np.array([k for k, _, _ in ranges], np.int32), sizes)


def shakespeare_leaf_files(path: str | Path) -> Dataset:
    """The windows as LEAF's own scripts write them, in a folder with the folders train and test.

    x is a text of 80 characters and y the next character; `keys` are the users' names. `shakespeare_leaf` makes such
    windows from the plays.
    """
    path = Path(path) if Path(path).exists() else locate(str(path))
    arrays: dict[str, Any] = {}
    for prefix, folder in (("", "train"), ("test_", "test")):
        users, x, y = read_leaf(path / folder)
        if not all(isinstance(text, str) and len(text) == WINDOW for text in x):
            raise ValueError(f"{path / folder}: every x must be a text of {WINDOW} characters.")
        if not all(isinstance(text, str) and len(text) == 1 for text in y):
            raise ValueError(f"{path / folder}: every y must be one character.")
        arrays[f"{prefix}x"] = leaf_codes("".join(x)).reshape(-1, WINDOW)
        arrays[f"{prefix}y"] = leaf_codes("".join(y))
        arrays[f"{prefix}keys"] = users
    return Dataset(**arrays, classes=len(LEAF_ALPHABET), origin=str(path))


def shakespeare_tff(text: str = "tff", train_fraction: float = 0.8) -> Dataset:
    """FedOpt's task: 80 characters and, for each, the one that follows. See `encode_snippets`; 90 symbols.

    Args:
        text: "tff" for TFF's files shakespeare_{train,test}.h5 (715 clients, 16,068 and 2,356 snippets), or "roles"
            for the roles of the plays as `roles` reads them.
        train_fraction: with "roles", the part of a role's snippets that are for training, its first ones.

    Departures: with "roles" there are other clients than TFF's, 1,151 of them. The file does not say where a speech
    ends, so six consecutive lines make a snippet; that gives as many snippets as TFF has, 18 thousand. A role with one
    snippet has it for training.
    """
    if text == "tff":
        parts: list[tuple[Any, list[bytes]]] = []
        for _, path in tff_files("shakespeare"):
            keys, rows = read_tff(path, ["snippets"])
            parts.append((keys, list(rows["snippets"])))
    elif text == "roles":
        parts = _role_snippets(train_fraction)
    else:
        raise ValueError(f"text must be 'tff' or 'roles', got {text!r}.")
    (x, y, keys), (test_x, test_y, test_keys) = (
        (*encode_snippets(snippets), np.repeat(owners, pieces(snippets))) for owners, snippets in parts
    )
    origin = f"Shakespeare in snippets, text {text!r}"
    return Dataset(x, y, test_x, test_y, keys, test_keys, classes=TFF_SYMBOLS, origin=origin)


def _role_snippets(train_fraction: float) -> list[tuple[Any, list[bytes]]]:
    """(role of each snippet, snippets) for training and for testing."""
    if not 0 < train_fraction < 1:
        raise ValueError(f"train_fraction must be between 0 and 1, got {train_fraction}.")
    parts: list[tuple[list[str], list[bytes]]] = [([], []), ([], [])]
    plays = roles()
    for name, text in zip(plays.names, plays.texts, strict=True):
        lines = [line.encode() for line in text.split("\n") if line]
        snippets = [b"\n".join(lines[i : i + _LINES]) for i in range(0, len(lines), _LINES)]
        cut = max(1, int(train_fraction * len(snippets)))
        for (owners, kept), some in zip(parts, (snippets[:cut], snippets[cut:]), strict=True):
            owners.extend([name] * len(some))
            kept.extend(some)
    return [(np.array(owners), kept) for owners, kept in parts]
