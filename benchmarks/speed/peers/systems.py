"""The systems to compare with: each a script in the environment of its peer, with its options."""

import dataclasses
import os

CORES = os.cpu_count() or 1


@dataclasses.dataclass(frozen=True)
class System:
    name: str
    peer: str  # whose environment it needs
    script: str
    options: tuple[str, ...] = ()

    def command(self, python: str, workload: str) -> list[str]:
        return [python, "-m", f"benchmarks.speed.peers.{self.script}", workload, *self.options]


def _with_workers(name: str, peer: str, script: str) -> list[System]:
    """One worker that has all cores, and one worker for each core."""
    counts = sorted({1, CORES})
    return [System(f"{name}, {_count(n, 'worker')}", peer, script, (f"--workers={n}",)) for n in counts]


def _count(n: int, things: str) -> str:
    return f"1 {things}" if n == 1 else f"{n} {things}s"


SYSTEMS = (
    System("PyTorch loop", "torch", "torch_loop"),
    *_with_workers("Flower", "flower", "flower"),
    *_with_workers("pfl", "pfl", "pfl_research"),
    System("FedJAX", "fedjax", "fedjax_peer"),
    System("BlazeFL, 1 thread", "blazefl", "blazefl_peer"),
    System(f"BlazeFL, {CORES} threads", "blazefl", "blazefl_peer", (f"--workers={CORES}",)),
    System(f"BlazeFL, {CORES} processes", "blazefl", "blazefl_peer", (f"--workers={CORES}", "--mode=processes")),
)
