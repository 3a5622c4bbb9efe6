"""--processes: one run on the devices of several processes, started here or by a system such as SLURM.

The process that the user started is the first: it prints and writes. It starts the others with its own arguments, and
watches them; they watch it. If one ends before its time, all end.
"""

import argparse
import contextlib
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from fedloom.cli.output import how_to_resume, resumes_with, works_in
from fedloom.engines.processes import ProcessEnded, is_first, of_first

MOST_DEVICES = 8  # that a CPU is divided into: each has a copy of the data
PLACE = "FEDLOOM_PROCESS"  # set for processes that are started here: which of how many, and the coordinator's address
PATIENCE = 10.0  # seconds that the others wait, when something is wrong, for the first process to say it for all

AUTO = "auto"
HELP = (
    "how many processes on this machine run it together, each with its share of the cores; auto: this one is among "
    "several that SLURM, Kubernetes or another system known to JAX has started (default: 1)"
)


class Place(NamedTuple):
    """Which process this is; of a plain command, the only one."""

    i: int = 0
    n: int = 1  # of how many; 0: not known yet
    address: str = ""  # of the coordinator, if the processes are started here


class _State:
    """Of this process, for its threads and for messages at the end."""

    def __init__(self) -> None:
        self.place = Place()
        self.over = False  # nothing is to be said about the end of other processes any more
        self.speaking = threading.Lock()


_state = _State()


def add_processes(command: argparse.ArgumentParser) -> None:
    """Add the option."""
    command.add_argument("--processes", metavar="N", help=HELP)


def share_cores(processes: int = 1) -> None:
    """Make every core a device of JAX, or of one of several processes, unless JAX has been told what to do."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "JAX_NUM_CPU_DEVICES" not in os.environ and "host_platform_device_count" not in flags:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jax.config.update("jax_num_cpu_devices", max(1, min(cores // processes, MOST_DEVICES)))


def say(words: str, error: BaseException) -> None:
    """Print why the command ends.

    The first process says it for all, and ends the others; if it does not, another is the only one that knows. Where
    the first has ended itself, and was not started here, the second says how to go on.
    """
    i, n, address = _state.place
    interrupted, left = isinstance(error, KeyboardInterrupt), isinstance(error, ProcessEnded)
    if i > 0 and (interrupted or (left and (i > 1 or address))):
        return
    whose = "" if i == 0 or left else f"process {i} of {n}: "
    line = "\n" if interrupted else ""  # below the ^C
    print(f"{line}fedloom: {whose}{words}", file=sys.stderr, flush=True)


def has_others() -> bool:
    """Is this process one of several?"""
    return _state.place.n != 1


def check_engine(engine: str | None) -> None:
    """Raise a ValueError for an engine that several processes cannot run together."""
    if engine == "events":
        raise ValueError(
            "--processes: the asynchronous engine runs in a single process; leave --processes or --engine events out."
        )
    if engine == "ray":
        raise ValueError("--processes: on a Ray cluster --shards divides the clients; leave --processes out.")


def number(text: str) -> int:
    """How many processes; 0 if another system knows."""
    if text == AUTO:
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--processes must be a positive integer or auto, got {text!r}.")
    return int(text)


@contextlib.contextmanager
def joined(given: argparse.Namespace) -> Iterator[bool]:
    """Run the body in all processes that --processes asks for, together. True in the first, which prints and writes."""
    text = given.processes
    wanted = 1 if text is None else number(text)
    if wanted == 1:
        yield True
        return
    resumes_with(f"--processes {shlex.quote(text)}")
    _keep_output()
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from us
    others: list[subprocess.Popen[bytes]] = []
    try:
        if wanted == 0:
            _join_detected()
        elif PLACE in os.environ:
            _join_first()
        else:
            _start_others(wanted, given.arguments, others)
        if not is_first():
            given.quiet, given.json, given.sink = True, False, []
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the end)
            warnings.simplefilter("ignore")  # the first process has the same
        yield is_first()
        jax.distributed.shutdown()  # waits for the others
        for other in others:
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(PATIENCE)
    except Exception:
        if _state.place.i > 0:
            time.sleep(PATIENCE)
        raise
    finally:
        with _state.speaking:
            _state.over = True
        for other in others:
            other.kill()
            other.wait()


def path_of_first(path: pathlib.Path) -> pathlib.Path:
    """The directory that the first process writes to: another may count those in runs/ when it is there already."""
    name = os.fsencode(path)
    (length,) = of_first(len(name))
    path = pathlib.Path(os.fsdecode(bytes(of_first(*name[:length].ljust(length)))))
    works_in(path)
    return path


def _join_detected() -> None:
    _state.place = Place(n=0)
    with warnings.catch_warnings(record=True) as said:  # such as that a package for Kubernetes is missing
        warnings.simplefilter("always")
        try:
            jax.distributed.initialize()
        except (ValueError, RuntimeError) as error:
            if "defined" not in str(error):  # it detects a system, but something is wrong with it
                raise ValueError(f"--processes auto: {error}") from error
            found = "; ".join(" ".join(str(w.message).split()) for w in said) or str(error).rstrip(".")
            raise ValueError(
                "--processes auto: JAX detects no system, such as SLURM or Kubernetes, that has started this process "
                f"as one of several ({found}). Use --processes N to start N processes on this machine."
            ) from error
    _state.place = Place(jax.process_index(), jax.process_count())


def _start_others(count: int, arguments: Sequence[str], others: list[subprocess.Popen[bytes]]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    _state.place = Place(0, count, address)
    path = os.pathsep.join(filter(None, sys.path))  # the same modules, wherever this command was found
    for i in range(1, count):
        other = subprocess.Popen(
            [sys.executable, "-P", "-m", "fedloom.cli", *arguments],
            env={**os.environ, PLACE: f"{i} {count} {address}", "PYTHONPATH": path},
            stdin=subprocess.PIPE,  # it closes when this process ends, however it ends
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal is for the first process, which ends the others
        )
        others.append(other)
        threading.Thread(target=_watch, args=(i, other), daemon=True).start()
    _initialize()


def _join_first() -> None:
    index, count, address = os.environ.pop(PLACE).split()
    _state.place = Place(int(index), int(count), address)
    threading.Thread(target=_watch_first, daemon=True).start()
    _initialize()


def _initialize() -> None:
    index, count, address = _state.place
    share_cores(count)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        address, count, index, coordinator_bind_address=address, cluster_detection_method="deactivate"
    )


def _watch(i: int, other: subprocess.Popen[bytes]) -> None:
    code = other.wait()
    if code != 0:
        how = f"was ended by signal {-code}" if code < 0 else f"has failed with code {code}"
        _give_up(f"process {i} of {_state.place.n} {how}, and a run goes on with all of them only.")


def _watch_first() -> None:
    os.read(0, 1)  # its end: nobody writes there (and no lock of Python's, which would be missed at the end)
    first_has_ended = "the first process has ended, and a run goes on with all of them only."
    _give_up(first_has_ended if _state.place.i == 1 else "")


def _give_up(words: str) -> None:
    """End this process at once, since its computation waits for one that is no more. Others see that and end too."""
    with _state.speaking:
        if _state.over:
            return
        if words:
            print(f"\nfedloom: {words}{how_to_resume()}", file=sys.stderr, flush=True)
        os._exit(1)


def _keep_output() -> None:
    """Keep standard output for what is printed here: Gloo writes there, too, whom it is connected to."""
    sys.stdout.flush()
    try:
        kept = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    except (OSError, ValueError):  # it is closed, or not a file: then it cannot be mixed up either
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stdout = kept
