"""TFF's hdf5 files, from tiny files of the same format; Stack Overflow against a slow transcription."""

import importlib
import json

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data import inputs
from fedloom.data.sources.stackoverflow import (
    encode_sentences,
    frequent_tags,
    frequent_words,
    stackoverflow_nwp,
    stackoverflow_tags,
)
from fedloom.data.sources.tff import clients_of, read_tff, tff_cifar100, tff_emnist

RNG = np.random.default_rng(0)


def write(path, clients):
    """clients: {id: {field: array, or list of bytes}}."""
    path.parent.mkdir(exist_ok=True, parents=True)
    with h5py.File(path, "w") as file:
        group = file.create_group("examples")
        for client, fields in clients.items():
            for field, values in fields.items():
                texts = isinstance(values, list)
                group.create_dataset(f"{client}/{field}", data=values, dtype=h5py.string_dtype() if texts else None)
    return path


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    return tmp_path


# The reader.

NUMBERS = {"b": {"v": np.arange(3), "t": [b"one", b"two", b"three"]}, "a": {"v": np.arange(5, 7), "t": [b"four", b""]}}


def test_clients_come_in_the_order_of_their_ids(tmp_path):
    keys, rows = read_tff(write(tmp_path / "f.h5", NUMBERS), ["v", "t"])
    assert list(keys) == ["a", "a", "b", "b", "b"]
    np.testing.assert_array_equal(rows["v"], [5, 6, 0, 1, 2])
    assert list(rows["t"]) == [b"four", b"", b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("choice", "values"),
    [
        ({"clients": 1}, [5, 6]),
        ({"clients": ["b"]}, [0, 1, 2]),
        ({"per_client": 1}, [5, 0]),
        ({"clients": 2}, [5, 6, 0, 1, 2]),
    ],
)
def test_some_clients_and_some_examples(tmp_path, choice, values):
    np.testing.assert_array_equal(read_tff(write(tmp_path / "f.h5", NUMBERS), ["v"], **choice)[1]["v"], values)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (NUMBERS, {"fields": ["w"]}, r"f\.h5: client a has no field 'w'; it has t, v\."),
        ({"a": {"v": np.arange(2), "w": np.arange(3)}}, {}, r"f\.h5: the fields of client a differ in length: .*2.*3"),
        ({}, {}, r"f\.h5 has no examples\."),
        ({"a": {"v": np.zeros(0), "w": np.zeros(0)}}, {}, r"f\.h5 has no examples\."),
        (NUMBERS, {"clients": 3}, r"clients = 3, but .*f\.h5 has only 2 clients\."),
        (NUMBERS, {"clients": 0}, r"clients must be a positive integer"),
        (NUMBERS, {"clients": ["c"]}, r"f\.h5 has no client 'c'; ids look like a, b\."),
        (NUMBERS, {"per_client": 0}, r"per_client must be a positive integer"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(tmp_path, content, arguments, message):
    path = write(tmp_path / "f.h5", content)
    with pytest.raises(ValueError, match=message):
        read_tff(path, **{"fields": ["v", "w"]} | arguments)


def test_files_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "f.h5"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match=r"f\.h5 is not a complete hdf5 file"):
        read_tff(path, ["v"])
    with h5py.File(path, "w") as file:
        file.create_group("clients")
    with pytest.raises(ValueError, match=r"f\.h5 has no group 'examples'"):
        read_tff(path, ["v"])
    whole = write(tmp_path / "whole.h5", {"a": {"v": np.arange(10_000)}}).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"f\.h5 is not a complete hdf5 file"):
        read_tff(path, ["v"])


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'fedloom\[tff\]'"):
        next(iter(clients_of(tmp_path / "f.h5", ["v"])))


# Images.


def emnist_clients(sizes, scale=255):
    return {
        f"f{k}": {
            "pixels": (RNG.integers(0, scale + 1, (n, 28, 28)) / scale).astype(np.float32),
            "label": RNG.integers(0, 62, n).astype(np.int32),
        }
        for k, n in enumerate(sizes)
    }


@pytest.mark.parametrize("folder", ["fed_emnist", ""])
def test_emnist_pixels_are_bytes_without_loss(data, folder):
    train, test = emnist_clients([3, 1]), emnist_clients([1, 2])
    write(data / folder / "fed_emnist_train.h5", train)
    write(data / folder / "fed_emnist_test.h5", test)
    emnist = tff_emnist()
    assert emnist.x.dtype == np.uint8
    assert emnist.classes == 62
    assert list(emnist.keys) == ["f0", "f0", "f0", "f1"]
    assert list(emnist.test_keys) == ["f0", "f1", "f1"]
    for x, y, clients in [(emnist.x, emnist.y, train), (emnist.test_x, emnist.test_y, test)]:
        pixels = np.concatenate([c["pixels"] for c in clients.values()])
        np.testing.assert_allclose(x / 255, pixels, atol=1e-7)
        np.testing.assert_array_equal(y, np.concatenate([c["label"] for c in clients.values()]))


def test_emnist_pixels_that_are_not_bytes_are_kept(data):
    train = emnist_clients([2]) | {"g": emnist_clients([3], scale=1000)["f0"]}
    for part in ("train", "test"):
        write(data / f"fed_emnist/fed_emnist_{part}.h5", train)
    x = tff_emnist().x
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, np.concatenate([c["pixels"] for c in train.values()]), atol=1e-7)


def test_emnist_digits_have_their_own_files(data):
    with pytest.raises(FileNotFoundError, match=r"fed_emnist_digitsonly_train\.h5"):
        tff_emnist(only_digits=True)
    for part in ("train", "test"):
        clients = {"f": {"pixels": np.ones((2, 28, 28), np.float32), "label": np.array([9, 0])}}
        write(data / f"fed_emnist_digitsonly_{part}.h5", clients)
    digits = tff_emnist(only_digits=True)
    assert digits.classes == 10
    np.testing.assert_array_equal(digits.x, np.full((2, 28, 28), 255))


def test_a_missing_test_file_is_noticed_before_the_training_file_is_read(data):
    (data / "fed_emnist_train.h5").write_bytes(b"not looked at")
    with pytest.raises(FileNotFoundError, match=r"fed_emnist_test\.h5"):
        tff_emnist()


def test_cifar100_keeps_the_partition_and_both_labels(data):
    def clients(ids):
        return {
            k: {
                "image": RNG.integers(0, 256, (2, 32, 32, 3), np.uint8),
                "label": RNG.integers(0, 100, 2),
                "coarse_label": RNG.integers(0, 20, 2),
            }
            for k in ids
        }

    train = clients(["0", "1", "10", "2"])
    write(data / "fed_cifar100/fed_cifar100_train.h5", train)
    write(data / "fed_cifar100/fed_cifar100_test.h5", clients(["0"]))
    cifar = tff_cifar100()
    assert list(cifar.keys) == [k for k in train for _ in range(2)]
    for got, field in [(cifar.x, "image"), (cifar.y, "label"), (cifar.coarse, "coarse_label")]:
        np.testing.assert_array_equal(got, np.concatenate([c[field] for c in train.values()]))
    assert cifar.x.dtype == cifar.test_x.dtype == np.uint8
    assert cifar.test_x.shape == (2, 32, 32, 3)


# Stack Overflow.

VOCABULARY = [b"the", b"a", b"code", b"error", b"python"]
TAGS = {"java": 5, "python": 9, "jax": 5, "c++": 1}


def slow_sentence(sentence, vocabulary):
    """Input and target, transcribed from FedOpt's description word by word."""
    symbols = ["<pad>", *(w.decode() for w in vocabulary), "<oov>", "<bos>", "<eos>"]
    words = sentence.decode().split(" ") if sentence else []
    words = [w if w in symbols[1:-3] else "<oov>" for w in words][:20]
    if len(words) < 20:
        words = [*words, "<eos>"]
    words = ["<bos>", *words]
    while len(words) < 21:
        words.append("<pad>")
    numbers = [symbols.index(w) for w in words]
    return numbers[:20], numbers[1:]


def sentence(words):
    return b" ".join(words)


SENTENCES = st.lists(st.sampled_from([*VOCABULARY, b"zebra", b"<eos>"]), max_size=25).map(sentence)


@settings(deadline=None)
@given(st.lists(SENTENCES, max_size=4))
def test_sentences_are_encoded_as_a_slow_transcription_does(sentences):
    x, y = encode_sentences(sentences, VOCABULARY)
    assert x.shape == y.shape == (len(sentences), 20)
    for got_x, got_y, text in zip(x, y, sentences, strict=True):
        want_x, want_y = slow_sentence(text, VOCABULARY)
        assert (list(got_x), list(got_y)) == (want_x, want_y)


@pytest.mark.parametrize(("length", "last"), [(19, 10_003), (20, 1), (21, 1)])
def test_ten_thousand_words_make_10004_symbols(length, last):
    """Only a sentence of fewer than 20 words has an end, and the largest number is its."""
    vocabulary = [f"w{i}".encode() for i in range(10_000)]
    x, y = encode_sentences([b" ".join([b"w0"] * length)], vocabulary)
    assert x[0, 0] == 10_002
    assert y[0, -1] == last
    np.testing.assert_array_equal(x[0, 1:], y[0, :-1])


def posts(n, seed):
    rng = np.random.default_rng(seed)
    words = [*VOCABULARY, b"zebra", b"other"]
    return {
        "tokens": [sentence(rng.choice(words, rng.integers(1, 30))) for _ in range(n)],
        "title": [sentence(rng.choice(words, rng.integers(1, 4))) for _ in range(n)],
        "tags": [b"|".join(rng.permutation([b"java", b"python", b"jax", b"c++", b"cobol"])[: i % 6]) for i in range(n)],
    }


@pytest.fixture
def stackoverflow(data):
    folder = data / "stackoverflow"
    train = {"1": posts(7, 0), "3": posts(4, 1), "2": posts(6, 2)}
    test = {"9": posts(3, 3), "8": posts(5, 4)}
    write(folder / "stackoverflow_train.h5", train)
    write(folder / "stackoverflow_test.h5", test)
    counts = "".join(f"{word.decode()} {90 - i}\n" for i, word in enumerate([*VOCABULARY, b"zebra"]))
    (folder / "stackoverflow.word_count").write_text(counts)
    (folder / "stackoverflow.tag_count").write_text(json.dumps(TAGS))
    return train, test


def test_the_most_frequent_words_and_tags(stackoverflow):
    assert frequent_words(5) == VOCABULARY
    assert frequent_tags(3) == [b"python", b"java", b"jax"]  # the file's order among equals


def test_next_words(stackoverflow):
    train, test = stackoverflow
    d = stackoverflow_nwp(clients=2, per_client=5, words=5, test_examples=6)
    texts = train["1"]["tokens"][:5] + train["2"]["tokens"][:5]
    assert list(d.keys) == ["1"] * 5 + ["2"] * 5
    want = [slow_sentence(text, VOCABULARY) for text in texts]
    np.testing.assert_array_equal(d.x, [x for x, _ in want])
    np.testing.assert_array_equal(d.y, [y for _, y in want])
    assert list(d.test_keys) == ["8"] * 5 + ["9"]
    want = [slow_sentence(text, VOCABULARY) for text in test["8"]["tokens"] + test["9"]["tokens"][:1]]
    np.testing.assert_array_equal(d.test_y, [y for _, y in want])
    assert d.classes == 9
    assert d.x.dtype == np.int16


def slow_bag(post, vocabulary, tags):
    """The mean of one-hot vectors with a last coordinate for other words, which is then dropped; and a multi-hot."""
    words = (post["tokens"] + b" " + post["title"]).split(b" ")
    one_hots = np.zeros((len(words), len(vocabulary) + 1))
    for i, word in enumerate(words):
        one_hots[i, vocabulary.index(word) if word in vocabulary else -1] = 1
    return one_hots.mean(axis=0)[:-1], [float(tag in post["tags"].split(b"|")) for tag in tags]


def test_tags_and_bags_of_words(stackoverflow):
    train, test = stackoverflow
    d = stackoverflow_tags(words=5, tags=3, test_examples=None)
    for x, y, keys, clients in [(d.x, d.y, d.keys, train), (d.test_x, d.test_y, d.test_keys, test)]:
        ids = sorted(clients)
        assert list(keys) == [k for k in ids for _ in clients[k]["tags"]]
        rows = [
            dict(zip(clients[k], values, strict=True)) for k in ids for values in zip(*clients[k].values(), strict=True)
        ]
        want = [slow_bag(row, VOCABULARY, [b"python", b"java", b"jax"]) for row in rows]
        bags, targets = inputs.bag_of_words(5, 3)((x, y), None)
        np.testing.assert_allclose(bags, [bag for bag, _ in want], rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(targets, [target for _, target in want])
    assert stackoverflow_tags(clients=["3"], per_client=2, words=5, tags=3).x[0].shape[0] == 2


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("word_count", "the 9\na 8\n", r"words must be from 1 to the number of words in .*word_count, 2; got 5\."),
        ("word_count", "the 9\na\n", r"word_count, line 2: expected a word and its count, got b'a\\n'\."),
        ("tag_count", "java 5\n", r"tag_count must be a json object of tags and their counts"),
        ("tag_count", '["java"]', r"tag_count must be a json object of tags and their counts"),
        ("tag_count", '{"java": 5}', r"tags must be from 1 to the number of tags in .*tag_count, 1; got 3\."),
    ],
)
def test_bad_counts_raise_a_sentence(stackoverflow, data, file, content, message):
    (data / "stackoverflow" / f"stackoverflow.{file}").write_text(content)
    with pytest.raises(ValueError, match=message):
        stackoverflow_tags(words=5, tags=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": 40_000}, "words must be at most"),
        ({"words": 0}, "words must be a positive integer"),
        ({"test_examples": 0}, "test_examples must be a positive integer"),
        ({"clients": 4}, "clients = 4"),
    ],
)
def test_bad_arguments_raise_a_sentence(stackoverflow, change, message):
    with pytest.raises(ValueError, match=message):
        stackoverflow_nwp(**{"words": 5} | change)
