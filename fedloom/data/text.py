"""Characters as numbers, as LEAF and TFF have them for Shakespeare; and vectors for words."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

WINDOW = 80  # characters that a model sees

# LEAF's 80 symbols, in LEAF's order.
LEAF_ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LEAF_UNKNOWN = 79

# TFF's 86 characters, in TFF's order, get the numbers 1 to 86.
TFF_ALPHABET = b"dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
PAD, OOV, BOS, EOS = 0, 87, 88, 89
TFF_SYMBOLS = 90


def one_line(text: str) -> str:
    """LEAF's cleaning: newlines become spaces, and a run of spaces one space."""
    return re.sub(" {2,}", " ", text.replace("\n", " "))


def leaf_codes(text: str) -> np.ndarray:
    """The position of each character in LEAF's alphabet, uint8.

    Departures: LEAF gives an unknown character the position -1, which as an index into 80 things is the last one, the
    brace; we write 79 at once, so inputs and labels agree.
    """
    table = np.full(128, LEAF_UNKNOWN, np.uint8)  # the last entry serves all that is not ASCII
    for position, symbol in enumerate(LEAF_ALPHABET):
        table[ord(symbol)] = position
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return table[np.minimum(points, 127)]


def pieces(snippets: Sequence[bytes]) -> np.ndarray:
    """How many examples each snippet makes."""
    lengths = np.fromiter((len(s) for s in snippets), np.int64, len(snippets))
    return -(-(lengths + 2) // (WINDOW + 1))


def encode_snippets(snippets: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """FedOpt's examples for the next character: inputs and targets, each [n, 80] and uint8.

    A snippet becomes BOS, its bytes, EOS; padded to a multiple of 81 and cut into pieces of 81, of which the first 80
    are the input and the last 80 the target. So only the first piece of a snippet starts with BOS, and the first
    character of a later piece is nobody's target. Snippet i makes pieces(snippets)[i] rows.
    """
    table = np.full(256, OOV, np.uint8)
    table[np.frombuffer(TFF_ALPHABET, np.uint8)] = np.arange(1, len(TFF_ALPHABET) + 1)
    width = WINDOW + 1
    lengths = np.fromiter((len(s) for s in snippets), np.int64, len(snippets))
    ends = width * np.cumsum(pieces(snippets))
    starts = ends - width * pieces(snippets)
    flat = np.full(ends[-1] if len(ends) else 0, PAD, np.uint8)
    flat[starts] = BOS
    flat[starts + 1 + lengths] = EOS
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    flat[np.repeat(starts + 1, lengths) + within] = table[np.frombuffer(b"".join(snippets), np.uint8)]
    rows = flat.reshape(-1, width)
    return rows[:, :-1].copy(), rows[:, 1:].copy()


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
    """Vectors of the words that occur; row 0 is zero, for other words and for padding."""

    table: np.ndarray  # [words + 1, 300] float32
