"""The benchmark's own arithmetic: ratios, alternations, and the figures of machines. No peer is needed."""

import itertools
import json
import os
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.speed import alternate, machines
from benchmarks.speed.bench import FEDLOOM, Measurement, lines
from benchmarks.speed.peers import environments
from benchmarks.speed.players import Block, PlayerFailed
from benchmarks.speed.ratios import best_of, paired, summary
from benchmarks.speed.workloads import WORKLOADS

# Ratios


@pytest.mark.parametrize(("pairs", "noise"), [(5, "normal"), (10, "exponential")])
def test_the_interval_covers_a_known_ratio_and_what_the_machine_does_cancels(pairs: int, noise: str) -> None:
    rng = np.random.default_rng(0)
    draw = {"normal": rng.normal, "exponential": rng.exponential}[noise]
    covered, widths = 0, []
    for seed in range(150):
        machine = np.exp(rng.normal(size=pairs))  # its speed varies threefold, but is the same for a pair
        ours, theirs = (machine * np.exp(0.02 * draw(size=pairs)) for _ in range(2))
        found = paired(1.5 * theirs, ours, seed)
        covered += found.low <= 1.5 <= found.high
        widths.append(found.high / found.low - 1)
    assert 0.9 <= covered / 150 <= 0.99
    assert np.median(widths) < 0.15


def test_the_estimate_is_the_geometric_mean_of_paired_ratios() -> None:
    found = paired([2.0, 8.0, 8.0, 8.0], [1.0, 1.0, 2.0, 4.0], seed=1)
    assert found.estimate == pytest.approx((2 * 8 * 4 * 2) ** 0.25)  # not the median, 3, nor the mean, 4
    assert found.low < found.estimate < found.high
    assert found == paired([2.0, 8.0, 8.0, 8.0], [1.0, 1.0, 2.0, 4.0], seed=1)
    same = paired([3.0, 6.0, 9.0], [1.0, 2.0, 3.0])  # always thrice: nothing to doubt
    assert (same.low, same.estimate, same.high) == pytest.approx((3, 3, 3))


# Alternations


class Toy:
    """A system whose n-th block is told beforehand: seconds of a round, and cores that others use."""

    def __init__(self, log: list[str], name: str, blocks: Iterator[tuple[float, float]]) -> None:
        self.log, self.name, self.blocks = log, name, blocks

    def play(self, rounds: int) -> Block:
        self.log.append(self.name)
        seconds, others = next(self.blocks)
        return Block(rounds, seconds * rounds, 2 * seconds * rounds, others, [0] * rounds)


def quiet(seconds: float) -> Iterator[tuple[float, float]]:
    return itertools.repeat((seconds, 0.0))


def test_the_order_rotates_and_the_time_is_used() -> None:
    log: list[str] = []
    toys = {name: Toy(log, name, quiet(1.0)) for name in "abc"}
    turns = alternate.alternate(toys, dict.fromkeys("abc", 2), until=31.0, clock=lambda: 2.0 * len(log))
    played = ["".join(log[i : i + 3]) for i in range(0, len(log), 3)]
    assert played == ["abc", "bca", "cab", "abc", "bca"]  # 6 s each, and a sixth one would end too late
    assert [turn.alternation for turn in turns] == [i for i in range(5) for _ in "abc"]
    log.clear()
    alternate.alternate(toys, dict.fromkeys("abc", 2), until=0.0, clock=lambda: 2.0 * len(log))
    assert len(log) == 3 * alternate.LEAST
    later = alternate.alternate(toys, dict.fromkeys("abc", 2), until=0.0, first=7)
    assert [turn.alternation for turn in later] == [i for i in range(7, 12) for _ in "abc"]


def test_a_disturbed_block_is_repeated_and_does_not_count() -> None:
    log: list[str] = []
    loaded = iter([(1.0, 0.0), (9.0, 0.5), (1.0, 0.09), *[(1.0, 0.0)] * 9])
    toys = {"ours": Toy(log, "ours", loaded), "theirs": Toy(log, "theirs", quiet(2.0))}
    turns = alternate.alternate(toys, {"ours": 10, "theirs": 1}, until=0.0)
    assert log == ["ours", "theirs", "theirs", "ours", "ours", "ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert [turn.counts for turn in turns].count(False) == 1
    assert not alternate.disturbed(turns)
    found = summary(turns, "theirs", "ours")
    assert found["ratio"] == pytest.approx({"estimate": 2, "low": 2, "high": 2})
    assert summary(turns, "ours", "ours")["median"] == 1.0


def test_a_summary_has_medians_minima_and_cpu_time_of_a_round() -> None:
    log: list[str] = []
    toys = {
        "ours": Toy(log, "ours", iter([(s, 0.0) for s in (4.0, 3.0, 2.0, 5.0, 9.0)])),
        "theirs": Toy(log, "theirs", iter([(s, 0.0) for s in (8.0, 6.0, 4.0, 10.0, 18.0)])),
    }
    turns = alternate.alternate(toys, {"ours": 7, "theirs": 3}, until=0.0)
    found = summary(turns, "theirs", "ours")
    assert (found["median"], found["min"], found["cpu"], found["ratio of minima"]) == (8.0, 4.0, 16.0, 2.0)
    assert found["ratio"]["estimate"] == pytest.approx(2.0)


def test_repeats_have_a_limit_which_is_said() -> None:
    log: list[str] = []
    toys = {"ours": Toy(log, "ours", itertools.repeat((1.0, 0.5)))}
    turns = alternate.alternate(toys, {"ours": 1}, until=0.0)
    of_each = [sum(t.alternation == i for t in turns) for i in range(alternate.LEAST)]
    assert of_each == [1 + alternate.REPEATS] * alternate.LEAST
    assert len(alternate.disturbed(turns)) == alternate.LEAST
    many = alternate.alternate(toys, {"ours": 1}, until=len(log) + 200.0, clock=lambda: float(len(log)))
    assert sum(not turn.counts for turn in many) == alternate.ALL_REPEATS


def test_a_player_that_fails_takes_no_further_part() -> None:
    log: list[str] = []

    def twice() -> Iterator[tuple[float, float]]:
        yield from [(1.0, 0.0)] * 2
        raise PlayerFailed("no more")

    toys = {"a": Toy(log, "a", quiet(1.0)), "b": Toy(log, "b", twice()), "c": Toy(log, "c", quiet(3.0))}
    failures: list[tuple[str, str]] = []
    turns = alternate.alternate(
        toys, dict.fromkeys("abc", 1), 0.0, failed=lambda name, why: failures.append((name, str(why)))
    )
    assert failures == [("b", "no more")]
    assert [sum(t.name == name for t in turns) for name in "abc"] == [5, 2, 5]
    assert summary(turns, "c", "a")["ratio"]["estimate"] == pytest.approx(3.0)


def test_the_best_peer_is_that_of_the_smallest_ratio() -> None:
    systems = {
        FEDLOOM: {"median": 1.0},
        "one": {"median": 1.0, "ratio": {"estimate": 2.0, "low": 1.0, "high": 3.0}},
        "two": {"median": 2.0, "ratio": {"estimate": 1.5, "low": 1.4, "high": 1.6}},
        "three": {"failed": "no"},
    }
    assert best_of(systems) == "two"
    assert best_of({FEDLOOM: {"median": 1.0}}) is None


def test_other_numbers_of_steps_are_refused() -> None:
    w = WORKLOADS["lr-synthetic"]
    m = Measurement(w)
    m.done["peer"] = 3
    right = [w.steps_of(t) for t in range(3, 5)]
    assert right == [sum(w.steps(k) for k in w.cohorts(w.period)[t % w.period]) for t in range(3, 5)]
    m._checked("peer", Block(2, 1.0, 1.0, 0.0, right))
    assert m.done["peer"] == 5
    with pytest.raises(ValueError, match="SGD steps"):
        m._checked("peer", Block(2, 1.0, 1.0, 0.0, right))


# Environments, workloads and figures


def test_a_newer_python_is_found_on_the_path_or_among_those_of_pyenv(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(path: pathlib.Path, code: int) -> pathlib.Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
        return path

    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/shims", prepend=os.pathsep)
    assert environments._interpreter((3, 0)) == sys.executable
    assert environments._interpreter((3, 90)) is None
    program(tmp_path / "shims/python3.91", 127)  # of a version that is not active
    own = program(tmp_path / "versions/3.91.2/bin/python3.91", 0)
    program(tmp_path / "versions/3.92.0/bin/python3.92", 0)
    assert environments._interpreter((3, 90)) == str(own)
    monkeypatch.setitem(environments.LEAST_PYTHON, "blazefl", (3, 95))
    with pytest.raises(RuntimeError, match=r"blazefl needs Python 3\.95 or newer"):
        environments.make("blazefl", tmp_path / "environments")


@pytest.mark.parametrize("w", WORKLOADS.values(), ids=lambda w: w.name)
def test_blocks_of_any_length_have_the_same_work_in_a_round(w) -> None:
    def mean(first: int, units: int) -> float:
        return np.mean([w.steps_of(t) for t in range(first, first + units * w.unit)])

    assert mean(0, 1) == pytest.approx(mean(w.unit, 3))


def test_the_page_has_the_figures_of_all_machines() -> None:
    rows = json.loads(machines.ROWS.read_text())
    text = machines.PAGE.read_text()
    assert machines.page(text, rows) == text, "run python -m benchmarks.speed.machines"


def test_a_run_becomes_the_row_of_its_machine() -> None:
    ratio = {"estimate": 2.0, "low": 1.5, "high": 2.5}
    ours = {"versions": {"python": "3.11", "jax": "0.9"}, "plan": "1 lane", "operations": 1e9, "matmul rate": 4e9}
    times = {"median": 0.5, "min": 0.4, "cpu": 0.9, "peak_mb": 10.0, "start-up": 1.0, "measuring": 1.0, "first": 1.0}
    systems = {
        FEDLOOM: ours | times,
        "Peer, 2 workers": {"versions": {"peer": "3"}, **times, "ratio": ratio, "ratio of minima": 2.0},
        "Another": {"failed": "it ended;\nfor a reason"},
    }
    found = {"systems": systems, "alternations": 7, "repeated": 1, "disturbed": 2}
    machine = {"processor": "Chip (family 1, model 2)", "cores": 2, "system": "Linux"}
    results = {"date": "2026-01-02T03:04:05", "machine": machine, "workloads": {"lr-mnist": found}}
    new = machines.row(results)
    assert new["versions"] == {"jax": "0.9", "peer": "3"}
    rows = machines.with_row([{**new, "date": "2025-01-01"}, {**new, "method": machines.ONE_RUN}], new)
    assert [r["date"] for r in rows] == ["2026-01-02", "2026-01-02"]
    text = machines.tables([new])
    assert "Chip (family 1, model 2), 2 cores, paired" in text
    assert "| lr-mnist | 10 | **2.00 [1.50, 2.50]** Peer, 2 workers |" in text
    assert "| 1 lane | 50% | 500 (400; 900) | 2.00 [1.50, 2.50] | failed | 7, 2 blocks disturbed by others |" in text
    printed = "\n".join(lines(WORKLOADS["lr-mnist"], found))
    assert "the best peer / FedLoom = 2.00 [1.50, 2.50] (Peer, 2 workers)" in printed
    assert "2 blocks count although others used" in printed
