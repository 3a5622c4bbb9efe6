"""Sent140: is a tweet happy? LEAF's json files, a client for each user, with GloVe's vectors for words."""

import re
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate, open_binary
from fedloom.data.sources.leaf import read_leaf
from fedloom.data.text import WordVectors as WordVectors

WORDS = 25
_DIMENSIONS = 300
_WORD = re.compile(r"[\w']+|[.,!?;]")
_LABELS = {"0": 0, "1": 1, "4": 1}  # 4 is Sent140's own number for a happy tweet
_TEXT = 4  # a tweet is [id, date, query, user, text, ...]


def sent140() -> tuple[Dataset, WordVectors]:
    """Tweets as the numbers of their first 25 words, [n, 25] int32, labels 0 and 1; and the vectors of the words.

    The files are LEAF's sent140/train and sent140/test, and sent140/glove.6B.300d.txt.

    Departures: only the vectors of words that occur are kept. Words are taken as they are written, as LEAF and FedProx
    do; GloVe has small letters only, so that a word with a capital has no vector.
    """
    parts = [
        ("", locate("sent140/train", "sent140/data/train")),
        ("test_", locate("sent140/test", "sent140/data/test")),
    ]
    glove = locate("sent140/glove.6B.300d.txt", "glove.6B.300d.txt", "sent140/glove.6B.300d.txt.gz")
    arrays: dict[str, Any] = {}
    texts: dict[str, list[list[str]]] = {}
    for prefix, path in parts:
        users, tweets, labels = read_leaf(path)
        arrays[f"{prefix}keys"] = np.asarray(users)
        arrays[f"{prefix}y"] = _labels(path, labels)
        texts[prefix] = [split_words(_text(path, tweet)) for tweet in tweets]
    occurring = {word for part in texts.values() for words in part for word in words}
    number, vectors = _glove(glove, occurring)
    for prefix, part in texts.items():
        x = np.zeros((len(part), WORDS), np.int32)
        for row, words in zip(x, part, strict=True):
            row[: len(words)] = [number.get(word, 0) for word in words]
        arrays[f"{prefix}x"] = x
    return Dataset(**arrays, classes=2, origin="Sent140"), vectors


def split_words(text: str) -> list[str]:
    """The first 25 words, where . , ! ? and ; are words of their own."""
    return _WORD.findall(text)[:WORDS]


def _text(path: Any, tweet: Any) -> str:
    if not isinstance(tweet, list) or len(tweet) <= _TEXT or not isinstance(tweet[_TEXT], str):
        raise ValueError(f"{path}: an x of Sent140 must be a list whose fifth entry is the text, got {tweet!r:.80}.")
    return tweet[_TEXT]


def _labels(path: Any, labels: Any) -> np.ndarray:
    unknown = {str(label) for label in labels} - set(_LABELS)
    if unknown:
        raise ValueError(f"{path}: labels of Sent140 must be 0, 1 or 4, but there is {min(unknown)!r}.")
    return np.array([_LABELS[str(label)] for label in labels], np.uint8)


def _glove(path: Any, occurring: set[str]) -> tuple[dict[str, int], WordVectors]:
    """Numbers from 1 for the words that have a vector, in the file's order, and the vectors."""
    number: dict[str, int] = {}
    rows = [np.zeros(_DIMENSIONS, np.float32)]
    with open_binary(path) as file:
        for i, line in enumerate(file, 1):
            word, _, values = line.rstrip().partition(b" ")
            name = word.decode("utf-8", "replace")
            if name not in occurring or name in number:
                continue
            try:
                row = np.array([float(value) for value in values.split()], np.float32)
            except ValueError as error:
                raise ValueError(f"{path}, line {i}: expected a word and numbers ({error}).") from error
            if len(row) != _DIMENSIONS:
                raise ValueError(f"{path}, line {i}: expected {_DIMENSIONS} numbers after the word, got {len(row)}.")
            number[name] = len(rows)
            rows.append(row)
    return number, WordVectors(np.stack(rows))
