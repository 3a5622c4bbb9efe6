"""Compile the kernels at first use, keep them in the cache directory, and register them with JAX.

The library's name has a digest of all that it depends on, so that another source, compiler, jaxlib or processor has its
own. Nothing that goes wrong here stops a run: FedLoom then says why, once, and uses its layers in JAX.
"""

import contextlib
import contextvars
import ctypes
import functools
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import jax

from fedloom.places import cache_directory

SOURCE = pathlib.Path(__file__).with_name("conv.cc")
PREFIX = "fedloom-native-"
COMPILERS = ("c++", "g++", "clang++")
# -w: the headers of jaxlib give warnings
FLAGS = ("-std=c++17", "-O3", "-w", "-shared", "-fPIC")
PROCESSOR = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
PATIENCE = 300.0  # seconds for the compiler
TARGETS = {"forward": "ConvForward", "backward": "ConvBackward"}


def kernels() -> str | None:
    """The name under which the kernels are registered; None if there are none, or they are switched off."""
    return None if _off() else _registered()


def _off() -> bool:
    return _left_out.get() or os.environ.get("FEDLOOM_NATIVE") == "0" or jax.default_backend() != "cpu"


_left_out = contextvars.ContextVar("left out", default=False)


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """What is traced inside has no kernels: the compiler cannot count their operations."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


def used_in(f: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a function calls the kernels. It is traced, not computed."""
    return not _off() and PREFIX in str(jax.make_jaxpr(lambda *a: f(*a))(*arguments))  # JAX keeps traces of f itself


def version() -> str:
    """Of the kernels' source; results of equal versions are equal on equal machines."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:8]


@functools.cache
def _registered() -> str | None:
    try:
        path = _library()
        library = _loaded(path)
        for target, symbol in TARGETS.items():
            capsule = jax.ffi.pycapsule(getattr(library, symbol))
            jax.ffi.register_ffi_target(f"{path.stem}-{target}", capsule, platform="cpu")
        return path.stem
    except _NoKernels as error:
        why = str(error)
    except (OSError, AttributeError, RuntimeError, ValueError) as error:
        why = f"its kernels cannot be used ({' '.join(str(error).split())[:200]})"
    _say(f"{why}, so 3x3 convolutions are slower than they could be; FEDLOOM_NATIVE=0 stops this message.")
    return None


class _NoKernels(Exception):
    """Why there are no kernels: the beginning of a sentence."""


def _say(words: str) -> None:
    print(f"fedloom: {words}", file=sys.stderr, flush=True)


def _library() -> pathlib.Path:
    """The compiled kernels, from the cache or made now."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise _NoKernels("there is no C++ compiler (c++, g++ or clang++)")
    path = cache_directory() / "kernels" / f"{PREFIX}{_digest(compiler)}.so"
    if not path.exists():
        _say("compiling the kernels of 3x3 convolutions, once for this machine; it takes a few seconds.")
        _compile(compiler, path)
    return path


def _loaded(path: pathlib.Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        path.unlink(missing_ok=True)  # a damaged file: the next process makes it again
        raise


def _digest(compiler: str) -> str:
    """Of all that the library depends on."""
    asked = _output([compiler, "--version"])
    parts = (SOURCE.read_text(), asked, metadata.version("jaxlib"), _processor(), PROCESSOR, *FLAGS)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """What tells processors apart that cannot run each other's code."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    wanted = ("flags", "Features", "model name", "CPU part")
    found = {line for line in lines if line.startswith(wanted)}
    return "\n".join([platform.system(), platform.machine(), platform.processor(), *sorted(found)])


def _compile(compiler: str, path: pathlib.Path) -> None:
    """Make the library under another name first: processes may do this at once, or be killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        draft = pathlib.Path(folder) / path.name
        _output([compiler, *FLAGS, PROCESSOR, f"-I{jax.ffi.include_dir()}", str(SOURCE), "-o", str(draft)])
        os.replace(draft, path)


def _output(command: list[str]) -> str:
    """What the compiler prints."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise _NoKernels(f"{command[0]} did not end within {PATIENCE:.0f} seconds") from error
    if done.returncode:
        words = " ".join(done.stderr.split())[:200] or f"exit code {done.returncode}"
        raise _NoKernels(f"{command[0]} failed ({words})")
    return done.stdout
