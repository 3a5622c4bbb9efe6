"""The benchmark's protocol of turns, with toy systems: no peer is needed."""

import os
import pathlib
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from benchmarks.speed import load
from benchmarks.speed.players import Player, PlayerFailed

pytestmark = pytest.mark.skipif(not pathlib.Path("/proc/stat").exists(), reason="needs Linux's /proc")

TOY = """
import os, subprocess, sys, threading, time
sys.path.insert(0, os.getcwd())
from benchmarks.speed.turns import Turns, serve

def spin():
    while time.time() < until:
        sum(range(1000))

until = time.time() + 20  # should anything go wrong
threading.Thread(target=spin, daemon=True).start()
child = subprocess.Popen([sys.executable, "-c", f"import time\\nwhile time.time() < {until}: pass"])
print("a greeting", flush=True)

def play(rounds):
    time.sleep(0.2)
    if rounds == 13:
        raise RuntimeError("thirteen rounds")
    return list(range(rounds))

turns = Turns(())
turns.facts = {"child": child.pid}
print("{another one", flush=True)
serve(turns, play)
"""


@pytest.fixture
def toy() -> Iterator[Player]:
    player = Player("toy", [sys.executable, "-c", TOY])
    yield player
    player.end()


def test_a_player_runs_blocks_in_turn_and_uses_no_cpu_while_it_waits(toy: Player) -> None:
    child = toy.ready()["child"]
    pid = toy.process.pid
    assert {pid, child} <= load.family(pid).keys()

    def used_in(seconds: float) -> float:
        before = load.cpu_seconds(pid)
        time.sleep(seconds)
        return load.cpu_seconds(pid) - before

    assert used_in(0.3) == 0  # although a thread and a child of it would not rest
    first, second = toy.play(3), toy.play(2)
    assert (first.steps, second.steps) == ([0, 1, 2], [0, 1])
    assert 0.2 <= first.seconds < 5
    assert first.cpu > 0.05  # of the thread and of the child
    assert used_in(0.3) == 0
    with pytest.raises(PlayerFailed, match="thirteen rounds"):
        toy.play(13)


def test_an_ended_player_leaves_no_process_behind(toy: Player) -> None:
    child = toy.ready()["child"]
    toy.end()
    until = time.monotonic() + 10
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(child)


def test_a_player_whose_measuring_process_has_gone_ends_with_all_below_it(toy: Player) -> None:
    child = toy.ready()["child"]
    assert toy.process.stdin is not None
    toy.process.stdin.close()
    load.send(toy.process.pid, signal.SIGCONT)
    toy.process.wait(10)
    until = time.monotonic() + 10
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(child)
    toy.process.stdin = None


def _runs(pid: int) -> bool:
    status = load._statuses().get(pid)
    return status is not None and status[0] != "Z"


def test_the_load_of_others_is_that_of_all_outside_the_family() -> None:
    """A program beside the player keeps a core busy; the player itself sleeps."""
    sleeper = "import sys, time; sys.path.insert(0, '.'); from benchmarks.speed.turns import *; "
    sleeper += "serve(Turns(()), lambda rounds: [time.sleep(0.05 * rounds)] and [0] * rounds)"
    player, beside = Player("sleeper", [sys.executable, "-c", sleeper]), None
    try:
        player.ready()
        spin = "import time\nprint('{}', flush=True)\nend = time.time() + 20\nwhile time.time() < end: pass"
        beside = Player("beside", [sys.executable, "-c", spin])
        assert beside._line() == {}
        found = player.play(12)
        assert found.others > 0.5 or os.cpu_count() == 1
        assert found.cpu < 0.3
    finally:
        player.end()
        if beside is not None:
            beside.end()
