"""What processes use of the machine, from Linux's /proc. Standard library only: every system measured can import it."""

import os
import signal
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def _statuses() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the name, which may hold anything: state, parent, group ..."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = path.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended
            continue
    return found


def family(root: int) -> dict[int, list[str]]:
    """This process and all below it that still run, with their status."""
    of_all = _statuses()
    members = {root} & of_all.keys()
    while more := {pid for pid, status in of_all.items() if int(status[1]) in members} - members:
        members |= more
    return {pid: of_all[pid] for pid in members}


def cpu_seconds(root: int) -> float:
    """CPU seconds of a family up to now; those of a child that has ended are its parent's."""
    return sum(int(ticks) for status in family(root).values() for ticks in status[11:15]) / TICKS


def busy_seconds() -> float:
    """CPU seconds that this machine did not idle, summed over its cores; with those that its host took away."""
    user, nice, system, _, _, irq, softirq, steal = Path("/proc/stat").read_text().split()[1:9]
    return sum(int(ticks) for ticks in (user, nice, system, irq, softirq, steal)) / TICKS


def peak_mb(root: int) -> float:
    """Sum over a family of each one's peak of resident memory."""
    total = 0
    for pid in family(root):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return round(total / 1024, 1)


def available_mb() -> float:
    """Memory that can be had without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable"))


def send(root: int, number: signal.Signals) -> None:
    """Send a signal to a whole family, also to children that come meanwhile; frozen or killed ones have none."""
    reached: set[int] = set()
    while more := family(root).keys() - reached:
        for pid in sorted(more):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        reached |= more


def processor() -> str:
    """Its name, with family and model, since hosts of virtual machines may shorten the name."""
    lines = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    of = {key.strip(): value.strip() for key, value in reversed(lines)}  # of the first core
    name = of.get("model name", "unknown processor")
    return f"{name} (family {of['cpu family']}, model {of['model']})" if "cpu family" in of else name
