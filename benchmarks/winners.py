"""How often does a comparison name a winner? With real runs, of methods that are equal and of one that is better.

    python -m benchmarks.winners [--runs 600] [--out benchmarks/winners.md]

A pool of runs of FedAvg on task "digits" with different seeds. A study takes some of them at random as one method, and
others as another: the two are equal in truth. Where one method is given the models of a later round, it is better, by
what the whole pool says. Studies share runs of the pool, so they are not independent of each other.
"""

import argparse
import dataclasses
import os
import pathlib
import platform
from typing import Any

import numpy as np

import fedloom as fl
from fedloom import evidence
from fedloom.evidence.statistics import LEVEL, Difference
from fedloom.experiments.result import Result
from fedloom.experiments.study import Study

STUDIES = 200
ROUNDS = (20, 25, 30, 50)  # at which the models of a run are taken
CHANGES: dict[str, Any] = {
    "rounds": max(ROUNDS),
    "evaluate_every": 5,
    "evaluate": ("test accuracy",),
    "algorithm.lr": 1.0,
    "solver.lr": 0.1,
    "solver.epochs": 2,
}
HEAD = """# Winners

How often a comparison names a winner, with real runs: `python -m benchmarks.winners`. See docs/evidence.md.

"""


def pool(runs: int) -> list[Result]:
    """Runs of one method; the tuning of the task does not matter here."""
    made = []
    for seed in range(runs):
        e = fl.experiment("digits", "fedavg", seed=seed, **CHANGES)
        made.append(fl.run(e))
        if (seed + 1) % 50 == 0:
            print(f"{seed + 1} of {runs} runs", flush=True)
    return made


def taken(result: Result, name: str, seed: int, round: int) -> Result:
    """A run of the pool as the run of a method with this seed, up to the given round, which counts as the last."""
    rows = [row for row in result.rows if row["round"] in (0, round)]
    rows[-1] = {**rows[-1], "bytes down": 1, "bytes up": 1}  # all methods spend the same
    e = dataclasses.replace(result.experiment, seed=seed, rounds=round)
    return dataclasses.replace(result, name=name, experiment=e, rows=rows)


def study(runs: list[Result], methods: int, seeds: int, rounds: tuple[int, int], rng: np.random.Generator) -> Study:
    """The first method has the models of the first round, the others of the second."""
    chosen = rng.choice(len(runs), (methods, seeds), replace=False)
    results = [
        taken(runs[i], f"method {m}", s, rounds[0] if m == 0 else rounds[1])
        for m, row in enumerate(chosen)
        for s, i in enumerate(row)
    ]
    return Study("", results, ("test accuracy", 0.9))


def equal(runs: list[Result], rng: np.random.Generator) -> list[str]:
    lines = [
        "## Equal methods",
        "",
        "| methods | seeds | winners | studies that call a method worse |",
        "|---|---|---|---|",
    ]
    for methods, seeds in ((2, 3), (2, 5), (2, 10), (5, 5), (11, 3), (11, 5)):
        named = worse = 0
        for _ in range(STUDIES):
            found = evidence.verdict(study(runs, methods, seeds, (max(ROUNDS),) * 2, rng), "digits")
            named += found.separated
            worse += any(not a.tied for a in found.against.values())
        lines.append(f"| {methods} | {seeds} | {named} of {STUDIES} | {worse} of {STUDIES} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def better(runs: list[Result], rng: np.random.Generator) -> list[str]:
    lines = [
        "## One method is better", "",
        "| rounds | better by | seeds | found | promised |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for first, second in ((50, 30), (30, 25), (25, 20), (30, 20)):
        blocks = [np.array([_blocks(r, t) for r in runs]) for t in (first, second)]
        half = len(runs) // 2  # other runs for the other method, as in the studies
        truth = evidence.crossed(blocks[0][:half], blocks[1][half : 2 * half])
        for seeds in (3, 5, 10):
            promised = Difference(truth.mean, seeds, truth.spread).power(seeds, LEVEL)
            found = 0
            for _ in range(STUDIES):
                judged = evidence.verdict(study(runs, 2, seeds, (first, second), rng), "digits")
                found += judged.separated and judged.best == "method 0"
            lines.append(f"| {first}, {second} | {truth.mean:.4f} | {seeds} | {found / STUDIES:.0%} | {promised:.0%} |")
            print(lines[-1], flush=True)
    words = (
        "Found: studies that name the better method, of 200. Promised: the power for the difference and the spread of "
        "the whole pool. The test set is the same in all studies, so where it decides (many seeds), its own luck is in "
        "all of them."
    )
    return [*lines, "", words, ""]


def _blocks(result: Result, round: int) -> list[float]:
    row = next(row for row in result.rows if row["round"] == round)
    found: list[float] = row["test blocks"]["test accuracy"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=600)
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    runs, rng = pool(given.runs), np.random.default_rng(0)
    lines = [
        f"{given.runs} runs, level {LEVEL}, fedloom {fl.__version__}, {platform.machine()}, {os.cpu_count()} cores.",
        "",
    ]
    lines += equal(runs, rng) + better(runs, rng)
    if given.out is not None:
        given.out.write_text(HEAD + "\n".join(lines))


if __name__ == "__main__":
    main()
