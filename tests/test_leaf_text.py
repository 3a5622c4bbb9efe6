"""Texts in LEAF's json: Sent140 with vectors for its words, and Shakespeare's windows as LEAF writes them."""

import json

import numpy as np
import pytest

from fedloom.data import inputs
from fedloom.data.sources.sent140 import sent140
from fedloom.data.sources.shakespeare import shakespeare_leaf_files
from fedloom.data.text import LEAF_ALPHABET


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    return tmp_path


# Sent140.

TWEETS = {
    "train": {"ann": [("I'm happy, ok", "4"), ("Sad sad day!", "0")], "bob": [("word " * 30, 4)]},
    "test": {"ann": [("", 0)], "cyd": [("unheard happy", 1)]},
}
GLOVE = ["the", ",", "happy", "ok", "day", "!", "word", "sad"]


def vector(word):
    return np.random.default_rng(sum(map(ord, word))).normal(size=300).round(4)


@pytest.fixture
def tweets(data):
    for part, users in TWEETS.items():
        content = {
            "users": list(users),
            "num_samples": [len(t) for t in users.values()],
            "user_data": {
                u: {"x": [["1", "date", "NO_QUERY", u, text] for text, _ in t], "y": [y for _, y in t]}
                for u, t in users.items()
            },
        }
        (data / "sent140" / part).mkdir(parents=True)
        (data / "sent140" / part / "all.json").write_text(json.dumps(content))
    lines = [" ".join([word, *map(str, vector(word))]) for word in GLOVE]
    (data / "sent140/glove.6B.300d.txt").write_text("\n".join(lines) + "\n")
    return data


def test_tweets_become_vectors_of_words(tweets):
    d, vectors = sent140()
    assert list(d.keys) == ["ann", "ann", "bob"]
    assert list(d.y) == [1, 0, 1]
    assert list(d.test_y) == [0, 1]
    assert vectors.table.shape == (1 + 7, 300)  # without the word that does not occur
    x, y = inputs.embedded(vectors)((d.x, d.y), None)
    assert x.shape == (3, 25, 300)
    np.testing.assert_array_equal(y, d.y)
    zero = np.zeros(300)
    first = [zero, vector("happy"), vector(","), vector("ok"), *[zero] * 21]
    second = [zero, vector("sad"), vector("day"), vector("!"), *[zero] * 21]  # GloVe has no capitals
    np.testing.assert_allclose(x, [first, second, [vector("word")] * 25], atol=1e-6)
    np.testing.assert_array_equal(d.test_x[0], np.zeros(25))
    assert inputs.embedded(vectors) is inputs.embedded(vectors)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("train/all.json", '"4"', '"2"', "labels of Sent140 must be 0, 1 or 4, but there is '2'"),
        ("train/all.json", '["1", ', "[", "must be a list whose fifth entry is the text"),
        ("glove.6B.300d.txt", "happy ", "happy 1.0 ", r"line 3: expected 300 numbers after the word, got 301"),
        ("glove.6B.300d.txt", "happy ", "happy sad ", r"line 3: expected a word and numbers"),
    ],
)
def test_bad_tweets_raise_a_sentence(tweets, file, old, new, message):
    path = tweets / "sent140" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        sent140()


# LEAF's own files.


def write_leaf(folder, users, extra=0):
    """extra: what LEAF's num_samples has too much."""
    folder.mkdir(parents=True)
    data = {}
    for name, text in users.items():
        data[name] = {"x": [text[i : i + 80] for i in range(len(text) - 80)], "y": list(text[80:])}
    numbers = [len(d["y"]) + extra for d in data.values()]
    content = {"users": list(data), "num_samples": numbers, "user_data": data}
    (folder / "all.json").write_text(json.dumps(content))


def test_leafs_own_windows_are_those_that_we_make(tmp_path):
    text = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer the slings~ and arrows"
    write_leaf(tmp_path / "train", {"HAMLET": text, "OPHELIA": text[5:]})
    write_leaf(tmp_path / "test", {"HAMLET": text[3:]}, extra=79)
    data = shakespeare_leaf_files(tmp_path)
    n = len(text) - 80
    assert data.x.shape == (2 * n - 5, 80)
    assert data.keys.tolist() == ["HAMLET"] * n + ["OPHELIA"] * (n - 5)
    for i in range(n):
        want = [LEAF_ALPHABET.find(c) % 80 for c in text[i : i + 81]]  # -1, the unknown one, is 79
        assert [*data.x[i].tolist(), int(data.y[i])] == want
    assert data.test_y.tolist() == data.y[3:n].tolist()


@pytest.mark.parametrize(("x", "y", "sentence"), [("a" * 79, "b", "text of 80"), ("a" * 80, "bc", "one character")])
def test_other_texts_are_refused(tmp_path, x, y, sentence):
    (tmp_path / "train").mkdir()
    content = {"users": ["A"], "num_samples": [1], "user_data": {"A": {"x": [x], "y": [y]}}}
    (tmp_path / "train/all.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=sentence):
        shakespeare_leaf_files(tmp_path)
