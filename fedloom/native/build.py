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

FOLDER = pathlib.Path(__file__).parent
SOURCES = {"conv": "3x3 convolutions", "lstm": "LSTMs"}  # a library each, so that nobody waits for what is not used
SHARED = "common.h"
PREFIX = "fedloom-native-"
COMPILERS = ("c++", "g++", "clang++")
# -w: the headers of jaxlib give warnings
FLAGS = ("-std=c++17", "-O3", "-w", "-shared", "-fPIC")
PROCESSOR = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
PATIENCE = 300.0  # seconds for the compiler
TARGETS = ("forward", "backward")


def kernels(source: str) -> str | None:
    """The name under which these kernels are registered; None if there are none, or they are switched off."""
    return None if _off() else _registered(source)


def _off() -> bool:
    return _left_out.get() or os.environ.get("FEDLOOM_NATIVE") == "0" or jax.default_backend() != "cpu"


_left_out = contextvars.ContextVar("left out", default=False)


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """What is traced inside has no kernels."""
    if _off():
        yield
        return
    token = _left_out.set(True)
    try:
        with jax.default_matmul_precision("highest"):  # as ever on CPUs; JAX does not keep these traces for others
            yield
    finally:
        _left_out.reset(token)


def used_in(f: Callable[..., Any], *arguments: Any) -> list[str]:
    """Which kernels a function calls. It is traced, not computed."""
    if _off():
        return []
    text = str(jax.make_jaxpr(lambda *a: f(*a))(*arguments))  # a function of its own: JAX keeps traces of f itself
    return [source for source in SOURCES if f"{PREFIX}{source}" in text]


def version(source: str) -> str:
    """Of the kernels' source; results of equal versions are equal on equal machines."""
    return hashlib.sha256(_text(source).encode()).hexdigest()[:8]


def here() -> str:
    """Which kernels this machine may have: other ones, other times."""
    return "" if _off() or _compiler() is None else " ".join(map(version, SOURCES))


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def _text(source: str) -> str:
    return (FOLDER / f"{source}.cc").read_text() + (FOLDER / SHARED).read_text()


@functools.cache
def _registered(source: str) -> str | None:
    try:
        path = _library(source)
        library = _loaded(path)
        for target in TARGETS:
            capsule = jax.ffi.pycapsule(getattr(library, f"{source}_{target}"))
            jax.ffi.register_ffi_target(f"{path.stem}-{target}", capsule, platform="cpu")
        return path.stem
    except _NoKernels as error:
        why = str(error)
    except (OSError, AttributeError, RuntimeError, ValueError) as error:
        why = f"its kernels cannot be used ({' '.join(str(error).split())[:200]})"
    _say(f"{why}, so {SOURCES[source]} are slower than they could be; FEDLOOM_NATIVE=0 stops this message.")
    return None


class _NoKernels(Exception):
    """Why there are no kernels: the beginning of a sentence."""


def _say(words: str) -> None:
    print(f"fedloom: {words}", file=sys.stderr, flush=True)


def _library(source: str) -> pathlib.Path:
    """Compiled kernels, from the cache or made now."""
    compiler = _compiler()
    if compiler is None:
        raise _NoKernels("there is no C++ compiler (c++, g++ or clang++)")
    path = cache_directory() / "kernels" / f"{PREFIX}{source}-{_digest(source, compiler)}.so"
    if not path.exists():
        _say(f"compiling the kernels of {SOURCES[source]}, once for this machine; it takes a few seconds.")
        _compile(source, compiler, path)
    return path


def _loaded(path: pathlib.Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        path.unlink(missing_ok=True)  # a damaged file: the next process makes it again
        raise


def _digest(source: str, compiler: str) -> str:
    """Of all that the library depends on."""
    asked = _output([compiler, "--version"])
    parts = (_text(source), asked, metadata.version("jaxlib"), _processor(), PROCESSOR, *FLAGS)
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


def _compile(source: str, compiler: str, path: pathlib.Path) -> None:
    """Make the library under another name first: processes may do this at once, or be killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        draft = pathlib.Path(folder) / path.name
        code = str(FOLDER / f"{source}.cc")
        _output([compiler, *FLAGS, PROCESSOR, f"-I{jax.ffi.include_dir()}", code, "-o", str(draft)])
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
