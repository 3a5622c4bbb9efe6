"""Stack Overflow in TFF's files, a client for each user: the next word, and the tags of a question.

Besides stackoverflow_{train,test}.h5 this takes TFF's counts: stackoverflow.word_count, lines of a word and how many
users wrote it, most frequent first, and stackoverflow.tag_count, the same for tags as a json object. The third part,
stackoverflow_held_out.h5, is not read, as in FedOpt.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.files import locate, open_binary
from fedloom.data.sources.tff import clients_of, tff_files

LENGTH = 20  # words that a model of the next word sees
_LARGEST = np.iinfo(np.int16).max  # word numbers are stored as int16


def frequent_words(words: int) -> list[bytes]:
    """The most frequent words, from stackoverflow.word_count."""
    if words < 1:
        raise ValueError(f"words must be a positive integer, got {words}.")
    path = locate("stackoverflow/stackoverflow.word_count", "stackoverflow.word_count")
    found: list[bytes] = []
    with open_binary(path) as file:
        for number, line in enumerate(file, 1):
            if len(found) == words:
                break
            entry = line.split()
            if len(entry) != 2:
                raise ValueError(f"{path}, line {number}: expected a word and its count, got {line[:50]!r}.")
            found.append(entry[0])
    if len(found) < words:
        raise ValueError(f"words must be from 1 to the number of words in {path}, {len(found)}; got {words}.")
    return found


def frequent_tags(tags: int) -> list[bytes]:
    """The most frequent tags, from stackoverflow.tag_count."""
    path = locate("stackoverflow/stackoverflow.tag_count", "stackoverflow.tag_count")
    with open_binary(path) as file:
        try:
            counts = {str(tag): int(count) for tag, count in json.load(file).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{path} must be a json object of tags and their counts ({error}).") from error
    if not 1 <= tags <= len(counts):
        raise ValueError(f"tags must be from 1 to the number of tags in {path}, {len(counts)}; got {tags}.")
    ordered = sorted(counts, key=lambda tag: -counts[tag])  # a stable sort: equal counts stay in the file's order
    return [tag.encode() for tag in ordered[:tags]]


def encode_sentences(sentences: Sequence[bytes], vocabulary: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """FedOpt's examples for the next word: inputs and targets, each [n, 20] and int16.

    With V words in the vocabulary, they are numbered 1 to V; 0 is padding, V + 1 any other word, V + 2 the beginning
    and V + 3 the end of a sentence. A sentence is cut after 20 words; only one that is shorter gets an end. The input
    is the beginning and all but the last; the target is all but the beginning.
    """
    number = {word: i for i, word in enumerate(vocabulary, 1)}
    oov, bos, eos = (len(vocabulary) + i for i in (1, 2, 3))
    tokens = np.zeros((len(sentences), LENGTH + 1), np.int16)
    tokens[:, 0] = bos
    for row, sentence in zip(tokens, sentences, strict=True):
        ids = [number.get(word, oov) for word in sentence.split()[:LENGTH]]
        if len(ids) < LENGTH:
            ids.append(eos)
        row[1 : 1 + len(ids)] = ids
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def stackoverflow_nwp(
    clients: int | Sequence[str] | None = None,
    per_client: int | None = 1000,
    words: int = 10_000,
    test_examples: int | None = 10_000,
) -> Dataset:
    """The next word, as in FedOpt: see `encode_sentences`. With 10,000 words there are 10,004 symbols.

    Args:
        clients: only the first so many of the 342,477 training clients, or these.
        per_client: only the first so many sentences of each training client.
        words: the size of the vocabulary.
        test_examples: only the first so many test examples; the paper reports on 10,000. None for all.

    Departures: test clients come in the order of their ids; the paper's are in an unknown order.
    """
    if words + 4 > _LARGEST:
        raise ValueError(f"words must be at most {_LARGEST - 4}, got {words}.")
    vocabulary = frequent_words(words)
    arrays: dict[str, Any] = {}
    for prefix, (keys, rows) in _parts(["tokens"], clients, per_client, test_examples):
        arrays[f"{prefix}x"], arrays[f"{prefix}y"] = encode_sentences(rows["tokens"], vocabulary)
        arrays[f"{prefix}keys"] = keys
    return Dataset(**arrays, classes=words + 4, origin="Stack Overflow, next word")


def encode_posts(texts: Sequence[bytes], vocabulary: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Which words of the vocabulary a text has, and how many words in all.

    Returns [n, longest] int16, word numbers from 0 as often as they occur, then -1; and [n] int32. As dense vectors
    they would be thousands of times larger: `inputs.bag_of_words` makes those, a minibatch at a time.
    """
    number = {word: i for i, word in enumerate(vocabulary)}
    counts, ids = np.zeros(len(texts), np.int32), []
    for i, text in enumerate(texts):
        words = text.split()
        counts[i] = len(words)
        ids.append([number[word] for word in words if word in number])
    return _padded(ids), counts


def encode_tags(texts: Sequence[bytes], vocabulary: Sequence[bytes]) -> np.ndarray:
    """The known tags of each text, such as b"jax|python": [n, most tags] int16, tag numbers from 0, then -1."""
    number = {tag: i for i, tag in enumerate(vocabulary)}
    return _padded([sorted({number[tag] for tag in text.split(b"|") if tag in number}) for text in texts])


def stackoverflow_tags(
    clients: int | Sequence[str] | None = None,
    per_client: int | None = 1000,
    words: int = 10_000,
    tags: int = 500,
    test_examples: int | None = 10_000,
) -> Dataset:
    """The tags of a post from the words of its body and title, as in FedOpt; x is a pair, see `encode_posts`.

    Args:
        clients: only the first so many of the 342,477 training clients, or these.
        per_client: only the first so many posts of each training client.
        words: the number of words that count.
        tags: the number of tags to predict; a post may have none of them.
        test_examples: only the first so many test examples; the paper reports on 10,000. None for all.

    Departures: test clients come in the order of their ids; the paper's are in an unknown order.
    """
    if max(words, tags) > _LARGEST:
        raise ValueError(f"words and tags must be at most {_LARGEST}, got {words} and {tags}.")
    vocabulary, tag_list = frequent_words(words), frequent_tags(tags)
    arrays: dict[str, Any] = {}
    for prefix, (keys, rows) in _parts(["tokens", "title", "tags"], clients, per_client, test_examples):
        texts = [body + b" " + title for body, title in zip(rows["tokens"], rows["title"], strict=True)]
        arrays[f"{prefix}x"] = encode_posts(texts, vocabulary)
        arrays[f"{prefix}y"] = encode_tags(rows["tags"], tag_list)
        arrays[f"{prefix}keys"] = keys
    return Dataset(**arrays, origin="Stack Overflow, tags")


def _padded(lists: list[list[int]]) -> np.ndarray:
    out = np.full((len(lists), max(map(len, lists), default=0)), -1, np.int16)
    for row, values in zip(out, lists, strict=True):
        row[: len(values)] = values
    return out


def _parts(
    fields: Sequence[str], clients: int | Sequence[str] | None, per_client: int | None, test_examples: int | None
) -> Iterator[tuple[str, tuple[np.ndarray, dict[str, list[bytes]]]]]:
    """For training (prefix "") and testing ("test_"): the client of each example, and the texts of each field."""
    if test_examples is not None and test_examples < 1:
        raise ValueError(f"test_examples must be a positive integer, or None for all, got {test_examples}.")
    for prefix, path in tff_files("stackoverflow"):
        chosen, most, limit = (None, None, test_examples) if prefix else (clients, per_client, None)
        keys: list[str] = []
        rows: dict[str, list[bytes]] = {field: [] for field in fields}
        for client, texts in clients_of(path, fields, chosen, most):
            for field in fields:
                rows[field].extend(texts[field])
            keys.extend([client] * len(texts[fields[0]]))
            if limit is not None and len(keys) >= limit:  # stop here: the test file has 16 million examples
                break
        if not keys:
            raise ValueError(f"{path} has no examples.")
        yield prefix, (np.array(keys[:limit]), {field: texts[:limit] for field, texts in rows.items()})
