"""Shakespeare and Sent140: encodings against slow transcriptions, splits that do not leak, and the real plays."""

import gzip
import json
import os
import string

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.sources.shakespeare import roles, shakespeare_leaf, shakespeare_tff
from fedloom.data.text import LEAF_ALPHABET, TFF_ALPHABET, encode_snippets, leaf_codes, one_line, pieces
from fedloom.places import data_directory

# The alphabets.


def test_leafs_alphabet_is_in_the_order_of_ascii():
    """80 symbols: letters, digits, and what punctuation LEAF found; one wrong symbol would break the order or these."""
    assert len(LEAF_ALPHABET) == 80
    assert list(LEAF_ALPHABET) == sorted(set(LEAF_ALPHABET))
    assert set(LEAF_ALPHABET) - set(string.ascii_letters + string.digits) == set("\n !\"&'(),-.:;>?[]}")


def test_tffs_alphabet_is_in_the_order_of_ascii_by_residues():
    """TFF's list goes through the residues 0, 3, 2, 1 of the codes modulo 4, and has no symbol twice."""
    codes = list(TFF_ALPHABET)
    assert len(codes) == len(set(codes)) == 86
    assert [c % 4 for c in codes] == sorted((c % 4 for c in codes), key=[0, 3, 2, 1].index)
    others = {chr(c) for c in codes} - set(string.ascii_letters + string.digits)
    assert others == set("@ $(,[_#'/;?\"&*.:\n]!%)-\r")
    for symbols in (string.ascii_lowercase, string.ascii_uppercase, string.digits):
        assert set(symbols) <= {chr(c) for c in codes}
        for residue in range(4):  # in order within a residue and a kind
            found = [chr(c) for c in codes if chr(c) in symbols and c % 4 == residue]
            assert found == sorted(found)


# LEAF's windows.

TEXT = st.text(st.sampled_from("ab Z\n\n  .}$é\U0001f600"), max_size=40)


@settings(deadline=None)
@given(TEXT)
def test_text_on_one_line(text):
    slow = ""
    for c in text:
        c = " " if c == "\n" else c
        if not (c == " " and slow.endswith(" ")):
            slow += c
    assert one_line(text) == slow


@settings(deadline=None)
@given(TEXT)
def test_codes_are_positions_in_the_alphabet(text):
    """A negative index, LEAF's for unknown characters, is the last position."""
    codes = leaf_codes(text)
    assert codes.dtype == np.uint8
    assert list(codes) == [LEAF_ALPHABET.find(c) % 80 for c in text]


def slow_windows(text, train_fraction):
    """Training and test windows of a role as LEAF makes them, one by one."""
    text = one_line(text)
    windows = [(text[i : i + 80], text[i + 80]) for i in range(len(text) - 80)]
    n = max(1, int(train_fraction * len(windows)))
    return windows[:n], windows[n + 79 :]


def write_roles(path, texts):
    content = {
        "users": list(texts),
        "hierarchies": ["A Play"] * len(texts),
        "num_samples": [0] * len(texts),
        "user_data": {name: {"raw": text} for name, text in texts.items()},
    }
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def text(length, seed):
    letters = list("abc  \n.$AZ")
    return "".join(np.random.default_rng(seed).choice(letters, length))


SHORT = {"A": text(900, 0), "B": text(90, 1), "C": text(700, 2), "D": "x" * 80, "E": "y" * 182, "F": "z" * 500}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def plays(data):
    write_roles(data / "shakespeare/shakespeare_roles_moby.json.gz", SHORT)


@pytest.mark.parametrize("fraction", [0.8, 0.2])
def test_windows_are_those_of_a_slow_transcription(plays, fraction):
    d = shakespeare_leaf(train_fraction=fraction)
    kept = 0
    for k, raw in enumerate(SHORT.values()):
        train, test = slow_windows(raw, fraction)
        used = bool(train and test)
        kept += used
        for x, y, keys, windows in [(d.x, d.y, d.keys, train), (d.test_x, d.test_y, d.test_keys, test)]:
            mine = keys == k
            assert mine.sum() == (len(windows) if used else 0)
            if used:
                np.testing.assert_array_equal(x[mine], [leaf_codes(seen) for seen, _ in windows])
                np.testing.assert_array_equal(y[mine], [leaf_codes(following)[0] for _, following in windows])
    assert 0 < kept < len(SHORT)
    assert d.x.dtype == d.y.dtype == np.uint8


def numbered_roles(data, lengths):
    """Roles in which no window occurs twice."""
    symbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

    def at(i):  # the number i in two digits, after a marker
        return f"z{symbols[i // 51 % 51]}{symbols[i % 51]}"

    texts = {f"R{k}": "".join(map(at, range(n // 3 + 1)))[:n] for k, n in enumerate(lengths)}
    write_roles(data / "shakespeare/shakespeare_roles_moby.json.gz", texts)
    return [one_line(t) for t in texts.values()]


def starts(x, codes):
    """Where in its role's text a window begins; it occurs once."""
    every = np.lib.stride_tricks.sliding_window_view(codes, 80)
    found = (x[:, None, :] == every[None]).all(-1)
    assert (found.sum(axis=1) == 1).all()
    return found.argmax(axis=1)


def test_no_input_of_a_test_window_is_in_a_training_window(data):
    texts = numbered_roles(data, [700, 500])
    d = shakespeare_leaf()
    for k, role in enumerate(texts):
        train = starts(d.x[d.keys == k], leaf_codes(role))
        test = starts(d.test_x[d.test_keys == k], leaf_codes(role))
        assert train.max() + 80 == test.min()  # the first character after the last window
        assert test.max() == len(role) - 81
        assert train.min() == 0


def test_a_crop_is_a_run_of_windows_on_the_right_side_of_the_split(data):
    texts = numbered_roles(data, [700, 600, 650, 500])
    firsts = set()
    for seed in range(8):
        d = shakespeare_leaf(crop=(30, 7), seed=seed)
        whole = shakespeare_leaf()
        assert set(d.keys) == set(d.test_keys) == {0, 1, 2}  # the last one has too few test windows
        for k in set(d.keys):
            codes = leaf_codes(texts[k])
            for x, keys, all_x, all_keys, size in [
                (d.x, d.keys, whole.x, whole.keys, 30),
                (d.test_x, d.test_keys, whole.test_x, whole.test_keys, 7),
            ]:
                run = starts(x[keys == k], codes)
                np.testing.assert_array_equal(run, run[0] + np.arange(size))
                inside = starts(all_x[all_keys == k], codes)
                assert inside.min() <= run[0]
                assert run[-1] <= inside.max()
                firsts.add((k, size, int(run[0])))
    assert len(firsts) > 30  # starts differ between seeds, roles and parts


def test_a_crop_of_all_windows_but_one_starts_at_the_first_or_the_second(data):
    (role,) = numbered_roles(data, [700])
    whole = shakespeare_leaf()
    n, m = len(whole.y), len(whole.test_y)
    crops = [shakespeare_leaf(crop=(n - 1, m - 1), seed=seed) for seed in range(16)]
    codes = leaf_codes(role)
    assert {int(starts(d.x[:1], codes)[0]) for d in crops} == {0, 1}
    assert {int(starts(d.test_x[:1], codes)[0]) for d in crops} == {n + 79, n + 80}


def test_some_roles_drawn_at_random(data):
    numbered_roles(data, [600] * 6)
    draws = [tuple(np.unique(shakespeare_leaf(clients=3, seed=seed).keys)) for seed in (0, 0, 1, 2, 3)]
    assert draws[0] == draws[1]
    assert len(set(draws)) > 1
    assert all(len(draw) == 3 for draw in draws)
    a, b = (shakespeare_leaf(clients=2, crop=(20, 5), seed=4) for _ in range(2))
    np.testing.assert_array_equal(a.x, b.x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_fraction": 1.0}, "train_fraction must be between 0 and 1, got 1.0"),
        ({"crop": (0, 4)}, r"crop must be two positive numbers of windows, got \(0, 4\)"),
        ({"crop": (2000, 400)}, "No role has more than 2000 training and 400 test windows"),
        ({"clients": 5}, "clients must be from 1 to 3, the number of eligible roles; got 5"),
        ({"clients": 0}, "clients must be from 1 to 3"),
    ],
)
def test_bad_arguments_raise_a_sentence(plays, change, message):
    with pytest.raises(ValueError, match=message):
        shakespeare_leaf(**change)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no json", "is not a file of roles"),
        (
            b'{"users": ["A"], "hierarchies": ["P"], "user_data": {"B": {"raw": ""}}}',
            "is not a file of roles.*KeyError",
        ),
        (b'{"users": ["A"], "hierarchies": [], "user_data": {"A": {"raw": ""}}}', "must have a play in hierarchies"),
        (b'{"users": ["A"], "hierarchies": ["P"], "user_data": {"A": {"raw": 3}}}', "and a text in raw"),
    ],
)
def test_a_bad_file_of_roles_raises_a_sentence(data, content, message):
    path = data / "shakespeare/shakespeare_roles_moby.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        roles()


# TFF's snippets.


def slow_snippet(snippet):
    """The pieces of a snippet, symbol by symbol, from the description in papers and code."""
    symbols = ["pad", *(bytes([c]) for c in TFF_ALPHABET), "oov", "bos", "eos"]
    seen = [bytes([c]) for c in snippet]
    stream = ["bos", *(s if s in symbols else "oov" for s in seen), "eos"]
    while len(stream) % 81:
        stream.append("pad")
    numbers = [symbols.index(s) for s in stream]
    cut = [numbers[i : i + 81] for i in range(0, len(numbers), 81)]
    return [piece[:80] for piece in cut], [piece[1:] for piece in cut]


LENGTHS = st.one_of(st.integers(0, 200), st.sampled_from([78, 79, 80, 81, 160, 161]))
SNIPPETS = LENGTHS.flatmap(lambda n: st.binary(min_size=n, max_size=n))


@settings(deadline=None)
@given(st.lists(SNIPPETS, max_size=4))
def test_snippets_are_encoded_as_a_slow_transcription_does(snippets):
    x, y = encode_snippets(snippets)
    want = [slow_snippet(s) for s in snippets]
    assert list(pieces(snippets)) == [len(pieces_x) for pieces_x, _ in want]
    assert x.tolist() == [row for pieces_x, _ in want for row in pieces_x]
    assert y.tolist() == [row for _, pieces_y in want for row in pieces_y]
    assert x.dtype == y.dtype == np.uint8


def decoded(x, y):
    """The text back from the pieces of a snippet: every symbol of the stream is in x, or last in y."""
    stream = [s for row_x, row_y in zip(x, y, strict=True) for s in [*row_x, row_y[-1]]]
    return bytes(TFF_ALPHABET[s - 1] for s in stream if 1 <= s <= 86)


def test_snippets_of_tffs_files(data):
    snippets = {"b": [b"To be", b"x" * 100], "a": [b"or not\nto be"]}
    for part in ("train", "test"):
        with h5py.File(data / f"shakespeare_{part}.h5", "w") as file:
            for client, texts in snippets.items():
                file.create_dataset(f"examples/{client}/snippets", data=texts, dtype=h5py.string_dtype())
    d = shakespeare_tff()
    assert list(d.keys) == list(d.test_keys) == ["a", "b", "b", "b"]
    assert decoded(d.x[:1], d.y[:1]) == b"or not\nto be"
    assert decoded(d.x[2:], d.y[2:]) == b"x" * 100
    np.testing.assert_array_equal(d.x, d.test_x)
    assert d.classes == 90


def test_snippets_of_roles(data):
    lines = [f"line {i}." for i in range(29)]
    texts = {"Long": "\n".join(lines) + "\n", "Short": "One line.\n"}
    write_roles(data / "shakespeare/shakespeare_roles_moby.json.gz", texts)
    d = shakespeare_tff(text="roles")
    assert list(d.keys) == ["Long"] * 4 + ["Short"]
    assert list(d.test_keys) == ["Long"]
    everything = b"\n".join(decoded(x[None], y[None]) for x, y in zip(d.x[:4], d.y[:4], strict=True))
    assert everything == "\n".join(lines[:24]).encode()  # four of five snippets, in order
    assert decoded(d.test_x, d.test_y) == "\n".join(lines[24:]).encode()


def test_the_text_is_never_chosen_in_silence(plays):
    with pytest.raises(FileNotFoundError, match=r"shakespeare_train\.h5"):
        shakespeare_tff()
    with pytest.raises(ValueError, match="text must be 'tff' or 'roles', got 'play'"):
        shakespeare_tff(text="play")
    with pytest.raises(ValueError, match="train_fraction must be between 0 and 1"):
        shakespeare_tff(text="roles", train_fraction=0.0)


# The real plays.


@pytest.fixture
def real():
    if "FEDLOOM_DATA" not in os.environ or not (data_directory() / "shakespeare").exists():
        pytest.skip("FEDLOOM_DATA names no directory with the folder shakespeare")


def test_the_plays_have_37_names_and_1151_roles(real):
    names, plays, texts = roles()
    assert len(set(plays)) == 37
    assert len(names) == len(set(names)) == 1151
    assert all(t.count("\n") > 2 and len(one_line(t)) > 80 for t in texts)
    assert 4.30e6 < sum(map(len, texts)) < 4.31e6


def test_real_windows(real):
    """As many windows as the file itself says, and FedDyn's 100 clients."""
    path = data_directory() / "shakespeare/shakespeare_roles_moby.json.gz"
    counted = np.array(json.loads(gzip.decompress(path.read_bytes()))["num_samples"])
    assert [len(one_line(t)) - 80 for t in roles().texts] == list(counted)
    feddyn = shakespeare_leaf(clients=100, crop=(2000, 400))
    assert feddyn.x.shape == (200_000, 80)
    assert feddyn.test_x.shape == (40_000, 80)
    assert (counted[np.unique(feddyn.keys)] > 2500).all()
    assert set(np.unique(feddyn.keys, return_counts=True)[1]) == {2000}


def test_real_snippets(real):
    d = shakespeare_tff(text="roles")
    assert len(np.unique(d.keys)) == 1151
    assert set(np.unique(d.test_keys)) <= set(np.unique(d.keys))
    letters = (d.y >= 1) & (d.y <= 86)
    assert 3.3e6 < letters.sum() < 3.6e6  # four fifths of the plays
    assert not (d.y == 87).any()  # TFF's alphabet has all of Shakespeare's characters
    assert not (d.y == 88).any()  # nothing is followed by a beginning
