"""Milliseconds a round of the six workloads, and what they reach of the machine: `make bench`, `make bench-peers`.

python -m benchmarks.speed.bench [WORKLOAD ...] [--peers] [--seconds S] [--out FILE]

FedLoom and the peers are processes that live as long as a workload lasts and take turns, a block of rounds at a time;
the others are frozen meanwhile. Ratios are of blocks of the same alternation. What else uses the machine is measured,
and a disturbed block repeated; still, run it with nothing else running. All have one setting of the C library's
allocator.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import platform
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.speed import load
from benchmarks.speed.alternate import LEAST, QUIET, Turn, alternate, disturbed
from benchmarks.speed.peers import environments
from benchmarks.speed.peers.systems import SYSTEMS
from benchmarks.speed.players import Block, Player, PlayerFailed
from benchmarks.speed.ratios import Ratio, best_of, summary
from benchmarks.speed.workloads import WORKLOADS, Workload

# Memory that is given back to the system between two steps has to be fetched page by page again.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
FEDLOOM = "FedLoom"
ALONE, WITH_PEERS = 45.0, 300.0  # seconds for a workload, start included
ROOM = 1.25  # of the memory of the largest player so far, for another one
BLOCK = 1.0  # seconds that a block should take, or one round if that takes longer


class Measurement:
    """One workload: its players, from their start to their end."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.players: dict[str, Player] = {}
        self.systems: dict[str, dict[str, Any]] = {}  # what they say about themselves, or why they failed
        self.rounds: dict[str, int] = {}  # of a block
        self.done: dict[str, int] = {}  # rounds
        self.turns: list[Turn] = []

    def start(self, name: str, command: list[str]) -> None:
        """Start a system, with two blocks that do not count; the second one tells how many rounds others should have.

        One after another: a system that starts uses all cores, and more memory than later.
        """
        player = self.players[name] = Player(name, command)
        self.done[name] = 0
        unit = math.lcm(self.workload.unit, self.workload.chunk if name == FEDLOOM else 1)
        with self._failing(name):
            said = player.ready()
            first, second = (self._checked(name, player.play(unit)) for _ in range(2))
            self.systems[name] = {**said, "first": first.seconds}
            self.rounds[name] = max(1, round(BLOCK / second.seconds)) * unit
            _progress(f"{name}: {self.rounds[name]} rounds a block, {second.seconds / unit:.4f} s each at first")

    def has_room(self) -> bool:
        """Whether another player as large as the largest fits into memory; one besides FedLoom must."""
        largest = max(load.peak_mb(player.process.pid) for player in self.players.values())
        return len(self.players) < 2 or load.available_mb() > ROOM * largest

    def alternate(self, until: float) -> None:
        first = 1 + self.turns[-1].alternation if self.turns else 0
        self.turns += alternate(dict(self.players), self.rounds, until, self._checked, self._failed, first)
        for name, player in self.players.items():
            self.systems[name]["peak_mb"] = load.peak_mb(player.process.pid)

    def end(self, but: str | None = None) -> None:
        for name in self.players.keys() - {but}:
            self.players.pop(name).end()

    @contextlib.contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """A player that fails here takes no further part."""
        try:
            yield
        except PlayerFailed as failure:
            self._failed(name, failure)

    def _failed(self, name: str, failure: PlayerFailed) -> None:
        self.systems[name] = {"failed": str(failure)}
        self.players.pop(name).end()
        if name == FEDLOOM:
            raise RuntimeError(str(failure))

    def _checked(self, name: str, block: Block) -> Block:
        """All systems let us choose the cohorts, so their own counts of steps must be those of the cohorts."""
        first = self.done[name]
        self.done[name] += block.rounds
        expected = [self.workload.steps_of(t) for t in range(first, first + block.rounds)]
        if block.steps != expected:
            raise ValueError(
                f"{name} took {block.steps} SGD steps in rounds of {self.workload.name} that ask for {expected}; "
                "its times cannot be compared"
            )
        return block


def _progress(words: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {words}", file=sys.stderr, flush=True)


def measure(workload: Workload, seconds: float, pythons: dict[str, pathlib.Path | RuntimeError]) -> dict[str, Any]:
    """All that is found out about a workload. `pythons`: of the environments of peers, or why there is none."""
    m, end = Measurement(workload), time.monotonic() + seconds
    waiting = [system for system in SYSTEMS if pythons]
    try:
        # FedLoom first, alone: it measures its plan. Then all peers, or one group after another if memory is short.
        m.start(FEDLOOM, [sys.executable, "-m", "benchmarks.speed.fedloom_run", workload.name])
        while True:
            while waiting and m.has_room():
                system = waiting.pop(0)
                python = pythons[system.peer]
                if isinstance(python, RuntimeError):
                    m.systems[system.name] = {"failed": str(python)}
                else:
                    m.start(system.name, system.command(str(python), workload.name))
            here, now = len(m.players), time.monotonic()
            m.alternate(now + (end - now) * here / (here + len(waiting)))
            if not waiting:
                break
            m.end(but=FEDLOOM)
    finally:
        m.end()
    return {
        "systems": {
            name: said if "failed" in said else {**said, **summary(m.turns, name, FEDLOOM)}
            for name, said in m.systems.items()
        },
        "alternations": 1 + max(turn.alternation for turn in m.turns),
        "repeated": sum(not turn.counts for turn in m.turns),
        "disturbed": len(disturbed(m.turns)),
        "turns": [
            {"alternation": turn.alternation, "system": turn.name, "counts": turn.counts}
            | {key: value for key, value in dataclasses.asdict(turn.block).items() if key != "steps"}
            for turn in m.turns
        ],
    }


def _environments(directory: pathlib.Path) -> dict[str, pathlib.Path | RuntimeError]:
    """Each peer's Python, or why it has none."""
    found: dict[str, pathlib.Path | RuntimeError] = {}
    for peer in environments.REQUIREMENTS:
        try:
            found[peer] = environments.make(peer, directory)
        except RuntimeError as failure:
            found[peer] = failure
    return found


HEADS = ("", "median ms", "min ms", "CPU ms", "MB", "/ FedLoom [95%]", "by minima")


def lines(w: Workload, found: dict[str, Any]) -> list[str]:
    systems = found["systems"]
    ours = systems[FEDLOOM]
    reached = ours["operations"] / ours["median"] / ours["matmul rate"]
    text = [
        f"{w.name}: {ours['plan']}; {w.cohort / ours['median']:.0f} clients a second, {reached:.0%} of a matrix "
        f"product's rate; start {ours['start-up']:.1f} s, plan {ours['measuring']:.1f} s, first {ours['first']:.1f} s"
    ]
    for name, r in systems.items():
        if "failed" in r:
            text.append(f"  {name:21} failed: {r['failed']}")
            continue
        ratio = f"{Ratio(**r['ratio'])!s:>22} {r['ratio of minima']:9.2f}" if "ratio" in r else ""
        times = " ".join(f"{r[key] * 1e3:9.2f}" for key in ("median", "min", "cpu"))
        text.append(f"  {name:21} {times} {r['peak_mb']:7.0f} {ratio}")
    best = best_of(systems)
    if best is not None:
        text.append(f"  the best peer / FedLoom = {Ratio(**systems[best]['ratio'])} ({best})")
    repeated = f", {found['repeated']} blocks repeated" if found["repeated"] else ""
    text.append(f"  {found['alternations']} alternations{repeated}")
    if found["disturbed"]:
        text.append(
            f"  {found['disturbed']} blocks count although others used over {QUIET} cores: repeats reached their limit"
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: all of {', '.join(WORKLOADS)}")
    parser.add_argument("--peers", action="store_true", help="also PyTorch loop, Flower, pfl, FedJAX and BlazeFL")
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"for a workload, but {LEAST} alternations are run; default: {ALONE:.0f}, with peers {WITH_PEERS:.0f}",
    )
    parser.add_argument("--environments", type=pathlib.Path, default=environments.DEFAULT)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench.json"))
    given = parser.parse_args()
    for name in given.workloads:
        if name not in WORKLOADS:
            parser.error(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    os.environ.update(ALLOCATOR)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # and end the players
    results: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "processor": load.processor(), "cores": os.cpu_count()},
        "allocator": ALLOCATOR,
        "workloads": {},
    }
    print(f"{load.processor()}, {os.cpu_count()} cores")
    print("  {:21} {:>9} {:>9} {:>9} {:>7} {:>22} {:>9}".format(*HEADS), flush=True)
    pythons = _environments(given.environments) if given.peers else {}
    seconds = given.seconds or (WITH_PEERS if given.peers else ALONE)
    for name in given.workloads or WORKLOADS:
        found = measure(WORKLOADS[name], seconds, pythons)
        results["workloads"][name] = found
        print("\n".join(lines(WORKLOADS[name], found)), flush=True)
        given.out.write_text(json.dumps(results, indent=1))
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
