"""Studies whose truth is known: runs that were never run, with logs as runs have them."""

import dataclasses
import functools

import numpy as np

from fedloom.experiments import Result, Study, experiment

BLOCKS = 100
METRICS = {"test loss": False, "test accuracy": True}


@functools.cache
def _base(rounds):
    return experiment("digits", "fedavg", rounds=rounds)


def run(name, values, seed=0, *, blocks=None, bytes_each=100, gradients_each=10, digest="one", clients=10, exchanges=1,
        diverged=None, rounds=None):  # fmt: skip
    """A run whose test accuracy is values[i] in round i; blocks[i] are those of the test set, if given."""
    rows = []
    for t, value in enumerate(values):
        half = t * bytes_each // 2
        row = {"round": t, "test loss": 1 - value, "test accuracy": value, "exchanges": t * exchanges}
        row |= {"messages": 2 * t * exchanges * clients, "bytes down": half, "bytes up": half}
        row["gradients"] = t * gradients_each
        if blocks is not None:
            row["test blocks"] = {"test accuracy": list(blocks[t])}
        rows.append(row)
    if diverged is not None:
        rows.append({"round": diverged, "diverged": "The training loss is inf."})
    about = {
        "clients": 100, "parameters": 5, "model bytes": 10, "metrics": METRICS,
        "test": {"examples": 360, "digest": digest},
        "bounds": {"test accuracy": [0, 1], "test loss": [0, None]},
    }  # fmt: skip
    made = dataclasses.replace(_base(rounds or len(values) - 1), seed=seed)
    return Result(name, made, rows, about, 1.0)


def answers(rng, methods, seeds, skill=0.9, examples=360, better=0.0):
    """Right or wrong [methods, seeds, examples]: examples are hard or easy for all, and for each method others besides.

    Each run has luck of its own. The first method is right more often by `better`.
    """
    easy = rng.beta(skill * 3, (1 - skill) * 3, examples)
    of_run = rng.normal(0, 0.01, (methods, seeds, 1)) + rng.normal(0, 0.01, (1, seeds, 1))
    taste = rng.normal(0, 0.2, (methods, 1, examples))  # which more seeds do not average out
    gain = np.zeros((methods, 1, 1))
    gain[0] = better
    return rng.random((methods, seeds, examples)) < np.clip(easy + taste + of_run + gain, 0, 1)


def in_blocks(right):
    """The pseudo-values of blocks that a log has, for right or wrong [..., examples]."""
    examples = right.shape[-1]
    blocks = min(BLOCKS, examples)
    by_block, sizes = _by_block(examples, blocks)
    mean = right.mean(-1, keepdims=True)
    sums = np.add.reduceat(right[..., by_block], np.cumsum(sizes) - sizes, axis=-1, dtype=float)
    return mean + blocks * (sums - mean * sizes) / examples


@functools.cache
def _by_block(examples, blocks):
    """The examples in the order of the blocks that they are dealt to at random, and how many each block has."""
    place = np.random.default_rng(0).permutation(examples) % blocks
    return np.argsort(place), np.bincount(place)


def study(right, names=None):
    """A comparison whose runs end with these answers [methods, seeds, examples]."""
    results, before = [], in_blocks(np.zeros(right.shape[-1]))
    for m, of_method in enumerate(right):
        for s, own in enumerate(of_method):
            blocks = [before, in_blocks(own)]
            name = f"method-{m}" if names is None else names[m]
            results.append(run(name, [0.0, float(own.mean())], s, blocks=blocks))
    return Study("made up", results, ("test accuracy", 0.5))
